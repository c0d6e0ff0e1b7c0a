"""A broker without sockets, disks, threads or clock: kafkalite's coordinators and handlers as they
are, on model logs, driven by the events of a simulated world.

    request ──► handler (`kafkalite.api`) ──► coordinator, shard, machine (all of the product)
                    ▲                               │ append          ▲ on disk
    Produce ────────┘ asks for its transaction      ▼                 │
       └── model of `rust/src/api/k00_produce` ──► ModelLog ── flush ─┘

Whatever the product asks of its host is here (`kafkalite.context.Context`), and each of those
answers is an event of its own: between any two of them others come, or the process dies.
"""

import gc
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, Protocol

from groups.fake_host import when_done
from kafkalite.api import (
    k22_init_producer_id,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k27_write_txn_markers,
    k28_txn_offset_commit,
)
from kafkalite.errors import KafkaliteError, MessageTooLargeError, StorageError
from kafkalite.groups.coordinator import GroupCoordinator
from kafkalite.groups.offsets import OffsetsAnswer
from kafkalite.metadata.cluster import Cluster
from kafkalite.metadata.image import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    AlikeNames,
    PartitionImage,
    TopicImage,
)
from kafkalite.metadata.write_lock import WriteLock
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Future, Tasks, TimeLimit
from kafkalite.timers import Timers
from kafkalite.transactions.coordinator import TransactionCoordinator
from sim.model_log import NO_TRANSACTION, Batch, ModelLog, RefusedError, parsed_batch

TOPIC: Final = "t"
PRODUCE_ADDS_SINCE: Final = 12
"""The version of Produce that adds its partitions to the transaction."""
IDS_PER_BLOCK: Final = 3

CONFIG: Final = {
    "group.max.size": 100,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 6_000,
    "group.max.session.timeout.ms": 1_800_000,
    "offsets.retention.minutes": 10_080,
    "offsets.retention.check.interval.ms": 400,
    "offset.metadata.max.bytes": 4_096,
    "offsets.commit.timeout.ms": 5_000,
    "producer.id.expiration.ms": 86_400_000,
    "offsets.topic.compression.codec": 0,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.segment.bytes": 1 << 20,
    "transaction.max.timeout.ms": 900_000,
    "request.timeout.ms": 30_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "transactional.id.expiration.ms": 604_800_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 300,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.segment.bytes": 1 << 20,
    "add.partitions.to.txn.retry.backoff.max.ms": 100,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "add.partitions.to.txn.retry.backoff.ms": 20,
}

HANDLERS: Final[dict[str, Any]] = {
    each.NAME: each.handle
    for each in (
        k22_init_producer_id,
        k24_add_partitions_to_txn,
        k25_add_offsets_to_txn,
        k26_end_txn,
        k27_write_txn_markers,
        k28_txn_offset_commit,
    )
}


class World(Protocol):
    """The broker's surroundings (`sim.world`)."""

    now_ms: int
    wall_ms: int

    def after(self, event: str, step: Callable[[], None], *, least_ms: int = 0) -> int:
        """An event of this process, some milliseconds later, unless it dies before. Gives when."""

    def parked_ms(self) -> int: ...

    def transaction_of(self, producer_id: int) -> int: ...

    def fails(self, topic: str) -> bool: ...

    def on_failed_append(self, topic: str, batch: Batch) -> None: ...

    def note(self, subject: str, sentence: str) -> None: ...

    def fail(self, invariant: str, sentence: str) -> None: ...


class Disk:
    """The logs and levels that a process leaves to the next one."""

    def __init__(self, partitions: int, level: int) -> None:
        counts = {
            TOPIC: partitions,
            TRANSACTIONS_TOPIC: CONFIG["transaction.state.log.num.partitions"],
            OFFSETS_TOPIC: CONFIG["offsets.topic.num.partitions"],
        }
        self.logs = {
            (topic, index): ModelLog(topic, index)
            for topic, count in counts.items()
            for index in range(count)
        }
        self.counts = counts
        self.level = level
        """The cluster's `transaction.version`."""
        self.leader_epoch = 0
        self.next_id = 1_000

    def topics(self) -> dict[str, TopicImage]:
        """The topics of the image, in the leader epoch of the present process."""

        def partition(index: int) -> PartitionImage:
            return PartitionImage(index, 1, self.leader_epoch, 0, (1,), (1,))

        return {
            topic: TopicImage(
                topic, topic.encode().ljust(16)[:16], tuple(map(partition, range(count)))
            )
            for topic, count in self.counts.items()
        }


