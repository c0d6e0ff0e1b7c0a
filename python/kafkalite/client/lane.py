"""What is on its way from a producer to one partition: the open batch, those that wait to be sent,
and those that were sent and not answered."""

import time
from collections import deque
from collections.abc import Callable, Mapping

from kafkalite._native import BatchBuilder, read_batches
from kafkalite.client.cluster import BACKOFF_MS, BACKOFF_MS_MAX
from kafkalite.errors import KafkaliteError

__all__ = ["SEQUENCES", "Batch", "Lane", "OnDelivery", "OpenBatch"]

SEQUENCES = 1 << 31
"""Sequence numbers begin anew at 0 after so many."""

OnDelivery = Callable[[KafkaliteError | None, str, int, int], None]
"""Called once a record: the error or None, topic, partition, offset (-1 if it is not known)."""


class Batch:
    """A closed batch of one partition on its way."""

    __slots__ = (
        "begin",
        "count",
        "deadline",
        "epoch",
        "is_missing",
        "made_at",
        "number",
        "on_done",
        "partition",
        "producer_id",
        "records",
        "sequence",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        records: bytes,
        count: int,
        made_at: float,
        on_done: Callable[["Batch", KafkaliteError | None, int], None] | None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
        self.count = count
        self.made_at = made_at
        """Monotonic seconds at which its first record came."""
        self.on_done = on_done
        self.number = 0
        """Counts up: the order in which batches were made."""
        self.begin = 0
        """Where its records began in the batch that was made, if that was split since."""
        self.sequence = -1
        self.epoch = -1
        self.producer_id = -1
        self.is_missing = False
        """The broker has said that it has no batch of this number, and takes none for now."""
        self.deadline = 0.0

    @property
    def order(self) -> tuple[int, int]:
        """Batches of a partition go in this order, which is that of their sequence numbers."""
        return self.number, self.begin

    def halves(self, levels: Mapping[str, int | None]) -> list["Batch"]:
        """Two batches with the records of this one, which has several; each record keeps its
        sequence number. `levels` has the compression level by codec. Costs objects for all records.
        """
        (whole,) = read_batches(self.records)
        made = []
        for begin, end in ((0, self.count // 2), (self.count // 2, self.count)):
            builder = BatchBuilder(
                whole.codec, level=levels.get(whole.codec), transactional=whole.is_transactional
            )
            for _, timestamp, key, value, headers in whole.records[begin:end]:
                builder.append(timestamp, key, value, headers)
            records, count = builder.finish(), end - begin
            half = Batch(self.topic, self.partition, records, count, self.made_at, self.on_done)
            half.number, half.begin = self.number, self.begin + begin
            half.producer_id, half.epoch = self.producer_id, self.epoch
            half.deadline = self.deadline
            if self.sequence >= 0:
                half.sequence = (self.sequence + begin) % SEQUENCES
            made.append(half)
        return made


class OpenBatch:
    """The batch that takes a partition's records."""

    __slots__ = ("batch_bytes", "builder", "callbacks", "count", "made_at", "size_bytes")

    def __init__(self, codec: str, level: int | None) -> None:
        self.builder = BatchBuilder(codec, level=level)
        self.batch_bytes = self.builder.size_bytes
        """Of the batch as it is, before it is compressed."""
        self.callbacks: list[tuple[int, OnDelivery]] = []
        self.count = 0
        self.size_bytes = 0
        """What its records were counted for."""
        self.made_at = time.monotonic()


class Lane:
    """What is on its way to one partition."""

    __slots__ = (
        "acknowledged",
        "epoch",
        "flying",
        "open",
        "partition",
        "pause_ms",
        "paused_until",
        "producer_id",
        "ready",
        "renumber",
        "sequence",
        "topic",
        "trouble",
    )

    def __init__(self, topic: str, partition: int, producer_id: int, epoch: int) -> None:
        self.topic = topic
        self.partition = partition
        self.open: OpenBatch | None = None
        self.ready: deque[Batch] = deque()
        self.flying: deque[Batch] = deque()
        self.producer_id, self.epoch = producer_id, epoch
        self.sequence = 0
        self.acknowledged = 0
        """The sequence number after the last that the broker has taken."""
        self.renumber = False
        """A batch was given up: go on under the next epoch once nothing flies."""
        self.paused_until = 0.0
        self.pause_ms = BACKOFF_MS
        self.trouble: KafkaliteError | None = None
        """Why it was paused last."""

    @property
    def is_busy(self) -> bool:
        """Whether there is anything on its way."""
        return self.open is not None or bool(self.ready) or bool(self.flying)

    @property
    def is_unsure(self) -> bool:
        """Whether the next batch may be in the log already: its answer was lost, or told nothing
        about that. Under other numbers it would be there twice."""
        return bool(self.ready) and self.ready[0].sequence >= 0 and not self.ready[0].is_missing

    @property
    def may_send(self) -> bool:
        """Whether the next batch may go: alone, as long as others are to be renumbered."""
        return not self.renumber or (self.is_unsure and not self.flying)

    def number(self, batch: Batch) -> None:
        """Gives a batch its sequence numbers, unless it has been sent before."""
        batch.is_missing = False
        if batch.sequence < 0:
            batch.producer_id, batch.epoch = self.producer_id, self.epoch
            batch.sequence = self.sequence
            self.sequence = (self.sequence + batch.count) % SEQUENCES

    def begin_epoch(self, producer_id: int, epoch: int) -> None:
        """What is ready goes under another producer epoch. Nothing may be flying or unsure."""
        self.producer_id, self.epoch = producer_id, epoch
        self.sequence = self.acknowledged = 0
        for batch in self.ready:
            batch.sequence = -1

    def put_back(self, batches: list[Batch]) -> None:
        """They wait again, in the order in which they were made."""
        for batch in batches:
            later = (at for at, other in enumerate(self.ready) if other.order > batch.order)
            self.ready.insert(next(later, len(self.ready)), batch)

    def pause(self, now: float, error: KafkaliteError) -> None:
        """Nothing is sent for a while, which is longer from time to time."""
        self.trouble = error
        self.paused_until = now + self.pause_ms / 1000
        self.pause_ms = min(2 * self.pause_ms, BACKOFF_MS_MAX)
