"""How a group's leader shares partitions out, and how a member goes."""

import threading
import time
from typing import Any

import pytest

from client.fake import FakeBroker
from client.fake_group import NEVER, QUICK, WAIT_S, Group, broker_of, until
from client.logs import TOPIC, Logs, values
from kafkalite.client import Cluster, Consumer
from kafkalite.client.consumer.assignor import assign_range
from kafkalite.client.consumer.group_options import GroupOptions
from kafkalite.client.consumer.membership import Membership
from kafkalite.errors import BrokerError
from kafkalite.protocol.codes import (
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)

Members = list[tuple[str, str | None, list[str]]]


@pytest.mark.parametrize(
    ("members", "counts", "shares"),
    [
        ([("a", None, ["t"])], {"t": 3}, {"a": [("t", 0), ("t", 1), ("t", 2)]}),
        (
            [("b", None, ["t"]), ("a", None, ["t"])],
            {"t": 3},
            {"a": [("t", 0), ("t", 1)], "b": [("t", 2)]},
        ),
        (
            [("a", None, ["t", "u"]), ("b", None, ["t"])],
            {"t": 2, "u": 1},
            {"a": [("t", 0), ("u", 0)], "b": [("t", 1)]},
        ),
        # A static member comes before the others, by its instance id.
        (
            [("a", None, ["t"]), ("z", "one", ["t"])],
            {"t": 3},
            {"z": [("t", 0), ("t", 1)], "a": [("t", 2)]},
        ),
        ([("a", None, ["t"]), ("b", None, ["t"])], {"t": 1}, {"a": [("t", 0)], "b": []}),
        ([("a", None, ["missing"])], {}, {"a": []}),
    ],
)
def test_partitions_are_shared_out_in_runs(
    members: Members, counts: dict[str, int], shares: dict[str, list[tuple[str, int]]]
) -> None:
    assert assign_range(members, counts) == shares


def test_the_end_of_a_consumer_waits_for_its_coordinator_as_long_as_it_was_told() -> None:
    """The group had time-outs of its own, so `close` took more than a minute."""
    group = Group()
    with broker_of(group) as broker:
        consumer = Consumer(
            broker.servers, group="ends", timeout_ms=5_000, request_timeout_ms=3_000
        )
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        group.silent = ("OffsetCommit", "LeaveGroup")
        started = time.monotonic()
        consumer.close()
        assert time.monotonic() - started < 45


def test_records_come_though_they_cannot_be_committed_for_now() -> None:
    """Each commit of the consumer's own was tried again and again, for a minute within `poll`."""
    group = Group()
    group.batches_max = 1

    def handle(name: str, request: Any) -> Any:
        answer = group(name, request)
        if name == "OffsetCommit":
            for row in answer.topics[0].partitions:
                row.error_code = NOT_COORDINATOR
        return answer

    with (
        broker_of(group, handle) as broker,
        Consumer(
            broker.servers, group="cannot-commit", auto_commit_interval_ms=0, timeout_ms=20_000
        ) as consumer,
    ):
        consumer.assign({(TOPIC, 0): 0})
        started = time.monotonic()
        assert len(values(consumer, 3)) == 3
        assert consumer.poll() == []
        assert broker.of("OffsetCommit")
        assert time.monotonic() - started < 18
        consumer.assign([])


@pytest.mark.parametrize("held", ["OffsetCommit", "Heartbeat"])
def test_records_come_though_the_coordinator_is_silent(held: str) -> None:
    """`poll` waited half a minute for each commit of its own, or for the heartbeat before it."""
    group = Group()
    group.batches = Logs({0: 4, 1: 4}).batches
    group.batches_max = 1
    came, may_answer = threading.Event(), threading.Event()
    is_held = False

    def handle(name: str, request: Any) -> Any:
        if is_held and name == held:
            came.set()
            may_answer.wait(2 * WAIT_S)
        return group(name, request)

    with (
        broker_of(group, handle) as broker,
        Consumer(
            broker.servers, group=GroupOptions(f"silent-{held}", **QUICK), auto_commit_interval_ms=0
        ) as consumer,
    ):
        consumer.subscribe(TOPIC)
        assert values(consumer, 3)
        is_held = True
        try:
            if held == "Heartbeat":
                assert came.wait(WAIT_S)
            started = time.monotonic()
            assert len(values(consumer, 6)) >= 6
            assert time.monotonic() - started < WAIT_S - 5
            assert came.is_set()
        finally:
            may_answer.set()


def test_a_member_that_was_put_out_of_its_group_commits_nothing() -> None:
    """It committed as somebody without a group, which an empty group takes: over what the others
    had committed in between."""
    group = Group()
    with (
        broker_of(group) as broker,
        Consumer(broker.servers, group=GroupOptions("put-out", **QUICK)) as consumer,
    ):
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        assert consumer._coordinator is not None
        group.heartbeat_code = UNKNOWN_MEMBER_ID
        until(lambda: consumer._coordinator.group.generation < 0)
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            consumer.commit()
        group.committed = {0: 3, 1: 2}
        until(lambda: group.generation == 2, consumer)
        assert group.commits == []
        until(
            lambda: not consumer._coordinator._joining and consumer.position((TOPIC, 1)) == 3,
            consumer,
        )
        consumer.commit()
        assert group.commits == [{0: 3, 1: 3}]


