"""Writing: each Spark task sends its rows as batches that Rust makes of Spark's Arrow batches.

    plain            at least once, as the connector: a task that is tried again writes again
    transactional    a task's rows are one transaction, which it leaves open; the driver commits
                     those of all tasks when the last is done, or aborts them

    driver     writer ──────────────────────────────────────────► commit: EndTxn for each message
    task         └► InitProducerId ► AddPartitions ► Produce … ► message: id, producer id, epoch

A batch query gives each attempt of a task a transactional id of its own, so that of two attempts
of one task only the one that Spark counts is committed; the driver aborts what the others left
open, for as long as tasks that Spark has killed may go on. It commits nothing unless every
transaction is still open. In `foreachBatch` the ids are `<prefix>-<query id>-b-<task>-<attempt>`,
again and again, since a stream goes on for months and brokers keep each id for a week. Saves that
run side by side in one micro-batch need prefixes of their own: each aborts what others of its ids
left open.

A stream's ids are `<prefix>-<query id>-<task>-<attempt>`, again and again as well. Attempts that
run at once have different ones, save for one in `STAGE_ATTEMPTS` of those of a stage that Spark
runs again: of these the later fences the earlier. What killed attempts and earlier runs left open,
the driver aborts when it has committed a micro-batch. Before it commits the first transaction, it
notes all of them (`commit_note.py`): a task of a replayed micro-batch that finds the note has it
carried out, and writes nothing. So each row is there once, whatever the source gives to which task.
"""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kafkalite.client.arrow.writer import ArrowWriter
from kafkalite.client.network.cluster import TIMEOUT_MS, Cluster
from kafkalite.client.producer.transactions import (
    OpenTransaction,
    Transaction,
    open_ids,
)
from kafkalite.errors import KafkaliteError
from kafkalite.spark.commit_note import CommitNote, abort_all, check_open, commit_all
from kafkalite.spark.options.write import WriteOptions
from kafkalite.spark.sentence import log_warnings
from kafkalite.spark.workers import freeze_imports, prepare_for_rows

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
STAGE_ATTEMPTS, TASK_ATTEMPTS = 61, 8
"""A task of a stream uses their product, 488, as ids in turn. Spark numbers the attempts of all
tasks consecutively: modulo a prime, those of a stage that it runs again mostly have other ids.
Attempts at a task within one run of its stage, as of speculation, differ by their own number."""
ABORT_PAUSE_S: Final = 0.25
"""Between two looks at what such tasks have begun."""


@dataclass
class TaskWritten(WriterCommitMessage):
    """The message of a task to the driver."""

    records_count: int = 0
    """Records that it has written, or passed over, since its micro-batch is committed."""
    transaction: OpenTransaction | None = None
    topic: str | None = None
    """One that it has written to."""
    id_prefix: str | None = None
    """That of its micro-batch, if it has one and transactions are wanted."""


Messages = Sequence[WriterCommitMessage | None]


class MicroBatch(NamedTuple):
    """The place of a task of a stream that writes transactions."""

    id_prefix: str
    """The transactional ids of the query begin with it; it is the name of its `CommitNote`."""
    batch_id: int | None
    """None in `foreachBatch`, of which nothing is noted."""


