"""How time and CPU grow on a cluster of Spark's own, a standalone master and two workers: with the
partitions of a topic, with executors of one core, and with a stream's keys of state, in RocksDB.

    PYTHONPATH=tests:benches/vs_kafka python benches/spark/growth.py [--only partitions,state]

Spark's tuned connector on Apache Kafka and both engines on kafkalite take turns; `near` is the
columnar engine that reads from the Arrow endpoint of a broker on its machine, where the executors
of `jvm` have a child each. All brokers run all the time and hold the same records, made once. An
application has one number of executors; each of its rows has a warm pass, then `--rounds`.

Beside the CPU seconds of each kind of process stand the connections at the broker, the most at
once and those that were made; those to an Arrow endpoint are not among them.
"""

import argparse
import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from meter import CHILDREN, Meter
from pyspark.sql import SparkSession, functions
from queries import JVM, PYTHON, TUNED, Engine, Reading, all_columns, count
from records import PLAIN_100, Data, fill
from run import ARROW_LISTENER, KEPT, PROPERTIES, brokers, chosen, session, turns
from sides import Kafkalite, Side, create_topic

from kafkalite.spark.columnar import LOCAL_CHECKPOINTS
from spark.standalone import Cluster, cluster
from spark.standalone_job import await_executors

NEAR = Engine("near", "kafkalite, columnar, of the broker's endpoint", "near", "kafkalite")
ENGINES = (TUNED, PYTHON, JVM, NEAR)
WORKERS, CORES = 2, 2
MICRO_BATCHES = 4
POLL_S = 0.05
PLANNERS = "planners"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "900m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": str(WORKERS * CORES),
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    # A cluster's checkpoints are not on a local disk, where Spark starts a process for each file.
    **LOCAL_CHECKPOINTS,
}


class Row(NamedTuple):
    """One thing that is measured, by each engine. `keys`: of the state, 0 in a batch query."""

    part: str
    query: str
    partitions: int
    executors: int
    keys: int = 0


ROWS = (
    *(Row("partitions", query, each, 4) for query in ("count", "all") for each in (32, 8, 2)),
    *(Row("state", "stream", 8, 4, keys) for keys in (10_000, 100_000, 1_000_000)),
    *(Row("executors", "all", 32, each) for each in (4, 2, 1)),
    *(Row("executors", "stream", 8, each, 100_000) for each in (4, 2, 1)),
)


class Found(NamedTuple):
    """One run: seconds of the wall, CPU seconds by kind of process, connections at the broker."""

    wall: float
    cpu: float
    driver: float
    planners: float
    """The driver has started them: they plan in Python."""
    executors: float
    children: float
    """The executors have started them: Python workers, or `kafkalite arrow serve`."""
    broker: float
    open: float
    """At once, at most."""
    made: float


