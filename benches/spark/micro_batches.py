"""A streaming query's cost where there is little to read: CPU of a trigger that finds nothing, and
of a micro-batch of a few records, beside Spark's tuned connector on Apache Kafka and beside Spark's
own `rate-micro-batch`, which makes its rows up: the floor.

    PYTHONPATH=tests:benches/vs_kafka python benches/spark/micro_batches.py [--rounds 3]

Both brokers run all the time, and one query at a time. In each round the engines take turns in
going first; of each query the first micro-batches are warm-up and are not counted.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from meter import CHILDREN, Meter
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from queries import JVM, PYTHON, TUNED, Engine
from records import PARTITIONS
from run import KEPT, beside_kafka, chosen, turns
from sides import Side, create_topic

from kafkalite.client import Producer

FLOOR = Engine("floor", "Spark's rate-micro-batch, the same rows", "ours", "rate-micro-batch")
ENGINES = (FLOOR, TUNED, PYTHON, JVM)
TOPIC = "few"
WARM_BATCHES = 10
RECORDS = 10
"""Records of each partition in a micro-batch."""
TRIGGER_MS = 50


class Cost(NamedTuple):
    """CPU of one trigger, in milliseconds."""

    driver: float
    children: float
    broker: float

    @property
    def total(self) -> float:
        return sum(self)


class Bench:
    """One session and both brokers."""

    def __init__(self, spark: SparkSession, sides: dict[str, Side]) -> None:
        self._spark = spark
        self._sides = sides
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._pid = int(jvm.ProcessHandle.current().pid())

    def measure(self, engine: Engine, batches: int, triggers: int) -> tuple[Cost | None, Cost]:
        """Gives the cost of an empty trigger and of a small micro-batch, of one query."""
        side = self._sides[engine.side]
        if engine is FLOOR:
            return None, self._floor(side, batches)
        query = self._start(engine, side)
        try:
            query.processAllAvailable()  # it has begun at the end of the topic
            with Producer(side.bootstrap_servers) as producer:

                def feed(count: int) -> None:
                    for _ in range(count):
                        self._feed(query, producer)

                feed(WARM_BATCHES)
                empty = self._cost(side, triggers, lambda: time.sleep(triggers * TRIGGER_MS / 1000))
                small = self._cost(side, batches, lambda: feed(batches))
        finally:
            query.stop()
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
        assert read >= RECORDS * PARTITIONS * (WARM_BATCHES + batches), "records are missing"
        return empty, small

    def _floor(self, side: Side, batches: int) -> Cost:
        """Gives the cost of a micro-batch of rows that Spark makes up."""
        rows = str(RECORDS * PARTITIONS)
        reader = self._spark.readStream.format(FLOOR.format).option("rowsPerBatch", rows)
        frame = reader.option("numPartitions", str(PARTITIONS)).load()
        query = self._query(frame)
        try:
            self._await(query, WARM_BATCHES)
            return self._cost(side, batches, lambda: self._await(query, batches))
        finally:
            query.stop()

    @staticmethod
    def _await(query: StreamingQuery, batches: int) -> None:
        """Until there are so many more."""

        def last() -> int:
            return (query.lastProgress or {"batchId": -1})["batchId"]

        until = last() + batches
        while last() < until:
            time.sleep(TRIGGER_MS / 1000)  # between two polls

    @staticmethod
    def _query(frame: DataFrame) -> StreamingQuery:
        writer = frame.writeStream.format("noop")
        return writer.trigger(processingTime=f"{TRIGGER_MS} milliseconds").start()

    def _start(self, engine: Engine, side: Side) -> StreamingQuery:
        reader = self._spark.readStream.format(engine.format)
        options = {"kafka.bootstrap.servers": side.bootstrap_servers, "subscribe": TOPIC}
        return self._query(reader.options(**options, **engine.options).load())

    def _feed(self, query: StreamingQuery, producer: Producer) -> None:
        """A micro-batch, or two where a trigger falls between its records."""
        for number in range(RECORDS * PARTITIONS):
            producer.send(TOPIC, b"%0100d" % number, partition=number % PARTITIONS)
        producer.flush()
        query.processAllAvailable()

    def _cost(self, side: Side, count: int, run: Callable[[], object]) -> Cost:
        self._jvm.System.gc()
        with Meter({"driver": self._pid, "broker": side.pid}) as meter:
            run()
        spent = meter.seconds()
        return Cost(*(1000 * spent[name] / count for name in ("driver", CHILDREN, "broker")))


def main() -> None:
    """All rounds, then the medians."""
    parser = argparse.ArgumentParser(description="What a trigger with little to read costs.")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="(3)")
    parser.add_argument("--batches", type=int, default=40, metavar="N", help="a round (40)")
    parser.add_argument("--triggers", type=int, default=200, metavar="N", help="empty ones (200)")
    parser.add_argument("--engines", default="", help="comma-separated; all if empty")
    arguments = parser.parse_args()
    names = chosen(arguments.engines, [each.name for each in ENGINES])
    engines = [each for each in ENGINES if each.name in names]
    found: dict[str, list[tuple[Cost | None, Cost]]] = {each.name: [] for each in engines}
    with beside_kafka("micro-batches") as (spark, sides, _):
        for side in sides.values():
            create_topic(side, TOPIC, PARTITIONS, KEPT)
        bench = Bench(spark, sides)
        for number in range(-1, arguments.rounds):
            for engine in turns(engines, number):
                costs = bench.measure(engine, arguments.batches, arguments.triggers)
                if number >= 0:
                    found[engine.name].append(costs)
    show(found)


def show(found: dict[str, list[tuple[Cost | None, Cost]]]) -> None:
    """The medians over the rounds."""
    print(f"{'CPU, ms a trigger':<24}{'all':>8}{'driver':>8}{'children':>10}{'broker':>8}")
    for index, what in enumerate(("empty", f"{RECORDS * PARTITIONS} records")):
        for name, costs in found.items():
            rows = [cost for each in costs if (cost := each[index]) is not None]
            if rows:
                total = statistics.median(each.total for each in rows)
                driver, children, broker = map(statistics.median, zip(*rows, strict=True))
                label = f"{what}, {name}"
                print(f"{label:<24}{total:>8.2f}{driver:>8.2f}{children:>10.2f}{broker:>8.2f}")


if __name__ == "__main__":
    main()
