"""The coordinator over a log in memory: order, group commit, failures."""

import sys
from typing import Any

import pytest

from groups.coordinator_calls import ID, commit, fetched, join, made, restarted, stable, started
from groups.fake_host import make_host
from kafkalite import _native
from kafkalite.coordinator.record_serde import CoordinatorRecord
from kafkalite.errors import (
    KafkaliteError,
    MessageTooLargeError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    StorageError,
)
from kafkalite.groups import records
from kafkalite.groups.coordinator import GroupCoordinator
from kafkalite.groups.events import (
    CommitRequest,
    OffsetToCommit,
    SyncRequest,
)
from kafkalite.protocol import codes


def test_an_offset_is_seen_and_answered_once_it_is_on_disk_and_not_before() -> None:
    host = make_host()
    coordinator = made(host)
    arrived = commit(coordinator, "g", 7)
    host.turn()
    assert arrived == []
    assert fetched(coordinator, "g") == {}
    host.flush()
    assert arrived == [[0]]
    assert fetched(coordinator, "g") == {0: 7}


def test_commits_of_one_turn_are_one_batch() -> None:
    host = make_host()
    coordinator = made(host)
    arrived = [commit(coordinator, "g", index, index) for index in range(50)]
    host.run()
    assert arrived == [[[0]]] * 50
    assert host.appends == 1
    assert fetched(coordinator, "g") == {index: index for index in range(50)}


def test_answers_to_what_one_batch_has_written_leave_together() -> None:
    host = make_host({})
    coordinator = made(host)
    core = host.core
    held_back: list[bool] = []

    def reply(_codes: list[int]) -> None:
        held_back.append(core.gathers_answers)

    for partition in range(3):
        offset = OffsetToCommit("t", ID, partition, 1, -1, "")
        coordinator.commit("g", CommitRequest("", None, -1, -1, True, [offset]), reply)
    host.run()
    assert held_back == [True, True, True]
    assert not core.gathers_answers


def test_a_stable_fetch_waits_for_what_is_being_written() -> None:
    host = make_host()
    coordinator = made(host)
    commit(coordinator, "g", 7)
    found = coordinator.fetch_offsets("g", True)
    host.turn()
    assert not found.is_done
    host.flush()
    assert len(found.result().offsets) == 1


def test_the_topic_is_made_with_kafkas_configs() -> None:
    host = make_host()
    coordinator = started(host)
    assert coordinator.runtime.find("g")[1] == codes.NOT_COORDINATOR
    host.tasks.start(coordinator.runtime.make_topic())
    assert host.topic_configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(1 << 20),
    }
    assert coordinator.runtime.find("g")[1] == codes.NONE


def test_a_record_that_is_too_large_does_not_take_others_of_its_turn_with_it() -> None:
    host = make_host(**{"offset.metadata.max.bytes": 30_000})
    host.batch_bytes_max = 20_000
    coordinator = made(host)
    before = commit(coordinator, "g", 1, 0)
    large = commit(coordinator, "g", 2, 1, metadata="x" * 30_000)
    after = commit(coordinator, "g", 3, 2)
    host.run()
    assert (before, large, after) == ([[0]], [[codes.UNKNOWN_SERVER_ERROR]], [[0]])
    assert fetched(coordinator, "g") == {0: 1, 2: 3}


@pytest.mark.parametrize("is_appended", [False, True])
def test_a_disk_that_fails_answers_everybody_and_the_partition_is_given_up(
    is_appended: bool,
) -> None:
    host = make_host(**{"offsets.topic.num.partitions": 1})
    coordinator = made(host)
    member_id = stable(host, coordinator, "members")
    commit(coordinator, "g", 1)
    host.run()
    waiting = join(coordinator, "members", member_id)
    extra = join(coordinator, "members")
    arrived = commit(coordinator, "g", 2)
    if is_appended:
        host.turn()
    host.fail_disk()
    host.run()
    assert arrived == [[codes.NOT_COORDINATOR]]
    assert {each[0].error_code for each in (waiting, extra) if each} <= {0, codes.NOT_COORDINATOR}
    assert coordinator.runtime.find("g")[1] == codes.NOT_COORDINATOR
    assert coordinator.heartbeat("members", member_id, None, 1) == codes.NOT_COORDINATOR
    assert commit(coordinator, "g", 3) == [[codes.NOT_COORDINATOR]]


