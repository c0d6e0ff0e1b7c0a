"""A streaming query that a test kills: topic to Parquet, one folder a micro-batch, overwritten.

    python -m spark.killed_query FOLDER ENGINE SERVERS TOPIC OFFSETS_PER_TRIGGER|all

Says `begin N` and `end N` on stdout around the writing of micro-batch N. With `all` it reads what
is there and ends.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from spark.reading import read_stream
from spark.session import build_session


def main(folder: Path, engine: str, servers: str, topic: str, per_trigger: str) -> None:
    """Runs the query on the checkpoint in `folder`, new or not."""

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def write(batch: DataFrame, number: int) -> None:
        say(f"begin {number}")
        batch.write.mode("overwrite").parquet(str(folder / "sink" / f"{number:06}"))
        say(f"end {number}")

    session = build_session(folder / "session")
    is_last = per_trigger == "all"
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    if not is_last:
        options["maxOffsetsPerTrigger"] = per_trigger
    writer = (
        read_stream(session, engine, servers, options)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    if is_last:
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
