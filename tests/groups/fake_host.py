"""A broker for the coordinator without one: logs in memory, a clock that stands, a disk that can be
made to wait and to fail."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from kafkalite import _native
from kafkalite.errors import KafkaliteError, MessageTooLargeError, StorageError
from kafkalite.metadata.controller.topics import NewTopic
from kafkalite.metadata.image import OFFSETS_TOPIC, AlikeNames
from kafkalite.metadata.write_lock import WriteLock
from kafkalite.tasks import Future, Tasks, TimeLimit
from kafkalite.timers import Timers

T = TypeVar("T")

CONFIG = {
    "group.max.size": 100,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 6000,
    "group.max.session.timeout.ms": 1_800_000,
    "offsets.retention.minutes": 10_080,
    "offsets.retention.check.interval.ms": 600_000,
    "offset.metadata.max.bytes": 4096,
    "offsets.topic.compression.codec": 0,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.segment.bytes": 1 << 20,
    "message.max.bytes": 1_048_588,
    "producer.id.expiration.ms": 86_400_000,
    "offsets.commit.timeout.ms": 5_000,
}


def when_done(future: Future[T], tell: Callable[[T], object]) -> None:
    """`tell(value)` once it is there: at once, or within the call that sets it."""
    if future.is_done:
        tell(future.result())
    else:
        future.watch(lambda: tell(future.result()))


def collect(future: Future[T]) -> list[T]:
    """Where its value arrives."""
    arrived: list[T] = []
    when_done(future, arrived.append)
    return arrived


class Offsets(NamedTuple):
    log_start_offset: int
    log_end_offset: int
    high_watermark: int


class MemoryLog:
    """Batches with their offsets given, and how far they are on disk."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, bytes]] = []
        self.end = 0
        self.high_watermark = 0
        self.reads = 0
        self.is_offline = False
        self.is_settled = True
        self.directory = "one/a-partition"

    @property
    def offsets(self) -> Offsets:
        return Offsets(0, self.end, self.high_watermark)

    def append(self, batch: bytes) -> int:
        (parsed,) = _native.read_batches(batch)
        batch = self.end.to_bytes(8, "big") + batch[8:]
        self.batches.append((self.end, batch))
        self.end += len(parsed.records)
        return self.end

    def read(self, offset: int, max_bytes: int) -> bytes:
        self.reads += 1
        found = b""
        for base, batch in self.batches:
            if base >= offset and (not found or len(found) + len(batch) <= max_bytes):
                found += batch
        return found


class Partition(NamedTuple):
    """One that the host leads, and nobody else has."""

    index: int
    leader: int = 0
    leader_epoch: int = 0
    replicas: tuple[int, ...] = (0,)


class Topic(NamedTuple):
    partitions: tuple[Partition, ...]


class Image(NamedTuple):
    topics: dict[str, Topic]
    alike: AlikeNames = AlikeNames()
    configs: Mapping[tuple[int, str], Mapping[str, str]] = {}


class FakeLog:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, sentence: str, details: str = "") -> None:
        self.lines.append(f"{sentence}\n{details}" if details else sentence)

    error = info
    warning = info
    is_debug = False


