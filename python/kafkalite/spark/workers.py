"""Settings of Spark's Python processes before they work for kafkalite.

They stay for the queries that follow, and PySpark's daemon has each of them collect garbage after
every task, and after each of the two questions with which a query is planned. That looks at all
that was ever imported: 20 ms of CPU with pyarrow, twenty times what planning or a task costs here.
"""

import gc
import sys

from kafkalite.spark.allocator import keep_freed_memory

__all__ = ["freeze_imports", "prepare_for_rows"]


def freeze_imports() -> None:
    """Has the garbage collector pass over what is there by now, once a process. Call it at the
    beginning of whatever PySpark's daemon asks. It does nothing in processes of another kind, where
    what is there may be a user's garbage."""
    if gc.get_freeze_count() == 0 and _is_daemons():
        gc.freeze()


def prepare_for_rows() -> None:
    """The same for a task that moves rows, whose memory is kept for the next batch."""
    keep_freed_memory()
    freeze_imports()


def _is_daemons() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == "pyspark.daemon"