class Request(NamedTuple):
    """A request as handlers see it; `codes_to` is set if the broker asks itself."""

    api_version: int
    is_internal: bool = False
    codes_to: Callable[[Sequence[int]], None] | None = None


class Produce(NamedTuple):
    """A Produce request with a batch for each partition of a transaction."""

    transactional_id: str
    version: int
    batches: dict[int, Batch]
    """By partition of `TOPIC`."""


class Broker:
    """One process, from its start to its death: the `Context` of the product, and its core."""

    def __init__(self, world: World, disk: Disk) -> None:
        disk.leader_epoch += 1
        self.world = world
        self.disk = disk
        self.config = CONFIG
        self.peers = None
        self.timers = Timers()
        self.tasks = Tasks(self.timers, self._on_failed_task, lambda: 0)
        self.write_lock = WriteLock()
        self.image = SimpleNamespace(topics=disk.topics(), features={}, alike=AlikeNames())
        self.cluster = Cluster(1, self)  # type: ignore[arg-type]
        self.set_level(disk.level)
        self.core = self.controller = self.replicas = self.logs = self.background = self
        self.engine = self.log = self.requests = self
        self.held_bytes = 0
        self.is_dead = False
        self._turn_ms: int | None = None
        self._block: list[int] = []
        self._busy_until: dict[tuple[str, int], int] = {}
        self._flushing: set[tuple[str, int]] = set()
        self._waiting: dict[tuple[str, int], list[tuple[int, Callable[[], None]]]] = {}
        """By partition: an offset, and who is told once everything below it is on disk."""
        self.groups = GroupCoordinator(self)  # type: ignore[arg-type]
        self.transactions = TransactionCoordinator(self)  # type: ignore[arg-type]

    def start(self) -> None:
        """Begins to load what the last process left."""
        self.groups.runtime.start()
        self.transactions.runtime.start()
        self._go_on()

    def set_level(self, level: int) -> None:
        """UpdateFeatures: the cluster's `transaction.version`."""
        self.disk.level = level
        self.image.features = {"transaction.version": level} if level else {}

    # --- the control thread -----------------------------------------------------------------------

    def _go_on(self) -> None:
        """Has the tasks go on that are ready; timers are an event of their own."""
        ready = self.tasks.ready
        while ready or self.tasks.yielded:
            (ready.popleft() if ready else partial(self.tasks.yielded.popleft().set, None))()
        next_ms = self.timers.next_ms()
        if next_ms is not None and (self._turn_ms is None or next_ms < self._turn_ms):
            self._turn_ms = next_ms
            self.world.after("turn", self._turn, least_ms=max(0, next_ms - self.world.now_ms))

    def _turn(self) -> None:
        self._turn_ms = None
        while (callback := self.timers.pop_due(self.world.now_ms)) is not None:
            callback()
        self._go_on()

    def handle(self, name: str, version: int, message: Any, reply: Callable[[Any], None]) -> None:
        """A request has come; `reply` is called with its answer, maybe later."""
        if name == "Produce":
            _Production(self, message, reply).begin()
        else:
            self._handle(name, Request(version), message, reply)
        self._go_on()

    def _handle(
        self, name: str, request: Request, message: Any, reply: Callable[[Any], None]
    ) -> None:
        answer: Any = HANDLERS[name](self, request, message)
        if not isinstance(answer, Coroutine):
            reply(answer)
            return
        when_done(self.tasks.start(answer), reply)

    def ask_coordinator(self, message: Any, told: Callable[[Sequence[int]], None]) -> None:
        """AddPartitionsToTxn, as Produce asks it within the process."""
        request = Request(5, is_internal=True, codes_to=told)
        self._handle(k24_add_partitions_to_txn.NAME, request, message, lambda _: None)

    def fetch_offsets(self, group_id: str, reply: Callable[[OffsetsAnswer], None]) -> None:
        """OffsetFetch with `require_stable`."""
        when_done(self.groups.fetch_offsets(group_id, True), reply)
        self._go_on()

    def _on_failed_task(self, error: Exception) -> None:
        self.world.fail("no handler fails", repr(error))

    # --- logs -------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        partition: int,
        records: bytes,
        version: int | None = None,
        decided_in: int | None = None,
    ) -> Future[int]:
        """As `LogCalls.append`: a thread of the log's directory appends and flushes."""
        assert decided_in is None, "the broker has the only replica"
        appended = Future[int]()
        place = (topic, partition)
        log = self.disk.logs[place]
        batch = parsed_batch(records)

        def append() -> None:
            try:
                if self.world.fails(topic):
                    self.world.on_failed_append(topic, batch)
                    raise MessageTooLargeError("there is no room")
                written = log.append_of_coordinator(batch, version)
            except KafkaliteError as error:
                refused = partial(self._fail, appended, error)
                self.world.after(f"append to {log.name} refused", refused)
                return
            self.when_flushed(place, written.last_offset + 1, partial(self._set, appended, written))

        # One directory takes the appends to a partition in their order.
        wait_ms = max(0, self._busy_until.get(place, 0) - self.world.now_ms)
        due_ms = self.world.after(f"append to {log.name}", append, least_ms=wait_ms)
        self._busy_until[place] = due_ms
        return appended

    def _set(self, appended: Future[int], written: Batch) -> None:
        appended.set(written.base_offset)
        self._go_on()

    def _fail(self, appended: Future[int], error: KafkaliteError) -> None:
        appended.fail(error)
        self._go_on()

    def when_flushed(
        self, place: tuple[str, int], end_offset: int, told: Callable[[], None]
    ) -> None:
        """Calls `told` in an event of its own, once everything below the offset is on disk."""
        log = self.disk.logs[place]
        if end_offset <= log.flushed_offset:
            self.world.after(f"{log.name} answers", told)
            return
        self._waiting.setdefault(place, []).append((end_offset, told))
        self._flush(place)

    def _flush(self, place: tuple[str, int]) -> None:
        log = self.disk.logs[place]
        if place in self._flushing or log.end_offset == log.flushed_offset:
            return
        self._flushing.add(place)
        end_offset = log.end_offset
        self.world.after(f"flush of {log.name}", partial(self._on_flushed, place, end_offset))

    def _on_flushed(self, place: tuple[str, int], end_offset: int) -> None:
        self._flushing.discard(place)
        log = self.disk.logs[place]
        log.flush(end_offset)
        self.world.note(log.name, f"{log.name} is on disk up to {end_offset}")
        waiting = self._waiting.pop(place, [])
        left = [each for each in waiting if each[0] > log.flushed_offset]
        if left:
            self._waiting[place] = left
        for offset, told in waiting:
            if offset <= log.flushed_offset:
                told()
        self._flush(place)

    def run(self, work: Callable[[], Any]) -> Future[Any]:
        """As `Background.run`."""
        done = Future[Any]()

        def work_in_thread() -> None:
            done.set(work())
            self._go_on()

        self.world.after("a thread ends", work_in_thread)
        return done

    def find(self, topic: str, partition: int) -> ModelLog | None:
        """As `_native.Logs.find`."""
        return self.disk.logs.get((topic, partition))

    def is_held_up(self, _topic: str, _partition: int) -> bool:
        """No directory hangs."""
        return False

    def refusal(self, topic: str, partition: int) -> int:
        """As `Replicas.refusal`."""
        is_there = (topic, partition) in self.disk.logs
        return codes.NONE if is_there else codes.UNKNOWN_TOPIC_OR_PARTITION

    # --- producer ids -----------------------------------------------------------------------------

    def next_producer_id(self) -> int | None:
        """As `Controller.next_producer_id`: an id of the block that is on disk."""
        return self._block.pop(0) if self._block else None

    async def allocate_producer_ids(self) -> None:
        """As `Controller.allocate_producer_ids`."""
        written = Future[None]()
        self.world.after("producer ids are on disk", partial(self._allocated, written))
        await written

    def _allocated(self, written: Future[None]) -> None:
        first = self.disk.next_id
        self.disk.next_id = first + IDS_PER_BLOCK
        self._block += range(first, self.disk.next_id)
        written.set(None)
        self._go_on()

    # --- the rest of the host ---------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.world.now_ms

    def wall_ms(self) -> int:
        return self.world.wall_ms

    def time_limit(self, wait_ms: int) -> TimeLimit:
        return self.tasks.until(self.now_ms() + wait_ms)

    def on_stop(self, _callback: Callable[[], None]) -> None:
        """A simulated process is killed."""

    async def create_topics(self, _wanted: Sequence[Any]) -> dict[str, bytes]:
        raise StorageError("all topics are there")

    def may(self, *_asked: Any) -> bool:
        return True

    async def permitted(
        self, _request: Request, _operation: int, _kind: int, names: Iterable[str]
    ) -> set[str]:
        return set(names)

    def hold(self, count: int) -> None:
        self.held_bytes += count
        if self.held_bytes < 0:
            self.world.fail("memory is let go once", f"{self.held_bytes} bytes are held")

    def gather_answers(self) -> None:
        """Answers leave one by one."""

    def send_answers(self) -> None:
        """As above."""

    def respond_verified(self, request: Request, found: Sequence[int]) -> None:
        """The coordinator's answer to a Produce that waits."""
        assert request.codes_to is not None
        request.codes_to(found)

    def info(self, sentence: str, *_details: str) -> None:
        self.world.note("", f"log: {sentence}")

    error = warning = info