def test_a_write_without_room_is_refused_and_the_next_one_is_tried() -> None:
    """The partition was given up until the next start, though its log directory had not failed."""
    host = make_host(**{"offsets.topic.num.partitions": 1})
    coordinator = made(host)
    member_id = stable(host, coordinator, "members")
    commit(coordinator, "g", 1)
    host.run()
    host.append_error = StorageError("write failed on 0.log: No space left on device")
    for _ in range(3):
        refused = commit(coordinator, "g", 2), commit(coordinator, "g", 3)
        host.run()
        assert refused == ([[codes.NOT_COORDINATOR]], [[codes.NOT_COORDINATOR]])
    assert coordinator.runtime.find("g")[1] == codes.NONE
    assert coordinator.heartbeat("members", member_id, None, 1) == codes.NONE
    assert fetched(coordinator, "g") == {0: 1}
    assert len([line for line in host.log.lines if "No space left" in line]) == 1
    host.append_error = None
    taken = commit(coordinator, "g", 4)
    host.run()
    assert taken == [[codes.NONE]]
    assert fetched(coordinator, "g") == {0: 4}


@pytest.mark.parametrize("error", [NotEnoughReplicasError, NotEnoughReplicasAfterAppendError])
def test_what_too_few_replicas_in_sync_hold_up_comes_again(
    error: type[KafkaliteError],
) -> None:
    """Kafka's transaction coordinator names both, its group coordinator the first
    (`TransactionStateManager`, `CoordinatorOperationExceptionHelper`); UNKNOWN_SERVER_ERROR, which
    the second one was, ends a consumer."""
    host = make_host(**{"offsets.topic.num.partitions": 1})
    coordinator = made(host)
    commit(coordinator, "old", 1)
    host.run()
    host.append_error = error("too few")
    refused = commit(coordinator, "g", 2)
    deleted = coordinator.delete_group("old")
    host.run()
    assert refused == [[codes.COORDINATOR_NOT_AVAILABLE]]
    assert deleted.result() == codes.COORDINATOR_NOT_AVAILABLE
    host.append_error = None
    taken = commit(coordinator, "g", 4)
    host.run()
    assert taken == [[codes.NONE]]


def test_a_failing_partition_leaves_the_others_alone() -> None:
    host = make_host()
    coordinator = made(host)
    other = next(f"g{n}" for n in range(99) if coordinator.runtime.partition_of(f"g{n}") == 1)
    first = next(f"g{n}" for n in range(99) if coordinator.runtime.partition_of(f"g{n}") == 0)
    commit(coordinator, other, 5)
    host.run()
    lost = commit(coordinator, first, 5)
    host.turn()
    host.fail_disk()
    assert lost == [[codes.NOT_COORDINATOR]]
    assert fetched(coordinator, other) == {0: 5}
    assert coordinator.runtime.find(other)[1] == codes.NONE


def test_topics_that_are_deleted_later_are_no_concern_of_a_failed_partition() -> None:
    """It kept the name of each until the broker ended."""
    host = make_host(**{"offsets.topic.num.partitions": 1})
    coordinator = made(host)
    commit(coordinator, "g", 5)
    host.fail_disk()
    host.run()
    assert coordinator.runtime.find("g")[1] == codes.NOT_COORDINATOR
    topic = "-".join(["a", "topic"])
    references = sys.getrefcount(topic)
    coordinator.runtime.on_topics([topic])
    assert sys.getrefcount(topic) == references


def test_a_commit_on_its_way_does_not_outlive_its_group() -> None:
    host = make_host()
    coordinator = made(host)
    commit(coordinator, "g", 1, 0)
    host.run()
    commit(coordinator, "g", 2, 1)
    deleted = coordinator.delete_group("g")
    later = commit(coordinator, "g", 3, 2)
    host.run()
    assert (deleted.result(), later) == (codes.NONE, [[0]])
    assert fetched(coordinator, "g") == {2: 3}
    assert fetched(restarted(host)[1], "g") == {2: 3}


