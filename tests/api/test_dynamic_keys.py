"""Every key of the broker that may change while it runs changes what the broker does, and changes
it back: not only what DescribeConfigs tells."""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import kafkalite
from api.batches import batch
from api.config_cases import BROKER, DELETE, SET
from api.configs import change, set_topic
from api.raw import Connection
from kafkalite._native import BatchBuilder
from kafkalite.config.keys import KeyTable
from kafkalite.protocol import messages

HOUR_MS = 3_600_000
COMPRESSIBLE = b"".join(b"%d squared is %d. " % (each, each**2) for each in range(3_000))
EARLIEST = -2
_numbers = itertools.count()


class Place(NamedTuple):
    """A new topic, and how to look at it."""

    connection: Connection
    topic: str
    directory: Path

    def send(self, size: int = 10, age_ms: int = 0) -> int:
        """The error code of a batch of one record."""
        now = int(time.time() * 1000)
        records = batch([bytes(size)], timestamps=[now - age_ms])
        code: int = self.connection.produce(self.topic, records).error_code
        return code

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.directory.glob(f"*{suffix}"))

    def stored(self) -> bytes:
        records: bytes = self.connection.fetch(self.topic, 0).records
        return records

    def starts_at(self) -> int:
        offset: int = self.connection.list_offsets(self.topic, EARLIEST).offset
        return offset


def accepts(size: int, age_ms: int = 0) -> Callable[[Place], object]:
    return lambda place: place.send(size, age_ms) == 0


def is_compressed(place: Place) -> object:
    """Codec 1 is gzip."""
    place.send()
    return place.stored()[22] & 7 == 1


def size_with(codec: str) -> Callable[[Place], object]:
    """How small the broker makes a text."""

    def observe(place: Place) -> object:
        set_topic(place.connection, place.topic, compression_type=codec)
        assert place.connection.produce(place.topic, batch([COMPRESSIBLE])).error_code == 0
        return len(place.stored())

    return observe


def is_stamped(place: Place) -> object:
    answer = place.connection.produce(place.topic, batch([b"x"]))
    return answer.log_append_time_ms >= 0


def has_rolled(size: int, ages_ms: list[int]) -> Callable[[Place], object]:
    """Whether such batches lie in several segments."""

    def observe(place: Place) -> object:
        assert [place.send(size, age_ms) for age_ms in ages_ms] == [0] * len(ages_ms)
        return len(place.files(".log")) > 1

    return observe


def rolls_by_its_index(place: Place) -> object:
    set_topic(place.connection, place.topic, index_interval_bytes="0")
    return has_rolled(10, [0] * 8)(place)


def has_blocks(place: Place) -> object:
    (log,) = place.files(".log")
    return log.stat().st_blocks * 512 >= 1 << 20


def takes_no_record_without_a_key(place: Place) -> object:
    """As a compacted topic does."""
    return place.send() == 87


def send_an_old_record(place: Place) -> None:
    assert place.send(age_ms=2 * HOUR_MS) == 0


def send_two_segments(place: Place) -> None:
    set_topic(place.connection, place.topic, segment_bytes="1048576")
    assert [place.send(700_000) for _ in range(2)] == [0, 0]


def send_as_a_producer(place: Place) -> None:
    builder = BatchBuilder(producer_id=77, producer_epoch=0, base_sequence=0)
    builder.append(int(time.time() * 1000), None, b"x")
    assert place.connection.produce(place.topic, builder.finish()).error_code == 0


def producers(place: Place) -> list[object]:
    kind = messages.DescribeProducersRequest
    topic = kind.TopicRequest(name=place.topic, partition_indexes=[0])
    answer = place.connection.ask("DescribeProducers", 0, kind(topics=[topic]))
    found: list[object] = answer.topics[0].partitions[0].active_producers
    return found


class Case(NamedTuple):
    key: str
    text: str
    observe: Callable[[Place], object]
    """What it sees of a new topic differs while the key has the text."""


AT_ONCE = [
    Case("compression.type", "gzip", is_compressed),
    Case("compression.gzip.level", "1", size_with("gzip")),
    Case("compression.zstd.level", "-1000", size_with("zstd")),
    Case("log.cleanup.policy", "compact", takes_no_record_without_a_key),
    Case("log.index.size.max.bytes", "16", rolls_by_its_index),
    Case("log.message.timestamp.after.max.ms", str(5 * HOUR_MS), accepts(10, -2 * HOUR_MS)),
    Case("log.message.timestamp.before.max.ms", str(HOUR_MS), accepts(10, 2 * HOUR_MS)),
    Case("log.message.timestamp.type", "LogAppendTime", is_stamped),
    Case("log.preallocate", "true", has_blocks),
    Case("log.roll.ms", "1000", has_rolled(10, [HOUR_MS, 0])),
    Case("log.segment.bytes", "1048576", has_rolled(700_000, [0, 0])),
    Case("message.max.bytes", "150", accepts(200)),
]


