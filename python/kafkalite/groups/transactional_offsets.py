"""Offsets that are committed in transactions: being written, waiting for their marker, and then
holding or dropped. They are taken only if they are verified (`verifications.py`).
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kafkalite.coordinator.machine import Append, Effect, FirstAnswer, Moment, Producer, Reply
from kafkalite.groups import records
from kafkalite.groups.events import OffsetsInTransaction
from kafkalite.groups.offsets import Commit, Offsets, UnderWay
from kafkalite.groups.verifications import Verifications
from kafkalite.protocol import codes

TAKEN_AT_ONCE: Final = 5_000
"""Offsets of transactions that have ended that are taken before other work has its turn."""
TAKING_PAUSE_MS: Final = 1


class TransactionalOffsets:
    """The transactional offsets of one partition. `offsets` has what is on disk."""

    def __init__(self, offsets: Offsets) -> None:
        self.verifications = Verifications()
        self.is_unloaded = False
        """Others may know better from now on what is open."""
        self._offsets = offsets
        self.being_written = UnderWay()
        self._places_written = Counter[tuple[str, str, int]]()
        """How often each group, topic and partition is among them."""
        self.wake_ms: int | None = None
        """When `take_ended` is due next, monotonic."""
        self._untold = deque[Callable[[int], None]]()
        """For each transaction that has ended and is not taken yet, who wrote its marker."""

    def is_verified(self, transaction: OffsetsInTransaction) -> bool:
        """True if offsets of the transaction may be written now."""
        return self.verifications.is_verified(*transaction)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """A transaction that has not ended commits an offset of the partition, or may do so where
        the group is coordinated by now."""
        place = (group_id, topic, partition)
        return (
            self.is_unloaded or self._offsets.is_unstable(*place) or place in self._places_written
        )

    def stage(
        self,
        group_id: str,
        taken: list[Commit],
        transaction: OffsetsInTransaction,
        results: list[int],
        reply: Callable[[list[int]], None],
    ) -> Append:
        """Has offsets written that hold once their transaction is committed; `results` is a code
        for each that was asked for."""
        producer_id, producer_epoch, _ = transaction
        number = self.being_written.add(group_id, taken)
        self._places_written.update((group_id, *each[:2]) for each in taken)
        self.verifications.note_offsets(producer_id, producer_epoch)
        written = [records.offset_record(group_id, *each) for each in taken]
        first = FirstAnswer(reply)
        then = partial(self._on_staged, group_id, number, producer_id, results, first)
        overdue = partial(told_of_offsets, results, first)
        return Append(written, then, (), Producer(producer_id, producer_epoch), overdue)

    def _on_staged(
        self,
        group_id: str,
        number: int,
        producer_id: int,
        results: list[int],
        reply: Callable[[list[int]], None],
        error_code: int,
        base_offset: int,
        _moment: Moment,
    ) -> Sequence[Effect]:
        committed = self.being_written.take(group_id, number)
        for topic, partition, _ in committed:
            place = (group_id, topic, partition)
            self._places_written[place] -= 1
            if not self._places_written[place]:
                del self._places_written[place]
        if error_code == codes.NONE:
            for at, (topic, partition, offset) in enumerate(committed):
                placed = offset._replace(record_offset=base_offset + at)
                self._offsets.put_open(producer_id, group_id, topic, partition, placed)
        else:
            self.verifications.forget(producer_id)
        return told_of_offsets(results, reply, error_code)

    def write_marker(self, producer: Producer, reply: Callable[[int], None]) -> Sequence[Effect]:
        """The end of a transaction: its offsets hold, or are dropped, once that is on disk."""
        producer_id, producer_epoch, marker = producer
        if marker is None:
            raise RuntimeError("no marker")
        self.verifications.note_marker(producer_id, producer_epoch, marker)
        then = partial(self._on_marker, producer_id, marker.commit, reply)
        return [Append((), then, (), producer)]

    def _on_marker(
        self,
        producer_id: int,
        commit: bool,
        reply: Callable[[int], None],
        error_code: int,
        _offset: int,
        moment: Moment,
    ) -> Sequence[Effect]:
        if error_code != codes.NONE:
            return [Reply(reply, error_code)]
        self._offsets.end_transaction(producer_id, commit=commit)
        self._untold.append(reply)
        return self.take_ended(moment)

    def take_ended(self, moment: Moment) -> list[Effect]:
        """Takes some offsets of transactions that have ended; goes on with the next soon. Who wrote
        a marker is told once all that it is about are taken."""
        taken = self._offsets.take_ended(TAKEN_AT_ONCE)
        self.wake_ms = moment.now_ms + TAKING_PAUSE_MS if self._offsets.has_ended else None
        return [Reply(self._untold.popleft(), codes.NONE) for _ in range(taken)]

    def unload(self) -> list[Effect]:
        """As `Machine.unload`: those markers are on disk, and nobody waits for further ones."""
        self.is_unloaded = True
        self._offsets = Offsets()
        untold, self._untold = self._untold, deque()
        return [Reply(each, codes.NONE) for each in untold]


def told_of_offsets(
    results: list[int],
    reply: Callable[[list[int]], None],
    error_code: int,
    _offset: int = -1,
    _moment: Moment | None = None,
) -> Sequence[Effect]:
    """Tells of each offset that was asked for why it was not taken, or what became of the write."""
    return [Reply(reply, [each or error_code for each in results])]
