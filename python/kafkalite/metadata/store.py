"""`__cluster_metadata-0` on disk: the log, its snapshots, and what the quorum remembers of itself.

    <metadata.log.dir>/bootstrap.checkpoint      features that the directory was formatted with
                       __cluster_metadata-0/
                         <20 digits>.log         batches, as the raft quorum writes them
                         <20 digits>-<10>.checkpoint
                                                 a snapshot: all records below the end offset, added
                                                 up; the second number is the epoch of the last
                         quorum-state            who led last, in which epoch
                         leader-epoch-checkpoint  partition.metadata     as of any log

`read` looks at it and changes nothing, so that a directory that must be refused stays what it was.
`MetadataLog` then appends: whole or not at all, for what takes several batches is a metadata
transaction. One node is the whole quorum: it leads each time it starts, in the next epoch, and what
is on its disk is committed. While the node serves, whoever brings batches to disk, or writes a
snapshot, may be another thread:

    prepare ──► Appending ──► on disk (`rust/src/net/metadata.rs`) ──► finish ──► image
    due_snapshot ──► Snapshot.write ──► end_snapshot

Kafka: `KafkaRaftClient`, `KafkaMetadataLog`, `FileQuorumStateStore`, `RecordsSnapshotWriter`.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kafkalite import _native
from kafkalite.errors import KafkaliteError, LogDirRefusedError, StorageError
from kafkalite.metadata import records
from kafkalite.metadata.image import Fold, Image, snapshot_records
from kafkalite.protocol import messages

FOLDER = "__cluster_metadata-0"
BOOTSTRAP_FILE = "bootstrap.checkpoint"
QUORUM_STATE_FILE = "quorum-state"

READ_BYTES = 1 << 20
BATCH_BYTES_MAX = 1 << 20
"""Of the records in a batch that we write; the quorum takes up to 8 MiB."""
BATCH_RECORDS_MAX = 10_000
SNAPSHOTS_KEPT = 2
SNAPSHOT_AFTER_RECORDS = 500
"""A clean stop writes a snapshot if the log has more records than this behind the last one."""

_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class Limits(NamedTuple):
    """When a running node writes a snapshot, and how large a segment of the log grows."""

    snapshot_after_bytes: int = 20 << 20
    """`metadata.log.max.record.bytes.between.snapshots`"""
    snapshot_after_ms: int = 3_600_000
    """`metadata.log.max.snapshot.interval.ms`; 0 is never."""
    segment_bytes: int = 1 << 30
    """`metadata.log.segment.bytes`"""


KAFKAS_LIMITS = Limits()


class Quorum(NamedTuple):
    """What the control records and `quorum-state` say."""

    leader_epoch: int = 0
    kraft_version: int = 0
    voters: Any = None
    """The VotersRecord of kraft.version 1, which a snapshot must repeat."""
    voter_ids: tuple[int, ...] = ()


class Found(NamedTuple):
    """What `read` has read."""

    folder: Path
    fold: Fold
    image: Image
    quorum: Quorum
    end_offset: int
    """Of the log."""
    snapshot_end_offset: int
    record_count: int
    """Of the log, behind the snapshot."""
    bootstrap: list[Any]
    """The messages of `bootstrap.checkpoint`."""

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written."""
        return self.end_offset == 0 and self.snapshot_end_offset == 0


def read(metadata_dir: Path) -> Found:
    """What is in the directory, which is not changed.

    A batch that cannot be read ends the log, as it does when the log is opened. Raises
    LogDirRefusedError where log and snapshots do not meet; CorruptFileError where records do not
    add up; StorageError where a file cannot be read.
    """
    try:
        return _read(metadata_dir)
    except OSError as error:
        path = error.filename or metadata_dir / FOLDER
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error


