"""Records that a pipeline cannot use, as a dead-letter topic takes them: as they were, with the
headers that Kafka Connect's sinks add, so that its tools find what went wrong where.

A record may be as large as a topic takes it, and these headers make it larger. One that would be
refused for that would end the query, each time that it is started: so it is cut, and has a header
`kafkalite.cut.bytes`, which says how many bytes key, value and headers had.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

PREFIX = "__connect.errors."
EXCEPTION = "org.apache.kafka.connect.errors.DataException"
"""Connect's for a value that cannot be converted."""

BYTES_MAX = 1_000_000
"""What a record keeps of its own. With what is added to it, that is less than producers send
(`max.request.size`, 1,048,576) and topics take (`max.message.bytes`, 1,048,588) by default."""
CUT = "kafkalite.cut.bytes"
# The lengths of a header's name and value take some bytes, too.
HEADERS_BYTES = """
aggregate(headers, 0, (sum, each) -> sum + octet_length(each.key) + 10
    + ifnull(octet_length(each.value), 0))
"""


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
    cut = functions.expr(
        f"if(bytes > {BYTES_MAX}, array(struct('{CUT}' AS key, binary(string(bytes)) AS value)), "
        "array())"
    )
    letters = fitted(bad).select(
        "key", "value", functions.concat("headers", added, cut).alias("headers")
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


def fitted(bad: "DataFrame") -> "DataFrame":
    """The records within `BYTES_MAX`, with the `bytes` that they had. The end of the value goes
    first; headers are left out where they leave no room beside the key."""
    sized = bad.selectExpr(
        "*",
        "ifnull(octet_length(key), 0) AS key_bytes",
        "ifnull(octet_length(value), 0) AS value_bytes",
        f"ifnull({HEADERS_BYTES}, 0) AS headers_bytes",
    )
    has_headers = f"key_bytes + headers_bytes <= {BYTES_MAX}"
    room = f"greatest(0, {BYTES_MAX} - key_bytes - if({has_headers}, headers_bytes, 0))"
    return sized.selectExpr(
        *("topic", "partition", "offset"),
        f"substring(key, 1, {BYTES_MAX}) AS key",
        f"substring(value, 1, {room}) AS value",
        f"if({has_headers}, ifnull(headers, array()), array()) AS headers",
        "key_bytes + value_bytes + headers_bytes AS bytes",
    )
