"""How ranges are planned: rules, without brokers or Spark."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.errors import InvalidArgumentError
from kafkalite.spark.offsets import Range, offsets_from_json, offsets_to_json
from kafkalite.spark.plan.ranges import Cut, advance, batch_ranges, between, is_delayed, split

PARTITIONS = st.tuples(st.sampled_from(["a", "b", "a.b-c"]), st.integers(0, 5))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 1 << 40), max_size=8)


@st.composite
def several_ranges(draw: st.DrawFn) -> list[Range]:
    sizes = draw(st.dictionaries(PARTITIONS, st.integers(0, 10_000), max_size=8))
    start = draw(st.integers(0, 1 << 40))
    return [Range(*partition, start, start + size) for partition, size in sizes.items()]


@settings(deadline=None)
@given(OFFSETS)
def test_offsets_survive_json(offsets: dict[tuple[str, int], int]) -> None:
    assert offsets_from_json(offsets_to_json(offsets)) == offsets


@settings(deadline=None)
@given(
    several_ranges(),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(100, 5_000),
)
def test_pieces_cover_what_was_split_once_and_in_order(
    ranges: list[Range], partitions_min: int | None, records_max: int | None
) -> None:
    pieces = split(ranges, partitions_min, records_max)
    assert all(piece.size > 0 for piece in pieces)
    for each in ranges:
        mine = [piece for piece in pieces if piece[:2] == each[:2]]
        ends = [each.start, *(piece.stop for piece in mine)]
        assert [piece.start for piece in mine] == ends[:-1]
        assert ends[-1] == each.stop
    if records_max is not None:
        assert all(piece.size <= records_max for piece in pieces)


def test_a_large_range_is_split_and_a_small_one_is_not() -> None:
    # As `KafkaOffsetRangeCalculatorSuite`: the rest of the division is the last piece's.
    ranges = [Range("t", 0, 0, 5), Range("t", 1, 0, 100)]
    pieces = split(ranges, 4)
    assert pieces == [
        Range("t", 0, 0, 5),
        Range("t", 1, 0, 33),
        Range("t", 1, 33, 66),
        Range("t", 1, 66, 100),
    ]


def test_more_tasks_than_offsets_are_a_task_an_offset() -> None:
    """Planning went through each of the parts, which took years."""
    assert split([Range("t", 0, 5, 7), Range("t", 1, 0, 1)], 1 << 62) == [
        Range("t", 0, 5, 6),
        Range("t", 0, 6, 7),
        Range("t", 1, 0, 1),
    ]


@settings(deadline=None)
@given(OFFSETS, OFFSETS, OFFSETS, st.integers(1, 100_000))
def test_a_micro_batch_moves_every_partition_and_none_beyond_its_end(
    start: dict[tuple[str, int], int],
    latest: dict[tuple[str, int], int],
    first: dict[tuple[str, int], int],
    rows_max: int,
) -> None:
    end = advance(start, latest, first, rows_max)
    assert set(end) == set(latest)
    moved = 0
    for partition, last in latest.items():
        begin = start.get(partition, first.get(partition))
        assert end[partition] <= last
        if begin is not None and begin < last:
            assert end[partition] > begin
            moved += end[partition] - begin
        else:
            assert end[partition] == last
    assert moved <= rows_max + len(latest)


@settings(deadline=None)
@given(OFFSETS, OFFSETS, st.integers(1, 1_000))
def test_a_limited_stream_arrives(
    start: dict[tuple[str, int], int], latest: dict[tuple[str, int], int], parts: int
) -> None:
    latest = {each: max(offset, start.get(each, 0)) for each, offset in latest.items()}
    total = sum(offset - start.get(each, 0) for each, offset in latest.items())
    rows_max = max(total // parts, 1)
    first = dict.fromkeys(latest, 0)
    steps = 0
    while start != latest:
        start = advance(start, latest, first, rows_max)
        steps += 1
        assert steps <= 4 * parts + 60


def test_partitions_share_a_limit_by_what_they_have() -> None:
    start = {("t", 0): 0, ("t", 1): 0, ("t", 2): 7}
    latest = {("t", 0): 100, ("t", 1): 900, ("t", 2): 7}
    assert advance(start, latest, {}, 100) == {("t", 0): 10, ("t", 1): 90, ("t", 2): 7}


def test_a_batch_waits_for_rows_or_for_time() -> None:
    start, latest = {("t", 0): 10}, {("t", 0): 15, ("t", 1): 3}
    assert is_delayed(start, latest, 9, 1_000, 10)
    assert not is_delayed(start, latest, 8, 1_000, 10)
    assert not is_delayed(start, latest, 9, 1_000, 1_000)


def test_an_added_partition_is_read_from_its_start() -> None:
    ranges, losses = between({("t", 0): 5}, {("t", 0): 8, ("t", 1): 4}, {("t", 1): 0})
    assert ranges == [Range("t", 0, 5, 8), Range("t", 1, 0, 4)]
    assert not losses


def test_every_loss_between_two_micro_batches_has_a_sentence() -> None:
    start = {("t", 0): 5, ("t", 1): 9}
    stop = {("t", 1): 4, ("t", 2): 8, ("t", 3): 2}
    ranges, losses = between(start, stop, {("t", 2): 3})
    assert ranges == [Range("t", 1, 9, 9), Range("t", 2, 3, 8)]
    assert losses == [
        "t-1: its end went back from offset 9 to 4",
        "the added partition t-2 starts at offset 3, not at 0",
        "the added partition t-3 is gone",
        "the partition t-0 is gone",
    ]


def test_a_batch_is_cut_to_the_log_and_says_so() -> None:
    partition = ("t", 0)
    asked = ({partition: 2}, {partition: 90}, {partition: 10}, {partition: 50})
    ranges, losses = batch_ranges(*asked, Cut())
    assert ranges == [Range("t", 0, 10, 50)]
    assert losses == [
        "t-0: offset 2 is no longer there, the log starts at 10 (offsets gone: 8)",
        "t-0: offset 90 is not there yet, the log ends at 50",
    ]


def test_a_batch_from_the_earliest_offset_to_one_that_is_gone_has_no_rows() -> None:
    partition = ("t", 0)
    ends = ({partition: 40}, {partition: 50})
    assert batch_ranges({partition: 40}, {partition: 5}, *ends, Cut()) == ([], [])
    with pytest.raises(InvalidArgumentError, match="the starting offset 41 lies behind"):
        batch_ranges({partition: 41}, {partition: 5}, *ends, Cut())


def test_what_filters_leave_out_is_no_loss() -> None:
    partition = ("t", 0)
    asked = ({partition: 2}, {partition: 90}, {partition: 10}, {partition: 50})
    assert batch_ranges(*asked, Cut(start=10, stop=50)) == ([Range("t", 0, 10, 50)], [])
    for nothing in (Cut(start=90), Cut(start=5, stop=5), Cut(stop=2)):
        assert batch_ranges(*asked, nothing) == ([], [])
    _, losses = batch_ranges(*asked, Cut(start=9, stop=51))
    assert losses == [
        "t-0: offset 9 is no longer there, the log starts at 10 (offsets gone: 1)",
        "t-0: offset 51 is not there yet, the log ends at 50",
    ]
