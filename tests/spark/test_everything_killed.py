"""Payments to tables of PostgreSQL, a Delta table, Parquet files and a topic, a query each, while
driver, Spark's workers, broker and database are killed at random, and the streams move between
Spark's own connector and both engines: each sink holds each payment once."""

import importlib
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from kafkalite import Broker
from spark.programs import FOLDER
from spark.reading import CONNECTOR
from spark.test_kill import Query

pytestmark = pytest.mark.oracle

SEED = 23
PAYMENTS_OF_A_ROUND, PER_TRIGGER = 240, 60
VICTIMS = ("database", "broker", "worker")
SOURCES = (CONNECTOR, "python", "jvm")
KILLS_SHORT = 5
OF_EACH_LONG = int(os.environ.get("KAFKALITE_TEST_OUTAGES", "100"))
LONG = (pytest.mark.long, pytest.mark.timeout(7200))
STEPS_BEFORE = 6
"""Fewer steps of queries, each a micro-batch that is planned or is done, come before the kill."""
KILL_S_MAX = 0.4
GO_ON_S = 600
"""Within it a query is to go on, or to fail; and to end, when all is to be read."""
CONFIG = {
    "log.retention.ms": "-1",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class Pipelines:
    """Broker, database and sinks of one test."""

    def __init__(
        self,
        spark: SparkSession,
        broker: Broker,
        database: Any,
        folder: Path,
        sinks: ModuleType,
        rounds: int,
    ) -> None:
        self.spark, self.broker, self.database, self.sinks = spark, broker, database, sinks
        self.place = sinks.Place(folder, broker.bootstrap_servers, database.address)
        self._every = sinks.payments.make(PAYMENTS_OF_A_ROUND * rounds, SEED)
        self.made: list[Any] = []
        """Those that were sent."""
        self.hit: Counter[str] = Counter()
        """Kills amid a micro-batch, by victim and sink."""
        self.said: Counter[str] = Counter()
        """What queries have failed with, by victim."""
        self.done: Counter[str] = Counter()
        """Micro-batches that were done between kills, by sink."""

    def send(self) -> None:
        """Sends those of the next round."""
        payments, sent = self.sinks.payments, len(self.made)
        new = self._every[sent : sent + PAYMENTS_OF_A_ROUND]
        payments.pipeline.send(self.broker, payments.TOPIC, (each.record() for each in new))
        self.made += new

    def note(self, victim: str, names: Iterable[str]) -> None:
        """Counts, at a kill, what it hits."""
        for name in names:
            self.hit[f"{victim}, {name}"] += self.place.is_under_way(name)

    def read_the_rest(self) -> None:
        """Has the queries go to the end, and compares."""
        for name in self.sinks.SINKS:
            self.done[name] = self.place.last(name, "commits") + 1
        for query in self.sinks.start(self.spark, "jvm", self.place, len(self.made)).values():
            assert query.awaitTermination(GO_ON_S), self.stacks(query)
        self.sinks.check(self.spark, self.place, self.made)

    def stacks(self, *queries: StreamingQuery) -> str:
        """Says where queries hang."""
        jvm: Any = self.spark.sparkContext._jvm
        pid = str(jvm.ProcessHandle.current().pid())
        threads = subprocess.run(["jstack", pid], capture_output=True, text=True).stdout
        told = "".join(f"{query.status}, {query.lastProgress}\n" for query in queries)
        return f"{told}{threads}"


@contextmanager
def pipelines(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> Iterator[Pipelines]:
    """Everything that may be killed."""
    monkeypatch.syspath_prepend(FOLDER)
    sinks = importlib.import_module("spark.all_sinks")
    settings = {**sinks.DELTA, "spark.sql.streaming.stopTimeout": f"{GO_ON_S}s"}
    # A Unix socket's path is short.
    with (
        Broker(folder / "data", config=CONFIG) as broker,
        tempfile.TemporaryDirectory(prefix="kafkalite-") as short,
    ):
        database = sinks.payments_to_postgres.postgres.Server(Path(short))
        database.start()
        try:
            for name, value in settings.items():
                spark.conf.set(name, value)
            payments = sinks.payments_to_postgres
            payments.postgres.create_tables(database.address, payments.TABLES)
            create_topic = sinks.payments.pipeline.create_topic
            create_topic(broker, sinks.payments.TOPIC, sinks.payments.PARTITIONS)
            create_topic(broker, sinks.COPY, sinks.payments.PARTITIONS)
            yield Pipelines(spark, broker, database, folder, sinks, rounds)
        finally:
            for name in settings:
                spark.conf.unset(name)
            database.stop()


def rounds(others: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Victim, source and sinks of each round. Each victim meets each source, and, but for the
    database, each sink by each source."""
    for number in count():
        turn, victim = divmod(number, len(VICTIMS))
        other = (
            []
            if VICTIMS[victim] == "database"
            else [others[(victim + 2 * turn + turn // len(SOURCES)) % len(others)]]
        )
        yield VICTIMS[victim], SOURCES[(victim + turn) % len(SOURCES)], ["postgres", *other]


@pytest.mark.parametrize(
    "kills", [KILLS_SHORT, pytest.param(len(VICTIMS) * OF_EACH_LONG, marks=LONG)]
)
def test_each_payment_is_stored_once_whatever_is_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    draw = random.Random(SEED)
    began = time.monotonic()
    with pipelines(spark, tmp_path, monkeypatch, kills) as there:
        others = [name for name in there.sinks.SINKS if name != "postgres"]
        for number, each in enumerate(islice(rounds(others), kills)):
            there.send()
            try:
                one_kill(there, draw, *each)
            except BaseException as error:
                error.add_note(f"kill {number}: {each}")
                raise
        there.read_the_rest()
    tell(there, kills, began)
    assert sum(there.hit.values()) > kills / 2, "what was killed was no longer in use"


def one_kill(
    there: Pipelines, draw: random.Random, victim: str, source: str, names: Sequence[str]
) -> None:
    """Starts the queries of sinks, kills amid their micro-batches, and has them go on or fail."""
    place = there.place
    steps = sum(map(place.steps, names)) + draw.randrange(STEPS_BEFORE)
    queries = there.sinks.start(there.spark, source, place, PER_TRIGGER, names)

    def is_due() -> bool:
        is_over = not any(query.isActive for query in queries.values())
        return is_over or sum(map(place.steps, names)) >= steps

    await_event(is_due, lambda: there.stacks(*queries.values()))
    time.sleep(draw.uniform(0, KILL_S_MAX))  # the fault comes amid anything
    there.note(victim, names)
    kill(there, victim)
    at_kill = {name: place.last(name, "commits") for name in names}
    for name, query in queries.items():
        end(there, query, partial(goes_on, place, name, at_kill[name]))
        if failure := query.exception():
            there.said[f"{victim}: {first_line(failure)}"] += 1


def goes_on(place: Any, name: str, commit: int) -> bool:
    """Says whether a query has done another micro-batch since."""
    return bool(place.last(name, "commits") > commit)


def end(there: Pipelines, query: StreamingQuery, has_gone_on: Callable[[], bool]) -> None:
    """Has the query go on, or fail, since it may have lost what it needed, and then stops it amid
    whatever it does. It is started again. Another exception than a query's own fails the test."""
    await_event(lambda: not query.isActive or has_gone_on(), lambda: there.stacks(query))
    with suppress(StreamingQueryException):
        query.stop()
        query.awaitTermination(GO_ON_S)


def await_event(has_happened: Callable[[], bool], explain: Callable[[], str]) -> None:
    """Returns when it has; fails with the explanation after `GO_ON_S`."""
    deadline = time.monotonic() + GO_ON_S
    while not has_happened():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.02)  # between two polls of the checkpoints


def kill(there: Pipelines, victim: str) -> None:
    """SIGKILL, and what must be there is started again."""
    if victim == "database":
        there.database.kill()
        there.database.start()
    elif victim == "broker":
        there.broker.kill()
        there.broker.start()
    else:
        for pid in workers(there.spark):
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


@pytest.mark.parametrize("kills", [pytest.param(OF_EACH_LONG, marks=LONG)])
def test_each_payment_is_stored_once_whenever_the_driver_is_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    draw = random.Random(SEED)
    began = time.monotonic()
    paths = filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    with pipelines(spark, tmp_path, monkeypatch, kills) as there:
        for source, name in islice(zip(cycle(SOURCES), cycle(there.sinks.SINKS)), kills):
            there.send()
            one_driver(there, draw, source, name)
        there.read_the_rest()
    tell(there, kills, began)
    assert sum(there.hit.values()) > kills / 4, "it was killed between micro-batches"


def one_driver(there: Pipelines, draw: random.Random, source: str, name: str) -> None:
    """Starts a driver with the query of a sink, and kills it amid whatever it does."""
    place = there.place
    steps = place.steps(name) + draw.randrange(1, STEPS_BEFORE)
    arguments = (place.servers, place.database, source, str(PER_TRIGGER), name)
    with Query(place.folder, *arguments, program="spark.killed_driver") as driver:
        await_event(
            lambda: place.steps(name) >= steps or not driver.is_running,
            lambda: (place.folder / "errors.txt").read_text(),
        )
        driver.kill_after(draw.uniform(0, KILL_S_MAX))
    there.note("driver", [name])


def first_line(failure: BaseException) -> str:
    """As much as tells one failure from another."""
    return next(iter(str(failure).splitlines()), "")[:120]


def tell(there: Pipelines, kills: int, began: float) -> None:
    """What there was, for who runs it with -s."""
    seconds = time.monotonic() - began
    print(f"\n{kills} kills, {len(there.made)} payments, {seconds:.0f} s")
    told = {"hit amid a micro-batch": there.hit, "failed": there.said, "done": there.done}
    for what, counts in told.items():
        for name, times in sorted(counts.items()):
            print(f"  {what}: {times:>5}  {name}")
