"""PostgreSQL's changes, by Debezium's unmodified connector on Kafka Connect against kafkalite's
broker, into a Delta table: it is the table of PostgreSQL."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark.programs import FOLDER

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("changes", [500, pytest.param(50_000, marks=pytest.mark.long)])
def test_a_delta_table_follows_a_table_of_postgres(tmp_path: Path, changes: int) -> None:
    paths = [str(FOLDER.parent / "tests"), str(FOLDER), os.environ.get("PYTHONPATH", "")]
    ended = subprocess.run(
        [sys.executable, "-m", "spark.changed_table", tmp_path, str(changes)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"== {changes:,} changes: the Delta table has the " in ended.stdout
