"""The sinks of the pipelines in `spark/` whose driver is killed about a commit: after it goes on,
they hold each record once."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from kafkalite import Broker
from kafkalite.spark import reason
from oracle.tools import Record
from spark.programs import FOLDER, pipeline
from spark.records import send

PAYMENTS, OFFSETS_PER_TRIGGER = 1200, 300


def run_until_killed(folder: Path, *arguments: str) -> None:
    """The program of `killed_sink.py`, which must die by its own hand."""
    paths = [str(FOLDER.parent / "tests"), str(FOLDER), os.environ.get("PYTHONPATH", "")]
    ended = subprocess.run(
        [sys.executable, "-m", "spark.killed_sink", folder, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.fixture
def made(own_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Payments, in the topic."""
    payments = pipeline("payments", monkeypatch)
    made: list[Any] = payments.make(PAYMENTS, seed=1)
    payments.send(own_broker, made)
    return made


def go_back(checkpoint: Path) -> None:
    """As one that is restored from when it had a single micro-batch."""
    for kind in ("offsets", "commits"):
        for path in (checkpoint / kind).iterdir():
            if path.name not in ("0", "metadata"):
                path.unlink()


def test_postgres_has_each_payment_once_where_the_driver_dies_about_a_commit(
    spark: SparkSession,
    own_broker: Broker,
    made: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = pipeline("payments_to_postgres", monkeypatch)
    place = (tmp_path, own_broker.bootstrap_servers, str(OFFSETS_PER_TRIGGER))
    with sink.postgres.server() as database:
        sink.postgres.create_tables(database, sink.TABLES)
        for moment in ("before", "after"):
            run_until_killed(*place, moment, database)
        arrived = sink.payments.read(spark, own_broker.bootstrap_servers, OFFSETS_PER_TRIGGER)
        query = sink.store(arrived, database, tmp_path / "checkpoint")
        query.awaitTermination()

        sink.check_tables(database, made)
        go_back(tmp_path / "checkpoint")
        with pytest.raises(StreamingQueryException, match="and 1 comes now: the checkpoint is an"):
            sink.store(arrived, database, tmp_path / "checkpoint").awaitTermination()
        sink.check_tables(database, made)
    first = query.recentProgress[0]
    assert first["batchId"] == 2, "nothing was repeated"


@pytest.mark.usefixtures("made")
def test_postgres_is_told_that_its_last_micro_batch_comes_with_more_rows(
    spark: SparkSession, own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number was that of the last micro-batch that is stored, so that all payments that had
    come since were passed over."""
    sink = pipeline("payments_to_postgres", monkeypatch)
    payments = sink.payments
    arrived = payments.read(spark, own_broker.bootstrap_servers, PAYMENTS)

    def store(more: int) -> None:
        records = (each.record() for each in payments.make(more, seed=2))
        sink.pipeline.send(own_broker, payments.TOPIC, records)
        sink.store(arrived, database, tmp_path / "checkpoint").awaitTermination()

    with sink.postgres.server() as database:
        sink.postgres.create_tables(database, sink.TABLES)
        store(0)
        store(100)
        go_back(tmp_path / "checkpoint")
        with pytest.raises(
            StreamingQueryException, match=r"micro-batch 1 .* stored with \d+ rows, and comes with"
        ):
            store(100)


@pytest.mark.parametrize(
    ("missing", "remedy", "sentence"),
    [
        (
            "DROP TABLE payments",
            "CREATE TABLE payments (payment bigint, account int, cents bigint)",
            'relation "payments" does not exist',
        ),
        (
            "REVOKE ALL ON payments FROM clerk",
            "GRANT ALL ON payments TO clerk",
            "permission denied for table payments",
        ),
    ],
    ids=["table", "right"],
)
def test_a_query_without_table_or_right_says_so_and_goes_on_when_it_has_it(
    spark: SparkSession,
    own_broker: Broker,
    made: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    remedy: str,
    sentence: str,
) -> None:
    import psycopg

    sink = pipeline("payments_to_postgres", monkeypatch)
    arrived = sink.payments.read(spark, own_broker.bootstrap_servers, OFFSETS_PER_TRIGGER)
    with sink.postgres.server() as database:
        sink.postgres.create_tables(database, sink.TABLES)
        with psycopg.connect(database) as admin:
            admin.execute(
                "CREATE ROLE clerk LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO clerk"
            )
            admin.execute(missing)
        as_clerk = database.replace("user=postgres", "user=clerk")
        with pytest.raises(StreamingQueryException) as failed:
            sink.store(arrived, as_clerk, tmp_path / "checkpoint").awaitTermination()
        assert reason(failed.value) == sentence
        with psycopg.connect(database) as admin:
            assert admin.execute("SELECT count(*) FROM accounts").fetchone() == (0,)
            assert admin.execute("SELECT count(*) FROM batches").fetchone() == (0,)
            admin.execute(remedy)
            admin.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO clerk")
        sink.store(arrived, as_clerk, tmp_path / "checkpoint").awaitTermination()
        sink.check_tables(database, made)


@pytest.mark.parametrize(
    ("topic", "poison", "sentence"),
    [
        (
            "orders",
            (b"twelve", b'{"customer": 7}'),
            "the key of orders-0 at offset 1 is no whole number",
        ),
        ("customers", (None, None), "the key of customers-0 at offset 1 is no whole number"),
        (
            "customers",
            (b"7", rb'{"name": "a\u0000b"}'),
            "a text in the value of customers-0 at offset 1 has a NUL",
        ),
    ],
    ids=["key", "no key", "NUL"],
)
def test_a_record_that_postgres_has_no_row_for_is_named(
    spark: SparkSession,
    own_broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    poison: tuple[bytes | None, bytes | None],
    sentence: str,
) -> None:
    """It was PostgreSQL's own sentence, or Spark's, which know of no topics."""
    import psycopg

    sink = pipeline("orders_to_postgres", monkeypatch)
    key, value = poison
    for name in (sink.ORDERS, sink.CUSTOMERS):
        sink.pipeline.create_topic(own_broker, name, 1)
    good = sink.pipeline.Record(b'{"customer": 7, "cents": 3}', key=b"1")
    sink.pipeline.send(own_broker, sink.ORDERS, [good])
    sink.pipeline.send(own_broker, sink.CUSTOMERS, [sink.pipeline.Record(b"{}", key=b"8")])
    sink.pipeline.send(own_broker, topic, [sink.pipeline.Record(value, key=key)])
    with sink.postgres.server() as database:
        sink.postgres.create_tables(database, sink.TABLES)
        changes = sink.read(spark, own_broker.bootstrap_servers, 100)
        with pytest.raises(StreamingQueryException) as failed:
            sink.keep(changes, database, tmp_path / "checkpoint").awaitTermination()
        assert reason(failed.value) == sentence
        left_out = changes.where(f"NOT (topic = '{topic}' AND offset = 1)")
        sink.keep(left_out, database, tmp_path / "checkpoint").awaitTermination()
        assert sink.rows(database) == [(1, 7, 3, None, None)]
        with psycopg.connect(database) as connection:
            assert connection.execute("SELECT id FROM customers").fetchall() == [(8,)]


def test_a_dead_letter_that_would_be_too_large_is_cut(
    spark: SparkSession,
    own_broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The record came in, with its new headers it was refused, and the query failed each time that
    it was started."""
    payments = pipeline("payments", monkeypatch)
    letters, servers = payments.dead_letters, own_broker.bootstrap_servers
    payments.send(own_broker, [])
    most = letters.BYTES_MAX
    records = [
        Record(payments.TOPIC, b"v" * 1_048_490, key=b"value", partition=0),
        Record(payments.TOPIC, b"v" * (most - len(b"fits")), key=b"fits", partition=0),
        Record(payments.TOPIC, b"v", key=b"headers", partition=0, headers=(("h", b"h" * most),)),
        Record(payments.TOPIC, None, key=b"k" * 1_048_490, partition=0, headers=(("h", None),)),
        Record(payments.TOPIC, None, key=None, partition=0, headers=(("h", b"h"),)),
    ]
    send(servers, records)
    payments.write_letters(own_broker, payments.read(spark, servers, 100), tmp_path / "letters")
    told = {"kafka.bootstrap.servers": servers, "subscribe": payments.DEAD_LETTERS}
    told |= {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    found = spark.read.format("kafkalite").options(**told).load().sort("offset").collect()

    cuts, own = [], []
    for row in found:
        headers = {header["key"]: header["value"] for header in row["headers"]}
        cuts.append(headers.get(letters.CUT))
        own.append(headers.get("h", b"none"))
    assert [(row["key"], row["value"]) for row in found] == [
        (b"value", b"v" * (most - len(b"value"))),
        (b"fits", b"v" * (most - len(b"fits"))),
        (b"headers", b"v"),
        (b"k" * most, None),
        (None, None),
    ]
    assert cuts == [b"1048495", None, b"1000019", b"1048501", None]
    assert own == [b"none", b"none", b"none", b"none", b"h"]


def test_delta_has_each_payment_once_where_the_driver_dies_about_a_commit(
    spark: SparkSession,
    own_broker: Broker,
    made: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = pipeline("payments_to_delta", monkeypatch)
    place = (tmp_path, own_broker.bootstrap_servers, str(OFFSETS_PER_TRIGGER))
    table = tmp_path / "table"
    run_until_killed(*place, "before")
    files = {each.name for each in table.glob("*.parquet")}
    run_until_killed(*place, "after")
    noted = tmp_path / "checkpoint" / "commits"
    last = max(int(each.stem) for each in table.glob("_delta_log/*.json"))
    # Spark may have noted the micro-batch before it was dead: as if it had not.
    for note in (noted / str(last), noted / f".{last}.crc"):
        note.unlink(missing_ok=True)
    # Delta's settings are those of the start of a session, and this one is the whole suite's.
    spark.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
    arrived = sink.payments.read(spark, own_broker.bootstrap_servers, OFFSETS_PER_TRIGGER)
    query = sink.append(arrived, table, tmp_path / "checkpoint")
    query.awaitTermination()

    sink.check_table(spark, table, made)
    assert query.recentProgress[0]["batchId"] == last, "nothing was repeated"
    read = spark.read.format("delta").load(str(table)).inputFiles()
    assert files - {Path(each).name for each in read}, "the first driver left nothing uncommitted"
