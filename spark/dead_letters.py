"""Records that a pipeline cannot use, as a dead-letter topic takes them: as they were, with the
headers that Kafka Connect's sinks add, so that its tools find what went wrong where."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

PREFIX = "__connect.errors."
EXCEPTION = "org.apache.kafka.connect.errors.DataException"
"""Connect's for a value that cannot be converted."""


def write(
    bad: "DataFrame", message: str, servers: str, topic: str, checkpoint: str
) -> "StreamingQuery":
    """Starts the query that writes them, each once for `read_committed` readers. `bad` is a stream
    with all columns of the source, headers too."""
    from pyspark.sql import functions

    told = {
        "topic": functions.col("topic"),
        "partition": functions.col("partition").cast("string"),
        "offset": functions.col("offset").cast("string"),
        "exception.class.name": functions.lit(EXCEPTION),
        "exception.message": functions.lit(message),
    }
    added = functions.array(
        *(
            functions.struct(
                functions.lit(PREFIX + name).alias("key"), text.cast("binary").alias("value")
            )
            for name, text in told.items()
        )
    )
    letters = bad.select(
        "key",
        "value",
        functions.concat(functions.ifnull("headers", functions.array()), added).alias("headers"),
    )
    return (
        letters.writeStream.format("kafkalite")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("transactional", "true")
        .option("includeHeaders", "true")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
