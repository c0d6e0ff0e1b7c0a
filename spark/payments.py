"""Payments, some of them broken, for the pipelines `payments_to_*.py`: sent, read, found again."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import dead_letters
import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalite import Broker

TOPIC = "payments"
DEAD_LETTERS = "payments-dead-letters"
PARTITIONS = 2
BATCHES = 4
ACCOUNTS = 500
BROKEN_ONE_IN = 200
SCHEMA = "payment BIGINT, account INT, cents BIGINT"
IS_PAYMENT = "payment IS NOT NULL AND account IS NOT NULL AND cents IS NOT NULL"


class Payment(NamedTuple):
    """One payment; `broken` ones lack what they need, or are no JSON."""

    payment: int
    account: int
    cents: int
    broken: bool

    def record(self) -> pipeline.Record:
        """As it goes into the topic, keyed by account."""
        fields = {"payment": self.payment, "account": self.account, "cents": self.cents}
        if self.broken and self.payment % 2:
            del fields["account"]
        value = json.dumps(fields).encode()
        return pipeline.Record(
            value[:-3] if self.broken else value,
            key=b"%d" % self.account,
            partition=self.account % PARTITIONS,
        )


def make(count: int, seed: int) -> list[Payment]:
    """Out of a seed."""
    draw = random.Random(seed)
    return [
        Payment(
            number,
            draw.randrange(ACCOUNTS),
            draw.randrange(100, 99_999),
            draw.randrange(BROKEN_ONE_IN) == 0,
        )
        for number in range(count)
    ]


def send(broker: "Broker", made: list[Payment]) -> None:
    """Makes both topics and sends the payments."""
    pipeline.create_topic(broker, TOPIC, PARTITIONS)
    pipeline.create_topic(broker, DEAD_LETTERS, 1)
    pipeline.send(broker, TOPIC, (each.record() for each in made))
    broken = sum(each.broken for each in made)
    pipeline.step(f"{len(made):,} payments sent, {broken:,} of them broken")


def read(spark: "SparkSession", servers: str, per_batch: int) -> "DataFrame":
    """The topic with the fields of payments beside the records themselves, which the dead letters
    need as they are."""
    from pyspark.sql import functions

    records = (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(per_batch))
        .load()
    )
    parsed = functions.from_json(records["value"].cast("string"), SCHEMA)
    return records.withColumn("parsed", parsed).select("*", "parsed.*").drop("parsed")


def write_letters(broker: "Broker", arrived: "DataFrame", checkpoint: Path) -> None:
    """Writes what is no payment to the dead-letter topic."""
    letters = dead_letters.write(
        arrived.where(f"NOT ({IS_PAYMENT})"),
        f"the value does not fit {SCHEMA}",
        broker.bootstrap_servers,
        DEAD_LETTERS,
        str(checkpoint),
    )
    pipeline.follow(letters)


def check_letters(spark: "SparkSession", broker: "Broker", made: Iterable[Payment]) -> None:
    """Raises `StopError` unless the dead letters are the broken records, each once."""
    rows = (
        spark.read.format("kafkalite")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", DEAD_LETTERS)
        .option("kafka.isolation.level", "read_committed")
        .load()
        .select("key", "value")
        .collect()
    )
    found = sorted((bytes(row["key"]), bytes(row["value"])) for row in rows)
    sent = sorted((record.key, record.value) for record in (e.record() for e in made if e.broken))
    if found != sent:
        raise pipeline.StopError(f"{len(found):,} dead letters for {len(sent):,} broken records")
