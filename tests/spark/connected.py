"""A program of Spark Connect's: a stream between two topics, by a server that knows kafkalite, over
gRPC. Run by `test_connect.py`.

    python -m spark.connected REMOTE SERVERS ENGINE SOURCE TARGET CHECKPOINT
"""

import sys

from pyspark.sql import SparkSession

import kafkalite.spark


def main(remote: str, servers: str, engine: str, source: str, target: str, checkpoint: str) -> None:
    """Says how many rows the source had, and copies what is in capital letters."""
    spark = SparkSession.builder.remote(remote).getOrCreate()
    kafkalite.spark.register(spark)
    options = {"kafka.bootstrap.servers": servers, "engine": engine, "subscribe": source}
    counted = spark.read.format("kafkalite").options(**options).load().count()
    arriving = spark.readStream.format("kafkalite").options(**options, startingOffsets="earliest")
    query = (
        arriving.load()
        .selectExpr("key", "upper(CAST(value AS STRING)) AS value")
        .writeStream.format("kafkalite")
        .options(**{"kafka.bootstrap.servers": servers, "topic": target})
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    sys.stdout.write(f"{counted} rows\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
