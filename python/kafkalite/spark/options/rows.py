"""The options of `format("kafkalite")`: one row each, of which docs/SPARK.md has the table.

Names are those of Spark's Kafka connector; what is our own is the second half of `OPTIONS`.
`read.py` and `write.py` check what a query gives.
"""

from typing import NamedTuple

__all__ = ["ANY", "BATCH", "OPTIONS", "READ", "STREAM", "WRITE", "Option", "table"]

READ, BATCH, STREAM, WRITE, ANY = "read", "batch", "stream", "write", "read, write"


class Option(NamedTuple):
    """One row: `used` says by what, `default` is empty where there is none."""

    name: str
    type: str
    default: str
    used: str
    doc: str


OPTIONS: tuple[Option, ...] = (
    Option("kafka.bootstrap.servers", "host:port,…", "", ANY, "The brokers to ask first."),
    Option("subscribe", "topic,…", "", READ, "Topics to read; one of the four ways to say which."),
    Option("subscribePattern", "regex", "", READ, "Topics in whose names Java finds it."),
    Option("assign", "JSON", "", READ, 'Partitions to read: `{"orders":[0,1]}`.'),
    Option(
        "startingOffsets",
        "earliest, latest, JSON",
        "earliest; stream: latest",
        READ,
        'Where to start: `{"orders":{"0":23,"1":-2}}`, -2 for earliest, -1 for latest. A batch '
        "cannot start at latest; a stream starts here in its first run only.",
    ),
    Option(
        "endingOffsets",
        "latest, JSON",
        "latest",
        BATCH,
        "Where to stop (exclusive); -1 for latest.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "JSON",
        "",
        READ,
        "As startingOffsets, with timestamps in milliseconds: the first record at or after. Goes "
        "before startingOffsets.",
    ),
    Option(
        "endingOffsetsByTimestamp", "JSON", "", BATCH, "The same of the end; no record: latest."
    ),
    Option(
        "startingTimestamp",
        "ms",
        "",
        READ,
        "One timestamp for all partitions. Goes before startingOffsetsByTimestamp.",
    ),
    Option("endingTimestamp", "ms", "", BATCH, "The same of the end."),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error, latest",
        "error",
        READ,
        "What to do for a partition that has no record at or after the timestamp.",
    ),
    Option("includeHeaders", "boolean", "false", ANY, "Adds the column `headers`."),
    Option(
        "failOnDataLoss",
        "boolean",
        "true",
        READ,
        "Whether a query fails if records that it should read are gone; else they are skipped with "
        "a warning.",
    ),
    Option(
        "minPartitions",
        "int",
        "",
        READ,
        "About so many tasks at least: large ranges are read by several.",
    ),
    Option("maxRecordsPerPartition", "long", "", READ, "At most so many offsets a task."),
    Option(
        "maxOffsetsPerTrigger",
        "long",
        "",
        STREAM,
        "About so many offsets a micro-batch, shared by what each partition has to read.",
    ),
    Option("minOffsetsPerTrigger", "long", "", STREAM, "A micro-batch waits for so many offsets."),
    Option("maxTriggerDelay", "duration", "15m", STREAM, "How long it waits at most."),
    Option("fetchOffset.numRetries", "int", "3", READ, "How often offsets are asked for in all."),
    Option("fetchOffset.retryIntervalMs", "ms", "1000", READ, "The pause in between."),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "ms",
        "120000",
        READ,
        "A task fails if it gets nothing for so long.",
    ),
    Option("groupIdPrefix", "string", "", READ, "Taken and ignored: reading needs no group."),
    Option("topic", "topic", "", WRITE, "Where rows go; else the column `topic` says it."),
    # What the connector does not have.
    Option(
        "commitOffsetsToGroup",
        "group",
        "",
        STREAM,
        "The consumer group whose offsets say how far the query is, for tools that show lag.",
    ),
    Option(
        "transactional",
        "boolean",
        "false; true with kafka.transactional.id",
        WRITE,
        "All rows of a query, or of a micro-batch, or none, for `read_committed` readers. "
        "`kafka.transactional.id` is what the tasks' ids begin with.",
    ),
    Option(
        "path",
        "path",
        "",
        READ,
        "Reads log directories, or directories of partitions, without a broker; in place of "
        "subscribe. `load(path)` sets it.",
    ),
    Option("paths", "JSON", "", READ, "Several of them; `load([…])` sets it."),
    Option(
        "columns",
        "name,…",
        "",
        READ,
        "Only these columns, in this order; the others cost nothing. Besides the connector's: "
        "`key_size` and `value_size`.",
    ),
    Option(
        "value.format",
        "binary, string, json, avro, csv",
        "binary",
        READ,
        "What `value` becomes before Spark sees it.",
    ),
    Option("key.format", "binary, string, json, avro, csv", "binary", READ, "The same of `key`."),
    Option(
        "value.schema",
        "DDL",
        "",
        READ,
        "The fields of a typed value: `id LONG, city STRING`. With `_corrupt_record STRING` in it "
        "there is a column of that name.",
    ),
    Option("key.schema", "DDL", "", READ, "The fields of a typed key."),
    Option(
        "value.flatten",
        "boolean",
        "false",
        READ,
        "The fields of a typed value as columns of their own, in place of the struct `value`.",
    ),
    Option(
        "mode",
        "PERMISSIVE, DROPMALFORMED, FAILFAST",
        "PERMISSIVE",
        READ,
        "Of a value that does not parse the fields become null (the value itself does not), or its "
        "row is left out, or the query fails.",
    ),
    Option(
        "columnNameOfCorruptRecord",
        "name",
        "_corrupt_record",
        READ,
        "The column that takes the text of a value that does not parse, if the schema has it.",
    ),
    Option(
        "value.csv.columns",
        "name,…",
        "those of value.schema",
        READ,
        "The columns of a line, in order; `key.csv.columns` those of a key.",
    ),
    Option("key.csv.columns", "name,…", "those of key.schema", READ, "The same of a key."),
    Option("sep", "string", ",", READ, "What separates the columns of a line (or `delimiter`)."),
    Option("delimiter", "string", ",", READ, "The same as `sep`."),
    Option("quote", "character", '"', READ, "What quotes a column; empty: nothing does."),
    Option("escape", "character", "\\", READ, "What escapes a quote inside of quotes."),
    Option("nullValue", "string", "", READ, "The text of a column that is null."),
    Option("header", "false", "false", READ, "A record has no header line."),
    Option("ignoreLeadingWhiteSpace", "boolean", "false", READ, "Of the columns of a line."),
    Option("ignoreTrailingWhiteSpace", "boolean", "false", READ, "Of the columns of a line."),
    Option("value.avro.schema", "JSON", "", READ, "The schema that values were written with."),
    Option("key.avro.schema", "JSON", "", READ, "The same of keys."),
    Option(
        "value.avro.header",
        "none, confluent",
        "none",
        READ,
        "What stands before the record: nothing, or 0 and the id of its schema in 4 bytes.",
    ),
    Option("key.avro.header", "none, confluent", "none", READ, "The same of keys."),
    Option("value.avro.registry", "JSON", "", READ, "With ids: the schemas, by id."),
    Option("key.avro.registry", "JSON", "", READ, "The same of keys."),
    Option(
        "pushdown",
        "boolean",
        "false",
        BATCH,
        "Filters on partition, offset and timestamp cut what is read. Needs "
        "`spark.sql.python.filterPushdown.enabled=true`.",
    ),
    Option("batch.rows", "int", "32768", READ, "Rows of an Arrow batch at most."),
    Option("batch.bytes", "int", "4194304", READ, "Bytes of keys, values and headers in it."),
    Option(
        "engine",
        "auto, jvm, python",
        "auto",
        READ,
        "Who reads: the columnar reader in the JVM, or, without its jar, Spark's Python workers.",
    ),
)


def table() -> str:
    """The rows as Markdown, for docs/SPARK.md."""
    lines = ["| option | type | default | used by | meaning |", "|---|---|---|---|---|"]
    lines += [
        f"| `{row.name}` | {row.type} | {row.default} | {row.used} | {row.doc} |" for row in OPTIONS
    ]
    return "\n".join(lines)
