"""A standalone master of Spark's and two workers, each a process, with four executors: a job that
is submitted finds wheel and jar, has its tasks on all executors, and outlives one that dies."""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from kafkalite import Broker
from kafkalite.client import Admin, Producer
from kafkalite.client.network.cluster import Cluster as Brokers
from kafkalite.client.producer.transactions import open_ids
from kafkalite.spark import jar_path
from spark.session import HERE, JVM_FLAGS
from spark.standalone import Cluster, cluster, read_lines
from spark.test_writing import values

pytestmark = [pytest.mark.oracle, pytest.mark.long, pytest.mark.timeout(3000)]

WORKERS, CORES = 2, 2
EXECUTORS = WORKERS * CORES
PARTITIONS = (2, 8, 32)
RECORDS = 4_000
CITIES = ("Bergen", "Cusco", "Davos", "Lagos")


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1",
    "spark.speculation.quantile": "0.5",
}


def arguments(
    program: str = "standalone_job.py", more: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    jar = jar_path()
    assert jar is not None
    flags = " ".join(JVM_FLAGS)
    conf = {
        "spark.executor.cores": "1",
        "spark.executor.memory": "600m",
        "spark.cores.max": str(EXECUTORS),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": flags,
        "spark.executor.extraJavaOptions": flags,
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
        **more,
    }
    settings = [flag for name, value in conf.items() for flag in ("--conf", f"{name}={value}")]
    return ["--jars", str(jar), *settings, str(HERE / program)]


def fill(servers: str) -> list[str]:
    """A topic for each number of partitions, with the same records."""
    topics = [f"cities-{each}" for each in PARTITIONS]
    with Admin(servers) as admin, Producer(servers, codec="lz4") as producer:
        for topic, partitions in zip(topics, PARTITIONS, strict=True):
            admin.create_topic(topic, partitions=partitions)
            for number in range(RECORDS):
                city = CITIES[number % len(CITIES)]
                value = json.dumps({"id": number, "city": city, "cents": number % 1000})
                producer.send(topic, value.encode(), partition=number % partitions)
        producer.flush()
    return topics


def check(told: list[str], topics: list[str]) -> None:
    """Every query of the job saw every record."""
    rows = [line.split() for line in told if " rows " in line]
    assert [row[0] for row in rows] == [topic for topic in topics for _ in range(2)]
    assert {int(row[2]) for row in rows} == {RECORDS}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), WORKERS, CORES) as found:
        yield found


def test_a_job_has_its_tasks_on_all_executors(running: Cluster) -> None:
    with Broker() as broker:
        topics = fill(broker.bootstrap_servers)
        job = (broker.bootstrap_servers, "jvm", ",".join(topics), str(EXECUTORS))
        with running.submitted(*arguments(), *job) as submitted:
            told = read_lines(submitted, "tasks ")
            assert submitted.wait(120) == 0
    check(told, topics)
    tasks = [int(each) for each in told[-1].removeprefix("tasks ").split(",")]
    assert len(tasks) == EXECUTORS
    assert min(tasks) > 0


def test_a_job_outlives_an_executor(running: Cluster) -> None:
    with Broker() as broker:
        topics = fill(broker.bootstrap_servers)[-1:]
        job = (broker.bootstrap_servers, "jvm", topics[0], str(EXECUTORS))
        with running.submitted(*arguments(), *job) as submitted:
            told = read_lines(submitted, "begin ")
            before = running.executors()
            assert len(before) == EXECUTORS
            os.kill(before[0], signal.SIGKILL)
            told = [*told, *read_lines(submitted, "tasks ")]
            assert submitted.wait(120) == 0
    check(told, topics)


def test_each_row_is_committed_once_where_two_attempts_at_a_task_run_side_by_side(
    running: Cluster, tmp_path: Path
) -> None:
    """With `spark.speculation` a stream's second attempt fenced the first, and the query failed."""
    rows = [b"%d " % number + b" " * 2_000 for number in range(2 * 2_000)]
    with Broker() as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin, Producer(servers, codec="lz4") as producer:
            for topic in ("source", "batch", "stream"):
                admin.create_topic(topic, partitions=2)
            for number, value in enumerate(rows):
                producer.send("source", value, partition=number % 2)
            producer.flush()
        job = (servers, "source", "batch", "stream", str(tmp_path))
        submit = arguments("speculation_job.py", SPECULATION)
        with running.submitted(*submit, *job) as submitted:
            read_lines(submitted, "done")
            assert submitted.wait(120) == 0
        for topic in ("batch", "stream"):
            assert values(servers, topic, committed=True) == sorted(each.decode() for each in rows)
            with Brokers(servers) as asked:
                deadline = time.monotonic() + 60
                while open_ids(asked, topic):
                    assert time.monotonic() < deadline, "a transaction is left open"
                    time.sleep(0.1)  # between two polls
