"""The columnar engine: what is peculiar to it. That its rows are the right ones, other files ask of
both engines."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psutil
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession, functions

from kafkalite import Broker
from kafkalite.errors import InvalidArgumentError
from kafkalite.spark import jar_path
from kafkalite.spark.source import KafkaliteDataSource
from oracle.broker import KafkaBroker
from oracle.tools import Record
from spark.reading import differences, read, read_stream, rows, without_ids
from spark.records import START_MS, create, mixed, send

PARTITIONS, RECORDS = 3, 3_000
STEP_MS = 10


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    """A broker whose topic `steps` has three partitions with a record every 10 ms in turn."""
    create(broker.bootstrap_servers, "steps", PARTITIONS)
    made = mixed("steps", (0,), RECORDS, seed=11)
    for number, record in enumerate(made):
        at = START_MS + number * STEP_MS
        made[number] = replace(record, partition=number % PARTITIONS, timestamp=at)
    send(broker.bootstrap_servers, made)
    return broker.bootstrap_servers


@pytest.fixture(scope="module")
def everything(spark: SparkSession, servers: str) -> DataFrame:
    """All rows, out of Spark's memory: filters on them are Spark's own."""
    frame = steps(spark, servers).coalesce(1).localCheckpoint()
    assert frame.count() == RECORDS
    return frame


@pytest.fixture(autouse=True)
def needs_the_jar() -> None:
    if jar_path() is None:
        pytest.fail("kafkalite's jar was not built: `make jar`")


def held(spark: SparkSession) -> list[str]:
    """The ranges for which Arrow memory is held in Spark's JVM."""
    allocator = spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()
    names = [each.getName() for each in allocator.getChildAllocators()]
    return [name for name in names if "offsets" in name]


@pytest.fixture(autouse=True)
def everything_is_given_back(spark: SparkSession) -> Iterator[None]:
    """No Arrow memory is left when a test is over, however its query ended."""
    yield
    assert not held(spark)


def await_until(condition: Callable[[], bool]) -> None:
    """Polls; what is polled is a call into the JVM, which takes long enough."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


def steps(spark: SparkSession, servers: str, engine: str = "jvm", **options: Any) -> DataFrame:
    return read(spark, engine, servers, {"subscribe": "steps", **options})


def scan_of(frame: DataFrame) -> str:
    """The line of the physical plan that says what the scan reads."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return next(line for line in plan.splitlines() if "BatchScan" in line)


def rows_read(frame: DataFrame) -> int:
    """How many rows the scan of a frame that has been collected gave to Spark."""
    leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    count: int = leaf.metrics().apply("numOutputRows").value()
    return count


# --- what is read ---------------------------------------------------------------------------------


def test_only_the_columns_of_the_query_are_read(spark: SparkSession, servers: str) -> None:
    frame = steps(spark, servers)
    assert "columns=[value]" in scan_of(frame.select(functions.sum(functions.length("value"))))
    assert "columns=[key, offset]" in scan_of(frame.groupBy("key").agg(functions.max("offset")))
    assert "columns=[]" in scan_of(frame.groupBy().count())
    assert frame.count() == RECORDS


