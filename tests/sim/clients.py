"""Producers as clients have them: each a generator that asks, waits and judges, and notes what it
was promised.

    init ──► begin ──► send, send offsets ──► commit or abort ──► begin …
      ▲                     └── refused, or no answer: abort ──────┘
      └── fenced, or killed: another one takes its place

With version 2 of transactions each has an epoch of its own, which EndTxn tells, and partitions add
themselves; before, they are added first, and the epoch is raised by InitProducerId (KIP-360), by
clients that know how. What one is promised is in `Attempt`; the checker holds it against the logs.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from kafkalite.protocol import codes, messages
from sim.broker import TOPIC, Produce
from sim.model_log import client_batch

REQUEST_MS: Final = 60
"""A client waits so long for an answer."""
TRIES_MAX: Final = 12
END_TRIES_MAX: Final = 60
EPOCHS_VERSION: Final = 2
GROUPS: Final = ("g0", "g1")

RETRIABLE: Final = frozenset(
    (
        codes.CONCURRENT_TRANSACTIONS,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.COORDINATOR_NOT_AVAILABLE,
        codes.NOT_COORDINATOR,
        codes.NOT_ENOUGH_REPLICAS,
        codes.UNKNOWN_SERVER_ERROR,
    )
)
FATAL: Final = frozenset(
    (codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_ID_MAPPING, codes.INVALID_PRODUCER_EPOCH)
)


class Ask(NamedTuple):
    """A request, and of which attempt it is."""

    name: str
    version: int
    message: Any
    transactional_id: str
    producer_id: int
    producer_epoch: int
    serial: int


class Pause(NamedTuple):
    """The client does nothing for so long."""

    pause_ms: int


Steps = Generator[Ask | Pause, Any, Any]


@dataclass
class Attempt:
    """One transaction as its client sees it."""

    serial: int
    transactional_id: str
    version: int
    producer_id: int
    producer_epoch: int
    is_careless: bool
    """The client has begun it in the epoch of batches of which it does not know what became."""
    acked: dict[int, list[str]] = field(default_factory=dict)
    """By partition, the records in their order."""
    sent: set[str] = field(default_factory=set)
    acked_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    sent_offsets: set[int] = field(default_factory=set)
    asked_to_commit: bool = False
    committed: bool | None = None
    """The result that EndTxn was answered well for; None if it was not."""

    @property
    def fate(self) -> str:
        """Its end, as the client knows it."""
        if self.committed is None:
            return "is unknown" if self.asked_to_commit else "was left"
        return "was committed" if self.committed else "was aborted"


class AbortableError(Exception):
    """The transaction is to be aborted."""


class FatalError(Exception):
    """Another producer has taken the place of this one, or it is not known."""


class Habits(NamedTuple):
    """A client's ways."""

    knows_epochs: bool
    """Speaks version 2 where the cluster does."""
    bumps: bool
    """Raises its epoch where it does not know what became of a batch."""
    commits: float
    sleeps: float
    """How often it lies still in a transaction, longer than that may last."""
    abandons: float
    tries_max: int
    """So often it sends a batch of which it does not hear."""
    timeout_ms: int
    offsets: float
    """How much of what it sends is offsets, of one of these groups."""
    groups: tuple[str, ...]


class Counters:
    """Numbers that nobody is given twice."""

    def __init__(self) -> None:
        self.serial = 0
        self.offset = 0
        self.value = 0