class LaterCase(NamedTuple):
    key: str
    text: str
    act: Callable[[Place], None]
    has_happened: Callable[[Place], bool]
    """What will be, after `act`, while the key has the text."""


IN_TIME = [
    LaterCase("log.retention.bytes", "1", send_two_segments, lambda place: place.starts_at() == 1),
    LaterCase(
        "log.retention.ms", str(HOUR_MS), send_an_old_record, lambda place: place.starts_at() == 1
    ),
    LaterCase(
        "producer.id.expiration.ms", "1", send_as_a_producer, lambda place: not producers(place)
    ),
]

# The others, and what shows that they are obeyed.
ELSEWHERE = {
    "compression.lz4.level": "all levels are one (docs/DIFFERENCES.md)",
    "log.cleaner.backoff.ms": "tests/rust/housekeeper.rs",
    "log.cleaner.dedupe.buffer.size": "tests/rust/housekeeper.rs",
    "log.cleaner.delete.retention.ms": "as the other keys of logs, told to them together",
    "log.cleaner.io.buffer.load.factor": "tests/rust/housekeeper.rs",
    "log.cleaner.max.compaction.lag.ms": "as the other keys of logs, told to them together",
    "log.cleaner.min.cleanable.ratio": "as the other keys of logs, told to them together",
    "log.cleaner.min.compaction.lag.ms": "as the other keys of logs, told to them together",
    "log.flush.interval.messages": "as the other keys of logs, told to them together",
    "log.flush.interval.ms": "as the other keys of logs, told to them together",
    "follower.replication.throttled.rate": "tests/replication/test_throttle.py",
    "leader.replication.throttled.rate": "tests/replication/test_throttle.py",
    "log.index.interval.bytes": "as the other keys of logs, told to them together",
    "log.roll.jitter.ms": "as the other keys of logs, told to them together",
    "log.segment.delete.delay.ms": "as the other keys of logs, told to them together",
    "max.connection.creation.rate": "tests/api/test_limits.py",
    "max.connections": "tests/api/test_limits.py",
    "max.connections.per.ip": "tests/api/test_limits.py",
    "max.connections.per.ip.overrides": "tests/api/test_limits.py",
    "min.insync.replicas": "one replica is in sync with itself",
    "replica.alter.log.dirs.io.max.bytes.per.second": "tests/api/test_k34_….py",
}


def test_no_key_is_forgotten() -> None:
    table = KeyTable("broker.txt")
    dynamic = {name for name in table if table[name].is_dynamic}
    obeyed = {name for name in dynamic if table[name].support == "obeyed"}
    shown = {each.key for each in [*AT_ONCE, *IN_TIME]}
    assert shown | set(ELSEWHERE) == obeyed


@pytest.fixture(scope="module")
def broker() -> Iterator[kafkalite.Broker]:
    config = {
        "kafkalite.acks.fsync": "none",
        "log.retention.check.interval.ms": "50",
        "producer.id.expiration.check.interval.ms": "50",
    }
    with kafkalite.Broker(config=config) as running:
        yield running


def new_place(broker: kafkalite.Broker, connection: Connection) -> Place:
    name = f"place-{next(_numbers)}"
    assert connection.create_topic(name, segment_jitter_ms="0").error_code == 0
    assert broker.data is not None
    return Place(connection, name, Path(broker.data) / f"{name}-0")


@pytest.mark.parametrize("case", AT_ONCE, ids=lambda case: case.key)
@pytest.mark.parametrize("resource", ["", "1"], ids=["all", "this"])
def test_a_key_changes_what_the_broker_does_at_once_and_back(
    broker: kafkalite.Broker, connection: Connection, case: Case, resource: str
) -> None:
    before = case.observe(new_place(broker, connection))
    with_key = (BROKER, resource, [(case.key, SET, case.text)])
    assert change(connection, with_key) == [(0, None)]
    try:
        assert case.observe(new_place(broker, connection)) != before
    finally:
        without = (BROKER, resource, [(case.key, DELETE, None)])
        assert change(connection, without) == [(0, None)]
    assert case.observe(new_place(broker, connection)) == before


@pytest.mark.parametrize("case", IN_TIME, ids=lambda case: case.key)
def test_a_key_changes_what_the_broker_does_in_time(
    broker: kafkalite.Broker, connection: Connection, case: LaterCase
) -> None:
    place = new_place(broker, connection)
    case.act(place)
    assert not case.has_happened(place)
    assert change(connection, (BROKER, "1", [(case.key, SET, case.text)])) == [(0, None)]
    try:
        place = new_place(broker, connection)
        case.act(place)
        deadline = time.monotonic() + 60
        while not case.has_happened(place):
            assert time.monotonic() < deadline
    finally:
        without = (BROKER, "1", [(case.key, DELETE, None)])
        assert change(connection, without) == [(0, None)]
