"""The first micro-batch of a stream that starts at the end of the log while records come in: its
start is decided once, however often it is asked for, and Spark repeats it after a failure."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from kafkalite import Broker
from kafkalite.client import Producer
from oracle.tools import Record
from spark.reading import CONNECTOR, read_stream, stream_what_is_there, without_ids
from spark.records import START_MS, create, send

pytestmark = pytest.mark.oracle

FROM_LATEST = {"startingOffsets": "latest"}


def numbered(topic: str, start: int, stop: int) -> list[Record]:
    return [Record(topic, b"%d" % each, timestamp=START_MS + each) for each in range(start, stop)]


def fail_at_first(spark: SparkSession, source: str, servers: str, topic: str, folder: Path) -> None:
    """Leaves a checkpoint whose first micro-batch was planned and not finished."""

    def refuse(_: DataFrame, number: int) -> None:
        raise RuntimeError(f"the sink is full at {number}")

    writer = read_stream(spark, source, servers, {"subscribe": topic, **FROM_LATEST}).writeStream
    query = writer.foreachBatch(refuse).option("checkpointLocation", str(folder)).start()
    try:
        with pytest.raises(StreamingQueryException, match="the sink is full at 0"):
            query.awaitTermination()
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("before", "after"),
    [("python", "python"), ("jvm", "jvm"), (CONNECTOR, "jvm"), ("jvm", CONNECTOR)],
)
def test_a_first_micro_batch_that_failed_begins_where_it_began(
    spark: SparkSession, broker: Broker, before: str, after: str, tmp_path: Path
) -> None:
    """It began where the log ended when it was repeated, behind the end that its checkpoint says,
    and the query failed in every run. The columnar engine keeps the start as the connector does,
    so that each finds what the other has kept."""
    topic = f"failed-at-first-{before}-{after}"
    servers = broker.bootstrap_servers
    create(servers, topic, 1)
    send(servers, numbered(topic, 0, 3))
    fail_at_first(spark, before, servers, topic, tmp_path)
    send(servers, numbered(topic, 3, 8))
    options = {"subscribe": topic, **FROM_LATEST}
    found = stream_what_is_there(spark, after, servers, options, tmp_path)
    assert found.ends == [{topic: {"0": 3}}, {topic: {"0": 8}}]
    assert [[row[4] for row in batch] for batch in found.batches] == [[], [3, 4, 5, 6, 7]]
    kept = tmp_path / "sources" / "0" / "0"
    if before != "python":
        head, _, offsets = kept.read_bytes().partition(b"\n")
        assert (head, without_ids(json.loads(offsets))) == (b"\0v1", {topic: {"0": 3}})


@contextmanager
def traffic(servers: str, topic: str) -> Iterator[None]:
    """Records all the time, from before the body on."""
    runs, over = threading.Event(), threading.Event()

    def produce() -> None:
        with Producer(servers) as producer:
            while not over.is_set():
                producer.send(topic, b"more", partition=0)
                producer.flush()
                runs.set()

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        assert runs.wait(60)
        yield
    finally:
        over.set()
        thread.join()


def test_a_run_from_latest_that_is_to_end_does_so_while_records_come_in(
    spark: SparkSession, broker: Broker, engine: str, tmp_path: Path
) -> None:
    """The columnar engine asked for the end before the start, and for the start twice: the start
    lay behind, and the query failed in its first micro-batch."""
    topic = f"busy-{engine}"
    servers = broker.bootstrap_servers
    create(servers, topic, 1)
    with traffic(servers, topic):
        options = {"subscribe": topic, **FROM_LATEST}
        found = stream_what_is_there(spark, engine, servers, options, tmp_path)
    read = [row[4] for batch in found.batches for row in batch]
    assert read == list(range(found.ends[-1][topic]["0"] - len(read), found.ends[-1][topic]["0"]))
