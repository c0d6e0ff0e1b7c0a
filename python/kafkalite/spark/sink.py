"""Writing: each Spark task sends its rows as batches that Rust makes of Spark's Arrow batches.

    plain            at least once, as the connector: a task that is tried again writes again
    transactional    a task's rows are one transaction, which it leaves open; the driver commits
                     those of all tasks when the last is done, or aborts them

    driver     writer ──────────────────────────────────────────► commit: EndTxn for each message
    task         └► InitProducerId ► AddPartitions ► Produce … ► message: id, producer id, epoch

A batch query gives each attempt of a task a transactional id of its own, so that of two attempts
of one task only the one that Spark counts is committed; the driver aborts what the others left
open, for as long as tasks that Spark has killed may go on. It commits nothing unless every
transaction is still open.

A stream uses the same ids in each micro-batch, `<prefix>-<query id>-<task>`: a task that begins
fences and aborts what an earlier run left. In its transaction it also notes the batch's number, as
the offset of the group of the same name: a task of a replayed batch whose transaction had been
committed finds that and writes nothing. So each row is there once, provided that the source gives a
replayed task the same rows, as kafkalite's does (`plan/ranges.py` plans tasks in the order of
partitions); Spark's Kafka connector may give them to another task of the micro-batch.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kafkalite.client.arrow.writer import ArrowWriter
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.producer.transactions import (
    OpenTransaction,
    Transaction,
    end,
    is_open,
    open_ids,
    read_progress,
)
from kafkalite.errors import KafkaliteError
from kafkalite.spark.options.write import WriteOptions
from kafkalite.spark.plan.planner import tell
from kafkalite.spark.workers import settle, settle_for_rows

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped,unused-ignore]

    Batches = Iterator[pyarrow.RecordBatch]

__all__ = ["BatchWriter", "StreamWriter"]

# Names of the local properties by which Spark tells tasks of a stream where they belong.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"

KILLED_TASKS_GO_ON_S: Final = 3.0
"""How long a task that Spark kills may write: its Python worker has two seconds to end
(`spark.python.task.killTimeout`)."""
ABORT_PAUSE_S: Final = 0.25
"""Between two looks at what such tasks have begun."""


@dataclass
class TaskWritten(WriterCommitMessage):
    """The message of a task to the driver."""

    records_count: int = 0
    transaction: OpenTransaction | None = None


Messages = Sequence[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """The writer of a batch query."""

    def __init__(self, options: WriteOptions) -> None:
        tell(options.warnings)
        self._options = options
        self._ids = f"{options.transactional_id_prefix}-{uuid.uuid4().hex}-"

    def write(self, iterator: "Batches") -> WriterCommitMessage:
        """In a task. Raises `KafkaliteError`."""
        if self._options.transactional_id_prefix is None:
            return _write(self._options, iterator)
        task = _task()
        name = f"{self._ids}{task.partitionId()}-{task.taskAttemptId()}"
        return _write(self._options, iterator, name)

    def commit(self, messages: Messages) -> None:
        """On the driver, once every task is done."""
        settle()
        transactions = _transactions(messages)
        if not transactions:
            return
        with _cluster(self._options) as cluster:
            lost = [each for each in transactions if not is_open(cluster, each)]
            if lost:
                raise KafkaliteError(
                    f"nothing was committed: the transaction of '{lost[0].transactional_id}' was "
                    "aborted before the last task was done; kafka.transaction.timeout.ms is "
                    f"{self._options.settings.transaction_timeout_ms}"
                )
            _commit(cluster, transactions)
            self._abort_others(cluster)

    def abort(self, messages: Messages) -> None:
        """On the driver, after a task or the commit has failed. Spark does not wait for the tasks
        that it then kills: one that began its transaction after a single look would leave it open,
        and readers waiting, for `kafka.transaction.timeout.ms`."""
        if self._options.transactional_id_prefix is None:
            return
        until = time.monotonic() + KILLED_TASKS_GO_ON_S
        with suppress(KafkaliteError), _cluster(self._options) as cluster:
            _abort(cluster, _transactions(messages))
            self._abort_others(cluster)
            while time.monotonic() < until:
                time.sleep(ABORT_PAUSE_S)
                self._abort_others(cluster)

    def _abort_others(self, cluster: Cluster) -> None:
        """Aborts what attempts left open that Spark does not count, or has killed."""
        timeout_ms = self._options.settings.transaction_timeout_ms
        with suppress(KafkaliteError):
            for name in open_ids(cluster, self._ids):
                with suppress(KafkaliteError):  # the task itself may be ending it
                    Transaction(cluster, name, timeout_ms).begin()


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query."""

    def __init__(self, options: WriteOptions) -> None:
        tell(options.warnings)
        self._options = options

    def write(self, iterator: "Batches") -> WriterCommitMessage:
        """In a task. Raises `KafkaliteError`."""
        prefix = self._options.transactional_id_prefix
        if prefix is None:
            return _write(self._options, iterator)
        task = _task()
        query_id, batch_id = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query_id is None or batch_id is None:
            raise KafkaliteError("transactional=true: Spark does not say which micro-batch this is")
        name = f"{prefix}-{query_id}-{task.partitionId()}"
        return _write(self._options, iterator, name, int(batch_id))

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: ARG002, N803
        """On the driver, once every task of a micro-batch is done."""
        transactions = _transactions(messages)
        if transactions:
            with _cluster(self._options) as cluster:
                _commit(cluster, transactions)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: ARG002, N803
        """On the driver, after a task or the commit has failed."""
        transactions = _transactions(messages)
        if transactions:
            with suppress(KafkaliteError), _cluster(self._options) as cluster:
                _abort(cluster, transactions)


