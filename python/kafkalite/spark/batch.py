"""Batch reads: each Spark task reads one range of offsets as Arrow batches that Rust has made.

The driver plans once, in `partitions()`; a task opens its own connection, to the broker that leads
its partition, or the partition's files. What a task yields is what Rust built: no Python object is
made per record.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kafkalite._native import FetchRead, LogRead
from kafkalite.client.arrow.range_source import RangeSource
from kafkalite.errors import KafkaliteError, LogDirRefusedError
from kafkalite.spark.offsets import Range, name_of
from kafkalite.spark.options.read import ReadOptions
from kafkalite.spark.plan.filters import push
from kafkalite.spark.plan.planner import Plan, plan_batch, refuse_loss
from kafkalite.spark.plan.ranges import Cut, within
from kafkalite.spark.plan.topic_source import TopicSource, open_topic_source
from kafkalite.spark.schema import check_schema
from kafkalite.spark.sentence import log_warnings, without_traceback
from kafkalite.spark.workers import prepare_for_rows

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped,unused-ignore]

__all__ = [
    "BatchReader",
    "PushingReader",
    "RangePartition",
    "read_range",
    "tasks_of",
]


ONE_QUERY_A_LOAD = (
    "pushdown: Spark keeps what these filters leave for every query of this frame that has none; "
    "call load() once for each query"
)


class RangePartition(InputPartition):
    """The range that one task reads; `directory` is that of the partition's files, if they are
    read."""

    def __init__(self, each: Range, directory: str | None) -> None:
        super().__init__(None)
        self.range = each
        self.directory = directory


class BatchReader(DataSourceReader):
    """Reads what the options say, as it is when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._cut = Cut()

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get what they need to read."""
        return {**self.__dict__, "_cut": Cut()}

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        """One for each range. Raises `KafkaliteError`."""
        log_warnings(self._options.warnings)
        check_schema(self._options, to_arrow_schema(self._schema, timezone="UTC"))
        source = open_topic_source(self._options)
        try:
            return tasks_of(plan_batch(self._options, source, self._cut), source)
        finally:
            source.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of the range; none for the partition that stands for no partition."""
        if isinstance(partition, RangePartition):
            yield from read_range(self._options, self._schema, partition)


class PushingReader(BatchReader):
    """Takes filters as well, if the option `pushdown` wants it.

    Spark refuses a reader that does so unless its `spark.sql.python.filterPushdown.enabled` is
    true. And it keeps the last plan with filters per `load()` (`PythonDataSourceV2.setReadInfo`,
    4.2.0): another query of the same frame, without filters or beside the first one, as in a join
    with itself, would read what the first one left. Hence the warning, and hence no pushdown unless
    a user asks for it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Cuts what is read; gives back what Spark must filter."""
        self._cut, left = push(filters)
        if len(left) < len(filters) or self._cut.timestamp >= 0:
            log_warnings([ONE_QUERY_A_LOAD])
        return left


def tasks_of(plan: Plan, source: TopicSource) -> list[InputPartition]:
    """The tasks of a plan, whose warnings are logged."""
    log_warnings(plan.warnings)
    return [RangePartition(each, source.directory(each.topic_partition)) for each in plan.ranges]


def read_range(
    options: ReadOptions, schema: StructType, partition: RangePartition
) -> "Iterator[pyarrow.RecordBatch]":
    """The rows of a range. Raises `KafkaliteError` in a sentence that names the partition."""
    import pyarrow

    prepare_for_rows()
    wanted = to_arrow_schema(schema, timezone="UTC")
    each = partition.range
    read: FetchRead | LogRead | None
    if partition.directory is None:
        read = _fetch(options, wanted, each)
    else:
        read = _read_files(options, wanted, each, partition.directory)
        if read is None:
            return
    try:
        yield from pyarrow.RecordBatchReader.from_stream(read)
    except (pyarrow.ArrowException, OSError) as error:
        name = name_of(each.topic_partition)
        sentence = str(error).removeprefix("External error: ")
        raise KafkaliteError(sentence if name in sentence else f"{name}: {sentence}") from error


def _fetch(options: ReadOptions, wanted: "pyarrow.Schema", each: Range) -> FetchRead:
    client = options.client
    on_loss = refuse_loss if options.fail_on_data_loss else _tell_loss

    def open_source() -> RangeSource:
        return RangeSource(client.bootstrap_servers, [each], client.fetch, on_loss)

    return FetchRead(
        open_source,
        ranges=[each],
        columns=None,
        schema=wanted,
        formats=dict(options.formats),
        batch_rows=options.batch_rows,
        batch_bytes=options.batch_bytes,
    )


def _tell_loss(sentence: str) -> None:
    log_warnings([f"data may have been lost: {sentence}"])


def _read_files(
    options: ReadOptions, wanted: "pyarrow.Schema", each: Range, directory: str
) -> LogRead | None:
    """Opens what the files have of a range by now, None if they are gone. Raises `KafkaliteError`
    where that is not all of it, unless lost data is no failure."""

    def read(isolation: str, start: int | None = None, stop: int | None = None) -> LogRead:
        return LogRead(
            [directory],
            topic=None,
            start=start,
            start_by_partition={},
            stop=stop,
            stop_by_partition={},
            columns=None,
            schema=wanted,
            formats=dict(options.formats),
            isolation=isolation,
            batch_rows=options.batch_rows,
            batch_bytes=options.batch_bytes,
        )

    try:
        ((_, _, first, last),) = read("read_uncommitted").ranges
    except LogDirRefusedError as error:
        if options.fail_on_data_loss:
            raise
        _tell_loss(f"the partition {name_of(each.topic_partition)} is gone: {error}")
        return None
    left, losses = within(each, first, last)
    if losses and options.fail_on_data_loss:
        refuse_loss("; ".join(losses))
    for loss in losses:
        _tell_loss(loss)
    return read(options.client.fetch.isolation, left.start, left.stop)
