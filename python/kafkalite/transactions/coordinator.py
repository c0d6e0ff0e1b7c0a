"""The transaction coordinator: which partition of `__transaction_state` a transactional id belongs
to, and the answers to the requests of producers.

A call that changes something returns once that is on disk; `describe` and `check_partitions` answer
at once from memory. The topic is made when somebody first asks for a
coordinator of transactions.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from kafkalite.config.keys import MIN_INSYNC_REPLICAS
from kafkalite.coordinator.machine import Effect, Moment
from kafkalite.coordinator.runtime import InternalTopic, Runtime
from kafkalite.coordinator.shard import Shard
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.features import METADATA_VERSION
from kafkalite.metadata.image import TRANSACTIONS_TOPIC
from kafkalite.protocol import codes
from kafkalite.tasks import Future, TimedOutError, Turns
from kafkalite.transactions.host import TransactionHost
from kafkalite.transactions.machine import (
    AddRequest,
    AnswerTo,
    DueMarkers,
    InitRequest,
    ProducerAnswer,
    TransactionLimits,
    TransactionMachine,
)
from kafkalite.transactions.markers import Markers, MarkerWriter, marker_of
from kafkalite.transactions.other_brokers import OtherBrokers
from kafkalite.transactions.records import SERDE
from kafkalite.transactions.states import NO_ID, End, TopicPartition, Transaction

TRANSACTION_VERSION: Final = "transaction.version"
ID_WAIT_MS: Final = 2_500
"""So long waits who needs a block of producer ids."""
WRITE_TIMEOUT_MS: Final = 10_000
"""So long may a transition take to be committed. Kafka waits for the time-out of the transaction, a
minute and more, which is longer than its clients wait for an answer (`TransactionStateManager`)."""

Question = Callable[[TransactionMachine, AnswerTo, Moment], Sequence[Effect]]


class TransactionCoordinator:
    """All transactional ids of this node. Used by the control thread only."""

    def __init__(self, context: TransactionHost) -> None:
        config = context.config
        self._context = context
        self._limits = TransactionLimits(
            timeout_ms_max=config["transaction.max.timeout.ms"],
            timeout_interval_ms=config[
                "transaction.abort.timed.out.transaction.cleanup.interval.ms"
            ],
            expiration_ms=config["transactional.id.expiration.ms"],
            expiry_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
        )
        topic = InternalTopic(
            name=TRANSACTIONS_TOPIC,
            partition_count=config["transaction.state.log.num.partitions"],
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                MIN_INSYNC_REPLICAS: str(config["transaction.state.log.min.isr"]),
                "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
                "unclean.leader.election.enable": "false",
            },
            serde=SERDE,
            codec=0,
            write_timeout_ms=WRITE_TIMEOUT_MS,
            replication_factor=config["transaction.state.log.replication.factor"],
        )
        self._settle_retry_ms: int = config["add.partitions.to.txn.retry.backoff.ms"]
        self.settle_wait_ms: int = config["add.partitions.to.txn.retry.backoff.max.ms"]
        """So long waits Produce for the end of the last transaction."""
        self._allocating: Future[None] | None = None
        """The block of producer ids that was asked for last."""
        peers = context.peers
        self._others: OtherBrokers | None = None
        if peers is not None:
            self._others = OtherBrokers(
                peers, context.tasks, self._metadata_version, config["request.timeout.ms"]
            )
        self._writer = MarkerWriter(context, self._others)
        self.runtime = Runtime[TransactionMachine](context, topic, self._make_machine)
        """The topic and its shards."""
        self.matching = Turns()
        """The turns of requests that match ids against a pattern."""

    def _make_machine(self, partition: int) -> TransactionMachine:
        def write_markers(due: DueMarkers) -> None:
            # Of the shard that knows the transaction: that of its id's hash is another one after
            # partitions were added to the topic.
            shard = self.runtime.shards[partition]
            self._context.tasks.start(self._end_transaction(due, shard))

        return TransactionMachine(self._limits, self._level, self._next_id, write_markers)

    def _level(self) -> int:
        return self._context.image.features.get(TRANSACTION_VERSION, 0)

    def _metadata_version(self) -> int:
        return self._context.image.features.get(METADATA_VERSION, 0)

    def _next_id(self) -> int:
        """Gives a producer id. Where there is none the next block is asked for, whoever needs it:
        a transaction that has timed out is tried again by nobody but the clock."""
        producer_id: int | None = self._context.engine.next_producer_id()
        if producer_id is not None:
            return producer_id
        if self._allocating is None or self._allocating.is_done:
            self._allocating = self._context.tasks.start(self._allocate())
        return NO_ID

    # --- producers --------------------------------------------------------------------------------

    async def init_producer_id(self, transactional_id: str, request: InitRequest) -> ProducerAnswer:
        """InitProducerId with a transactional id."""
        if not 0 < request.timeout_ms <= self._limits.timeout_ms_max:
            return ProducerAnswer(codes.INVALID_TRANSACTION_TIMEOUT)
        return await self._ask(
            transactional_id,
            lambda machine, reply, moment: machine.init_producer_id(
                transactional_id, request, reply, moment
            ),
        )

    async def end(self, transactional_id: str, end: End) -> ProducerAnswer:
        """EndTxn."""
        return await self._ask(
            transactional_id,
            lambda machine, reply, moment: machine.end(transactional_id, end, reply, moment),
        )

    async def _ask(self, transactional_id: str, question: Question) -> ProducerAnswer:
        """Asks a machine, a second time if it has lacked a producer id."""
        answer = ProducerAnswer(codes.COORDINATOR_LOAD_IN_PROGRESS)
        for _ in range(2):
            shard, code = self.runtime.find_to_write(transactional_id)
            if shard is None:
                return ProducerAnswer(code)
            told = Future[ProducerAnswer]()
            shard.perform(question(shard.machine, told.set, shard.moment()))
            answer = await told
            if answer.error_code != codes.COORDINATOR_LOAD_IN_PROGRESS:
                break
            if self._allocating is not None:
                await self._allocating.done()
        return answer

    async def _allocate(self) -> None:
        """Gets producer ids if there are none."""
        context = self._context
        with suppress(TimedOutError, ControllerError), context.time_limit(ID_WAIT_MS):
            async with context.write_lock.held(()):
                # Somebody before may have taken the next block.
                if context.engine.next_producer_id() is None:
                    await context.tasks.start(context.engine.allocate_producer_ids())

    async def add_partitions(
        self, transactional_id: str, request: AddRequest, wait_ms: int = 0
    ) -> int:
        """AddPartitionsToTxn and AddOffsetsToTxn: one code for all. Waits so long for the end of
        the last transaction."""
        code = await self._add(transactional_id, request)
        if code == codes.CONCURRENT_TRANSACTIONS and wait_ms:
            settled = Future[None]()
            shard, _ = self.runtime.find_to_write(transactional_id)
            if shard is not None and shard.machine.when_settled(transactional_id, settled.set):
                try:
                    with suppress(TimedOutError), self._context.time_limit(wait_ms):
                        await settled
                        code = await self._add(transactional_id, request)
                finally:
                    shard.machine.stop_waiting(transactional_id, settled.set)
        return code

    async def _add(self, transactional_id: str, request: AddRequest) -> int:
        if not transactional_id:
            return codes.INVALID_REQUEST
        shard, code = self.runtime.find_to_write(transactional_id)
        if shard is None:
            return code
        answer = Future[int]()
        shard.perform(
            shard.machine.add_partitions(transactional_id, request, answer.set, shard.moment())
        )
        return await answer

    async def add_or_verify(
        self, transactional_id: str, request: AddRequest, *, verify_only: bool, wait_ms: int = 0
    ) -> dict[TopicPartition, int]:
        """Has partitions added to a transaction, or verified, by its coordinator, whichever broker
        that is: a code for each. As `add_partitions`, and `check_partitions`."""
        if self._others is None or not transactional_id:
            elsewhere = None
        else:
            partition = self.runtime.partition_of(transactional_id)
            elsewhere = self._context.cluster.leader_elsewhere(TRANSACTIONS_TOPIC, partition)
        if self._others is not None and elsewhere is not None:
            return await self._ask_elsewhere(
                self._others, elsewhere, transactional_id, request, verify_only, wait_ms
            )
        if verify_only:
            return self.check_partitions(transactional_id, request)
        code = await self.add_partitions(transactional_id, request, wait_ms)
        return dict.fromkeys(request.partitions, code)

    async def _ask_elsewhere(
        self,
        others: OtherBrokers,
        node_id: int,
        transactional_id: str,
        request: AddRequest,
        verify_only: bool,
        wait_ms: int,
    ) -> dict[TopicPartition, int]:
        context = self._context
        due_ms = context.now_ms() + wait_ms
        while True:
            found = await others.ask_coordinator(
                node_id, transactional_id, request, verify_only=verify_only
            )
            is_ending = codes.CONCURRENT_TRANSACTIONS in found.values()
            if not is_ending or context.now_ms() + self._settle_retry_ms > due_ms:
                return found
            pause = Future[None]()
            context.timers.call_at(
                context.now_ms() + self._settle_retry_ms, partial(pause.set, None)
            )
            await pause

    def check_partitions(
        self, transactional_id: str, request: AddRequest
    ) -> dict[TopicPartition, int]:
        """AddPartitionsToTxn that only verifies."""
        if not transactional_id:
            return dict.fromkeys(request.partitions, codes.INVALID_REQUEST)
        shard, code = self.runtime.find(transactional_id)
        if shard is None:
            return dict.fromkeys(request.partitions, code)
        return shard.machine.check_partitions(transactional_id, request)

    # --- operators --------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> Transaction | int:
        """A transactional id as it is, or why it cannot be told."""
        shard, code = self.runtime.find(transactional_id)
        if shard is None:
            return code
        entry = shard.machine.entries.get(transactional_id)
        return codes.TRANSACTIONAL_ID_NOT_FOUND if entry is None else entry.now

    # --- markers ----------------------------------------------------------------------------------

    @property
    def writer(self) -> MarkerWriter:
        """Writes markers, for those who ask for one by themselves (WriteTxnMarkers)."""
        return self._writer

    async def _end_transaction(self, due: DueMarkers, shard: Shard[TransactionMachine]) -> None:
        """Writes the markers of a transaction, and notes that it is over."""
        transactional_id, transaction = due
        producer = marker_of(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.commits,
            shard.leader_epoch,
            transaction.client_version,
        )
        markers = Markers(producer, transaction.partitions)
        machine = shard.machine

        def is_due() -> bool:
            return not shard.is_closed and machine.needs_markers(due)

        await self._writer.write_all(markers, is_due)
        shard.perform(machine.on_markers_written(transactional_id, transaction, shard.moment()))
