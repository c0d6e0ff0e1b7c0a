"""The first micro-batch of a stream, of which no checkpoint says where it began.

Spark notes the end of each micro-batch before it runs it, and after a restart repeats the last one.
Where the first one began it does not tell a Python source, which is asked for the start of the
stream again and may find another one by then: `latest` has moved on, and old records are deleted.

    new         ends before anything of the partitions whose start would be another; the second
                micro-batch, which begins where the first one ended, reads that
    repeated    begins with the start of now, but not behind its end
"""

from typing import NamedTuple

from kafkalite.spark.offsets import (
    EARLIEST,
    LATEST,
    Bound,
    Offsets,
    Partition,
    name_of,
    names_of,
)
from kafkalite.spark.options.read import ReadOptions

__all__ = ["FirstMicroBatch", "Start", "starts_of"]

BY_TIME = ("timestamp", "timestamps")


class Start(NamedTuple):
    """Where a new stream starts.

    Who asks again later would be told another offset of partitions `at_end` (the end of the log),
    and perhaps of those `at_log_start`, of which something has been deleted by now.
    """

    offsets: dict[Partition, int]
    at_end: frozenset[Partition]
    at_log_start: frozenset[Partition]


def starts_of(bound: Bound, resolved: Offsets, first: Offsets, at_time: Offsets) -> Start:
    """Gives the start that `resolve` has made of a bound, and which of it depends on the time."""
    by_time = bound.kind in BY_TIME
    wanted = {
        "earliest": dict.fromkeys(resolved, EARLIEST),
        "latest": dict.fromkeys(resolved, LATEST),
        "offsets": bound.by_partition,
    }.get(bound.kind, at_time)
    return Start(
        dict(resolved),
        frozenset(each for each in resolved if wanted[each] == LATEST),
        frozenset(
            each
            for each in resolved
            if 0 < resolved[each] == first[each] and (by_time or wanted[each] < 0)
        ),
    )


class FirstMicroBatch:
    """The first micro-batch of a run that was told the start of its stream."""

    def __init__(self, options: ReadOptions, start: Start) -> None:
        """It comes next."""
        self._options = options
        self._start = start
        self._is_next = True
        self._repeated_end: Offsets | None = None
        """Its end, if it is repeated: Spark may plan it more than once."""

    def end_of_new(self, begin: Offsets, end: dict[Partition, int]) -> dict[Partition, int]:
        """Where a new micro-batch ends that could go to `end`."""
        if not self._takes(begin) or not self._start.at_end:
            return end
        start = self._start
        return {
            each: start.offsets[each] if each in start.at_end else offset
            for each, offset in end.items()
            if each in start.offsets
        }

    def begin_of_planned(
        self, begin: dict[Partition, int], end: Offsets
    ) -> tuple[dict[Partition, int], list[str]]:
        """Where a micro-batch begins whose tasks are planned, and a sentence for what nobody can
        know any more."""
        if self._takes(begin):  # nobody has asked for its end: a run before this one has
            self._repeated_end = end
        if (begin, end) != (self._start.offsets, self._repeated_end):
            return begin, []
        return self._repeated_begin(end)

    def _takes(self, begin: Offsets) -> bool:
        """True for the micro-batch that comes next, once, if it begins where the stream does."""
        is_next, self._is_next = self._is_next, False
        return is_next and begin == self._start.offsets

    def _repeated_begin(self, end: Offsets) -> tuple[dict[Partition, int], list[str]]:
        bound, start = self._options.start, self._start
        # A start by time may have been the end of the log before there was a later record.
        by_time = bound.kind in BY_TIME and self._options.latest_if_none
        begin = {
            each: min(offset, end[each]) if by_time or each in start.at_end else offset
            for each, offset in start.offsets.items()
            if each in end
        }
        doubts = [
            f"the first micro-batch is repeated, of {name_of(each)} from offset {begin[each]} on, "
            "where the log starts by now: what it began with may have been deleted"
            for each in sorted(start.at_log_start & begin.keys())
        ]
        if at_end := start.at_end & begin.keys():
            doubts.append(
                f"the first micro-batch is repeated without anything of {names_of(at_end)}, which "
                "it began at the end: what another engine had planned before is not read"
            )
        return begin, doubts