class Producer:
    """One client of a transactional id."""

    def __init__(
        self,
        name: str,
        transactional_id: str,
        habits: Habits,
        random: Random,
        counters: Counters,
        partitions: int,
    ) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.habits = habits
        self.is_stopping = False
        self.level = 0
        """The cluster's, as the client knows it."""
        self.attempts: list[Attempt] = []
        self._random = random
        self._counters = counters
        self._partitions = partitions
        self._version = 0
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}
        self._is_unresolved = False

    def run(self) -> Steps:
        """The life of the client."""
        while not self.is_stopping:
            try:
                yield from self._init(None)
                while not self.is_stopping:
                    if self._wants_version() != self._version:
                        # The epoch is raised first (KAFKA-18227).
                        yield from self._init(self._producer)
                    yield from self._transact()
                    if self._random.random() < 0.3:
                        yield Pause(self._random.randint(1, 80))
            except FatalError:
                yield Pause(self._random.randint(1, 300))

    # --- the transaction --------------------------------------------------------------------------

    def _transact(self) -> Steps:
        self._counters.serial += 1
        attempt = Attempt(
            self._counters.serial,
            self.transactional_id,
            self._version,
            *self._producer,
            self._is_unresolved,
        )
        self.attempts.append(attempt)
        added: set[int] = set()
        random, habits = self._random, self.habits
        is_good = True
        try:
            for _ in range(random.randint(0 if self._version else 1, 3)):
                if random.random() >= habits.offsets:
                    yield from self._send(attempt, added)
                else:
                    yield from self._send_offsets(attempt)
                if random.random() < habits.sleeps:
                    yield Pause(random.randint(habits.timeout_ms, 3 * habits.timeout_ms))
        except AbortableError:
            is_good = False
        if random.random() < habits.abandons:
            raise FatalError
        if is_good and not (attempt.sent or attempt.sent_offsets):
            # Who does not know whether he has begun one may abort it, with version 2.
            if self._version and random.random() < 0.3:
                yield from self._end(attempt, False)
            return
        yield from self._end(attempt, is_good and random.random() < habits.commits)
        if self._is_unresolved and not self._version and habits.bumps:
            yield from self._init(self._producer)

    def _end(self, attempt: Attempt, commit: bool) -> Steps:
        producer_id, epoch = self._producer
        message = messages.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
        attempt.asked_to_commit = commit
        version = 5 if self._version else 4
        answer = yield from self._ask("EndTxn", version, message, END_TRIES_MAX)
        if answer is None or answer.error_code:
            raise FatalError
        attempt.committed = commit
        if self._version:
            self._take_producer(answer.producer_id, answer.producer_epoch)

    def _take_producer(self, producer_id: int, producer_epoch: int) -> None:
        self._producer = (producer_id, producer_epoch)
        self._sequences = {}
        self._is_unresolved = False

    def _wants_version(self) -> int:
        return EPOCHS_VERSION if self.habits.knows_epochs and self.level >= EPOCHS_VERSION else 0

    def _init(self, expected: tuple[int, int] | None) -> Steps:
        producer_id, epoch = expected or (-1, -1)
        message = messages.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.habits.timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        version = self._wants_version()
        answer = yield from self._ask("InitProducerId", 5, message, END_TRIES_MAX)
        if answer is None or answer.error_code:
            raise FatalError
        self._version = version
        self._take_producer(answer.producer_id, answer.producer_epoch)

    # --- records ----------------------------------------------------------------------------------

    def _send(self, attempt: Attempt, added: set[int]) -> Steps:
        random = self._random
        count = random.randint(1, min(2, self._partitions))
        chosen = sorted(random.sample(range(self._partitions), count))
        if not self._version:
            new = [each for each in chosen if each not in added]
            if new:
                yield from self._add_partitions(new)
                added.update(new)
        batches = {}
        for partition in chosen:
            values = [self._value(attempt) for _ in range(random.randint(1, 2))]
            sequence = self._sequences.get(partition, 0)
            batches[partition] = client_batch(*self._producer, sequence, values)
            attempt.sent.update(values)
        for _ in range(self.habits.tries_max):
            produce = Produce(self.transactional_id, 12 if self._version else 11, dict(batches))
            answer = yield self._question("Produce", produce.version, produce)
            if answer is not None:
                self._take_results(attempt, batches, answer)
            if not batches:
                return
            yield Pause(random.randint(1, 30))
        self._is_unresolved = True
        raise AbortableError

    def _take_results(
        self, attempt: Attempt, batches: dict[int, Any], results: dict[int, int]
    ) -> None:
        for partition, code in results.items():
            batch = batches.get(partition)
            if batch is None or code in RETRIABLE:
                continue
            if code:
                # A batch before may have been written without an answer.
                self._is_unresolved = True
                raise AbortableError
            del batches[partition]
            self._sequences[partition] = batch.base_sequence + len(batch.values)
            attempt.acked.setdefault(partition, []).extend(batch.values)

    def _value(self, attempt: Attempt) -> str:
        self._counters.value += 1
        return f"{attempt.serial}:{self._counters.value}"

    def _add_partitions(self, partitions: list[int]) -> Steps:
        kind = messages.AddPartitionsToTxnRequest
        producer_id, epoch = self._producer
        message = kind(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=TOPIC, partitions=partitions)],
        )
        answer = yield from self._ask("AddPartitionsToTxn", 3, message, TRIES_MAX)
        if code_of("AddPartitionsToTxn", answer):
            raise AbortableError

    # --- offsets ----------------------------------------------------------------------------------

    def _send_offsets(self, attempt: Attempt) -> Steps:
        kind = messages.TxnOffsetCommitRequest
        topic_kind = kind.TxnOffsetCommitRequestTopic
        row = topic_kind.TxnOffsetCommitRequestPartition
        group_id = self._random.choice(self.habits.groups)
        partition = self._random.randrange(self._partitions)
        if any(key == (group_id, partition) for key in attempt.acked_offsets):
            return
        if not self._version:
            yield from self._add_offsets(group_id)
        self._counters.offset += 1
        offset = self._counters.offset
        attempt.sent_offsets.add(offset)
        producer_id, epoch = self._producer
        message = kind(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=-1,
            topics=[
                topic_kind(
                    name=TOPIC,
                    partitions=[
                        row(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        )
                    ],
                )
            ],
        )
        version = 5 if self._version else 4
        answer = yield from self._ask("TxnOffsetCommit", version, message, TRIES_MAX)
        if code_of("TxnOffsetCommit", answer):
            raise AbortableError
        attempt.acked_offsets[group_id, partition] = offset

    def _add_offsets(self, group_id: str) -> Steps:
        producer_id, epoch = self._producer
        message = messages.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=group_id,
        )
        answer = yield from self._ask("AddOffsetsToTxn", 3, message, TRIES_MAX)
        if code_of("AddOffsetsToTxn", answer):
            raise AbortableError

    # --- requests ---------------------------------------------------------------------------------

    def _ask(self, name: str, version: int, message: Any, tries_max: int) -> Steps:
        """The answer, retriable ones tried again; None if there is none. Raises FatalError."""
        for _ in range(tries_max):
            answer = yield self._question(name, version, message)
            code = code_of(name, answer)
            if answer is not None and code in FATAL:
                raise FatalError
            if answer is not None and code not in RETRIABLE:
                return answer
            yield Pause(self._random.randint(1, 40))
        return None

    def _question(self, name: str, version: int, message: Any) -> Ask:
        serial = self.attempts[-1].serial if self.attempts else 0
        return Ask(name, version, message, self.transactional_id, *self._producer, serial)


def code_of(name: str, answer: Any) -> int:
    """The error code of an answer; that of a time-out if there is none."""
    if answer is None:
        return codes.REQUEST_TIMED_OUT
    match name:
        case "AddPartitionsToTxn":
            topics = answer.results_by_topic_v3_and_below
            return next(
                (
                    each.partition_error_code
                    for topic in topics
                    for each in topic.results_by_partition
                    if each.partition_error_code
                ),
                codes.NONE,
            )
        case "TxnOffsetCommit":
            return answer.topics[0].partitions[0].error_code
        case "Produce":
            return next((code for code in answer.values() if code), codes.NONE)
        case _:
            return answer.error_code
