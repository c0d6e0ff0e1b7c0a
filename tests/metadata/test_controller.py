"""The controller over a log that is not there: what it asks of the log, and how often; and the lock
under which changes are judged."""

import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite._native import Moves
from kafkalite.context import Context
from kafkalite.errors import KafkaliteError, StorageError
from kafkalite.metadata.cluster import Cluster
from kafkalite.metadata.controller import RECORDS_PER_OPERATION_MAX, ControllerError
from kafkalite.metadata.controller.active import Controller
from kafkalite.metadata.controller.topics import NewTopic, check_new_topic
from kafkalite.metadata.fold import Fold, MetadataDelta
from kafkalite.metadata.image import GROUP, TOPIC, AlikeNames, Image
from kafkalite.metadata.publisher import Publisher
from kafkalite.metadata.solo import Metadata, SoloWriter
from kafkalite.metadata.write_lock import WriteLock
from kafkalite.protocol import codes, messages
from kafkalite.service.stderr_log import Log
from kafkalite.tasks import Future, Task, Tasks, TimedOutError
from kafkalite.timers import Timers

NODE = 1


class CountingLog:
    """Adds up what is appended, and keeps how many records each append had."""

    def __init__(self) -> None:
        self._fold = Fold()
        self.appends: list[int] = []
        self.kraft_version = 0
        self.leader_epoch = 1
        self.native_log = None
        self.image = self._fold.take_delta(1, 0, 0).image

    def append(self, appended: Sequence[Any], _now_ms: int) -> None:
        self.finish(self.prepare(appended, 0), None)

    def prepare(self, appended: Sequence[Any], _now_ms: int) -> Any:
        self.appends.append(len(appended))
        return SimpleNamespace(messages=appended, batches=[])

    def finish(self, appending: Any, error: KafkaliteError | None) -> MetadataDelta:
        if error is not None:
            raise error
        for message in appending.messages:
            self._fold.replay(message)
        delta = self._fold.take_delta(1, 0, 0)
        self.image = delta.image
        return delta

    def due_snapshot(self, _now_ms: int) -> None:
        pass


class SlowLogs:
    """Log directories that change logs when the test says so. The metadata is written at once, or
    also when the test says so."""

    def __init__(self) -> None:
        self.under_way: list[Future[None]] = []
        self.writing: list[Future[None]] | None = None

    def append_metadata(self, _log: object, _batches: object, _epoch: int) -> Future[None]:
        written = Future[None]()
        if self.writing is None:
            written.set(None)
        else:
            self.writing.append(written)
        return written

    def make(self, _topics: object) -> Future[None]:
        self.under_way.append(Future())
        return self.under_way[-1]

    delete = make


class World:
    """A controller, its node, and what the control thread does with tasks. It has the topics `t-0`
    and so on, of one partition."""

    def __init__(self, topic_count: int = 1) -> None:
        self.log: Any = CountingLog()
        self.logs = SlowLogs()
        self.published: dict[str, Any] = {}
        """The topics that clients see."""
        self.configs: dict[str, Mapping[str, str]] = {}
        """Those that logs were given later."""
        self.core: Any = SimpleNamespace(
            set_brokers=lambda *_: None,
            set_features=lambda *_: None,
            set_configs=self.configs.__setitem__,
            place=lambda count: [bytes([9]) * 16] * count,
            publish=self.published.update,
        )
        self.failed: list[Exception] = []
        self.tasks = Tasks(Timers(), self.failed.append, lambda: 0)
        self.background = None
        self.lock = WriteLock()
        writer = SoloWriter(self.log, NODE, lambda: 0)
        publisher = Publisher(lambda own: own)
        self.controller = Controller(NODE, writer, publisher, self.lock)
        cluster = Cluster(NODE, writer)
        self.metadata = Metadata(writer, publisher, self.lock, self.controller, cluster)
        self.log.append([messages.RegisterBrokerRecord(broker_id=NODE)], 0)
        for number in range(topic_count):
            self.log.append(topic(number), 0)
        self.log.appends.clear()
        self.metadata.serve(SimpleNamespace(moved=[], topics=self.core), [])  # type: ignore[arg-type]
        self.metadata.change_by(self)  # type: ignore[arg-type]

    @property
    def image(self) -> Image:
        return self.metadata.cluster.image

    def go_on(self) -> None:
        while self.tasks.ready:
            self.tasks.ready.popleft()()

    def change(self, change: Coroutine[Any, Any, Any], *names: str) -> Task[Any]:
        """Has a change made when it has the lock, with none of the topics changing."""

        async def locked() -> Any:
            async with self.lock.held(names):
                return await self.tasks.start(change)

        return self.tasks.start(locked())

    def create(self, *names: str, **configs: str) -> Task[Any]:
        return self.change(
            self.controller.create_topics([NewTopic(each, 1, configs) for each in names])
        )

    def write(self, error: KafkaliteError | None = None) -> None:
        """The metadata that waits for it is written, or not."""
        assert self.logs.writing
        end(self.logs.writing.pop(0), error)
        self.go_on()

    def end_logs(self, error: KafkaliteError | None = None) -> None:
        """All logs are made, or none can be."""
        while self.logs.under_way:
            end(self.logs.under_way.pop(0), error)
        self.go_on()


