"""`format("kafkalite")` writes what Spark's own connector writes, and nothing that is half done."""

import json
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions

import kafkalite
from kafkalite import Broker
from kafkalite.client import Admin
from kafkalite.client.network.cluster import Cluster
from kafkalite.protocol.messages import ListTransactionsRequest
from kafkalite.spark.sink import STAGE_ATTEMPTS, TASK_ATTEMPTS
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from oracle.topics import wait_until_settled
from spark.reading import CONNECTOR, read

pytestmark = pytest.mark.oracle

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SINKS = ("kafkalite", CONNECTOR)


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def new_topic(servers: str) -> Iterator[str]:
    name = f"written-{uuid.uuid4().hex[:8]}"
    with Admin(servers) as admin:
        admin.create_topic(name, partitions=3)
    yield name


def write(frame: DataFrame, servers: str, sink: str = "kafkalite", **options: Any) -> None:
    writer = frame.write.format(sink).option("kafka.bootstrap.servers", servers)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.mode("append").save()


def sentence(error: BaseException) -> str:
    return " ".join(str(error).split())


def values(servers: str, topic: str, *, committed: bool = False) -> list[str]:
    """What readers see; of committed rows, once the transactions that have ended are through."""
    if committed:
        wait_until_settled(AdminClient({"bootstrap.servers": servers}), topic)
    isolation = "read_committed" if committed else "read_uncommitted"
    read_back = kafkalite.read_arrow(topic, servers, columns=["value"], isolation=isolation)
    return sorted(value.decode() for value in read_back.to_pyarrow()["value"].to_pylist())


def sample(spark: SparkSession, topics: tuple[str, ...], count: int = 3_000) -> DataFrame:
    """Every column, with nulls; the partition is given, or that of the key."""
    number = functions.col("id")
    header = functions.struct(
        functions.lit("n").alias("key"), number.cast("string").cast("binary").alias("value")
    )
    empty = functions.struct(
        functions.lit("none").alias("key"), functions.lit(None).cast("binary").alias("value")
    )
    return spark.range(count).select(
        functions.when(number % 3 != 0, functions.concat(functions.lit("key "), number % 50))
        .cast("binary")
        .alias("key"),
        functions.when(number % 7 != 0, functions.concat(functions.lit("value "), number)).alias(
            "value"
        ),
        functions.element_at(
            functions.array(*map(functions.lit, topics)), (number % len(topics) + 1).cast("int")
        ).alias("topic"),
        functions.when(number % 3 == 0, (number % 2).cast("int")).alias("partition"),
        functions.when(number % 5 == 0, functions.array(header, empty)).alias("headers"),
    )


def written(spark: SparkSession, servers: str, sink: str, codec: str) -> list[str]:
    """Writes the sample to two topics; what the connector then reads there."""
    topics = (f"one-{sink}-{codec}", f"two-{sink}-{codec}")
    with Admin(servers) as admin:
        for topic in topics:
            admin.create_topic(topic, partitions=3)
    frame = sample(spark, topics)
    write(frame, servers, sink, kafka__compression__type=codec, kafka__batch__size=4_096)
    options = {"subscribe": ",".join(topics), "includeHeaders": "true"}
    place = functions.split("topic", "-")[0].alias("topic")
    columns = ("key", "value", "partition", "headers", place)
    return sorted(map(str, read(spark, CONNECTOR, servers, options).select(*columns).collect()))


@pytest.fixture(scope="module")
def of_the_connector(spark: SparkSession, servers: str) -> list[str]:
    return written(spark, servers, CONNECTOR, "none")


@pytest.mark.parametrize("codec", CODECS)
def test_rows_arrive_as_those_of_the_connector(
    spark: SparkSession, servers: str, of_the_connector: list[str], codec: str
) -> None:
    assert written(spark, servers, "kafkalite", codec) == of_the_connector
    assert len(of_the_connector) == 3_000


def test_the_option_goes_before_the_column(
    spark: SparkSession, servers: str, new_topic: str
) -> None:
    write(sample(spark, ("not-this-one",), 10).drop("partition"), servers, topic=new_topic)
    found = kafkalite.read_arrow(new_topic, servers, columns=["topic"]).to_pyarrow()
    assert found.num_rows == 10
    with Admin(servers) as admin:
        assert "not-this-one" not in admin.list_topics()


