"""From what options say to ranges of offsets, and how a stream moves on: decisions without any I/O.

Whoever asks brokers or files (`planner.py`) hands the answers in; `offsets.py` has the words. The
rules are those of Spark's `KafkaOffsetRangeCalculator`, `KafkaOffsetReaderAdmin` and
`KafkaMicroBatchStream`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from kafkalite.errors import InvalidArgumentError
from kafkalite.spark.offsets import (
    EARLIEST,
    LATEST,
    OFFSET_MAX,
    Bound,
    Offsets,
    Partition,
    Range,
    name_of,
    names_of,
)

__all__ = [
    "OPERATORS",
    "Cut",
    "PartitionTest",
    "advance",
    "batch_ranges",
    "begin_later",
    "between",
    "check_names",
    "is_delayed",
    "resolve",
    "split",
    "within",
]


class PartitionTest(NamedTuple):
    """A comparison of the topic or the number of a partition with constants, in SQL's words."""

    column: Literal["topic", "partition"]
    operator: str
    values: tuple[Any, ...]

    def holds(self, partition: Partition) -> bool:
        """True if the test holds for this partition."""
        return bool(OPERATORS[self.operator](partition[self.column == "partition"], self.values))


OPERATORS: Mapping[str, Callable[[Any, tuple[Any, ...]], bool]] = {
    "=": lambda found, values: found == values[0],
    "<=>": lambda found, values: found == values[0],
    "<>": lambda found, values: found != values[0],
    "IN": lambda found, values: found in values,
    "<": lambda found, values: found < values[0],
    "<=": lambda found, values: found <= values[0],
    ">": lambda found, values: found > values[0],
    ">=": lambda found, values: found >= values[0],
}


class Cut(NamedTuple):
    """The part of a batch that its filters leave: partitions for which all tests hold, offsets
    `start .. stop`, beginning with the first record at or after `timestamp` (ms; -1: any)."""

    tests: tuple[PartitionTest, ...] = ()
    start: int = 0
    stop: int = OFFSET_MAX
    timestamp: int = -1

    def where(self, test: PartitionTest) -> "Cut":
        """With one more test."""
        return self._replace(tests=(*self.tests, test))

    def within(self, start: int, stop: int) -> "Cut":
        """Within these offsets as well."""
        return self._replace(start=max(self.start, start), stop=min(self.stop, stop))

    def keeps(self, partition: Partition) -> bool:
        """True if anything of a partition is left."""
        return all(test.holds(partition) for test in self.tests)


# --- a batch --------------------------------------------------------------------------------------


def check_names(bound: Bound, partitions: Sequence[Partition]) -> None:
    """Raises `InvalidArgumentError` for partitions that the bound names and nobody reads, or the
    other way round."""
    if bound.kind not in ("offsets", "timestamps") or set(bound.by_partition) == set(partitions):
        return
    hint = " (-1 for latest, -2 for earliest)" if bound.kind == "offsets" else ""
    raise InvalidArgumentError(
        f"{bound.option} must give {bound.kind} for all partitions that are read{hint}: "
        f"it names {names_of(bound.by_partition) or 'none'}, "
        f"read are {names_of(partitions) or 'none'}"
    )


def resolve(
    bound: Bound,
    partitions: Sequence[Partition],
    first: Offsets,
    last: Offsets,
    at_time: Offsets,
    *,
    latest_if_none: bool,
) -> dict[Partition, int]:
    """The offset of each partition at which reading starts or stops.

    `first` and `last` are the ends of the logs. `at_time` has the first offset at or after the
    bound's timestamp, -1 where there is none, which stands for the end with `latest_if_none`.

    Raises `InvalidArgumentError` where it does not.
    """
    if bound.kind == "earliest":
        return {partition: first[partition] for partition in partitions}
    if bound.kind == "latest":
        return {partition: last[partition] for partition in partitions}
    given = bound.by_partition if bound.kind == "offsets" else at_time
    found = {partition: given[partition] for partition in partitions}
    for partition in partitions:
        if found[partition] == LATEST and bound.kind != "offsets" and not latest_if_none:
            timestamp = bound.by_partition.get(partition, bound.timestamp)
            raise InvalidArgumentError(
                f"{bound.option}: {name_of(partition)} has no record at or after timestamp "
                f"{timestamp}; startingOffsetsByTimestampStrategy=latest would start at its end"
            )
        if found[partition] == LATEST:
            found[partition] = last[partition]
        elif found[partition] == EARLIEST:
            found[partition] = first[partition]
    return found


def batch_ranges(
    start: Offsets, stop: Offsets, first: Offsets, last: Offsets, cut: Cut
) -> tuple[list[Range], list[str]]:
    """The ranges of a batch query, cut by its filters and then to the logs, and a sentence for each
    end that lies outside its log.

    Only the cut's offsets count here: nobody knows the timestamps of records that are gone.

    Raises `InvalidArgumentError` for a start behind its stop.
    """
    ranges, losses = [], []
    for partition in sorted(start):
        begin, end = start[partition], stop[partition]
        name = name_of(partition)
        lowest, highest = first[partition], last[partition]
        if end < begin == lowest:
            continue  # all before the end is gone, and the earliest offset lies behind it
        if begin > end:
            raise InvalidArgumentError(
                f"{name}: the starting offset {begin} lies behind the ending offset {end}"
            )
        begin, end = max(begin, cut.start), min(end, cut.stop)
        if begin >= end:
            continue
        left, lost = within(Range(*partition, begin, end), lowest, highest)
        ranges.append(left)
        losses += lost
    return ranges, losses