def test_a_group_whose_deletion_cannot_be_written_is_still_there() -> None:
    host = make_host(**{"offset.metadata.max.bytes": 1 << 22})
    coordinator = made(host)
    commit(coordinator, "g", 1)
    host.run()
    host.append_error = codes_error()
    deleted = coordinator.delete_group("g")
    host.run()
    host.append_error = None
    assert deleted.result() == codes.UNKNOWN_SERVER_ERROR
    assert fetched(coordinator, "g") == {0: 1}
    assert coordinator.describe("g")[1] is not None


@pytest.mark.parametrize("sign_of_life", ["heartbeat", "commit"])
def test_a_static_member_that_comes_back_with_a_shorter_session_is_missed_after_it(
    sign_of_life: str,
) -> None:
    """The group slept on until the end of the session that the member had had before."""
    host = make_host()
    coordinator = made(host)
    stable(host, coordinator, "g", "i", session_ms=60_000)
    joined = join(coordinator, "g", "", "i", session_ms=6000)
    host.run()
    member_id = joined[0].member_id
    if sign_of_life == "heartbeat":
        assert coordinator.heartbeat("g", member_id, "i", 1) == codes.NONE
    else:
        arrived = commit(coordinator, "g", 7, member_id=member_id, generation_id=1)
        host.run()
        assert arrived == [[codes.NONE]]
    host.pass_time(5999)
    assert coordinator.describe("g")[1].state == "Stable"
    host.pass_time(1)
    assert coordinator.describe("g")[1].state == "Empty"


def codes_error() -> Any:
    from kafkalite.errors import MessageTooLargeError

    return MessageTooLargeError("too large")


def test_offsets_and_groups_expire() -> None:
    host = make_host(**{"offsets.retention.minutes": 60})
    coordinator = made(host)
    member_id = stable(host, coordinator, "members")
    commit(coordinator, "members", 1, member_id=member_id, generation_id=1)
    commit(coordinator, "simple", 2)
    commit(coordinator, "short", 3, retention_ms=1000)
    host.run()
    host.pass_time(0)
    for _ in range(70):
        host.pass_time(9_000)
        coordinator.heartbeat("members", member_id, None, 1)
    assert fetched(coordinator, "short") == {}
    assert fetched(coordinator, "simple") == {0: 2}
    for _ in range(400):
        host.pass_time(9_000)
        coordinator.heartbeat("members", member_id, None, 1)
    assert fetched(coordinator, "simple") == {}
    # No member reads the topic, and the commit is old: this is what KIP-211 asks for.
    assert fetched(coordinator, "members") == {}
    assert coordinator.describe("simple")[1] is None
    assert coordinator.describe("members")[1] is not None
    _, again = restarted(host)
    assert {group.group_id for group in again.list_groups()[1]} == {"members"}


def test_offsets_of_an_empty_group_last_from_when_it_became_empty() -> None:
    host = make_host(**{"offsets.retention.minutes": 60})
    coordinator = made(host)
    member_id = stable(host, coordinator, "g")
    commit(coordinator, "g", 1, member_id=member_id, generation_id=1)
    host.run()
    for _ in range(200):
        host.pass_time(9_000)
        coordinator.heartbeat("g", member_id, None, 1)
    coordinator.leave("g", [(member_id, None, None)])
    host.pass_time(50 * 60_000)
    assert fetched(coordinator, "g") == {0: 1}
    host.pass_time(20 * 60_000)
    assert fetched(coordinator, "g") == {}


def test_a_topic_that_is_deleted_takes_its_offsets_with_it() -> None:
    host = make_host()
    coordinator = made(host)
    for index in range(10):
        commit(coordinator, f"g{index}", index)
    host.run()
    commit(coordinator, "g0", 99, 1)
    coordinator.runtime.on_topics(["t"])
    host.run()
    assert [fetched(coordinator, f"g{index}") for index in range(10)] == [{}] * 10
    assert [fetched(restarted(host)[1], f"g{index}") for index in range(3)] == [{}] * 3


def test_whoever_waits_is_answered_when_the_broker_stops() -> None:
    host = make_host(**{"group.initial.rebalance.delay.ms": 3000})
    coordinator = made(host)
    waiting = join(coordinator, "g")
    host.run()
    assert waiting == []
    for stop in host.stops:
        stop()
    assert waiting[0].error_code == codes.NOT_COORDINATOR


