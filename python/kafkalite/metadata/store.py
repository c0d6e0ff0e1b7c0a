"""`__cluster_metadata-0` on disk: the log, its snapshots, and what the quorum remembers of itself.

    <metadata.log.dir>/bootstrap.checkpoint      features that the directory was formatted with
                       __cluster_metadata-0/
                         <20 digits>.log         batches, as the raft quorum writes them
                         <20 digits>-<10>.checkpoint
                                                 a snapshot: all records below the end offset, added
                                                 up; the second number is the epoch of the last
                         quorum-state            who led last, in which epoch
                         leader-epoch-checkpoint  partition.metadata     as of any log

`reading.py` looks at it and changes nothing, `snapshots.py` writes snapshots. `MetadataLog`
appends: whole or not at all, for what takes several batches is a metadata transaction. One node is
the whole quorum: it leads each time it starts, in the next epoch, and what is on its disk is
committed. While the node serves, whoever brings batches to disk, or writes a snapshot, may be
another thread:

    prepare ──► Appending ──► on disk (`net/control/metadata_append.rs`) ──► finish ──► image
    due_snapshot ──► Snapshot.write ──► end_snapshot

Kafka: `KafkaRaftClient`, `KafkaMetadataLog`, `FileQuorumStateStore`, `RecordsSnapshotWriter`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalite import _native
from kafkalite.errors import KafkaliteError, LogDirRefusedError, StorageError
from kafkalite.metadata import records
from kafkalite.metadata.fold import MetadataDelta
from kafkalite.metadata.quorum import QUORUM_STATE_FILE, quorum_state_text
from kafkalite.metadata.reading import Found
from kafkalite.metadata.snapshots import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    Snapshot,
    replace_file,
)
from kafkalite.protocol import messages

SNAPSHOT_AFTER_RECORDS = 500
"""A clean stop writes a snapshot if the log has more records than this behind the last one."""


class MetadataLogLimits(NamedTuple):
    """When a running node writes a snapshot, and how large a segment of the log grows."""

    snapshot_after_bytes: int = 20 << 20
    """`metadata.log.max.record.bytes.between.snapshots`"""
    snapshot_after_ms: int = 3_600_000
    """`metadata.log.max.snapshot.interval.ms`; 0 is never."""
    segment_bytes: int = 1 << 30
    """`metadata.log.segment.bytes`"""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "MetadataLogLimits":
        """The limits in a broker's configuration."""
        return cls(
            config["metadata.log.max.record.bytes.between.snapshots"],
            config["metadata.log.max.snapshot.interval.ms"],
            config["metadata.log.segment.bytes"],
        )


KAFKAS_LIMITS = MetadataLogLimits()


class Appending(NamedTuple):
    """Records on their way to disk, batch by batch; flushed together, after the last one."""

    batches: list[bytes]
    messages: list[list[Any]]
    """The messages of each batch."""
    end_offsets: list[int]
    """The offset after the last record of each batch."""
    now_ms: int


class MetadataLog:
    """Appends to the log and adds up what it appends. One thread at a time."""

    def __init__(
        self,
        found: Found,
        log: _native.Log,
        node_id: int,
        directory_id: bytes,
        now_ms: int,
        limits: MetadataLogLimits = KAFKAS_LIMITS,
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
        self._take_delta(now_ms)

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.offsets.log_end_offset

    @property
    def bootstrap(self) -> list[Any]:
        """The messages of `bootstrap.checkpoint`."""
        return self._found.bootstrap

    @property
    def leader_id(self) -> int:
        """The id of the node that leads the quorum: the only voter."""
        return self._node_id

    @property
    def voter_directory_id(self) -> bytes:
        """The directory's id as DescribeQuorum shows it: all zeros before kraft.version 1."""
        return self._directory_id if self._quorum.kraft_version else bytes(16)

    @property
    def kraft_version(self) -> int:
        """The version of the quorum's own records."""
        return self._quorum.kraft_version

    def append(self, appended: Sequence[Any], now_ms: int) -> MetadataDelta:
        """Appends records, all of them or none, and has them on disk when it returns, whether or
        not a snapshot that was due could be written. Returns and raises as `finish`."""
        appending = self.prepare(appended, now_ms)
        error: KafkaliteError | None = None
        try:
            for batch in appending.batches:
                self._write_batch(batch, now_ms)
            self._log.flush()
        except KafkaliteError as failure:
            error = failure
        delta = self.finish(appending, error)
        # At a stop one may be under way still.
        if self._snapshot is None and self._is_snapshot_due(now_ms):
            self._try_snapshot(now_ms)
        return delta

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

    def finish(self, appending: Appending, error: KafkaliteError | None) -> MetadataDelta:
        """Takes into the image what is on disk now; returns how that changes it. Where the disk has
        failed, raises `error`: it is not known whether the records are there, until the next start,
        and the image is without them."""
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
        return self._take_delta(appending.now_ms)

    def is_written(self, appending: Appending) -> bool:
        """The log has all of it."""
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

    def _take_delta(self, now_ms: int) -> MetadataDelta:
        delta = self._fold.take_delta(self.leader_epoch, self.end_offset - 1, now_ms)
        self.image = delta.image
        return delta

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
        version = self._quorum.kraft_version
        text = quorum_state_text(version, self._node_id, self.leader_epoch, [self._node_id])
        replace_file(self._found.folder / QUORUM_STATE_FILE, text.encode())

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
    """The record that takes back those of a transaction that has not ended."""
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
