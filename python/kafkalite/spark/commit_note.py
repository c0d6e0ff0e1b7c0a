"""The note that decides a stream's micro-batch: it names all transactions before the first ends.

    driver    all tasks are done ──► note: micro-batch 7 is these transactions ──► EndTxn, EndTxn, …
    replay    a task, before it writes: is there a note of micro-batch 7?
                no     write it anew; the driver looks again before it decides
                yes    end its transactions as the note says, write nothing

A replayed micro-batch may give its rows to other tasks than before, where its source plans them in
another order: so it is committed as a whole or not at all, whichever task had which rows. The note
is the offset of a consumer group, whose number is the micro-batch's and whose metadata names the
transactions. It is written in a transaction of its own. Group and transactional id are both
`<prefix>-<query id>`; the tasks' ids add `-<number of the task>-<its attempt>`.

Spark may run two attempts of a task at once, also one of a driver that is still committing: so an
attempt that looks for a note fences nobody and begins under an id of its own. A driver that dies
while it writes a note leaves that transaction open; the next driver aborts it before it decides. A
transaction that a note names may have timed out before anybody ended it (`_finish`). If all of them
have, the micro-batch is written again. If some were committed, the query fails and the error says
what to do, since only a user can decide it.

A long note is several offsets, its chunks, all of them written in one transaction. One that is
written anew for the same micro-batch may have fewer, or those of another topic, and leaves some of
the former beside it. So its chunks begin with `<how many times it was written anew>/<chunks>:`, and
those of the last writing are the note. A note that was written once has no such head.
"""

import base64
import json
import re
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from kafkalite.client.consumer.group_options import GroupMetadata
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.producer.transactions import (
    Fate,
    OpenTransaction,
    Transaction,
    end,
    fates,
    is_open,
    is_under_way,
    read_offsets,
)
from kafkalite.errors import KafkaliteError

__all__ = ["CommitNote", "abort_all", "check_open", "commit_all"]

METADATA_CHARS = 4_096
"""An offset has so many at most: `offset.metadata.max.bytes`, as brokers have it by default."""
HEAD_CHARS = 16
"""The share of them for how a chunk begins whose note is written anew."""
NOTE_BYTES_MAX = 16 << 20
"""An inflated note has so many at most: that of a hundred thousand tasks has two million."""


class _Note(NamedTuple):
    batch_id: int
    transactions: list[OpenTransaction]
    rows: int
    """The number that the micro-batch has."""
    rewrites: int = 0
    """How many times it was written anew."""