@pytest.mark.parametrize(
    "condition",
    [
        "partition = 1",
        "partition IN (0, 2)",
        "partition <> 1 AND offset < 10",
        "partition >= 1 AND partition < 2",
        "topic = 'steps' AND offset = 17",
        "topic = 'another'",
        "topic IN ('steps', 'another') AND offset BETWEEN 5 AND 8",
        "offset IN (3, 90, 2000)",
        "offset > 900",
        "990 < offset",
        "offset >= 995 AND partition = 2",
        "offset < 0",
        "offset > 9223372036854775806",
        "offset IS NULL",
        "timestamp = timestamp_millis({middle})",
        "timestamp >= timestamp_millis({middle})",
        "timestamp > timestamp_millis({middle}) AND timestamp < timestamp_millis({middle} + 500)",
        "timestamp <= timestamp_millis({start} + 20)",
        "timestamp > timestamp_millis({start} + 1000000)",
        "partition = 1 OR offset < 3",
        "NOT (partition = 1) AND key IS NULL",
    ],
)
def test_a_filter_leaves_the_rows_that_it_leaves_without_being_pushed(
    spark: SparkSession, servers: str, everything: DataFrame, condition: str
) -> None:
    condition = condition.format(start=START_MS, middle=START_MS + RECORDS // 2 * STEP_MS)
    found = rows(steps(spark, servers).where(condition))
    assert not differences(found, rows(everything.where(condition)))


def test_filters_on_partition_and_offset_cut_exactly(spark: SparkSession, servers: str) -> None:
    frame = steps(spark, servers).where("partition = 1 AND offset >= 10 AND offset < 20")
    assert frame.rdd.getNumPartitions() == 1
    assert len(frame.collect()) == rows_read(frame) == 10
    assert "Filter (" not in frame._jdf.queryExecution().executedPlan().toString()


def test_a_filter_on_partitions_is_planned_with(spark: SparkSession, servers: str) -> None:
    """It was applied to the plan: of six tasks two were left, and what was gone of the other
    partitions failed the query."""
    ends = json.dumps({"steps": {"0": 9_999, "1": -1, "2": -1}})
    frame = steps(spark, servers, minPartitions="6", endingOffsets=ends)
    one = frame.where("partition = 1 AND topic = 'steps'")
    assert one.rdd.getNumPartitions() == 6
    assert one.count() == RECORDS // PARTITIONS
    with pytest.raises(Exception, match="steps-0: offset 9999 is not there yet"):
        frame.where("partition <> 1").count()


def test_the_lower_bound_of_a_timestamp_cuts(spark: SparkSession, servers: str) -> None:
    last = START_MS + (RECORDS - 30) * STEP_MS
    frame = steps(spark, servers).where(f"timestamp >= timestamp_millis({last})")
    assert len(frame.collect()) == rows_read(frame) == 30
    outside = steps(spark, servers, startingTimestamp=str(START_MS)).where(
        f"timestamp >= timestamp_millis({last}) AND offset < 995"
    )
    assert len(outside.collect()) == rows_read(outside) == 15


def test_a_time_beyond_sparks_last_one_is_null_to_a_filter_too(
    spark: SparkSession, servers: str
) -> None:
    """`IS NOT NULL` was taken to hold for every timestamp."""
    create(servers, "far-future", message_timestamp_after_max_ms=str((1 << 63) - 1))
    send(servers, [Record("far-future", b"v", timestamp=at) for at in (START_MS, 1 << 60)])
    frame = read(spark, "jvm", servers, {"subscribe": "far-future"})
    counts = [frame.where(f"timestamp IS {each}").count() for each in ("NULL", "NOT NULL")]
    assert counts == [1, 1]


def test_a_query_that_stops_early_gives_everything_back(spark: SparkSession, servers: str) -> None:
    frame = steps(spark, servers, **{"batch.rows": "10"})
    assert len(frame.limit(3).collect()) == 3
    assert len(frame.orderBy("offset").limit(3).collect()) == 3


def test_a_task_that_is_killed_gives_everything_back(spark: SparkSession, servers: str) -> None:
    slow = "reflect('java.util.concurrent.locks.LockSupport', 'parkNanos', 100000000L)"
    context = spark.sparkContext

    def run() -> None:
        context.setJobGroup("killed", "", interruptOnCancel=True)
        with pytest.raises(Exception, match="cancelled"):
            steps(spark, servers, **{"batch.rows": "10"}).selectExpr("value", slow).collect()

    query = InheritableThread(target=run)
    query.start()
    await_until(lambda: bool(held(spark)))
    context.cancelJobGroup("killed")
    query.join(60)
    await_until(lambda: not held(spark))


# --- tables of Spark's catalog --------------------------------------------------------------------


def test_a_table_of_the_catalog_is_a_topic_or_files(
    spark: SparkSession, servers: str, kafka: KafkaBroker, topics: dict[str, str]
) -> None:
    """`CREATE TABLE` took the catalog's own properties for unknown options, and a query of a table
    brought none of the table's."""

    def told(sql: str) -> list[Any]:
        return [tuple(row) for row in spark.sql(sql).collect()]

    options = f"`kafka.bootstrap.servers` '{servers}', subscribe 'steps'"
    with_more = "COMMENT 'every 10 ms' TBLPROPERTIES ('of' = 'the catalog')"
    spark.sql(f"CREATE TABLE listed_theirs USING kafka OPTIONS ({options})")
    spark.sql(f"CREATE TABLE listed_ours USING kafkalite OPTIONS ({options}) {with_more}")
    spark.sql(f"CREATE TABLE listed_files USING kafkalite LOCATION '{kafka.partition('appended')}'")
    try:
        asked = "SELECT partition, count(*), max(offset) FROM {} GROUP BY 1 ORDER BY 1"
        expected = told(asked.format("listed_theirs"))
        assert len(expected) == PARTITIONS
        assert told(asked.format("listed_ours")) == expected
        ends = json.dumps({"steps": dict.fromkeys("012", 2)})
        assert spark.read.option("endingOffsets", ends).table("listed_ours").count() == 6
        of_files = read(spark, "jvm", topics["kafka"], {"assign": '{"appended":[0]}'})
        assert told("SELECT count(*) FROM listed_files") == [(of_files.count(),)]
        stream = spark.readStream.option("startingOffsets", "earliest").table("listed_ours")
        writer = (
            stream.writeStream.format("memory").queryName("streamed").trigger(availableNow=True)
        )
        assert writer.start().awaitTermination(60)
        assert spark.table("streamed").count() == RECORDS
    finally:
        for name in ("theirs", "ours", "files"):
            spark.sql(f"DROP TABLE IF EXISTS listed_{name}")
        spark.catalog.dropTempView("streamed")


@pytest.mark.parametrize("of_session", ["jvm", "python"])
def test_a_temporary_view_is_a_topic_with_either_engine(
    spark: SparkSession, servers: str, of_session: str
) -> None:
    options = f"`kafka.bootstrap.servers` '{servers}', subscribe 'steps', engine '{of_session}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW viewed USING kafkalite OPTIONS ({options})")
    try:
        assert spark.sql("SELECT count(*) FROM viewed").first() == (RECORDS,)
    finally:
        spark.catalog.dropTempView("viewed")


