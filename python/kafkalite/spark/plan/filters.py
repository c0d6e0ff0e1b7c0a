"""Filters that Spark pushes down, as cuts of what is read.

    topic, partition     =, <=>, IN, >, >=, <, <=       whole partitions; Spark filters no more
    offset               =, <=>, >, >=, <, <=           ranges; Spark filters no more
    offset               IN                             from least to greatest; Spark filters
    timestamp            =, <=>, >, >=                  the beginning of ranges; Spark filters
    all but timestamp    IS NOT NULL                    always so

Records may lie in any order of time: before the first one at or after a timestamp there is none
that is, but behind it there may be earlier ones.
"""

import datetime
from collections.abc import Iterable
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

from kafkalite.spark.offsets import OFFSET_MAX
from kafkalite.spark.plan.ranges import Cut, PartitionTest

__all__ = ["push"]

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# Not the timestamp: beyond the year 294,246 it is null.
NEVER_NULL = ("topic", "partition", "offset", "timestampType")

OPERATORS: dict[type, str] = {
    EqualTo: "=",
    EqualNullSafe: "<=>",
    In: "IN",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


def push(filters: Iterable[Filter]) -> tuple[Cut, list[Filter]]:
    """Gives the cut for which all filters hold, and those that Spark must look at, too."""
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
        test = _test(each, column, value)
        return None if test is None else (cut.where(test), True)
    if column == "offset":
        return _cut_offsets(each, value, cut)
    begins = isinstance(each, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual)
    if column == "timestamp" and begins and isinstance(value, datetime.datetime) and value.tzinfo:
        # A timestamp of Kafka's has whole milliseconds, and Kafka's index may be one behind.
        earliest_ms = (value - EPOCH) // datetime.timedelta(milliseconds=1) - 1
        return cut._replace(timestamp=max(cut.timestamp, earliest_ms)), False
    return None


def _test(each: Filter, column: str, value: Any) -> PartitionTest | None:
    values = tuple(value) if isinstance(each, In) else (value,)
    kind = str if column == "topic" else int
    if not values or not all(isinstance(one, kind) and not isinstance(one, bool) for one in values):
        return None
    operator = OPERATORS.get(type(each))
    if operator is None or (column == "topic" and operator not in ("=", "<=>", "IN")):
        return None  # Spark compares strings by their bytes
    return PartitionTest("topic" if column == "topic" else "partition", operator, values)


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
