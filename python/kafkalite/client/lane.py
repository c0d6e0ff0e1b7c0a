"""What is on its way from a producer to one partition: the open batch, those that wait to be sent,
and those that were sent and not answered."""

import time
from collections import deque
from collections.abc import Callable

from kafkalite._native import BatchBuilder
from kafkalite.client.cluster import BACKOFF_MS
from kafkalite.errors import KafkaliteError

__all__ = ["Batch", "Lane", "OnDelivery", "OpenBatch"]

OnDelivery = Callable[[KafkaliteError | None, str, int, int], None]
"""Called once a record: the error or None, topic, partition, offset (-1 if it is not known)."""


class Batch:
    """A closed batch of one partition on its way."""

    __slots__ = (
        "count",
        "deadline",
        "epoch",
        "made_at",
        "number",
        "on_done",
        "partition",
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
        self.sequence = -1
        self.epoch = -1
        self.deadline = 0.0


class OpenBatch:
    """The batch that takes a partition's records."""

    __slots__ = ("builder", "callbacks", "count", "made_at", "size_bytes")

    def __init__(self, codec: str, level: int | None) -> None:
        self.builder = BatchBuilder(codec, level=level)
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
        "ready",
        "renumber",
        "sequence",
        "topic",
        "trouble",
    )

    def __init__(self, topic: str, partition: int, epoch: int) -> None:
        self.topic = topic
        self.partition = partition
        self.open: OpenBatch | None = None
        self.ready: deque[Batch] = deque()
        self.flying: deque[Batch] = deque()
        self.epoch = epoch
        self.sequence = 0
        self.acknowledged = 0
        """The sequence number after the last that the broker has taken."""
        self.renumber = False
        """A batch was given up: go on under the next epoch once nothing flies."""
        self.paused_until = 0.0
        self.pause_ms = BACKOFF_MS
        self.trouble: KafkaliteError | None = None
        """Why it was paused last."""
