"""A broker that hangs, is gone or refuses while a task of the columnar engine reads from its Arrow
endpoint. The task waited for ever, and with it the query, where the Python Data Source gives up."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from kafkalite import Broker
from kafkalite.client import Admin
from kafkalite.client.admin import BROKER
from kafkalite.spark.columnar import LOCAL_MASTER
from oracle.tools import Record
from spark.reading import read
from spark.records import create, send
from spark.session import build_session

RECORDS, VALUE_BYTES = 800, 100_000
"""More than what sockets hold."""
SILENCE_MS = 2_000
SAID = f"sent nothing for {SILENCE_MS} ms (kafkaConsumer.pollTimeoutMs)"
SLOW = "reflect('java.util.concurrent.locks.LockSupport', 'parkNanos', 10000000L)"
"""Of each row, so that a query is under way for some seconds at least."""
END_S = 300
CONNECTIONS_MAX = 256
"""The endpoint's."""
CHATTY = """
import sys

if "arrow" in sys.orig_argv:
    print("a license expires at 23:59", flush=True)
"""


@pytest.fixture(scope="module")
def listening() -> Iterator[Broker]:
    config = {"kafkalite.arrow.listener": "127.0.0.1:0"}
    with Broker(config=config) as broker:
        create(broker.bootstrap_servers, "slow", 1)
        value = b"x" * VALUE_BYTES
        send(broker.bootstrap_servers, [Record("slow", value, partition=0)] * RECORDS, "lz4")
        yield broker


def slowly(spark: SparkSession, servers: str, silence_ms: int = SILENCE_MS) -> DataFrame:
    options = {
        "subscribe": "slow",
        "batch.rows": "10",
        "kafkaConsumer.pollTimeoutMs": str(silence_ms),
    }
    return read(spark, "jvm", servers, options).selectExpr("length(value)", SLOW)


@contextmanager
def stopped(broker: Broker) -> Iterator[None]:
    """The process as if it hung."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def await_reading(spark: SparkSession) -> None:
    """Until a task has rows: an endpoint that fails before its schema has come is left for the
    child."""
    deadline = time.monotonic() + END_S
    allocator = spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()
    while not any(
        "offsets" in each.getName() and each.getAllocatedMemory()
        for each in allocator.getChildAllocators()
    ):
        assert time.monotonic() < deadline, "nothing is read"


def test_a_task_fails_in_a_sentence_when_its_broker_hangs(
    spark: SparkSession, listening: Broker
) -> None:
    failures: list[Exception] = []

    def collect() -> None:
        try:
            slowly(spark, listening.bootstrap_servers).collect()
        except Exception as error:  # noqa: BLE001 - judged below
            failures.append(error)

    query = threading.Thread(target=collect)
    query.start()
    await_reading(spark)
    with stopped(listening):
        began = time.monotonic()
        query.join(END_S)
        assert not query.is_alive(), "it waits for ever"
        assert time.monotonic() - began > SILENCE_MS / 1000
    (failure,) = failures
    assert "slow-0: the Arrow endpoint 127.0.0.1:" in str(failure)
    assert SAID in str(failure)


def test_a_task_reads_by_kafkas_protocol_where_the_endpoint_does_not_answer(
    spark: SparkSession, listening: Broker
) -> None:
    """It waits for that as long as `kafkaConsumer.pollTimeoutMs` says, 40 s at most."""
    log = Path(str(spark.conf.get("spark.local.dir"))).parent / "spark.log"
    frame = slowly(spark, listening.bootstrap_servers, 10_000)
    frame._jdf.queryExecution().toRdd()  # asks the broker, and is kept
    rows: list[int] = []
    query = threading.Thread(target=lambda: rows.append(len(frame.collect())))
    with stopped(listening):
        query.start()
        await_line(log, "sent nothing for 10000 ms: the broker is asked by Kafka's protocol")
    query.join(END_S)
    assert rows == [RECORDS]


def test_a_task_reads_by_kafkas_protocol_where_the_endpoint_refuses_it(
    spark: SparkSession, listening: Broker
) -> None:
    """Its one attempt, which is all that Spark's local master has, failed: the endpoint had been
    there when the query was planned, and had no place for another connection."""
    with Admin(listening.bootstrap_servers) as admin:
        told = {each.name: each.value for each in admin.describe_configs(BROKER, "1")}
    host, _, port = str(told["kafkalite.arrow.listener"]).rpartition(":")
    with ExitStack() as silent:
        for _ in range(CONNECTIONS_MAX):
            silent.enter_context(socket.create_connection((host, int(port))))
        frame = read(spark, "jvm", listening.bootstrap_servers, {"subscribe": "slow"})
        assert frame.where("offset >= 0").select("offset").toArrow().num_rows == RECORDS


def main(servers: str, folder: str, silence_ms: str) -> None:
    """A query of the test below, by as many attempts of a task as sessions have by default."""
    spark = build_session(Path(folder), **{"spark.master": LOCAL_MASTER})
    began = threading.Thread(target=lambda: (await_reading(spark), print("reads", flush=True)))
    began.start()
    print(len(slowly(spark, servers, int(silence_ms)).collect()), flush=True)
    spark.stop()


def await_line(log: Path, text: str) -> None:
    """Until Spark has said so: a task has failed."""
    deadline = time.monotonic() + END_S
    while text not in log.read_text():
        assert time.monotonic() < deadline, "no task has failed"
        time.sleep(0.1)  # between two polls of the log


@pytest.mark.long
@pytest.mark.parametrize("restarts", [False, True])
def test_a_query_goes_on_when_its_broker_does(
    listening: Broker, tmp_path: Path, restarts: bool
) -> None:
    """A broker that was restarted failed all attempts of a task within a second, or the one that
    Spark's local master has. What the user's Python prints when it starts, the engine took for the
    address of its child."""
    silence_ms = 1000 * END_S if restarts else SILENCE_MS  # of a broker that starts
    command = [sys.executable, "-m", __name__]
    command += [listening.bootstrap_servers, str(tmp_path), str(silence_ms)]
    (tmp_path / "sitecustomize.py").write_text(CHATTY)
    paths = [str(Path(__file__).parents[1]), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as query:
        assert query.stdout is not None
        assert query.stdout.readline() == "reads\n"
        if restarts:
            listening.kill()
            await_line(tmp_path / "spark.log", "Lost task 0.0 in stage")
            listening.start()
        else:
            with stopped(listening):
                await_line(tmp_path / "spark.log", SAID)
        assert query.stdout.readline() == f"{RECORDS}\n"
    assert query.returncode == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
