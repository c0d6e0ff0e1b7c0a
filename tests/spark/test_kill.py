"""A streaming query is killed at random points and started again from its checkpoint: its sink,
which replaces what a micro-batch wrote before, then holds each record once."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from itertools import cycle, islice
from pathlib import Path
from typing import Self

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from kafkalite import Broker
from oracle.tools import Record
from spark.killed_query import start_query
from spark.reading import ends_of, read_stream
from spark.records import START_MS, create, send

pytestmark = pytest.mark.oracle

SEED = 21
PARTITIONS = 3
OFFSETS_PER_TRIGGER = 60
AT_FIRST = 600
BETWEEN_KILLS = 90
START_S = 300


class Query:
    """A program that runs a query, and what it has said so far."""

    def __init__(self, folder: Path, *arguments: str, program: str = "spark.killed_query") -> None:
        self._said = threading.Semaphore(0)
        self.lines: list[str] = []
        tests = Path(__file__).parents[1]
        paths = [str(tests), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._errors = (folder / "errors.txt").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", program, folder, *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.strip())
            self._said.release()
        self._said.release()

    def await_lines(self, count: int) -> None:
        """Returns when the query has said so many lines; fails if it ends before."""
        for _ in range(count):
            assert self._said.acquire(timeout=START_S), "the query does not go on"
        assert self._process.poll() is None, "the query ended by itself"

    @property
    def is_running(self) -> bool:
        """False if it has ended by itself."""
        return self._process.poll() is None

    def kill_after(self, seconds: float) -> None:
        """SIGKILL to Python and its JVM together; workers end with their pipes."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        assert self._process.poll() is None, "the query ended by itself"
        os.killpg(self._process.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left behind, whatever the test thought of it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


def numbered(topic: str, start: int, count: int) -> list[Record]:
    return [
        Record(topic, b"%d" % number, partition=number % PARTITIONS, timestamp=START_MS + number)
        for number in range(start, start + count)
    ]


def read_to_the_end(spark: SparkSession, folder: Path, servers: str, topic: str) -> list[str]:
    """The query once more, in this process: another JVM would be a quarter of the test."""
    said: list[str] = []
    frame = read_stream(spark, "python", servers, {"subscribe": topic})
    start_query(frame, folder, said.append, available_now=True).awaitTermination()
    return said


def check_killed(
    spark: SparkSession, broker: Broker, folder: Path, topic: str, kills: int, seed: int
) -> None:
    """Both engines by turns on one checkpoint, killed `kills` times; then once to the end."""
    draw = random.Random(seed)
    servers = broker.bootstrap_servers
    create(servers, topic, PARTITIONS)
    count = AT_FIRST
    send(servers, numbered(topic, 0, count), "lz4")
    seen: list[str] = []
    for engine in islice(cycle(["python", "jvm"]), kills):
        with Query(folder, engine, servers, topic, str(OFFSETS_PER_TRIGGER)) as query:
            query.await_lines(draw.randrange(1, 6))
            query.kill_after(draw.uniform(0, 0.4))
        seen += query.lines
        send(servers, numbered(topic, count, BETWEEN_KILLS), "zstd")
        count += BETWEEN_KILLS
    seen += read_to_the_end(spark, folder, servers, topic)

    found: Counter[bytes] = Counter()
    for batch in (folder / "sink").iterdir():
        table = pyarrow.parquet.read_table(batch)
        found.update(table.column("value").to_pylist())
    assert found == Counter(record.value for record in numbered(topic, 0, count))
    assert sum(ends_of(folder / "checkpoint")[-1][topic].values()) == count
    begun = Counter(line for line in seen if line.startswith("begin"))
    assert len(begun) > kills, "it was over before it was killed"
    assert max(begun.values()) > 1 or kills < 10, "no micro-batch was ever repeated"


@pytest.mark.timeout(900)
def test_a_query_killed_with_each_engine_writes_each_record_once(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    check_killed(spark, broker, tmp_path, "killed", kills=2, seed=SEED)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_query_killed_twenty_times_writes_each_record_once(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    check_killed(spark, broker, tmp_path, "killed-often", kills=20, seed=SEED + 1)
