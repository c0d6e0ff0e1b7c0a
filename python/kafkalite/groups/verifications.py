"""Verification of offsets that are committed in transactions (KIP-890): they are taken only if
their transaction is open in this partition, or its coordinator was asked after the last one ended.
As `rust/src/log/state/verification.rs` does it for the records of clients.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Final

from kafkalite.coordinator.machine import Marker

EXPIRED_AT_ONCE: Final = 2
EPOCH_BUMPS_SINCE: Final = 2
"""From this version of transactions on each has an epoch of its own."""


@dataclass(slots=True)
class Verification:
    """`guard` is never given twice."""

    guard: int
    producer_epoch: int
    since_ms: int
    askers: int = 1
    """How many hold this guard and were not refused: a refusal of one voids no other's."""


class Verifications:
    """The verifications of one partition."""

    def __init__(self) -> None:
        self._begun: dict[int, Verification] = {}
        """By producer id, the oldest first."""
        self._open: dict[int, int] = {}
        """Producer id -> epoch of its open transaction here, once it is being written."""
        self._last_guard = 0

    def begin(self, producer_id: int, producer_epoch: int, now_ms: int) -> int | None:
        """A guard for `is_verified`; None where the coordinator need not be asked. Who asks with an
        older epoch than another has gets a guard that is void already."""
        if self._open.get(producer_id) == producer_epoch:
            return None
        begun = self._begun.get(producer_id)
        if begun is not None and begun.producer_epoch == producer_epoch:
            begun.askers += 1
            return begun.guard
        self._last_guard += 1
        if begun is None or begun.producer_epoch < producer_epoch:
            self._begun.pop(producer_id, None)
            self._begun[producer_id] = Verification(self._last_guard, producer_epoch, now_ms)
        return self._last_guard

    def is_verified(self, producer_id: int, producer_epoch: int, guard: int | None) -> bool:
        """True if offsets may be written now."""
        if self._open.get(producer_id) == producer_epoch:
            return True
        begun = self._begun.get(producer_id)
        return begun is not None and (begun.guard, begun.producer_epoch) == (guard, producer_epoch)

    def note_offsets(self, producer_id: int, producer_epoch: int) -> None:
        """Offsets are being written."""
        self._begun.pop(producer_id, None)
        self._open[producer_id] = producer_epoch

    def note_marker(self, producer_id: int, producer_epoch: int, marker: Marker) -> None:
        """A marker is being written. It may come after the next transaction was asked for, whose
        epoch it bears."""
        self._open.pop(producer_id, None)
        begun = self._begun.get(producer_id)
        is_of_next = begun is not None and begun.producer_epoch == producer_epoch
        if not (is_of_next and marker.transaction_version >= EPOCH_BUMPS_SINCE):
            self._begun.pop(producer_id, None)

    def drop(self, producer_id: int, guard: int) -> None:
        """Ends what one has begun with this guard: he was refused."""
        begun = self._begun.get(producer_id)
        if begun is not None and begun.guard == guard:
            begun.askers -= 1
            if not begun.askers:
                del self._begun[producer_id]

    def remove_expired(self, begun_until_ms: int) -> None:
        """Drops those that were begun so long ago, and that nothing came of: two at most, so that
        they are fewer after each pair of calls of this and `begin`."""
        for producer_id in list(islice(self._begun, EXPIRED_AT_ONCE)):
            if self._begun[producer_id].since_ms <= begun_until_ms:
                del self._begun[producer_id]

    def forget(self, producer_id: int) -> None:
        """Drops a verification whose offsets were not written; the next are asked for again."""
        self._open.pop(producer_id, None)