def test_whoever_assigns_after_all_leaves_the_group() -> None:
    """The member stayed, so that each rebalance waited for it."""
    group = Group()
    with (
        broker_of(group) as broker,
        Consumer(broker.servers, group=GroupOptions("assigns-after-all", **QUICK)) as consumer,
    ):
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        consumer.assign({(TOPIC, 0): 1})
        assert len(broker.of("LeaveGroup")) == 1
        assert group.commits == [{0: 3, 1: 3}]
        assert len(values(consumer, 2)) == 2
        consumer.commit()
        assert broker.of("OffsetCommit")[-1].generation_id_or_member_epoch == -1
        consumer.subscribe(TOPIC)
        until(lambda: group.generation == 2, consumer)


def test_nothing_of_an_old_subscription_is_handed_out_after_a_new_one() -> None:
    """It was, and committed, until the new topics had been looked up beside."""
    group = Group()
    broker = FakeBroker(group, partitions=2, topics=(TOPIC, "others"))
    group.address = (broker.host, broker.port)
    with broker, Consumer(broker.servers, group="subscribes-anew") as consumer:
        consumer.subscribe(TOPIC)
        assert next(iter(consumer)).topic == TOPIC
        looks = len(broker.of("Metadata"))
        group.silent = ("Metadata",)
        assert consumer._coordinator is not None
        consumer._coordinator._counts_at = 0.0  # the time to look has come
        assert next(iter(consumer)).topic == TOPIC
        until(lambda: len(broker.of("Metadata")) > looks)
        group.silent = ()
        consumer.subscribe("others")
        while consumer.assignment != [("others", 0), ("others", 1)]:
            assert consumer.poll(10) == []
        assert group.generation == 2


def test_whoever_assigns_after_all_waits_for_no_topics_of_the_subscription() -> None:
    """Their answer lay there unread, so that `poll` went round without waiting."""
    group = Group()
    with (
        broker_of(group) as broker,
        Consumer(broker.servers, group="assigns-while-it-looks") as consumer,
    ):
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        group.silent = ("Metadata",)
        assert consumer._coordinator is not None
        consumer._coordinator._counts_at = 0.0  # the time to look has come
        until(lambda: consumer._coordinator._topics.is_asked, consumer)
        consumer.assign({(TOPIC, 0): 1})
        assert not consumer._coordinator._topics.descriptors()
        group.silent = ()


def test_a_consumer_that_is_interrupted_as_it_closes_leaves_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its heartbeats went on, and kept its partitions from the others."""

    def interrupt(*_: object, **_more: object) -> None:
        raise KeyboardInterrupt

    group = Group()
    with broker_of(group) as broker:
        consumer = Consumer(broker.servers, group="interrupted-as-it-closes")
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        assert consumer._coordinator is not None
        monkeypatch.setattr(consumer._coordinator.group, "commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            consumer.close()
        assert len(broker.of("LeaveGroup")) == 1
        assert not [each for each in threading.enumerate() if "as-it-closes" in each.name]


def test_the_end_of_a_consumer_waits_for_its_coordinator_as_long_as_kafkas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was as long as any other operation may take, for the commit and for leaving the group."""
    monkeypatch.setattr("kafkalite.client.consumer.coordinator.LEAVE_S", 0.3)
    group = Group()
    with broker_of(group) as broker:
        alone = GroupOptions("ends-in-time", **NEVER)
        consumer = Consumer(broker.servers, group=alone)
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        group.silent = ("OffsetCommit", "LeaveGroup")
        started = time.monotonic()
        consumer.close(timeout_ms=3_000)
        assert time.monotonic() - started < WAIT_S - 5
        assert len(broker.of("OffsetCommit")) == 1