class CommitNote:
    """The notes of one streaming query."""

    def __init__(self, cluster: Cluster, name: str, timeout_ms: int) -> None:
        """`name` is the consumer group and the transactional id; `timeout_ms` that of transactions.
        Asks nobody yet."""
        self._cluster = cluster
        self._name = name
        self._timeout_ms = timeout_ms

    def is_committed(self, batch_id: int) -> bool:
        """Says in a task whether a micro-batch is in the topic, and ends what a note has left to be
        ended. False: nothing of it is, unless another driver is about to commit it.

        Raises `KafkaliteError` where it is there in part, or a later one is.
        """
        note = self._read()
        return note is not None and self._settles(note, batch_id, None)

    def settles(self, batch_id: int, rows: int | None = None) -> bool:
        """Says the same on the driver. False: nothing of it is, and only `commit` can change that.
        `rows` are those that it has now, where they are known.

        Raises `KafkaliteError`, also where it is there with fewer rows.
        """
        if is_under_way(self._cluster, self._name):
            # Of a driver that is no more: aborts it, or waits until what it has decided is done.
            Transaction(self._cluster, self._name, self._timeout_ms).begin()
        note = self._read()
        return note is not None and self._settles(note, batch_id, rows)

    def commit(
        self, batch_id: int, topic: str, transactions: Sequence[OpenTransaction], rows: int
    ) -> None:
        """Commits a micro-batch: all of the transactions, or none of them. `topic` is one that they
        write to, `rows` how many all tasks have. May raise when it has been decided: `settles`
        says that.

        Raises `KafkaliteError`.
        """
        deciding = Transaction(self._cluster, self._name, self._timeout_ms)
        deciding.begin()
        note = self._read()
        if note is not None and self._settles(note, batch_id, None):
            abort_all(self._cluster, transactions)  # of another run of the same micro-batch
            self._settles(note, batch_id, rows)
            return
        nothing = f"nothing of micro-batch {batch_id}"
        check_open(self._cluster, transactions, self._timeout_ms, nothing)
        rewrites = note.rewrites + 1 if note is not None and note.batch_id == batch_id else 0
        found = self._chunks(topic, packed(self._name, transactions, rows), rewrites)
        chunks = {(topic, at): chunk for at, chunk in enumerate(found)}
        offsets = dict.fromkeys(chunks, (batch_id, -1))
        deciding.commit_offsets(GroupMetadata(self._name), offsets, chunks)
        deciding.end(commit=True)
        commit_all(self._cluster, transactions)

    def _settles(self, note: _Note, batch_id: int, rows: int | None) -> bool:
        """True if the micro-batch is committed, by now. Spark has noted it as done before there
        can be a note of a later one: who asks for it then has gone back, and his micro-batch of
        this number may have other records. So may the last one, where more rows show it."""
        if note.batch_id > batch_id:
            raise self._other_checkpoint(
                f"micro-batch {note.batch_id} of this query is in the topic, and micro-batch "
                f"{batch_id} comes now: the checkpoint is an old one that was restored, or a copy "
                "by which another query runs"
            )
        if note.batch_id < batch_id or not self._finish(note):
            return False
        # Fewer may come: compaction or retention may have taken some from the topics meanwhile.
        if rows is not None and note.rows < rows:
            raise self._other_checkpoint(
                f"micro-batch {batch_id} of this query is in the topic with {note.rows} rows, and "
                f"comes with {rows} now: the checkpoint is an old one that was restored, or a copy "
                "by which another query runs, or the query gives other rows when it is repeated"
            )
        return True

    def _other_checkpoint(self, found: str) -> KafkaliteError:
        return KafkaliteError(
            f"{found}; to have all written from it, after which rows are there twice: "
            f"kafkalite groups delete {self._name}"
        )

    def _finish(self, note: _Note) -> bool:
        """Ends the transactions of a note; False if all of them are aborted."""
        tasks: dict[Fate, list[OpenTransaction]] = {fate: [] for fate in Fate}
        for each, fate in zip(
            note.transactions, fates(self._cluster, note.transactions), strict=True
        ):
            tasks[fate].append(each)
        if forgotten := tasks[Fate.FORGOTTEN]:
            raise KafkaliteError(
                f"micro-batch {note.batch_id} was decided longer than "
                "transactional.id.expiration.ms ago, and its coordinator no longer knows whether "
                f"'{forgotten[0].transactional_id}' was committed; if the rows are in the topic, "
                "go on with a new checkpoint from the offsets behind them; to have the micro-batch "
                "written, after which rows may be there twice: "
                f"kafkalite groups delete {self._name}"
            )
        if not tasks[Fate.ABORTED]:
            commit_all(self._cluster, tasks[Fate.OPEN])
            return True
        if tasks[Fate.COMMITTED]:
            committed, aborted = (
                ", ".join(str(_task_of(self._name, each)[0]) for each in of_it)
                for of_it in (tasks[Fate.COMMITTED], tasks[Fate.ABORTED])
            )
            raise KafkaliteError(
                f"micro-batch {note.batch_id} is in the topic in part: the transactions of tasks "
                f"{committed} were committed, those of tasks {aborted} were aborted, since nobody "
                "ended them within kafka.transaction.timeout.ms; to have it written once more as a "
                f"whole, after which the rows of tasks {committed} are there twice: "
                f"kafkalite groups delete {self._name}"
            )
        abort_all(self._cluster, tasks[Fate.OPEN])
        return False

    # --- the note ---------------------------------------------------------------------------------

    def _read(self) -> _Note | None:
        """The last note that was decided. Brokers that are asked for all offsets of a group leave
        out those of transactions under way; for one that is open nobody waits, as nobody may end
        it."""
        wait = not is_open(self._cluster, self._name)
        offsets = read_offsets(self._cluster, self._name, wait=wait)
        if not offsets:
            return None
        batch_id = max(offset for offset, _ in offsets.values())
        places = sorted(place for place, (offset, _) in offsets.items() if offset == batch_id)
        rewrites, text = joined(self._name, [offsets[place][1] for place in places])
        return _Note(batch_id, *unpacked(self._name, text), rewrites)

    def _chunks(self, topic: str, text: str, rewrites: int) -> list[str]:
        """The text of a note as metadata of partitions of the topic: offsets are taken of those
        that there are."""
        room = METADATA_CHARS - HEAD_CHARS
        chunks = [text[start : start + room] for start in range(0, len(text), room)]
        partitions_count = len(self._cluster.retry(lambda: self._cluster.topic(topic)).partitions)
        if len(chunks) > partitions_count:
            raise KafkaliteError(
                f"nothing was committed: the note of the micro-batch takes {len(text)} "
                f"characters, and the {partitions_count} partitions of {topic} take {room} each: "
                "write by fewer tasks, with .coalesce(…)"
            )
        return [f"{rewrites}/{len(chunks)}:{chunk}" if rewrites else chunk for chunk in chunks]


