"""A stream's micro-batch is committed as a whole or not at all, whoever dies in its commit, and
whichever task has which rows when it is replayed."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from kafkalite import Broker
from kafkalite.client.arrow.writer import ArrowWriter
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.producer.settings import ProducerSettings
from kafkalite.client.producer.transactions import (
    Fate,
    OpenTransaction,
    Transaction,
    end,
    fates,
    open_ids,
)
from kafkalite.errors import KafkaliteError
from kafkalite.spark import commit_note, sink
from kafkalite.spark.commit_note import CommitNote
from kafkalite.spark.options.write import WriteOptions
from oracle.broker import KafkaBroker
from oracle.tools import Record
from spark.half_committed import FILE, start_copying
from spark.records import START_MS, create, send
from spark.test_kill import START_S, Query
from spark.test_writing import values

pytestmark = pytest.mark.oracle

PARTITIONS, ROWS, TIMEOUT_MS = 2, 500, 600_000


@pytest.fixture(params=["kafkalite", "kafka"])
def servers(request: pytest.FixtureRequest) -> str:
    """Either broker's."""
    running: Broker | KafkaBroker = request.getfixturevalue(
        {"kafkalite": "broker", "kafka": "kafka"}[request.param]
    )
    return running.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"noted-{uuid.uuid4().hex[:8]}"
    create(servers, name, PARTITIONS)
    return name


