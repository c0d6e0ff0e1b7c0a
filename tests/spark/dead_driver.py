"""A batch query's writer whose driver dies amid the requests that commit its tasks. Run by
`test_writing_retries.py`.

    python -m spark.dead_driver BOOTSTRAP_SERVERS TOPIC COMMITTED

The tasks write as Spark has them write, each to a partition of its own; the process kills itself
when COMMITTED of them have been committed.
"""

import os
import signal
import sys
from typing import Any

import pyarrow
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from kafkalite.client.producer.transactions import end
from kafkalite.spark import commit_note, sink
from kafkalite.spark.options.write import WriteOptions

ROWS_OF_A_TASK, TASKS = 500, 3
SCHEMA = StructType([StructField("value", StringType()), StructField("partition", IntegerType())])


def main(servers: str, topic: str, committed: str) -> None:
    """The job."""
    options = {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        "transactional": "true",
        "kafka.transaction.timeout.ms": "5000",
    }
    checked = WriteOptions.of(options, SCHEMA)
    messages = [
        sink._write(checked, iter([_rows(task)]), f"dead-driver-{task}") for task in range(TASKS)
    ]
    ended = 0

    def end_or_die(*arguments: Any, **named: Any) -> None:
        nonlocal ended
        if ended == int(committed):
            os.kill(os.getpid(), signal.SIGKILL)
        ended += 1
        end(*arguments, **named)

    commit_note.end = end_or_die
    sink.BatchWriter(checked).commit(messages)


def _rows(task: int) -> pyarrow.RecordBatch:
    values = [f"{task}-{number}" for number in range(ROWS_OF_A_TASK)]
    partitions = pyarrow.array([task] * ROWS_OF_A_TASK, pyarrow.int32())
    return pyarrow.record_batch({"value": values, "partition": partitions})


if __name__ == "__main__":
    main(*sys.argv[1:])
