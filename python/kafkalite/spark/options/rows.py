"""The options of `format("kafkalite")`: one row each, which docs/SPARK.md prints in three tables.

`CONNECTOR` has those of Spark's Kafka connector, by its names, `OWN` those that it does not have,
and `TYPED` those of typed keys and values. `read.py` and `write.py` check what a query gives.
"""

import difflib
from typing import NamedTuple

from kafkalite.errors import InvalidArgumentError

__all__ = ["ANY", "BATCH", "OPTIONS", "READ", "STREAM", "WRITE", "Option", "row_of", "tables"]

READ, BATCH, STREAM, WRITE, ANY = "read", "batch", "stream", "write", "read, write"


class Option(NamedTuple):
    """One row: `used` says by what, `default` is empty where there is none."""

    name: str
    type: str
    default: str
    used: str
    doc: str


CONNECTOR: tuple[Option, ...] = (
    Option("kafka.bootstrap.servers", "host:port,…", "", ANY, "Brokers to connect to first."),
    Option(
        "subscribe", "topic,…", "", READ, "Topics to read; one of the four ways to choose them."
    ),
    Option(
        "subscribePattern",
        "regex",
        "",
        READ,
        "Reads topics whose names contain a match of this Java regular expression.",
    ),
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
        "Like startingOffsets, with timestamps in milliseconds: the first record at or after "
        "each. Takes precedence over startingOffsets.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "JSON",
        "",
        BATCH,
        "The same for the end; without such a record: latest.",
    ),
    Option(
        "startingTimestamp",
        "ms",
        "",
        READ,
        "One timestamp for all partitions. Takes precedence over startingOffsetsByTimestamp.",
    ),
    Option("endingTimestamp", "ms", "", BATCH, "The same for the end."),
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
        "Whether a query fails if records that it should read are gone; otherwise they are "
        "skipped with a warning.",
    ),
    Option(
        "minPartitions",
        "int",
        "",
        READ,
        "Approximate minimum number of tasks: large ranges are split.",
    ),
    Option("maxRecordsPerPartition", "long", "", READ, "Maximum number of offsets per task."),
    Option(
        "maxOffsetsPerTrigger",
        "long",
        "",
        STREAM,
        "Approximate maximum number of offsets per micro-batch, divided among partitions by "
        "what each has to read.",
    ),
    Option(
        "minOffsetsPerTrigger",
        "long",
        "",
        STREAM,
        "A micro-batch waits until there are this many offsets to read.",
    ),
    Option(
        "maxTriggerDelay",
        "duration",
        "15m",
        STREAM,
        "Maximum time that a micro-batch waits for minOffsetsPerTrigger.",
    ),
    Option(
        "fetchOffset.numRetries",
        "int",
        "3",
        STREAM,
        "Attempts to get the ends of partitions, as long as one is below the stream's position.",
    ),
    Option("fetchOffset.retryIntervalMs", "ms", "1000", STREAM, "Pause between these attempts."),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "ms",
        "120000",
        READ,
        "A task fails if it receives nothing for this long. Planning waits for brokers as long as "
        "`kafka.default.api.timeout.ms` says, 60,000 by default.",
    ),
    Option("groupIdPrefix", "string", "", READ, "Accepted and ignored: reading needs no group."),
    Option(
        "topic",
        "topic",
        "",
        WRITE,
        "Topic to write to; without it, the column `topic` of each row.",
    ),
)

OWN: tuple[Option, ...] = (
    Option(
        "commitOffsetsToGroup",
        "group",
        "",
        STREAM,
        "Consumer group to which the query's position is committed, for tools that show lag.",
    ),
    Option(
        "transactional",
        "boolean",
        "false; true with kafka.transactional.id",
        WRITE,
        "Each task writes one transaction; when all tasks are done, the driver commits them one "
        "after the other. `read_committed` readers see whole tasks, and nothing of a job that "
        "fails before the commit. `kafka.transactional.id` is the prefix of the tasks' ids.",
    ),
    Option(
        "path",
        "path",
        "",
        READ,
        "Reads log directories, or directories of partitions, without a broker; replaces "
        "subscribe. `load(path)` sets it.",
    ),
    Option("paths", "JSON", "", READ, "Several paths; `load([…])` sets it."),
    Option(
        "columns",
        "name,…",
        "",
        READ,
        "Reads only these columns, in this order; the others cost nothing. Besides the "
        "connector's columns: `key_size` and `value_size`.",
    ),
    Option(
        "pushdown",
        "boolean",
        "false",
        BATCH,
        "Filters on topic, partition, offset and timestamp limit what the Python Data Source "
        "reads. Needs `spark.sql.python.filterPushdown.enabled=true`. The columnar engine ignores "
        "the option: it always pushes them down.",
    ),
    Option("batch.rows", "int", "32768", READ, "Maximum number of rows per Arrow batch."),
    Option(
        "batch.bytes",
        "int",
        "4194304",
        READ,
        "Maximum bytes of keys, values and headers per Arrow batch; a larger record forms a "
        "batch of its own.",
    ),
    Option(
        "engine",
        "auto, jvm, python",
        "auto",
        READ,
        "Which engine reads: the columnar one in the JVM, or Spark's Python workers; `auto` "
        "is the columnar one if its jar is there.",
    ),
)

