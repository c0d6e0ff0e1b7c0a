"""A transactional stream between two topics of kafkalite: the query and the broker are killed amid
micro-batches, and who reads what is committed finds each record once."""

import time
from collections.abc import Generator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkalite import Broker
from oracle.tools import Record
from spark.records import START_MS, create, send
from spark.test_kill import START_S, Query
from spark.test_writing import values
from spark.transactional_query import HOLD, start_copying

pytestmark = pytest.mark.oracle

PARTITIONS = 2
PER_TRIGGER = 4_000
KILLS_SHORT, KILLS_LONG = 1, 8
SOURCE, TARGET = "source", "target"
CONFIG = {
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.retention.ms": "-1",
}


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kills", [KILLS_SHORT, pytest.param(KILLS_LONG, marks=pytest.mark.long)])
def test_each_record_is_committed_once_whatever_is_killed(
    spark: SparkSession, tmp_path: Path, kills: int
) -> None:
    with Broker(tmp_path / "data", config=CONFIG) as broker:
        servers = broker.bootstrap_servers
        for name in (SOURCE, TARGET):
            create(servers, name, PARTITIONS)
        count, hold = 0, tmp_path / HOLD
        ends = ends_of_target(servers)
        arguments = (servers, SOURCE, TARGET, str(PER_TRIGGER))
        for _ in range(kills):
            count = feed(servers, count)
            hold.touch()
            with Query(tmp_path, *arguments, program="spark.transactional_query") as query:
                wait_for_more(ends)
                query.kill_after(0)
            copying = start_copying(spark, tmp_path, *arguments, available_now=True)
            wait_for_more(ends)
            broker.kill()
            broker.start()
            hold.unlink()
            try:
                copying.awaitTermination()
            except PySparkException:
                # As a user would: what a task cannot do fails the query.
                again = start_copying(spark, tmp_path, *arguments, available_now=True)
                again.awaitTermination()
        wanted = sorted(text(number).decode() for number in range(count))
        assert values(servers, TARGET, committed=True) == wanted
        assert len(values(servers, TARGET)) > count, "it was killed between micro-batches"
        ends.close()


def text(number: int) -> bytes:
    """Long enough that a micro-batch takes a while."""
    return b"%d" % number + b" " * 400


def feed(servers: str, count: int) -> int:
    """Sends a micro-batch more; returns how many there are."""
    numbers = range(count, count + PER_TRIGGER)
    records = [
        Record(SOURCE, text(each), partition=each % PARTITIONS, timestamp=START_MS + each)
        for each in numbers
    ]
    send(servers, records, "lz4")
    return numbers.stop


def ends_of_target(servers: str) -> Generator[int, None, None]:
    """The sum of the ends of its partitions, of what is not committed too; anew each time."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )
    places = [TopicPartition(TARGET, each) for each in range(PARTITIONS)]
    try:
        while True:
            yield sum(consumer.get_watermark_offsets(each, 60)[1] for each in places)
    finally:
        consumer.close()


def wait_for_more(ends: Generator[int, None, None]) -> None:
    """Until a micro-batch is under way."""
    before = next(ends)
    deadline = time.monotonic() + START_S
    while next(ends) <= before:
        assert time.monotonic() < deadline, "the query writes nothing"
        time.sleep(0.05)  # between two polls of the ends
