"""A streaming query that a test kills, topic to topic, a transaction a task: its driver stands
still amid the requests that commit the tasks of its first micro-batch.

    KAFKALITE_TEST_HALTED=FILE python -m spark.half_committed FOLDER SERVERS SOURCE TARGET

Makes the file when the transaction of one task has been committed. With another `shift` the rows of
a partition are another task's: as a source has it that plans its tasks in another order when it
replays a micro-batch.
"""

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from kafkalite.client.network.cluster import Cluster
from kafkalite.spark.options.write import WriteOptions
from kafkalite.spark.sink import StreamWriter
from kafkalite.spark.source import KafkaliteDataSource
from spark.reading import read_stream
from spark.session import build_session

FILE = "KAFKALITE_TEST_HALTED"
TASKS = 2


class HaltedWriter(StreamWriter):
    """Commits one task, and no more until its driver is gone."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver."""
        ask, ended = Cluster.ask, 0

        def ask_or_halt(cluster: Cluster, message: Any, **named: Any) -> Any:
            nonlocal ended
            name = getattr(message, "transactional_id", None) or ""
            if re.search(r"-\d-\d+\Z", name) and getattr(message, "committed", False):
                if ended == 1:
                    halt()
                ended += 1
            return ask(cluster, message, **named)

        Cluster.ask = ask_or_halt  # type: ignore[method-assign,assignment]
        super().commit(messages, batchId)


def halt() -> None:
    """Says so, and waits for the end of Spark's daemon of Python processes."""
    Path(os.environ[FILE]).touch()
    daemon = os.getppid()
    while os.getppid() == daemon:
        time.sleep(0.05)  # between two polls
    os._exit(1)


class HaltedDataSource(KafkaliteDataSource):
    """The format `halted`."""

    @classmethod
    def name(cls) -> str:
        return "halted"

    def streamWriter(self, schema: StructType, overwrite: bool) -> HaltedWriter:  # noqa: N802, ARG002
        return HaltedWriter(WriteOptions.of(self.options, schema))


def start_copying(
    session: SparkSession,
    sink: str,
    folder: Path,
    servers: str,
    source: str,
    target: str,
    shift: int,
) -> StreamingQuery:
    """Starts the query, which ends at the end of the topic, on the checkpoint in `folder`."""
    options = {"subscribe": source, "startingOffsets": "earliest"}
    frame = read_stream(session, "python", servers, options).select("value", "partition")
    task = (frame["partition"] + shift) % TASKS
    return (
        frame.repartitionById(TASKS, task)
        .writeStream.format(sink)
        .trigger(availableNow=True)
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("transactional", "true")
        .option("kafka.transaction.timeout.ms", "600000")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


def main(folder: Path, servers: str, source: str, target: str) -> None:
    """Runs the query until it is killed."""
    session = build_session(folder / "session")
    session.dataSource.register(HaltedDataSource)
    start_copying(session, "halted", folder, servers, source, target, 0).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
