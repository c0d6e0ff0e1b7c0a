"""Streaming reads: where a stream is, how far a micro-batch goes, and what its tasks read.

Spark keeps one reader per query in a Python process of the driver, which asks brokers; tasks read
as those of a batch do. Offsets in the checkpoint are the connector's JSON, `{"orders":{"0":17}}`,
each the next record of a partition, and beside them the ids of the topics (`offsets.Position`). The
same two offsets always give the same rows, so that a query that is killed reads again exactly what
its checkpoint says; for the first micro-batch see `plan/first_micro_batch.py`.
"""

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kafkalite.errors import KafkaliteError
from kafkalite.spark.batch import RangePartition, read_range, tasks_of
from kafkalite.spark.offsets import Position
from kafkalite.spark.options.read import ReadOptions
from kafkalite.spark.plan.first_micro_batch import FirstMicroBatch
from kafkalite.spark.plan.group_progress import GroupProgress
from kafkalite.spark.plan.planner import (
    commit_to_group,
    initial_offsets,
    next_end,
    plan_between,
    with_ids,
)
from kafkalite.spark.plan.topic_source import TopicSource, open_topic_source
from kafkalite.spark.schema import check_schema
from kafkalite.spark.sentence import log_warnings, without_traceback

__all__ = ["RefusedStream", "StreamReader"]

Json = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is appended, micro-batch by micro-batch."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._forget()

    def _forget(self) -> None:
        self._source: TopicSource | None = None
        self._first: FirstMicroBatch | None = None
        """None unless Spark asks for the start."""
        self._initial: Json = {}
        """The start, as Spark has heard it."""
        self._latest: Position | None = None
        self._is_available_now = False
        self._target: Position | None = None
        self._last_planned_s: float | None = None
        """When Spark was last not told to wait, whether or not there was anything to read."""
        self._progress = GroupProgress()

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get what they need to read, without connections."""
        return {"_options": self._options, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    # --- on the driver ----------------------------------------------------------------------------

    @without_traceback
    def initialOffset(self) -> Json:  # noqa: N802
        """Where a new query starts; Spark asks more than once and must hear the same."""
        if self._first is None:
            log_warnings(self._options.warnings)
            check_schema(self._options, to_arrow_schema(self._schema, timezone="UTC"))
            source = self._opened()
            start = initial_offsets(self._options, source)
            self._first = FirstMicroBatch(self._options, start)
            self._initial = with_ids(source, start.offsets).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark's limits do not combine: with both, `latestOffset` sees to the minimum."""
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.rows_min is not None:
            return ReadMinRows(self._options.rows_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Ends the run with what is there when the query first asks."""
        self._is_available_now = True

    @without_traceback
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Where the next micro-batch ends; `start`, if there is none yet."""
        source, begin = self._opened(), Position.from_json(start)
        self._commit(source, begin)
        last_s = self._last_planned_s
        # A query that ends by itself does not wait: nothing more would come.
        waits = not (
            last_s is None or self._is_available_now or isinstance(limit, ReadAllAvailable)
        )
        found = next_end(
            self._options,
            source,
            begin,
            self._target,
            rows_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            rows_min=self._options.rows_min if waits else None,
            since_ms=0 if last_s is None else int((time.monotonic() - last_s) * 1000),
        )
        self._latest = found.latest
        if self._is_available_now:
            self._target = found.latest
        if found.is_delayed:
            return start
        self._last_planned_s = time.monotonic()
        if self._first is None:
            return found.end.to_json()
        offsets = self._first.end_of_new(begin.offsets, found.end.offsets)
        return found.end._replace(offsets=offsets).to_json()

    def _commit(self, source: TopicSource, begin: Position) -> None:
        """All before `begin` is in the sink: Spark has noted that micro-batch as done."""
        now_s = time.monotonic()
        if self._options.group is None or not self._progress.is_due(begin.offsets, now_s):
            return
        try:
            commit_to_group(self._options, source, begin, is_first=self._progress.is_first)
        except KafkaliteError as error:
            if self._progress.is_first:
                raise
            log_warnings([str(error)])
            self._progress.failed(time.monotonic())
        else:
            self._progress.committed(begin.offsets, now_s)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """The ends of the partitions, for the query's progress."""
        return None if self._latest is None else self._latest.to_json()

    @without_traceback
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a micro-batch. Raises `KafkaliteError`."""
        source, begin, stop = self._opened(), Position.from_json(start), Position.from_json(end)
        if self._first is not None:
            offsets, doubts = self._first.begin_of_planned(begin.offsets, stop.offsets)
            begin = begin._replace(offsets=offsets)
            log_warnings(doubts)
        return tasks_of(plan_between(self._options, source, begin, stop), source)

    def commit(self, end: Json) -> None:
        """Nothing: the checkpoint knows."""

    def stop(self) -> None:
        """Closes the connections."""
        if self._source is not None:
            self._source.close()
        self._forget()

    def _opened(self) -> TopicSource:
        if self._source is None:
            self._source = open_topic_source(self._options)
        return self._source

    # --- in tasks ---------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of a task's range."""
        if isinstance(partition, RangePartition):
            yield from read_range(self._options, self._schema, partition)


class RefusedStream(DataSourceStreamReader):
    """Takes the place of a reader whose options are wrong, and says so when it is first asked:
    PySpark hides what is raised while a reader is made behind an error of its own."""

    def __init__(self, refusal: KafkaliteError) -> None:
        self._refusal = refusal

    @without_traceback
    def initialOffset(self) -> Json:  # noqa: N802
        """Raises the refusal."""
        raise self._refusal

    @without_traceback
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: ARG002, N802
        """Raises the refusal: a query with a checkpoint asks this first."""
        raise self._refusal

    @without_traceback
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:  # noqa: ARG002
        """Raises the refusal: where a micro-batch is repeated, this is asked first."""
        raise self._refusal

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        """Raises the refusal; nothing was planned that could be read."""
        raise self._refusal
