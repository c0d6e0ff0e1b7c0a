"""A job that a test submits to a cluster of Spark's: reads topics and says what it found.

    spark-submit … standalone_job.py SERVERS ENGINE TOPIC,…

Says `TOPIC rows RECORDS seconds S` for each topic, and at last `tasks N,N,…`, of each executor that
there was.
"""

import sys
import time
from typing import Any

from pyspark.sql import SparkSession

SCHEMA = "id BIGINT, city STRING, cents BIGINT"
EXECUTORS_S = 120
ROUNDS = 2


def say(text: str) -> None:
    """A line for the test."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def await_executors(context: Any, count: int) -> None:
    """Returns when so many are there."""
    deadline = time.monotonic() + EXECUTORS_S
    # The driver is in the list.
    while len(context.statusTracker().getExecutorInfos()) <= count:
        assert time.monotonic() < deadline, "the executors do not come"
        time.sleep(0.1)  # between two polls


def main(servers: str, engine: str, topics: str, executors: str) -> None:
    """Groups what is in each topic, the second time warm."""
    spark = SparkSession.builder.getOrCreate()
    context: Any = spark.sparkContext._jsc.sc()
    await_executors(context, int(executors))
    for topic in topics.split(","):
        for _ in range(ROUNDS):
            say(f"begin {topic}")
            began = time.monotonic()
            frame = (
                spark.read.format("kafkalite")
                .option("kafka.bootstrap.servers", servers)
                .option("subscribe", topic)
                .option("engine", engine)
                .option("value.format", "json")
                .option("value.schema", SCHEMA)
                .load()
            )
            cities = frame.groupBy("value.city").count().collect()
            seconds = time.monotonic() - began
            rows = sum(row["count"] for row in cities if row["city"] is not None)
            say(f"{topic} rows {rows} seconds {seconds:.2f}")
    known = context.statusStore().executorList(False)
    tasks = [known.apply(each) for each in range(known.size())]
    counts = sorted(each.totalTasks() for each in tasks if each.id() != "driver")
    say(f"tasks {','.join(map(str, counts))}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