def end(future: Future[None], error: KafkaliteError | None) -> None:
    if error is None:
        future.set(None)
    else:
        future.fail(error)


def code_of(task: Task[Any]) -> int:
    with pytest.raises(ControllerError) as refused:
        task.result()
    return refused.value.code


def topic(number: int) -> list[Any]:
    topic_id = number.to_bytes(16, "big")
    return [
        messages.TopicRecord(name=f"t-{number}", topic_id=topic_id),
        messages.PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[NODE],
            isr=[NODE],
            leader=NODE,
            directories=[bytes([9]) * 16],
        ),
    ]


def test_configs_of_many_resources_are_one_append() -> None:
    """Each resource was an append and a flush of its own."""
    world = World(500)
    set_configs = world.controller.set_configs
    wanted: dict[tuple[int, str], dict[str, str | None]] = {
        (TOPIC, f"t-{number}"): {"flush.ms": "5", "retention.ms": "6"} for number in range(500)
    }
    of_group = {(GROUP, "g"): {"consumer.session.timeout.ms": "50000"}}
    world.change(set_configs(wanted | of_group)).result()
    assert world.log.appends == [1001]
    world.change(set_configs({**wanted, (TOPIC, "t-7"): {"flush.ms": None}})).result()
    assert world.log.appends == [1001, 1]
    world.change(set_configs({(TOPIC, "t-7"): {"retention.ms": "6"}})).result()
    assert world.log.appends == [1001, 1]
    assert world.image.configs[TOPIC, "t-7"] == {"retention.ms": "6"}
    assert world.configs["t-7"] == {"retention.ms": "6"}


def test_more_topics_than_fit_in_one_change_are_not_deleted() -> None:
    world = World(RECORDS_PER_OPERATION_MAX + 1)
    names = list(world.image.topics)
    refused = world.change(world.controller.delete_topics(names))
    assert code_of(refused) == codes.POLICY_VIOLATION
    assert world.log.appends == [] and not world.lock.has_to_wait()
    world.change(world.controller.delete_topics(names[1:])).result()
    assert (world.log.appends, list(world.image.topics)) == (
        [RECORDS_PER_OPERATION_MAX],
        names[:1],
    )


def test_features_change_together_by_one_append() -> None:
    """Each was an append of its own: a kill between two left a part of the request."""
    world = World()
    update = world.controller.update_features({"group.version": 1, "transaction.version": 2})
    world.change(update).result()
    assert world.log.appends == [2]


def test_who_waits_for_a_topic_goes_on_when_its_logs_are_made() -> None:
    world = World()
    created = world.create("new", "other")
    both = world.tasks.start(world.lock.settled(["new", "t-0"]))
    world.go_on()
    grown = world.change(world.controller.create_partitions({"t-0": 3}))
    other = world.tasks.start(world.lock.settled(["other"]))
    assert world.tasks.start(world.lock.settled(["unknown"])).is_done
    world.go_on()
    # Nobody else gets the name meanwhile; a log is there before its partition is in the metadata.
    with pytest.raises(ControllerError, match="already exists"):
        check_new_topic(world.image, "new", AlikeNames())
    assert len(world.image.topics["t-0"].partitions) == 1
    assert (list(world.published), world.log.appends) == ([], [4])
    creating, growing = world.logs.under_way
    creating.set(None)
    world.go_on()
    assert created.is_done and other.is_done and not both.is_done
    assert world.lock.is_changing("t-0") and not world.lock.is_changing("new")
    growing.set(None)
    world.go_on()
    assert grown.is_done and both.is_done
    assert list(world.published) == ["new", "other", "t-0"]
    assert (len(world.image.topics["t-0"].partitions), world.log.appends) == (3, [4, 2])


