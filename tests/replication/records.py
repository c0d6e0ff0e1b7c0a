"""Records that are sent to brokers under test, and acknowledged."""

from collections.abc import Iterable

from confluent_kafka import Producer

FLUSH_S = 120
TIMEOUT_MS = 90_000


def produce(
    servers: str,
    topic: str,
    values: Iterable[str | bytes],
    *,
    acks: str = "all",
    partitions: int = 1,
) -> None:
    """Sends them to so many partitions in turn; returns once all of them are acknowledged."""
    refused: list[object] = []
    settings = {"bootstrap.servers": servers, "acks": acks, "linger.ms": 5}
    producer = Producer({**settings, "message.timeout.ms": TIMEOUT_MS})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=number % partitions,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(FLUSH_S) == 0
    assert refused == []