class BatchWriter(DataSourceArrowWriter):
    """The writer of a batch query."""

    def __init__(self, options: WriteOptions) -> None:
        log_warnings(options.warnings)
        self._options = options
        self._ids = f"{options.transactional_id_prefix}-{uuid.uuid4().hex}-"

    def write(self, iterator: "Batches") -> WriterCommitMessage:
        """In a task. Raises `KafkaliteError`."""
        if self._options.transactional_id_prefix is None:
            return _write(self._options, iterator)
        task = _task()
        query_id = task.getLocalProperty(QUERY_ID)
        if query_id is None:
            name = f"{self._ids}{task.partitionId()}-{task.taskAttemptId()}"
            return _write(self._options, iterator, name)
        id_prefix = _id_prefix_of_save(self._options, query_id)
        return _write(self._options, iterator, _id(id_prefix, task), MicroBatch(id_prefix, None))

    def commit(self, messages: Messages) -> None:
        """On the driver, once every task is done."""
        freeze_imports()
        transactions = _transactions(messages)
        if not transactions:
            return
        with _cluster(self._options) as cluster:
            timeout_ms = self._options.settings.transaction_timeout_ms
            check_open(cluster, transactions, timeout_ms, "nothing")
            commit_all(cluster, transactions)
            _abort_open(self._options, cluster, self._own_ids(messages))

    def abort(self, messages: Messages) -> None:
        """On the driver, after a task or the commit has failed."""
        if self._options.transactional_id_prefix is None:
            return
        with suppress(KafkaliteError), _cluster(self._options) as cluster:
            abort_all(cluster, _transactions(messages))
            _abort_late(self._options, cluster, self._own_ids(messages))

    def _own_ids(self, messages: Messages) -> str:
        """How the transactional ids of its tasks begin."""
        id_prefix, query_id = _id_prefix(messages), self._options.query_id
        if id_prefix is None and query_id is not None:  # before any task is done
            id_prefix = _id_prefix_of_save(self._options, query_id)
        return self._ids if id_prefix is None else f"{id_prefix}-"


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query."""

    def __init__(self, options: WriteOptions) -> None:
        log_warnings(options.warnings)
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
        micro_batch = MicroBatch(f"{prefix}-{query_id}", int(batch_id))
        return _write(self._options, iterator, _id(micro_batch.id_prefix, task), micro_batch)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """On the driver, once every task of a micro-batch is done."""
        freeze_imports()
        id_prefix = _id_prefix(messages)
        if id_prefix is None:
            return
        transactions = _transactions(messages)
        with _cluster(self._options) as cluster:
            note = _note(cluster, self._options, id_prefix)
            rows = sum(each.records_count for each in _written(messages))
            if not transactions:
                if note.settles(batchId, rows):  # as a replay finds it
                    _abort_open(self._options, cluster, f"{id_prefix}-")
                return
            topic = next(each.topic for each in _written(messages) if each.topic is not None)
            note.commit(batchId, topic, transactions, rows)
            _abort_open(self._options, cluster, f"{id_prefix}-")

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """On the driver, after a task or the commit has failed: the latter may have been decided,
        and is then carried out."""
        id_prefix, transactions = _id_prefix(messages), _transactions(messages)
        id_prefix = id_prefix or _id_prefix_on_driver(self._options)  # before any task is done
        if id_prefix is None:
            return
        with suppress(KafkaliteError), _cluster(self._options) as cluster:
            if not _note(cluster, self._options, id_prefix).settles(batchId):
                abort_all(cluster, transactions)
                _abort_late(self._options, cluster, f"{id_prefix}-")


def _write(
    options: WriteOptions,
    batches: "Batches",
    transactional_id: str | None = None,
    micro_batch: MicroBatch | None = None,
) -> TaskWritten:
    """Sends what a task has; with a transactional id as a transaction that stays open, unless that
    of the micro-batch has been committed."""
    prepare_for_rows()
    id_prefix = None if micro_batch is None else micro_batch.id_prefix
    full = (batch for batch in batches if batch.num_rows)
    first = next(full, None)
    if first is None:
        return TaskWritten(id_prefix=id_prefix)
    settings = replace(options.settings, transactional_id=transactional_id)
    with _cluster(options) as cluster:
        if micro_batch is not None and micro_batch.batch_id is not None:
            note = _note(cluster, options, micro_batch.id_prefix)
            if note.is_committed(micro_batch.batch_id):
                passed_over = sum((batch.num_rows for batch in full), first.num_rows)
                return TaskWritten(passed_over, id_prefix=id_prefix)
        with ArrowWriter(cluster, options.topic, settings) as writer:
            try:
                writer.write(first)
                for batch in full:
                    writer.write(batch)
                written = writer.flush()
            except BaseException:
                with suppress(KafkaliteError):
                    writer.end(commit=False)
                raise
    handle = None if writer.transaction is None else writer.transaction.handle
    return TaskWritten(written.records_count, handle, written.partitions[0].topic, id_prefix)


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise KafkaliteError("transactional=true: this is no task of Spark's")
    return task


def _id(id_prefix: str, task: TaskContext) -> str:
    """The transactional id of an attempt of a stream's task."""
    attempt = task.taskAttemptId() % STAGE_ATTEMPTS * TASK_ATTEMPTS
    attempt += task.attemptNumber() % TASK_ATTEMPTS
    return f"{id_prefix}-{task.partitionId()}-{attempt}"


def _cluster(options: WriteOptions) -> Cluster:
    settings = options.settings
    return Cluster(
        options.bootstrap_servers,
        client_id=settings.client_id,
        timeout_ms=min(TIMEOUT_MS, settings.delivery_timeout_ms),
        request_timeout_ms=settings.request_timeout_ms,
    )


def _note(cluster: Cluster, options: WriteOptions, id_prefix: str) -> CommitNote:
    return CommitNote(cluster, id_prefix, options.settings.transaction_timeout_ms)


def _written(messages: Messages) -> list[TaskWritten]:
    return [message for message in messages if isinstance(message, TaskWritten)]


def _id_prefix(messages: Messages) -> str | None:
    return next((each.id_prefix for each in _written(messages) if each.id_prefix is not None), None)


def _id_prefix_of_save(options: WriteOptions, query_id: str) -> str:
    """Of a query in whose `foreachBatch` rows are saved: its own transactions have another."""
    return f"{options.transactional_id_prefix}-{query_id}-b"


def _id_prefix_on_driver(options: WriteOptions) -> str | None:
    """Of a stream whose query the driver learns from the columnar engine, or finds in its
    checkpoint, if that is an option, and on a disk of this machine."""
    prefix, query_id = options.transactional_id_prefix, options.query_id
    if prefix is None:
        return None
    if query_id is None and options.checkpoint is not None:
        folder = options.checkpoint.removeprefix("file://").removeprefix("file:")
        try:
            told = json.loads(Path(folder, "metadata").read_text())
        except (OSError, ValueError):
            return None
        query_id = told.get("id") if isinstance(told, dict) else None
    return f"{prefix}-{query_id}" if isinstance(query_id, str) else None


def _transactions(messages: Messages) -> list[OpenTransaction]:
    found = (message.transaction for message in _written(messages))
    return [each for each in found if each is not None]


def _abort_late(options: WriteOptions, cluster: Cluster, prefix: str) -> None:
    """See `_abort_open`. Spark does not wait for the tasks that it kills: one that began its
    transaction after a single look would leave it open, and readers waiting, for
    `kafka.transaction.timeout.ms`."""
    until = time.monotonic() + KILLED_TASKS_GO_ON_S
    _abort_open(options, cluster, prefix)
    while time.monotonic() < until:
        time.sleep(ABORT_PAUSE_S)
        _abort_open(options, cluster, prefix)


def _abort_open(options: WriteOptions, cluster: Cluster, prefix: str) -> None:
    """Aborts what is open of ids that begin with the prefix: of attempts that Spark does not count,
    or has killed, and of tasks that a micro-batch no longer has."""
    with suppress(KafkaliteError):
        for name in open_ids(cluster, prefix):
            with suppress(KafkaliteError):  # the task itself may be ending it
                Transaction(cluster, name, options.settings.transaction_timeout_ms).begin()