def _write(
    options: WriteOptions,
    batches: "Batches",
    transactional_id: str | None = None,
    batch_id: int | None = None,
) -> TaskWritten:
    """Sends what a task has; with a transactional id as a transaction that stays open."""
    settle_for_rows()
    full = (batch for batch in batches if batch.num_rows)
    first = next(full, None)
    if first is None:
        return TaskWritten()
    settings = replace(options.settings, transactional_id=transactional_id)
    writer = ArrowWriter(options.bootstrap_servers, options.topic, settings)
    with writer:
        try:
            if batch_id is not None and transactional_id is not None:
                progress = read_progress(writer.cluster, transactional_id)
                if progress > batch_id:
                    for _ in full:
                        pass
                    return TaskWritten()
            writer.write(first)
            for batch in full:
                writer.write(batch)
            written = writer.flush()
            transaction = writer.transaction
            if transaction is not None and batch_id is not None:
                topic = written.partitions[0].topic
                transaction.note_progress(transaction.transactional_id, topic, batch_id + 1)
        except BaseException:
            with suppress(KafkaliteError):
                writer.end(commit=False)
            raise
    handle = None if transaction is None else transaction.handle
    return TaskWritten(written.records_count, handle)


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise KafkaliteError("transactional=true: this is no task of Spark's")
    return task


def _cluster(options: WriteOptions) -> Cluster:
    settings = options.settings
    return Cluster(
        options.bootstrap_servers,
        client_id=settings.client_id,
        request_timeout_ms=settings.request_timeout_ms,
    )


def _transactions(messages: Messages) -> list[OpenTransaction]:
    written = [message for message in messages if isinstance(message, TaskWritten)]
    return [message.transaction for message in written if message.transaction is not None]


def _commit(cluster: Cluster, transactions: Sequence[OpenTransaction]) -> None:
    for done, each in enumerate(transactions):
        try:
            end(cluster, each, commit=True)
        except KafkaliteError as error:
            raise KafkaliteError(
                f"{done} of {len(transactions)} transactions were committed, then: {error}"
            ) from error


def _abort(cluster: Cluster, transactions: Sequence[OpenTransaction]) -> None:
    for each in transactions:
        with suppress(KafkaliteError):
            end(cluster, each, commit=False)
