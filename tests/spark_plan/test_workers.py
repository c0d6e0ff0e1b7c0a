"""What Spark's Python processes are told."""

import subprocess
import sys

import pytest

ASKED = """
import gc, importlib.util, sys
sys.modules["__main__"].__spec__ = importlib.util.find_spec(sys.argv[1])
from kafkalite.spark.source import KafkaliteDataSource
source = KafkaliteDataSource({"path": "/logs"})
source.schema()
frozen = gc.get_freeze_count()
source.schema()
print(frozen, gc.get_freeze_count())
"""


@pytest.mark.parametrize(
    ("program", "is_settled"), [("pyspark.daemon", True), ("json.tool", False)]
)
def test_what_a_process_of_pysparks_daemon_has_imported_is_not_looked_at_after_every_task(
    program: str, is_settled: bool
) -> None:
    """`gc.collect()` after each of four tasks and questions was most of what a query cost in
    Python."""
    told = subprocess.run(
        [sys.executable, "-c", ASKED, program], capture_output=True, text=True, check=True
    ).stdout
    first, second = map(int, told.split())
    assert (first > 10_000) == is_settled
    assert second <= first  # once: what comes later may be garbage