class _Production:
    """A Produce request under way, as `rust/src/api/k00_produce/transaction.rs` has it: the
    coordinator is asked, then the batches are appended, each with its guard."""

    def __init__(self, broker: Broker, produce: Produce, reply: Callable[[dict[int, int]], None]):
        self._broker = broker
        self._produce = produce
        self._reply = reply
        self._results: dict[int, int] = {}
        self._guards: dict[int, int] = {}
        self._agreed_for = NO_TRANSACTION
        """The transaction for which the coordinator has agreed."""

    def begin(self) -> None:
        adds = self._produce.version >= PRODUCE_ADDS_SINCE
        for partition, batch in self._produce.batches.items():
            guard = self._log(partition).verifications.begin(batch, bumps_epochs=adds)
            if guard is not None:
                self._guards[partition] = guard
        if not self._guards:
            self._append()
            return
        kind = messages.AddPartitionsToTxnRequest
        batch = next(iter(self._produce.batches.values()))
        transaction = kind.AddPartitionsToTxnTransaction(
            transactional_id=self._produce.transactional_id,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            verify_only=not adds,
            topics=[kind.AddPartitionsToTxnTopic(name=TOPIC, partitions=list(self._guards))],
        )
        self._broker.ask_coordinator(kind(transactions=[transaction]), self._on_answer)

    def _on_answer(self, found: Sequence[int]) -> None:
        """The network thread hears of it in an event of its own."""
        producer_id = next(iter(self._produce.batches.values())).producer_id
        self._agreed_for = self._broker.world.transaction_of(producer_id)
        world = self._broker.world
        step = partial(self._on_verified, list(found))
        world.after("verified", step, least_ms=world.parked_ms())

    def _on_verified(self, found: list[int]) -> None:
        forgotten = (codes.INVALID_PRODUCER_ID_MAPPING, codes.PRODUCER_FENCED)
        for (partition, guard), code in zip(self._guards.items(), found, strict=True):
            if code in forgotten:
                producer_id = self._produce.batches[partition].producer_id
                self._log(partition).verifications.forget(producer_id, guard)
            if code:
                self._results[partition] = client_code(code, self._produce.version)
        self._append()

    def _append(self) -> None:
        left = []
        for partition, batch in self._produce.batches.items():
            if partition in self._results:
                continue
            try:
                guard = self._guards.get(partition, 0)
                batch = batch._replace(agreed_for=self._agreed_for)
                written = self._log(partition).append_of_client(batch, guard)
            except RefusedError as error:
                self._results[partition] = error.kafka_code
                continue
            left.append((partition, written.last_offset + 1))
        for partition, end_offset in left:
            done = partial(self._on_disk, partition)
            self._broker.when_flushed((TOPIC, partition), end_offset, done)
        self._answer()

    def _on_disk(self, partition: int) -> None:
        self._results[partition] = codes.NONE
        self._answer()

    def _answer(self) -> None:
        if len(self._results) == len(self._produce.batches):
            self._reply(self._results)

    def _log(self, partition: int) -> ModelLog:
        return self._broker.disk.logs[TOPIC, partition]


def client_code(answer: int, version: int) -> int:
    """The code that a client of Produce is told of a coordinator's refusal."""
    of_coordinator = (
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.COORDINATOR_NOT_AVAILABLE,
        codes.NOT_COORDINATOR,
    )
    if answer == codes.PRODUCER_FENCED:
        return codes.INVALID_PRODUCER_EPOCH
    if answer == codes.TRANSACTION_ABORTABLE and version < 11:
        return codes.INVALID_TXN_STATE
    is_early = answer == codes.CONCURRENT_TRANSACTIONS and version < PRODUCE_ADDS_SINCE
    return codes.NOT_ENOUGH_REPLICAS if is_early or answer in of_coordinator else answer


def thaw() -> None:
    """Takes back what loading has frozen for the garbage collector (`coordinator/loader.py`)."""
    gc.unfreeze()
