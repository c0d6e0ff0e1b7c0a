"""A connection of a producer to one broker, and the batches that are in flight on it."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from kafkalite.client.network.connection import Connection
from kafkalite.client.producer.options import SendOptions
from kafkalite.client.producer.partition_queue import Batch
from kafkalite.errors import ClientError, ConnectionFailedError
from kafkalite.protocol import messages

__all__ = ["Link", "produce_request"]


class Link:
    """A connection of the producer's own, and what was sent on it and not answered, oldest first,
    each with the moment at which that is too late."""

    __slots__ = ("connection", "flights", "late", "node_id")

    def __init__(self, node_id: int, connection: Connection) -> None:
        self.node_id = node_id
        self.connection = connection
        self.flights: deque[tuple[float, list[Batch]]] = deque()
        self.late = float("inf")
        """The first of those moments, or an earlier one."""

    def hung_up(self, error: ClientError, times: int) -> ConnectionFailedError:
        """The error of a broker that hangs up again and again, with what may be the reason."""
        size = sum(len(batch.records) for batch in self.flights[0][1])
        return ConnectionFailedError(
            f"{error}, {times} times after each other; the request has {size} bytes of records: "
            "its socket.request.max.bytes may be less (request_bytes_max and batch_bytes bound it)"
        )


def produce_request(
    batches: Iterable[tuple[Batch, bytes]], options: SendOptions, transactional_id: str | None
) -> Any:
    """The request that has these batches, each with its bytes as they are sent."""
    kind = messages.ProduceRequest
    inner = kind.TopicProduceData
    topics: dict[str, Any] = {}
    for batch, records in batches:
        topic = topics.get(batch.topic)
        if topic is None:
            topic = topics[batch.topic] = inner(name=batch.topic)
        row = inner.PartitionProduceData(index=batch.partition, records=records)
        topic.partition_data.append(row)
    return kind(
        transactional_id=transactional_id,
        acks=options.acks,
        timeout_ms=options.request_timeout_ms,
        topic_data=list(topics.values()),
    )
