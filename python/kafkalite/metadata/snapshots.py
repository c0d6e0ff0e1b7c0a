"""Writes snapshots of the metadata, `<end offset>-<epoch>.checkpoint`; and `bootstrap.checkpoint`
of a new directory.

Any thread may write one: it changes nothing but files, and holds the image that it writes, which
is immutable. Which files there are, is told in `store.py`.

Kafka: `RecordsSnapshotWriter`, `SnapshotGenerator`.
"""

import errno
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kafkalite import _native
from kafkalite.errors import DescriptorsExhaustedError, StorageError
from kafkalite.metadata import records
from kafkalite.metadata.image import Image
from kafkalite.metadata.image_records import snapshot_records
from kafkalite.metadata.quorum import Quorum
from kafkalite.protocol import messages

FOLDER = "__cluster_metadata-0"
BOOTSTRAP_FILE = "bootstrap.checkpoint"

BATCH_BYTES_MAX = 1 << 20
"""The size of the records in a batch that we write; the quorum takes up to 8 MiB."""
BATCH_RECORDS_MAX = 10_000
SNAPSHOTS_KEPT = 2

_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def list_snapshots(folder: Path) -> list[tuple[int, int, Path]]:
    """End offset, epoch and path of each snapshot, the newest last."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    matches = [match for name in names if (match := _SNAPSHOT_NAME.fullmatch(name))]
    return sorted((int(match[1]), int(match[2]), folder / match[0]) for match in matches)


class Snapshot:
    """One that is to be written, by any thread: it changes nothing but files."""

    def __init__(
        self, log: _native.Log, folder: Path, image: Image, quorum: Quorum, now_ms: int
    ) -> None:
        self.end_offset = image.last_offset + 1
        self._log = log
        self._folder = folder
        self._image = image
        self._quorum = quorum
        self._now_ms = now_ms
        self._ended = threading.Event()

    def write(self) -> None:
        """Writes it, so that it survives a power cut then, and removes those that are old, with the
        segments that only they needed. Raises StorageError; the files that are there then still add
        up to the image."""
        try:
            name = f"{self.end_offset:020}-{self._image.leader_epoch:010}.checkpoint"
            written = snapshot_records(self._image)
            batches = snapshot_batches(written, self._quorum, self._image, self._now_ms)
            replace_file(self._folder / name, b"".join(batches), ".part")
            self._remove_old_files()
        finally:
            self._ended.set()

    def wait(self) -> None:
        """Until `write` has ended."""
        self._ended.wait()

    def _remove_old_files(self) -> None:
        try:
            snapshots = list_snapshots(self._folder)
            if len(self._log.segments()) > 1:
                self._log.advance_log_start_offset(snapshots[-SNAPSHOTS_KEPT:][0][0])
                self._log.delete_old_segments(now_ms=self._now_ms)
                self._log.delete_due_files(now_ms=self._now_ms)
            for _, _, old in snapshots[:-SNAPSHOTS_KEPT]:
                old.unlink()
        except OSError as error:
            raise storage_error(f"{self._folder}: old files cannot be removed", error) from error


def snapshot_batches(
    written: Sequence[Any], quorum: Quorum, image: Image, now_ms: int
) -> Iterator[bytes]:
    """The batches of a snapshot of the records `written`, messages or bytes."""
    header = messages.SnapshotHeaderRecord(last_contained_log_timestamp=image.last_timestamp)
    first: list[tuple[Any, Any]] = [(records.SNAPSHOT_HEADER, header)]
    if quorum.kraft_version:
        version = messages.KRaftVersionRecord(k_raft_version=quorum.kraft_version)
        first.append((records.KRAFT_VERSION, version))
        first.append((records.VOTERS, quorum.voters))
    last = [(records.SNAPSHOT_FOOTER, messages.SnapshotFooterRecord())]
    offset = 0
    epoch = image.leader_epoch
    level = image.features.get("metadata.version", records.METADATA_VERSION_MAX)

    def batch(rows: Sequence[tuple[bytes | None, bytes]]) -> bytes:
        nonlocal offset
        builder = _native.BatchBuilder(
            base_offset=offset, leader_epoch=epoch, control=rows[0][0] is not None
        )
        for key, value in rows:
            builder.append(now_ms, key, value)
        offset += len(rows)
        return builder.finish()

    yield batch([(records.control_key(kind), message.encode(0)) for kind, message in first])
    rows: list[tuple[bytes | None, bytes]] = []
    size = 0
    for each in written:
        value = each if isinstance(each, bytes) else records.encode(each, level)
        rows.append((None, value))
        size += len(value)
        if size >= BATCH_BYTES_MAX or len(rows) == BATCH_RECORDS_MAX:
            yield batch(rows)
            rows, size = [], 0
    if rows:
        yield batch(rows)
    yield batch([(records.control_key(kind), message.encode(0)) for kind, message in last])


def write_bootstrap(metadata_dir: Path, written: Sequence[Any], now_ms: int) -> None:
    """`bootstrap.checkpoint`, as `kafka-storage format` leaves it. Raises StorageError."""
    content = b"".join(snapshot_batches(written, Quorum(), Image(), now_ms))
    replace_file(metadata_dir / BOOTSTRAP_FILE, content)


def storage_error(sentence: str, error: OSError) -> StorageError:
    """The error of a failed call; that of a lack of descriptors says that nothing is lost."""
    is_short = error.errno in (errno.EMFILE, errno.ENFILE)
    kind = DescriptorsExhaustedError if is_short else StorageError
    return kind(f"{sentence}: {error.strerror}")


def replace_file(path: Path, content: bytes, suffix: str = ".tmp") -> None:
    """After it returns, the file is there whole, whenever the power goes. Raises StorageError; the
    file is then the old one or the new one, and no part of a file is left beside it."""
    temporary = path.with_name(path.name + suffix)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise storage_error(f"{path} cannot be written", error) from error
