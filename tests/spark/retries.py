"""A job whose tasks fail once each, after much of their rows is on the broker; and a driver that
has tasks tried again. Run by `test_writing_retries.py`.

    python -m spark.retries BOOTSTRAP_SERVERS TOPIC TRANSACTIONAL FOLDER
"""

import os
import sys
from collections.abc import Iterator

import pyarrow
from pyspark import TaskContext
from pyspark.sql import SparkSession

ROWS, TASKS = 4_000, 2


def text(number: int) -> str:
    """Long enough that rows do not all wait in buffers between the processes of a task."""
    return f"{number:05}".ljust(2_000)


def rows(_batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Of one task: the second half comes in the second attempt only."""
    task = TaskContext.get()
    assert task is not None
    first = task.partitionId() * (ROWS // TASKS)
    for start in range(first, first + ROWS // TASKS, 100):
        if start == first + ROWS // TASKS // 2 and task.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")
        yield pyarrow.record_batch({"value": [text(start + number) for number in range(100)]})


def main(servers: str, topic: str, transactional: str, folder: str) -> None:
    """The job."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "800m")
        .config("spark.local.dir", folder)
        .config("spark.sql.warehouse.dir", folder)
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        .getOrCreate()
    )
    frame = spark.range(0, TASKS, 1, TASKS).mapInArrow(rows, "value string")
    frame.write.format("kafkalite").mode("append").options(
        **{
            "kafka.bootstrap.servers": servers,
            "kafka.batch.size": "20000",
            "topic": topic,
            "transactional": transactional,
        }
    ).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
