"""Completions of transactions that could not be written, and are tried again."""

from collections.abc import Sequence

from kafkalite.coordinator.machine import Append, Effect, Moment, Reply
from kafkalite.protocol import codes
from kafkalite.transactions.machine import (
    RETRY_MS,
    AddRequest,
    DueMarkers,
    InitRequest,
    TransactionLimits,
    TransactionMachine,
)
from kafkalite.transactions.states import COMPLETE_COMMIT, End

NAME = "one"
PLACES = frozenset({("t", 0)})
FOREVER = 1 << 40


class Machine:
    """A machine whose writes are ended one by one."""

    def __init__(self) -> None:
        self.due: list[DueMarkers] = []
        self.appends: list[Append] = []
        limits = TransactionLimits(900_000, FOREVER, FOREVER, FOREVER)
        self.machine = TransactionMachine(limits, lambda: 2, lambda: 7, self.due.append)

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                effect.send()
            elif isinstance(effect, Append):
                self.appends.append(effect)

    def end_write(self, code: int = codes.NONE, now_ms: int = 0) -> None:
        then = self.appends.pop(0).then
        assert then is not None
        self.perform(then(code, 0, Moment(now_ms, now_ms)))

    def commit(self, epoch: int) -> None:
        """A transaction up to its markers, which are on disk."""
        moment = Moment(0, 0)
        add = AddRequest(7, epoch, PLACES, 2)
        self.perform(self.machine.add_partitions(NAME, add, lambda _: None, moment))
        self.end_write()
        self.perform(self.machine.end(NAME, End(7, epoch, True, 2), lambda _: None, moment))
        self.end_write()
        self.perform(self.machine.on_markers_written(*self.due.pop(), moment))


def begin() -> Machine:
    machine = Machine()
    request = InitRequest(60_000, None)
    told = machine.machine.init_producer_id(NAME, request, lambda _: None, Moment(0, 0))
    machine.perform(told)
    machine.end_write()
    return machine


def test_a_completion_that_could_not_be_written_is_written_later() -> None:
    machine = begin()
    machine.commit(0)
    machine.end_write(codes.COORDINATOR_NOT_AVAILABLE)
    machine.perform(machine.machine.on_time(Moment(RETRY_MS, RETRY_MS)))
    assert len(machine.appends) == 1


def test_the_completion_of_the_next_transaction_is_not_written_twice() -> None:
    """The retry of a completion that was lost came upon that of the next transaction, which was on
    its way, and wrote it a second time: Kafka knows no way from CompleteCommit to itself."""
    machine = begin()
    machine.commit(0)
    machine.end_write(codes.COORDINATOR_NOT_AVAILABLE)
    machine.commit(1)
    assert machine.machine.entries[NAME].now.state == COMPLETE_COMMIT
    machine.perform(machine.machine.on_time(Moment(RETRY_MS, RETRY_MS)))
    assert len(machine.appends) == 1


def test_a_completion_is_written_though_something_else_was_being_written_that_failed() -> None:
    """The retry met a transition that was being written, and left it to that one to say that the
    transaction is over. That failed: the log never said so."""
    machine = begin()
    machine.commit(0)
    machine.end_write(codes.COORDINATOR_NOT_AVAILABLE)
    add = AddRequest(7, 1, PLACES, 2)
    refused: list[int] = []
    told = machine.machine.add_partitions(NAME, add, refused.append, Moment(0, 0))
    machine.perform(told)
    machine.perform(machine.machine.on_time(Moment(RETRY_MS, RETRY_MS)))
    machine.end_write(codes.COORDINATOR_NOT_AVAILABLE, RETRY_MS)
    assert refused == [codes.COORDINATOR_NOT_AVAILABLE]
    assert not machine.appends
    machine.perform(machine.machine.on_time(Moment(2 * RETRY_MS, 2 * RETRY_MS)))
    assert len(machine.appends) == 1
