"""What is wrong is said in one sentence that names the option, topic or partition, and a job that
fails leaves no half-written results."""

import json
import random
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkalite import Broker
from kafkalite.client import Admin
from kafkalite.spark import reason
from oracle.broker import KafkaBroker
from oracle.tools import Record
from spark.proxy import CutProxy
from spark.reading import CONNECTOR, read, read_stream
from spark.records import START_MS, create, send

pytestmark = pytest.mark.oracle


@dataclass(frozen=True)
class Wrong:
    """Options of a batch query, and what must be said."""

    options: Mapping[str, Any]
    sentence: str
    connector_refuses: bool = True
    schema: str | None = None


def offsets(**by_topic: dict[str, int]) -> str:
    return json.dumps(by_topic)


WRONG = {
    "an option that nobody knows": Wrong(
        {"subscribe": "mixed", "startingOffset": "earliest"},
        "unknown option 'startingoffset', did you mean startingOffsets?",
        connector_refuses=False,
    ),
    "no topics": Wrong({}, "One of the following options must be specified for the source"),
    "topics in two ways": Wrong(
        {"subscribe": "mixed", "assign": json.dumps({"mixed": [0]})},
        "Only one of the following options can be specified for the source",
    ),
    "no brokers": Wrong(
        {"subscribe": "mixed", "kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"
    ),
    "a topic that is not there": Wrong({"subscribe": "no-such-topic"}, "no-such-topic"),
    "a partition that is not there": Wrong(
        {"assign": json.dumps({"mixed": [0, 9]})},
        "assign names partitions that do not exist: mixed-9",
        connector_refuses=False,  # it reads the others
    ),
    "partitions that are no list": Wrong(
        {"assign": json.dumps({"mixed": 0})}, 'assign must be as in {"topicA":[0,1]'
    ),
    "a pattern that is none": Wrong({"subscribePattern": "mixed("}, "subscribePattern is 'mixed('"),
    "a start behind the end": Wrong(
        {
            "assign": json.dumps({"mixed": [0]}),
            "startingOffsets": offsets(mixed={"0": 500}),
            "endingOffsets": offsets(mixed={"0": 400}),
        },
        "mixed-0: startingOffsets 500 is greater than endingOffsets 400",
    ),
    "a start below all offsets": Wrong(
        {"assign": json.dumps({"mixed": [0]}), "startingOffsets": offsets(mixed={"0": -5})},
        "startingOffsets for mixed-0 is -5, it must be an offset, -1 for latest or -2 for earliest",
    ),
    "an end that is not there yet": Wrong(
        {
            "assign": json.dumps({"mixed": [0]}),
            "endingOffsets": offsets(mixed={"0": 1_000_000}),
        },
        "mixed-0: offset 1000000 is not there yet, the log ends at ",
        connector_refuses=False,  # it waits for kafkaConsumer.pollTimeoutMs, and then fails
    ),
    "a start that is no longer there": Wrong(
        {"subscribe": "trimmed", "startingOffsets": offsets(trimmed={"0": 3, "1": 0})},
        "trimmed-0: offset 3 is no longer there, the log starts at 37",
    ),
    "partitions without a start": Wrong(
        {"subscribe": "trimmed", "startingOffsets": offsets(trimmed={"0": -2})},
        "startingOffsets must give offsets for all partitions that are read",
    ),
    "a start that is no JSON": Wrong(
        {"subscribe": "mixed", "startingOffsets": "first"}, "startingOffsets must be as in earliest"
    ),
    "a batch from latest": Wrong(
        {"subscribe": "mixed", "startingOffsets": "latest"},
        "startingOffsets: starting offset can't be latest for batch queries",
    ),
    "a batch to earliest": Wrong(
        {"subscribe": "mixed", "endingOffsets": "earliest"},
        "endingOffsets: ending offset can't be earliest for batch queries",
    ),
    "a timestamp that nothing follows": Wrong(
        {"subscribe": "trimmed", "startingTimestamp": START_MS + 10_000_000},
        f"startingTimestamp: trimmed-0 has no record at or after timestamp {START_MS + 10_000_000}",
    ),
    "a timestamp that is none": Wrong(
        {"subscribe": "mixed", "startingTimestamp": "yesterday"},
        "startingTimestamp is 'yesterday', it must be a whole number",
    ),
    "a number that is none": Wrong(
        {"subscribe": "mixed", "minPartitions": "many"},
        "minPartitions is 'many', it must be a whole number",
    ),
    "a flag that is none": Wrong(
        {"subscribe": "mixed", "failOnDataLoss": "maybe"},
        "failOnDataLoss is 'maybe', it must be true or false",
    ),
    "an isolation level that is none": Wrong(
        {"subscribe": "mixed", "kafka.isolation.level": "serializable"},
        "kafka.isolation.level is 'serializable', it must be read_uncommitted or read_committed",
    ),
    "a setting of the client that the connector keeps for itself": Wrong(
        {"subscribe": "mixed", "kafka.auto.offset.reset": "earliest"},
        "Kafka option 'kafka.auto.offset.reset' is not supported",
    ),
    "security that is not there": Wrong(
        {"subscribe": "mixed", "kafka.security.protocol": "SASL_SSL"},
        "kafka.security.protocol",
    ),
    "a column that is not there": Wrong(
        {"subscribe": "mixed", "columns": "value,size"}, "size", connector_refuses=False
    ),
    "a format that is none": Wrong(
        {"subscribe": "mixed", "value.format": "xml"},
        "value.format is 'xml', it must be",
        connector_refuses=False,
    ),
    "a schema that is none": Wrong(
        {"subscribe": "mixed", "value.format": "json", "value.schema": "id LONGISH"},
        "value.schema",
        connector_refuses=False,
    ),
    "a schema without a format": Wrong(
        {"subscribe": "mixed", "value.schema": "id LONG"},
        "value.schema has no meaning with value.format=binary",
        connector_refuses=False,
    ),
    "a column of another type": Wrong({"subscribe": "mixed"}, "value", schema="value INT"),
    "an engine that is none": Wrong(
        {"subscribe": "mixed", "engine": "steam"}, "engine is 'steam'", connector_refuses=False
    ),
}


def said(spark: SparkSession, source: str, servers: str, wrong: Wrong) -> str:
    """What the query fails with."""
    with pytest.raises(Exception) as caught:  # the text is judged by the caller
        options: dict[str, Any] = {"kafka.bootstrap.servers": servers, **wrong.options}
        if source == CONNECTOR:
            options["fetchOffset.numRetries"] = 1  # each is a second
        else:
            options.setdefault("engine", source)
        reader = spark.read.format("kafka" if source == CONNECTOR else "kafkalite")
        if wrong.schema is not None:
            reader = reader.schema(wrong.schema)
        reader.options(**options).load().collect()
    return str(caught.value)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_is_named_in_a_sentence(
    spark: SparkSession, topics: dict[str, str], engine: str, name: str
) -> None:
    text = said(spark, engine, topics["kafkalite"], WRONG[name])
    assert WRONG[name].sentence in text


def test_the_connector_refuses_the_same(spark: SparkSession, topics: dict[str, str]) -> None:
    for name, wrong in WRONG.items():
        if wrong.connector_refuses:
            assert said(spark, CONNECTOR, topics["kafkalite"], wrong), name


def test_a_stream_refuses_an_end(
    spark: SparkSession, topics: dict[str, str], engine: str, tmp_path: Path
) -> None:
    options = {"subscribe": "mixed", "endingOffsets": "latest"}
    with pytest.raises(Exception, match="endingOffsets: ending offset not valid in streaming"):
        (
            read_stream(spark, engine, topics["kafkalite"], options)
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
            .processAllAvailable()
        )


# --- in mid-stream --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream:
    """A topic, and a query that reads what it has."""

    spark: SparkSession
    engine: str
    servers: str
    topic: str
    checkpoint: Path

    def send(self, *values: str) -> None:
        send(self.servers, [Record(self.topic, value.encode()) for value in values])

    def run(self, **options: str) -> None:
        """To the end of the topic."""
        told = {"subscribe": self.topic, "startingOffsets": "earliest"} | {
            name.replace("__", "."): value for name, value in options.items()
        }
        frame = read_stream(self.spark, self.engine, self.servers, told)
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.checkpoint)).start().awaitTermination()