def test_a_row_keeps_its_time_if_the_frame_has_that_column(
    spark: SparkSession, servers: str, new_topic: str
) -> None:
    time = functions.timestamp_millis(functions.lit(1_700_000_000_000) + functions.col("id"))
    frame = spark.range(10).select(
        functions.col("id").cast("string").alias("value"), time.alias("timestamp")
    )
    write(frame, servers, topic=new_topic)
    read_back = kafkalite.read_arrow(new_topic, servers, columns=["timestamp"]).to_pyarrow()
    found = sorted(
        int(each.timestamp() * 1000 + 0.5) for each in read_back["timestamp"].to_pylist()
    )
    assert found == [1_700_000_000_000 + at for at in range(10)]


WRONG_SCHEMAS = {
    "no topic": "'v' as value",
    "no value": "'k' as key, 't' as topic",
    "key": "1 as key, 'v' as value, 't' as topic",
    "value": "1 as value, 't' as topic",
    "topic": "'v' as value, 7 as topic",
    "partition": "'v' as value, 't' as topic, 7L as partition",
    "headers": "'v' as value, 't' as topic, array('h') as headers",
}


@pytest.mark.parametrize("wrong", WRONG_SCHEMAS)
def test_a_wrong_schema_is_refused_in_the_words_of_the_connector(
    spark: SparkSession, servers: str, wrong: str
) -> None:
    frame = spark.range(1).selectExpr(*WRONG_SCHEMAS[wrong].split(", "))
    told = {}
    for sink in SINKS:
        with pytest.raises(PySparkException) as caught:
            write(frame, servers, sink)
        told[sink] = sentence(caught.value)
    words = told[CONNECTOR].split(";")[0].removeprefix("[").split("] ")[-1].strip()
    assert words.rstrip(".") in told["kafkalite"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kafka__acks": "2"}, "kafka.acks is '2', it must be all, -1, 0 or 1"),
        ({"kafka__batch__size": "many"}, "kafka.batch.size is 'many', it must be a whole number"),
        ({"kafka__value__serializer": "x"}, "'kafka.value.serializer' is not supported"),
        ({"kafka__sasl__mechanism": "PLAIN"}, "kafkalite supports PLAINTEXT only"),
        ({"topik": "t"}, "unknown option 'topik', did you mean topic?"),
        ({"transactional": "perhaps"}, "transactional is 'perhaps', it must be true or false"),
        ({"transactional": "true", "kafka__acks": "1"}, "transactional=true needs kafka.acks=all"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(
    spark: SparkSession, servers: str, new_topic: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(spark.range(1).selectExpr("'v' as value"), servers, **{"topic": new_topic, **options})
    assert told in sentence(caught.value)
    # PySpark's message has a traceback: one line of it, and at its end the sentence.
    assert str(caught.value).count('  File "') == 1
    assert told in str(caught.value).split(" SQLSTATE")[0].rstrip().splitlines()[-1]


def test_topics_are_appended_to_and_not_overwritten(
    spark: SparkSession, servers: str, new_topic: str
) -> None:
    frame = spark.range(1).selectExpr("'v' as value")
    writer = frame.write.format("kafkalite").option("kafka.bootstrap.servers", servers)
    with pytest.raises(PySparkException, match="Save mode Overwrite not allowed"):
        writer.option("topic", new_topic).mode("overwrite").save()


def test_a_row_that_cannot_be_written_is_named_with_its_topic(
    spark: SparkSession, servers: str, new_topic: str
) -> None:
    def told(*expressions: str, **options: str) -> str:
        with pytest.raises(PySparkException) as caught:
            write(spark.range(1).selectExpr(*expressions), servers, **options)
        return sentence(caught.value)

    wide = told("repeat('v', 2000000) as value", topic=new_topic)
    assert f"row 0, topic '{new_topic}': the record is 2000088 bytes" in wide
    place = told("'v' as value", "3 as partition", topic=new_topic)
    assert f"topic '{new_topic}': there is no partition 3, but 0 to 2" in place
    null = told("'v' as value", "cast(null as string) as topic")
    assert "contains a null topic" in null


def test_a_topic_that_a_broker_does_not_make_is_named(
    spark: SparkSession, kafka: KafkaBroker
) -> None:
    with pytest.raises(PySparkException, match=r"topic 'no-such-topic'.*UNKNOWN_TOPIC_OR_PART"):
        frame = spark.range(1).selectExpr("'v' as value")
        write(frame, kafka.bootstrap_servers, topic="no-such-topic")


def test_a_transactional_job_on_kafkalite_is_committed(
    spark: SparkSession, servers: str, new_topic: str
) -> None:
    frame = spark.range(1).selectExpr("'v' as value")
    write(frame, servers, topic=new_topic, transactional="true")
    deadline = time.monotonic() + 30
    while values(servers, new_topic, committed=True) != ["v"]:  # markers follow the answer
        assert time.monotonic() < deadline


# --- transactions, on Apache Kafka ----------------------------------------------------------------


@pytest.fixture
def kafka_topic(kafka: KafkaBroker, kafka_tools: KafkaTools) -> str:
    name = f"transactional-{uuid.uuid4().hex[:8]}"
    kafka_tools.create_topic(kafka.bootstrap_servers, name, partitions=3)
    return name


def text(fails_at: int = -1) -> Column:
    """The number of a row as text, and an error in place of one of them."""
    fails = functions.raise_error(functions.lit("a row that cannot be computed"))
    number = functions.col("id")
    return functions.when(number == fails_at, fails).otherwise(number.cast("string")).alias("value")


def numbers(spark: SparkSession, count: int, fails_at: int = -1) -> DataFrame:
    return spark.range(0, count, 1, 4).select(text(fails_at))


def test_a_transactional_job_is_visible_as_a_whole(
    spark: SparkSession, kafka: KafkaBroker, kafka_topic: str
) -> None:
    servers = kafka.bootstrap_servers
    options = {"topic": kafka_topic, "kafka__transactional__id": "etl"}
    write(numbers(spark, 2_000), servers, **options)
    everything = sorted(map(str, range(2_000)))
    assert values(servers, kafka_topic, committed=True) == everything
    write(numbers(spark, 2_000), servers, **options)
    assert values(servers, kafka_topic, committed=True) == sorted(everything * 2)


def test_nothing_of_a_failed_transactional_job_is_visible(
    spark: SparkSession, kafka: KafkaBroker, kafka_topic: str
) -> None:
    servers = kafka.bootstrap_servers
    # Small batches, so that much of every task is on the broker before the last row fails.
    options = {"topic": kafka_topic, "kafka__batch__size": "1000", "transactional": "true"}
    with pytest.raises(PySparkException, match="a row that cannot be computed"):
        write(numbers(spark, 40_000, fails_at=39_999), servers, **options)
    assert values(servers, kafka_topic)
    # The abort markers end what a reader would otherwise wait for.
    write(numbers(spark, 10), servers, **options)
    assert values(servers, kafka_topic, committed=True) == sorted(map(str, range(10)))


def test_write_arrow_can_be_one_transaction(kafka: KafkaBroker, kafka_topic: str) -> None:
    import pyarrow

    servers = kafka.bootstrap_servers
    good = pyarrow.table({"value": ["a", "b"]})
    kafkalite.write_arrow(good, kafka_topic, servers, transactional_id="arrow")

    def rows() -> Iterator[pyarrow.RecordBatch]:
        yield pyarrow.record_batch({"value": ["c"]})
        deadline = time.monotonic() + 30
        while "c" not in values(servers, kafka_topic):  # it is sent while these rows are awaited
            assert time.monotonic() < deadline
        yield pyarrow.record_batch({"value": ["d" * 2_000_000]})

    bad = pyarrow.RecordBatchReader.from_batches(good.schema, rows())
    with pytest.raises(kafkalite.KafkaliteError, match=r"max\.request\.size"):
        kafkalite.write_arrow(bad, kafka_topic, servers, transactional_id="arrow", batch_size=0)
    assert values(servers, kafka_topic, committed=True) == ["a", "b"]
    assert "c" in values(servers, kafka_topic)


# --- streams --------------------------------------------------------------------------------------


def run_stream(
    spark: SparkSession, source: str, folder: Path, fails_at: int = -1, **options: str
) -> None:
    """One AvailableNow run over what lies in the folder of JSON files."""

    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(source)
    writer = frame.select(text(fails_at)).writeStream.format("kafkalite")
    for name, option in options.items():
        writer = writer.option(name.replace("__", "."), option)
    query = (
        writer.option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)
    assert not query.isActive


def add_file(folder: Path, name: str, first: int, count: int) -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"id": number}) for number in range(first, first + count)]
    (folder / f"{name}.json").write_text("\n".join(lines))


