"""The transactional ids of one partition: what time does to many of them, and what fails."""

from collections.abc import Sequence

from kafkalite.coordinator.machine import Append, Effect, Moment, Reply
from kafkalite.protocol import codes
from kafkalite.transactions.machine import (
    STEP_IDS,
    DueMarkers,
    Entry,
    ProducerAnswer,
    TransactionLimits,
    TransactionMachine,
)
from kafkalite.transactions.states import COMPLETE_COMMIT, EPOCH_MAX, ONGOING, End, Transaction

PLACES = frozenset({("t", 0)})


class World:
    """A machine, and what it has asked for."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.ids = [100]
        self.markers: list[DueMarkers] = []
        self.appends: list[Append] = []
        limits = TransactionLimits(900_000, 10_000, 1 << 40, 1 << 40)
        self.machine = TransactionMachine(limits, lambda: 2, self.take_id, self.markers.append)

    def take_id(self) -> int:
        return self.ids.pop() if self.ids else -1

    def moment(self) -> Moment:
        return Moment(self.now_ms, 1_000_000 + self.now_ms)

    def put(self, name: str, state: int, epoch: int = 1) -> None:
        partitions = PLACES if state == ONGOING else frozenset[tuple[str, int]]()
        now = Transaction(7, epoch, 60_000, state, partitions, 1_000_000, 1_000_000, 7)
        self.machine.entries[name] = Entry(now)

    def load(self) -> None:
        while not self.machine.on_loaded(self.moment(), STEP_IDS)[1]:
            pass

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                effect.send()
            elif isinstance(effect, Append):
                self.appends.append(effect)

    def wake(self) -> int:
        """The next event of time; how many writes it asks for."""
        due_ms = self.machine.next_wake_ms()
        assert due_ms is not None
        self.now_ms = max(self.now_ms, due_ms)
        before = len(self.appends)
        self.perform(self.machine.on_time(self.moment()))
        return len(self.appends) - before

    def write(self, code: int = codes.NONE) -> None:
        """What becomes of the next write."""
        then = self.appends.pop(0).then
        assert then is not None
        self.perform(then(code, -1 if code else 0, self.moment()))


def test_many_transactions_time_out_in_steps() -> None:
    """All of a partition were looked at in one step: a second for a million."""
    world = World()
    for at in range(3 * STEP_IDS):
        world.put(f"id-{at}", ONGOING)
    world.load()
    world.now_ms = 70_000
    assert [world.wake() for _ in range(4)] == [STEP_IDS, STEP_IDS, STEP_IDS, 0]
    assert world.now_ms >= 80_000


def test_the_last_epoch_times_out_once_there_is_an_id() -> None:
    world = World()
    world.put("one", ONGOING, EPOCH_MAX - 1)
    world.put("two", COMPLETE_COMMIT)
    world.load()
    world.ids.clear()
    world.now_ms = 70_000
    assert world.wake() == 0
    world.ids.append(200)
    assert world.wake() == 1


def test_an_end_that_is_not_committed_in_time_is_refused_and_holds_once_it_is() -> None:
    """Kafka goes back to the open transaction, which a retry may end the other way than its log."""
    world = World()
    world.put("one", ONGOING)
    world.load()
    answers: list[ProducerAnswer] = []
    end = End(7, 1, True, 2)
    world.perform(world.machine.end("one", end, answers.append, world.moment()))
    overdue = world.appends[0].overdue
    assert overdue is not None
    world.perform(overdue(codes.COORDINATOR_NOT_AVAILABLE, -1, world.moment()))
    assert [each.error_code for each in answers] == [codes.COORDINATOR_NOT_AVAILABLE]
    contrary = End(7, 1, False, 2)
    world.perform(world.machine.end("one", contrary, answers.append, world.moment()))
    assert answers[1].error_code == codes.CONCURRENT_TRANSACTIONS
    world.write()
    assert len(answers) == 2
    assert [each.transaction.commits for each in world.markers] == [True]


def test_who_was_unloaded_while_an_end_was_written_leaves_the_markers_to_its_successor() -> None:
    """Both sent them. Where a partition refused them for a while, one of the two was told last, and
    its marker ended the producer's next transaction there."""
    world = World()
    world.put("one", ONGOING)
    world.load()
    answers: list[ProducerAnswer] = []
    end = End(7, 1, True, 2)
    world.perform(world.machine.end("one", end, answers.append, world.moment()))
    world.perform(world.machine.unload())
    world.write()
    assert [each.error_code for each in answers] == [codes.NOT_COORDINATOR]
    assert not world.markers


def test_markers_are_due_until_the_transaction_is_known_to_be_over() -> None:
    world = World()
    world.put("one", ONGOING)
    world.load()
    end = End(7, 1, True, 2)
    world.perform(world.machine.end("one", end, lambda _: None, world.moment()))
    world.write()
    (due,) = world.markers
    assert world.machine.needs_markers(due)
    world.perform(world.machine.on_markers_written(*due, world.moment()))
    assert not world.machine.needs_markers(due)
