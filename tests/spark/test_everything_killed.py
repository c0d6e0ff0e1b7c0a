"""A topic to tables of PostgreSQL while database, broker and Spark's workers are killed at random,
and the stream moves between Spark's own connector and both engines: rows and balances are those of
payments that were stored once each."""

import os
import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

from kafkalite import Broker
from spark.programs import pipeline
from spark.reading import CONNECTOR, read_stream

pytestmark = pytest.mark.oracle

SEED = 23
PAYMENTS_OF_A_ROUND, PER_TRIGGER = 400, 80
KILLS_SHORT, KILLS_LONG = 5, 100
KILL_S_MAX = 1.5
GO_ON_S = 5
"""A query goes on for so long after the kill. To its end it took minutes on a busy machine, in
micro-batches that were made small so that many are hit."""
SOURCES = (CONNECTOR, "python", "jvm")
CONFIG = {"log.retention.ms": "-1"}


@pytest.mark.parametrize(
    "kills",
    [KILLS_SHORT, pytest.param(KILLS_LONG, marks=[pytest.mark.long, pytest.mark.timeout(3600)])],
)
def test_each_payment_is_stored_once_whatever_is_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    sink = pipeline("payments_to_postgres", monkeypatch)
    draw = random.Random(SEED)
    made = sink.payments.make(PAYMENTS_OF_A_ROUND * (kills + 1), SEED)
    rounds = [
        made[start : start + PAYMENTS_OF_A_ROUND]
        for start in range(0, len(made), PAYMENTS_OF_A_ROUND)
    ]
    # A Unix socket's path is short.
    with (
        Broker(tmp_path / "data", config=CONFIG) as broker,
        tempfile.TemporaryDirectory(prefix="kafkalite-") as folder,
    ):
        database = sink.postgres.Server(Path(folder))
        database.start()
        try:
            sink.create_tables(database.address)
            sink.pipeline.create_topic(broker, sink.payments.TOPIC, sink.payments.PARTITIONS)
            victims = islice(cycle(["database", "broker", "worker"]), kills)
            sources = cycle(SOURCES)
            hit = 0
            for number, victim in enumerate(victims):
                send(sink, broker, rounds[number])
                frame = arriving(sink, spark, broker, next(sources))
                query = sink.store(frame, database.address, tmp_path / "checkpoint")
                with suppress(PySparkException):
                    query.awaitTermination(draw.uniform(0.1, KILL_S_MAX))
                hit += query.isActive
                kill(spark, victim, broker, database)
                end(query)
            send(sink, broker, rounds[-1])
            frame = arriving(sink, spark, broker, "jvm", per_trigger=len(made))
            sink.store(frame, database.address, tmp_path / "checkpoint").awaitTermination()
            sink.check_tables(database.address, made)
            assert hit > kills / 2, "what was killed was no longer in use"
        finally:
            database.stop()


def send(sink: ModuleType, broker: Broker, made: list[Any]) -> None:
    sink.pipeline.send(broker, sink.payments.TOPIC, (each.record() for each in made))


def arriving(
    sink: ModuleType,
    spark: SparkSession,
    broker: Broker,
    source: str,
    per_trigger: int = PER_TRIGGER,
) -> DataFrame:
    """The payments, by the connector or by one of the engines."""
    options = {
        "subscribe": sink.payments.TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(per_trigger),
    }
    records = read_stream(spark, source, broker.bootstrap_servers, options)
    parsed = functions.from_json(records["value"].cast("string"), sink.payments.SCHEMA)
    return records.select(parsed.alias("parsed")).select("parsed.*")


def kill(spark: SparkSession, victim: str, broker: Broker, database: Any) -> None:
    """SIGKILL, and what must be there is started again."""
    if victim == "database":
        database.kill()
        database.start()
    elif victim == "broker":
        broker.kill()
        broker.start()
    else:
        for pid in workers(spark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def workers(spark: SparkSession) -> Iterator[int]:
    """Processes of Python below Spark's JVM that read: workers, and the columnar engine's child."""
    jvm: Any = spark.sparkContext._jvm
    for child in jvm.ProcessHandle.current().descendants().toArray():
        command = Path(f"/proc/{child.pid()}/cmdline")
        with suppress(OSError):
            text = command.read_bytes().replace(b"\0", b" ")
            is_daemon = b"pyspark.daemon" in text and not child.parent().get().equals(
                jvm.ProcessHandle.current()
            )
            if is_daemon or b"kafkalite arrow serve" in text:
                yield int(child.pid())


def end(query: StreamingQuery) -> None:
    """Has the query go on for a while, or fail, since it may have lost what it needed, and then
    stops it amid whatever it does. It is started again."""
    with suppress(PySparkException):
        query.awaitTermination(GO_ON_S)
    query.stop()
