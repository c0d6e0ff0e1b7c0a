"""The copy of `__cluster_metadata-0` that an observer keeps in its metadata directory, as Kafka's
brokers do: a start reads it and asks the controllers for what has come since, and Kafka's broker
goes on with it, as this one goes on with Kafka's (`metadata/store.py` has the files).

    Observer ──► append, truncate_to, start_at, follow ──► a queue ──► the copy's thread ──► files
    committed image ──► snapshot_if_due ───────────────────┘

Nobody waits for the disk: what is committed the quorum keeps, so that it holds here before it is on
this disk, and what a power cut takes is fetched again. While the disk is behind by
BEHIND_BYTES_MAX nothing more is to be asked for. A copy that cannot be read, or does not add up, is
dropped, and fetched anew; one that cannot be written ends the broker, as in Kafka.

Kafka: `KafkaMetadataLog`, `FileQuorumStateStore`, `SnapshotGenerator`.
"""

import queue
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from kafkalite import _native
from kafkalite.errors import (
    CorruptFileError,
    DescriptorsExhaustedError,
    KafkaliteError,
    LogDirRefusedError,
    StorageError,
)
from kafkalite.metadata import reading
from kafkalite.metadata.image import Image
from kafkalite.metadata.quorum import QUORUM_STATE_FILE, Quorum, quorum_state_text
from kafkalite.metadata.snapshots import (
    FOLDER,
    Snapshot,
    list_snapshots,
    replace_file,
    storage_error,
)
from kafkalite.metadata.store import MetadataLogLimits
from kafkalite.timers import wall_ms

BEHIND_BYTES_MAX: Final = 16 << 20
"""Bytes that wait for the disk, and are in memory meanwhile."""
CLOSE_WAIT_S: Final = 30.0
RETRY_S: Final = 0.1
"""Until a write is tried again that lacked a descriptor."""


class Opened(NamedTuple):
    """The copy, and what is in it."""

    copy: "LocalCopy"
    observed: reading.Observed
    directory_id: bytes
    """The id of the metadata directory, zeros if it has none of its own."""


