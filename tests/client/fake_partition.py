"""A broker that takes what a producer sends, and what producers of tests do."""

import threading
import time
from collections.abc import Callable
from typing import Any

from kafkalite._native import read_batches
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.errors import (
    KafkaliteError,
)
from kafkalite.protocol import messages


class Log:
    """One partition of a fake broker, with Kafka's rule of sequence numbers. `refuse` has the code
    for the n-th batch that comes in."""

    def __init__(
        self, refuse: dict[int, int] | None = None, batch_bytes_max: int = 1 << 20
    ) -> None:
        self.refuse = refuse or {}
        self.batch_bytes_max = batch_bytes_max
        self.sizes: list[int] = []
        self.came = 0
        self.values: list[bytes] = []
        self.stamps: list[tuple[int, int, int]] = []
        self._next: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()

    def take(self, records: bytes) -> tuple[int, int]:
        """Error code and base offset."""
        (batch,) = read_batches(records)
        with self._lock:
            self.came += 1
            code = self.refuse.get(self.came, 0)
            if code:
                return code, -1
            if len(records) > self.batch_bytes_max:
                return 10, -1
            stamp = (batch.producer_id, batch.producer_epoch)
            # Of a producer that it has nothing of a broker takes any number for the first.
            is_known = any(producer_id == batch.producer_id for producer_id, _ in self._next)
            due = self._next.get(stamp, 0 if is_known else batch.base_sequence)
            if batch.producer_id >= 0 and batch.base_sequence < due:
                return 46, -1
            if batch.producer_id >= 0 and batch.base_sequence > due:
                return 45, -1
            self._next[stamp] = due + len(batch.records)
            self.stamps.append((*stamp, batch.base_sequence))
            base = len(self.values)
            self.values += [value for _, _, _, value, _ in batch.records]
            self.sizes.append(len(records))
            return 0, base

    def __call__(self, name: str, request: Any) -> Any:
        if name != "Produce":
            return ...
        return produce_response(request, self.take)


def produce_response(request: Any, take: Any) -> Any:
    kind = messages.ProduceResponse
    inner = kind.TopicProduceResponse
    topics = []
    for topic in request.message.topic_data:
        rows = []
        for row in topic.partition_data:
            code, base = take(row.records)
            rows.append(
                inner.PartitionProduceResponse(index=row.index, error_code=code, base_offset=base)
            )
        topics.append(inner(name=topic.name, partition_responses=rows))
    return kind(responses=topics)


def send_each(producer: DrivenProducer, count: int) -> list[tuple[KafkaliteError | None, int]]:
    """Sends values 0, 1, … in a batch each; what was told of each."""
    told: list[tuple[KafkaliteError | None, int]] = []
    for number in range(count):
        producer.send(
            "orders",
            str(number).encode(),
            partition=0,
            on_delivery=lambda error, _topic, _partition, offset: told.append((error, offset)),
        )
    return told


def values(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def poll_until(producer: DrivenProducer, reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        producer.poll(10)
