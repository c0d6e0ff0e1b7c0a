"""Replays the log of one partition into its machine, in small pieces between other work.

    log ── a piece, read beside the control thread ──► newest of each key ──► machine ──► ready
               PIECE_BYTES                                STEP_COUNT a round

Of a key only the newest record of a window is looked into: a log that has not been compacted for
long loads at the speed of reading. A transaction's records and its marker are taken in order with
what came before them. Whatever one round does is bounded, however large the log is: records that
are taken apart, keys that the window holds, and what the garbage collector would look through.
"""

import gc
from collections.abc import Iterator
from itertools import islice
from typing import Final

from kafkalite import _native
from kafkalite.coordinator.machine import Machine
from kafkalite.coordinator.record_serde import RecordSerde
from kafkalite.errors import KafkaliteError

PIECE_BYTES: Final = 128 * 1024
"""So much of a log is read at a time; one batch is taken whole."""
STEP_COUNT: Final = 500
"""Keys that are looked into before other work has its turn."""
STEP_BYTES: Final = 128 * 1024
"""So are keys whose values are so many bytes: those of groups have members and their topics."""
WINDOW_KEYS: Final = 20_000
"""Keys of which the newest record is remembered before they are looked into."""

PROBLEMS_MAX: Final = 100
"""So many records that cannot be taken are told one by one."""

Settled = tuple[bytes | None, bytes | None, int, int]
"""Key, value, offset and producer id of a record for the machine."""


class Loader:
    """Loads one partition. `read` may be called by another thread, beside no other method."""

    def __init__(self, log: _native.Log, serde: RecordSerde, machine: Machine) -> None:
        self.problems: list[str] = []
        """A sentence for each of the first records that could not be taken."""
        self.problem_count = 0
        self.record_count = 0
        """How many records the machine has taken."""
        self.unknown: dict[int, int] = {}
        """How many records there are of each kind that is not known."""
        self._log = log
        self._serde = serde
        self._machine = machine
        self._is_settled = log.is_settled
        """What was being appended when loading began is in the log, or will never be."""
        self._next_offset = log.offsets.log_start_offset
        self._read: list[_native.RecordBatch] = []
        """Batches that have been read and not been taken yet, the last first."""
        self._newest: dict[bytes | None, tuple[bytes | None, int]] = {}
        """Key -> value and offset of its newest record, in the order of the log."""
        self._settling: Iterator[Settled] | None = None

    @property
    def has_to_read(self) -> bool:
        """All that has been read is taken, and there is more, or may be."""
        is_behind = self._next_offset < self._log.offsets.log_end_offset or not self._is_settled
        return is_behind and self._settling is None and not self._read

    def read(self) -> None:
        """Reads the next piece, which takes as long as the disk does. Raises KafkaliteError."""
        if not self._is_settled:
            # Of the leader before, whom this broker has followed until now.
            self._log.settle()
            self._is_settled = True
        batches = _native.read_batches(self._log.read(self._next_offset, PIECE_BYTES))
        if not batches:
            # The cleaner has taken whatever was there up to the end.
            self._next_offset = self._log.offsets.log_end_offset
        self._read = batches[::-1]

    def replay(self) -> bool:
        """Goes on with what has been read; whether the whole log is replayed."""
        if self._settling is not None:
            self._settle(self._settling)
        elif self._read:
            while self._read and self._settling is None:
                self._take(self._read.pop())
        elif not self.has_to_read:
            if not self._newest:
                return True
            self._begin_settling()
        return False

    def _take(self, batch: _native.RecordBatch) -> None:
        """Takes a whole batch."""
        if batch.last_offset < self._next_offset:
            return
        newest = self._newest
        if (batch.is_control or batch.is_transactional) and newest:
            self._read.append(batch)
            self._begin_settling()
            return
        if batch.is_control:
            self._end_transaction(batch)
        elif batch.is_transactional:
            producer_id = batch.producer_id
            self._settling = (
                (key, value, offset, producer_id) for offset, _, key, value, _ in batch.records
            )
        else:
            for offset, _, key, value, _ in batch.records:
                newest.pop(key, None)
                newest[key] = (value, offset)
            if len(newest) >= WINDOW_KEYS:
                self._begin_settling()
        self._next_offset = batch.last_offset + 1

    def _begin_settling(self) -> None:
        window, self._newest = self._newest, {}
        self._settling = ((key, value, offset, -1) for key, (value, offset) in window.items())

    def _settle(self, settling: Iterator[Settled]) -> None:
        """Has the machine take so many records of the window, or of the transaction."""
        count = size_bytes = 0
        for settled in islice(settling, STEP_COUNT):
            self._apply(*settled)
            count += 1
            size_bytes += len(settled[1] or b"")
            if size_bytes >= STEP_BYTES:
                return
        if count < STEP_COUNT:
            self._settling = None
            # Garbage collections need not look at what was loaded: it has no cycles, and of a
            # million offsets each full one would take a quarter of a second.
            gc.freeze()

    def _apply(self, key: bytes | None, value: bytes | None, offset: int, producer_id: int) -> None:
        try:
            record = self._serde.read(key, value)
            if isinstance(record, int):
                self.unknown[record] = self.unknown.get(record, 0) + 1
            else:
                self._machine.replay(*record, offset, producer_id)
                self.record_count += 1
        except KafkaliteError as error:
            self.problem_count += 1
            if self.problem_count <= PROBLEMS_MAX:
                self.problems.append(f"the record at offset {offset} is not taken: {error}")

    def _end_transaction(self, batch: _native.RecordBatch) -> None:
        """The marker's key: version and kind, 0 abort, 1 commit, two bytes each."""
        for _, _, key, _, _ in batch.records:
            if key is not None and key[2:4] in (b"\0\0", b"\0\1"):
                self._machine.end_transaction(batch.producer_id, commit=key[3] == 1)
