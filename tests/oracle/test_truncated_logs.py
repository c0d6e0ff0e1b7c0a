"""A consumer finds out that its leader has lost what was read, by what Kafka says of leader epochs
(KIP-320)."""

import shutil
import time
from pathlib import Path

import pytest

from kafkalite.client import Admin, Consumer, Producer
from kafkalite.errors import OffsetOutOfRangeError
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools

pytestmark = pytest.mark.oracle

TOPIC = "cut"
PLACE = (TOPIC, 0)
DEADLINE_S = 60


def fill(servers: str, *values: str) -> None:
    with Producer(servers) as producer:
        for value in values:
            producer.send(TOPIC, value.encode(), partition=0)


def read(consumer: Consumer, count: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        found += [(each.offset, (each.value or b"").decode()) for each in consumer.poll(200)]
    return found


def test_what_took_the_place_of_lost_records_is_read(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """The consumer went on at its offset, behind records that it had never seen."""
    with KafkaBroker(kafka_tools, tmp_path) as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topic(TOPIC, partitions=1)
        fill(servers, "a", "b")
        kept = tmp_path / "kept"
        shutil.copytree(broker.partition(TOPIC), kept)
        fill(servers, "lost", "lost")
        with (
            Consumer(servers) as earliest,
            Consumer(servers, offset_reset="none") as strict,
        ):
            for consumer in (earliest, strict):
                consumer.assign({PLACE: 0})
                assert read(consumer, 4) == [(0, "a"), (1, "b"), (2, "lost"), (3, "lost")]
            broker.kill()
            shutil.rmtree(broker.partition(TOPIC))
            kept.rename(broker.log_dirs[0] / f"{TOPIC}-0")
            broker.start()
            fill(servers, "c", "d", "e")
            assert read(earliest, 3) == [(2, "c"), (3, "d"), (4, "e")]
            with pytest.raises(OffsetOutOfRangeError, match="new leader, which ends at 2"):
                read(strict, 1)
