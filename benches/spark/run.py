"""`make bench-spark`: Spark reads and writes kafkalite, beside its own connector on Apache Kafka.

    python benches/spark/run.py [--records 3000000] [--pairs 3] [--only sum,json] [--out DIRECTORY]

One driver JVM (`local[2]`), both brokers, the same records in both, all the time. Each query has
two warm passes of every engine and then `--pairs` rounds in which the engines take turns in going
first. Every run is a line of `raw.jsonl`, from which `ratios.py` makes the report.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import ratios
from meter import CHILDREN, Meter
from pyspark.sql import SparkSession
from queries import (
    ENGINES,
    FLOORS,
    JVM,
    QUERIES,
    TOPICS,
    TUNED,
    WRITTEN_SHARE,
    Engine,
    Query,
    Reading,
    write_files,
)
from records import PARTITIONS, Data, fill
from shapes import RECYCLING
from sides import Kafka, Kafkalite, Side, create_topic

import kafkalite.spark
from kafkalite.client.admin import LATEST, Admin
from oracle.jars import spark_connector_jars
from oracle.tools import KafkaTools

ROOT = Path(__file__).resolve().parents[2]
SPARK_LOG = ROOT / "tests" / "spark" / "log4j2.properties"
WARM_PASSES = 2
"""Of each engine: a query in a JVM that has not compiled it yet costs up to four times as much."""
KEPT = {"retention.ms": "-1"}
"""The timestamps of the records are the same in every run, and so are old."""
PROPERTIES = {"message.max.bytes": "20000000", "num.partitions": "1"}
ARROW_LISTENER = {"kafkalite.arrow.listener": "127.0.0.1:0"}
SPARK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.pyspark.driver.python": sys.executable,
    "spark.pyspark.python": sys.executable,
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(folder: Path, **more: str) -> SparkSession:
    """The driver, with both ways to a topic on its class path; `more` goes before the settings
    here."""
    log = f"-Dlog4j2.configurationFile={SPARK_LOG} -Dkafkalite.test.log={folder / 'spark.log'}"
    settings = {
        **SPARK,
        "spark.driver.extraJavaOptions": log,
        "spark.jars": ",".join(map(str, spark_connector_jars())),
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **more,
    }
    return kafkalite.spark.session("bench-spark", **settings)


@contextmanager
def brokers(name: str, **more: str) -> Iterator[tuple[dict[str, Side], Path]]:
    """Both brokers by the names of engines' sides, and their folder, until the block ends."""
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
    sides: dict[str, Side] = {}
    try:
        with KafkaTools() as tools:
            sides["kafka"] = Kafka(folder, tools, PROPERTIES)
            sides["ours"] = Kafkalite(folder, "none", {**PROPERTIES, **more})
            yield sides, folder
    finally:
        for side in sides.values():
            side.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def beside_kafka(name: str) -> Iterator[tuple[SparkSession, dict[str, Side], Path]]:
    """One driver and both brokers, until the block ends."""
    with brokers(name, **ARROW_LISTENER) as (sides, folder):
        spark = session(folder)
        yield spark, sides, folder
        spark.stop()


Turn = TypeVar("Turn")


def turns(each: Sequence[Turn], number: int) -> list[Turn]:
    """All of them in the order of a round: they take turns in going first."""
    first = max(number, 0) % max(1, len(each))
    return [*each[first:], *each[:first]]


