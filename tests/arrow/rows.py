"""What `read_log` gives, as rows that compare with those of `slow_reader`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow

import kafkalite

if TYPE_CHECKING:
    from arrow.slow_reader import Row


def rows(path: Any, *args: Any, **options: Any) -> list[Row]:
    return rows_of(pyarrow.table(kafkalite.read_log(path, *args, **options)))


def rows_of(table: pyarrow.Table) -> list[Row]:
    names = table.column_names
    if "timestamp" in names:
        at = names.index("timestamp")
        table = table.set_column(at, "timestamp", table.column(at).cast(pyarrow.int64()))
    found = table.to_pylist()
    for row in found:
        if row.get("timestamp") is not None:
            milliseconds, rest = divmod(row["timestamp"], 1000)
            assert rest == 0
            row["timestamp"] = milliseconds
    return found


def offsets(path: Any, *args: Any, **options: Any) -> list[int]:
    return [row["offset"] for row in rows(path, *args, columns=["offset"], **options)]