def test_topics_whose_logs_cannot_be_made_are_gone_again() -> None:
    world = World()
    created = world.create("new", **{"flush.ms": "5"})
    grown = world.change(world.controller.create_partitions({"t-0": 3}))
    world.end_logs(StorageError("no room"))
    assert [code_of(created), code_of(grown)] == [codes.KAFKA_STORAGE_ERROR] * 2
    assert list(world.image.topics) == ["t-0"]
    assert len(world.image.topics["t-0"].partitions) == 1
    assert not world.published
    assert not world.lock.is_changing("new") and not world.lock.is_changing("t-0")


def test_who_has_given_up_waiting_for_a_topic_is_forgotten() -> None:
    """As long as a directory hung, each that was answered late stayed behind, with its request."""
    world = World(0)
    world.create("new", "other")

    class Request:
        pass

    async def wait(_request: Request) -> None:
        with suppress(TimedOutError), world.tasks.until(0):
            await world.lock.settled(["new"])

    left, stays = Request(), world.tasks.start(world.lock.settled(["new"]))
    world.tasks.start(wait(left))
    gone = weakref.ref(left)
    del left
    assert gone() is not None
    timer = world.tasks.timers.pop_due(0)
    assert timer is not None
    timer()
    world.go_on()
    assert gone() is None and not stays.is_done
    world.end_logs()
    assert stays.is_done


def test_logs_that_were_made_and_cannot_be_served_leave_no_topic_changing() -> None:
    """Only a refusal of the metadata was looked for: the topic was changing until the end."""
    world = World()

    def fail(_states: object) -> None:
        raise StorageError("no room")

    world.core.publish = fail
    created = world.create("new")
    grown = world.change(world.controller.create_partitions({"t-0": 2}))
    assert world.lock.is_being_made("new") and not world.lock.is_being_made("t-0")
    world.end_logs()
    assert [code_of(created), code_of(grown)] == [codes.KAFKA_STORAGE_ERROR] * 2
    assert not world.lock.is_changing("new") and not world.lock.is_changing("t-0")
    assert not world.lock.is_being_made("new")


def test_configs_that_are_set_while_logs_are_made_hold_for_them() -> None:
    """A log is made with the configs that the topic had when that began."""
    world = World(0)
    world.create("new", "other")
    world.change(world.controller.set_configs({(TOPIC, "new"): {"flush.ms": "5"}})).result()
    world.configs.clear()
    world.end_logs()
    assert world.configs == {"new": {"flush.ms": "5"}}


def test_the_configs_of_a_new_topic_are_not_told_before_its_logs_are_made() -> None:
    world = World(0)
    world.create("new", **{"flush.ms": "5"})
    world.end_logs()
    assert not world.configs and world.published["new"].configs == {"flush.ms": "5"}


