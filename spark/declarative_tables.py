#!/usr/bin/env python3
"""Keeps tables and a topic current by Spark Declarative Pipelines: `spark-pipelines run`, twice.

    python spark/declarative_tables.py [--orders 200000]

`declarative/` is the pipeline: orders of a topic become a typed streaming table, that table a view
of revenue by city and a topic of revenue by minute. Half of the orders are sent before the first
run, the others before the second, which reads no more than those. After each, both tables and
the topic are held against what was sent.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalite import Broker

PROJECT = Path(__file__).with_name("declarative")
TOPIC = "orders"
MINUTES = "revenue-by-minute"
PARTITIONS = 2
RUNS = 2
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
SPAN_MS = 3_600_000
MINUTE_MS, WATERMARK_MS = 60_000, 10_000
CITIES = ("Bergen", "Cusco", "Davos", "Lagos", "Ghent", "Kyoto", "Quito", "Turku")


class Order(NamedTuple):
    """One order; its record's timestamp is when it was made."""

    id: int
    city: str
    cents: int
    made_ms: int

    def record(self) -> pipeline.Record:
        """As it goes into the topic."""
        value = {"id": self.id, "city": self.city, "cents": self.cents}
        return pipeline.Record(
            json.dumps(value).encode(), timestamp_ms=self.made_ms, partition=self.id % PARTITIONS
        )


class Found(NamedTuple):
    """Rows of the tables, sorted, and the records of the topic."""

    orders: list[tuple[int, str, int]]
    revenue: list[tuple[str, int, int]]
    minutes: list[tuple[int, int, int]]
    """Start (ms), orders, cents."""


def make_orders(count: int, seed: int) -> list[Order]:
    """Within an hour, in the order of their time."""
    draw = random.Random(seed)
    return [
        Order(
            number,
            draw.choice(CITIES),
            draw.randrange(100, 100_000),
            START_MS + number * SPAN_MS // count,
        )
        for number in range(count)
    ]


def run(
    spark: "SparkSession", broker: "Broker", folder: Path, options: argparse.Namespace
) -> list[Found]:
    """Sends, runs, compares, twice. Returns what was found after each run."""
    need_pipelines()
    made = make_orders(options.orders, options.seed)
    pipeline.create_topic(broker, TOPIC, PARTITIONS)
    pipeline.create_topic(broker, MINUTES, 1)
    project = copy_project(broker, folder)
    found = []
    for turn in range(1, RUNS + 1):
        done, sent = (len(made) * part // RUNS for part in (turn - 1, turn))
        pipeline.send(broker, TOPIC, (order.record() for order in made[done:sent]))
        pipeline.step(f"{sent - done:,} orders sent, spark-pipelines run")
        run_pipeline(project)
        found.append(look(spark, broker, project / "spark-warehouse"))
        if found[-1] != expected(made[:sent]):
            raise pipeline.StopError(f"after run {turn} the tables differ from what was sent")
        rows, cities, minutes = map(len, found[-1])
        pipeline.step(
            f"{rows:,} rows of {sent:,} orders, revenue of {cities} cities and of {minutes} "
            "minutes: each order counted once"
        )
    return found


def need_pipelines() -> None:
    """Raises `StopError` without the packages of `spark-pipelines`, which tells none by name."""
    for module in ("grpc", "grpc_status", "zstandard", "yaml"):
        pipeline.need(module, "'pyspark[pipelines]'")


def copy_project(broker: "Broker", folder: Path) -> Path:
    """The pipeline in a folder of its own, where its tables and its catalog will be, with this
    broker's address."""
    project = folder / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    spec = project / "spark-pipeline.yml"
    spec.write_text(
        spec.read_text()
        .replace("file:///var/tmp/orders-pipeline", (project / "storage").as_uri())
        .replace("127.0.0.1:9092", broker.bootstrap_servers)
    )
    return project


def run_pipeline(project: Path) -> None:
    """`spark-pipelines run`, as in a shell; it shows its flows. Hive's catalog is in files, where
    Spark's own forgets at its end which tables there are, and the next run would fail."""
    import pyspark

    with subprocess.Popen(
        [
            Path(pyspark.__file__).with_name("bin") / "spark-pipelines",
            "run",
            *("--conf", "spark.sql.catalogImplementation=hive"),
            *("--conf", "spark.ui.enabled=false"),
        ],
        cwd=project,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            told, _ = running.communicate()
        except BaseException:
            # Its shell has a JVM, and that a Python, which would go on.
            os.killpg(running.pid, signal.SIGKILL)
            raise
    for line in _flows(told):
        print(f"   {line}", flush=True)
    if running.returncode:
        raise pipeline.StopError(f"spark-pipelines failed:\n{told}")


def _flows(told: str) -> Iterator[str]:
    """What became of each flow, without Spark's warnings."""
    for line in told.splitlines():
        _, is_flow, rest = line.partition(": Flow ")
        if is_flow and rest.endswith((" has COMPLETED.", " has FAILED.")):
            yield rest.removeprefix("spark_catalog.default.")


def look(spark: "SparkSession", broker: "Broker", warehouse: Path) -> Found:
    """Reads everything back, of the topic what is committed."""
    orders = spark.read.parquet(str(warehouse / "orders")).select("id", "city", "cents").collect()
    minutes = (
        spark.read.format("kafkalite")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", MINUTES)
        .option("kafka.isolation.level", "read_committed")
        .option("value.format", "json")
        .option("value.schema", "start_ms BIGINT, orders BIGINT, cents BIGINT")
        .load()
        .select("value.*")
        .collect()
    )
    revenue = spark.read.parquet(str(warehouse / "revenue")).collect()
    return Found(*(sorted(map(tuple, rows)) for rows in (orders, revenue, minutes)))


def expected(made: list[Order]) -> Found:
    """The same out of the orders themselves; the last minutes are still open."""
    over_ms = made[-1].made_ms - WATERMARK_MS
    count: Counter[str | int] = Counter()
    cents: Counter[str | int] = Counter()
    for order in made:
        start_ms = order.made_ms - order.made_ms % MINUTE_MS
        for group in (order.city, start_ms):
            count[group] += 1
            cents[group] += order.cents
    rows = [(group, count[group], cents[group]) for group in count]
    return Found(
        [(order.id, order.city, order.cents) for order in made],
        sorted(row for row in rows if isinstance(row[0], str)),
        sorted(row for row in rows if isinstance(row[0], int) and row[0] + MINUTE_MS <= over_ms),
    )


def command_line() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description="Tables kept current by spark-pipelines.")
    parser.add_argument(
        "--orders", type=int, default=200_000, metavar="N", help="orders to send (200000)"
    )
    return parser


if __name__ == "__main__":
    pipeline.main("declarative tables", command_line(), run)
