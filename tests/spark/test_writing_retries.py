"""Tasks that are tried again: twice written as by the connector, once where transactions are."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow
import pytest

import kafkalite
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from spark.dead_driver import ROWS_OF_A_TASK, TASKS
from spark.retries import ROWS, text
from spark.test_writing import values

pytestmark = [pytest.mark.oracle, pytest.mark.long, pytest.mark.timeout(1000)]

TESTS = Path(__file__).parents[1]


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of this folder, to its end."""
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-m", program, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.parametrize("transactional", ["true", "false"])
def test_a_task_that_is_tried_again_writes_its_rows_once_if_the_job_is_a_transaction(
    kafka: KafkaBroker, kafka_tools: KafkaTools, tmp_path: Path, transactional: str
) -> None:
    servers, topic = kafka.bootstrap_servers, f"retries-{transactional}"
    kafka_tools.create_topic(servers, topic, partitions=2)
    done = run("spark.retries", servers, topic, transactional, str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    once = [text(number) for number in range(ROWS)]
    assert len(values(servers, topic)) > ROWS
    if transactional == "true":
        assert values(servers, topic, committed=True) == once
    else:
        assert sorted(set(values(servers, topic, committed=True))) == once


def test_a_driver_that_dies_amid_its_commit_leaves_whole_tasks_or_none_of_theirs(
    kafka: KafkaBroker, kafka_tools: KafkaTools
) -> None:
    """docs/SPARK.md: committing is one request a task, and not one step."""
    servers, topic = kafka.bootstrap_servers, "dead-driver"
    kafka_tools.create_topic(servers, topic, partitions=3)
    done = run("spark.dead_driver", servers, topic, "1")
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]

    def seen(partition: int) -> list[str]:
        """What a reader of committed rows sees: it waits for no open transaction."""
        rows = kafkalite.read_arrow(
            topic, servers, columns=["partition", "value"], isolation="read_committed"
        ).to_pyarrow()
        pairs = zip(rows["partition"].to_pylist(), rows["value"].to_pylist(), strict=True)
        return [value.decode() for place, value in pairs if place == partition]

    def rows_of(task: int) -> list[str]:
        return [f"{task}-{number}" for number in range(ROWS_OF_A_TASK)]

    # One task was committed and two were not: each is there as a whole, or not at all.
    assert sum(seen(task) == rows_of(task) for task in range(TASKS)) == 1
    assert sum(seen(task) == [] for task in range(TASKS)) == TASKS - 1
    assert len(values(servers, topic)) == TASKS * ROWS_OF_A_TASK
    # What was left open is aborted by the coordinator, and later rows are seen.
    for task in range(TASKS):
        place = pyarrow.array([task], pyarrow.int32())
        row = {"value": ["later"], "partition": place}
        kafkalite.write_arrow(pyarrow.table(row), topic, servers)
    deadline = time.monotonic() + 120
    while not all(seen(task)[-1:] == ["later"] for task in range(TASKS)):
        assert time.monotonic() < deadline
        time.sleep(0.2)  # the pause of this poll
    assert sorted(len(seen(task)) for task in range(TASKS)) == [1, 1, 1 + ROWS_OF_A_TASK]