class FakeHost:
    """Core, controller and context in one. `run` does what the control thread does."""

    node_id = 0

    def __init__(self, logs: dict[int, MemoryLog] | None = None, **config: Any) -> None:
        self.config: Mapping[str, Any] = {**CONFIG, **config}
        self.timers = Timers()
        self.log = FakeLog()
        self.memory_logs = logs or {}
        count = self.config["offsets.topic.num.partitions"]
        self.image = Image({})
        self.failures: list[Exception] = []
        """Of tasks that nobody waits for."""
        self.tasks = Tasks(self.timers, self.failures.append, lambda: 0)
        self.write_lock = WriteLock()
        if logs is not None:
            self._make_topic(NewTopic(OFFSETS_TOPIC, count, {}))
        self.core = self.controller = self.engine = self.cluster = self
        self.time_ms = 1000
        self.batch_bytes_max = 1 << 20
        self.append_error: KafkaliteError | None = None
        self.waiting: list[tuple[int, KafkaliteError | None, Future[int]]] = []
        self.working: list[tuple[Callable[[], None], Future[None]]] = []
        """Work of threads in the background, and who waits for it."""
        self.logs = SimpleNamespace(append=self.append)
        self.background = SimpleNamespace(run=self.in_background)
        self.appends = 0
        self.stops: list[Callable[[], None]] = []

    # --- what the coordinator uses ----------------------------------------------------------------

    def now_ms(self) -> int:
        return self.time_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.time_ms

    def on_stop(self, callback: Callable[[], None]) -> None:
        self.stops.append(callback)

    def time_limit(self, wait_ms: int) -> TimeLimit:
        return self.tasks.until(self.time_ms + wait_ms)

    async def create_topics(self, wanted: Sequence[NewTopic]) -> Any:
        (topic,) = wanted
        self._make_topic(topic)

    def _make_topic(self, wanted: NewTopic) -> None:
        name, count, configs, _ = wanted
        assert name == OFFSETS_TOPIC
        self.topic_configs = dict(configs)
        topic = Topic(tuple(Partition(index) for index in range(count)))
        self.image.topics[name] = topic
        for index in range(count):
            self.memory_logs.setdefault(index, MemoryLog())

    def append(
        self,
        topic: str,
        partition: int,
        records: bytes,
        _version: int | None = None,
        _decided_in: int | None = None,
    ) -> Future[int]:
        """As `LogCalls.append`: the log has one leader epoch."""
        assert topic == OFFSETS_TOPIC
        error = self.append_error
        if error is None and len(records) > self.batch_bytes_max:
            error = MessageTooLargeError("larger than max.message.bytes")
        offset = -1
        if error is None:
            self.appends += 1
            log = self.memory_logs[partition]
            offset = log.end
            log.append(records)
        appended = Future[int]()
        self.waiting.append((offset, error, appended))
        return appended

    def in_background(self, work: Callable[[], None]) -> Future[None]:
        """As `Background.run`."""
        done = Future[None]()
        self.working.append((work, done))
        return done

    # --- the test's side --------------------------------------------------------------------------

    def turn(self) -> None:
        """The timers that are due: the end of a turn of the control thread."""
        self.go_on()
        while (callback := self.timers.pop_due(self.time_ms)) is not None:
            callback()
            self.go_on()

    def go_on(self) -> None:
        """Has the tasks go on that are ready."""
        while self.tasks.ready:
            self.tasks.ready.popleft()()

    def flush(self) -> None:
        """Everything that was appended is on disk, and what threads were to do is done."""
        for each in self.memory_logs.values():
            each.high_watermark = each.end
        self.end_appends()
        working, self.working = self.working, []
        for work, done in working:
            try:
                work()
            except KafkaliteError as failure:
                done.fail(failure)
            else:
                done.set(None)
        self.go_on()

    def end_appends(self, failure: KafkaliteError | None = None) -> None:
        """Tells of all appends: what failed, or that they are on disk."""
        waiting, self.waiting = self.waiting, []
        for offset, error, appended in waiting:
            if failure or error:
                appended.fail(failure or error)
            else:
                appended.set(offset)
        self.go_on()

    def run(self) -> None:
        """Turns and flushes until nothing is left to do at this time."""
        for _ in range(50):
            self.turn()
            self.flush()

    def pass_time(self, by_ms: int) -> None:
        end_ms = self.time_ms + by_ms
        while True:
            next_ms = self.timers.next_ms()
            if next_ms is not None and next_ms <= end_ms:
                self.time_ms = max(self.time_ms, next_ms)
            elif not self.working:
                break
            self.run()
        self.time_ms = end_ms

    def fail_disk(self) -> None:
        """The log directory goes offline: appends raise, and whoever waits hears of it."""
        for each in self.memory_logs.values():
            each.is_offline = True
        self.append_error = StorageError("fdatasync failed")
        self.end_appends(self.append_error)


class Core:
    """The broker core, its requests and its logs in one."""

    def __init__(self, host: FakeHost) -> None:
        self._host = host
        self.requests = self.logs = self
        self.held_bytes = 0
        """Of memory for requests, what waits for the disk takes."""
        self.may_hold_bytes = 1 << 30
        """Beyond so many bytes a disk that does not answer counts as one that holds up."""
        self.gathers_answers = False

    def figures(self) -> Any:
        return SimpleNamespace(counts=lambda: {"held_bytes_max": self.may_hold_bytes})

    def hold(self, count: int) -> None:
        self.held_bytes += count
        assert self.held_bytes >= 0

    def gather_answers(self) -> None:
        self.gathers_answers = True

    def send_answers(self) -> None:
        self.gathers_answers = False

    def is_held_up(self, _topic: str, _partition: int) -> bool:
        return self.held_bytes >= self.may_hold_bytes

    def find(self, _topic: str, partition: int) -> MemoryLog | None:
        return self._host.memory_logs.get(partition)


def make_host(logs: dict[int, MemoryLog] | None = None, **config: Any) -> FakeHost:
    host = FakeHost(logs, **config)
    host.core = Core(host)  # type: ignore[assignment]
    return host
