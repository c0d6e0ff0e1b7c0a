"""Offsets that are forgotten in steps, of deleted topics and expired ones."""

from typing import Any

from kafkalite.coordinator.machine import Append, Moment
from kafkalite.groups.deletions import GROUP_COSTS, STEP_OFFSETS
from kafkalite.groups.events import (
    CommitRequest,
    GroupLimits,
    OffsetLimits,
    OffsetsInTransaction,
    OffsetToCommit,
)
from kafkalite.groups.machine import TOMBSTONES_BYTES_MAX, GroupMachine
from kafkalite.groups.offsets import CommittedOffset
from kafkalite.groups.records import SERDE
from kafkalite.protocol import codes

OFFSET = CommittedOffset(5, -1, "", 0)
INTERVAL_MS = 1_000
LARGE = 3 * STEP_OFFSETS


class Play:
    """A machine whose writes are on disk at once."""

    def __init__(self) -> None:
        limits = OffsetLimits(metadata_bytes_max=10, retention_ms=1, expiry_interval_ms=INTERVAL_MS)
        self.machine = GroupMachine(GroupLimits(1, 0), limits)
        self.written: list[tuple[Any, bytes | None]] = []
        """Keys and values, in the order of the log."""
        self.now_ms = 0

    def moment(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    def perform(self, effects: Any) -> int:
        """How many records were written in this step."""
        count = 0
        for each in effects:
            if not isinstance(each, Append):
                each.send()
                continue
            size = sum(len(key) + len(value or b"") for key, value in each.records)
            assert size <= TOMBSTONES_BYTES_MAX
            for key, value in each.records:
                record = SERDE.read(key, value)
                assert not isinstance(record, int)
                self.written.append((record[1], value))
            count += len(each.records)
            if each.then is not None:
                count += self.perform(each.then(codes.NONE, len(self.written), self.moment()))
        return count

    def commit(self, group_id: str, topic: str, partition: int) -> None:
        """One offset, whose client is told that it is on disk."""
        told: list[list[int]] = []
        offset = OffsetToCommit(topic, bytes(16), partition, 9, -1, "")
        request = CommitRequest("", None, -1, -1, True, [offset])
        self.perform(self.machine.commit(group_id, request, told.append, self.moment()))
        assert told == [[codes.NONE]]

    def pass_time(self, until_ms: int) -> None:
        """Does what is due, each step as short as it is to be."""
        while (wake_ms := self.machine.next_wake_ms()) is not None and wake_ms <= until_ms:
            self.now_ms = max(self.now_ms, wake_ms)
            assert self.perform(self.machine.on_time(self.moment())) < 2 * STEP_OFFSETS
        self.now_ms = until_ms

    def places(self) -> set[tuple[str, int]]:
        return {(key.group, key.partition) for key, value in self.written if value is None}


def put(play: Play, *groups: str) -> None:
    for group_id in groups:
        for partition in range(LARGE):
            play.machine.offsets.put(group_id, "t", partition, OFFSET)


def test_the_offsets_of_a_deleted_topic_are_forgotten_in_steps() -> None:
    """All were in one step, those of a group in one write: of 30,000 offsets that is larger than
    the log takes, so that they stayed for ever."""
    play = Play()
    put(play, "g", "h")
    play.machine.offsets.put("g", "u", 0, OFFSET)
    play.machine.offsets.put_open(7, "i", "t", 0, OFFSET)
    assert play.perform(play.machine.on_topics(["t"], play.moment())) < 2 * STEP_OFFSETS
    assert play.machine.partitions_of("h")
    play.pass_time(INTERVAL_MS)
    assert len(play.written) == 2 * LARGE + 1
    assert play.places() == {("i", 0), *((name, at) for name in "gh" for at in range(LARGE))}
    assert play.machine.offsets.group_ids() == ["g"]
    assert play.machine.next_wake_ms() is None


def test_what_is_committed_in_a_topic_that_is_there_again_stays() -> None:
    play = Play()
    put(play, "g")
    play.perform(play.machine.on_topics(["t"], play.moment()))
    assert len(play.written) < LARGE
    for topic in ("u", "t"):
        before = len(play.written)
        play.commit("g", topic, LARGE - 1)
        assert play.written[-1][1] is not None
        # Another topic's commit waits for nothing.
        assert len(play.written) == before + 1 + (topic == "t")
    play.pass_time(INTERVAL_MS)
    assert play.machine.partitions_of("g") == [("t", LARGE - 1), ("u", LARGE - 1)]


def test_a_commit_in_a_topic_that_is_there_again_does_not_wait_for_all_others() -> None:
    """All that was left of the deletions was forgotten before it, in one step: of the offsets of
    ten thousand groups that took seconds, in which nobody else was answered."""
    play = Play()
    put(play, "f", "g", "h")
    play.perform(play.machine.on_topics(["t"], play.moment()))
    assert play.machine.partitions_of("h")
    for _ in range(2):
        before = len(play.written)
        play.commit("h", "t", 3)
        play.commit("new", "t", 3)
        assert len(play.written) <= before + 3
    play.pass_time(INTERVAL_MS)
    assert {name: play.machine.partitions_of(name) for name in ("f", "g", "h", "new")} == {
        "f": [],
        "g": [],
        "h": [("t", 3)],
        "new": [("t", 3)],
    }


def test_what_was_committed_between_two_deletions_of_a_topic_goes_with_the_second() -> None:
    play = Play()
    put(play, "g", "h")
    play.perform(play.machine.on_topics(["t"], play.moment()))
    play.commit("h", "t", 3)
    play.commit("h", "t", 4)
    play.perform(play.machine.on_topics(["t"], play.moment()))
    play.commit("h", "t", 4)
    play.pass_time(INTERVAL_MS)
    assert play.machine.partitions_of("g") == []
    assert play.machine.partitions_of("h") == [("t", 4)]


def test_groups_that_have_nothing_left_to_forget_are_passed_over_in_steps() -> None:
    play = Play()
    count = 3 * STEP_OFFSETS // GROUP_COSTS
    for number in range(count):
        play.machine.offsets.put(str(number), "t", 0, OFFSET)
    play.perform(play.machine.on_topics(["t"], play.moment()))
    for number in range(count):
        play.commit(str(number), "t", 0)
    before = len(play.written)
    steps = 0
    while (wake_ms := play.machine.next_wake_ms()) is not None:
        play.now_ms = max(play.now_ms, wake_ms)
        play.perform(play.machine.on_time(play.moment()))
        steps += 1
    assert steps > 1
    assert len(play.written) == before
    assert len(play.machine.offsets.group_ids()) == count


def test_the_expired_offsets_of_a_large_group_are_forgotten_in_steps_and_it_the_next_time() -> None:
    play = Play()
    put(play, "g")
    play.machine.offsets.put("small", "t", 0, OFFSET)
    while not play.machine.on_loaded(play.moment(), 500)[1]:
        pass
    play.pass_time(2 * INTERVAL_MS - 1)
    assert len(play.written) == LARGE + 2
    assert list(play.machine.groups) == ["g"]
    play.pass_time(2 * INTERVAL_MS + 100)
    assert not play.machine.groups
    assert len(play.written) == LARGE + 3


class Counted(str):
    """A topic that counts how often one is looked up."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return str.__hash__(self)


def test_what_other_groups_commit_meanwhile_is_not_looked_at_for_each_group() -> None:
    """It was: with 100,000 offsets that were being written a step took more than a second."""
    play = Play()
    for number in range(50):
        play.machine.offsets.put(str(number), "gone", 0, OFFSET)
    asked = [OffsetToCommit(Counted("t"), bytes(16), at, 9, -1, "") for at in range(1_000)]
    request = CommitRequest("", None, -1, -1, True, asked)
    told: list[list[int]] = []
    (append,) = play.machine.commit("busy", request, told.append, play.moment())
    transaction = OffsetsInTransaction(7, 0, None)
    play.machine.transactions.stage("other", [("t", 0, OFFSET)], transaction, [0], told.append)
    Counted.looks = 0
    play.perform(play.machine.on_topics(["gone"], play.moment()))
    assert len(play.places()) == 50
    assert Counted.looks <= 2 * len(asked)
    assert len(play.machine.partitions_of("busy")) == len(asked)
    assert play.machine.partitions_of("other") == [("t", 0)]
    play.perform(play.machine.on_topics(["t"], play.moment()))
    assert play.places() >= {("other", 0), *(("busy", at) for at in range(1_000))}
    play.perform([append])
    assert len(told) == 1