JSON = {"value__format": "json", "value__schema": "id BIGINT", "mode": "FAILFAST"}


def a_poisoned_record(stream: Stream) -> None:
    stream.send('{"id": 1}', '{"id')
    stream.run(**JSON)


def a_type_that_does_not_fit(stream: Stream) -> None:
    stream.send('{"id": 1}')
    stream.run(**JSON)
    stream.send('{"id": "one"}')
    stream.run(**JSON)


def retention_that_ran_ahead(stream: Stream) -> None:
    stream.send("a")
    stream.run()
    stream.send("b", "c", "d")
    with Admin(stream.servers) as admin:
        admin.delete_records({(stream.topic, 0): 3})
    stream.run()


def a_topic_made_anew(stream: Stream) -> None:
    stream.send("a")
    stream.run()
    with Admin(stream.servers) as admin:
        admin.delete_topics([stream.topic])
    create(stream.servers, stream.topic, 1)
    stream.send("b")
    stream.run()


def a_checkpoint_of_another_topic(stream: Stream) -> None:
    stream.send("a")
    stream.run()
    create(stream.servers, f"{stream.topic}-other", 1)
    stream.run(subscribe=f"{stream.topic}-other")


def a_checkpoint_of_another_source(stream: Stream) -> None:
    folder = stream.checkpoint.with_name("files")
    folder.mkdir()
    (folder / "a.json").write_text('{"id": 1}')
    writer = stream.spark.readStream.schema("id INT").json(str(folder)).writeStream.format("noop")
    writer = writer.trigger(availableNow=True)
    writer.option("checkpointLocation", str(stream.checkpoint)).start().awaitTermination()
    stream.run()


