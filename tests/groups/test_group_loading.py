"""The coordinator is loaded from a log in memory: what comes back, and what is refused then."""

import itertools

import pytest

from groups.coordinator_calls import ID, commit, fetched, join, made, restarted, stable, started
from groups.fake_host import MemoryLog, make_host
from kafkalite import _native
from kafkalite.coordinator.loader import STEP_COUNT
from kafkalite.errors import StorageError
from kafkalite.groups import records
from kafkalite.groups.classic import ClassicGroup
from kafkalite.groups.events import GroupLimits, GroupRecord, MemberRecord
from kafkalite.groups.offsets import CommittedOffset, OffsetsAnswer
from kafkalite.protocol import codes, messages


def test_groups_members_and_offsets_come_back_out_of_the_log() -> None:
    host = make_host()
    coordinator = made(host)
    member_id = stable(host, coordinator, "members")
    commit(coordinator, "members", 42, member_id=member_id, generation_id=1)
    commit(coordinator, "simple", 1)
    commit(coordinator, "simple", 2)
    commit(coordinator, "ended", 3)
    host.run()
    coordinator.delete_group("ended")
    host.run()
    again, coordinator = restarted(host)
    assert fetched(coordinator, "members") == {0: 42}
    assert fetched(coordinator, "simple") == {0: 2}
    assert fetched(coordinator, "ended") == {}
    assert coordinator.heartbeat("members", member_id, None, 1) == codes.NONE
    _, group = coordinator.describe("members")
    assert group is not None
    assert (group.state, group.subscribed_topics) == ("Stable", {"u"})
    assert coordinator.describe("ended") == (codes.NONE, None)
    again.pass_time(20_000)
    assert coordinator.heartbeat("members", member_id, None, 1) == codes.UNKNOWN_MEMBER_ID


def test_requests_are_put_off_while_their_partition_is_loaded_and_heartbeats_are_not() -> None:
    host = make_host(**{"offsets.topic.num.partitions": 2})
    coordinator = made(host)
    names = {coordinator.runtime.partition_of(f"g{n}"): f"g{n}" for n in range(20)}
    for partition in (0, 1):
        for offset in range(3000):
            commit(coordinator, names[partition], offset, offset, metadata="m" * 600)
            if offset % 300 == 0:
                host.run()
        host.run()
    again = make_host(host.memory_logs, **dict(host.config))
    coordinator = started(again)
    late = names[1]
    assert coordinator.runtime.find(late)[1] == codes.COORDINATOR_LOAD_IN_PROGRESS
    assert commit(coordinator, late, 1) == [[codes.COORDINATOR_LOAD_IN_PROGRESS]]
    assert coordinator.heartbeat(late, "m", None, 1) == codes.NONE
    assert coordinator.list_groups()[0] == codes.COORDINATOR_LOAD_IN_PROGRESS
    while coordinator.runtime.find(late)[1]:
        again.turn()
        again.flush()
    assert coordinator.runtime.find(names[0])[1] == codes.COORDINATOR_LOAD_IN_PROGRESS
    assert len(fetched(coordinator, late)) == 3000
    again.pass_time(1000)
    assert len(fetched(coordinator, names[0])) == 3000
    assert again.memory_logs[0].reads > 3


def test_offsets_of_a_transaction_count_from_its_marker_on() -> None:
    log = MemoryLog()

    def transactional(producer_id: int, offset: int) -> None:
        builder = _native.BatchBuilder(
            producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )
        committed = CommittedOffset(offset, -1, "", 5, -1, ID)
        builder.append(1, *records.offset_record("g", "t", producer_id, committed))
        log.append(builder.finish())

    def marker(producer_id: int, commit: bool) -> None:
        log.append(_native.end_transaction_marker(1, producer_id, 0, commit=commit))

    def plain(partition: int, offset: int) -> None:
        builder = _native.BatchBuilder()
        committed = CommittedOffset(offset, -1, "", 5, -1, ID)
        builder.append(1, *records.offset_record("g", "t", partition, committed))
        log.append(builder.finish())

    transactional(1, 10)
    marker(1, True)
    transactional(2, 20)
    marker(2, False)
    transactional(3, 30)
    plain(3, 33)
    marker(3, True)
    transactional(4, 40)
    log.high_watermark = log.end
    host = make_host({0: log}, **{"offsets.topic.num.partitions": 1})
    coordinator = started(host)
    host.pass_time(100)
    assert fetched(coordinator, "g") == {1: 10, 3: 33}
    unstable: list[bool | None] = []

    def tell(answer: OffsetsAnswer) -> None:
        check = answer.is_unstable
        unstable.append(None if check is None else check("t", 4))

    tell(coordinator.fetch_offsets("g", True).result())
    tell(coordinator.fetch_offsets("g", False).result())
    assert unstable == [True, None]


