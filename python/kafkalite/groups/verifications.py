"""Verification of offsets that are committed in transactions (KIP-890): they are taken only if
their transaction is open in this partition, or its coordinator was asked after the last one ended.
As `rust/src/log/state/verification.rs` does it for the records of clients.
"""

from dataclasses import dataclass

from kafkalite.coordinator.machine import Marker

EPOCHS_SINCE = 2
"""From this version of transactions on each has an epoch of its own."""


@dataclass(slots=True)
class Verification:
    """`guard` is never given twice."""

    guard: int
    producer_epoch: int
    askers: int = 1
    """Those who have this guard and were not refused: a refusal of one voids no other's."""


class Verifications:
    """Those of one partition."""

    def __init__(self) -> None:
        self._begun: dict[int, Verification] = {}
        self._open: dict[int, int] = {}
        """Producer id -> epoch of its open transaction here, once it is being written."""
        self._last_guard = 0

    def begin(self, producer_id: int, producer_epoch: int) -> int | None:
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
            self._begun[producer_id] = Verification(self._last_guard, producer_epoch)
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
        if not (is_of_next and marker.transaction_version >= EPOCHS_SINCE):
            self._begun.pop(producer_id, None)

    def drop(self, producer_id: int, guard: int) -> None:
        """Ends what one has begun with this guard: he was refused."""
        begun = self._begun.get(producer_id)
        if begun is not None and begun.guard == guard:
            begun.askers -= 1
            if not begun.askers:
                del self._begun[producer_id]

    def forget(self, producer_id: int) -> None:
        """Drops a verification whose offsets were not written; the next are asked for again."""
        self._open.pop(producer_id, None)
