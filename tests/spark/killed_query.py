"""A streaming query that a test kills: topic to Parquet, one folder a micro-batch, overwritten.

    python -m spark.killed_query FOLDER ENGINE SERVERS TOPIC OFFSETS_PER_TRIGGER

Says `begin N` and `end N` on stdout around the writing of micro-batch N.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from spark.reading import read_stream
from spark.session import build_session


def start_query(
    frame: DataFrame, folder: Path, say: Callable[[str], None], *, available_now: bool = False
) -> StreamingQuery:
    """Starts the query on the checkpoint in `folder`, new or not."""

    def write(batch: DataFrame, number: int) -> None:
        say(f"begin {number}")
        batch.write.mode("overwrite").parquet(str(folder / "sink" / f"{number:06}"))
        say(f"end {number}")

    writer = frame.writeStream.foreachBatch(write)
    if available_now:
        writer = writer.trigger(availableNow=True)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def main(folder: Path, engine: str, servers: str, topic: str, per_trigger: str) -> None:
    """Runs the query until it is killed."""

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    session = build_session(folder / "session")
    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": per_trigger,
    }
    frame = read_stream(session, engine, servers, options)
    start_query(frame, folder, say).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