def a_misspelt_option(stream: Stream) -> None:
    stream.run(startingOfsets="latest")


def no_jdbc_driver(stream: Stream) -> None:
    reader = stream.spark.read.format("jdbc").option("url", "jdbc:sqlite::memory:")
    reader.option("driver", "org.nobody.Driver").option("dbtable", "t").load()


def no_jar_of_a_sink(stream: Stream) -> None:
    stream.send("a")
    frame = read_stream(stream.spark, stream.engine, stream.servers, {"subscribe": stream.topic})
    writer = frame.writeStream.format("nobodys-table")
    writer.option("checkpointLocation", str(stream.checkpoint)).start()


IN_MID_STREAM: dict[Callable[[Stream], None], str] = {
    a_poisoned_record: (
        r"invalid record: the value of {topic}-0 at offset 1 is not the json that is wanted, and "
        r"mode=FAILFAST: .+"
    ),
    a_type_that_does_not_fit: (
        r"invalid record: the value of {topic}-0 at offset 1 is not the json that is wanted, and "
        r"mode=FAILFAST: .*id.*"
    ),
    retention_that_ran_ahead: (
        r"{topic}-0: offset 1 is no longer there, the log starts at 3 \(offsets gone: 2\) "
        r"\(failOnDataLoss=false goes on with what there is\)"
    ),
    a_topic_made_anew: (
        r"the topic {topic} was deleted and recreated \(its id was \S+, it is \S+\) "
        r"\(failOnDataLoss=false goes on with what there is\)"
    ),
    a_checkpoint_of_another_topic: (
        r"the checkpoint is of {topic}, none of which this query reads: a query of other topics "
        r"needs a checkpoint of its own \(failOnDataLoss=false goes on with what there is\)"
    ),
    a_checkpoint_of_another_source: (
        r'the checkpoint\'s offsets are {{"logOffset": ?0}}, which are not offsets of '
        r"topics .*: a query of this source needs a checkpoint of its own"
    ),
    a_misspelt_option: r"unknown option 'startingofsets', did you mean startingOffsets\?",
    no_jdbc_driver: (
        r"Spark has no class org\.nobody\.Driver: name what has it in spark\.jars or "
        r"spark\.jars\.packages"
    ),
    no_jar_of_a_sink: r"\[DATA_SOURCE_NOT_FOUND\] .* the data source: nobodys-table\. .*",
}


