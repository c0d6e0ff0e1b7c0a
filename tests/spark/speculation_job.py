"""A job that a test submits to a cluster of Spark's with speculation: a batch query and a stream
write the same rows by transactions, and of each task 0 two attempts run side by side.

    spark-submit … speculation_job.py SERVERS SOURCE BATCH_TARGET STREAM_TARGET CHECKPOINT

The first attempt waits, amid its rows, for the second one's transaction; the second has all its
rows written and does not end, so that Spark kills it when the first one has counted. Says `done` at
last.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator

import pyarrow
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from kafkalite.client.network.cluster import Cluster
from kafkalite.client.producer.transactions import open_ids

WAIT_S = 300
Batches = Iterator[pyarrow.RecordBatch]


def doubled(servers: str, prefix: str) -> Callable[[Batches], Batches]:
    """Hands rows on, of task 0 as the module says. `prefix` is that of the transactional ids."""

    def await_other() -> None:
        deadline = time.monotonic() + WAIT_S
        with Cluster(servers) as cluster:
            while len({n for n in open_ids(cluster, prefix) if re.search(r"-0-\d+\Z", n)}) < 2:
                assert time.monotonic() < deadline, "no second attempt writes"
                time.sleep(0.1)  # between two polls of the coordinators

    def hand_on(batches: Batches) -> Batches:
        task = TaskContext.get()
        assert task is not None
        kept = list(batches)
        half = len(kept) // 2
        yield from kept[:half]
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            await_other()
        yield from kept[half:]
        if task.partitionId() == 0 and task.attemptNumber() > 0:
            deadline = time.monotonic() + WAIT_S
            while time.monotonic() < deadline:
                time.sleep(0.1)  # a poll of nothing: Spark kills it

    return hand_on


def options(servers: str, target: str) -> dict[str, str]:
    """Those of a sink whose transactions begin long before its tasks end."""
    return {
        "kafka.bootstrap.servers": servers,
        "topic": target,
        "kafka.transactional.id": target,
        "kafka.batch.size": "1000",
    }


def main(servers: str, source: str, batch: str, stream: str, checkpoint: str) -> None:
    """Copies the source twice."""
    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    told = {"kafka.bootstrap.servers": servers, "subscribe": source, "engine": "python"}

    def copied(frame: DataFrame, target: str) -> DataFrame:
        return frame.select("value").mapInArrow(doubled(servers, target), "value binary")

    arrived = spark.read.format("kafkalite").options(**told).load()
    writer = copied(arrived, batch).write.format("kafkalite").mode("append")
    writer.options(**options(servers, batch)).save()

    arriving = spark.readStream.format("kafkalite").options(**told, startingOffsets="earliest")
    (
        copied(arriving.load(), stream)
        .writeStream.format("kafkalite")
        .options(**options(servers, stream))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    sys.stdout.write("done\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
