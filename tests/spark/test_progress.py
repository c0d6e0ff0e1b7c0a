"""How far a stream is, for who looks from outside: the consumer group of `commitOffsetsToGroup` by
Kafka's own tool and ours, and what a StreamingQueryListener hears."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQueryListener

import kafkalite.spark
from kafkalite import Broker
from oracle.tools import KafkaTools
from spark.reading import read_stream, without_ids
from spark.records import create, send
from spark.test_streams import texts

pytestmark = pytest.mark.oracle

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
HEARD_S = 60


def lags(kafka_tools: KafkaTools, servers: str, group: str) -> list[tuple[str, str]]:
    """Committed offset and lag of each partition, as kafka-consumer-groups and our command print
    them: the same."""
    given = ["--bootstrap-server", servers, "--describe", "--group", group]
    theirs = kafka_tools.run_tool(GROUPS, given)
    assert theirs.exit == 0, theirs.stderr
    rows = [line.split() for line in theirs.stdout.splitlines() if line.startswith(group)]
    found = sorted((row[2], row[3], row[5]) for row in rows)
    ours = subprocess.run(
        [sys.executable, "-m", "kafkalite", "groups", "describe", group, "--bootstrap-server",
         servers],
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    for _, offset, left in found:
        assert any({offset, left} <= set(line.split()) for line in ours.stdout.splitlines())
    return [(offset, left) for _, offset, left in found]


def test_a_group_follows_what_the_sink_has(
    spark: SparkSession, broker: Broker, kafka_tools: KafkaTools, engine: str, tmp_path: Path
) -> None:
    servers, topic, group = broker.bootstrap_servers, f"watched-{engine}", f"job-{engine}"
    create(servers, topic, 2)
    send(servers, [*texts(topic, 0, *"abcd"), *texts(topic, 1, *"ef")])
    seen: list[list[tuple[str, str]]] = []

    def look(_: DataFrame, __: int) -> None:
        """While a micro-batch is under way."""
        seen.append(lags(kafka_tools, servers, group))

    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "3",
        "commitOffsetsToGroup": group,
    }
    query = (
        read_stream(spark, engine, servers, options)
        .writeStream.foreachBatch(look)
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.awaitTermination()
    assert seen == [[("0", "4"), ("0", "2")], [("2", "2"), ("1", "1")]]
    assert lags(kafka_tools, servers, group) == [("4", "0"), ("2", "0")]
    send(servers, texts(topic, 0, "late"))
    assert lags(kafka_tools, servers, group) == [("4", "1"), ("2", "0")]


class Listener(StreamingQueryListener):
    """Keeps what it hears until the query ends."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.is_over = threading.Event()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.heard.append(event.progress)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802, ARG002
        self.is_over.set()


def test_a_listener_hears_offsets_rows_and_lag(
    spark: SparkSession, broker: Broker, engine: str
) -> None:
    servers, topic = broker.bootstrap_servers, f"heard-{engine}"
    create(servers, topic, 2)
    send(servers, [*texts(topic, 0, *"abcd"), *texts(topic, 1, *"efgh")])
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    listener = Listener()
    spark.streams.addListener(listener)
    try:
        frame = read_stream(spark, engine, servers, options)
        query = frame.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        assert listener.is_over.wait(HEARD_S)
    finally:
        spark.streams.removeListener(listener)
    told = [progress for progress in listener.heard if progress.numInputRows]
    assert [progress.numInputRows for progress in told] == [4, 4]
    assert [kafkalite.spark.lag(progress) for progress in told] == [4, 0]
    ends = [without_ids(json.loads(progress.sources[0].endOffset)) for progress in told]
    assert ends == [{topic: {"0": 2, "1": 2}}, {topic: {"0": 4, "1": 4}}]
    metrics = [progress.sources[0].metrics for progress in told]
    if engine == "jvm":
        assert [each["maxOffsetsBehindLatest"] for each in metrics] == ["2", "0"]
    else:
        assert metrics == [{}, {}], "Spark asks Python sources for metrics now: fill them"