class LocalCopy:
    """See above. Used by one thread at a time; its own writes."""

    def __init__(
        self, folder: Path, log: _native.Log, observed: reading.Observed, limits: MetadataLogLimits
    ) -> None:
        self.failure: KafkaliteError | None = None
        """Why nothing is written any more; any thread may look."""
        self._folder = folder
        self._log = log
        self._limits = limits
        self._quorum = observed.snapshot.quorum
        self._bytes_since = sum(each.size_bytes for each in observed.batches)
        self._snapshot_end_offset = observed.snapshot.offset + 1
        self._snapshot_ms = wall_ms()
        self._behind_bytes = 0
        self._counting = threading.Lock()
        self._work = queue.SimpleQueue[tuple[Callable[[], object], int] | None]()
        self._thread = threading.Thread(target=self._run, name="metadata-log", daemon=True)
        self._thread.start()

    @property
    def is_behind(self) -> bool:
        """So much waits for the disk that nothing more is to be asked for."""
        return self._behind_bytes > BEHIND_BYTES_MAX

    def append(self, records: bytes, leader_epoch: int) -> None:
        """Whole batches that follow what there is."""
        self._bytes_since += len(records)
        self._put(
            lambda: self._log.append(
                records, now_ms=wall_ms(), origin="replication", leader_epoch=leader_epoch
            ),
            len(records),
        )

    def truncate_to(self, end_offset: int) -> None:
        """Everything from this offset on is taken back."""
        self._put(lambda: self._log.truncate_to(end_offset, now_ms=wall_ms()))

    def start_at(self, content: bytes, end_offset: int, epoch: int) -> None:
        """A snapshot takes the place of all there is: the log goes on behind it."""
        self._bytes_since = 0
        self._snapshot_end_offset, self._snapshot_ms = end_offset, wall_ms()
        self._put(lambda: self._start_at(content, end_offset, epoch), len(content))

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """Another controller leads, -1 none that is known, or another epoch has begun."""
        text = quorum_state_text(
            self._quorum.kraft_version, leader_id, leader_epoch, self._quorum.voter_ids
        )
        self._put(lambda: replace_file(self._folder / QUORUM_STATE_FILE, text.encode()))

    def snapshot_if_due(self, image: Image, quorum: Quorum) -> None:
        """Writes one of all that is committed, where that is due, so that the log does not grow for
        ever."""
        self._quorum = quorum
        now_ms, interval_ms = wall_ms(), self._limits.snapshot_after_ms
        # A clock that was set back: the time counts from now on, not from what was ahead.
        self._snapshot_ms = min(self._snapshot_ms, now_ms)
        is_late = 0 < interval_ms <= now_ms - self._snapshot_ms
        end_offset = image.last_offset + 1
        is_due = is_late or self._bytes_since >= self._limits.snapshot_after_bytes
        if is_due and end_offset > self._snapshot_end_offset:
            self._bytes_since = 0
            self._snapshot_end_offset, self._snapshot_ms = end_offset, now_ms
            snapshot = Snapshot(self._log, self._folder, image, quorum, now_ms)
            # Segments go only as far as the log is on disk.
            self._put(self._log.flush)
            self._put(snapshot.write)

    def close(self) -> None:
        """Writes what waits, and closes the log. Raises KafkaliteError where that fails."""
        self._work.put((self._log.close, 0))
        self._work.put(None)
        self._thread.join(CLOSE_WAIT_S)
        if self._thread.is_alive():
            raise StorageError(f"{self._folder} does not answer")
        if self.failure is not None:
            raise self.failure

    def _put(self, work: Callable[[], object], size_bytes: int = 0) -> None:
        with self._counting:
            self._behind_bytes += size_bytes
        self._work.put((work, size_bytes))

    def _run(self) -> None:
        """The thread's body. After a failure nothing is written: what came next would leave a
        gap."""
        while (item := self._work.get()) is not None:
            work, size_bytes = item
            if self.failure is None:
                try:
                    self._do(work)
                except KafkaliteError as error:
                    self.failure = error
            with self._counting:
                self._behind_bytes -= size_bytes

    def _do(self, work: Callable[[], object]) -> None:
        """Tries again while there are no descriptors: others may close theirs, and what is
        committed the quorum keeps."""
        while True:
            try:
                work()
            except DescriptorsExhaustedError:
                time.sleep(RETRY_S)
            else:
                return

    def _start_at(self, content: bytes, end_offset: int, epoch: int) -> None:
        name = f"{end_offset:020}-{epoch:010}.checkpoint"
        replace_file(self._folder / name, content, ".part")
        self._log.truncate_fully_and_start_at(end_offset, now_ms=wall_ms())
        self._log.delete_due_files(now_ms=wall_ms())
        try:
            for _, _, old in list_snapshots(self._folder):
                if old.name != name:
                    old.unlink()
        except OSError as error:
            sentence = f"{self._folder}: old snapshots cannot be removed"
            raise storage_error(sentence, error) from error


def open_copy(
    claimed: _native.ClaimedDirectories,
    metadata_dir: Path,
    limits: MetadataLogLimits,
    warn: Callable[[str], None],
) -> Opened:
    """Reads the copy that the last process, or Kafka's broker, has left; one that does not add up
    is dropped, of which `warn` is told. Raises KafkaliteError where the disk fails."""
    folder = metadata_dir / FOLDER
    # Nobody reads a file that is in the way of nothing any more.
    configs = {"segment.bytes": str(limits.segment_bytes), "file.delete.delay.ms": "0"}
    try:
        observed = reading.read_observed(metadata_dir)
        log, repairs = claimed.open_metadata_log(configs)
        _meet(log, observed)
    except KafkaliteError as error:
        is_damaged = isinstance(error, CorruptFileError | LogDirRefusedError)
        if isinstance(error, StorageError) and not is_damaged:
            raise
        warn(
            f"{folder} cannot be used and is dropped: {error}. The controllers have all of it, and "
            "it is fetched from them"
        )
        _remove(folder)
        observed = reading.read_observed(metadata_dir)
        log, repairs = claimed.open_metadata_log(configs)
    for sentence in repairs:
        warn(f"{FOLDER}: {sentence}")
    ids = (each[1] for each in claimed.directories if Path(each[0]) == metadata_dir)
    return Opened(LocalCopy(folder, log, observed, limits), observed, next(ids, bytes(16)))


def _meet(log: _native.Log, observed: reading.Observed) -> None:
    """Has the log end where its records were read to. A kill may have left it at the end that it
    had before a snapshot took its place."""
    if log.offsets.log_end_offset < observed.end_offset and not observed.batches:
        log.truncate_fully_and_start_at(observed.end_offset, now_ms=wall_ms())
    if log.offsets.log_end_offset != observed.end_offset:
        raise KafkaliteError(
            f"its log ends at offset {log.offsets.log_end_offset}, and its records at "
            f"{observed.end_offset}"
        )


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StorageError(f"{folder} cannot be removed: {error.strerror}") from error