def test_records_of_newer_kinds_are_passed_over_and_their_groups_not_taken_over() -> None:
    log = MemoryLog()
    builder = _native.BatchBuilder()
    key = b"\0\3" + messages.ConsumerGroupMetadataKey(group_id="modern").encode(0)
    builder.append(1, key, b"\0\0" + messages.ConsumerGroupMetadataValue(epoch=3).encode(0))
    builder.append(1, b"\x7f\xff new", b"new")
    builder.append(1, b"\0\2\xff", b"torn")
    committed = CommittedOffset(8, -1, "", 5, -1, ID)
    builder.append(1, *records.offset_record("modern", "t", 0, committed))
    log.append(builder.finish())
    log.high_watermark = log.end
    host = make_host({0: log}, **{"offsets.topic.num.partitions": 1})
    coordinator = started(host)
    host.pass_time(100)
    assert fetched(coordinator, "modern") == {0: 8}
    answer = join(coordinator, "modern")[0]
    assert answer.error_code == codes.INCONSISTENT_GROUP_PROTOCOL
    assert any("offset 2 is not taken" in line for line in host.log.lines)
    assert [each.knows_all for each in coordinator.runtime.shards] == [False]
    kept = commit(coordinator, "modern", 9)
    refused = commit(coordinator, "modern", 10, generation_id=0)
    host.run()
    assert (kept, refused) == ([[codes.NONE]], [[codes.UNKNOWN_MEMBER_ID]])
    assert fetched(coordinator, "modern") == {0: 9}
    assert list(coordinator.list_groups()[1]) == []


def test_a_newer_group_whose_record_cannot_be_read_is_not_taken_over_either() -> None:
    """Another version of the value, written by a broker of the future."""
    log = MemoryLog()
    builder = _native.BatchBuilder()
    key = b"\0\3" + messages.ConsumerGroupMetadataKey(group_id="modern").encode(0)
    builder.append(1, key, b"\0\7 unknown")
    for _ in range(3):
        builder.append(1, b"\0\x20 unknown kind %d" % builder.records_count, b"kept")
    log.append(builder.finish())
    log.high_watermark = log.end
    host = make_host({0: log}, **{"offsets.topic.num.partitions": 1})
    coordinator = started(host)
    host.pass_time(100)
    answer = join(coordinator, "modern")[0]
    assert answer.error_code == codes.INCONSISTENT_GROUP_PROTOCOL
    (line,) = [line for line in host.log.lines if "not known" in line]
    assert "3 record(s) of kind 32" in line


@pytest.mark.parametrize(
    "members",
    [[("m", None), ("m", None)], [("m", "i"), ("n", "i")], [("m", ""), ("n", "")]],
)
def test_a_group_that_has_a_member_twice_is_not_taken_and_those_behind_it_are(
    members: list[tuple[str, str | None]],
) -> None:
    """It ended the loading of its directory: no group of it was ever served again."""
    log = MemoryLog()
    builder = _native.BatchBuilder()
    for group_id, names in (("bad", members), ("good", members[:1])):
        named = tuple(MemberRecord(*each, "c", "/h", 9, 9_000, b"", b"") for each in names)
        state = GroupRecord("consumer", 1, "range", "m", 1, named)
        builder.append(1, *records.group_record(group_id, state))
    log.append(builder.finish())
    log.high_watermark = log.end
    host = make_host({0: log}, **{"offsets.topic.num.partitions": 1})
    coordinator = started(host)
    host.pass_time(100)
    assert coordinator.runtime.find("good")[1] == codes.NONE
    code, groups = coordinator.list_groups()
    assert (code, [each.group_id for each in groups]) == (codes.NONE, ["good"])
    assert any("offset 0 is not taken" in line for line in host.log.lines)
    assert not host.failures


def test_groups_of_a_partition_that_could_not_be_read_are_not_listed() -> None:
    host = make_host({0: offsets_log(3)}, **{"offsets.topic.num.partitions": 1})
    coordinator = started(host)
    (shard,) = coordinator.runtime.shards
    shard.machine.groups["g"] = ClassicGroup("g", GroupLimits(1, 0), 0)
    shard.fail_loading(StorageError("no disk"))
    assert coordinator.list_groups() == (codes.NONE, [])


def offsets_log(count: int, directory: str = "one") -> MemoryLog:
    """So many offsets of group `g`, in one batch."""
    log = MemoryLog()
    log.directory = f"{directory}/a-partition"
    builder = _native.BatchBuilder()
    for index in range(count):
        committed = CommittedOffset(index, -1, "", 5, -1, ID)
        builder.append(1, *records.offset_record("g", "t", index, committed))
    log.append(builder.finish())
    log.high_watermark = log.end
    return log


def test_loading_stops_after_some_records_for_other_work() -> None:
    host = make_host({0: offsets_log(3000)}, **{"offsets.topic.num.partitions": 1})
    coordinator = started(host)
    (shard,) = coordinator.runtime.shards
    counts = [0]
    while coordinator.runtime.is_loading:
        host.flush()
        callback = host.timers.pop_due(host.time_ms)
        if callback is not None:
            callback()
        counts.append(len(shard.machine.offsets.partitions_of("g")))
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert counts[-1] == 3000
    assert max(steps) == STEP_COUNT


def test_a_directory_that_does_not_answer_holds_up_the_loading_of_its_own_partitions_only() -> None:
    """The control thread itself read the logs, and waited with everybody else."""
    logs = {index: offsets_log(3, "hung" if index == 0 else "going") for index in range(3)}
    host = make_host(logs)
    coordinator = started(host)
    hung = next(each for each in host.working if each[0].__self__._log is logs[0])
    host.working.remove(hung)
    host.pass_time(100)
    refusals = [shard.refusal() for shard in coordinator.runtime.shards]
    assert refusals == [codes.COORDINATOR_LOAD_IN_PROGRESS, codes.NONE, codes.NONE]
    host.working.append(hung)
    host.pass_time(100)
    assert coordinator.runtime.shards[0].refusal() == codes.NONE
