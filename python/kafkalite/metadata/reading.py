"""Reads `__cluster_metadata-0` and changes nothing, so that a directory that must be refused stays
as it was.

    bootstrap.checkpoint ─┐
    newest whole snapshot ┼─► Fold ──► Found (image, quorum, where the log ends)
    log from there on ────┘

A batch that cannot be read ends the log. Which files there are, is told in `store.py`.

Kafka: `KafkaMetadataLog`, `RecordsSnapshotReader`, `FileQuorumStateStore`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kafkalite import _native
from kafkalite.errors import LogDirRefusedError, StorageError
from kafkalite.metadata import records
from kafkalite.metadata.fold import Fold
from kafkalite.metadata.image import Image
from kafkalite.metadata.quorum import Quorum, with_quorum_state
from kafkalite.metadata.snapshots import BOOTSTRAP_FILE, FOLDER, list_snapshots

READ_BYTES = 1 << 20


class Found(NamedTuple):
    """The metadata directory as it was found."""

    folder: Path
    fold: Fold
    image: Image
    quorum: Quorum
    end_offset: int
    """The log's."""
    snapshot_end_offset: int
    record_count: int
    """The number of records in the log behind the snapshot."""
    bootstrap: list[Any]
    """The messages of `bootstrap.checkpoint`."""

    @property
    def is_new(self) -> bool:
        """Nothing was ever written."""
        return self.end_offset == 0 and self.snapshot_end_offset == 0


def read(metadata_dir: Path) -> Found:
    """Reads the directory, which is not changed.

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
    state = _newest_snapshot(folder)
    snapshot_end_offset = state.offset + 1
    record_count = 0
    for batch in _read_behind(folder, snapshot_end_offset):
        record_count += len(batch.records)
        state.add(batch)
    return Found(
        folder=folder,
        fold=state.fold,
        image=state.fold.take_delta(state.epoch, state.offset, state.timestamp).image,
        quorum=with_quorum_state(folder, state.quorum, state.epoch),
        end_offset=state.offset + 1,
        snapshot_end_offset=snapshot_end_offset,
        record_count=record_count,
        bootstrap=_read_bootstrap(metadata_dir / BOOTSTRAP_FILE),
    )


class Observed(NamedTuple):
    """The copy of an observer, as its last process has left it."""

    snapshot: "Replay"
    """The newest snapshot, added up: all of it is committed."""
    batches: list[_native.RecordBatch]
    """The batches after it. The quorum says how many of them are committed."""
    leader_epoch: int
    """The latest that is known, of the log or of `quorum-state`."""

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.batches[-1].last_offset + 1 if self.batches else self.snapshot.offset + 1


def read_observed(metadata_dir: Path) -> Observed:
    """Reads the directory of a node that observes the quorum, as `read` does, and raises so."""
    folder = metadata_dir / FOLDER
    try:
        state = _newest_snapshot(folder)
        batches = list(_read_behind(folder, state.offset + 1))
        epoch = batches[-1].leader_epoch if batches else state.epoch
        quorum = with_quorum_state(folder, state.quorum, epoch)
    except OSError as error:
        path = error.filename or folder
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    return Observed(state, batches, quorum.leader_epoch)


def _newest_snapshot(folder: Path) -> "Replay":
    """The newest snapshot that is whole, added up; without one there is nothing yet."""
    for end_offset, epoch, path in reversed(list_snapshots(folder)):
        state = Replay()
        if _read_snapshot(path, state):
            state.offset, state.epoch = end_offset - 1, epoch
            return state
    return Replay()


def _read_behind(folder: Path, end_offset: int) -> Iterator[_native.RecordBatch]:
    """The batches behind a snapshot. Raises LogDirRefusedError where they do not follow it, or each
    other."""
    for batch in _read_log(folder, end_offset):
        if batch.base_offset > end_offset:
            raise LogDirRefusedError(
                f"{folder} has no records from offset {end_offset} to {batch.base_offset}: "
                "a snapshot or a segment is missing"
            )
        end_offset = batch.last_offset + 1
        yield batch


class Replay:
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
        self.add_some(batch, 0, len(batch.records), of_snapshot=of_snapshot)

    def add_some(
        self, batch: _native.RecordBatch, start: int, end: int, *, of_snapshot: bool = False
    ) -> None:
        """As `add`, the records of these places. What they change holds with the whole batch."""
        for offset, timestamp, key, value, _ in batch.records[start:end]:
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


def _read_snapshot(path: Path, state: Replay) -> bool:
    """Adds a snapshot up; False if it is not whole."""
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
