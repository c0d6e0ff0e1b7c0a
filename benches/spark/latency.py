"""How late a stream's records are at 10,000 a second, with a trigger that waits for nothing: from
the producer's timestamp until the driver has them, p50 and p99, and the CPU that it takes.

    PYTHONPATH=tests:benches/vs_kafka python benches/spark/latency.py [--rounds 3] [--seconds 15]

Spark's tuned connector on Apache Kafka and both engines on kafkalite take turns; both brokers run
all the time. The producer is a process of its own, and the same for both brokers. `floor` is a
Python Data Source that asks no broker and makes its rows up, while the producer sends as ever: what
Spark's Python Data Sources take, whatever they read.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow
from meter import Meter
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType
from queries import JVM, PYTHON, TUNED, Engine
from records import PARTITIONS
from run import KEPT, beside_kafka, chosen, turns
from sides import Side, create_topic

from kafkalite.client import Producer

MADE_UP = "made-up"
FLOOR = Engine("floor", "rows that a Python Data Source makes up", "ours", MADE_UP)
ENGINES = (TUNED, PYTHON, JVM, FLOOR)
TOPIC = "paced"
VALUE = b"x" * 100
TICK_S = 0.01


class Found(NamedTuple):
    """One run: milliseconds, records a micro-batch, and microseconds of CPU a record."""

    p50: float
    p99: float
    batch: float
    cpu: float


class MadeUp(DataSource):
    """Rows as of a topic to which so many a second have been sent since 1970."""

    @classmethod
    def name(cls) -> str:
        return MADE_UP  # Spark's workers have none of these modules

    def schema(self) -> str:
        return "timestamp TIMESTAMP"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return MadeUpReader(int(self.options["rate"]))


class MadeUpReader(DataSourceStreamReader):
    """Offsets are counts of rows; tasks are as many as a topic has partitions."""

    def __init__(self, rate: int) -> None:
        self._rate = rate

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return self.latestOffset()

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802
        return {"rows": int(time.time() * self._rate)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [
            InputPartition(range(start["rows"] + each, end["rows"], PARTITIONS))
            for each in range(PARTITIONS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        us = [row * 1_000_000 // self._rate for row in partition.value]
        yield pyarrow.record_batch(
            {"timestamp": pyarrow.array(us, pyarrow.timestamp("us", tz="UTC"))}
        )


def feed(servers: str, rate: int, seconds: float) -> None:
    """Sends at the rate. One that is late does not hurry: its records are late by themselves."""
    with Producer(servers) as producer:
        began = time.monotonic()
        sent = 0
        while (elapsed := time.monotonic() - began) < seconds:
            for _ in range(int(elapsed * rate) - sent):
                now_ms = int(time.time() * 1000)
                producer.send(TOPIC, VALUE, partition=sent % PARTITIONS, timestamp_ms=now_ms)
                sent += 1
            producer.flush()
            time.sleep(TICK_S)  # the pace
    print(sent)


def measure(
    spark: SparkSession, side: Side, engine: Engine, rate: int, warm_s: float, seconds: float
) -> Found:
    """One query, fed for so long; the micro-batches of the first `warm_s` do not count."""
    jvm: Any = spark.sparkContext._jvm
    late: list[float] = []
    sizes: list[int] = []
    counts_from = time.time() + 1e9

    def take(batch: DataFrame, _: int) -> None:
        times = batch.selectExpr("unix_millis(timestamp) AS at").toArrow().column("at").to_pylist()
        now = time.time()
        if times and now >= counts_from:
            late.extend(now * 1000 - each for each in times)
            sizes.append(len(times))

    options = {"kafka.bootstrap.servers": side.bootstrap_servers, "subscribe": TOPIC}
    if engine.prunes_by_option:
        options["columns"] = "timestamp"
    if engine is FLOOR:
        options = {"rate": str(rate)}
    frame = spark.readStream.format(engine.format).options(**options, **engine.options).load()
    query = frame.writeStream.foreachBatch(take).trigger(processingTime="0 seconds").start()
    ends = engine is not FLOOR
    try:
        if ends:
            query.processAllAvailable()  # it has begun at the end of the topic
        told = [side.bootstrap_servers, str(rate), str(warm_s + seconds)]
        with subprocess.Popen(
            [sys.executable, __file__, "--feed", *told], stdout=subprocess.PIPE, text=True
        ) as feeder:
            time.sleep(warm_s)
            counts_from = time.time()
            roots = {"driver": int(jvm.ProcessHandle.current().pid()), "broker": side.pid}
            with Meter(roots) as meter:
                out, _ = feeder.communicate()
                if ends:
                    query.processAllAvailable()
        assert int(out) >= 0.9 * rate * (warm_s + seconds), "the producer did not keep its pace"
    finally:
        query.stop()
    cuts = statistics.quantiles(late, n=100)
    cpu = 1e6 * sum(meter.seconds().values()) / len(late)
    return Found(cuts[49], cuts[98], statistics.mean(sizes), cpu)


def show(found: dict[str, list[Found]]) -> None:
    """Medians over the rounds, each with the least and the most."""
    print(f"{'':<9}{'p50 ms':>28}{'p99 ms':>28}{'records a batch':>28}{'CPU us a record':>28}")
    for name, runs in found.items():
        cells = ""
        for values in zip(*runs, strict=True):
            told = f"{statistics.median(values):,.1f} ({min(values):,.1f}-{max(values):,.1f})"
            cells += f"{told:>28}"
        print(f"{name:<9}{cells}")


def main() -> None:
    """All rounds, then the medians."""
    parser = argparse.ArgumentParser(description="Latency of streams, end to end.")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="after a warm one (3)")
    parser.add_argument("--seconds", type=float, default=15, metavar="S", help="of a run (15)")
    parser.add_argument("--warm", type=float, default=5, metavar="S", help="before them (5)")
    parser.add_argument("--rate", type=int, default=10_000, metavar="N", help="a second (10000)")
    parser.add_argument("--engines", default="", help="comma-separated; all if empty")
    parser.add_argument("--feed", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.feed:
        servers, rate, seconds = arguments.feed
        feed(servers, int(rate), float(seconds))
        return
    names = chosen(arguments.engines, [each.name for each in ENGINES])
    engines = [each for each in ENGINES if each.name in names]
    found: dict[str, list[Found]] = {each.name: [] for each in engines}
    with beside_kafka("latency") as (spark, sides, _):
        spark.dataSource.register(MadeUp)
        for side in sides.values():
            create_topic(side, TOPIC, PARTITIONS, KEPT)
        for number in range(-1, arguments.rounds):
            for engine in turns(engines, number):
                run = measure(
                    spark,
                    sides[engine.side],
                    engine,
                    arguments.rate,
                    arguments.warm,
                    arguments.seconds if number >= 0 else arguments.warm,
                )
                print(json.dumps({"round": number, "engine": engine.name, **run._asdict()}))
                if number >= 0:
                    found[engine.name].append(run)
    show(found)


if __name__ == "__main__":
    main()
