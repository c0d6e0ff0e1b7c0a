"""Filters that Spark pushes down: what is read for them, and which ones Spark keeps."""

import datetime
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import StructType

from kafkalite.spark.batch import PushingReader
from kafkalite.spark.offsets import Range
from kafkalite.spark.options.read import ReadOptions
from kafkalite.spark.plan.filters import push
from kafkalite.spark.plan.ranges import Cut, batch_ranges, begin_later

LOG = [Range(topic, partition, 10, 30) for topic in ("a", "b") for partition in range(4)]


def left_of_log(cut: Cut) -> list[Range]:
    """What is planned of the log, as the planner does it, but for timestamps."""
    kept = [(each.topic, each.partition) for each in LOG if cut.keeps((each.topic, each.partition))]
    first, last = dict.fromkeys(kept, 10), dict.fromkeys(kept, 30)
    found, losses = batch_ranges(first, last, first, last, cut)
    assert not losses
    return found


HOLDS = {
    EqualTo: lambda found, value: found == value,
    EqualNullSafe: lambda found, value: found == value,
    GreaterThan: lambda found, value: found > value,
    GreaterThanOrEqual: lambda found, value: found >= value,
    LessThan: lambda found, value: found < value,
    LessThanOrEqual: lambda found, value: found <= value,
    In: lambda found, value: found in value,
}


@st.composite
def one_filter(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(["topic", "partition", "offset"]))
    values = {
        "topic": st.sampled_from(["a", "b", "c"]),
        "partition": st.integers(-1, 5),
        "offset": st.integers(-5, 40),
    }[column]
    kind = draw(st.sampled_from(list(HOLDS)))
    if kind is In:
        return In((column,), tuple(draw(st.lists(values, min_size=1, max_size=3))))
    return kind((column,), draw(values))  # type: ignore[no-any-return,call-arg]


@settings(deadline=None)
@given(st.lists(one_filter(), max_size=4))
def test_what_is_read_and_then_filtered_is_what_holds(filters: list[Filter]) -> None:
    def holds(row: dict[str, Any], each: Any) -> bool:
        return bool(HOLDS[type(each)](row[each.attribute[0]], each.value))

    def rows(ranges: list[Range]) -> list[dict[str, Any]]:
        return [
            {"topic": each.topic, "partition": each.partition, "offset": offset}
            for each in ranges
            for offset in range(each.start, each.stop)
        ]

    cut, left = push(filters)
    read = rows(left_of_log(cut))
    assert [row for row in read if all(holds(row, each) for each in left)] == [
        row for row in rows(LOG) if all(holds(row, each) for each in filters)
    ]


def test_a_filter_that_the_cut_says_in_full_is_not_kept() -> None:
    filters = [
        IsNotNull(("offset",)),
        EqualTo(("partition",), 1),
        In(("topic",), ("a", "b")),
        GreaterThan(("offset",), 12),
        LessThanOrEqual(("offset",), 20),
    ]
    cut, left = push(filters)
    assert left == []
    assert left_of_log(cut) == [Range("a", 1, 13, 21), Range("b", 1, 13, 21)]


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("value",), b"x"),
        IsNull(("offset",)),
        IsNotNull(("key",)),
        IsNotNull(("timestamp",)),
        Not(EqualTo(("partition",), 1)),
        EqualTo(("headers", "partition"), 1),
        EqualTo(("partition",), None),
        GreaterThan(("topic",), "a"),
        LessThan(("timestamp",), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)),
        EqualTo(("timestamp",), datetime.datetime(2026, 1, 1)),
    ],
)
def test_any_other_filter_is_spark_s(each: Filter) -> None:
    cut, left = push([each])
    assert left == [each]
    assert left_of_log(cut) == LOG
    assert cut.timestamp == -1


def test_a_timestamp_cuts_the_beginning_and_stays_with_spark() -> None:
    moment = datetime.datetime(1970, 1, 1, 0, 0, 5, 700, tzinfo=datetime.UTC)
    filters: list[Filter] = [GreaterThanOrEqual(("timestamp",), moment)]
    cut, left = push(filters)
    assert left == filters
    assert cut.timestamp == 4_999
    at_time = {("a", 0): 25, ("a", 1): -1, ("a", 2): 3}
    found = begin_later(LOG[:3], at_time)
    assert found == [Range("a", 0, 25, 30), Range("a", 1, 30, 30), Range("a", 2, 10, 30)]


def test_a_reader_with_filters_goes_to_the_tasks() -> None:
    options = ReadOptions.of({"path": "/nowhere"}, streaming=False)
    reader = PushingReader(options, StructType([]))
    assert list(reader.pushFilters([EqualTo(("partition",), 1)])) == []
    pickle.loads(pickle.dumps(reader))  # noqa: S301 - made one line above
