"""Kafka's log files, written by plain Python: the second implementation of the format.

Codecs are pyarrow's and the standard library's; nothing here is kafkalite's.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow

from api.batches import crc32c, varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
# Magic, version 1 with independent blocks, blocks of 64 KiB, checksum of these two bytes.
LZ4_FRAME = b"\x04\x22\x4d\x18\x60\x40\x82"

Headers = tuple[tuple[bytes, bytes | None], ...]


@dataclass(frozen=True)
class Record:
    key: bytes | None = None
    value: bytes | None = b""
    timestamp: int = 1_700_000_000_000
    headers: Headers = ()
    offset: int | None = None
    """Where compaction left it; else the next one."""


def nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def compress(codec: int, data: bytes) -> bytes:
    if codec == NONE:
        return data
    if codec == GZIP:
        return gzip.compress(data, compresslevel=6, mtime=0)
    if codec == SNAPPY:
        out = bytearray(XERIAL)
        for at in range(0, len(data), 32 * 1024):
            block = pyarrow.compress(data[at : at + 32 * 1024], codec="snappy", asbytes=True)
            out += struct.pack(">i", len(block)) + block
        return bytes(out)
    if codec == LZ4:
        # pyarrow's own frames have dependent blocks, which Kafka refuses.
        out = bytearray(LZ4_FRAME)
        for at in range(0, len(data), 64 * 1024):
            plain = data[at : at + 64 * 1024]
            block = pyarrow.compress(plain, codec="lz4_raw", asbytes=True)
            if len(block) < len(plain):
                out += struct.pack("<I", len(block)) + block
            else:
                out += struct.pack("<I", len(plain) | 1 << 31) + plain
        return bytes(out) + bytes(4)
    return pyarrow.compress(data, codec="zstd", asbytes=True)


def batch(
    base_offset: int,
    records: Sequence[Record],
    *,
    codec: int = NONE,
    log_append_time: int | None = None,
    producer_id: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    """One batch of magic 2."""
    base_timestamp = records[0].timestamp if records else -1
    if delete_horizon is not None:
        base_timestamp = delete_horizon
    max_timestamp = max((record.timestamp for record in records), default=-1)
    body = bytearray()
    offset = base_offset
    for record in records:
        offset = offset if record.offset is None else record.offset
        fields = (
            b"\0"
            + varint(record.timestamp - base_timestamp)
            + varint(offset - base_offset)
            + nullable(record.key)
            + nullable(record.value)
            + varint(len(record.headers))
            + b"".join(nullable(key) + nullable(value) for key, value in record.headers)
        )
        body += varint(len(fields)) + fields
        offset += 1
    last = offset - 1 if last_offset is None else last_offset
    attributes = codec
    if log_append_time is not None:
        attributes |= 8
        max_timestamp = log_append_time
    attributes |= 0x10 * transactional | 0x20 * control
    attributes |= 0x40 * (delete_horizon is not None)
    summed = struct.pack(
        ">hiqqqhii",
        attributes,
        last - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        0 if producer_id >= 0 else -1,
        0 if producer_id >= 0 and not control else -1,
        len(records),
    ) + (compress(codec, bytes(body)) if records else b"")
    head = struct.pack(">ibI", 0, 2, crc32c(summed))
    return struct.pack(">qi", base_offset, len(head) + len(summed)) + head + summed


def at_offset(encoded: bytes, base_offset: int) -> bytes:
    """The same batch elsewhere: the base offset is outside the CRC."""
    return struct.pack(">q", base_offset) + encoded[8:]


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    """The control batch that ends a transaction."""
    record = Record(key=struct.pack(">hh", 0, int(commit)), value=struct.pack(">hi", 0, 0))
    return batch(offset, [record], producer_id=producer_id, transactional=True, control=True)


def message(offset: int, record: Record, *, magic: int, attributes: int = 0) -> bytes:
    """One message of magic 0 or 1."""
    summed = struct.pack(">bb", magic, attributes)
    if magic == 1:
        summed += struct.pack(">q", record.timestamp)
    for data in (record.key, record.value):
        summed += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    body = struct.pack(">I", zlib.crc32(summed)) + summed
    return struct.pack(">qi", offset, len(body)) + body


def message_set(
    base_offset: int,
    records: Sequence[Record],
    *,
    magic: int,
    codec: int,
    log_append_time: int | None = None,
) -> bytes:
    """A compressed set of magic 0 or 1: a message around messages, with the last one's offset.

    Inner offsets are absolute in magic 0 and count from 0 in magic 1.
    """
    inner = b"".join(
        message(index if magic == 1 else base_offset + index, record, magic=magic)
        for index, record in enumerate(records)
    )
    attributes = codec | (8 if log_append_time is not None else 0)
    timestamp = max(record.timestamp for record in records)
    if log_append_time is not None:
        timestamp = log_append_time
    wrapper = Record(None, compress(codec, inner), timestamp)
    last = base_offset + len(records) - 1
    return message(last, wrapper, magic=magic, attributes=attributes)


def next_offset(encoded: bytes) -> int:
    base_offset = struct.unpack_from(">q", encoded)[0]
    if encoded[16] < 2:
        return base_offset + 1
    return base_offset + struct.unpack_from(">i", encoded, 23)[0] + 1


@dataclass
class LogWriter:
    """A partition's directory, made batch by batch."""

    directory: Path
    index_interval: int | None = 4096
    """Bytes between entries of the offset index; None: no index is written."""
    base_offset: int = 0
    end: int = 0
    size: int = 0
    since_entry: int = 0
    bases: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.roll(self.base_offset)

    def path(self, kind: str = "log", base_offset: int | None = None) -> Path:
        base = self.base_offset if base_offset is None else base_offset
        return self.directory / f"{base:020}.{kind}"

    def roll(self, base_offset: int | None = None) -> None:
        self.base_offset = self.end if base_offset is None else base_offset
        self.end = max(self.end, self.base_offset)
        self.size = 0
        self.since_entry = 0
        self.bases.append(self.base_offset)
        self.path().touch()
        if self.index_interval is not None:
            self.path("index").touch()

    def write(self, encoded: bytes) -> None:
        if self.index_interval is not None and self.since_entry > self.index_interval:
            with self.path("index").open("ab") as file:
                last = next_offset(encoded) - 1
                file.write(struct.pack(">ii", last - self.base_offset, self.size))
            self.since_entry = 0
        with self.path().open("ab") as file:
            file.write(encoded)
        self.size += len(encoded)
        self.since_entry += len(encoded)
        self.end = next_offset(encoded)

    def append(self, records: Sequence[Record], **options: object) -> None:
        self.write(batch(self.end, records, **options))  # type: ignore[arg-type]

    def mark(self, producer_id: int, *, commit: bool) -> int:
        """Ends the producer's transaction; the marker's offset."""
        offset = self.end
        self.write(marker(offset, producer_id, commit=commit))
        return offset

    def aborted(self, entries: Iterable[tuple[int, int, int, int]], base_offset: int) -> None:
        """Producer id, first offset, marker's offset, last stable offset of each."""
        with self.path("txnindex", base_offset).open("ab") as file:
            for entry in entries:
                file.write(struct.pack(">hqqqq", 0, *entry))

    def snapshot(self, producers: dict[int, int]) -> None:
        """Producer state at the end: producer id → first offset of its open transaction, or -1."""
        entries = b"".join(
            struct.pack(">qhiqiqiq", producer_id, 0, 0, 0, 0, 0, 0, first)
            for producer_id, first in sorted(producers.items())
        )
        body = struct.pack(">i", len(producers)) + entries
        self.path("snapshot", self.end).write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)
