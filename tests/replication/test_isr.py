"""Changes of in-sync replicas, from the leaders that propose them to the controller and back."""

from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from kafkalite.protocol import codes, messages
from kafkalite.replication.proposals.alter_partition import AlterPartition
from kafkalite.replication.proposals.isr import (
    RECOVERED,
    RETRY_MS,
    VERSION,
    IsrChange,
    IsrChanges,
    Settled,
)
from kafkalite.timers import Timers

TOPIC = bytes([1] * 16)
OTHER = bytes([2] * 16)
Answer = messages.AlterPartitionResponse


def change(partition: int = 0, number: int = 1, topic_id: bytes = TOPIC) -> IsrChange:
    return IsrChange(topic_id, partition, number, 5, 7, [(1, 10), (2, 20)])


def answer_of(*results: tuple[bytes, int, int]) -> Any:
    """The controller's answer: topic id, partition and error code of each."""
    response = Answer()
    for topic_id, index, error_code in results:
        topic = response.TopicData(topic_id=topic_id)
        topic.partitions.append(
            topic.PartitionData(
                partition_index=index,
                error_code=error_code,
                leader_epoch=5,
                partition_epoch=8,
                isr=[1, 2],
            )
        )
        response.topics.append(topic)
    return response


def test_a_request_has_all_proposals_with_the_epochs_of_the_brokers() -> None:
    changes = IsrChanges(1)
    changes.add([change(0), change(3), change(0, topic_id=OTHER)])
    request = messages.AlterPartitionRequest.decode(changes.request(77).encode(VERSION), VERSION)
    assert (request.broker_id, request.broker_epoch) == (1, 77)
    asked = {
        (topic.topic_id, each.partition_index): each
        for topic in request.topics
        for each in topic.partitions
    }
    assert sorted(asked) == [(TOPIC, 0), (TOPIC, 3), (OTHER, 0)]
    one = asked[TOPIC, 3]
    assert (one.leader_epoch, one.partition_epoch) == (5, 7)
    assert one.leader_recovery_state == RECOVERED
    assert [(each.broker_id, each.broker_epoch) for each in one.new_isr_with_epochs] == [
        (1, 10),
        (2, 20),
    ]


def test_one_request_is_in_flight_and_what_comes_meanwhile_goes_with_the_next() -> None:
    changes = IsrChanges(1)
    assert changes.request(1) is None
    changes.add([change(0)])
    assert changes.request(1) is not None
    changes.add([change(1)])
    assert changes.request(1) is None
    changes.on_answer(answer_of((TOPIC, 0, codes.NONE)))
    request = changes.request(1)
    assert [each.partition_index for each in request.topics[0].partitions] == [1]


def test_what_the_controller_has_not_answered_is_asked_again() -> None:
    changes = IsrChanges(1)
    changes.add([change(0), change(1)])
    changes.request(1)
    changes.on_failure()
    assert len(changes.request(1).topics[0].partitions) == 2
    assert changes.on_answer(Answer(error_code=codes.NOT_CONTROLLER)) == []
    assert len(changes.request(1).topics[0].partitions) == 2
    assert len(changes.on_answer(answer_of((TOPIC, 1, codes.NONE)))) == 1
    request = changes.request(1)
    assert [each.partition_index for each in request.topics[0].partitions] == [0]


def test_answers_go_back_by_what_they_mean() -> None:
    expected: dict[int, Settled | None] = {
        codes.NONE: Settled(TOPIC, 0, 1, (5, 8, [1, 2]), is_asked_again=False),
        codes.INELIGIBLE_REPLICA: Settled(TOPIC, 0, 1, None, is_asked_again=False),
        codes.OPERATION_NOT_ATTEMPTED: Settled(TOPIC, 0, 1, None, is_asked_again=False),
        codes.NOT_CONTROLLER: Settled(TOPIC, 0, 1, None, is_asked_again=True),
        codes.UNKNOWN_SERVER_ERROR: Settled(TOPIC, 0, 1, None, is_asked_again=True),
        # The metadata will say what holds.
        codes.FENCED_LEADER_EPOCH: None,
        codes.INVALID_UPDATE_VERSION: None,
        codes.INVALID_REQUEST: None,
        codes.UNKNOWN_TOPIC_ID: None,
        codes.UNKNOWN_TOPIC_OR_PARTITION: None,
        codes.NEW_LEADER_ELECTED: None,
    }
    for error_code, settled in expected.items():
        changes = IsrChanges(1)
        changes.add([change()])
        changes.request(1)
        found = changes.on_answer(answer_of((TOPIC, 0, error_code)))
        assert found == ([] if settled is None else [settled]), error_code
        assert changes.request(1) is None


def test_an_answer_about_what_was_not_asked_is_dropped() -> None:
    changes = IsrChanges(1)
    changes.add([change(0)])
    changes.request(1)
    results = [(TOPIC, 0, codes.NONE), (TOPIC, 0, codes.NONE), (OTHER, 9, codes.NONE)]
    assert len(changes.on_answer(answer_of(*results))) == 1


def test_a_newer_proposal_outlives_the_answer_to_the_one_before() -> None:
    changes = IsrChanges(1)
    changes.add([change(number=1)])
    changes.request(1)
    changes.add([change(number=2)])
    settled = changes.on_answer(answer_of((TOPIC, 0, codes.NONE)))
    assert [each.number for each in settled] == [1]
    changes.request(1)
    settled = changes.on_answer(answer_of((TOPIC, 0, codes.NONE)))
    assert [each.number for each in settled] == [2]