def joined(name: str, chunks: Sequence[str]) -> tuple[int, str]:
    """How many times a note was written anew, and its text, out of all chunks that there are, in
    their order. Raises `KafkaliteError` where some are missing."""
    writings: dict[tuple[int, int], list[str]] = {}
    for chunk in chunks:
        head, _, text = chunk.rpartition(":")
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", head)
        if head and not found:
            raise _no_note(name)
        writing = (int(found[1]), int(found[2])) if found else (0, 0)
        writings.setdefault(writing, []).append(text)
    rewrites, count = max(writings)
    texts = writings[rewrites, count]
    if rewrites and len(texts) != count:
        raise _no_note(name)
    return rewrites, "".join(texts)


def _no_note(name: str) -> KafkaliteError:
    return KafkaliteError(
        f"group '{name}' has offsets that are no note of a micro-batch: the group belongs to "
        "this query alone"
    )


def check_open(
    cluster: Cluster, transactions: Sequence[OpenTransaction], timeout_ms: int, nothing: str
) -> None:
    """Raises `KafkaliteError` unless all transactions of the tasks can still be committed."""
    for each, fate in zip(transactions, fates(cluster, transactions), strict=True):
        if fate is not Fate.OPEN:
            raise KafkaliteError(
                f"{nothing} was committed: the transaction of '{each.transactional_id}' was "
                "aborted before the last task was done; kafka.transaction.timeout.ms is "
                f"{timeout_ms}"
            )


def commit_all(cluster: Cluster, transactions: Sequence[OpenTransaction]) -> None:
    """Commits one after the other. Raises `KafkaliteError`, which says how many were."""
    for done, each in enumerate(transactions):
        try:
            end(cluster, each, commit=True)
        except KafkaliteError as error:
            raise KafkaliteError(
                f"{done} of {len(transactions)} transactions were committed, then: {error}"
            ) from error


def abort_all(cluster: Cluster, transactions: Sequence[OpenTransaction]) -> None:
    """Aborts those that it can; coordinators abort the others when their time is over."""
    for each in transactions:
        with suppress(KafkaliteError):
            end(cluster, each, commit=False)


def packed(name: str, transactions: Sequence[OpenTransaction], rows: int) -> str:
    """Transactions as text: numbers of tasks, producer ids and epochs, each a list, how many rows
    all of them have, and numbers of attempts, as JSON, deflated, in base 64."""
    tasks = [_task_of(name, each) for each in transactions]
    told = [
        [task for task, _ in tasks],
        [each.producer_id for each in transactions],
        [each.epoch for each in transactions],
        rows,
        [attempt for _, attempt in tasks],
    ]
    return base64.b64encode(zlib.compress(json.dumps(told).encode(), 9)).decode()


def _task_of(name: str, transaction: OpenTransaction) -> tuple[int, int]:
    """The numbers of the task and of its attempt."""
    task, _, attempt = transaction.transactional_id.removeprefix(f"{name}-").partition("-")
    return int(task), int(attempt)


def unpacked(name: str, text: str) -> tuple[list[OpenTransaction], int]:
    """The other way. Raises `KafkaliteError` for what `packed` has not made."""
    try:
        inflater = zlib.decompressobj()
        told = inflater.decompress(base64.b64decode(text, validate=True), NOTE_BYTES_MAX)
        tasks, producer_ids, epochs, rows, attempts = json.loads(told)
        numbers = (*tasks, *producer_ids, *epochs, rows, *attempts)
        if not all(type(each) is int for each in numbers):
            raise ValueError("numbers of tasks, and that of the rows")
        columns = zip(tasks, attempts, producer_ids, epochs, strict=True)
        found = [
            OpenTransaction(f"{name}-{task}-{attempt}", producer_id, epoch)
            for task, attempt, producer_id, epoch in columns
        ]
    except (ValueError, TypeError, RecursionError, zlib.error) as error:
        raise _no_note(name) from error
    return found, rows
