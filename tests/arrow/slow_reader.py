"""The rows of log files, decoded one byte after the other: slow, plain, and right.

Isolation is the Java consumer's: aborted producers are found in the log's own markers.
"""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow

from arrow.encoder import GZIP, LZ4, NONE, SNAPPY, XERIAL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Row = dict[str, Any]


@dataclass
class Cursor:
    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        taken = self.data[self.at : self.at + count]
        assert len(taken) == count
        self.at += count
        return taken

    def unpack(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def varint(self) -> int:
        raw = shift = 0
        while True:
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
            shift += 7

    def nullable(self, length: int) -> bytes | None:
        return None if length < 0 else self.take(length)


def inflate(codec: int, data: bytes) -> bytes:
    if codec == NONE:
        return data
    if codec == GZIP:
        return gzip.decompress(data)
    if codec == SNAPPY:
        assert data.startswith(XERIAL)
        cursor, out = Cursor(data, len(XERIAL)), b""
        while cursor.at < len(data):
            out += _stream("snappy", cursor.take(cursor.unpack(">i")))
        return out
    return _stream("lz4" if codec == LZ4 else "zstd", data)


def _stream(codec: str, data: bytes) -> bytes:
    if codec == "snappy":
        size = shift = at = 0
        while True:
            byte = data[at]
            size |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        return pyarrow.decompress(data, decompressed_size=size, codec=codec, asbytes=True)
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(data), codec) as stream:
        return stream.read()


def batches(directory: Path) -> Iterator[bytes]:
    for path in sorted(directory.glob("*.log")):
        cursor = Cursor(path.read_bytes())
        while cursor.at < len(cursor.data):
            size = 12 + struct.unpack_from(">i", cursor.data, cursor.at + 8)[0]
            yield cursor.take(size)


def read(
    directory: Path,
    start: int = 0,
    stop: int = 1 << 62,
    *,
    committed: bool = False,
) -> list[Row]:
    topic, _, partition = directory.name.rpartition("-")
    rows: list[Row] = []
    transactions: dict[int, list[Row]] = {}
    first_offsets: dict[int, int] = {}
    pending: list[Row] = []
    for encoded in batches(directory):
        for row, control, producer_id in records(encoded):
            if control:
                dropped = transactions.pop(producer_id, [])
                first_offsets.pop(producer_id, None)
                if control == "abort" and committed:
                    pending = [row for row in pending if not any(row is d for d in dropped)]
                continue
            row |= {"topic": topic, "partition": int(partition)}
            if producer_id is not None:
                first_offsets.setdefault(producer_id, struct.unpack_from(">q", encoded)[0])
                transactions.setdefault(producer_id, []).append(row)
            pending.append(row)
    last_stable = min(first_offsets.values(), default=1 << 62) if committed else 1 << 62
    rows += [row for row in pending if start <= row["offset"] < min(stop, last_stable)]
    return rows


def records(encoded: bytes) -> Iterator[tuple[Row, str | None, int | None]]:
    """Row, "commit" or "abort" for a marker, producer id for a transaction's record or marker."""
    if encoded[16] < 2:
        for row in legacy(encoded):
            yield row, None, None
        return
    cursor = Cursor(encoded)
    base_offset = cursor.unpack(">q")
    cursor.take(13)
    attributes = cursor.unpack(">h")
    cursor.take(4)
    base_timestamp, max_timestamp = cursor.unpack(">q"), cursor.unpack(">q")
    producer_id = cursor.unpack(">q")
    cursor.take(6)
    count = cursor.unpack(">i")
    body = Cursor(inflate(attributes & 7, encoded[61:]) if count else b"")
    for _ in range(count):
        end = body.varint() + body.at
        body.take(1)
        timestamp = base_timestamp + body.varint()
        offset = base_offset + body.varint()
        key = body.nullable(body.varint())
        value = body.nullable(body.varint())
        headers = [
            {
                "key": body.take(body.varint()).decode(errors="replace"),
                "value": body.nullable(body.varint()),
            }
            for _ in range(body.varint())
        ]
        assert body.at == end
        row = {
            "key": key,
            "value": value,
            "offset": offset,
            "timestamp": max_timestamp if attributes & 8 else timestamp,
            "timestampType": int(bool(attributes & 8)),
            "headers": headers or None,
        }
        control = None
        if attributes & 0x20:
            assert key is not None
            control = "commit" if struct.unpack(">hh", key)[1] else "abort"
        yield row, control, producer_id if attributes & 0x10 else None
    assert body.at == len(body.data)


def legacy(encoded: bytes) -> list[Row]:
    offset, row, attributes, magic = one_message(Cursor(encoded))
    if not attributes & 7:
        return [row]
    inner = Cursor(inflate(attributes & 7, row["value"]))
    rows = []
    while inner.at < len(inner.data):
        rows.append(one_message(inner)[1])
    shift = offset - rows[-1]["offset"] if magic == 1 else 0
    for each in rows:
        each["offset"] += shift
        if attributes & 8:
            each |= {"timestamp": row["timestamp"], "timestampType": 1}
    return rows


def one_message(cursor: Cursor) -> tuple[int, Row, int, int]:
    offset = cursor.unpack(">q")
    cursor.take(8)
    magic, attributes = cursor.unpack(">b"), cursor.unpack(">b")
    row: Row = {"offset": offset, "headers": None}
    row["timestamp"] = cursor.unpack(">q") if magic == 1 else -1
    row["timestampType"] = int(bool(attributes & 8)) if magic == 1 else -1
    row["key"] = cursor.nullable(cursor.unpack(">i"))
    row["value"] = cursor.nullable(cursor.unpack(">i"))
    return offset, row, attributes, magic
