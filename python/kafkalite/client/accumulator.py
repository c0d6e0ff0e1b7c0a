"""Collects a producer's records in open batches, one a partition, and closes those that are full or
old enough (`RecordAccumulator` of Kafka's producer).

    open(queue) ──► OpenBatch ── full, linger_ms old, or flushed ──► close(queue) ──► a closed batch

Records without a key fill a batch of one partition, then one of another that has a leader.
"""

import random
from typing import NamedTuple

from kafkalite._native import BatchBuilder
from kafkalite.client.cluster import TopicMetadata
from kafkalite.client.partition_queue import OpenBatch, PartitionQueue

__all__ = ["Accumulator", "BatchOptions", "draw"]

DRAWS = 4
"""So often a partition is drawn before those that have a leader are listed."""


class BatchOptions(NamedTuple):
    """How batches are made."""

    codec: str
    level: int | None
    linger_s: float
    batch_bytes: int
    transactional: bool


class Accumulator:
    """The open batches of a producer."""

    def __init__(self, options: BatchOptions) -> None:
        self.options = options
        self.batch_bytes = options.batch_bytes
        self.sticky: dict[str, PartitionQueue] = {}
        """By topic, where its records without a key go until the batch is closed."""
        self.open_bytes = 0
        """Of all open batches."""
        self.next_due = float("inf")
        """Monotonic seconds by which `take_due` is called."""
        self._opened: dict[PartitionQueue, OpenBatch] = {}
        """Those that are open, the oldest first."""

    def open(self, queue: PartitionQueue) -> OpenBatch:
        """The batch that takes the partition's next records."""
        options = self.options
        builder = BatchBuilder(
            options.codec, level=options.level, transactional=options.transactional
        )
        made = queue.open = self._opened[queue] = OpenBatch(builder, options.linger_s)
        self.open_bytes += made.size_bytes
        self.next_due = min(self.next_due, made.due)
        return made

    @property
    def open_count(self) -> int:
        """Batches that are open."""
        return len(self._opened)

    def close(self, queue: PartitionQueue) -> OpenBatch | None:
        """The open batch, if there is one, which takes no more records."""
        opened, queue.open = queue.open, None
        if opened is None:
            return None
        if self.sticky.get(queue.topic) is queue:
            del self.sticky[queue.topic]
        del self._opened[queue]
        self.open_bytes -= opened.size_bytes
        return opened

    def take_due(self, now: float) -> list[PartitionQueue]:
        """The partitions whose open batch is old enough to be closed, which the caller does."""
        found = []
        self.next_due = float("inf")
        for queue, opened in self._opened.items():
            if now < opened.due:
                self.next_due = opened.due
                break
            found.append(queue)
        return found

    def opened(self) -> list[PartitionQueue]:
        """The partitions that have an open batch."""
        return list(self._opened)


def draw(topic: TopicMetadata) -> int:
    """A partition for records without a key, one that has a leader if there is any."""
    partitions = topic.partitions
    for _ in range(DRAWS):
        drawn = random.randrange(len(partitions))  # noqa: S311
        row = partitions.get(drawn)
        if row is not None and row.leader >= 0:
            return drawn
    led = [row.partition for row in partitions.values() if row.leader >= 0]
    return random.choice(led or list(partitions))  # noqa: S311
