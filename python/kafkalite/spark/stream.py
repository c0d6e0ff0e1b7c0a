"""Streaming reads: where a stream is, how far a micro-batch goes, and what its tasks read.

Spark keeps one reader per query in a Python process of the driver, which asks brokers; tasks read
as those of a batch do. Offsets in the checkpoint are the connector's JSON, `{"orders":{"0":17}}`,
each the next record of a partition, and beside them the ids of the topics (`ranges.Position`). The
same two offsets always give the same rows, so that a query that is killed reads again exactly what
its checkpoint says. Where the first micro-batch began is in no checkpoint, as Spark does not tell a
Python source where that is: see `_begins`.
"""

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kafkalite.errors import KafkaliteError
from kafkalite.spark.batch import RangePartition, check_schema, read_range
from kafkalite.spark.options.read import ReadOptions
from kafkalite.spark.plan.group_progress import GroupProgress
from kafkalite.spark.plan.logs import Log, open_log
from kafkalite.spark.plan.planner import (
    commit_to_group,
    initial_offsets,
    latest_offsets,
    next_offsets,
    plan_between,
    repeated_start,
    tell,
    with_ids,
)
from kafkalite.spark.plan.ranges import (
    Partition,
    Position,
    Start,
    first_end,
    is_delayed,
    same_topics,
)
from kafkalite.spark.sentence import in_a_sentence

__all__ = ["RefusedStream", "StreamReader"]

Json = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is appended, micro-batch by micro-batch."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._forget()

    def _forget(self) -> None:
        self._log: Log | None = None
        self._start: Start | None = None
        self._initial: Json = {}
        """The first offsets as Spark has heard them."""
        self._begins = False
        """True if the first micro-batch comes next: a new one does not go beyond a start that would
        be another when it is repeated, and one that is repeated begins accordingly."""
        self._repeats: dict[Partition, int] | None = None
        """The end of a first micro-batch that is repeated: Spark may plan it more than once."""
        self._latest: Position | None = None
        self._is_available_now = False
        self._target: Position | None = None
        self._not_delayed_at: float | None = None
        """When Spark was last not told to wait, whether or not there was anything to read."""
        self._progress = GroupProgress()

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get what they need to read, without connections."""
        return {"_options": self._options, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    # --- on the driver ----------------------------------------------------------------------------

    @in_a_sentence
    def initialOffset(self) -> Json:  # noqa: N802
        """Where a new query starts; Spark asks more than once and must hear the same."""
        if self._start is None:
            tell(self._options.warnings)
            check_schema(self._options, self._schema)
            log = self._opened()
            self._start = initial_offsets(self._options, log)
            self._initial = with_ids(log, self._start.offsets).to_json()
            self._begins = True
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark's limits do not combine: with both, `latestOffset` sees to the minimum."""
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.rows_min is not None:
            return ReadMinRows(self._options.rows_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Has what is there when the query first asks read, and nothing that comes later."""
        self._is_available_now = True

    @in_a_sentence
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Where the next micro-batch ends; `start`, if there is none yet."""
        log, begin = self._opened(), Position.from_json(start)
        self._commit(log, begin)
        first = self._taken_start(begin.offsets)
        if self._target is not None:
            latest = self._target
        else:
            latest = latest_offsets(self._options, log, begin)
            if self._is_available_now:
                self._target = latest
        self._latest = latest
        if not isinstance(limit, ReadAllAvailable) and self._waits(begin, latest):
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = next_offsets(log, begin, latest, rows_max)
        if first is not None:
            end = end._replace(offsets=first_end(first, end.offsets))
        return end.to_json()

    def _taken_start(self, begin: dict[Partition, int]) -> Start | None:
        """The start of the stream, if the first micro-batch is it that begins there."""
        begins, self._begins = self._begins, False
        return self._start if begins and self._start and self._start.offsets == begin else None

    def _commit(self, log: Log, begin: Position) -> None:
        """All before `begin` is in the sink: Spark has noted that micro-batch as done."""
        now_s = time.monotonic()
        if self._options.group is None or not self._progress.is_due(begin.offsets, now_s):
            return
        try:
            commit_to_group(self._options, log, begin, is_first=self._progress.is_first)
        except KafkaliteError as error:
            if self._progress.is_first:
                raise
            tell([str(error)])
            self._progress.failed(time.monotonic())
        else:
            self._progress.committed(begin.offsets, now_s)

    def _waits(self, start: Position, latest: Position) -> bool:
        """A query that ends by itself does not wait: nothing more would come."""
        rows_min = self._options.rows_min
        if rows_min is None or self._is_available_now:
            return False
        now, not_delayed_at = time.monotonic(), self._not_delayed_at
        if not_delayed_at is not None:
            since_ms = int((now - not_delayed_at) * 1000)
            begin = same_topics(start, latest.ids)
            if is_delayed(begin, latest.offsets, rows_min, self._options.delay_ms_max, since_ms):
                return True
        self._not_delayed_at = now
        return False

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """The ends of the partitions, for the query's progress."""
        return None if self._latest is None else self._latest.to_json()

    @in_a_sentence
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a micro-batch. Raises `KafkaliteError`."""
        log, begin, stop = self._opened(), Position.from_json(start), Position.from_json(end)
        if self._taken_start(begin.offsets) is not None:
            self._repeats = stop.offsets
        first = self._start
        if first and (first.offsets, self._repeats) == (begin.offsets, stop.offsets):
            offsets, doubts = repeated_start(self._options, first, stop.offsets)
            begin = begin._replace(offsets=offsets)
            tell(doubts)
        plan = plan_between(self._options, log, begin, stop)
        tell(plan.warnings)
        return [
            RangePartition(each, log.directory((each.topic, each.partition)))
            for each in plan.ranges
        ]

    def commit(self, end: Json) -> None:
        """Nothing: the checkpoint knows."""

    def stop(self) -> None:
        """Closes the connections."""
        if self._log is not None:
            self._log.close()
        self._forget()

    def _opened(self) -> Log:
        if self._log is None:
            self._log = open_log(self._options)
        return self._log

    # --- in tasks ---------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of a task's range."""
        if isinstance(partition, RangePartition):
            yield from read_range(self._options, self._schema, partition)


class RefusedStream(DataSourceStreamReader):
    """In place of a reader whose options are wrong: it says so when it is first asked. What is
    raised while a reader is made, PySpark loses behind an error of its own."""

    def __init__(self, refusal: KafkaliteError) -> None:
        self._refusal = refusal

    @in_a_sentence
    def initialOffset(self) -> Json:  # noqa: N802
        """Raises the refusal."""
        raise self._refusal

    @in_a_sentence
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: ARG002, N802
        """Raises the refusal: a query with a checkpoint asks this first."""
        raise self._refusal

    @in_a_sentence
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:  # noqa: ARG002
        """Raises the refusal: where a micro-batch is repeated, this is asked first."""
        raise self._refusal

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        """Raises the refusal; nothing was planned that could be read."""
        raise self._refusal