class Connections:
    """Clients' connections to a port of this machine, looked at while the block lasts."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.most = self.made = 0

    def __enter__(self) -> Self:
        self._seen = self._clients()[1]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            established, every = self._clients()
            self.most = max(self.most, established)
            # One that has ended stays in the table for a minute, of whichever side closed it.
            self.made += len(every - self._seen)
            self._seen = every

    def _clients(self) -> tuple[int, set[int]]:
        """How many are open, and the ports of the clients of all."""
        established, every = 0, set()
        for name in ("tcp", "tcp6"):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                fields = line.split()
                local, remote = (int(each.rpartition(":")[2], 16) for each in fields[1:3])
                if self._port in (local, remote) and remote != 0:  # else it listens
                    established += local == self._port and fields[3] == "01"
                    every.add(remote if local == self._port else local)
        return established, every


class Application:
    """One that runs on the cluster with so many executors."""

    def __init__(self, spark: SparkSession, running: Cluster, sides: dict[str, Side]) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._spark, self._jvm, self._sides = spark, jvm, sides
        self._driver = int(jvm.ProcessHandle.current().pid())
        self._executors = running.executors()

    def run(self, row: Row, engine: Engine, records: int) -> Found:
        """One run. Fails if it saw another number of records than there are."""
        side = self._sides[engine.side]
        servers, data = side.bootstrap_servers, data_of(row.partitions)
        reading = Reading(self._spark, engine, data, servers, "earliest", records)
        self._jvm.System.gc()  # the garbage of the engine before is not this one's
        executors = {f"executor-{pid}": pid for pid in self._executors}
        roots = {"driver": self._driver, "broker": side.pid, **executors}
        with (
            Meter(roots, {"driver": PLANNERS}) as meter,
            Connections(int(servers.rpartition(":")[2])) as connections,
        ):
            began = time.monotonic()
            seen = self._ask(row, reading)
            wall = time.monotonic() - began
        assert seen in (None, records), f"{row}, {engine.name}: {seen} records, not {records}"
        spent = meter.seconds()
        theirs = sum(spent[name] for name in executors)
        parts = (spent["driver"], spent[PLANNERS], theirs, spent[CHILDREN], spent["broker"])
        return Found(wall, sum(parts), *parts, connections.most, connections.made)

    def _ask(self, row: Row, reading: Reading) -> int | None:
        if row.query == "all":
            all_columns(reading)
            return None
        return count(reading) if row.query == "count" else self._stream(row, reading)

    def _stream(self, row: Row, reading: Reading) -> int:
        """Counts by key what is there, in some micro-batches; each key comes as often as others."""
        per_trigger = str(-(-reading.records // MICRO_BATCHES))
        reader = self._spark.readStream.format(reading.engine.format)
        frame = reader.options(**reading.options(None), maxOffsetsPerTrigger=per_trigger).load()
        key = functions.expr(f"(offset * {row.partitions} + partition) % {row.keys}")
        counted = frame.groupBy(key.alias("key")).agg(
            functions.count("*"), functions.sum(functions.length("value"))
        )
        writer = counted.writeStream.format("noop").outputMode("update")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        told = query.recentProgress
        (state,) = told[-1]["stateOperators"]
        assert state["numRowsTotal"] == min(row.keys, reading.records), "keys are missing"
        return sum(progress["numInputRows"] for progress in told)


@contextmanager
def application(
    running: Cluster, sides: dict[str, Side], folder: Path, executors: int
) -> Iterator[Application]:
    """One with so many executors, which are all there."""
    settings = SETTINGS | {"spark.master": running.master, "spark.cores.max": str(executors)}
    spark = session(folder, **settings)
    try:
        context: Any = spark.sparkContext._jsc.sc()
        await_executors(context, executors)
        yield Application(spark, running, sides)
    finally:
        spark.stop()
        while running.executors():  # which end with it
            time.sleep(0.1)  # between two looks


def data_of(partitions: int) -> Data:
    """The topic with so many."""
    return PLAIN_100._replace(name=f"plain-{partitions}")


def fill_all(sides: dict[str, Side], records: int) -> None:
    """A topic for each number of partitions, with as many records, on all brokers."""
    servers = [side.bootstrap_servers for side in sides.values()]
    for partitions in sorted({row.partitions for row in ROWS}):
        for side in sides.values():
            create_topic(side, data_of(partitions).name, partitions, KEPT)
        fill(data_of(partitions), records, servers, partitions)


def show(row: Row, found: dict[str, list[Found]]) -> None:
    """The medians of a row, with the least and the most of the whole CPU."""
    what = f"{row.query}, {row.partitions} partitions, {row.executors} executors, {row.keys:,} keys"
    print(f"\n{what}; load average {os.getloadavg()[0]:.1f}", flush=True)
    print(f"  {'':<8}{''.join(f'{name:>11}' for name in Found._fields)}{'CPU from..to':>16}")
    for name, runs in found.items():
        medians = "".join(f"{statistics.median(each):>11.2f}" for each in zip(*runs, strict=True))
        cpu = sorted(run.cpu for run in runs)
        print(f"  {name:<8}{medians}{f'{cpu[0]:.2f}..{cpu[-1]:.2f}':>16}", flush=True)


def main() -> None:
    """All rows, an application after the other."""
    parts = list(dict.fromkeys(row.part for row in ROWS))
    parser = argparse.ArgumentParser(description="How a query's time and CPU grow on a cluster.")
    parser.add_argument("--records", type=int, default=1_000_000, metavar="N", help="(1000000)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="after a warm one (3)")
    parser.add_argument("--only", default="", help=f"of {','.join(parts)}; all if empty")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if row.part in chosen(arguments.only, parts)]
    with ExitStack() as stack:
        sides, folder = stack.enter_context(brokers("growth"))
        sides["near"] = Kafkalite(folder / "near", "none", {**PROPERTIES, **ARROW_LISTENER})
        fill_all(sides, arguments.records)
        running = stack.enter_context(cluster(folder, WORKERS, CORES))
        for executors in sorted({row.executors for row in rows}, reverse=True):
            with application(running, sides, folder / f"of-{executors}", executors) as started:
                for row in (each for each in rows if each.executors == executors):
                    found: dict[str, list[Found]] = {engine.name: [] for engine in ENGINES}
                    for number in range(-1, arguments.rounds):
                        for engine in turns(ENGINES, number):
                            run = started.run(row, engine, arguments.records)
                            found[engine.name] += [run] if number >= 0 else []
                    show(row, found)


if __name__ == "__main__":
    main()