def _read(metadata_dir: Path) -> Found:
    folder = metadata_dir / FOLDER
    state = _State()
    snapshot_end_offset = 0
    for end_offset, epoch, path in reversed(_snapshots(folder)):
        state = _State()
        if _read_snapshot(path, state):
            snapshot_end_offset = end_offset
            state.epoch = epoch
            break
        state = _State()
    state.offset = snapshot_end_offset - 1
    record_count = 0
    for batch in _read_log(folder, snapshot_end_offset):
        if batch.base_offset > state.offset + 1:
            raise LogDirRefusedError(
                f"{folder} has no records from offset {state.offset + 1} to {batch.base_offset}: "
                "a snapshot or a segment is missing"
            )
        record_count += len(batch.records)
        state.add(batch)
    return Found(
        folder=folder,
        fold=state.fold,
        image=state.fold.image(state.epoch, state.offset, state.timestamp),
        quorum=_with_quorum_state(folder, state),
        end_offset=state.offset + 1,
        snapshot_end_offset=snapshot_end_offset,
        record_count=record_count,
        bootstrap=_read_bootstrap(metadata_dir / BOOTSTRAP_FILE),
    )


class _State:
    """Adds up batches."""

    def __init__(self) -> None:
        self.fold = Fold()
        self.quorum = Quorum()
        self.epoch = 0
        self.offset = -1
        self.timestamp = 0
        self.is_whole = False

    def add(self, batch: _native.RecordBatch, *, of_snapshot: bool = False) -> None:
        """The next batch. Those of a snapshot have the time of its writing, and its header that of
        the last record."""
        for offset, timestamp, key, value, _ in batch.records:
            if offset <= self.offset or value is None:
                continue
            if batch.is_control:
                self._control(records.decode_control(key or b"", value))
            elif value != records.NO_OP:
                self.fold.replay(records.decode(value))
            self.offset = offset
            if not of_snapshot:
                self.timestamp = timestamp
        self.epoch = max(self.epoch, batch.leader_epoch)

    def _control(self, message: Any) -> None:
        match message and message._name:
            case "LeaderChangeMessage":
                ids = tuple(voter.voter_id for voter in message.voters)
                self.quorum = self.quorum._replace(voter_ids=ids)
            case "KRaftVersionRecord":
                self.quorum = self.quorum._replace(kraft_version=message.k_raft_version)
            case "VotersRecord":
                ids = tuple(voter.voter_id for voter in message.voters)
                self.quorum = self.quorum._replace(voters=message, voter_ids=ids)
            case "SnapshotHeaderRecord":
                self.timestamp = message.last_contained_log_timestamp
            case "SnapshotFooterRecord":
                self.is_whole = True


def _snapshots(folder: Path) -> list[tuple[int, int, Path]]:
    """End offset, epoch and path of each snapshot, the newest last."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    matches = [match for name in names if (match := _SNAPSHOT_NAME.fullmatch(name))]
    return sorted((int(match[1]), int(match[2]), folder / match[0]) for match in matches)


def _read_snapshot(path: Path, state: _State) -> bool:
    """Whether the snapshot is whole."""
    for batch in _read_batches(path):
        state.add(batch, of_snapshot=True)
    return state.is_whole


def _read_log(folder: Path, from_offset: int) -> Iterator[_native.RecordBatch]:
    """Batches that hold `from_offset` or what follows it."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix == ".log")
    except FileNotFoundError:
        return
    bases = [int(name.removesuffix(".log")) for name in names]
    for index, name in enumerate(names):
        if index + 1 < len(names) and bases[index + 1] <= from_offset:
            continue
        path = folder / name
        yield from _read_batches(path, _native.position_of_offset(path, from_offset))


def _read_batches(path: Path, position: int = 0) -> Iterator[_native.RecordBatch]:
    """The batches of a file from a byte on, up to one that is torn or corrupt."""
    wanted = READ_BYTES
    with path.open("rb") as file:
        while True:
            file.seek(position)
            chunk = file.read(wanted)
            batches = _native.read_batches(chunk, stop_at_corrupt=True)
            yield from batches
            size = sum(batch.size_bytes for batch in batches)
            position += size
            if size == 0 and len(chunk) == wanted:
                wanted *= 2
            elif size == 0 or len(chunk) < wanted:
                return


def _read_bootstrap(path: Path) -> list[Any]:
    try:
        batches = list(_read_batches(path))
    except FileNotFoundError:
        return []
    return [
        records.decode(value)
        for batch in batches
        if not batch.is_control
        for _, _, _, value, _ in batch.records
        if value is not None
    ]


