"""The sinks of the pipelines in `spark/` whose driver is killed about a commit: after it goes on,
they hold each record once."""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from kafkalite import Broker

FOLDER = Path(__file__).resolve().parents[2] / "spark"
PAYMENTS, OFFSETS_PER_TRIGGER = 1200, 300


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """Each pipeline makes its topics, so that it has a broker of its own."""
    with Broker() as running:
        yield running


def pipeline(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module(name)


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


def test_postgres_has_each_payment_once_where_the_driver_dies_about_a_commit(
    spark: SparkSession, own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = pipeline("payments_to_postgres", monkeypatch)
    postgres = pipeline("postgres", monkeypatch)
    servers = own_broker.bootstrap_servers
    made = sink.make_payments(PAYMENTS, seed=1)
    sink.pipeline.create_topic(own_broker, sink.TOPIC, sink.PARTITIONS)
    sink.pipeline.send(own_broker, sink.TOPIC, (each.record() for each in made))
    with postgres.server() as database:
        sink.create_tables(database)
        for moment in ("before", "after"):
            run_until_killed(
                tmp_path, servers, str(OFFSETS_PER_TRIGGER), "postgres", database, moment
            )
        arrived = sink.read(spark, servers, OFFSETS_PER_TRIGGER)
        replayed = sink.store(arrived, database, tmp_path / "payments")
        replayed.awaitTermination()

        sink.check_tables(database, made)
    first = replayed.recentProgress[0]
    assert (first["batchId"], first["numInputRows"]) == (2, 0), "what is noted was read again"
