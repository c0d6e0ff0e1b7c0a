"""The schema of what is read: that of Spark's Kafka connector, cut to the wanted columns.

    key binary, value binary, topic string, partition int, offset long, timestamp timestamp,
    timestampType int [, headers array<struct<key string, value binary>>]

It is written as DDL, which Spark parses where it can: a worker has no session to parse it with.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite._native import FetchRead
from kafkalite.errors import InvalidArgumentError
from kafkalite.spark.options.ddl import read_fields
from kafkalite.spark.options.read import TYPED, ReadOptions

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped,unused-ignore]

__all__ = ["check_schema", "columns_read_whole", "csv_columns", "ddl"]

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
    a typed key or value without its schema."""
    columns = {name: f"{name} {kind}" for name, kind in TYPES.items()}
    extra = ["headers"] if options.include_headers else []
    for side, schema in (("key", options.key_schema), ("value", options.value_schema)):
        form = options.formats[f"{side}.format"]
        if form == "string":
            columns[side] = f"{side} STRING"
        if form not in TYPED:
            continue
        if not schema:
            raise InvalidArgumentError(
                f"{side}.format={form} needs {side}.schema, or a schema with .schema(…)"
            )
        fields = read_fields(f"{side}.schema", schema)
        texts = [field.text for field in fields if field.name != options.corrupt_column]
        if len(texts) < len(fields):
            extra.append(options.corrupt_column)
        flat = side == "value" and options.value_flatten
        if flat:
            _refuse_names_of_records([field.name for field in fields])
        columns[side] = ", ".join(texts) if flat else f"{side} STRUCT<{', '.join(texts)}>"
        columns[options.corrupt_column] = f"`{options.corrupt_column}` STRING"
    wanted = options.columns
    if wanted is None:
        wanted = tuple(name for name in TYPES if name not in ON_DEMAND) + tuple(extra)
    for name in wanted:
        if name not in columns:
            raise InvalidArgumentError(f"columns names '{name}', it may name {', '.join(columns)}")
    return ", ".join(columns[name] for name in wanted)


def columns_read_whole(
    options: ReadOptions, columns: Iterable[str], wanted: Collection[str]
) -> list[str]:
    """The columns, of all that a frame has, that are decoded whole even if a query wants nothing or
    only some fields of them: a bad key or value fails the query, drops the row, or is seen in the
    corrupt column."""
    if options.formats["mode"] == "permissive" and options.corrupt_column not in wanted:
        return []
    typed = [side for side in ("key", "value") if options.formats[f"{side}.format"] in TYPED]
    return [name for name in columns if name in typed or name not in TYPES]


def csv_columns(
    options: ReadOptions, columns: Iterable[str], fields: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """The options that say the columns of a CSV line where the schema of the query alone does, as
    after `.schema(…)`: they are known by their place, also to a query that leaves some out.
    `columns` are all that a frame has, `fields` those of its structs."""
    found = {}
    for side in ("key", "value"):
        name = f"{side}.csv.columns"
        if options.formats[f"{side}.format"] != "csv" or name in options.formats:
            continue
        if side == "value" and options.value_flatten:
            names = [each for each in columns if each not in TYPES]
        else:
            names = list(fields.get(side, ()))
        found[name] = json.dumps([each for each in names if each != options.corrupt_column])
    return found


def check_schema(options: ReadOptions, schema: "pyarrow.Schema") -> None:
    """Raises `InvalidArgumentError` for a schema that records cannot have, before any task does."""
    FetchRead(
        lambda: iter(()),  # nothing is read
        ranges=[],
        columns=None,
        schema=schema,
        formats=dict(options.formats),
        batch_rows=options.batch_rows,
        batch_bytes=options.batch_bytes,
    )


def _refuse_names_of_records(names: Iterable[str]) -> None:
    """Refuses names of a record's columns: a value's `offset` would be read as the record's."""
    for name in names:
        if name in TYPES:
            raise InvalidArgumentError(
                f"value.flatten: field '{name}' of the value has the name of another column: "
                f"without value.flatten=true it is value.{name}"
            )
