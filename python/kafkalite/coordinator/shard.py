"""One partition of a coordinator's topic: its machine is loaded from it and writes to it.

    request ──► machine ──► records ──► one batch at the end of the round ──► append, flush
                                                                                  │
    answer  ◄── `then`, in the order of the log ◄── on disk, or taken back ◄──────┘

A request is answered once what it has written is on disk; several writes of a round are one batch,
and all that come while a batch is under way are the next. The append is the log directory's own
affair (`rust/src/net/control/log_calls.rs`): while that does not answer, the machines of its
partitions wait, and nobody else, and what they hold counts as memory of requests. When that is half
used, further ones are refused (`is_held_up`).

So they are while a batch is in the log and has not been committed for longer than a write may take,
because the disk is slow or too few replicas have it. Who waits for it is refused then, what it has
changed stays until it is known what becomes of it, and what is not in the log yet is taken back
(Kafka: `CoordinatorRuntime.OperationTimeout`).

A write that fails is refused, what it had changed is taken back, and the next one is tried: there
may be room again. A partition whose log directory has failed answers NOT_COORDINATOR from then on:
whoever waits is told.

Loading (`loader.py`) goes in small pieces, with the reads beside the control thread; requests get
COORDINATOR_LOAD_IN_PROGRESS meanwhile.
"""

import os
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from kafkalite import _native
from kafkalite.calls import Background, LogCalls
from kafkalite.coordinator.journal import Steps, dependents, undo
from kafkalite.coordinator.loader import STEP_COUNT, Loader
from kafkalite.coordinator.machine import (
    Append,
    Effect,
    Hold,
    Machine,
    Moment,
    Producer,
    Reply,
    Then,
)
from kafkalite.coordinator.record_serde import Record, RecordSerde
from kafkalite.errors import KafkaliteError
from kafkalite.protocol import codes
from kafkalite.tasks import Future
from kafkalite.timers import Timer, Timers

LOADING: Final = "loading"
ACTIVE: Final = "active"
CLOSED: Final = "closed"
"""Led elsewhere, or unloaded; or its log is not here."""
FAILED: Final = "failed"
"""The log could not be read."""

LOAD_RETRY_MS: Final = 1_000
"""Until a log is read where no thread could be started for it."""
BATCH_BYTES_MAX: Final = 512 * 1024
"""Writes beyond so many bytes are left to the next batch."""
BASE_SEQUENCE: Final = 0
"""The base sequence of every batch, which has no producer, as in Kafka (`CoordinatorRuntime`)."""
HELD_FREE_BYTES: Final = 512 * 1024
"""Memory of a machine that does not count."""
WRITE_BYTES: Final = 512
RECORD_BYTES: Final = 640
"""The memory of a write that waits, and of each of its records beside its key and value: they are
there as they were asked for, as they will be seen, and as the answer."""

M = TypeVar("M", bound=Machine)


class Lines(Protocol):
    """The broker's log (`kafkalite.service.stderr_log.Log`)."""

    def info(self, sentence: str) -> None: ...
    def error(self, sentence: str) -> None: ...


class ShardHost(Protocol):
    """The broker as a shard needs it (`kafkalite.context.Context`)."""

    @property
    def core(self) -> _native.BrokerCore: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def log(self) -> Lines: ...
    @property
    def logs(self) -> LogCalls: ...
    @property
    def background(self) -> Background: ...
    def now_ms(self) -> int: ...
    def wall_ms(self) -> int: ...


class _Write(NamedTuple):
    """Records that stand or fall together; none at all waits for those before it."""

    records: Sequence[Record]
    size_bytes: int
    memory_bytes: int
    """The memory that it takes while it waits."""
    then: Then | None
    steps: Steps
    """Changes to be taken back if it fails."""
    is_alone: bool = False
    """Has a batch of its own."""
    producer: Producer | None = None
    """The transaction's, whose records have a batch of their own."""
    overdue: Then | None = None


