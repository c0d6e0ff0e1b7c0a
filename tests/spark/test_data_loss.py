"""Records that are gone when a task comes for them: they were there when the query was planned."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kafkalite import Broker
from kafkalite.client.admin import Admin
from kafkalite.spark import reason
from spark.reading import read
from spark.records import create, mixed, send

RECORDS, GONE = 100, 40
WAIT_S = 60.0


def lost(topic: str) -> str:
    """What a user is told, whoever finds it: a task of either engine, or a broker's listener."""
    gone = f"(offsets gone: {GONE})"
    return f"{topic}-0: offset 0 is no longer there, the log starts at {GONE} {gone}"


@pytest.fixture(scope="module")
def listening() -> Iterator[Broker]:
    """A broker that the columnar engine reads from without a process in between."""
    config = {"kafkalite.arrow.listener": "127.0.0.1:0", "log.retention.ms": "-1"}
    with Broker(config=config) as broker:
        yield broker


@pytest.fixture(params=["python", "child", "listener"])
def way(request: pytest.FixtureRequest, broker: Broker, listening: Broker) -> tuple[str, str, str]:
    """The engine, the broker, and a topic of one's own."""
    name: str = request.param
    engine = "python" if name == "python" else "jvm"
    servers = (listening if name == "listener" else broker).bootstrap_servers
    test: str = request.function.__name__
    return engine, servers, f"{test.removeprefix('test_')[:60]}-{name}"


def planned(
    spark: SparkSession, way: tuple[str, str, str], rows_max: int = RECORDS, **options: Any
) -> DataFrame:
    """A query of offsets whose beginning is deleted once it is planned."""
    engine, servers, topic = way
    create(servers, topic, 1)
    send(servers, mixed(topic, (0,), RECORDS, seed=5))
    frame = read(spark, engine, servers, {"subscribe": topic, **options}).select("offset")
    if rows_max < RECORDS:
        frame = frame.limit(rows_max)
    leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    assert leaf.inputPartitions().size() == 1
    with Admin(servers) as admin:
        admin.delete_records({(topic, 0): GONE})
    return frame


def warned(spark: SparkSession, topic: str) -> str:
    """The line about the topic in the log of Spark's JVM, which a child's line reaches in its own
    time."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    log = Path(jvm.System.getProperty("kafkalite.test.log"))
    deadline = time.monotonic() + WAIT_S
    while True:
        lines = [each for each in log.read_text().splitlines() if topic in each]
        if lines:
            (line,) = lines
            return line
        assert time.monotonic() < deadline
        time.sleep(0.02)  # the pause of this poll


def test_lost_records_fail_the_query(spark: SparkSession, way: tuple[str, str, str]) -> None:
    """The broker's Arrow listener said nothing of what to do."""
    frame = planned(spark, way)
    with pytest.raises(Exception) as caught:
        frame.collect()
    told = f"{lost(way[2])} (failOnDataLoss=false goes on with what there is)"
    assert reason(caught.value) == told


def test_lost_records_are_skipped_with_a_warning(
    spark: SparkSession, way: tuple[str, str, str]
) -> None:
    """The columnar engine said nothing where a broker's Arrow listener answered."""
    engine, _, topic = way
    frame = planned(spark, way, failOnDataLoss="false")
    assert [each.offset for each in frame.collect()] == list(range(GONE, RECORDS))
    if engine == "jvm":  # the Python engine warns in the worker's own output
        line = warned(spark, topic)
        assert " WARN " in line and "data may have been lost: " in line
        assert line.endswith(lost(topic))


def test_a_query_that_stops_early_warns_too(
    spark: SparkSession, listening: Broker, request: pytest.FixtureRequest
) -> None:
    topic = request.function.__name__
    way = ("jvm", listening.bootstrap_servers, topic)
    frame = planned(spark, way, rows_max=1, failOnDataLoss="false")
    assert [each.offset for each in frame.collect()] == [GONE]
    assert f"{topic}-0: offset 0 is no longer there" in warned(spark, topic)