def test_a_partition_that_is_offline_is_not_called_unknown_while_its_topic_grows() -> None:
    """It was not told from one whose log is not made yet."""
    world = World()
    core_logs = SimpleNamespace(find=lambda *_: None, answer=None)
    requests = SimpleNamespace(wake=None)
    core: Any = SimpleNamespace(
        cluster_id="cluster", moves=Moves, logs=core_logs, requests=requests
    )
    config: Any = {"node.id": NODE}
    context = Context(core, config, Log("error"), world.metadata)
    world.change(world.controller.create_partitions({"t-0": 2}))
    world.create("new")
    assert context.replicas.refusal("t-0", 0) == codes.KAFKA_STORAGE_ERROR
    assert context.replicas.refusal("t-0", 1) == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert context.replicas.refusal("new", 0) == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_changes_are_judged_one_after_the_other_each_by_what_those_before_it_left() -> None:
    world = World()
    world.logs.writing = []
    told: list[str] = []

    async def create(number: int) -> None:
        async with world.lock.held():
            try:
                check_new_topic(world.image, "new", AlikeNames())
            except ControllerError:
                told.append(f"{number} there")
            else:
                creating = world.controller.create_topics([NewTopic("new", 1, {})])
                await world.tasks.start(creating)
                told.append(f"{number}")

    async def delete() -> None:
        async with world.lock.held(["new"]):
            await world.tasks.start(world.controller.delete_topics(["new"]))
            told.append("gone")

    async def configure(value: str) -> None:
        async with world.lock.held():
            before = dict(world.image.configs.get((TOPIC, "t-0"), {}))
            told.append(f"{before} {value}")
            wanted = {(TOPIC, "t-0"): {"flush.ms": value}}
            await world.tasks.start(world.controller.set_configs(wanted))

    for change in (create(1), create(2), configure("5"), configure("6"), delete()):
        world.tasks.start(change)
    world.go_on()
    assert (len(world.logs.writing), told, list(world.image.topics)) == (1, [], ["t-0"])
    world.write()
    # Its logs are not made yet.
    assert (told, list(world.image.topics)) == (["2 there", "{} 5"], ["t-0", "new"])
    world.write()
    assert told.pop() == "{'flush.ms': '5'} 6"
    world.write()
    assert not world.logs.writing
    world.end_logs()
    world.write()
    assert (sorted(told[2:]), list(world.image.topics)) == (["1", "gone"], ["t-0"])


def test_a_change_that_the_disk_refuses_is_not_there_and_the_next_one_has_the_lock() -> None:
    world = World()
    failures: list[str] = []
    world.metadata.writer.on_failure(failures.append)
    world.logs.writing = []
    controller = world.controller
    tasks = [
        world.change(change)
        for change in (
            controller.delete_topics(["t-0"]),
            controller.create_topics([NewTopic("new", 1, {})]),
            controller.allocate_producer_ids(),
            controller.update_features({"group.version": 1}),
        )
    ]
    for _ in range(4):
        world.write(StorageError("no disk"))
    assert [code_of(each) for each in tasks] == [codes.KAFKA_STORAGE_ERROR] * 4
    assert (list(world.image.topics), world.image.features) == (["t-0"], {})
    assert controller.next_producer_id() is None
    assert not world.lock.is_changing("new") and not world.lock.has_to_wait(["new"])
    assert len(failures) == 4


def test_who_has_given_up_waiting_for_the_lock_changes_nothing() -> None:
    world = World()
    world.logs.writing = []
    told: list[str] = []

    async def wait(name: str, due_ms: int) -> None:
        with suppress(TimedOutError), world.tasks.until(due_ms):
            async with world.lock.held():
                told.append(name)

    world.change(world.controller.allocate_producer_ids())
    world.tasks.start(wait("waited too long", 0))
    world.tasks.start(wait("next", 1))
    timer = world.tasks.timers.pop_due(0)
    assert timer is not None
    timer()
    world.go_on()
    world.write()
    assert told == ["next"]
    assert world.controller.next_producer_id() == 0


def test_a_change_without_the_lock_is_a_defect() -> None:
    world = World()
    with pytest.raises(RuntimeError, match="without the lock"):
        world.tasks.start(world.controller.update_features({"group.version": 1})).result()
    assert not world.log.appends


def test_a_change_goes_on_whatever_becomes_of_who_began_it() -> None:
    """The lock is let go when the records are in the image, not when their request is answered."""
    world = World()
    world.logs.writing = []

    async def change() -> None:
        with suppress(TimedOutError), world.tasks.until(0):
            async with world.lock.held():
                await world.tasks.start(world.controller.update_features({"group.version": 1}))

    request = world.tasks.start(change())
    timer: Callable[[], None] | None = world.tasks.timers.pop_due(0)
    assert timer is not None
    timer()
    world.go_on()
    assert request.is_done and world.lock.has_to_wait()
    world.write()
    assert world.image.features == {"group.version": 1} and not world.lock.has_to_wait()
