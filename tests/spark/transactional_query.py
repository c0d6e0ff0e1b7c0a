"""A streaming query that a test kills: topic to topic, a transaction a task. As long as there is a
file `hold` in the folder, each task stops amid its rows.

    python -m spark.transactional_query FOLDER SERVERS SOURCE TARGET OFFSETS_PER_TRIGGER
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark.reading import read_stream
from spark.session import build_session

HOLD, HELD_AT = "hold", 1_000


def holding(file: Path) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """Hands rows on, those behind the first `HELD_AT` of a task when the file is not there."""

    def hand_on(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        rows = 0
        for batch in batches:
            while rows >= HELD_AT and file.exists():
                time.sleep(0.02)  # between two polls of the file
            yield batch
            rows += batch.num_rows

    return hand_on


def start_copying(
    session: SparkSession,
    folder: Path,
    servers: str,
    source: str,
    target: str,
    per_trigger: str,
    *,
    available_now: bool = False,
) -> StreamingQuery:
    """Starts the query on the checkpoint in `folder`, new or not."""
    session = session.newSession()  # whose setting this is: what Spark hands over at once
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    options = {
        "subscribe": source,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": per_trigger,
    }
    frame = read_stream(session, "python", servers, options).select("value", "partition")
    held = frame.mapInArrow(holding(folder / HOLD), frame.schema)
    writer = held.writeStream.format("kafkalite")
    if available_now:
        writer = writer.trigger(availableNow=True)
    return (
        writer.option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("transactional", "true")
        .option("kafka.transaction.timeout.ms", "60000")
        .option("kafka.batch.size", "1000")  # many requests before the end of the micro-batch
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


def main(folder: Path, servers: str, source: str, target: str, per_trigger: str) -> None:
    """Runs the query until it is killed."""
    session = build_session(folder / "session")
    start_copying(session, folder, servers, source, target, per_trigger).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
