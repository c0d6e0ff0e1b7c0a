"""How a group's leader shares partitions out, and how a member goes."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import kafkalite
from client.fake import Close, FakeBroker
from client.logs import TOPIC, Logs, values
from kafkalite.client import Consumer
from kafkalite.client.consumer.assignor import assign_range
from kafkalite.client.consumer.group_options import GroupOptions
from kafkalite.client.consumer.membership import Membership
from kafkalite.errors import BrokerError
from kafkalite.protocol import messages
from kafkalite.protocol.codes import (
    ILLEGAL_GENERATION,
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


def test_a_member_that_is_interrupted_as_its_heartbeats_begin_leaves_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`kafkalite perf consume` ended with a traceback on Ctrl-C: "cannot join thread before it is
    started"."""

    def interrupt(_thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    with kafkalite.Broker() as broker:
        member = Membership(broker.bootstrap_servers, GroupOptions("group"), "client")
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", interrupt)
            with pytest.raises(KeyboardInterrupt):
                member.join(["orders"], lambda _topics: {})
        member.close()
        with kafkalite.client.GroupAdmin(broker.bootstrap_servers) as admin:
            assert admin.describe("group").members == []


# --- against a coordinator of a few lines ---------------------------------------------------------

WAIT_S = 30
GROUP_AUTHORIZATION_FAILED = 30
QUICK = {"heartbeat_interval_ms": 10}
NEVER = {"heartbeat_interval_ms": 3_600_000, "session_timeout_ms": 7_200_000}


class Group(Logs):
    """Two partitions; requests of the kinds in `silent` are not answered."""

    def __init__(self) -> None:
        super().__init__({0: 1, 1: 1})
        self.silent: tuple[str, ...] = ()

    def __call__(self, name: str, request: Any) -> Any:
        return None if name in self.silent else super().__call__(name, request)


def broker_of(group: Logs, handler: Any = None, partitions: int = 2) -> FakeBroker:
    broker = FakeBroker(handler or group, partitions=partitions)
    group.address = (broker.host, broker.port)
    return broker


def until(reached: Callable[[], object], consumer: Consumer | None = None) -> None:
    """Polls, or waits, until something is so."""
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline
        if consumer is None:
            time.sleep(0.005)  # the pause of the poll
        else:
            consumer.poll(10)


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


def test_a_member_that_is_forgotten_in_a_join_that_fails_commits_nothing() -> None:
    """Only what a heartbeat told kept it from that: after such a join it committed its old
    positions as somebody without a group, over what the others had committed in between."""
    group = Group()
    codes = [UNKNOWN_MEMBER_ID, GROUP_AUTHORIZATION_FAILED]

    def handle(name: str, request: Any) -> Any:
        answer = group(name, request)
        if name == "JoinGroup" and group.generation > 1 and codes:
            return type(answer)(error_code=codes.pop(0))
        return answer

    with broker_of(group, handle) as broker:
        with Consumer(broker.servers, group=GroupOptions("put-out-in-a-join", **QUICK)) as consumer:
            consumer.subscribe(TOPIC)
            assert len(values(consumer, 6)) == 6
            group.heartbeat_code = REBALANCE_IN_PROGRESS
            with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
                until(lambda: False, consumer)
            with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
                consumer.commit({(TOPIC, 0): 1})
        generations = [each.generation_id_or_member_epoch for each in broker.of("OffsetCommit")]
        assert -1 not in generations


def test_heartbeats_go_on_after_an_answer_that_is_none() -> None:
    """Their thread ended, and the session with it, unseen."""
    group = Group()
    garbage = ["a frame of one byte after its head"]

    def handle(name: str, request: Any) -> Any:
        if name == "Heartbeat" and garbage:
            garbage.clear()
            head = (4 + 1).to_bytes(4) + request.correlation_id.to_bytes(4)
            return head + b"\0"
        return group(name, request)

    with (
        broker_of(group, handle) as broker,
        Consumer(broker.servers, group=GroupOptions("odd-heartbeat", **QUICK)) as consumer,
    ):
        consumer.subscribe(TOPIC)
        until(lambda: consumer.assignment, consumer)
        until(lambda: not garbage)
        seen = len(broker.of("Heartbeat"))
        until(lambda: len(broker.of("Heartbeat")) > seen + 2)


def test_heartbeats_go_on_while_the_group_waits_for_a_member_that_works() -> None:
    """They ended when the group began to rebalance. Whoever then worked on records for longer than
    its session was put out, and others read the records once more."""
    group = Group()
    with (
        broker_of(group) as broker,
        Consumer(broker.servers, group=GroupOptions("works", **QUICK)) as consumer,
    ):
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        group.heartbeat_code = REBALANCE_IN_PROGRESS
        until(lambda: consumer._coordinator and not consumer._coordinator.group._joined)
        seen = len(broker.of("Heartbeat"))
        until(lambda: len(broker.of("Heartbeat")) > seen + 2)
        group.heartbeat_code = UNKNOWN_MEMBER_ID  # the time to join again is over
        until(lambda: consumer._coordinator and not consumer._coordinator.group._is_member)
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            consumer.commit()


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


def test_a_join_that_fails_is_tried_again() -> None:
    """The partitions that a topic had got since then were read by nobody."""
    group = Group()
    refused = []

    def handle(name: str, request: Any) -> Any:
        answer = group(name, request)
        if name == "JoinGroup" and group.generation == 2:
            refused.append(name)
            return type(answer)(error_code=GROUP_AUTHORIZATION_FAILED)
        return answer

    with (
        broker_of(group, handle, partitions=1) as broker,
        Consumer(broker.servers, group="fails-to-join") as consumer,
    ):
        consumer.subscribe(TOPIC)
        until(lambda: consumer.assignment, consumer)
        broker._partitions = 2
        assert consumer._coordinator is not None
        consumer._coordinator._counts_at = 0.0  # the time to look has come
        with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
            until(lambda: False, consumer)
        until(lambda: len(consumer.assignment) == 2, consumer)
        assert len(refused) == 1


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
        member = Membership(broker.servers, options, "client")
        member.join([TOPIC], lambda _topics: {TOPIC: 1})
        until(lambda: not member._joined)
        assert len(broker.of("Heartbeat")) <= 1
        member.close()
        assert bool(broker.of("LeaveGroup")) == (instance_id is None)


def test_heartbeats_go_while_the_leader_shares_partitions_out() -> None:
    """None went between JoinGroup and SyncGroup. A leader that was told late of the topics of its
    group was put out of it."""
    group = Group()
    is_alive = False
    with broker_of(group) as broker:
        member = Membership(broker.servers, GroupOptions("shares-out", **QUICK), "client")

        def counts(_topics: set[str]) -> dict[str, int]:
            nonlocal is_alive
            until(lambda: len(broker.of("Heartbeat")) > 1)
            is_alive = True
            return {TOPIC: 2}

        assert member.join([TOPIC], counts) == [(TOPIC, 0), (TOPIC, 1)]
        assert is_alive
        assert all(each.generation_id == 1 for each in broker.of("Heartbeat"))
        member.close()


def test_a_leader_that_is_put_out_while_it_shares_partitions_out_joins_again() -> None:
    group = Group()
    with broker_of(group) as broker:
        member = Membership(broker.servers, GroupOptions("put-out-as-leader", **QUICK), "client")

        def counts(_topics: set[str]) -> dict[str, int]:
            if group.generation == 1:
                group.heartbeat_code = UNKNOWN_MEMBER_ID
                until(lambda: member.generation < 0)
            return {TOPIC: 2}

        assert member.join([TOPIC], counts) == [(TOPIC, 0), (TOPIC, 1)]
        assert (member.generation, len(broker.of("SyncGroup"))) == (2, 1)
        member.close()


@pytest.mark.parametrize(
    ("code", "member_id"), [(ILLEGAL_GENERATION, "member"), (UNKNOWN_MEMBER_ID, "")]
)
@pytest.mark.parametrize("told", ["Heartbeat", "OffsetCommit"])
def test_a_member_of_an_old_generation_joins_again_as_itself(
    told: str, code: int, member_id: str
) -> None:
    """It came as a new member, and the group waited for the old one. What a commit was told did not
    count."""
    group = Group()

    def handle(name: str, request: Any) -> Any:
        answer = group(name, request)
        if name == told == "OffsetCommit" and group.generation == 1:
            for row in answer.topics[0].partitions:
                row.error_code = code
        return answer

    beats = QUICK if told == "Heartbeat" else NEVER
    options = GroupOptions(f"old-generation-{told}", **beats)
    with broker_of(group, handle) as broker, Consumer(broker.servers, group=options) as consumer:
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        if told == "Heartbeat":
            group.heartbeat_code = code
        else:
            with pytest.raises(BrokerError):
                consumer.commit()
        until(lambda: group.generation == 2, consumer)
        assert [each.member_id for each in broker.of("JoinGroup")] == ["", member_id]


@pytest.mark.parametrize("refused", ["JoinGroup", "SyncGroup"])
def test_a_coordinator_that_knows_nobody_is_asked_again_after_a_pause_and_not_for_ever(
    refused: str,
) -> None:
    """It was asked some thousand times a second, and `join` never returned."""
    group = Group()

    def handle(name: str, request: Any) -> Any:
        answer = group(name, request)
        return type(answer)(error_code=UNKNOWN_MEMBER_ID) if name == refused else answer

    with broker_of(group, handle) as broker:
        member = Membership(
            broker.servers,
            GroupOptions(f"knows-nobody-{refused}", **QUICK),
            "client",
            timeout_ms=1_000,
        )
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            member.join([TOPIC], lambda _topics: {TOPIC: 2})
        assert 2 <= len(broker.of(refused)) < 10
        member.close()


def test_a_join_that_waited_for_long_may_be_refused_now_and_then() -> None:
    """The time for refusals began with the first JoinGroup, which may wait for the other members
    for minutes: the first refusal behind it was raised."""
    group = Group()
    patience_ms = 1_000
    late = {"JoinGroup": [UNKNOWN_MEMBER_ID], "SyncGroup": [ILLEGAL_GENERATION]}

    def handle(name: str, request: Any) -> Any:
        if late.get(name):
            threading.Event().wait(1.2 * patience_ms / 1000)
            kind = getattr(messages, f"{name}Response")
            return kind(error_code=late[name].pop(0))
        return group(name, request)

    options = GroupOptions("waits-for-long", **NEVER)
    with broker_of(group, handle) as broker:
        member = Membership(broker.servers, options, "client", timeout_ms=patience_ms)
        assert member.join([TOPIC], lambda _topics: {TOPIC: 2}) == [(TOPIC, 0), (TOPIC, 1)]
        assert [len(broker.of(each)) for each in ("JoinGroup", "SyncGroup")] == [3, 2]
        member.close()


def test_partitions_whose_assignment_is_lost_on_its_way_are_asked_for_again() -> None:
    """The whole join was, and the group shared its partitions out anew."""
    group = Group()
    lost = [Close()]

    def handle(name: str, request: Any) -> Any:
        return lost.pop() if name == "SyncGroup" and lost else group(name, request)

    with broker_of(group, handle) as broker:
        member = Membership(broker.servers, GroupOptions("loses-an-answer", **QUICK), "client")
        assert member.join([TOPIC], lambda _topics: {TOPIC: 2}) == [(TOPIC, 0), (TOPIC, 1)]
        assert [len(broker.of(each)) for each in ("JoinGroup", "SyncGroup")] == [1, 2]
        member.close()


def test_a_heartbeat_is_sent_though_the_time_of_the_join_is_over() -> None:
    """It had a millisecond to look its coordinator up, as long as the leader shared out."""
    group = Group()
    codes = {"Heartbeat": [NOT_COORDINATOR]}
    timeout_ms = 1_000

    def handle(name: str, request: Any) -> Any:
        answer = group(name, request)
        if name == "FindCoordinator" and not codes["Heartbeat"]:
            threading.Event().wait(0.1)
        if name == "Heartbeat" and codes["Heartbeat"]:
            return type(answer)(error_code=codes["Heartbeat"].pop())
        return answer

    with broker_of(group, handle) as broker:
        member = Membership(
            broker.servers,
            GroupOptions("shares-out-late", **QUICK),
            "client",
            timeout_ms=timeout_ms,
        )

        def counts(_topics: set[str]) -> dict[str, int]:
            threading.Event().wait(1.2 * timeout_ms / 1000)
            codes["Heartbeat"] = [NOT_COORDINATOR]
            until(lambda: not codes["Heartbeat"])
            seen = len(broker.of("Heartbeat"))
            until(lambda: len(broker.of("Heartbeat")) > seen)
            return {TOPIC: 2}

        assert member.join([TOPIC], counts) == [(TOPIC, 0), (TOPIC, 1)]
        member.close()


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