@pytest.mark.parametrize("case", IN_MID_STREAM, ids=lambda case: case.__name__)
def test_the_reason_why_a_query_fails_is_one_sentence(
    spark: SparkSession,
    broker: Broker,
    engine: str,
    tmp_path: Path,
    case: Callable[[Stream], None],
) -> None:
    topic = f"{case.__name__.replace('_', '-')}-{engine}"
    create(broker.bootstrap_servers, topic, 1)
    stream = Stream(spark, engine, broker.bootstrap_servers, topic, tmp_path / "checkpoint")
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        case(stream)
    wanted = IN_MID_STREAM[case].format(topic=topic)
    assert re.fullmatch(wanted, reason(caught.value)), reason(caught.value)


# --- in mid-job -----------------------------------------------------------------------------------


def left_behind(folder: Path) -> list[str]:
    """What a reader of the folder would see of a job that has failed."""
    if not folder.exists():
        return []
    visible = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in visible if path.parts[0] != "_temporary"]


def test_a_broker_that_goes_in_mid_read_fails_the_job_without_results(
    spark: SparkSession, engine: str, tmp_path: Path
) -> None:
    draw = random.Random(8)
    with CutProxy(bytes_max=3_000_000) as proxy:
        told = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with Broker(config=told) as broker:
            bound = re.search(r"listener PLAINTEXT on (\S+),", broker.log_tail(100))
            assert bound is not None
            proxy.to(bound[1])
            servers = broker.bootstrap_servers
            assert servers == f"127.0.0.1:{proxy.port}"
            create(servers, "cut-off", 2)
            send(
                servers,
                [
                    Record("cut-off", draw.randbytes(50_000), partition=number % 2)
                    for number in range(120)
                ],
            )
            options = {
                "subscribe": "cut-off",
                "kafka.max.partition.fetch.bytes": 200_000,
                "kafka.fetch.max.bytes": 200_000,
                # A broker that is gone refuses at once: only the last of these is waited for.
                "kafka.request.timeout.ms": 20_000,
                "kafka.default.api.timeout.ms": 40_000,
                "kafkaConsumer.pollTimeoutMs": 4_000,
            }
            frame = read(spark, engine, servers, options)
            with pytest.raises(Exception) as caught:  # the text is judged below
                frame.write.parquet(str(tmp_path / "results"))
            assert proxy.is_cut
    assert re.search(r"cut-off-[01]\b", str(caught.value)), caught.value
    assert left_behind(tmp_path / "results") == []


def test_a_damaged_file_fails_the_job_without_results(
    spark: SparkSession, kafka: KafkaBroker, topics: dict[str, str], engine: str, tmp_path: Path
) -> None:
    del topics  # they are there
    copy = tmp_path / "mixed-0"
    shutil.copytree(kafka.partition("mixed"), copy)
    (segment,) = copy.glob("*.log")
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged.rstrip(b"\0")) // 2] ^= 1
    segment.write_bytes(damaged)
    frame = spark.read.format("kafkalite").option("engine", engine).load(str(copy))
    with pytest.raises(Exception) as caught:  # the text is judged below
        frame.write.parquet(str(tmp_path / "results"))
    assert re.search(r"mixed-0\b.*CRC", str(caught.value)), caught.value
    assert left_behind(tmp_path / "results") == []
