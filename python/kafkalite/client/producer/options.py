"""Options of a producer, as `Producer` has checked them: how batches are made, and how sent."""

from typing import NamedTuple

__all__ = ["BatchOptions", "SendOptions"]


class BatchOptions(NamedTuple):
    """When a batch is closed, and how much may be under way."""

    linger_s: float
    batch_bytes: int
    buffer_bytes: int


class SendOptions(NamedTuple):
    """How batches are sent; `acks` as the protocol counts."""

    acks: int
    idempotent: bool | None
    """None: if the broker can."""
    wants_id: bool
    codec: str
    level: int | None
    request_bytes_max: int
    max_in_flight: int
    """Requests a broker. With 1 the batches of a partition go one after the other, though it be led
    by another broker meanwhile: they keep their order without numbers (`Sender` of Kafka's)."""
    delivery_timeout_ms: int
    request_timeout_ms: int