class Bench:
    """One run of everything. `lines` goes to `raw.jsonl` as it comes."""

    def __init__(
        self, spark: SparkSession, sides: dict[str, Side], out: Path, records: int, folder: Path
    ) -> None:
        self._folder = folder
        self.spark = spark
        self.sides = sides
        self.records = records
        self.lines: list[dict[str, Any]] = []
        self._raw = (out / "raw.jsonl").open("w")
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._jvm_pid = int(jvm.ProcessHandle.current().pid())

    def note(self, **facts: Any) -> None:
        """Keeps a line."""
        self.lines.append(facts)
        self._raw.write(json.dumps(facts) + "\n")
        self._raw.flush()

    def fill(self, data: Data) -> None:
        """The topic, with the same records on both sides."""
        started = time.monotonic()
        brokers = [side.bootstrap_servers for side in self.sides.values()]
        for side in self.sides.values():
            create_topic(side, data.name, PARTITIONS, KEPT)
            create_topic(side, f"{data.name}-written", PARTITIONS, RECYCLING)
        size, checksum = fill(data, self.records, brokers)
        count = data.count(self.records)
        self.note(topic=data.name, records=count, log_bytes=size, checksum=checksum)
        print(
            f"\n{data.what}: {count:,} records, {size / 1e6:,.0f} MB in each log, CRC-32 "
            f"{checksum:08x}, {time.monotonic() - started:.0f} s",
            flush=True,
        )

    def measure(self, query: Query, data: Data, engines: Sequence[Engine], pairs: int) -> None:
        """The warm passes and the rounds of one query on one topic."""
        readings = [self.reading(query, data, engine) for engine in engines]
        for pair in range(-WARM_PASSES, pairs):
            for reading in turns(readings, pair):
                try:
                    facts = self.run(query, reading)
                except Exception as error:  # noqa: BLE001 - the other engines are measured
                    self.fail(query, data, reading.engine, error)
                    readings.remove(reading)
                    continue
                if pair >= 0:
                    self.note(query=query.name, data=data.name, engine=reading.engine.name,
                              pair=pair, records=reading.records, **facts)  # fmt: skip
        self.spark.catalog.clearCache()
        print(ratios.line(query, data, self.lines), flush=True)

    def fail(self, query: Query, data: Data, engine: Engine, error: Exception) -> None:
        """Tells and keeps what an engine failed with; `main` ends with exit code 1 then."""
        lines = [line for line in str(error).splitlines() if line.strip()]
        sentence = f"{type(error).__name__}: {lines[0] if lines else ''}"
        self.note(failed=query.name, data=data.name, engine=engine.name, error=str(error))
        print(f"  {query.name} of {data.name} by {engine.name} FAILED: {sentence}", flush=True)

    def reading(self, query: Query, data: Data, engine: Engine) -> Reading:
        """Which records the engine gets; what is to be written is made here."""
        side = self.sides[engine.side]
        share = engine.share * (WRITTEN_SHARE if query.name == "write" else 1)
        end = data.count(self.records) // PARTITIONS
        start = round(end * (1 - share))
        offsets = json.dumps({data.name: {str(each): start for each in range(PARTITIONS)}})
        reading = Reading(
            self.spark, engine, data, side.bootstrap_servers, offsets, (end - start) * PARTITIONS
        )
        if engine in FLOORS:
            files = self._folder / f"{data.name}-{query.name}-{engine.name}"
            write_files(query, reading._replace(engine=JVM), engine, files)
            return reading._replace(files=str(files))
        if query.name != "write":
            return reading
        source = reading._replace(engine=TUNED, bootstrap=self.sides["kafka"].bootstrap_servers)
        frame = source.load(None).select("value").cache()
        assert frame.count() == reading.records
        return reading._replace(frame=frame, write_topic=f"{data.name}-written")

    def run(self, query: Query, reading: Reading) -> dict[str, Any]:
        """One run. Raises if it saw another number of records than there are."""
        side = self.sides[reading.engine.side]
        before = end_offsets(side, reading.write_topic) if reading.write_topic else 0
        self._jvm.System.gc()  # the garbage of the engine before is not this one's
        started = time.monotonic()
        with Meter({"driver": self._jvm_pid, "broker": side.pid}) as meter:
            seen = query.run(reading)
            wall_s = time.monotonic() - started
        if reading.write_topic:
            seen = end_offsets(side, reading.write_topic) - before
        if seen is not None and seen != reading.records:
            raise RuntimeError(
                f"{query.name} of {reading.data.name} by {reading.engine.name}: {seen} records, "
                f"there are {reading.records}"
            )
        spent = meter.seconds()
        return {
            "cpu_s": round(sum(spent.values()), 3),
            "driver_s": round(spent["driver"], 3),
            "children_s": round(spent[CHILDREN], 3),
            "broker_s": round(spent["broker"], 3),
            "wall_s": round(wall_s, 3),
        }


def end_offsets(side: Side, topic: str) -> int:
    """Records that were ever in the topic."""
    wanted = {(topic, partition): LATEST for partition in range(PARTITIONS)}
    with Admin(side.bootstrap_servers) as admin:
        return sum(each.offset for each in admin.list_offsets(wanted).values())


def chosen(only: str, known: Sequence[str]) -> set[str]:
    """The names of a flag. Exits with one sentence at a name that is not known."""
    names = set(filter(None, only.split(",")))
    if unknown := names - set(known):
        sys.exit(f"there is no {', '.join(sorted(unknown))}; there is {', '.join(known)}")
    return names or set(known)


def main() -> None:
    """Everything, then the report."""
    parser = argparse.ArgumentParser(description="Spark on kafkalite beside Spark on Apache Kafka")
    parser.add_argument("--records", type=int, default=3_000_000, help="of 100 B (3,000,000)")
    parser.add_argument("--pairs", type=int, default=3, help="rounds after the warm one (3)")
    parser.add_argument("--only", default="", help="queries, comma-separated; all if empty")
    parser.add_argument("--topics", default="", help="topics, comma-separated; all if empty")
    parser.add_argument("--engines", default="", help="engines, comma-separated; all if empty")
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "reports" / "spark")
    arguments = parser.parse_args()
    names = chosen(arguments.only, [each.name for each in QUERIES])
    topics = chosen(arguments.topics, [each.name for each in TOPICS])
    engines = chosen(arguments.engines, [each.name for each in ENGINES])
    arguments.out.mkdir(parents=True, exist_ok=True)
    started = time.time()
    with beside_kafka("spark") as (spark, sides, folder):
        bench = Bench(spark, sides, arguments.out, arguments.records, folder)
        for data in TOPICS:
            queries = [each for each in QUERIES if each.name in names and data in each.topics]
            if data.name not in topics or not queries:
                continue
            bench.fill(data)
            for query in queries:
                own = [each for each in query.engines if each.name in engines]
                bench.measure(query, data, own, arguments.pairs)
    report = ratios.write(arguments.out, bench.lines, arguments.pairs, started)
    print(f"\n{report}")
    if any("failed" in line for line in bench.lines):
        sys.exit("not every engine has answered every query: see FAILED above")


if __name__ == "__main__":
    main()
