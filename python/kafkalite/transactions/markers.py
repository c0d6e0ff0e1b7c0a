"""The markers of transactions that are decided: written to every partition, until all are on disk.

What cannot be written is tried again until it can be, since what was decided must come to pass:
after a tenth of a second, and then twice as late each time, up to ten seconds, whatever becomes of
the others: one log directory that does not answer keeps back its own partitions only. A partition
that is gone needs none, nor one that knows a later epoch of the producer and has nothing open of
it: a stranger with its id may have written there. Offsets that were committed in the transaction
are in `__consumer_offsets`, which the group coordinator alone writes to.

A marker of this broker's own transactions that is in a log here is waited for until it is committed
or another broker leads the partition. A WriteTxnMarkers request is answered after
`request.timeout.ms` at the latest, and whoever sent it tries again.

One task begins the markers of all transactions, some of each in turn: thousands that are decided at
the same time, by a start or by time-outs, hold the control thread no longer than one does, and a
small one does not wait for a large one.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from kafkalite import _native
from kafkalite.coordinator.machine import Marker, Producer
from kafkalite.errors import KafkaliteError
from kafkalite.metadata.image import OFFSETS_TOPIC, has_partition
from kafkalite.protocol import codes
from kafkalite.tasks import Future, Task, TimedOutError, all_done, completed
from kafkalite.transactions.host import TransactionHost
from kafkalite.transactions.other_brokers import OtherBrokers
from kafkalite.transactions.states import TopicPartition

RETRY_MS: Final = 100
RETRY_MS_MAX: Final = 10_000
TOLD_FROM_MS: Final = 1_600
"""Markers that wait for so long are told of: logs and groups that are being loaded take less."""
BEGUN_AT_ONCE: Final = 100
"""Markers of one transaction that are begun before those of the next."""

DONE: Final = (codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION)


class Markers(NamedTuple):
    """The end of one transaction, and where it is to be written."""

    producer: Producer
    partitions: frozenset[TopicPartition]


class _Tries:
    """The markers of one transaction: how many are under way, and which are refused."""

    def __init__(self) -> None:
        self.under_way = 0
        """The number of writes in progress, including those that have not begun yet."""
        self.refused: dict[TopicPartition, int] = {}
        """Partitions that are to be tried again, and why."""
        self._news: Future[None] | None = None

    def take(self, written: Future[int], place: TopicPartition) -> None:
        """One of those under way is being written there."""
        ended = partial(self._end, written, place)
        if written.is_done:
            ended()
        else:
            written.watch(ended)

    def _end(self, written: Future[int], place: TopicPartition) -> None:
        self.under_way -= 1
        if written.result() not in DONE:
            self.refused[place] = written.result()
        if self._news is not None and (self.refused or not self.under_way):
            news, self._news = self._news, None
            news.set(None)

    async def settled(self) -> None:
        """Returns once something is refused, or everything is done."""
        if self.under_way and not self.refused:
            self._news = Future[None]()
            await self._news


class MarkerWriter:
    """Writes markers. Used by the control thread only."""

    def __init__(self, context: TransactionHost, others: OtherBrokers | None = None) -> None:
        """`others` are the brokers that lead the other partitions of the cluster."""
        self._context = context
        self._others = others
        self._to_begin = deque[Iterator[None]]()
        """For each transaction a generator that begins one marker after the other."""
        self._beginning: Task[None] | None = None

    async def write_all(self, markers: Markers, is_due: Callable[[], bool]) -> None:
        """Returns once every partition has its marker, those that other brokers lead included;
        before, if it is due no longer."""
        producer = markers.producer
        to_write: Collection[TopicPartition] = markers.partitions
        pause_ms = RETRY_MS
        tries = _Tries()
        while is_due():
            tries.under_way += len(to_write)
            self._to_begin.append(self._begin_each(producer, to_write, tries))
            if self._beginning is None or self._beginning.is_done:
                self._beginning = self._context.tasks.start(self._begin_in_turn())
            await tries.settled()
            if not tries.refused:
                return
            if pause_ms == TOLD_FROM_MS:
                self._log_refusal(producer, tries.refused)
            await self._pause(pause_ms)
            pause_ms = min(2 * pause_ms, RETRY_MS_MAX)
            refused, tries.refused = tries.refused, {}
            to_write = [
                each
                for each, code in refused.items()
                if code != codes.INVALID_PRODUCER_EPOCH or await self._is_open(producer, *each)
            ]

    def _begin_each(
        self, producer: Producer, places: Iterable[TopicPartition], tries: _Tries
    ) -> Iterator[None]:
        for each in sorted(places):
            tries.take(self._begin_anywhere(producer, each), each)
            yield

    async def _begin_in_turn(self) -> None:
        """Begins the markers of all transactions, until there are none to begin."""
        sliced = self._context.tasks.sliced
        while self._to_begin:
            markers = self._to_begin.popleft()
            begun = 0
            async for _ in sliced(islice(markers, BEGUN_AT_ONCE)):
                begun += 1
            if begun == BEGUN_AT_ONCE:
                self._to_begin.append(markers)

    def _log_refusal(self, producer: Producer, refused: Mapping[TopicPartition, int]) -> None:
        where = ", ".join(f"{name}-{index}" for name, index in sorted(refused)[:3])
        self._context.log.error(
            f"markers of producer {producer.producer_id} cannot be written to {where} "
            f"({len(refused)} partitions in all, error {refused[min(refused)]}), and are tried "
            "again"
        )

    async def _is_open(self, producer: Producer, topic: str, partition: int) -> bool:
        """True if the partition has a transaction of the producer to be ended, or does not say. Of
        one that another broker leads the refusal is taken for its word, as by Kafka."""
        if self._leader_elsewhere(topic, partition) is not None:
            return False
        try:
            logs, producer_id = self._context.logs, producer.producer_id
            return await logs.has_open_transaction(topic, partition, producer_id)
        except KafkaliteError:
            return True

    async def write(
        self, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Writes a marker to each of the partitions, once: their codes, when all are committed or
        `request.timeout.ms` is over (`KafkaApis.handleWriteTxnMarkersRequest`). Those that are led
        elsewhere are refused."""
        context = self._context
        sliced = context.tasks.sliced
        begun = {each: self._begin(producer, *each) async for each in sliced(partitions)}
        with suppress(TimedOutError), context.time_limit(context.config["request.timeout.ms"]):
            await all_done(begun.values())
        return {
            each: written.result() if written.is_done else codes.REQUEST_TIMED_OUT
            for each, written in begun.items()
        }

    def _begin_anywhere(self, producer: Producer, place: TopicPartition) -> Future[int]:
        leader = self._leader_elsewhere(*place)
        if leader is None or self._others is None:
            return self._begin(producer, *place)
        written = Future[int]()
        self._others.write_marker(leader, producer, place, written)
        return written

    def _leader_elsewhere(self, topic: str, partition: int) -> int | None:
        if self._others is None:
            return None
        return self._context.cluster.leader_elsewhere(topic, partition)

    def _begin(self, producer: Producer, topic: str, partition: int) -> Future[int]:
        try:
            return self._write(producer, topic, partition)
        except Exception as error:  # noqa: BLE001 - what was decided is not given up for a defect
            self._context.log.error(f"a marker of {topic}-{partition} failed: {error!r}")
            return completed(codes.UNKNOWN_SERVER_ERROR)

    def _write(self, producer: Producer, topic: str, partition: int) -> Future[int]:
        context = self._context
        if not has_partition(context.image, topic, partition):
            return completed(codes.UNKNOWN_TOPIC_OR_PARTITION)
        if topic == OFFSETS_TOPIC:
            return context.groups.end_transaction(partition, producer)
        code = context.replicas.refusal(topic, partition)
        if code:
            return completed(code)
        marker = producer.marker
        if marker is None:
            raise RuntimeError("no marker")
        batch = _native.end_transaction_marker(
            context.wall_ms(),
            producer.producer_id,
            producer.producer_epoch,
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
        )
        appended = context.logs.append(topic, partition, batch, marker.transaction_version)
        written = Future[int]()
        tell = partial(_settle, appended, written)
        if appended.is_done:
            tell()
        else:
            appended.watch(tell)
        return written

    def _pause(self, pause_ms: int) -> Future[None]:
        over = Future[None]()
        self._context.timers.call_at(self._context.now_ms() + pause_ms, partial(over.set, None))
        return over


def marker_of(
    producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, version: int
) -> Producer:
    """The marker that ends a producer's transaction."""
    return Producer(producer_id, producer_epoch, Marker(commit, coordinator_epoch, version))


def _settle(appended: Future[int], written: Future[int]) -> None:
    try:
        appended.result()
    except KafkaliteError as error:
        written.set(error.kafka_code or codes.UNKNOWN_SERVER_ERROR)
    else:
        written.set(codes.NONE)
