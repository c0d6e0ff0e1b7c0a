"""Bugs that the simulation has to find: each is put into the product, or into the model of its log,
for as long as a `with` lasts.

Some are those that other brokers had (KAFKA-14884, KAFKA-5247, and others of the table in the
design); each breaks one rule, and the invariant that names the rule is what has to report it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

from kafkalite.coordinator.machine import Effect, Moment
from kafkalite.groups.offsets import CommittedOffset, Offsets, OpenTransaction, Place
from kafkalite.groups.verifications import Verifications as VerificationsOfOffsets
from kafkalite.metadata.image import TRANSACTIONS_TOPIC
from kafkalite.transactions import machine, states
from kafkalite.transactions.machine import Entry, TransactionMachine
from kafkalite.transactions.markers import Markers, MarkerWriter
from kafkalite.transactions.states import NO_ID, TopicPartition, Transaction
from sim.broker import Broker
from sim.model_log import ModelLog, Verifications

Planted = AbstractContextManager[Any]


def no_guard() -> Planted:
    """The log takes records of which the coordinator does not know."""
    return patch.object(Verifications, "check", lambda *_asked, **_known: None)


def aba_guard() -> Planted:
    """A guard is given again: one of an earlier transaction passes in a later one (KAFKA-14884)."""
    return patch.object(Verifications, "next_guard", lambda _self: 1)


def no_guard_for_offsets() -> Planted:
    """A group takes offsets of which the coordinator does not know."""
    return patch.multiple(
        VerificationsOfOffsets, begin=lambda *_asked: None, is_verified=lambda *_asked: True
    )


def marker_keeps_guard_of_offsets() -> Planted:
    """A group's partition thinks that a transaction is open after its marker."""
    return patch.object(VerificationsOfOffsets, "note_marker", lambda *_marker: None)


def complete_before_markers() -> Planted:
    """The end of a transaction is noted while its markers are on their way to the disk."""

    async def write_all(self: MarkerWriter, markers: Markers, _is_due: Callable[[], bool]) -> None:
        for each in sorted(markers.partitions):
            self._begin(markers.producer, *each)

    return patch.object(MarkerWriter, "write_all", write_all)


def same_epoch_marker() -> Planted:
    """A late marker ends the next transaction, which has the epoch that it bears."""
    return patch.object(ModelLog, "is_marker_too_old", lambda *_asked: False)


def last_stable_offset_off_by_one() -> Planted:
    """Readers see the first record of an open transaction."""
    known: Any = ModelLog.last_stable_offset

    def last_stable_offset(self: ModelLog) -> int:
        return min(known.fget(self) + 1, self.flushed_offset)

    return patch.object(ModelLog, "last_stable_offset", property(last_stable_offset))


def answer_before_flush() -> Planted:
    """A coordinator goes on once its records are appended, though not on disk."""
    known = Broker.when_flushed

    def when_flushed(
        self: Broker, place: tuple[str, int], end_offset: int, told: Callable[[], None]
    ) -> None:
        if place[0] == TRANSACTIONS_TOPIC:
            self.world.after("", told)
            known(self, place, end_offset, lambda: None)
        else:
            known(self, place, end_offset, told)

    return patch.object(Broker, "when_flushed", when_flushed)


def forgotten_fence() -> Planted:
    """A transaction that takes too long is aborted, and its producer is not shut out."""

    def fence(
        self: TransactionMachine, transactional_id: str, entry: Entry, reply: Any, moment: Moment
    ) -> list[Effect]:
        outcome = states.prepared(entry.now, False, 0, NO_ID, moment.wall_ms)

        def told(error_code: int) -> Any:
            return self._on_fenced(entry, reply, error_code)

        return self._write(transactional_id, entry, outcome, told)

    return patch.object(TransactionMachine, "_fence", fence)


def offsets_hold_after_abort() -> Planted:
    """Offsets of a transaction that was aborted hold."""
    known = Offsets.end_transaction

    def end_transaction(self: Offsets, producer_id: int, *, commit: bool) -> None:
        del commit
        known(self, producer_id, commit=True)

    return patch.object(Offsets, "end_transaction", end_transaction)


def older_offset_holds() -> Planted:
    """The later marker decides between two offsets, not the later record (KAFKA-5247)."""

    known = Offsets._take_one

    def take_one(
        self: Offsets, transaction: OpenTransaction, place: Place, offset: CommittedOffset
    ) -> None:
        known(self, transaction, place, offset)
        if transaction.is_committed:
            self.put(*place, offset)

    return patch.object(Offsets, "_take_one", take_one)


def forgotten_partitions() -> Planted:
    """A transaction has only the partitions that were added last."""
    known = states.added

    def added(
        now: Transaction, partitions: frozenset[TopicPartition], version: int, wall_ms: int
    ) -> Transaction:
        return known(now, partitions, version, wall_ms)._replace(partitions=partitions)

    return patch.object(states, "added", added)


def forgotten_decision() -> Planted:
    """A process that starts writes no markers for what the last one had decided."""
    known = TransactionMachine.on_loaded

    def on_loaded(self: TransactionMachine, moment: Moment, count_max: int) -> Any:
        with patch.object(TransactionMachine, "_send_markers", lambda *_decided: ()):
            return known(self, moment, count_max)

    return patch.object(TransactionMachine, "on_loaded", on_loaded)


def opened_while_ending() -> Planted:
    """A transaction is begun while the markers of the last one are written (KoP)."""
    return patch.object(machine, "PREPARED", ())


PLANTED: Final[dict[str, Callable[[], Planted]]] = {
    each.__name__: each
    for each in (
        no_guard,
        aba_guard,
        no_guard_for_offsets,
        marker_keeps_guard_of_offsets,
        complete_before_markers,
        same_epoch_marker,
        last_stable_offset_off_by_one,
        answer_before_flush,
        forgotten_fence,
        offsets_hold_after_abort,
        older_offset_holds,
        forgotten_partitions,
        forgotten_decision,
        opened_while_ending,
    )
}
"""By their names."""
