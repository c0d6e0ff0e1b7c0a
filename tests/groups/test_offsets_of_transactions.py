"""Offsets of open transactions, as OffsetFetch and the deletion of topics see them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kafkalite.coordinator.machine import Append, Effect, Marker, Moment, Producer, Reply
from kafkalite.groups.machine import GroupMachine
from kafkalite.groups.offsets import CommittedOffset, OffsetsAnswer
from kafkalite.groups.records import OFFSET_COMMIT_KIND
from kafkalite.groups.transactional_offsets import TAKEN_AT_ONCE
from kafkalite.protocol import codes

OFFSET = CommittedOffset(5, -1, "", 0, record_offset=1)
LIMITS: Any = None


def machine_with_an_open_offset() -> GroupMachine:
    machine = GroupMachine(LIMITS, LIMITS)
    machine.offsets.put_open(7, "g", "t", 0, OFFSET)
    return machine


def test_an_offset_committed_while_the_answer_is_put_together_is_told() -> None:
    """The answer said -1 and no error: its client began anew, as `auto.offset.reset` says."""
    machine = machine_with_an_open_offset()
    answer = machine.offsets_of("g", codes.NONE, require_stable=True)
    assert answer.is_unstable is not None
    assert answer.is_unstable("t", 0)
    machine.offsets.end_transaction(7, commit=True)
    assert answer.is_unstable("t", 0)
    assert machine.offsets.take_ended(1) == 1
    assert not answer.is_unstable("t", 0)
    assert answer.find("t", 0) == OFFSET


def test_an_open_offset_of_a_deleted_topic_is_forgotten() -> None:
    """It held once the transaction was committed, also for a topic made again under the name."""
    machine = machine_with_an_open_offset()
    effects = machine.on_topics(["t"], Moment(0, 0))
    assert len(effects) == 1


class Name(str):
    """A group id that counts how often one is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, str(other))

    __hash__ = str.__hash__


def test_the_open_offsets_of_other_groups_are_not_looked_at() -> None:
    """Every open transaction of the partition was gone through for each group: a look for expired
    offsets of 100 groups took half a second at 100,000 open offsets."""
    machine = GroupMachine(LIMITS, LIMITS)
    for number in range(1_000):
        machine.offsets.put_open(number % 3, Name(str(number)), "t", 0, OFFSET)
    Name.compared = 0
    assert machine.offsets.partitions_of("7") == [("t", 0)]
    assert machine.offsets.count_of("7") == 1
    machine.offsets.remove("7", "t", 0)
    assert machine.offsets.partitions_of("7") == []
    assert Name.compared < 100


def test_a_large_transaction_is_taken_in_steps_and_its_end_told_after_the_last() -> None:
    """All its offsets were taken in one step."""
    machine = GroupMachine(LIMITS, LIMITS)
    count = 4 * TAKEN_AT_ONCE + 1
    for partition in range(count):
        machine.offsets.put_open(7, "g", "t", partition, OFFSET)
    machine.offsets.put_open(8, "g", "t", 0, OFFSET._replace(offset=6, record_offset=2))
    told: list[int] = []
    now_ms = 10
    for producer_id in (7, 8):
        carry_out(end(machine, producer_id, told, now_ms))
    # The tombstone of one that is not taken yet holds, too.
    left = next(each for each in range(1, count) if machine.offsets.get("g", "t", each) is None)
    machine.offsets.remove("g", "t", left)
    steps = 2
    while (wake_ms := machine.next_wake_ms()) is not None:
        assert len(told) < 2
        assert wake_ms > now_ms
        is_taken = [machine.offsets.get("g", "t", each) is not None for each in range(count)]
        is_unstable = [machine.offsets.is_unstable("g", "t", each) for each in range(count)]
        assert sum(is_taken) <= steps * TAKEN_AT_ONCE
        assert machine.offsets.count_of("g") == count - 1
        taken_or_unstable = zip(is_taken, is_unstable, strict=True)
        assert [any(each) for each in taken_or_unstable].count(False) == 1
        assert not told or all(is_taken[each] for each in range(count) if each != left)
        now_ms = wake_ms
        carry_out(machine.on_time(Moment(now_ms, 0)))
        steps += 1
    assert told == [0, 0]
    assert machine.offsets.get("g", "t", left) is None
    first = machine.offsets.get("g", "t", 0)
    assert machine.offsets.count_of("g") == len(machine.offsets.partitions_of("g")) == count - 1
    assert first is not None
    assert first.offset == 6


def test_who_wrote_a_marker_is_told_when_the_partition_goes_elsewhere() -> None:
    machine = GroupMachine(LIMITS, LIMITS)
    for partition in range(TAKEN_AT_ONCE + 1):
        machine.offsets.put_open(7, "g", "t", partition, OFFSET)
    told: list[int] = []
    carry_out(end(machine, 7, told, 10))
    assert told == []
    carry_out(machine.unload())
    assert told == [0]
    carry_out(end(machine, 8, told, 10))
    assert told == [0, 0]


def test_transactions_are_taken_in_steps_while_they_are_loaded() -> None:
    machine = GroupMachine(LIMITS, SimpleNamespace(expiry_interval_ms=1))  # type: ignore[arg-type]
    value = SimpleNamespace(
        offset=5,
        leader_epoch=-1,
        metadata="",
        commit_timestamp=0,
        expire_timestamp=-1,
        topic_id=bytes(16),
    )
    for partition in range(1_000):
        key = SimpleNamespace(group="g", topic="t", partition=partition)
        machine.replay(OFFSET_COMMIT_KIND, key, value, partition, 7)
    machine.end_transaction(7, commit=True)
    machine.replay(OFFSET_COMMIT_KIND, key, value, 1_001, 8)
    machine.end_transaction(8, commit=False)
    ready = [machine.on_loaded(Moment(0, 0), 500)[1] for _ in range(2)]
    assert ready == [False, True]
    assert len(machine.offsets.of_group("g")["t"]) == 1_000
    assert not machine.offsets.is_unstable("g", "t", 999)


def end(machine: GroupMachine, producer_id: int, told: list[int], now_ms: int) -> Sequence[Effect]:
    """The marker of a transaction is on disk."""
    producer = Producer(producer_id, 0, Marker(True, 0, 2))
    (append,) = machine.transactions.write_marker(producer, told.append)
    assert isinstance(append, Append)
    assert append.then is not None
    return append.then(codes.NONE, 0, Moment(now_ms, 0))


def carry_out(effects: Sequence[Effect]) -> None:
    for each in effects:
        assert isinstance(each, Reply)
        each.send()


def test_offsets_are_not_told_to_be_stable_where_they_are_forgotten() -> None:
    """The answer was put together after the partition had gone elsewhere: the offset before the
    open transaction was told, and its client read again what the transaction had read."""
    machine = machine_with_an_open_offset()
    machine.offsets.put("g", "t", 0, OFFSET)
    before = machine.offsets_of("g", codes.NONE, require_stable=True)
    told: list[OffsetsAnswer] = []
    waiting = [machine.fetch_stable_offsets("g", told.append) for _ in range(2)]
    carry_out(machine.unload())
    assert before.is_unstable is not None
    assert before.is_unstable("t", 0)
    for (append,), code in zip(waiting, (codes.NONE, codes.UNKNOWN_SERVER_ERROR), strict=True):
        assert isinstance(append, Append)
        assert append.then is not None
        carry_out(append.then(code, 0, Moment(0, 0)))
    # What could not be written is told as it would have been.
    assert [each.error_code for each in told] == [
        codes.NOT_COORDINATOR,
        codes.UNKNOWN_SERVER_ERROR,
    ]
