"""The loads that are measured, a row each, with the target that the row is held against."""

from typing import Any, NamedTuple

PARTITIONS = 3
MB = 1 << 20

# Both sides throw segments away as fast, so that both write into pages that were in use before: the
# first use of a page costs a virtual machine more than all else.
RECYCLING = {
    "segment.bytes": str(64 * MB),
    "retention.bytes": str(64 * MB),
    "file.delete.delay.ms": "100",
}


class Target(NamedTuple):
    """`cpu`: Kafka's best CPU per unit over our median, at least. `rate`: our median over Kafka's
    best, at least. `p99`: our p99 over Kafka's, at most. None: reported only."""

    cpu: float | None = None
    rate: float | None = None
    p99: float | None = None
    p99_ms: float | None = None


class Shape(NamedTuple):
    """One load. `unit`: "request" (one record each) or "GB"."""

    name: str
    what: str
    mode: str
    unit: str
    arguments: dict[str, Any]
    target: Target = Target()
    is_busy: bool = False
    """A coordinator in Python, Java on the other side, is kept busy meanwhile."""


P1 = Shape(
    "p1",
    "100 B, one record a request, 1 connection, 1 in flight",
    "produce",
    "request",
    {"record_bytes": 100, "records": 1, "connections": 1, "inflight": 1},
    Target(cpu=10),
)
P16 = Shape(
    "p16",
    "100 B, one record a request, 16 connections, 5 in flight",
    "produce",
    "request",
    {"record_bytes": 100, "records": 1, "connections": 16, "inflight": 5},
    Target(cpu=12, rate=6),
)
P16K = Shape(
    "p16k",
    "16 KB batches of 1 KB records, 4 connections, 5 in flight",
    "produce",
    "GB",
    {"record_bytes": 1024, "records": 16, "connections": 4, "inflight": 5},
    Target(cpu=6, rate=4),
)
P1M = Shape(
    "p1m",
    "1 MB batches of 1 KB records, 4 connections, 2 in flight",
    "produce",
    "GB",
    {"record_bytes": 1024, "records": 1000, "connections": 4, "inflight": 2},
    Target(cpu=2.5, rate=1.5),
)
F1M = Shape(
    "f1m",
    "fetches of 1 MB, 3 connections",
    "fetch",
    "GB",
    {"max_bytes": MB, "connections": 3},
    Target(cpu=1 / 1.05, rate=1),
)
F50M = Shape(
    "f50m",
    "fetches of 50 MB, 3 connections",
    "fetch",
    "GB",
    {"max_bytes": 50 * MB, "connections": 3},
    Target(cpu=1 / 1.05, rate=1),
)
MIXED = Shape(
    "mixed",
    "16 KB batches produced beside fetches of 1 MB (the fetches are shown)",
    "mixed",
    "GB",
    {"max_bytes": MB, "connections": 3},
)
LATENCY = Shape(
    "lat1000",
    "1,000 records/s, open loop, 4 connections",
    "latency",
    "request",
    {"record_bytes": 100, "rate": 1000, "connections": 4},
    Target(p99=1 / 5),
)
LATENCY_BUSY = LATENCY._replace(
    name="lat1000 busy",
    what=LATENCY.what + ", offset commits beside",
    target=Target(p99=1 / 3),
    is_busy=True,
)
LATENCY_10K = Shape(
    "lat10000",
    "10,000 records/s, open loop, 4 connections",
    "latency",
    "request",
    {"record_bytes": 100, "rate": 10_000, "connections": 4},
    Target(p99_ms=10),
)


class Comparison(NamedTuple):
    """Which of our brokers against which topics of Kafka, in which loads."""

    name: str
    what: str
    our_fsync: str
    kafka_flushes: bool
    shapes: list[Shape]

    @property
    def is_like_for_like(self) -> bool:
        """Both sides promise the same."""
        return self.kafka_flushes == (self.our_fsync == "group")


def without_target(shape: Shape) -> Shape:
    """The shape where it is reported only."""
    return shape._replace(target=Target())


PRODUCE = [P1, P16, P16K, P1M]
COMPARISONS = [
    Comparison(
        "equal durability",
        "`kafkalite.acks.fsync=none` against Kafka's default: both answer from the page cache",
        "none",
        False,
        [*PRODUCE, F1M, F50M, MIXED, LATENCY, LATENCY_BUSY, LATENCY_10K],
    ),
    Comparison(
        "ours durable, Kafka's default",
        "kafkalite's default, on disk before the answer, against Kafka's, in the page cache",
        "group",
        False,
        [without_target(shape) for shape in PRODUCE],
    ),
    Comparison(
        "both durable",
        "kafkalite's default against Kafka with `flush.messages=1`",
        "group",
        True,
        [without_target(shape) for shape in PRODUCE],
    ),
]

# What a bare loop of write + fdatasync of the same sizes is measured at: bytes a write.
BARE = {"p1": 170, "p16": 170, "p16k": 16_700, "p1m": 1_040_000}
BARE_TARGET = 0.85
"""Of the bare loop's rate, reached with one connection or more."""

SINK_SHAPE = "p1"
"""The load whose requests are also sent to a loop without a broker: as many bytes each way."""
SINK_REQUEST_BYTES = 230
