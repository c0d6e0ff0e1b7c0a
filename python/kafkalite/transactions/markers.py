"""The markers of transactions that are decided: written to every partition, until all are on disk.

What cannot be written is tried again until it can be, since what was decided must come to pass:
after a tenth of a second, and then twice as late each time, up to ten seconds. A partition that is
gone needs none. Offsets that were committed in the transaction are in
`__consumer_offsets`, which the group coordinator alone writes to.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from kafkalite import _native
from kafkalite.coordinator.machine import Marker, Producer
from kafkalite.errors import KafkaliteError
from kafkalite.metadata.image import OFFSETS_TOPIC
from kafkalite.protocol import codes
from kafkalite.tasks import Future, all_done
from kafkalite.transactions.host import TransactionHost
from kafkalite.transactions.states import TopicPartition

RETRY_MS: Final = 100
RETRY_MS_MAX: Final = 10_000
TOLD_FROM_MS: Final = 1_600
"""Markers that wait for so long are told of: logs and groups that are being loaded take less."""

DONE: Final = (codes.NONE, codes.UNKNOWN_TOPIC_OR_PARTITION)


class Markers(NamedTuple):
    """The end of one transaction, and where it is to be written."""

    producer: Producer
    partitions: frozenset[TopicPartition]


class MarkerWriter:
    """Writes markers. Used by the control thread only."""

    def __init__(self, context: TransactionHost) -> None:
        self._context = context

    async def write_all(self, markers: Markers, is_due: Callable[[], bool]) -> None:
        """Returns once every partition has its marker; before, if it is due no longer."""
        left = set(markers.partitions)
        pause_ms = RETRY_MS
        while left and is_due():
            found = await self.write(markers.producer, sorted(left))
            left = {each for each, code in found.items() if code not in DONE}
            if left:
                if pause_ms == TOLD_FROM_MS:
                    self._tell(markers.producer, left, found[min(left)])
                await self._pause(pause_ms)
                pause_ms = min(2 * pause_ms, RETRY_MS_MAX)

    def _tell(self, producer: Producer, left: set[TopicPartition], code: int) -> None:
        where = ", ".join(f"{name}-{index}" for name, index in sorted(left)[:3])
        self._context.log.error(
            f"markers of producer {producer.producer_id} cannot be written to {where} "
            f"({len(left)} partitions in all, error {code}), and are tried again"
        )

    async def write(
        self, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Writes a marker to each of the partitions, once: their codes, when all are on disk."""
        sliced = self._context.tasks.sliced
        begun = {each: self._begin(producer, *each) async for each in sliced(partitions)}
        await all_done(begun.values())
        return {each: written.result() for each, written in begun.items()}

    def _begin(self, producer: Producer, topic: str, partition: int) -> Future[int]:
        context = self._context
        written = Future[int]()
        image = context.image.topics.get(topic)
        if image is None or not 0 <= partition < len(image.partitions):
            written.set(codes.UNKNOWN_TOPIC_OR_PARTITION)
            return written
        if topic == OFFSETS_TOPIC:
            context.groups.end_transaction(partition, producer, written.set)
            return written
        code = context.replicas.refusal(topic, partition)
        if code:
            written.set(code)
            return written
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
        tell = partial(_tell, appended, written)
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


def _tell(appended: Future[int], written: Future[int]) -> None:
    try:
        appended.result()
    except KafkaliteError as error:
        written.set(error.kafka_code or codes.UNKNOWN_SERVER_ERROR)
    else:
        written.set(codes.NONE)