class Shard(Generic[M]):
    """One partition: its machine, its log, and who waits for a write of it. Used by the control
    thread only. Kafka: `CoordinatorRuntime.CoordinatorContext`."""

    def __init__(
        self,
        host: ShardHost,
        topic: str,
        partition: int,
        machine: M,
        serde: RecordSerde,
        codec: str,
        write_timeout_ms: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.machine = machine
        self.state: str = LOADING
        self.leader_epoch = -1
        """In which this broker leads the partition."""
        self.is_alone = False
        """No other broker has a replica: whatever the epoch, nobody else has written there."""
        self._host = host
        self._serde = serde
        self._codec = codec
        self._write_timeout_ms = write_timeout_ms
        self._name = f"{topic}-{partition}"
        self._timer: tuple[int, Timer] | None = None
        self._gathered: deque[_Write] = deque()
        """Writes for the batches after the one that is under way."""
        self._under_way: list[_Write] = []
        self._due_ms = 0
        """When the batch under way is overdue."""
        self._due_timer: Timer | None = None
        """Fires when some batch was due, be it an earlier one: one for each would cost more."""
        self._is_overdue = False
        self._is_end_of_turn_due = False
        self._is_resigned = False
        self._last_failure = ""
        """Why the last write failed, so that the log says it once and not for each."""
        self._lacks_records = False
        """Some records of its log could not be taken."""
        self.held_bytes = 0
        """The memory that the machine takes by what clients choose (`Hold`)."""
        self._deleted_topics: list[str] = []
        """While it loads: topics of which the machine is to hear afterwards."""

    def moment(self) -> Moment:
        """The present time."""
        return Moment(self._host.now_ms(), self._host.wall_ms())

    def refusal(self) -> int:
        """Why nobody can be served here at present; NONE if they can."""
        if self.state == LOADING:
            return codes.COORDINATOR_LOAD_IN_PROGRESS
        return codes.NOT_COORDINATOR if self.is_closed else codes.NONE

    @property
    def is_closed(self) -> bool:
        """Nobody is served here, whatever the reason, until the partition is loaded anew."""
        return self.state in (CLOSED, FAILED)

    @property
    def knows_all(self) -> bool:
        """Every record of its log was taken: what the machine does not know there is not."""
        return self.state == ACTIVE and not self._lacks_records

    @property
    def is_held_up(self) -> bool:
        """Writes wait for a log directory that does not answer, and are so many that no further
        ones may wait with them; or one waits for too long."""
        if self._is_overdue or not self.is_writing:
            return self._is_overdue
        held_up: bool = self._host.core.logs.is_held_up(self.topic, self.partition)
        return held_up

    # --- loading ----------------------------------------------------------------------------------

    def load(self) -> "Loading[M] | None":
        """Begins to load; None if it has ended already: there is nothing to read, or no log."""
        log = self._host.core.logs.find(self.topic, self.partition)
        if log is None:
            self.state = CLOSED
            return None
        loading = Loading(self, self._host, log, Loader(log, self._serde, self.machine))
        return None if loading.end() else loading

    def fail_loading(self, error: KafkaliteError) -> None:
        """The log cannot be read, and what was read of it is forgotten."""
        self._host.log.error(f"{self._name} cannot be loaded: {error}")
        self.state = FAILED
        self.perform(self.machine.unload())
        if self.held_bytes:
            self._hold(-self.held_bytes)

    def finish_loading(self, loader: Loader) -> None:
        """The machine has everything: from now on requests are served."""
        for problem in loader.problems:
            self._host.log.error(f"{self._name}: {problem}")
        self._lacks_records = loader.problem_count > 0
        if loader.problem_count > len(loader.problems):
            self._host.log.error(f"{self._name}: {loader.problem_count} records are not taken")
        for kind, count in loader.unknown.items():
            what = f"{count} record(s) of kind {kind}, which is not known"
            self._host.log.info(f"{self._name}: {what}, are left as they are")
        if loader.record_count:
            self._host.log.info(f"{self._name}: loaded {loader.record_count} record(s)")
        self.state = ACTIVE
        deleted, self._deleted_topics = self._deleted_topics, []
        if deleted:
            self.on_topics(deleted)
        self.arm()

    # --- events -----------------------------------------------------------------------------------

    def perform(self, effects: Sequence[Effect]) -> None:
        """Carries out what the machine asks for, in its order."""
        self._carry_out(effects)
        self.arm()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                effect.send()
            elif isinstance(effect, Append):
                self._gather(effect)
            elif isinstance(effect, Hold):
                self._hold(effect.size_bytes)
            else:
                self._host.log.info(effect.sentence)

    def _hold(self, size_bytes: int) -> None:
        before = self.counted_bytes
        self.held_bytes += size_bytes
        if self.counted_bytes != before:
            self._host.core.requests.hold(self.counted_bytes - before)

    @property
    def counted_bytes(self) -> int:
        """The memory of the machine that counts: a configuration of little memory for requests must
        not leave it too little for groups of the usual size."""
        return max(self.held_bytes - HELD_FREE_BYTES, 0)

    def arm(self) -> None:
        """Sees to it that the machine hears of time in time; a timer that is early is left alone:
        a heartbeat mostly moves a deadline away."""
        wake_ms = self.machine.next_wake_ms()
        if wake_ms is None or self.state != ACTIVE:
            return
        if self._timer is not None:
            if self._timer[0] <= wake_ms:
                return
            self._timer[1].cancel()
        self._timer = (wake_ms, self._host.timers.call_at(wake_ms, self._on_time))

    def _on_time(self) -> None:
        self._timer = None
        self.perform(self.machine.on_time(self.moment()))

    def on_topics(self, deleted: Sequence[str]) -> None:
        """Topics were deleted; while it loads the machine hears of it afterwards."""
        if self.state == LOADING:
            self._deleted_topics += deleted
        elif self.state == ACTIVE:
            self.perform(self.machine.on_topics(deleted, self.moment()))

    def unload(self) -> None:
        """Answers whoever waits here, and serves nobody any longer."""
        was_active = self.state == ACTIVE
        self.state = CLOSED
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None
        if self._due_timer is not None:
            self._due_timer.cancel()
            self._due_timer = None
        if was_active:
            self.perform(self.machine.unload())
        if self.held_bytes:
            self._hold(-self.held_bytes)

    def resign(self) -> None:
        """Another broker may serve the partition, or this one in another leader epoch: as `unload`.
        What is not being written yet never will be, whoever leads by then: it was decided by what
        the partition held before others have written there."""
        self._is_resigned = True
        self.unload()
        self._refuse_gathered(codes.NOT_COORDINATOR)

    # --- writing ----------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        """True as long as something is not on disk yet."""
        return bool(self._gathered or self._under_way)

    def _gather(self, append: Append) -> None:
        """Has records appended at the end of this round; `then` is told once they are on disk, in
        the order of the calls, or why they are not. Never from within this call."""
        size_bytes = 0
        for key, value in append.records:
            size_bytes += len(key) + len(value or b"") + 16
        memory_bytes = WRITE_BYTES + RECORD_BYTES * len(append.records) + size_bytes
        self._host.core.requests.hold(memory_bytes)
        self._gathered.append(
            _Write(
                records=append.records,
                size_bytes=size_bytes,
                memory_bytes=memory_bytes,
                then=append.then,
                steps=append.steps,
                is_alone=append.producer is not None,
                producer=append.producer,
                overdue=append.overdue,
            )
        )
        self._append_at_end_of_turn()

    def _append_at_end_of_turn(self) -> None:
        if not self._is_end_of_turn_due:
            self._is_end_of_turn_due = True
            self._host.timers.call_at(self._host.now_ms(), self._end_turn)

    def _refuse_gathered(self, error_code: int) -> None:
        """Takes back what is not being written."""
        refused = list(self._gathered)
        self._gathered.clear()
        for each in reversed(refused):
            undo(each.steps)
        if refused:
            self._end(refused, error_code, -1)

    def _end_turn(self) -> None:
        self._is_end_of_turn_due = False
        if self._is_resigned:
            self._refuse_gathered(codes.NOT_COORDINATOR)
        elif self._is_overdue:
            self._refuse_gathered(codes.COORDINATOR_NOT_AVAILABLE)
        while self._gathered and not self._under_way:
            self._append(self._take_next())

    def _take_next(self) -> list[_Write]:
        """The writes of the next batch."""
        gathered = self._gathered
        writes = [gathered.popleft()]
        size_bytes = writes[0].size_bytes
        while gathered and not writes[0].is_alone and not gathered[0].is_alone:
            size_bytes += gathered[0].size_bytes
            if size_bytes > BATCH_BYTES_MAX:
                break
            writes.append(gathered.popleft())
        return writes

    def _append(self, writes: list[_Write]) -> None:
        """Has one batch of them appended. Nothing is under way before."""
        if self.is_closed:
            self._end(writes, codes.NOT_COORDINATOR, -1)
            return
        if not any(each.records or each.producer for each in writes):
            # All that was before them is on disk.
            self._end(writes, codes.NONE, -1)
            return
        self._under_way = writes
        producer = writes[0].producer
        if producer is None or producer.marker is None:
            batch = self._batch(writes, producer)
            version = None
        else:
            marker = producer.marker
            batch = _native.end_transaction_marker(
                self._host.wall_ms(),
                producer.producer_id,
                producer.producer_epoch,
                commit=marker.commit,
                coordinator_epoch=marker.coordinator_epoch,
            )
            version = marker.transaction_version
        # The engine leads in another one as soon as that is published; the shard hears of it later.
        decided_in = None if self.is_alone else self.leader_epoch
        appended = self._host.logs.append(self.topic, self.partition, batch, version, decided_in)
        if appended.is_done:
            self._on_appended(appended)
        else:
            appended.watch(partial(self._on_appended, appended))
            self._due_ms = self._host.now_ms() + self._write_timeout_ms
            if self._due_timer is None:
                self._due_timer = self._host.timers.call_at(self._due_ms, self._on_due)

    def _on_due(self) -> None:
        """A batch that has been under way was due by now: the present one may be, too."""
        self._due_timer = None
        if not self._under_way or self._is_overdue:
            return
        if self._host.now_ms() < self._due_ms:
            self._due_timer = self._host.timers.call_at(self._due_ms, self._on_due)
            return
        self._is_overdue = True
        code = codes.COORDINATOR_NOT_AVAILABLE
        self._host.log.error(
            f"{self._name}: a write is not committed after {self._write_timeout_ms} ms; until it "
            "is, writes are refused"
        )
        moment = self.moment()
        self._host.core.requests.gather_answers()
        for write in self._under_way:
            if write.overdue is not None:
                self._carry_out(write.overdue(code, -1, moment))
        self._host.core.requests.send_answers()
        self._refuse_gathered(code)
        self.arm()

    def _batch(self, writes: Sequence[_Write], producer: Producer | None) -> bytes:
        wall_ms = self._host.wall_ms()
        if producer is None:
            builder = _native.BatchBuilder(self._codec, base_sequence=BASE_SEQUENCE)
        else:
            builder = _native.BatchBuilder(
                self._codec,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=BASE_SEQUENCE,
                transactional=True,
            )
        for write in writes:
            builder.extend(wall_ms, write.records)
        return builder.finish()

    def _on_appended(self, appended: Future[int]) -> None:
        """The batch under way is on disk, or will never be."""
        writes, self._under_way = self._under_way, []
        if self._is_overdue:
            self._is_overdue = False
            self._host.log.info(f"{self._name}: the write that was overdue has ended")
        if self._gathered:
            self._append_at_end_of_turn()
        try:
            offset = appended.result()
        except KafkaliteError as error:
            self._on_append_failed(writes, error)
            return
        self._last_failure = ""
        self._end(writes, codes.NONE, offset)

    def _end(self, writes: Sequence[_Write], error_code: int, offset: int) -> None:
        """Tells who wrote them what became of that; `offset` of the first record, or -1."""
        core = self._host.core
        core.requests.hold(-sum(each.memory_bytes for each in writes))
        core.requests.gather_answers()
        moment = self.moment()
        for write in writes:
            if write.then is not None:
                self._carry_out(write.then(error_code, offset, moment))
            offset += len(write.records) if offset >= 0 else 0
        self.arm()
        core.requests.send_answers()

    def _on_append_failed(self, writes: list[_Write], error: KafkaliteError) -> None:
        code = _client_code(error.kafka_code)
        if error.kafka_code == codes.NOT_LEADER_OR_FOLLOWER and not self.is_alone:
            # `Runtime.on_leaders` comes, and has it loaded anew if this broker leads.
            self.resign()
            self._end(writes, code, -1)
            return
        if self._is_offline():
            self._host.log.error(f"{self._name} is lost: {error}")
            self.unload()
            self._end(writes, code, -1)
            return
        if len(writes) > 1:
            # One batch each, so that one that is too large does not take others with it.
            self._gathered.extendleft(each._replace(is_alone=True) for each in reversed(writes))
            self._append_at_end_of_turn()
            return
        if str(error) != self._last_failure:
            self._last_failure = str(error)
            self._host.log.error(f"{self._name} takes no record: {error}")
        self._end([writes[0], *self._take_back(writes[0])], code, -1)

    def _take_back(self, failed: _Write) -> list[_Write]:
        """Takes back what a write has changed and what others, not written yet, have built upon
        that: these fail with it."""
        builds_upon = dependents(failed.steps, (each.steps for each in self._gathered))
        falling = [each for each, falls in zip(self._gathered, builds_upon, strict=True) if falls]
        for each in reversed(falling):
            undo(each.steps)
        undo(failed.steps)
        if falling:
            self._gathered = deque(
                each for each, falls in zip(self._gathered, builds_upon, strict=True) if not falls
            )
        return falling

    def _is_offline(self) -> bool:
        """The log's directory has failed, and takes nothing until the next start."""
        log = self._host.core.logs.find(self.topic, self.partition)
        return log is not None and log.is_offline


class Loading(Generic[M]):
    """The loading of one shard, a piece at a time: `go_on` until the shard is loaded."""

    def __init__(self, shard: Shard[M], host: ShardHost, log: _native.Log, loader: Loader) -> None:
        self.shard = shard
        self.directory = os.path.dirname(log.directory)  # noqa: PTH120 - a text comes and goes
        """The log directory, of which the partition's own is a part."""
        self._host = host
        self._loader = loader
        self._is_replayed = False

    async def go_on(self) -> None:
        """Does the next piece, and lets other work have its turn."""
        if not self._loader.has_to_read:
            self._replay()
            await self._pause(0)
            return
        reading = self._host.background.run(self._loader.read)
        if reading.is_done:
            await self._pause(LOAD_RETRY_MS)
            return
        try:
            await reading
        except KafkaliteError as error:
            if self.shard.state == LOADING:
                self.shard.fail_loading(error)
        if self.shard.state == LOADING:
            self._replay()

    def _pause(self, wait_ms: int) -> Future[None]:
        """Awaited, returns after so many milliseconds, and after the requests that have come."""
        over = Future[None]()
        self._host.timers.call_at(self._host.now_ms() + wait_ms, partial(over.set, None))
        return over

    def end(self) -> bool:
        """Does the rest at once, there being nothing to read; False if there is by now."""
        while self.shard.state == LOADING:
            if not self._is_replayed and self._loader.has_to_read:
                return False
            self._replay()
        return True

    def _replay(self) -> None:
        try:
            self._replay_piece()
        except Exception:  # noqa: BLE001 - partitions that wait behind this one are loaded all the same
            import traceback

            self.shard.fail_loading(KafkaliteError(f"a defect:\n{traceback.format_exc()}"))

    def _replay_piece(self) -> None:
        if not self._is_replayed:
            self._is_replayed = self._loader.replay()
            return
        shard = self.shard
        effects, is_ready = shard.machine.on_loaded(shard.moment(), STEP_COUNT)
        shard.perform(effects)
        if is_ready:
            shard.finish_loading(self._loader)


def _client_code(kafka_code: int) -> int:
    """Gives the code that a client is told of a write that failed
    (`CoordinatorOperationExceptionHelper`, `TransactionStateManager.appendTransactionToLog`). Kafka
    hands any other code on.
    What else can fail is a batch that was made wrongly here, and a client would take its code for
    one about the request: so it is UNKNOWN_SERVER_ERROR, as for a batch that is too large."""
    match kafka_code:
        case (
            codes.UNKNOWN_TOPIC_OR_PARTITION
            | codes.NOT_ENOUGH_REPLICAS
            | codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | codes.REQUEST_TIMED_OUT
        ):
            return codes.COORDINATOR_NOT_AVAILABLE
        case codes.NOT_LEADER_OR_FOLLOWER | codes.KAFKA_STORAGE_ERROR:
            return codes.NOT_COORDINATOR
        case codes.INVALID_PRODUCER_EPOCH | codes.INVALID_TXN_STATE:
            # A producer of transactions is told so.
            return kafka_code
        case codes.TRANSACTION_COORDINATOR_FENCED:
            return kafka_code
        case _:
            return codes.UNKNOWN_SERVER_ERROR