def test_a_stream_goes_on_where_it_stopped(
    spark: SparkSession, servers: str, new_topic: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    options = {"kafka__bootstrap__servers": servers, "topic": new_topic}
    add_file(source, "a", 0, 100)
    run_stream(spark, str(source), tmp_path, **options)
    assert values(servers, new_topic) == sorted(map(str, range(100)))
    add_file(source, "b", 100, 50)
    run_stream(spark, str(source), tmp_path, **options)
    assert values(servers, new_topic) == sorted(map(str, range(150)))


def test_transactional_ids_do_not_grow_with_the_micro_batches_of_foreachbatch(
    spark: SparkSession, servers: str, new_topic: str, tmp_path: Path
) -> None:
    """Each save had ids that nobody had had before, which brokers keep for a week."""
    source, prefix = tmp_path / "source", f"ids-{uuid.uuid4().hex[:8]}"
    for number in range(3):
        add_file(source, f"file-{number}", number * 10, 10)

    def save(batch: DataFrame, _: int) -> None:
        write(batch, servers, topic=new_topic, kafka__transactional__id=prefix)

    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source))
    query = (
        frame.select(text(-1))
        .writeStream.foreachBatch(save)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(300)
    assert values(servers, new_topic, committed=True) == sorted(map(str, range(30)))
    with Cluster(servers) as cluster:
        told = [cluster.ask(ListTransactionsRequest(), node_id=each) for each in cluster.nodes]
    ids = [row.transactional_id for each in told for row in each.transaction_states]
    ours = [each for each in ids if each.startswith(prefix)]
    assert ours
    for each in ours:
        known = re.fullmatch(rf"{prefix}-{query.id}-b-(\d+)-(\d+)", each)
        assert known, each
        assert int(known[1]) < 2
        assert int(known[2]) < STAGE_ATTEMPTS * TASK_ATTEMPTS


def test_a_transactional_save_of_foreachbatch_writes_a_repeated_micro_batch_again(
    spark: SparkSession, servers: str, new_topic: str, tmp_path: Path
) -> None:
    """docs/SPARK.md: it is a batch job, of which nothing is noted."""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    add_file(source, "file", 0, 10)
    frame = spark.readStream.schema("id long").json(str(source)).select(text(-1))

    def save(batch: DataFrame, _: int) -> None:
        write(batch, servers, topic=new_topic, transactional="true")

    def run() -> None:
        query = frame.writeStream.foreachBatch(save).trigger(availableNow=True)
        query.option("checkpointLocation", str(checkpoint)).start().awaitTermination()

    run()
    once = values(servers, new_topic, committed=True)
    assert once == sorted(map(str, range(10)))
    for entry in ("0", ".0.crc"):  # as if the query had died before Spark recorded it as done
        (checkpoint / "commits" / entry).unlink()
    run()
    assert values(servers, new_topic, committed=True) == sorted(once * 2)


def test_a_transactional_stream_writes_a_replayed_batch_once(
    spark: SparkSession, kafka: KafkaBroker, kafka_topic: str, tmp_path: Path
) -> None:
    """The query died after its transactions were committed, and before Spark noted the batch as
    done; and once in mid-batch."""
    servers, source = kafka.bootstrap_servers, tmp_path / "source"
    options = {
        "kafka__bootstrap__servers": servers,
        "kafka__transactional__id": "stream",
        "kafka__batch__size": "500",
        "topic": kafka_topic,
    }
    add_file(source, "a", 0, 1_000)
    run_stream(spark, str(source), tmp_path, **options)
    everything = sorted(map(str, range(1_000)))
    assert values(servers, kafka_topic, committed=True) == everything

    commits = tmp_path / "checkpoint" / "commits"
    for entry in (commits / "0", commits / ".0.crc"):
        entry.unlink()
    run_stream(spark, str(source), tmp_path, **options)
    assert (commits / "0").exists()
    assert values(servers, kafka_topic) == everything

    add_file(source, "b", 1_000, 1_000)
    with pytest.raises(PySparkException, match="a row that cannot be computed"):
        run_stream(spark, str(source), tmp_path, fails_at=1_999, **options)
    assert values(servers, kafka_topic, committed=True) == everything
    run_stream(spark, str(source), tmp_path, **options)
    assert values(servers, kafka_topic, committed=True) == sorted(map(str, range(2_000)))