# --- streams --------------------------------------------------------------------------------------


def test_a_stream_takes_what_it_may_and_says_how_far_it_is(
    spark: SparkSession, servers: str
) -> None:
    options = {
        "subscribe": "steps",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1200",
    }
    frame = read_stream(spark, "jvm", servers, options)
    writer = frame.writeStream.format("memory").queryName("columnar").trigger(availableNow=True)
    query = writer.start()
    try:
        assert query.awaitTermination(60)
        found = rows(spark.table("columnar"))
        assert not differences(found, rows(steps(spark, servers)))
        progress = [each for each in query.recentProgress if each["numInputRows"]]
        assert [each["numInputRows"] for each in progress] == [1200, 1200, 600]
        source = progress[0]["sources"][0]
        assert without_ids(json.loads(source["latestOffset"])) == {
            "steps": {"0": 1000, "1": 1000, "2": 1000}
        }
        assert source["metrics"]["maxOffsetsBehindLatest"] == "600"
        assert "engine=jvm" in source["description"]
    finally:
        query.stop()
        spark.catalog.dropTempView("columnar")


def test_a_checkpoint_of_one_engine_goes_on_with_the_other(
    spark: SparkSession, broker: Broker, tmp_path: Any
) -> None:
    servers = broker.bootstrap_servers
    create(servers, "handed-over", 2)
    options = {"subscribe": "handed-over", "startingOffsets": "earliest"}
    for engine in ("python", "jvm"):
        send(servers, mixed("handed-over", (0, 1), 40, seed=3))
        writer = read_stream(spark, engine, servers, options).writeStream.format("parquet")
        places = {"checkpointLocation": str(tmp_path / "checkpoint"), "path": str(tmp_path / "out")}
        query = writer.options(**places).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
    found = rows(spark.read.parquet(str(tmp_path / "out")))
    assert not differences(found, rows(read(spark, "jvm", servers, options)))


# --- the child ------------------------------------------------------------------------------------


def children(spark: SparkSession) -> list[psutil.Process]:
    """The children that serve Arrow to Spark's JVM."""
    jvm = psutil.Process(spark._jvm.java.lang.ProcessHandle.current().pid())
    living = [each for each in jvm.children() if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in living if "arrow" in each.cmdline()]


def test_a_child_that_was_killed_is_replaced(spark: SparkSession, servers: str) -> None:
    assert steps(spark, servers).count() == RECORDS
    (first,) = children(spark)
    first.kill()
    first.wait(10)
    assert steps(spark, servers).count() == RECORDS
    (second,) = children(spark)
    assert second.pid != first.pid


