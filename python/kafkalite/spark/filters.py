"""Filters that Spark pushes down, as cuts of what is read.

    topic, partition     =, <=>, IN, >, >=, <, <=       whole partitions; Spark filters no more
    offset               =, <=>, >, >=, <, <=           ranges; Spark filters no more
    offset               IN                             from least to greatest; Spark filters
    timestamp            =, <=>, >, >=                  the beginning of ranges; Spark filters
    any of the four      IS NOT NULL                    always so

Records may lie in any order of time: before the first one at or after a timestamp there is none
that is, but behind it there may be earlier ones.
"""

import datetime
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from kafkalite.spark.ranges import OFFSET_MAX, Cut

__all__ = ["push"]

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")

Test = Callable[[Any], bool]


def push(filters: Iterable[Filter]) -> tuple[Cut, list[Filter]]:
    """What to read for all filters to hold, and those that Spark must look at as well."""
    cut = Cut()
    left = []
    for each in filters:
        found = _cut(each, cut)
        cut, is_exact = (cut, False) if found is None else found
        if not is_exact:
            left.append(each)
    return cut, left


def _cut(each: Filter, cut: Cut) -> tuple[Cut, bool] | None:
    """The cut with this filter, and whether it says all that the filter does; None: it cannot."""
    path: tuple[str, ...] = getattr(each, "attribute", ())
    column = path[0] if len(path) == 1 else ""
    if isinstance(each, IsNotNull):
        return (cut, True) if column in NEVER_NULL else None
    value = getattr(each, "value", None)
    if column in ("topic", "partition"):
        at = ("topic", "partition").index(column)
        if (test := _test(each, value, str if column == "topic" else int)) is not None:
            return cut.where(lambda partition: test(partition[at])), True
    if column == "offset":
        return _cut_offsets(each, value, cut)
    begins = isinstance(each, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual)
    if column == "timestamp" and begins and isinstance(value, datetime.datetime) and value.tzinfo:
        # A timestamp of Kafka's has whole milliseconds, and Kafka's index may be one behind.
        earliest_ms = (value - EPOCH) // datetime.timedelta(milliseconds=1) - 1
        return cut._replace(timestamp=max(cut.timestamp, earliest_ms)), False
    return None


def _test(each: Filter, value: Any, kind: type) -> Test | None:
    values = value if isinstance(each, In) else (value,)
    if not all(isinstance(one, kind) and not isinstance(one, bool) for one in values):
        return None
    if isinstance(each, In):
        return frozenset(values).__contains__
    if isinstance(each, EqualTo | EqualNullSafe):
        return lambda found: bool(found == value)
    if kind is str:
        return None  # Spark compares strings by their bytes
    tests: dict[type, Test] = {
        GreaterThan: lambda found: bool(found > value),
        GreaterThanOrEqual: lambda found: bool(found >= value),
        LessThan: lambda found: bool(found < value),
        LessThanOrEqual: lambda found: bool(found <= value),
    }
    return tests.get(type(each))


def _cut_offsets(each: Filter, value: Any, cut: Cut) -> tuple[Cut, bool] | None:
    values = value if isinstance(each, In) else (value,)
    if not values or not all(isinstance(one, int) for one in values):
        return None
    least, greatest = min(values), max(values)
    bounds: dict[type, tuple[int, int]] = {
        EqualTo: (least, least + 1),
        EqualNullSafe: (least, least + 1),
        In: (least, greatest + 1),
        GreaterThan: (least + 1, OFFSET_MAX),
        GreaterThanOrEqual: (least, OFFSET_MAX),
        LessThan: (0, greatest),
        LessThanOrEqual: (0, greatest + 1),
    }
    if type(each) not in bounds:
        return None
    start, stop = bounds[type(each)]
    return cut.within(start, stop), not isinstance(each, In)