TYPED: tuple[Option, ...] = (
    Option(
        "value.format",
        "binary, string, json, avro, csv",
        "binary",
        READ,
        "How `value` is decoded.",
    ),
    Option("key.format", "binary, string, json, avro, csv", "binary", READ, "The same for `key`."),
    Option(
        "value.schema",
        "DDL",
        "",
        READ,
        "The fields of a typed value: `id LONG, city STRING`. `_corrupt_record STRING` adds "
        "a column of that name.",
    ),
    Option("key.schema", "DDL", "", READ, "The fields of a typed key."),
    Option(
        "value.flatten",
        "boolean",
        "false",
        READ,
        "Makes the fields of a typed value columns of their own, in place of the struct `value`.",
    ),
    Option(
        "mode",
        "PERMISSIVE, DROPMALFORMED, FAILFAST",
        "PERMISSIVE",
        READ,
        "For a value that does not parse: its fields become null (not the value itself), or "
        "its row is dropped, or the query fails.",
    ),
    Option(
        "columnNameOfCorruptRecord",
        "name",
        "_corrupt_record",
        READ,
        "The column that receives the text of a value that does not parse, if the schema has it.",
    ),
    Option(
        "value.csv.columns",
        "name,…",
        "those of value.schema",
        READ,
        "The columns of a line, in order; a JSON list if a name contains a comma.",
    ),
    Option("key.csv.columns", "name,…", "those of key.schema", READ, "The same for keys."),
    Option("sep", "string", ",", READ, "Separator between the columns of a line (or `delimiter`)."),
    Option("delimiter", "string", ",", READ, "The same as `sep`."),
    Option("quote", "character", '"', READ, "Quotation character; if empty, nothing is quoted."),
    Option("escape", "character", "\\", READ, "Escapes a quotation character within quotes."),
    Option("nullValue", "string", "", READ, "The text that stands for null."),
    Option("header", "false", "false", READ, "Only `false`: records have no header line."),
    Option(
        "ignoreLeadingWhiteSpace",
        "boolean",
        "false",
        READ,
        "Ignores white space before the columns of a line.",
    ),
    Option(
        "ignoreTrailingWhiteSpace",
        "boolean",
        "false",
        READ,
        "Ignores white space after the columns of a line.",
    ),
    Option("value.avro.schema", "JSON", "", READ, "The schema that values were written with."),
    Option("key.avro.schema", "JSON", "", READ, "The same for keys."),
    Option(
        "value.avro.header",
        "none, confluent",
        "none",
        READ,
        "What precedes the record: nothing, or a 0 and the schema's id in 4 bytes.",
    ),
    Option("key.avro.header", "none, confluent", "none", READ, "The same for keys."),
    Option("value.avro.registry", "JSON", "", READ, "With `confluent`: the schemas by id."),
    Option("key.avro.registry", "JSON", "", READ, "The same for keys."),
)

OPTIONS = CONNECTOR + OWN + TYPED

BY_NAME = {row.name.lower(): row for row in OPTIONS}
# Second names, which the rows of the first ones give.
SYNONYMS = ("delimiter",)


def row_of(name: str) -> Option:
    """The row of an option whose name is given in lower case. Raises `InvalidArgumentError`, with
    the option that may have been meant."""
    if name not in BY_NAME:
        close = difflib.get_close_matches(name, BY_NAME, 1)
        hint = f", did you mean {BY_NAME[close[0]].name}?" if close else ""
        raise InvalidArgumentError(f"unknown option '{name}'{hint}")
    return BY_NAME[name]


def tables() -> list[str]:
    """The rows as Markdown, for docs/SPARK.md."""
    return [_table(rows) for rows in (CONNECTOR, OWN, TYPED)]


def _table(rows: tuple[Option, ...]) -> str:
    lines = ["| option | type | default | used by | meaning |", "|---|---|---|---|---|"]
    lines += [
        f"| `{row.name}` | {row.type} | {row.default} | {row.used} | {row.doc} |"
        for row in rows
        if row.name not in SYNONYMS
    ]
    return "\n".join(lines)