def test_rows_that_move_to_other_tasks_in_a_replay_are_there_once(
    spark: SparkSession,
    servers: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each task noted for itself that the micro-batch was committed. Where the driver died amid the
    commits, and Spark's own Kafka connector then planned its tasks in another order, the task that
    had been committed left out the rows of another, and that one wrote again what was there."""
    source, halted = f"{topic}-source", tmp_path / "halted"
    create(servers, source, PARTITIONS)
    rows = [
        Record(source, b"%d" % number, partition=number % PARTITIONS, timestamp=START_MS + number)
        for number in range(ROWS)
    ]
    send(servers, rows)
    monkeypatch.setenv(FILE, str(halted))
    with Query(tmp_path, servers, source, topic, program="spark.half_committed") as query:
        deadline = time.monotonic() + START_S
        while not halted.exists():
            assert time.monotonic() < deadline, "no task was committed"
            time.sleep(0.05)  # between two polls
        query.kill_after(0)
    start_copying(spark, "kafkalite", tmp_path, servers, source, topic, 1).awaitTermination()
    assert values(servers, topic, committed=True) == sorted(map(str, range(ROWS)))


def test_a_checkpoint_that_lost_its_last_micro_batch_is_told_where_that_has_other_rows_now(
    spark: SparkSession, servers: str, topic: str, tmp_path: Path
) -> None:
    """As a power cut leaves it, or a backup that is one micro-batch old. The number was that of the
    last micro-batch in the topic, so that all rows that had come since were passed over."""
    source = f"{topic}-source"
    create(servers, source, PARTITIONS)

    def send_and_copy(numbers: range) -> None:
        send(servers, [Record(source, b"%d" % each, timestamp=START_MS) for each in numbers])
        query = start_copying(spark, "kafkalite", tmp_path, servers, source, topic, 0)
        query.awaitTermination()

    send_and_copy(range(10))
    send_and_copy(range(10, 20))
    checkpoint = tmp_path / "checkpoint"
    for kind in ("offsets", "commits"):
        assert {each.name for each in (checkpoint / kind).glob("[0-9]*")} == {"0", "1"}
        for name in ("1", ".1.crc"):
            (checkpoint / kind / name).unlink()
    with pytest.raises(
        StreamingQueryException,
        match=r"micro-batch 1 of this query is in the topic with 10 rows, and comes with 15 now: ",
    ):
        send_and_copy(range(20, 25))
    assert values(servers, topic, committed=True) == sorted(map(str, range(20)))


class Attempt(NamedTuple):
    """One at a task of micro-batch 0, as the writer sees it."""

    number: int
    query_id: str

    def partitionId(self) -> int:  # noqa: N802
        return 0

    def taskAttemptId(self) -> int:  # noqa: N802
        return sink.STAGE_ATTEMPTS * self.number

    def attemptNumber(self) -> int:  # noqa: N802
        return self.number

    def getLocalProperty(self, name: str) -> str:  # noqa: N802
        return {sink.QUERY_ID: self.query_id, sink.BATCH_ID: "0"}[name]


def write_options(servers: str, topic: str) -> WriteOptions:
    told = {"kafka.bootstrap.servers": servers, "topic": topic, "transactional": "true"}
    return WriteOptions.of(told, StructType([StructField("value", StringType())]))


def written_twice(
    writer: sink.StreamWriter | sink.BatchWriter, monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """The messages of two attempts at a task, each of which has written a row."""
    query_id, messages = str(uuid.uuid4()), []
    for number in range(2):
        monkeypatch.setattr(sink, "_task", lambda number=number: Attempt(number, query_id))
        rows = pyarrow.record_batch({"value": [f"of attempt {number}"]})
        messages.append(writer.write(iter([rows])))
    return messages


def test_of_two_attempts_at_a_task_that_run_side_by_side_one_is_committed(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `spark.speculation` the second attempt fenced the first, which was done, and the query
    failed."""
    writer = sink.StreamWriter(write_options(servers, topic))
    messages = written_twice(writer, monkeypatch)
    writer.commit(messages[:1], 0)
    assert values(servers, topic, committed=True) == ["of attempt 0"]
    with Cluster(servers) as cluster:
        assert list(open_ids(cluster, f"{messages[0].id_prefix}-")) == []


def test_a_save_of_foreachbatch_leaves_nothing_open_of_attempts_that_do_not_count(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of committed records waited for what an executor that died had left open."""
    writer = sink.BatchWriter(write_options(servers, topic))
    messages = written_twice(writer, monkeypatch)
    writer.commit(messages[1:])
    assert values(servers, topic, committed=True) == ["of attempt 1"]
    with Cluster(servers) as cluster:
        assert list(open_ids(cluster, f"{messages[0].id_prefix}-")) == []


@pytest.mark.parametrize("is_save", [True, False])
def test_what_killed_tasks_leave_open_is_aborted_where_no_task_was_done(
    spark: SparkSession, broker: Broker, tmp_path: Path, is_save: bool
) -> None:
    """Only tasks that were done told the driver by which ids, in a save of `foreachBatch` and in a
    stream whose checkpoint Python did not know. Readers waited for fifteen minutes."""
    servers, name = broker.bootstrap_servers, f"killed-{uuid.uuid4().hex[:8]}"
    for each in (name, f"{name}-source"):
        create(servers, each, PARTITIONS)
    send(servers, [Record(f"{name}-source", b"", partition=each) for each in range(PARTITIONS)])

    def rows(_batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        while task.partitionId() == 0:  # until it is killed
            yield pyarrow.record_batch({"value": ["x" * 1_000] * 100})
        with Cluster(servers) as cluster:
            while not open_ids(cluster, f"{name}-"):
                time.sleep(0.05)  # between two polls
        raise RuntimeError("the other task has begun its transaction")

    target = {
        "kafka.bootstrap.servers": servers,
        "topic": name,
        "kafka.transactional.id": name,
        "kafka.batch.size": "20000",
    }

    def save(batch: DataFrame, _number: int) -> None:
        written = batch.mapInArrow(rows, "value string").write
        written.format("kafkalite").mode("append").options(**target).save()

    source = {
        "kafka.bootstrap.servers": servers,
        "subscribe": f"{name}-source",
        "startingOffsets": "earliest",
    }
    arriving = spark.readStream.format("kafkalite").options(**source).load()
    if is_save:
        writer = arriving.writeStream.foreachBatch(save)
    else:
        written = arriving.mapInArrow(rows, "value string")
        writer = written.writeStream.format("kafkalite").options(**target)
    settings = {
        "spark.sql.streaming.checkpointLocation": str(tmp_path),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        with pytest.raises(StreamingQueryException, match="has begun its transaction"):
            writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        for key in settings:
            spark.conf.unset(key)
    with Cluster(servers) as cluster:
        assert list(open_ids(cluster, f"{name}-")) == []


# --- without Spark --------------------------------------------------------------------------------


@pytest.fixture
def name() -> str:
    """That of a query."""
    return f"notes-{uuid.uuid4()}"


class DiedError(Exception):
    """In place of a driver's death."""


def dies(*_: object, **__: object) -> None:
    raise DiedError


@contextmanager
def dying_after(ended: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A driver that dies once it has ended so many transactions."""
    left = iter([end] * ended)
    with monkeypatch.context() as patched, pytest.raises(DiedError):
        patched.setattr(commit_note, "end", lambda *args, **named: next(left, dies)(*args, **named))
        yield


def prepared(
    servers: str, topic: str, name: str, tasks: int = 3, attempt: str = "-0"
) -> list[OpenTransaction]:
    """Transactions of tasks that have written a row each."""
    found = []
    for task in range(tasks):
        settings = ProducerSettings.of({"transactional.id": f"{name}-{task}{attempt}"})
        with ArrowWriter(servers, topic, settings) as writer:
            writer.write(pyarrow.table({"value": [str(task)]}))
            writer.flush()
            assert writer.transaction is not None
            found.append(writer.transaction.handle)
    return found


def rows_of(tasks: int) -> list[str]:
    return [str(task) for task in range(tasks)]


@pytest.mark.parametrize("ended", [0, 1, 3])
def test_what_a_driver_has_noted_is_committed_by_who_looks_next(
    servers: str, topic: str, name: str, monkeypatch: pytest.MonkeyPatch, ended: int
) -> None:
    with Cluster(servers) as cluster:
        transactions = prepared(servers, topic, name)
        note = CommitNote(cluster, name, TIMEOUT_MS)
        with dying_after(ended, monkeypatch):
            note.commit(7, topic, transactions, 3)
            dies()
        assert not note.is_committed(8)
        assert note.is_committed(7)
        assert note.is_committed(7), "it is the same for all tasks"
        with pytest.raises(
            KafkaliteError, match=r"micro-batch 6 comes now: .* restored, or a copy"
        ):
            note.is_committed(6)
    assert values(servers, topic, committed=True) == rows_of(3)


def test_a_driver_that_dies_before_it_has_decided_leaves_the_micro_batch_to_the_next(
    servers: str, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(servers) as cluster:
        with monkeypatch.context() as patched, pytest.raises(DiedError):
            patched.setattr(Transaction, "end", dies)
            first = prepared(servers, topic, name)
            CommitNote(cluster, name, TIMEOUT_MS).commit(7, topic, first, 3)
        note = CommitNote(cluster, name, TIMEOUT_MS)
        assert not note.is_committed(7)
        note.commit(7, topic, prepared(servers, topic, name, tasks=2), 2)
        assert note.is_committed(7)
        # As the driver does with what is open.
        Transaction(cluster, f"{name}-2-0", TIMEOUT_MS).begin()
    assert values(servers, topic, committed=True) == rows_of(2)


def test_a_micro_batch_of_which_all_was_aborted_in_time_is_written_anew(
    servers: str, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(servers) as cluster:
        first = prepared(servers, topic, name)
        note = CommitNote(cluster, name, TIMEOUT_MS)
        with dying_after(0, monkeypatch):
            note.commit(7, topic, first, 3)
        for each in first[:2]:  # fenced, as by a coordinator when their time is over
            Transaction(cluster, each.transactional_id, TIMEOUT_MS).begin()
        assert not note.is_committed(7)
        assert not note.is_committed(7), "the third was open and is aborted, too"
        note.commit(7, topic, prepared(servers, topic, name), 3)
        assert note.is_committed(7)
    assert values(servers, topic, committed=True) == rows_of(3)


def test_a_micro_batch_that_is_there_in_part_is_told_with_the_remedy(
    servers: str, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(servers) as cluster:
        first = prepared(servers, topic, name)
        note = CommitNote(cluster, name, TIMEOUT_MS)
        with dying_after(1, monkeypatch):
            note.commit(7, topic, first, 3)
        Transaction(cluster, first[2].transactional_id, TIMEOUT_MS).begin()
        sentence = (
            r"^micro-batch 7 is in the topic in part: the transactions of tasks 0 were committed, "
            r"those of tasks 2 were aborted, .*kafka\.transaction\.timeout\.ms; .*: "
            rf"kafkalite groups delete {name}$"
        )
        for _ in range(2):
            with pytest.raises(KafkaliteError, match=sentence):
                note.is_committed(7)
        GroupAdmin(cluster).delete(name)
        assert not note.is_committed(7)
        note.commit(7, topic, prepared(servers, topic, name), 3)
    assert values(servers, topic, committed=True) == sorted([*rows_of(3), "0"])


def test_a_micro_batch_whose_transactions_are_forgotten_is_not_written_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had been taken for one that was aborted."""
    expiration = {
        "transactional.id.expiration.ms": "500",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    }
    with Broker(config=expiration) as broker, Cluster(broker.bootstrap_servers) as cluster:
        create(broker.bootstrap_servers, "forgotten", PARTITIONS)
        note = CommitNote(cluster, name, TIMEOUT_MS)
        first = prepared(broker.bootstrap_servers, "forgotten", name)
        with dying_after(3, monkeypatch):
            note.commit(7, "forgotten", first, 3)
            dies()
        until = time.monotonic() + START_S
        while set(fates(cluster, first)) != {Fate.FORGOTTEN}:
            assert time.monotonic() < until
            time.sleep(0.1)  # between two polls
        with pytest.raises(
            KafkaliteError, match=r"transactional\.id\.expiration\.ms ago, .* twice"
        ):
            note.is_committed(7)
        assert not note.is_committed(8)


def test_nothing_is_committed_where_the_time_of_a_transaction_was_over_before(
    servers: str, topic: str, name: str
) -> None:
    with Cluster(servers) as cluster:
        transactions = prepared(servers, topic, name)
        Transaction(cluster, f"{name}-1-0", TIMEOUT_MS).begin()
        note = CommitNote(cluster, name, TIMEOUT_MS)
        with pytest.raises(
            KafkaliteError, match=f"nothing of micro-batch 7 .* of '{name}-1-0' was"
        ):
            note.commit(7, topic, transactions, 3)
        assert not note.is_committed(7)
        note.commit(7, topic, prepared(servers, topic, name), 3)
    assert values(servers, topic, committed=True) == rows_of(3)


def test_a_note_of_many_tasks_takes_several_partitions(
    servers: str, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [
        OpenTransaction(f"{name}-{task}-{task % 61}", 3 * task, task % 9) for task in range(3_000)
    ]
    many, few = handles[:900], handles[:3]
    monkeypatch.setattr(commit_note, "end", lambda *_, **__: None)
    monkeypatch.setattr(commit_note, "fates", lambda _, each: [Fate.OPEN] * len(each))
    with Cluster(servers) as cluster:
        note = CommitNote(cluster, name, TIMEOUT_MS)
        note.commit(7, topic, many, 5)
        assert note._read() == (7, many, 5, 0)
        note.commit(8, topic, few, 0)
        assert note._read() == (8, few, 0, 0)
        with pytest.raises(KafkaliteError, match=r"the 2 partitions of .*: write by fewer tasks"):
            note.commit(9, topic, handles, 3)
        assert note._read() == (8, few, 0, 0)


@pytest.mark.parametrize("is_other_topic", [False, True])
def test_a_note_that_is_written_anew_is_not_read_with_what_is_left_of_the_former(
    servers: str, topic: str, name: str, monkeypatch: pytest.MonkeyPatch, is_other_topic: bool
) -> None:
    """A driver was down amid its commit until all of its transactions were aborted, and fewer tasks
    wrote the micro-batch again. The second chunk of the first note remained behind the only one of
    the second, the query failed at each start, and said that its group was not its own; behind
    one in another topic the first note counted, and the micro-batch was written once more."""
    again = topic
    if is_other_topic:
        again = f"z{topic}"
        create(servers, again, PARTITIONS)
    written: list[OpenTransaction] = []
    monkeypatch.setattr(commit_note, "end", lambda *_, **__: None)
    monkeypatch.setattr(
        commit_note, "fates", lambda _, of: [Fate.OPEN if of == written else Fate.ABORTED] * len(of)
    )
    with Cluster(servers) as cluster:
        note = CommitNote(cluster, name, TIMEOUT_MS)
        for rewrites, tasks in enumerate([900, 4, 3, 900]):
            written = [
                OpenTransaction(f"{name}-{task}-{rewrites}", 3 * task, 0) for task in range(tasks)
            ]
            note.commit(7, again if rewrites % 2 else topic, written, tasks)
            assert note._read() == (7, written, tasks, rewrites)
        written = written[:2]
        note.commit(8, topic, written, 2)
        assert note._read() == (8, written, 2, 0)


def test_a_micro_batch_that_comes_with_more_rows_than_it_had_is_told(
    servers: str, topic: str, name: str
) -> None:
    """It may come with fewer: compaction took records from its topics before it was repeated."""
    sentence = r"^micro-batch 7 .* with 3 rows, and comes with 4 now: the checkpoint is an old one"
    with Cluster(servers) as cluster:
        note = CommitNote(cluster, name, TIMEOUT_MS)
        note.commit(7, topic, prepared(servers, topic, name), 3)
        assert note.settles(7, 3)
        assert note.settles(7, 2)
        with pytest.raises(KafkaliteError, match=sentence):
            note.settles(7, 4)
        with pytest.raises(KafkaliteError, match=sentence):
            note.commit(7, topic, prepared(servers, topic, name, 4, "-1"), 4)
        assert not open_ids(cluster, name), "what has come is aborted"
    assert values(servers, topic, committed=True) == rows_of(3)


def test_a_second_attempt_of_a_task_leaves_what_the_first_has_committed(
    servers: str, topic: str, name: str
) -> None:
    """Spark runs two at once where it takes an executor for dead that is not, or a stage again. The
    second had the id of the first, so that a micro-batch that was committed was taken for aborted,
    and was written twice, or was in the topic in part."""
    with Cluster(servers) as cluster:
        note = CommitNote(cluster, name, TIMEOUT_MS)
        first = prepared(servers, topic, name)
        second = prepared(servers, topic, name, 1, attempt="-1")
        note.commit(7, topic, first, 3)
        prepared(servers, topic, name, attempt="-2")
        assert note.is_committed(7)
        assert open_ids(cluster, f"{name}-") == sorted(
            [second[0].transactional_id, *(f"{name}-{task}-2" for task in range(3))]
        )


def test_an_attempt_that_looks_for_a_note_leaves_the_driver_alone_that_is_writing_it(
    servers: str, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began a transaction of the driver's id, and the driver's commit failed."""
    decide = Transaction.end
    with Cluster(servers) as cluster:
        note = CommitNote(cluster, name, TIMEOUT_MS)
        note.commit(6, topic, prepared(servers, topic, name, 1), 1)

        def look_first(transaction: Transaction, *, commit: bool) -> None:
            if transaction.transactional_id == name:
                with Cluster(servers) as another:
                    assert not CommitNote(another, name, TIMEOUT_MS).is_committed(7)
            decide(transaction, commit=commit)

        monkeypatch.setattr(Transaction, "end", look_first)
        note.commit(7, topic, prepared(servers, topic, name, 2), 2)
        assert note.is_committed(7)
    assert values(servers, topic, committed=True) == ["0", "0", "1"]


def test_offsets_of_somebody_else_in_the_querys_group_are_told(
    servers: str, topic: str, name: str
) -> None:
    with Cluster(servers) as cluster:
        GroupAdmin(cluster).alter(name, {(topic, 0): 12})
        with pytest.raises(KafkaliteError, match="offsets that are no note of a micro-batch"):
            CommitNote(cluster, name, TIMEOUT_MS).is_committed(3)


@pytest.mark.parametrize("chunks", [["1/2:AAAA"], ["who/knows:AAAA"], ["1/1:AAAA", "1/1:AAAA"]])
def test_chunks_that_are_no_whole_note_are_refused(chunks: list[str]) -> None:
    with pytest.raises(KafkaliteError, match="offsets that are no note of a micro-batch"):
        commit_note.joined("orders", chunks)
