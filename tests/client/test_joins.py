"""A member of a group joins, again where that fails, and tells that it lives meanwhile."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import kafkalite
from client.fake import Close
from client.fake_group import GROUP_AUTHORIZATION_FAILED, NEVER, QUICK, Group, broker_of, until
from client.logs import TOPIC, values
from kafkalite.client import Cluster, Consumer
from kafkalite.client.consumer.group_options import GroupOptions
from kafkalite.client.consumer.membership import Membership
from kafkalite.errors import BrokerError
from kafkalite.protocol import messages
from kafkalite.protocol.codes import (
    ILLEGAL_GENERATION,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNSTABLE_OFFSET_COMMIT,
)

ZERO = (TOPIC, 0)


def test_a_member_that_is_interrupted_as_its_heartbeats_begin_leaves_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`kafkalite perf consume` ended with a traceback on Ctrl-C: "cannot join thread before it is
    started"."""

    def interrupt(_thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    with kafkalite.Broker() as broker:
        member = Membership(Cluster(broker.bootstrap_servers), GroupOptions("group"))
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", interrupt)
            with pytest.raises(KeyboardInterrupt):
                member.join(["orders"], lambda _topics: {})
        member.close()
        with kafkalite.client.GroupAdmin(broker.bootstrap_servers) as admin:
            assert admin.describe("group").members == []


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


def test_heartbeats_go_while_the_leader_shares_partitions_out() -> None:
    """None went between JoinGroup and SyncGroup. A leader that was told late of the topics of its
    group was put out of it."""
    group = Group()
    is_alive = False
    with broker_of(group) as broker:
        member = Membership(Cluster(broker.servers), GroupOptions("shares-out", **QUICK))

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
        member = Membership(Cluster(broker.servers), GroupOptions("put-out-as-leader", **QUICK))

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
            Cluster(broker.servers, timeout_ms=1_000),
            GroupOptions(f"knows-nobody-{refused}", **QUICK),
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
        member = Membership(Cluster(broker.servers, timeout_ms=patience_ms), options)
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
        member = Membership(Cluster(broker.servers), GroupOptions("loses-an-answer", **QUICK))
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
            Cluster(broker.servers, timeout_ms=timeout_ms), GroupOptions("shares-out-late", **QUICK)
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


@pytest.mark.parametrize(
    ("asks", "name", "code"),
    [
        (lambda consumer: consumer.committed([ZERO]), "OffsetFetch", UNSTABLE_OFFSET_COMMIT),
        (lambda consumer: consumer.commit({ZERO: 1}), "OffsetCommit", NOT_COORDINATOR),
    ],
)
def test_heartbeats_go_between_the_attempts_of_what_is_tried_again(
    asks: Callable[[Consumer], object], name: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """They waited for its end. A program that asked for an offset that an open transaction was
    about to commit was put out of its group, whose session is shorter than an operation."""
    group = Group()
    until_count = 0

    def handle(asked: str, request: Any) -> Any:
        answer = group(asked, request)
        if asked == name and len(broker.of("Heartbeat")) < until_count:
            topics = answer.groups[0].topics if name == "OffsetFetch" else answer.topics
            topics[0].partitions[0].error_code = code
        return answer

    options = GroupOptions(f"asks-for-long-{name}", **QUICK)
    with (
        broker_of(group, handle) as broker,
        Consumer(broker.servers, group=options, timeout_ms=20_000) as consumer,
    ):
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        until_count = len(broker.of("Heartbeat")) + 3
        asks(consumer)
        assert len(broker.of("Heartbeat")) >= until_count
        # The coordinator was there all the time.
        assert bool(caplog.records) == (code == NOT_COORDINATOR)


def test_a_heartbeat_between_attempts_takes_no_longer_than_what_is_tried_again() -> None:
    group = Group()

    def handle(name: str, request: Any) -> Any:
        answer = group(name, request)
        if name == "OffsetFetch" and group.silent:
            answer.groups[0].topics[0].partitions[0].error_code = UNSTABLE_OFFSET_COMMIT
        return answer

    options = GroupOptions("beats-in-time", **NEVER)
    with (
        broker_of(group, handle) as broker,
        Consumer(broker.servers, group=options, timeout_ms=1_000) as consumer,
    ):
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        group.silent = ("Heartbeat",)
        assert consumer._coordinator is not None
        consumer._coordinator.group._beaten_at = float("-inf")  # one is due
        started = time.monotonic()
        with pytest.raises(BrokerError, match="UNSTABLE_OFFSET_COMMIT"):
            consumer.committed([ZERO])
        assert time.monotonic() - started < 20
        assert broker.of("Heartbeat")
        group.silent = ()