class Exchange(RuleBasedStateMachine):
    """Leaders that propose and a controller that answers, loses or refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = IsrChanges(1)
        self.numbers: dict[int, int] = {}
        """The newest proposal of each partition."""
        self.open: set[int] = set()
        """Partitions whose newest proposal is not answered."""
        self.in_flight: list[tuple[int, int]] = []

    @rule(partition=st.integers(0, 3))
    def propose(self, partition: int) -> None:
        number = self.numbers[partition] = self.numbers.get(partition, 0) + 1
        self.open.add(partition)
        self.changes.add([change(partition, number)])

    @rule()
    def send(self) -> None:
        request = self.changes.request(1)
        if request is None:
            assert self.in_flight or not self.open
            return
        assert not self.in_flight
        asked = [each.partition_index for topic in request.topics for each in topic.partitions]
        assert set(asked) == self.open
        self.in_flight = [(each, self.numbers[each]) for each in asked]

    @rule()
    def lose(self) -> None:
        if self.in_flight:
            self.changes.on_failure()
            self.in_flight = []

    @rule(
        code=st.sampled_from(
            [codes.NONE, codes.INELIGIBLE_REPLICA, codes.INVALID_REQUEST, codes.NOT_CONTROLLER]
        ),
        left_out=st.integers(0, 4),
    )
    def answer(self, code: int, left_out: int) -> None:
        if not self.in_flight:
            return
        told = self.in_flight[left_out:]
        settled = self.changes.on_answer(answer_of(*((TOPIC, each, code) for each, _ in told)))
        numbers = [] if code == codes.INVALID_REQUEST else [number for _, number in told]
        assert [each.number for each in settled] == numbers
        for partition, number in told:
            if self.numbers[partition] == number:
                self.open.discard(partition)
        self.in_flight = []


TestExchange = Exchange.TestCase


class FakeLeaders:
    """Stands for the leaders of the broker core."""

    def __init__(self) -> None:
        self.proposed: list[IsrChange] = []
        self.told: list[tuple[Any, ...]] = []
        self.sweeps = 0

    def take_changes(self) -> list[IsrChange]:
        taken, self.proposed = self.proposed, []
        return taken

    def accept(self, *told: Any) -> None:
        self.told.append(("accept", *told))

    def refuse(self, *told: Any) -> None:
        self.told.append(("refuse", *told))

    def retry(self, *told: Any) -> None:
        self.told.append(("retry", *told))

    def sweep(self) -> None:
        self.sweeps += 1


class World:
    """AlterPartition with a clock, leaders and a controller that the test plays."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.timers = Timers()
        self.leaders = FakeLeaders()
        self.sent: list[tuple[Any, Any]] = []
        self.membership = SimpleNamespace(
            node_id=1, broker_epoch=77, controller_address=("controller", 9093)
        )
        channels: Any = SimpleNamespace(send=self._send)
        log: Any = SimpleNamespace(debug=lambda _: None)
        membership: Any = self.membership
        leaders: Any = self.leaders
        self.alter_partition = AlterPartition(
            membership, leaders, channels, self.timers, lambda: self.now_ms, log, lag_ms=1_000
        )

    def _send(self, _purpose: str, _address: Any, message: Any, *rest: Any) -> None:
        self.sent.append((message, rest[-1]))

    def pass_ms(self, count: int) -> None:
        self.now_ms += count
        while (callback := self.timers.pop_due(self.now_ms)) is not None:
            callback()

    def propose(self, *changes: IsrChange) -> None:
        self.leaders.proposed += changes
        self.alter_partition.take()


def test_followers_are_looked_at_every_half_of_the_lag() -> None:
    world = World()
    assert world.leaders.sweeps == 1
    for expected in (2, 3, 4):
        world.pass_ms(499)
        assert world.leaders.sweeps == expected - 1
        world.pass_ms(1)
        assert world.leaders.sweeps == expected


def test_a_proposal_is_sent_at_once_and_its_leader_told_the_answer() -> None:
    world = World()
    world.propose(change(0), change(1), change(2))
    request, then = world.sent.pop()
    assert request.broker_epoch == 77
    then(
        answer_of(
            (TOPIC, 0, codes.NONE),
            (TOPIC, 1, codes.INELIGIBLE_REPLICA),
            (TOPIC, 2, codes.NOT_CONTROLLER),
        )
    )
    assert world.leaders.told == [
        ("accept", (TOPIC, 0, 1), 5, 8, [1, 2]),
        ("refuse", (TOPIC, 1, 1)),
        ("retry", (TOPIC, 2, 1)),
    ]
    # The leader that is to ask again does so at once, and waits with it.
    world.propose(change(2))
    assert not world.sent
    world.pass_ms(RETRY_MS)
    assert len(world.sent) == 1


def test_without_a_controller_a_proposal_waits_until_there_is_one() -> None:
    world = World()
    world.membership.controller_address = None
    world.propose(change())
    world.pass_ms(10 * RETRY_MS)
    assert not world.sent
    world.membership.controller_address = ("other", 9093)
    world.pass_ms(RETRY_MS)
    _, then = world.sent.pop()
    then("the connection is lost")
    assert not world.sent
    world.pass_ms(RETRY_MS)
    assert len(world.sent) == 1
