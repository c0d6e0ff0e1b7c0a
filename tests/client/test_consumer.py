"""The consumer against kafkalite: positions, seeks, groups, what was aborted or deleted."""

import re
import time

import pytest

from client.filled import fill
from kafkalite.client import Admin, Consumer, GroupOptions
from kafkalite.client.consumer import coordinator
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.errors import InvalidArgumentError, OffsetOutOfRangeError

DEADLINE_S = 60


def values(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        found += [record.value for record in consumer.poll(500)]
    return found


def numbers(*wanted: int) -> list[bytes]:
    return [b"%d" % number for number in wanted]


def test_it_goes_on_where_it_was_told_to(servers: str) -> None:
    fill(servers, "seek")
    place = ("seek", 0)
    with Consumer(servers) as consumer:
        consumer.assign([place])
        assert values(consumer, 10) == numbers(*range(10))
        assert consumer.position(place) == 10
        consumer.seek(place, 7)
        assert values(consumer, 3) == numbers(7, 8, 9)
        consumer.assign({place: 9})
        assert values(consumer, 1) == numbers(9)
        consumer.assign({place: 2}, stops={place: 5})
        assert values(consumer, 3)[:3] == numbers(2, 3, 4)


def test_a_paused_partition_gives_nothing_until_it_is_resumed(servers: str) -> None:
    fill(servers, "pause", partitions=2)
    with Consumer(servers) as consumer:
        consumer.assign([("pause", 0), ("pause", 1)])
        consumer.pause(("pause", 1))
        assert values(consumer, 5) == numbers(0, 2, 4, 6, 8)
        assert consumer.poll(100) == []
        consumer.resume(("pause", 1))
        assert values(consumer, 5) == numbers(1, 3, 5, 7, 9)


def test_an_offset_outside_the_log_is_reset_or_refused(servers: str) -> None:
    fill(servers, "outside")
    with Admin(servers) as admin:
        admin.delete_records({("outside", 0): 6})
    for reset, found in (("earliest", numbers(6, 7, 8, 9)), ("latest", [])):
        with Consumer(servers, offset_reset=reset) as consumer:
            consumer.assign({("outside", 0): 2})
            assert values(consumer, len(found)) == found
    with Consumer(servers, offset_reset="none") as consumer:
        consumer.assign({("outside", 0): 2})
        with pytest.raises(OffsetOutOfRangeError, match="offset 2 is outside the log of outside-0"):
            consumer.poll(10_000)


def test_what_was_committed_is_not_read_again(servers: str) -> None:
    fill(servers, "commit")
    with Consumer(servers, group="commit", auto_commit_interval_ms=None) as consumer:
        consumer.subscribe(["commit"])
        assert values(consumer, 10) == numbers(*range(10))
        consumer.commit({("commit", 0): 8})
        assert consumer.committed([("commit", 0)]) == {("commit", 0): 8}
    with Consumer(servers, group="commit") as consumer:
        consumer.subscribe(["commit"])
        assert values(consumer, 2) == numbers(8, 9)
    # Closing committed what was read.
    with Consumer(servers, group="commit") as consumer:
        assert consumer.committed([("commit", 0)]) == {("commit", 0): 10}


def test_the_offset_of_an_idle_partition_outlives_its_retention(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A position was committed once. With partitions that it had assigned itself the consumer is no
    member of its group: the broker removed the offset offsets.retention.minutes after that, and
    whoever came next read all again. Here the group is deleted, as at the end of its retention."""
    monkeypatch.setattr(coordinator, "COMMIT_ALL_S", 0.1)
    fill(servers, "idle")
    place = ("idle", 0)
    with (
        Consumer(servers, group="idle", auto_commit_interval_ms=10) as consumer,
        GroupAdmin(servers) as admin,
    ):
        consumer.assign([place])
        assert values(consumer, 10) == numbers(*range(10))
        for _ in range(2):
            deadline = time.monotonic() + DEADLINE_S
            while consumer.committed([place]) != {place: 10}:
                assert time.monotonic() < deadline
                assert consumer.poll(10) == []
            admin.delete("idle")


def test_members_share_partitions_and_take_over_when_one_leaves(servers: str) -> None:
    fill(servers, "shared", partitions=4, count=40)
    options = GroupOptions("shared", heartbeat_interval_ms=100)
    everything = [("shared", partition) for partition in range(4)]
    with Consumer(servers, group=options) as first:
        first.subscribe(["shared"])
        assert len(values(first, 40)) == 40
        assert first.assignment == everything
        with Consumer(servers, group=options) as second:
            second.subscribe(["shared"])
            deadline = time.monotonic() + DEADLINE_S
            while len(first.assignment) + len(second.assignment) != 4 or not second.assignment:
                assert time.monotonic() < deadline
                # A member that waits for the other to join again must not keep it from doing so.
                _in_turn(first, second)
            assert sorted(first.assignment + second.assignment) == everything
        deadline = time.monotonic() + DEADLINE_S
        while first.assignment != everything:
            assert time.monotonic() < deadline
            first.poll(50)


def _in_turn(first: Consumer, second: Consumer) -> None:
    import threading

    other = threading.Thread(target=second.poll, args=(200,))
    other.start()
    first.poll(200)
    other.join()


def test_topics_are_subscribed_to_by_pattern(servers: str) -> None:
    fill(servers, "pattern-a", count=1)
    fill(servers, "pattern-b", count=1)
    fill(servers, "other-pattern-a", count=1)
    with Consumer(servers, group="patterns") as consumer:
        consumer.subscribe(re.compile("pattern-.*"))
        assert values(consumer, 2) == numbers(0, 0)
        assert consumer.assignment == [("pattern-a", 0), ("pattern-b", 0)]


def test_a_static_member_comes_back_without_a_rebalance(servers: str) -> None:
    fill(servers, "static", count=3)
    options = GroupOptions("static", instance_id="one")
    with Consumer(servers, group=options) as consumer:
        consumer.subscribe(["static"])
        assert values(consumer, 3) == numbers(0, 1, 2)
        assert consumer._coordinator is not None
        generation = consumer._coordinator.group.generation
    with Consumer(servers, group=options) as consumer:
        consumer.subscribe(["static"])
        consumer.poll(1000)
        assert consumer.assignment == [("static", 0)]
        assert consumer._coordinator is not None
        assert consumer._coordinator.group.generation == generation


def test_what_makes_no_sense_is_refused(servers: str) -> None:
    with pytest.raises(InvalidArgumentError, match="isolation"):
        Consumer(servers, isolation="serializable")
    with pytest.raises(InvalidArgumentError, match="offset_reset"):
        Consumer(servers, offset_reset="middle")
    with Consumer(servers) as consumer:
        with pytest.raises(InvalidArgumentError, match="can only assign"):
            consumer.subscribe(["t"])
        with pytest.raises(InvalidArgumentError, match="t-0 is not assigned"):
            consumer.seek(("t", 0), 1)
        with pytest.raises(InvalidArgumentError, match="commits nothing"):
            consumer.commit()