def within(each: Range, lowest: int, highest: int) -> tuple[Range, list[str]]:
    """Cuts a range that is not empty to a log of offsets `lowest .. highest`. Gives the range, and
    a sentence for each end that lies outside the log."""
    name, losses = name_of(each.topic_partition), []
    if each.start < lowest:
        gone = min(each.stop, lowest) - each.start
        losses.append(
            f"{name}: offset {each.start} is no longer there, the log starts at {lowest} "
            f"(offsets gone: {gone})"
        )
    if each.stop > highest:
        losses.append(f"{name}: offset {each.stop} is not there yet, the log ends at {highest}")
    start, stop = (min(max(at, lowest), highest) for at in (each.start, each.stop))
    return each._replace(start=start, stop=stop), losses


def begin_later(ranges: Iterable[Range], at_time: Offsets) -> list[Range]:
    """Ranges that begin with the first record at or after a timestamp, whose offset `at_time` has
    for each partition (-1: there is none)."""
    found = []
    for each in ranges:
        begin = at_time[each.topic_partition]
        start = each.stop if begin == LATEST else min(max(each.start, begin), each.stop)
        found.append(each._replace(start=start))
    return found


def split(
    ranges: Iterable[Range], partitions_min: int | None = None, records_max: int | None = None
) -> list[Range]:
    """Ranges as tasks: none empty, each of at most `records_max` offsets, then, if they are fewer,
    in about `partitions_min` pieces, the larger ranges in more.

    Source: `KafkaOffsetRangeCalculator.getRanges`.
    """
    pieces = [each for each in ranges if each.size > 0]
    if records_max is not None:
        pieces = [piece for each in pieces for piece in _divide(each, -(-each.size // records_max))]
    if partitions_min is None or len(pieces) >= partitions_min:
        return pieces
    total = sum(each.size for each in pieces)
    # No piece is empty: of a larger number each part would be tried in vain.
    partitions_min = min(partitions_min, total)
    whole = [each for each in pieces if _parts(each.size, total, partitions_min) == 1]
    rest = total - sum(each.size for each in whole)
    parts_min = max(partitions_min - len(whole), 1)
    kept = set(whole)
    return [
        piece
        for each in pieces
        for piece in _divide(each, 1 if each in kept else _parts(each.size, rest, parts_min))
    ]


def _parts(size: int, total: int, parts_min: int) -> int:
    return max(math.floor(size / total * parts_min + 0.5), 1)


def _divide(each: Range, parts: int) -> list[Range]:
    """The last piece has what does not divide."""
    pieces = []
    left, at = each.size, each.start
    for part in range(parts):
        size = left // (parts - part)
        left -= size
        if size:
            pieces.append(each._replace(start=at, stop=at + size))
        at += size
    return pieces


# --- a stream -------------------------------------------------------------------------------------


def advance(
    start: Offsets, latest: Offsets, first_of_new: Offsets, rows_max: int | None
) -> dict[Partition, int]:
    """Where the next micro-batch ends: at `latest`, or earlier, so that it has about `rows_max`
    offsets, which partitions share by what they have to read.

    `first_of_new` has the log start of partitions that `start` does not know. A partition with
    anything to read gets at least one offset, so that none starves.

    Source: `KafkaMicroBatchStream.rateLimit`.
    """
    if rows_max is None:
        return dict(latest)
    sizes = {}
    for partition, end in latest.items():
        begin = start.get(partition, first_of_new.get(partition))
        if begin is not None and end > begin:
            sizes[partition] = (begin, end - begin)
    total = sum(size for _, size in sizes.values())
    found = dict(latest)
    for partition, (begin, size) in sizes.items():
        share = rows_max * (size / total)
        rows = math.ceil(share) if share < 1 else math.floor(share)
        found[partition] = min(latest[partition], begin + min(rows, OFFSET_MAX - begin))
    return found


def is_delayed(
    start: Offsets, latest: Offsets, rows_min: int, delay_ms_max: int, since_ms: int
) -> bool:
    """True if the next micro-batch waits for more: there are fewer than `rows_min` offsets, and the
    last one began less than `delay_ms_max` ago."""
    if since_ms >= delay_ms_max:
        return False
    return sum(end - start.get(partition, 0) for partition, end in latest.items()) < rows_min


def between(start: Offsets, stop: Offsets, first_of_new: Offsets) -> tuple[list[Range], list[str]]:
    """The ranges of a micro-batch, and a sentence for each loss of data that they show.

    Partitions that `start` does not know begin at their log start, `first_of_new`, which has none
    for a partition that is gone.

    Source: `KafkaOffsetReaderAdmin.getOffsetRangesFromResolvedOffsets`.
    """
    ranges, losses = [], []
    for partition in sorted(stop):
        name = name_of(partition)
        begin = start.get(partition)
        if begin is None:
            begin = first_of_new.get(partition)
            if begin is None:
                losses.append(f"the added partition {name} is gone")
                continue
            if begin:
                losses.append(f"the added partition {name} starts at offset {begin}, not at 0")
        end = stop[partition]
        if end < begin:
            losses.append(f"{name}: its end went back from offset {begin} to {end}")
        ranges.append(Range(*partition, begin, max(begin, end)))
    gone = sorted(set(start) - set(stop))
    topics = sorted({topic for topic, _ in start})
    if gone and not any(topic in topics for topic, _ in stop):
        losses.append(
            f"the checkpoint is of {', '.join(topics)}, none of which this query reads: a query "
            "of other topics needs a checkpoint of its own"
        )
    else:
        losses += [f"the partition {name_of(each)} is gone" for each in gone]
    return ranges, losses