def test_the_commit_before_a_rebalance_takes_no_longer_than_the_group_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It took up to a minute, and the group went on without a member with less time."""
    told: list[float] = []
    group = Group()
    options = GroupOptions("commits-before", max_poll_interval_ms=WAIT_S * 1000, **QUICK)
    with (
        broker_of(group) as broker,
        Consumer(broker.servers, group=options, auto_commit_interval_ms=3_600_000) as consumer,
    ):
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        with monkeypatch.context() as patched:
            assert consumer._coordinator is not None
            patched.setattr(
                consumer._coordinator.group,
                "commit",
                lambda _offsets, *, deadline, **_: told.append(deadline),
            )
            before = time.monotonic()
            group.heartbeat_code = REBALANCE_IN_PROGRESS
            until(lambda: group.generation == 2, consumer)
        assert before < told[0] - WAIT_S <= time.monotonic()


def test_a_topic_that_there_is_not_leads_to_no_rebalance() -> None:
    """It was forgotten at the next look and remembered in the next rebalance: two such members had
    their group share its partitions out anew every half a minute."""
    group = Group()
    with (
        broker_of(group) as broker,
        Consumer(broker.servers, group="misses-a-topic") as consumer,
    ):
        consumer.subscribe([TOPIC, "missing"])
        assert len(values(consumer, 6)) == 6
        looks = len(broker.of("Metadata"))
        assert consumer._coordinator is not None
        consumer._coordinator._counts_at = 0.0  # the time to look has come
        until(lambda: consumer._coordinator._counts_at, consumer)
        assert len(broker.of("Metadata")) > looks
        assert group.generation == 1


def test_records_come_though_nobody_tells_of_topics() -> None:
    """`poll` waited a minute for whoever was to tell of its topics, and raised what that met."""
    group = Group()
    group.batches = Logs({0: 4, 1: 4}).batches
    group.batches_max = 1
    with (
        broker_of(group) as broker,
        Consumer(broker.servers, group="is-not-told") as consumer,
    ):
        consumer.subscribe(TOPIC)
        assert values(consumer, 3)
        group.silent = ("Metadata",)
        assert consumer._coordinator is not None
        consumer._coordinator._counts_at = 0.0  # the time to look has come
        assert len(values(consumer, 12)) >= 12
        group.silent = ()


@pytest.mark.parametrize("instance_id", [None, "one"])
def test_a_member_that_nobody_polls_leaves_unless_it_is_static(instance_id: str | None) -> None:
    """A static member left too, and lost its partitions before its session was over."""
    group = Group()
    options = GroupOptions(
        f"nobody-polls-{instance_id}", instance_id, max_poll_interval_ms=1, **QUICK
    )
    with broker_of(group) as broker:
        member = Membership(Cluster(broker.servers), options)
        member.join([TOPIC], lambda _topics: {TOPIC: 1})
        until(lambda: not member._joined)
        assert len(broker.of("Heartbeat")) <= 1
        member.close()
        assert bool(broker.of("LeaveGroup")) == (instance_id is None)


def test_topics_that_grow_are_seen_though_brokers_are_slow_to_tell() -> None:
    """A look was given up after a second, so that a consumer of slow brokers never saw the
    partitions that were added to its topics."""
    group = Group()
    is_slow = threading.Event()

    def handle(name: str, request: Any) -> Any:
        if name == "Metadata" and is_slow.is_set():
            threading.Event().wait(1.5)
        return group(name, request)

    with (
        broker_of(group, handle, partitions=1) as broker,
        Consumer(broker.servers, group="slow-to-tell") as consumer,
    ):
        consumer.subscribe(TOPIC)
        until(lambda: consumer.assignment, consumer)
        broker._partitions = 2
        is_slow.set()
        assert consumer._coordinator is not None
        consumer._coordinator._counts_at = 0.0  # the time to look has come
        until(lambda: len(consumer.assignment) == 2, consumer)
        is_slow.clear()


def test_a_static_leader_that_shared_out_for_long_is_a_member_like_any_other() -> None:
    """Nobody had polled meanwhile, so that it was taken for one whose time to poll is over, also
    once it had its partitions: after a pause of its heartbeats it refused its own commits."""
    group = Group()
    with broker_of(group) as broker:
        member = Membership(Cluster(broker.servers), GroupOptions("long-shares", "one", **QUICK))

        def counts(_topics: set[str]) -> dict[str, int]:
            member._polled_at = float("-inf")  # the time to poll is over
            until(lambda: not member._is_member)
            return {TOPIC: 1}

        assert member.join([TOPIC], counts) == [(TOPIC, 0)]
        with member._lock:  # no heartbeat goes meanwhile
            member._beaten_at = float("-inf")
            assert not member.is_lost
            member.commit({(TOPIC, 0): 1})
        assert group.commits == [{0: 1}]
        member.close()


def test_heartbeats_that_fail_keep_no_session_of_a_static_member_up() -> None:
    """Each one that was sent counted: a member whose coordinator had heard nothing of it for as
    long as its session was told of partitions revoked, which another had by then."""
    group = Group()
    with broker_of(group) as broker:
        member = Membership(Cluster(broker.servers), GroupOptions("unheard", "one", **QUICK))
        member.join([TOPIC], lambda _topics: {TOPIC: 1})
        group.heartbeat_code = NOT_COORDINATOR
        with member._lock:  # no heartbeat is under way
            member._beaten_at = float("-inf")
            seen = len(broker.of("Heartbeat"))
        until(lambda: len(broker.of("Heartbeat")) > seen + 1)
        assert not member.is_lost
        member._polled_at = float("-inf")  # the time to poll is over
        until(lambda: not member._is_member)
        with member._lock:  # whoever has said so has done all that belongs to it
            assert member.is_lost
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            member.commit({(TOPIC, 0): 1})
        assert group.commits == []
        member.close()
