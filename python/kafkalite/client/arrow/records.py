"""`read_log`: the files of a partition as Arrow columns; `LogRecords`: what readers give.

    import kafkalite, polars
    records = kafkalite.read_log("/var/kafka-logs/orders-0", columns=["offset", "value"])
    polars.DataFrame(records)           pyarrow.table(records)          duckdb.sql("from records")

`read_log` reads files: no broker, no lock, and beside a live broker as well. It fixes the rows
once, from the log start (or `start`) to the log end as it is then (or `stop`); what is appended
later is not among them. The object is consumed as often as wanted, and by several consumers at
once; each starts anew and streams in bounded memory.

    column         type                       as in the DataFrame of Spark's Kafka source
    key            binary                     null, if the record has none
    value          binary                     null for a tombstone
    topic          string
    partition      int32
    offset         int64
    timestamp      timestamp[us, UTC]         1 ms before 1970, if the record has none (-1 in Kafka)
    timestampType  int32                      0 create time, 1 log append time, -1 none (magic 0)
    headers        list<struct<key: string, value: binary>>     null, if the record has none
    key_size       int32                      only if named in `columns`
    value_size     int32                      only if named in `columns`: costs no copy of values
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite._native import FetchRead, LogRead
from kafkalite.client.arguments import (
    OffsetOfTime,
    Offsets,
    config_texts,
    int32,
    offsets,
    real_path,
    text,
    texts,
    wrong_type,
)
from kafkalite.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,unused-ignore]
    import polars
    import pyarrow  # type: ignore[import-untyped,unused-ignore]

__all__ = ["LogRecords", "read_log"]


class ArrowSchema(Protocol):
    """A schema of pyarrow, polars or any other library that exports it."""

    def __arrow_c_schema__(self) -> object: ...


Path = str | os.PathLike[str]

# Many enough to make the cost of a batch vanish, small enough for a core's caches and for Spark.
BATCH_ROWS = 32_768
BATCH_BYTES = 4 << 20


def read_log(
    path: Path | Iterable[Path],
    start: Offsets = None,
    stop: Offsets = None,
    columns: str | Iterable[str] | None = None,
    isolation: str = "read_uncommitted",
    *,
    topic: str | None = None,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    key_format: str = "binary",
    value_format: str = "binary",
    key_schema: ArrowSchema | None = None,
    value_schema: ArrowSchema | None = None,
    mode: str = "PERMISSIVE",
    format_options: Mapping[str, str] | None = None,
) -> LogRecords:
    """Records of log files, for anything that takes an Arrow C stream.

    `path` is a partition's directory (`…/orders-0`), a log directory, which stands for all
    partitions in it (Kafka's internal topics only if `topic` names one), or several of either.

    `start` and `stop` (exclusive) are offsets: a number for every partition, or a mapping with a
    number each, by directory name (`{"orders-0": 5}`) or, where there is but one topic, by
    partition (`{0: 5}`). A datetime, which must say its time zone, stands for the offset of the
    first record whose timestamp is as late, and for the end if there is none; it is looked up once,
    by the time index, and later records of the range may be earlier where a log is not in the order
    of time. Without them the range is the whole log; a `stop` behind the log end means the end.
    `columns` is one column or several.

    `isolation="read_committed"` leaves out aborted transactions and ends at the last stable
    offset, as a consumer does. Control records are never among the rows.

    An Arrow batch has rows of one partition, at most `batch_rows` of them, and at most
    `batch_bytes` bytes of keys, values and headers, unless a single record has more.

    `value_format` is `binary`, `string`, or one of `json`, `csv` and `avro`, whose fields, given by
    `value_schema` (pyarrow's or any with `__arrow_c_schema__`), are a struct `value`; keys alike.
    `mode` says what becomes of a record that is not what was wanted: `PERMISSIVE` (its fields are
    null, and `_corrupt_record`, if the schema has it, its text), `DROPMALFORMED`, `FAILFAST`.
    `format_options` are those of docs/TYPED_VALUES.md, as `value.flatten`.

    Raises InvalidArgumentError for an unknown column or isolation, for offsets outside the log and
    for a time without a zone, TypeError for an argument of another type, LogDirRefusedError for a
    path that holds no log. What is found while streaming (damage in a file, offsets that retention
    deleted meanwhile) the consumer raises in its own class, naming the file.
    """
    start_for_all, start_by_partition = _offsets("start", start)
    stop_for_all, stop_by_partition = _offsets("stop", stop)
    return LogRecords(
        LogRead(
            _paths(path),
            topic=None if topic is None else text("topic", topic),
            start=start_for_all,
            start_by_partition=start_by_partition,
            stop=stop_for_all,
            stop_by_partition=stop_by_partition,
            columns=None if columns is None else texts("columns", columns),
            isolation=text("isolation", isolation),
            batch_rows=int32("batch_rows", batch_rows, 1),
            batch_bytes=int32("batch_bytes", batch_bytes, 1),
            key_schema=schema_of("key_schema", key_schema),
            value_schema=schema_of("value_schema", value_schema),
            formats=formats_of(key_format, value_format, mode, format_options),
        )
    )


def formats_of(
    key_format: str, value_format: str, mode: str, others: Mapping[str, str] | None
) -> dict[str, str]:
    """The options of `_native.LogRead`. `others` may name any of them, where the argument for it is
    left as it is. Raises InvalidArgumentError where both say something."""
    formats = config_texts("format_options", {} if others is None else others)
    arguments = [
        ("key.format", "key_format", key_format, "binary"),
        ("value.format", "value_format", value_format, "binary"),
        ("mode", "mode", mode, "PERMISSIVE"),
    ]
    for option, argument, given, default in arguments:
        said = formats.setdefault(option, text(argument, given))
        if given not in (default, said):
            raise InvalidArgumentError(
                f"{argument}={given}, and format_options has {option}={said}"
            )
    return formats


def schema_of(name: str, schema: ArrowSchema | None) -> ArrowSchema | None:
    """Raises TypeError for what is no schema."""
    if schema is not None and not hasattr(schema, "__arrow_c_schema__"):
        wanted = "a schema of pyarrow or any other that has __arrow_c_schema__"
        raise wrong_type(name, schema, wanted)
    return schema


def _paths(given: Path | Iterable[Path]) -> list[str]:
    """As the log knows them. A `~` is the user's home, as for pandas and polars."""
    paths = [given] if isinstance(given, str | bytes | os.PathLike) else given
    if not isinstance(paths, Iterable):
        raise wrong_type("path", given, "a path, or several in a list")
    return [real_path("path", each) for each in paths]


def _offsets(
    name: str, given: Offsets
) -> tuple[int | OffsetOfTime | None, dict[str, int | OffsetOfTime]]:
    checked = offsets(name, given)
    return (None, checked) if isinstance(checked, dict) else (checked, {})


class LogRecords:
    """The rows that `read_log` or `read_arrow` chose; nothing is read before a consumer asks."""

    def __init__(self, read: LogRead | FetchRead) -> None:
        self._read = read

    @property
    def schema(self) -> dict[str, str]:
        """Arrow type by column, as text. `pyarrow.schema(records)` gives the schema itself."""
        return dict(self._read.columns)

    @property
    def ranges(self) -> list[tuple[str, int, int, int]]:
        """Topic, partition, start and stop (exclusive) of what is read, in the order of the rows.

        With `read_committed`, `stop` is at most the last stable offset.
        """
        return self._read.ranges

    def __arrow_c_schema__(self) -> object:
        return self._read.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule `arrow_array_stream` over all rows, from the first.

        Types are those of `schema`, whatever types are requested; other columns than those of
        `schema` are refused with InvalidArgumentError.
        """
        return self._read.__arrow_c_stream__(requested_schema)

    def to_pyarrow(self) -> pyarrow.Table:
        """All rows in memory, as a `pyarrow.Table`."""
        table: pyarrow.Table = _library("pyarrow").table(self)
        return table

    def to_pandas(self) -> pandas.DataFrame:
        """All rows in memory, as a `pandas.DataFrame`; by pyarrow, whose types become pandas'."""
        _library("pandas")  # before all rows are read in vain
        frame: pandas.DataFrame = _library("pyarrow").table(self).to_pandas()
        return frame

    def to_polars(self) -> polars.DataFrame:
        """All rows in memory, as a `polars.DataFrame`."""
        frame: polars.DataFrame = _library("polars").DataFrame(self)
        return frame

    def __repr__(self) -> str:
        ranges = ", ".join(
            f"{topic}-{partition}[{start}:{stop}]" for topic, partition, start, stop in self.ranges
        )
        return f"<LogRecords of {ranges or 'no partition'}: {', '.join(self.schema)}>"


def _library(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise  # it is there, and what it needs is not
        sentence = f"{name} is not installed: pip install {name}"
        raise ModuleNotFoundError(sentence, name=name) from None
