"""The closed batches that are on their way from a producer to one partition.

ready       not sent yet, or to be sent again, in the order of their sequence numbers
in flight   sent and not answered
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalite._native import BatchBuilder, read_batches
from kafkalite.client.network.cluster import BACKOFF_MS, BACKOFF_MS_MAX
from kafkalite.client.network.connection import without_frames
from kafkalite.errors import KafkaliteError

__all__ = ["SEQUENCES", "Batch", "OnDelivery", "OnDone", "PartitionQueue"]

SEQUENCES = 1 << 31
"""Sequence numbers begin anew at 0 after so many."""

CALLBACK_BYTES = 200
"""Memory that a record's callback takes, as a rule: a function and what it has of its own."""

OnDelivery = Callable[[KafkaliteError | None, str, int, int], None]
"""Called once a record: the error or None, topic, partition, offset (-1 if it is not known)."""

OnDone = Callable[["Batch", KafkaliteError | None, int], None]
"""Called once a batch: the error or None, and its base offset, -1 if it is not known."""


class Batch:
    """A closed batch of one partition on its way."""

    __slots__ = (
        "base_offset",
        "begin",
        "callbacks",
        "count",
        "deadline",
        "epoch",
        "error",
        "flush",
        "held_bytes",
        "is_missing",
        "number",
        "on_done",
        "opened",
        "partition",
        "producer_id",
        "records",
        "sequence",
        "told_count",
        "topic",
        "was_sent",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        records: bytes = b"",
        count: int = 0,
        on_done: OnDone | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
        self.count = count
        self.on_done = on_done
        self.held_bytes = len(records)
        """Memory that it takes until its callbacks have been called."""
        self.opened: list[Any] = []
        """Filled by one call from the open batches: a builder and its callbacks, then its bytes."""
        self.callbacks: Sequence[tuple[int, OnDelivery]] = ()
        """Each with the number of its record in the batch that was closed."""
        self.told_count = 0
        """The first of them have been called."""
        self.error: KafkaliteError | None = None
        self.base_offset = -1
        self.number = 0
        """Counts up: the order in which batches were closed."""
        self.begin = 0
        """Where its records began in the batch that was closed, if that was split since."""
        self.flush = 0
        """Number of the `flush` that waits for it, if there is one."""
        self.sequence = -1
        self.epoch = -1
        self.producer_id = -1
        self.was_sent = False
        self.is_missing = False
        """The broker has said that it has no batch of this number, and takes none for now."""
        self.deadline = 0.0

    @property
    def order(self) -> tuple[int, int]:
        """Batches of a partition go in this order, which is that of their sequence numbers."""
        return self.number, self.begin

    def fill(self) -> bool:
        """Takes the records from what was opened, unless they are there; says whether there are
        any. What a handler of a signal raises comes out behind a call: what a call gives is kept by
        a call."""
        if self.opened and self.opened[0] is not None:
            builder, callbacks = self.opened[0]
            if len(self.opened) == 1:
                self.count, self.callbacks = builder.records_count, callbacks
                self.held_bytes = builder.size_bytes + CALLBACK_BYTES * len(callbacks)
                self.opened.extend(map(BatchBuilder.finish, (builder,)))
            self.records = self.opened[1]
            self.opened = []
        return bool(self.records)

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
            half = Batch(self.topic, self.partition, records, count, self.on_done)
            half.number, half.begin = self.number, self.begin + begin
            half.producer_id, half.epoch = self.producer_id, self.epoch
            half.deadline, half.flush = self.deadline, self.flush
            half.callbacks = [each for each in self.callbacks if 0 <= each[0] - half.begin < count]
            half.held_bytes += CALLBACK_BYTES * len(half.callbacks)
            if self.sequence >= 0:
                half.sequence = (self.sequence + begin) % SEQUENCES
            made.append(half)
        return made


class PartitionQueue:
    """The batches on their way to one partition."""

    __slots__ = (
        "epoch",
        "in_flight",
        "is_unproven",
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
        self.ready: deque[Batch] = deque()
        self.in_flight: deque[Batch] = deque()
        self.producer_id, self.epoch = producer_id, epoch
        self.sequence = 0
        self.is_unproven = True
        """The broker has taken nothing of this producer epoch yet, or nothing since one came back.
        Without a batch of the producer's it takes any sequence number for the first: the second
        batch, if it has refused the first for a while (`ProducerAppendInfo.checkSequence`)."""
        self.renumber = False
        """A batch was given up: go on under the next epoch once nothing is in flight."""
        self.paused_until = 0.0
        self.pause_ms = BACKOFF_MS
        self.trouble: KafkaliteError | None = None
        """Why nothing was taken since the last batch that was."""

    @property
    def is_busy(self) -> bool:
        """Says whether there is anything on its way."""
        return bool(self.ready) or bool(self.in_flight)

    @property
    def is_unsure(self) -> bool:
        """Says whether the next batch may be in the log already: its answer was lost, or told
        nothing about that. Under other numbers it would be there twice."""
        return bool(self.ready) and self.ready[0].sequence >= 0 and not self.ready[0].is_missing

    @property
    def may_send(self) -> bool:
        """Says whether the next batch may go: alone, as long as the broker has to show that it
        takes them in their order, or others are to be renumbered."""
        if self.is_unproven and self.producer_id >= 0 and self.in_flight:
            return False
        return not self.renumber or (self.is_unsure and not self.in_flight)

    def follows_a_gap(self, batch: Batch) -> bool:
        """Says whether one before it has not been taken yet."""
        return any(each.order < batch.order for each in (*self.in_flight, *self.ready))

    def number(self, batch: Batch) -> None:
        """Gives a batch its sequence numbers, unless it has been sent before."""
        batch.is_missing = False
        if batch.sequence < 0:
            batch.producer_id, batch.epoch = self.producer_id, self.epoch
            batch.sequence = self.sequence
            self.sequence = (self.sequence + batch.count) % SEQUENCES

    def begin_epoch(self, producer_id: int, epoch: int) -> None:
        """Sends what is ready under another producer epoch. Nothing may be in flight or unsure."""
        for batch in self.ready:
            batch.sequence = -1
        self.producer_id, self.epoch = producer_id, epoch
        self.sequence, self.is_unproven = 0, True

    def put_back(self, batches: list[Batch]) -> None:
        """Has batches wait again, in the order in which they were closed."""
        self.is_unproven = True
        for batch in batches:
            later = (at for at, other in enumerate(self.ready) if other.order > batch.order)
            self.ready.insert(next(later, len(self.ready)), batch)

    def pause(self, now: float, error: KafkaliteError) -> None:
        """Sends nothing for a while, which is longer from time to time."""
        self.trouble = without_frames(error)
        self.paused_until = now + self.pause_ms / 1000
        self.pause_ms = min(2 * self.pause_ms, BACKOFF_MS_MAX)

    def is_given_up(self, now: float) -> bool:
        """Says whether the next batch is out of time. One that was not tried, though nothing stands
        against it, is tried first: it waited for a program that was stopped."""
        batch = self.ready[0]
        return now >= batch.deadline and (batch.was_sent or self.trouble is not None)
