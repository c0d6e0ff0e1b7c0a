"""The schema of what is read: that of Spark's Kafka connector, cut to the wanted columns.

    key binary, value binary, topic string, partition int, offset long, timestamp timestamp,
    timestampType int [, headers array<struct<key string, value binary>>]

It is written as DDL, which Spark parses where it can: a worker has no session to parse it with.
"""

from kafkalite.errors import InvalidArgumentError
from kafkalite.spark.options import ReadOptions

__all__ = ["ddl"]

TYPES = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "key_size": "INT",
    "value_size": "INT",
}
# Those that are there only if they are asked for.
ON_DEMAND = ("headers", "key_size", "value_size")


def ddl(options: ReadOptions) -> str:
    """The columns in their order. Raises `InvalidArgumentError` for a column that there is not, or
    a typed value without `value.schema`."""
    types = dict(TYPES)
    value_format = options.formats["value.format"]
    if options.formats["key.format"] == "string":
        types["key"] = "STRING"
    if value_format == "string":
        types["value"] = "STRING"
    flat = ""
    if value_format in ("json", "csv", "avro"):
        if not options.value_schema:
            raise InvalidArgumentError(
                f"value.format={value_format} needs value.schema, or a schema with .schema(…)"
            )
        flat = options.value_schema if options.value_flatten else ""
        types["value"] = f"STRUCT<{options.value_schema}>"
    wanted = options.columns
    if wanted is None:
        names = [name for name in types if name not in ON_DEMAND]
        wanted = (*names, "headers") if options.include_headers else tuple(names)
    columns = []
    for name in wanted:
        if name not in types:
            raise InvalidArgumentError(f"columns names '{name}', it may name {', '.join(types)}")
        columns.append(flat if flat and name == "value" else f"{name} {types[name]}")
    return ", ".join(columns)