def test_a_new_group_is_written_before_its_first_generation() -> None:
    host = make_host(**{"group.initial.rebalance.delay.ms": 3000})
    coordinator = made(host)
    join(coordinator, "g")
    host.run()
    log = host.memory_logs[coordinator.runtime.partition_of("g")]
    (batch,) = _native.read_batches(log.batches[0][1])
    _, _, key, value, _ = batch.records[0]
    record = records.SERDE.read(key, value)
    assert isinstance(record, CoordinatorRecord)
    assert (record.kind, record.value.generation, record.value.protocol_type) == (2, 0, "")


def test_what_waits_for_the_disk_is_counted_until_it_is_answered() -> None:
    """It was in memory for as long as a log directory hung, and nobody knew how much there was."""
    host = make_host()
    coordinator = made(host)
    waiting = [commit(coordinator, "g", index, index) for index in range(50)]
    host.turn()
    under_way = host.core.held_bytes
    assert under_way > 50 * 1000
    waiting.append(commit(coordinator, "g", 50, 50, metadata="m" * 4000))
    assert host.core.held_bytes > under_way + 4000
    host.run()
    assert all(each == [[0]] for each in waiting)
    assert host.core.held_bytes == 0


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_a_disk_refuses_is_counted_no_longer(is_lost: bool) -> None:
    host = make_host()
    coordinator = made(host)
    arrived = [commit(coordinator, "g", 1), commit(coordinator, "g", 2)]
    host.turn()
    if is_lost:
        host.fail_disk()
    else:
        # The two together are refused, then each by itself.
        host.append_error = MessageTooLargeError("larger than max.message.bytes")
        host.end_appends(host.append_error)
    host.run()
    assert all(code != 0 for (codes_of,) in arrived for code in codes_of)
    assert host.core.held_bytes == 0


def test_a_refused_verification_is_dropped_also_where_too_much_waits_for_the_disk() -> None:
    """It was kept, for ever."""
    host = make_host()
    coordinator = made(host)
    (shard,) = {coordinator.runtime.shard_of("simple")}
    assert shard is not None
    guard, code = coordinator.begin_verification("simple", 7, 0)
    assert guard is not None
    assert code == 0
    host.core.may_hold_bytes = 1
    assert commit(coordinator, "simple", 1) == []
    host.turn()
    assert shard.is_held_up
    coordinator.forget_verification("simple", 7, guard)
    assert not shard.machine.transactions.verifications.is_verified(7, 0, guard)
    host.run()


def test_where_too_much_waits_for_a_disk_no_more_may_wait_with_it() -> None:
    """What was refused may come again; heartbeats and what only reads go on."""
    host = make_host()
    coordinator = made(host)
    member = stable(host, coordinator, "g")
    assert commit(coordinator, "simple", 1) == []
    host.run()
    host.core.may_hold_bytes = 1000
    waiting = commit(coordinator, "simple", 2)
    host.turn()
    refused = codes.COORDINATOR_NOT_AVAILABLE
    same = [name for name in map(str, range(99)) if on_one_disk(coordinator, name, "simple")]
    for group in ["simple", *same[:2]]:
        assert commit(coordinator, group, 3) == [[refused]]
        assert join(coordinator, group)[0].error_code == refused
        assert coordinator.leave(group, [("m", None, None)]).result() == (refused, [])
        assert coordinator.delete_offsets(group, [("t", 0)]).result() == (refused, [])
        assert coordinator.delete_group(group).result() == refused
        request = SyncRequest("m", None, 1, None, None, {})
        assert coordinator.sync(group, request).result().error_code == refused
        # Clients know no other word for offsets.
        fetched_stable = coordinator.fetch_offsets(group, True).result()
        assert fetched_stable.error_code == codes.NOT_COORDINATOR
    assert fetched(coordinator, "simple") == {0: 1}
    others = [name for name in map(str, range(99)) if not on_one_disk(coordinator, name, "simple")]
    assert commit(coordinator, others[0], 1) == []
    is_same = on_one_disk(coordinator, "g", "simple")
    assert coordinator.heartbeat("g", member, None, 1) == 0
    assert is_same or commit(coordinator, "g", 5, member_id=member, generation_id=1) == []
    host.run()
    assert waiting == [[0]]
    later = commit(coordinator, "simple", 4)
    host.run()
    assert later == [[0]]


def on_one_disk(coordinator: GroupCoordinator, one: str, other: str) -> bool:
    return coordinator.runtime.partition_of(one) == coordinator.runtime.partition_of(other)
