"""The partitions of keys that clients name, and which of them a broker serves."""

import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkalite.coordinator.machine import Append
from kafkalite.coordinator.record_serde import RecordSerde
from kafkalite.coordinator.runtime import InternalTopic, Runtime
from kafkalite.coordinator.shard import ACTIVE, CLOSED, FAILED, LOADING
from kafkalite.errors import KafkaliteError, NotLeaderOrFollowerError, StorageError
from kafkalite.metadata.image import NO_LEADER, Image, PartitionImage, TopicImage
from kafkalite.protocol import codes
from kafkalite.tasks import Future, Tasks
from kafkalite.timers import Timers


def test_long_keys_that_clients_name_are_not_remembered() -> None:
    """Ten thousand were, whatever their length: 300 MB of them."""
    topic = InternalTopic("__topic", 50, {}, RecordSerde({}), 0, 5_000)
    host = cast(Any, SimpleNamespace(image=Image()))
    runtime = Runtime[Any](host, topic, lambda _partition: None)
    tracemalloc.start()
    for number in range(100):
        runtime.partition_of(f"{number:030000}")
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used_bytes < 1_000_000


class PlainMachine:
    """One that has nothing to do."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.is_unloaded = False

    def on_loaded(self, _moment: object, _count_max: int) -> tuple[list[Any], bool]:
        return [], True

    def unload(self) -> list[Any]:
        self.is_unloaded = True
        return []

    def next_wake_ms(self) -> None:
        return None


class Answers:
    """Counts nothing."""

    def hold(self, _size_bytes: int) -> None: ...
    def gather_answers(self) -> None: ...
    def send_answers(self) -> None: ...


class EndsLater:
    """The offsets of a log to which a record comes once somebody has looked at it."""

    log_start_offset = 0
    looks = 0

    @property
    def log_end_offset(self) -> int:
        self.looks += 1
        assert self.looks < 100
        return min(self.looks - 1, 1)


class Leading:
    """A runtime on broker 1, and the partitions of its topic as the controllers say."""

    def __init__(self, *partitions: PartitionImage, log_end_offset: int = 0) -> None:
        """Where it is more than 0, a log has to be read before its shard is served."""
        offsets = SimpleNamespace(log_start_offset=0, log_end_offset=log_end_offset)
        read = lambda _offset, _size_bytes: b""  # noqa: E731 - compaction has left no record
        self.partition_logs = logs = [
            SimpleNamespace(
                offsets=offsets, directory=f"/d/__topic-{index}", is_settled=True, read=read
            )
            for index in range(len(partitions))
        ]
        timers = Timers()
        find = lambda _name, index: logs[index]  # noqa: E731 - a replica has a log, leading or not
        self.host = SimpleNamespace(
            image=Image(),
            cluster=SimpleNamespace(node_id=1),
            core=SimpleNamespace(logs=SimpleNamespace(find=find), requests=Answers()),
            timers=timers,
            tasks=Tasks(timers, lambda _error: pytest.fail("a task has failed")),
            background=SimpleNamespace(run=self._run_in_background),
            log=SimpleNamespace(error=lambda _sentence: None),
            logs=SimpleNamespace(append=self._append),
            now_ms=lambda: 0,
            wall_ms=lambda: 0,
        )
        self.appends: list[Future[int]] = []
        """The appends to the log, in their order."""
        self.epochs: list[int | None] = []
        """The leader epochs in which alone they are taken."""
        self.reads: list[tuple[Callable[[], None], Future[None]]] = []
        """The reads of logs that threads in the background are doing."""
        topic = InternalTopic("__topic", len(partitions), {}, RecordSerde({}), 0, 5_000)
        self.runtime = Runtime[Any](cast(Any, self.host), topic, PlainMachine)
        self._show(partitions)
        self.runtime._take_shards(len(partitions))

    def _append(
        self,
        _topic: str,
        _partition: int,
        _batch: bytes,
        _version: int | None,
        decided_in: int | None,
    ) -> Future[int]:
        self.appends.append(Future[int]())
        self.epochs.append(decided_in)
        return self.appends[-1]

    def _run_in_background(self, work: Callable[[], None]) -> Future[None]:
        self.reads.append((work, Future[None]()))
        return self.reads[-1][1]

    def end_turn(self) -> None:
        while (callback := self.host.timers.pop_due(0)) is not None:
            callback()

    def end_read(self, error: KafkaliteError | None = None) -> None:
        """The disk answers to the first read."""
        work, read = self.reads.pop(0)
        if error is None:
            work()
            read.set(None)
        else:
            read.fail(error)
        while self.host.tasks.ready:
            self.host.tasks.ready.popleft()()
            self.end_turn()

    def _show(self, partitions: tuple[PartitionImage, ...]) -> None:
        topic = TopicImage("__topic", b"t" * 16, partitions)
        self.host.image = Image(topics={"__topic": topic})

    def elect(self, *partitions: PartitionImage) -> list[str]:
        self._show(partitions)
        self.runtime.on_leaders()
        return self.states()

    def states(self) -> list[str]:
        return [each.state for each in self.runtime.shards]


def led_by(leader: int, epoch: int, *replicas: int) -> PartitionImage:
    return PartitionImage(0, leader, epoch, epoch, replicas, replicas)


def test_a_replica_that_follows_does_not_coordinate() -> None:
    leading = Leading(led_by(1, 0, 1, 2), led_by(2, 0, 2, 1))
    assert leading.states() == [ACTIVE, CLOSED]
    assert leading.runtime.shards[1].refusal() == codes.NOT_COORDINATOR


def test_a_partition_is_loaded_anew_in_each_epoch_that_others_may_have_led_between() -> None:
    leading = Leading(led_by(1, 0, 1, 2))
    first = leading.runtime.shards[0]
    assert leading.elect(led_by(1, 0, 1, 2)) == [ACTIVE]
    assert leading.runtime.shards[0] is first
    # Broker 2 has led in epoch 1, which has not been seen here by itself.
    assert leading.elect(led_by(1, 2, 1, 2)) == [ACTIVE]
    second = leading.runtime.shards[0]
    assert second is not first
    assert first.machine.is_unloaded
    assert second.leader_epoch == 2


def test_what_was_decided_in_an_epoch_is_not_written_in_a_later_one() -> None:
    """A log directory did not answer while another broker led, and wrote. Back in the lead, the
    broker appended what waited behind that: offsets of members who had been replaced meanwhile."""
    leading = Leading(led_by(1, 0, 1, 2))
    first = leading.runtime.shards[0]
    codes_told: list[int] = []

    def told(code: int, _offset: int, _moment: object) -> list[Any]:
        codes_told.append(code)
        return []

    for key in (b"under way", b"behind", b"further behind"):
        first.perform([Append([(key, b"value")], told)])
        leading.end_turn()
    assert len(leading.appends) == 1
    leading.elect(led_by(1, 2, 1, 2))
    assert codes_told == [codes.NOT_COORDINATOR] * 2
    leading.appends[0].set(0)
    first.perform([Append([(b"late", b"value")], told)])
    leading.end_turn()
    assert codes_told[2:] == [codes.NONE, codes.NOT_COORDINATOR]
    assert len(leading.appends) == 1


def test_a_shard_whose_epoch_is_over_is_loaded_anew_before_it_hears_of_it() -> None:
    """The engine leads in the next epoch as soon as it is published, and the shard hears of it
    later: what it had decided in the old one was written in the new one."""
    leading = Leading(led_by(1, 3, 1, 2))
    first = leading.runtime.shards[0]
    codes_told: list[int] = []

    def told(code: int, _offset: int, _moment: object) -> list[Any]:
        codes_told.append(code)
        return []

    first.perform([Append([(b"key", b"value")], told), Append([(b"other", b"value")], told)])
    leading.end_turn()
    assert leading.epochs == [3]
    first.perform([Append([(b"behind", b"value")], told)])
    leading.end_turn()
    leading.appends[0].fail(NotLeaderOrFollowerError("t-0 is not led here"))
    assert codes_told == [codes.NOT_COORDINATOR] * 3
    assert first.refusal() == codes.NOT_COORDINATOR
    assert len(leading.appends) == 1
    assert leading.elect(led_by(1, 5, 1, 2)) == [ACTIVE]
    assert leading.runtime.shards[0] is not first
    assert first.machine.is_unloaded


def test_the_only_replica_writes_in_any_epoch_until_another_one_comes() -> None:
    leading = Leading(led_by(1, 0, 1))

    def write() -> int | None:
        shard = leading.runtime.shards[0]
        shard.perform([Append([(b"key", b"value")], None)])
        leading.end_turn()
        leading.appends[-1].set(0)
        return leading.epochs[-1]

    assert write() is None
    first = leading.runtime.shards[0]
    leading.elect(led_by(1, 0, 1, 2))
    assert write() == 0
    assert leading.runtime.shards[0] is first
    # Broker 2 may have led in epoch 1.
    leading.elect(led_by(1, 2, 1))
    assert leading.runtime.shards[0] is not first
    assert write() is None


@pytest.mark.parametrize("leader", [2, NO_LEADER])
def test_who_leads_no_more_lets_go_what_was_loaded(leader: int) -> None:
    leading = Leading(led_by(1, 0, 1, 2))
    machine = leading.runtime.shards[0].machine
    assert leading.elect(led_by(leader, 1, 1, 2)) == [CLOSED]
    assert machine.is_unloaded
    assert leading.runtime.shards[0].machine is not machine
    assert leading.elect(led_by(1, 2, 1, 2)) == [ACTIVE]


def test_the_only_replica_keeps_what_it_has_loaded_while_nobody_leads() -> None:
    leading = Leading(led_by(1, 0, 1))
    first = leading.runtime.shards[0]
    assert leading.elect(led_by(NO_LEADER, 1, 1)) == [ACTIVE]
    assert leading.elect(led_by(1, 2, 1)) == [ACTIVE]
    assert leading.runtime.shards[0] is first
    # Markers name the epoch in which they are decided.
    assert first.leader_epoch == 2


def test_leaders_change_as_before_when_the_topic_has_grown() -> None:
    """Once its topic had more partitions than at the start, no coordinator followed its leader
    any more: what another broker had acknowledged meanwhile was not known to who led again."""
    leading = Leading(led_by(1, 0, 1, 2), led_by(2, 0, 2, 1))
    new = led_by(1, 0, 1, 2)
    assert leading.elect(led_by(2, 1, 1, 2), led_by(1, 1, 2, 1), new) == [CLOSED, ACTIVE]
    assert leading.elect(led_by(1, 2, 1, 2), led_by(2, 2, 2, 1), new) == [ACTIVE, CLOSED]


def test_one_shard_of_a_directory_is_read_at_a_time_after_a_failover() -> None:
    """Each partition that changed hands had a queue and so a thread of its own: as many threads
    read in one directory, and each hung with it, as partitions came with a failover."""
    others = tuple(led_by(2, 0, 1, 2) for _ in range(10))
    leading = Leading(*others, log_end_offset=1)
    assert leading.elect(*(led_by(1, 1, 1, 2) for _ in others)) == [LOADING] * 10
    for loaded_count in range(10):
        assert len(leading.reads) == 1
        leading.end_read()
        assert leading.states().count(ACTIVE) == loaded_count + 1
    assert not leading.reads


def test_a_shard_that_comes_again_is_read_once_the_read_of_its_former_life_has_ended() -> None:
    """A hung directory held a thread more for each time that its partitions changed hands."""
    leading = Leading(led_by(1, 0, 1, 2), log_end_offset=1)
    for epoch in (2, 4, 6):
        assert leading.elect(led_by(1, epoch, 1, 2)) == [LOADING]
    assert len(leading.reads) == 1
    leading.end_read()
    assert leading.states() == [LOADING]
    assert len(leading.reads) == 1
    leading.end_read()
    assert leading.states() == [ACTIVE]
    assert not leading.reads


def test_a_topic_that_is_made_again_is_read_after_what_is_read_of_the_deleted_one() -> None:
    leading = Leading(led_by(1, 0, 1, 2), log_end_offset=1)
    leading.runtime.drop()
    leading.runtime._take_shards(1)
    assert len(leading.reads) == 1
    leading.end_read()
    assert leading.states() == [LOADING]
    leading.end_read()
    assert leading.states() == [ACTIVE]


def test_a_shard_whose_log_cannot_be_read_has_failed_until_its_leader_changes() -> None:
    leading = Leading(led_by(1, 0, 1, 2), log_end_offset=1)
    leading.end_read(StorageError("no disk"))
    assert leading.states() == [FAILED]
    assert leading.runtime.shards[0].refusal() == codes.NOT_COORDINATOR
    assert leading.elect(led_by(1, 2, 1, 2)) == [LOADING]
    leading.end_read()
    assert leading.states() == [ACTIVE]


def test_a_defect_in_taking_what_was_read_fails_its_partition_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ended the loading of all partitions of the directory, which had no end then: their groups
    were never served, nor any listed."""

    def on_loaded(
        machine: PlainMachine, _moment: object, _count_max: int
    ) -> tuple[list[Any], bool]:
        if machine.partition == 0:
            raise ValueError("a defect")
        return [], True

    monkeypatch.setattr(PlainMachine, "on_loaded", on_loaded)
    leading = Leading(led_by(1, 0, 1, 2), led_by(1, 0, 1, 2), log_end_offset=1)
    for _ in range(2):
        leading.end_read()
    assert leading.states() == [FAILED, ACTIVE]
    assert not leading.runtime.is_loading
    assert not leading.runtime._loading
    empty = Leading(led_by(1, 0, 1, 2), led_by(1, 0, 1, 2))
    assert empty.states() == [FAILED, ACTIVE]


def test_a_log_that_is_empty_only_when_loading_begins_is_read() -> None:
    """The loading went round for ever, and the control thread with it, without a read."""
    leading = Leading(led_by(2, 0, 2, 1))
    (log,) = leading.partition_logs
    log.offsets = EndsLater()
    assert leading.elect(led_by(1, 1, 1, 2)) == [LOADING]
    leading.end_read()
    assert leading.states() == [ACTIVE]
