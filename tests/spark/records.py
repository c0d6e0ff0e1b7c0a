"""The records that Spark reads, the same on every broker: made from one seed by librdkafka, which
knows every codec, and by Kafka's Java producer where it takes transactions.

    mixed         4 partitions, the last empty: every codec, null and empty keys and values, headers
                  (duplicate names, null values), timestamps out of order
    appended      2 partitions with the broker's time
    trimmed       2 partitions whose first records have been deleted
    compacted     1 partition out of which the cleaner has taken records
    large         1 partition: small records around values of 10 MB
    transactions  2 partitions: committed, aborted, and on partition 1 an open one at the end; only
                  on a broker that has transactions
"""

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kafkalite.client.admin import Admin
from oracle.tools import KafkaTools, Record
from oracle.topics import wait_until_led

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEED = 5
START_MS = 1_700_000_000_000
LARGE_BYTES = 10_000_000
LARGEST_MESSAGE_BYTES = 12_000_000
TRIMMED_BELOW = 37
COMPACTED_KEYS = 50
ROUNDS = 8
CLEANED_WITHIN_S = 180

TOPICS = {
    "mixed": (4, {}),
    "appended": (2, {"message.timestamp.type": "LogAppendTime"}),
    "trimmed": (2, {}),
    "compacted": (
        1,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "100",
            "delete.retention.ms": "600000",
        },
    ),
    "large": (1, {"max.message.bytes": str(LARGEST_MESSAGE_BYTES)}),
}


def mixed(topic: str, partitions: Sequence[int], count: int, seed: int) -> list[Record]:
    """`count` records in partitions drawn at random, of every shape that Kafka allows."""
    draw = random.Random(seed)

    def blob(size_max: int) -> bytes:
        return draw.randbytes(draw.randrange(size_max)) if draw.random() < 0.5 else b"plain text"

    def maybe(size_max: int) -> bytes | None:
        return draw.choice([None, b"", blob(size_max), blob(size_max), blob(size_max)])

    return [
        Record(
            topic,
            maybe(400),
            key=maybe(20),
            partition=draw.choice(partitions),
            timestamp=START_MS + draw.randrange(1_000_000),
            headers=tuple(
                (draw.choice(["a", "b", "", "größe"]), maybe(10))
                for _ in range(draw.choice([0, 0, 1, 3]))
            ),
        )
        for _ in range(count)
    ]


def send(servers: str, records: Iterable[Record], codec: str = "none") -> None:
    """Sends in order, in batches of at most 60 records; returns when all are acknowledged."""
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "batch.num.messages": 60,
            "linger.ms": 5,
            "max.in.flight": 1,  # in order
            "message.max.bytes": LARGEST_MESSAGE_BYTES,
        }
    )
    for record in records:
        producer.produce(
            record.topic,
            value=record.value,
            key=record.key,
            partition=record.partition,
            timestamp=record.timestamp or 0,
            headers=list(record.headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(180) == 0 and not failures, failures


def create(servers: str, topic: str, partitions: int = 1, **config: str) -> None:
    """A new topic; returns when producers may name it. It keeps what it is given: most records here
    are of 2023, and the first look for old ones comes five minutes after the broker's start."""
    admin = AdminClient({"bootstrap.servers": servers})
    named = {name.replace("_", "."): value for name, value in config.items()}
    named.setdefault("retention.ms", "-1")
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=named)
    admin.create_topics([new])[topic].result(120)
    wait_until_led(admin, topic, partitions)


@contextmanager
def hurried_cleaner(servers: str) -> Iterator[None]:
    """A Kafka whose cleaner does not rest for its usual 15 s. It is as before at the end, since
    other suites ask the same broker."""
    admin = AdminClient({"bootstrap.servers": servers})

    def alter(operation: AlterConfigOpType, value: str | None) -> None:
        name = "log.cleaner.backoff.ms"
        entry = ConfigEntry(name, value, incremental_operation=operation)
        node = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([node])[node].result(120)

    alter(AlterConfigOpType.SET, "200")
    try:
        yield
    finally:
        alter(AlterConfigOpType.DELETE, None)


def fill(servers: str, tools: KafkaTools, *, transactions: bool) -> None:
    """Makes the topics above; returns when they hold what they are to hold."""
    for topic, (partitions, config) in TOPICS.items():
        # The records are of 2023, and retention would be right to delete them.
        tools.create_topic(servers, topic, partitions, config | {"retention.ms": "-1"})
    for round_number in range(ROUNDS):
        send(servers, _same_keys(round_number), CODECS[round_number % len(CODECS)])
    for number, codec in enumerate(CODECS):
        send(servers, mixed("mixed", (0, 1, 2), 600, SEED + number), codec)
        send(servers, mixed("appended", (0, 1), 50, SEED - number), codec)
        send(servers, mixed("trimmed", (0, 1), 50, SEED + 7 * number), codec)
    with Admin(servers) as admin:
        admin.delete_records({("trimmed", 0): TRIMMED_BELOW})
    for codec in ("none", "zstd"):
        send(servers, _large(), codec)
    if transactions:
        _transactions(servers, tools)
    _await_cleaner(servers)


def _same_keys(round_number: int) -> Iterator[Record]:
    """Each round is a segment of its own, by its records' time: the cleaner leaves the last one."""
    draw = random.Random(round_number)
    for key in draw.sample(range(COMPACTED_KEYS), COMPACTED_KEYS // 2):
        value = None if key % 9 == 0 else b"%d in round %d" % (key, round_number)
        yield Record("compacted", value, key=b"%d" % key, timestamp=START_MS + 1000 * round_number)


def _large() -> list[Record]:
    draw = random.Random(SEED)
    noise = draw.randbytes(LARGE_BYTES)
    values = [b"before", noise, b"between", b"plain " * (LARGE_BYTES // 6), b"after"]
    return [Record("large", value, timestamp=START_MS) for value in values]


def _transactions(servers: str, tools: KafkaTools) -> None:
    topic = "transactions"
    tools.create_topic(servers, topic, 2, {"retention.ms": "-1"})
    config = {"transaction.timeout.ms": "900000", "compression.type": "lz4"}
    steps: list[Record | str] = []
    for number in range(12):
        steps.append("begin")
        for each in range(number + 1):
            steps.append(Record(topic, b"%d of %d" % (each, number), partition=each % 2))
        steps.append("commit" if number % 3 else "abort")
    tools.produce(servers, steps, config=config | {"transactional.id": "spark-ended"})
    tools.produce(servers, [Record(topic, b"outside", partition=each) for each in (0, 1)])
    left_open = ["begin", *(Record(topic, b"open %d" % each, partition=1) for each in range(5))]
    tools.produce(
        servers,
        [*left_open, "flush"],
        config=config | {"transactional.id": "spark-open"},
        producer="spark-open",
        close=False,
    )


def _await_cleaner(servers: str) -> None:
    """Polls until records are missing between the first and the last."""
    last = ROUNDS * (COMPACTED_KEYS // 2)
    deadline = time.monotonic() + CLEANED_WITHIN_S
    while True:
        offsets = _offsets(servers, "compacted", last)
        if len(offsets) < last * 3 // 4:
            return
        assert time.monotonic() < deadline, f"the cleaner left {len(offsets)} of {last} records"
        time.sleep(0.1)  # the pause of this poll


def _offsets(servers: str, topic: str, stop: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets: list[int] = []
    try:
        while not offsets or offsets[-1] < stop - 1:
            message = consumer.poll(60)
            assert message is not None, f"{topic} has no record {stop - 1}"
            offsets.append(message.offset())
    finally:
        consumer.close()
    return offsets
