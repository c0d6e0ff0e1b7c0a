"""No command line ends with a traceback, whatever stands in it: seeded ones of `random_lines.py`.

A failure names its seeds: `pytest -m long tests/cli -k random` with RANDOM_LINES_SEED goes on from
another one.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalite
from cli.random_lines import TOPIC
from kafkalite.client import Admin

SEED = int(os.environ.get("RANDOM_LINES_SEED", "1000"))
SOME, MANY = 100, 3_500


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kafkalite.Broker() as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, partitions=1)
        yield broker.bootstrap_servers


def check(folder: Path, servers: str, first: int, count: int) -> None:
    """Plays the lines in a process without threads, which forks for each."""
    command = [sys.executable, "-m", "cli.random_lines", folder, servers, str(first), str(count)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    assert not done.stdout, done.stdout


def test_no_command_line_at_random_ends_with_a_traceback(servers: str, tmp_path: Path) -> None:
    check(tmp_path, servers, 0, SOME)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_none_of_many_command_lines_at_random_ends_with_a_traceback(
    servers: str, tmp_path: Path
) -> None:
    check(tmp_path, servers, SEED, MANY)
