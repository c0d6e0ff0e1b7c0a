"""The sinks of `spark/` that hold each record once, by a query each: tables of PostgreSQL, a Delta
table, Parquet files, a topic. Each has a checkpoint of its own, from which it goes on after
whatever was killed (`test_everything_killed.py`).

Whoever imports this has `spark/` on the path of Python.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import payments
import payments_to_delta
import payments_to_postgres
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

from spark.reading import read_stream

COPY = "payments-copied"
DELTA = {
    # Delta's settings are those of the start of a session, which may be a whole suite's.
    "spark.databricks.delta.requiredSparkConfsCheck.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
}


class Place(NamedTuple):
    """Where checkpoints and files are, the broker's address, and the database's."""

    folder: Path
    servers: str
    database: str

    def checkpoint(self, name: str) -> Path:
        """That of a sink's query."""
        return self.folder / f"{name}-checkpoint"

    def last(self, name: str, log: str) -> int:
        """The last micro-batch that a query has planned (`offsets`) or is done with (`commits`); -1
        before the first."""
        files = (self.checkpoint(name) / log).glob("[0-9]*")
        return max((int(each.name) for each in files), default=-1)

    def steps(self, name: str) -> int:
        """How far a query is: a micro-batch that is planned is one step, and done another."""
        return self.last(name, "offsets") + self.last(name, "commits") + 2

    def is_under_way(self, name: str) -> bool:
        """Says whether a micro-batch was begun that is not done."""
        return self.last(name, "offsets") > self.last(name, "commits")


def to_postgres(arrived: DataFrame, place: Place, checkpoint: Path) -> StreamingQuery:
    """Rows, balances, and the micro-batch's number, in one transaction."""
    return payments_to_postgres.store(arrived, place.database, checkpoint)


def to_delta(arrived: DataFrame, place: Place, checkpoint: Path) -> StreamingQuery:
    """A commit of the table."""
    return payments_to_delta.append(arrived, place.folder / "delta", checkpoint)


def to_parquet(arrived: DataFrame, place: Place, checkpoint: Path) -> StreamingQuery:
    """Files, and a list of those that count."""
    rows = arrived.where(payments.IS_PAYMENT).select("payment", "account", "cents")
    writer = rows.writeStream.format("parquet").trigger(availableNow=True)
    return writer.option("checkpointLocation", str(checkpoint)).start(str(place.folder / "parquet"))


def to_topic(arrived: DataFrame, place: Place, checkpoint: Path) -> StreamingQuery:
    """A transaction a task."""
    writer = arrived.select("key", "value").writeStream.format("kafkalite")
    options = {
        "kafka.bootstrap.servers": place.servers,
        "topic": COPY,
        "transactional": "true",
        "kafka.transaction.timeout.ms": "600000",
        "checkpointLocation": str(checkpoint),
    }
    return writer.options(**options).trigger(availableNow=True).start()


Start = Callable[[DataFrame, Place, Path], StreamingQuery]
SINKS: Mapping[str, Start] = {
    "postgres": to_postgres,
    "delta": to_delta,
    "parquet": to_parquet,
    "topic": to_topic,
}


def start(
    spark: SparkSession, source: str, place: Place, per_trigger: int, names: Iterable[str] = SINKS
) -> dict[str, StreamingQuery]:
    """Starts the queries, which end at the end of the topic."""
    return {
        name: SINKS[name](
            arriving(spark, source, place.servers, per_trigger),
            place,
            place.checkpoint(name),
        )
        for name in names
    }


def arriving(spark: SparkSession, source: str, servers: str, per_trigger: int) -> DataFrame:
    """The payments, by the connector or by one of the engines."""
    options = {
        "subscribe": payments.TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(per_trigger),
    }
    records = read_stream(spark, source, servers, options)
    parsed = functions.from_json(records["value"].cast("string"), payments.SCHEMA)
    return records.select("key", "value", parsed.alias("parsed")).select("key", "value", "parsed.*")


def check(spark: SparkSession, place: Place, made: list[payments.Payment]) -> None:
    """Raises where a sink has anything else than each payment once."""
    payments_to_postgres.check_tables(place.database, made)
    payments_to_delta.check_table(spark, place.folder / "delta", made)
    whole = [each[:3] for each in made if not each.broken]
    files = spark.read.parquet(str(place.folder / "parquet")).collect()
    assert sorted(map(tuple, files)) == whole, "the files are not the payments"
    options = {
        "kafka.bootstrap.servers": place.servers,
        "subscribe": COPY,
        "kafka.isolation.level": "read_committed",
        "engine": "python",
    }
    copied = spark.read.format("kafkalite").options(**options).load().select("key", "value")
    found = sorted((bytes(row["key"]), bytes(row["value"])) for row in copied.collect())
    sent = sorted((each.key or b"", each.value or b"") for each in (e.record() for e in made))
    assert found == sent, f"the copy has {len(found)} records for {len(sent)} payments"