def _with_quorum_state(folder: Path, state: _State) -> Quorum:
    """The epoch may be newer than the log's: it was voted for, and nothing was written in it."""
    quorum = state.quorum._replace(leader_epoch=state.epoch)
    try:
        text = (folder / QUORUM_STATE_FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return quorum
    found = re.search(r'"leaderEpoch"\s*:\s*(\d+)', text)
    if not found or not re.search(r'"data_version"\s*:\s*[01]\b', text):
        raise LogDirRefusedError(f"{folder / QUORUM_STATE_FILE} cannot be read")
    ids = tuple(int(digits) for digits in re.findall(r'"voterId"\s*:\s*(\d+)', text))
    return quorum._replace(
        leader_epoch=max(quorum.leader_epoch, int(found[1])),
        voter_ids=quorum.voter_ids or ids,
    )


class Appending(NamedTuple):
    """Records on their way to disk, batch by batch; flushed together, after the last one."""

    batches: list[bytes]
    messages: list[list[Any]]
    """Of each batch."""
    end_offsets: list[int]
    """Of each batch: the offset after its last record."""
    now_ms: int


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
            _replace_file(self._folder / name, b"".join(batches), ".part")
            self._remove_old_files()
        finally:
            self._ended.set()

    def wait(self) -> None:
        """Until `write` has ended."""
        self._ended.wait()

    def _remove_old_files(self) -> None:
        try:
            snapshots = _snapshots(self._folder)
            if len(self._log.segments()) > 1:
                self._log.advance_log_start_offset(snapshots[-SNAPSHOTS_KEPT:][0][0])
                self._log.delete_old_segments(now_ms=self._now_ms)
                self._log.delete_due_files(now_ms=self._now_ms)
            for _, _, old in snapshots[:-SNAPSHOTS_KEPT]:
                old.unlink()
        except OSError as error:
            sentence = f"{self._folder}: old files cannot be removed: {error.strerror}"
            raise StorageError(sentence) from error


class MetadataLog:
    """Appends to the log and adds up what it appends. One thread at a time."""

    def __init__(
        self,
        found: Found,
        log: _native.Log,
        node_id: int,
        directory_id: bytes,
        now_ms: int,
        limits: Limits = KAFKAS_LIMITS,
        *,
        warn: Callable[[str], None],
    ) -> None:
        """Takes the lead in the next epoch; that is on disk when this returns. `directory_id` is
        that of the log directory; `warn(sentence)` is told what goes wrong without a change being
        lost. Raises LogDirRefusedError where the log is not the one that was read, KafkaliteError
        where the disk fails."""
        self._found = found
        self._fold = found.fold
        self._log = log
        self._node_id = node_id
        self._directory_id = directory_id
        self._quorum = found.quorum
        self._record_count = found.record_count
        self._snapshot_end_offset = found.snapshot_end_offset
        self._bytes_since = 0
        self._snapshot_ms = now_ms
        self._limits = limits
        self._warn = warn
        self._snapshot: Snapshot | None = None
        """Being written."""
        self.image = found.image
        self.leader_epoch = found.quorum.leader_epoch + 1
        if log.offsets.log_end_offset != found.end_offset:
            raise LogDirRefusedError(
                f"{found.folder} ends at offset {log.offsets.log_end_offset}, and its records at "
                f"{found.end_offset}"
            )
        self._write_quorum_state()
        self._write_rows(
            [(records.control_key(records.LEADER_CHANGE), self._leader_change())], now_ms
        )
        self._abort_what_is_open("the controller started anew", now_ms)
        self._publish(now_ms)

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.offsets.log_end_offset

    @property
    def bootstrap(self) -> list[Any]:
        """The messages of `bootstrap.checkpoint`."""
        return self._found.bootstrap

    @property
    def voter_directory_id(self) -> bytes:
        """As DescribeQuorum shows it: all zeros before kraft.version 1."""
        return self._directory_id if self._quorum.kraft_version else bytes(16)

    @property
    def kraft_version(self) -> int:
        """The version of the quorum's own records."""
        return self._quorum.kraft_version

    def append(self, appended: Sequence[Any], now_ms: int) -> Image:
        """Appends records, all of them or none, and has them on disk when it returns, whether or
        not a snapshot that was due could be written. Returns the image with them. Raises
        KafkaliteError as `finish`."""
        appending = self.prepare(appended, now_ms)
        error: KafkaliteError | None = None
        try:
            for batch in appending.batches:
                self._write_batch(batch, now_ms)
            self._log.flush()
        except KafkaliteError as failure:
            error = failure
        self.finish(appending, error)
        # At a stop one may be under way still.
        if self._snapshot is None and self._is_snapshot_due(now_ms):
            self._try_snapshot(now_ms)
        return self.image

    def prepare(self, appended: Sequence[Any], now_ms: int) -> Appending:
        """The batches by which records are there all or none, whenever the power goes: one, which
        has a checksum, or several within a metadata transaction (KIP-868). To be appended in this
        order, to `native_log`, and flushed; until `finish` there must not be others.
        """
        level = self.image.features.get("metadata.version", records.METADATA_VERSION_MAX)
        batches = _in_batches([(each, records.encode(each, level)) for each in appended])
        if len(batches) > 1:
            begin = messages.BeginTransactionRecord(name=f"{len(appended)} records")
            end = messages.EndTransactionRecord()
            batches = [[(begin, records.encode(begin))], *batches, [(end, records.encode(end))]]
        if self._fold.in_transaction:
            batches.insert(0, [_abort("a batch could not be written")])
        appending = Appending([], [], [], now_ms)
        offset = self.end_offset
        for batch in batches:
            rows = [(None, value) for _, value in batch]
            appending.batches.append(self._batch(rows, offset, now_ms))
            appending.messages.append([message for message, _ in batch])
            offset += len(batch)
            appending.end_offsets.append(offset)
        return appending

    def finish(self, appending: Appending, error: KafkaliteError | None) -> None:
        """Takes into the image what is on disk now. Where the disk has failed, raises `error`: it
        is not known whether the records are there, until the next start, and the image is without
        them."""
        count = len(appending.batches)
        if error is not None:
            # The last one, after which all would count, is there if only the flush has failed.
            written = sum(each <= self.end_offset for each in appending.end_offsets)
            count = min(written, count - 1)
        for batch, contained in zip(appending.batches[:count], appending.messages, strict=False):
            for message in contained:
                self._fold.replay(message)
            self._record_count += len(contained)
            self._bytes_since += len(batch)
        if error is not None:
            raise error
        self._publish(appending.now_ms)

    def is_written(self, appending: Appending) -> bool:
        """Whether the log has all of it."""
        return self.end_offset >= appending.end_offsets[-1]

    @property
    def native_log(self) -> _native.Log:
        """Where batches go."""
        return self._log

    def _abort_what_is_open(self, reason: str, now_ms: int) -> None:
        """Takes back the transaction that a kill has left open: what follows would be a part of
        it."""
        if self._fold.in_transaction:
            abort, value = _abort(reason)
            self._write_rows([(None, value)], now_ms)
            self._fold.replay(abort)

    def _publish(self, now_ms: int) -> None:
        self.image = self._fold.image(self.leader_epoch, self.end_offset - 1, now_ms)

    def _batch(
        self, rows: Sequence[tuple[bytes | None, bytes]], base_offset: int, now_ms: int
    ) -> bytes:
        builder = _native.BatchBuilder(
            base_offset=base_offset,
            leader_epoch=self.leader_epoch,
            control=rows[0][0] is not None,
        )
        for key, value in rows:
            builder.append(now_ms, key, value)
        return builder.finish()

    def _write_batch(self, batch: bytes, now_ms: int) -> None:
        self._log.append(batch, now_ms=now_ms, origin="replication", leader_epoch=self.leader_epoch)

    def _write_rows(self, rows: Sequence[tuple[bytes | None, bytes]], now_ms: int) -> None:
        batch = self._batch(rows, self.end_offset, now_ms)
        self._write_batch(batch, now_ms)
        self._log.flush()
        self._record_count += len(rows)
        self._bytes_since += len(batch)

    def _leader_change(self) -> bytes:
        # In version 0 at any kraft.version, as Kafka 4.3 reads it.
        kind = messages.LeaderChangeMessage
        voter = kind.Voter(voter_id=self._node_id)
        message = kind(leader_id=self._node_id, voters=[voter], granting_voters=[voter])
        body: bytes = message.encode(0)
        return body

    def _write_quorum_state(self) -> None:
        if self._quorum.kraft_version:
            text = (
                f'{{"leaderId":{self._node_id},"leaderEpoch":{self.leader_epoch},"votedId":-1,'
                f'"votedDirectoryId":"{"A" * 22}","data_version":1}}'
            )
        else:
            text = (
                f'{{"clusterId":"","leaderId":{self._node_id},"leaderEpoch":{self.leader_epoch},'
                f'"votedId":-1,"appliedOffset":0,"currentVoters":[{{"voterId":{self._node_id}}}],'
                '"data_version":0}'
            )
        _replace_file(self._found.folder / QUORUM_STATE_FILE, text.encode())

    def close(self, now_ms: int) -> None:
        """The clean stop: a snapshot if there is much to read otherwise. Nothing may be appended
        any more. Raises StorageError if the log cannot be closed."""
        if self._snapshot is not None:
            self._snapshot.wait()
            self._snapshot = None
        if self._record_count > SNAPSHOT_AFTER_RECORDS:
            self._try_snapshot(now_ms)
        self._log.close()

    def _try_snapshot(self, now_ms: int) -> None:
        """Writes a snapshot, or says why not: the log holds what it would have held. As in Kafka's
        `SnapshotGenerator`, the next is tried when it would be due had this one been written."""
        try:
            self.write_snapshot(now_ms)
        except StorageError as error:
            self.end_snapshot(error)

    def write_snapshot(self, now_ms: int) -> None:
        """Writes one up to here (`Snapshot.write`). Does nothing within a metadata transaction, or
        if there is one."""
        snapshot = self._new_snapshot(now_ms)
        if snapshot is not None:
            snapshot.write()
            self._count_from(snapshot)

    def due_snapshot(self, now_ms: int) -> Snapshot | None:
        """One that somebody is to write now, and then to call `end_snapshot`; there is one at a
        time. If it cannot be written, the next is due as if it had been."""
        if self._snapshot is not None or not self._is_snapshot_due(now_ms):
            return None
        self._snapshot = self._new_snapshot(now_ms)
        return self._snapshot

    def end_snapshot(self, error: KafkaliteError | None) -> None:
        """The one that was due has been written, or not."""
        snapshot, self._snapshot = self._snapshot, None
        if error is not None:
            self._warn(f"the snapshot of the metadata failed, whose log has everything: {error}")
        elif snapshot is not None:
            self._count_from(snapshot)

    def _count_from(self, snapshot: Snapshot) -> None:
        self._snapshot_end_offset = snapshot.end_offset
        self._record_count = self.end_offset - snapshot.end_offset

    def _is_snapshot_due(self, now_ms: int) -> bool:
        interval_ms = self._limits.snapshot_after_ms
        # A clock that was set back: the time counts from now on, not from what was ahead.
        self._snapshot_ms = min(self._snapshot_ms, now_ms)
        is_late = 0 < interval_ms <= now_ms - self._snapshot_ms
        return is_late or self._bytes_since >= self._limits.snapshot_after_bytes

    def _new_snapshot(self, now_ms: int) -> Snapshot | None:
        end_offset = self.image.last_offset + 1
        if end_offset == self._snapshot_end_offset or self._fold.in_transaction:
            return None
        self._bytes_since = 0
        self._snapshot_ms = now_ms
        return Snapshot(self._log, self._found.folder, self.image, self._quorum, now_ms)


def _abort(reason: str) -> tuple[Any, bytes]:
    """What takes back the records of a transaction that has not ended."""
    abort = messages.AbortTransactionRecord(reason=reason)
    return abort, records.encode(abort)


def _in_batches(rows: Sequence[tuple[Any, bytes]]) -> list[list[tuple[Any, bytes]]]:
    """Messages and their bytes, in as many batches as they take."""
    batches: list[list[tuple[Any, bytes]]] = []
    size = BATCH_BYTES_MAX
    for row in rows:
        size += len(row[1])
        if size > BATCH_BYTES_MAX or len(batches[-1]) == BATCH_RECORDS_MAX:
            batches.append([])
            size = len(row[1])
        batches[-1].append(row)
    return batches


def snapshot_batches(
    written: Sequence[Any], quorum: Quorum, image: Image, now_ms: int
) -> Iterator[bytes]:
    """The batches of a snapshot of the records `written`, messages or bytes."""
    header = messages.SnapshotHeaderRecord(last_contained_log_timestamp=image.last_timestamp)
    first = [(records.SNAPSHOT_HEADER, header)]
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
    _replace_file(metadata_dir / BOOTSTRAP_FILE, content)


def _replace_file(path: Path, content: bytes, suffix: str = ".tmp") -> None:
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
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