def test_a_query_that_is_stopped_while_it_plans_has_not_failed(
    spark: SparkSession, servers: str
) -> None:
    """Spark logged the stop of a stream as its failure, and `awaitTermination` raised it."""
    assert steps(spark, servers).count() == RECORDS
    thread = spark._jvm.java.lang.Thread
    thread.currentThread().interrupt()  # as `query.stop()` does
    try:
        with pytest.raises(Py4JJavaError) as told:
            steps(spark, servers).count()
    finally:
        thread.interrupted()
    stream = spark._jvm.org.apache.spark.sql.execution.streaming.runtime.StreamExecution
    error = told.value.java_exception
    assert "kafkalite.spark.Planner" in [each.getClassName() for each in error.getStackTrace()]
    assert stream.isInterruptionException(error, spark._jsc.sc())


# --- which engine ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "is_columnar"), [("jvm", True), ("auto", True), ("python", False)]
)
def test_the_option_engine_chooses(
    spark: SparkSession, servers: str, engine: str, is_columnar: bool
) -> None:
    frame = steps(spark, servers, engine)
    assert ("engine=jvm" in scan_of(frame)) == is_columnar
    assert frame.count() == RECORDS


def test_an_engine_that_there_is_not_is_refused(spark: SparkSession, servers: str) -> None:
    with pytest.raises(Exception, match="engine is 'fast', it must be auto, jvm or python"):
        steps(spark, servers, "fast").count()


def test_without_the_jar_the_columnar_engine_is_refused_with_the_way_to_get_it() -> None:
    options = {"kafka.bootstrap.servers": "b:9092", "subscribe": "steps", "engine": "jvm"}
    source = KafkaliteDataSource(options)
    # Spark shows what a reader of a stream raises when it is asked, not when it is made.
    for ask in (source.reader, lambda schema: source.streamReader(schema).initialOffset()):
        with pytest.raises(InvalidArgumentError, match=r"kafkalite\.spark\.session\(\)"):
            ask(None)  # type: ignore[arg-type]


def test_registering_the_python_source_is_harmless_beside_the_jar(
    spark: SparkSession, servers: str
) -> None:
    import kafkalite.spark

    kafkalite.spark.register(spark)
    assert "engine=jvm" in scan_of(steps(spark, servers))
    assert steps(spark, servers, "python").count() == RECORDS


# --- writing beside the jar -----------------------------------------------------------------------


def test_writing_goes_to_the_python_sink_beside_the_jar(
    spark: SparkSession, servers: str, tmp_path: Any
) -> None:
    create(servers, "written", 2)
    places = {"kafka.bootstrap.servers": servers, "topic": "written"}
    frame = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "'a batch' AS value")
    frame.write.format("kafkalite").options(**places).mode("append").save()
    options = {"subscribe": "steps", "startingOffsets": "earliest"}
    stream = read_stream(spark, "jvm", servers, options).select("key", "value")
    writer = stream.writeStream.format("kafkalite").options(**places)
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query = writer.start()
    assert query.awaitTermination(60)
    found = read(spark, "jvm", servers, {"subscribe": "written"})
    assert found.where("value = 'a batch'").count() == 100
    assert found.count() == 100 + RECORDS


# --- sessions -------------------------------------------------------------------------------------


def test_the_jar_is_named_for_spark_submit() -> None:
    command = [sys.executable, "-m", "kafkalite.spark"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.strip() == str(jar_path())


SESSION = """
import sys
import kafkalite.spark
conf = {"spark.driver.memory": "600m", "spark.ui.enabled": "false"}
spark = kafkalite.spark.session("own", **conf)
frame = spark.read.format("kafkalite").options(**{
    "kafka.bootstrap.servers": sys.argv[1], "subscribe": "steps", "engine": "jvm"}).load()
children = spark._jvm.java.lang.ProcessHandle.current().children()
print(frame.count(), *[each.pid() for each in children.toList()])
"""


@pytest.mark.long
def test_a_session_of_ours_has_the_engine_whose_child_ends_with_the_jvm(servers: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", SESSION, servers], capture_output=True, text=True, check=True
    ).stdout
    count, *pids = map(int, told.split())
    assert count == RECORDS and pids
    _, alive = psutil.wait_procs(
        [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], 30
    )
    assert not alive
