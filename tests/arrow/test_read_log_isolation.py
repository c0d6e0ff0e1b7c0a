"""`read_committed`: the rows of a Java consumer, found in files."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

import kafkalite
from arrow import slow_reader
from arrow.encoder import CODECS, LogWriter, Record
from arrow.rows import offsets, rows
from kafkalite.errors import CorruptFileError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class TransactionalLog(LogWriter):
    """Keeps what a broker keeps beside the records: transaction indexes and producer snapshots."""

    open: dict[int, int] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def produce(self, producer_id: int, count: int, codec: int = 0) -> None:
        self.open.setdefault(producer_id, self.end)
        self.seen.add(producer_id)
        records = [Record(b"%d" % producer_id, b"%d" % n) for n in range(count)]
        self.append(records, producer_id=producer_id, transactional=True, codec=codec)

    def finish(self, producer_id: int, *, commit: bool) -> None:
        first = self.open.pop(producer_id)
        offset = self.mark(producer_id, commit=commit)
        if not commit:
            last_stable = min(self.open.values(), default=offset + 1)
            self.aborted([(producer_id, first, offset, last_stable)], self.base_offset)

    def close_segment(self) -> None:
        self.roll()
        self.snapshot({producer: self.open.get(producer, -1) for producer in self.seen})


def a_history(directory: Path, seed: int, *, ends: bool) -> TransactionalLog:
    rng = random.Random(seed)
    log = TransactionalLog(directory)
    for _ in range(150):
        kind = rng.randrange(10)
        producer = rng.randrange(4)
        codec = rng.choice(list(CODECS.values()))
        if kind < 5:
            log.produce(producer, rng.randrange(1, 8), codec)
        elif kind < 8 and producer in log.open:
            log.finish(producer, commit=rng.random() < 0.5)
        elif kind == 8:
            log.append([Record(b"plain", b"x")] * rng.randrange(1, 4), codec=codec)
        elif rng.random() < 0.5:
            log.close_segment()
    for producer in list(log.open)[: None if ends else -1]:
        log.finish(producer, commit=rng.random() < 0.5)
    return log


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ends", [True, False])
def test_committed_rows_are_those_of_a_consumer(tmp_path: Path, seed: int, ends: bool) -> None:
    log = a_history(tmp_path / "t-0", seed, ends=ends)
    expected = slow_reader.read(log.directory, committed=True)
    everything = slow_reader.read(log.directory)
    assert 0 < len(expected) < len(everything)
    assert rows(log.directory) == everything
    assert rows(log.directory, isolation="read_committed") == expected
    for start in range(0, log.end, 37):
        found = rows(log.directory, start, start + 60, isolation="read_committed")
        assert found == slow_reader.read(log.directory, start, start + 60, committed=True)

    # Neither snapshots nor indexes: everything is found by walking the log.
    for pattern in ("*.snapshot", "*.txnindex"):
        for path in log.directory.glob(pattern):
            path.unlink()
    assert rows(log.directory, isolation="read_committed") == expected


def test_rows_end_where_the_first_open_transaction_begins(tmp_path: Path) -> None:
    log = TransactionalLog(tmp_path / "t-0")
    log.append([Record()] * 5)
    log.produce(1, 2)
    log.append([Record()] * 5)
    log.produce(2, 3)
    log.finish(2, commit=True)
    assert kafkalite.read_log(log.directory, isolation="read_committed").ranges == [("t", 0, 0, 5)]
    assert offsets(log.directory, isolation="read_committed") == [0, 1, 2, 3, 4]
    assert offsets(log.directory, 6, isolation="read_committed") == []
    log.finish(1, commit=True)
    committed = [*range(12), 12, 13, 14]
    assert offsets(log.directory, isolation="read_committed") == committed


def test_an_open_transaction_is_known_from_the_snapshot_of_an_earlier_segment(
    tmp_path: Path,
) -> None:
    log = TransactionalLog(tmp_path / "t-0")
    log.append([Record()] * 5)
    log.produce(1, 2)
    log.close_segment()
    log.append([Record()] * 5)
    log.close_segment()
    log.append([Record()])
    assert offsets(log.directory, isolation="read_committed") == [0, 1, 2, 3, 4]
    log.finish(1, commit=False)
    expected = [*range(5), *range(7, 13)]
    assert offsets(log.directory, isolation="read_committed") == expected


def test_an_abort_in_a_later_segment_hides_rows_of_an_earlier_one(tmp_path: Path) -> None:
    log = TransactionalLog(tmp_path / "t-0")
    log.produce(1, 10)
    log.close_segment()
    log.append([Record()])
    log.finish(1, commit=False)
    log.close_segment()
    log.append([Record()])
    assert offsets(log.directory, 2, 11, isolation="read_committed") == [10]


def test_a_torn_snapshot_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    log = a_history(tmp_path / "t-0", 3, ends=False)
    expected = slow_reader.read(log.directory, committed=True)
    newest = sorted(log.directory.glob("*.snapshot"))[-1]
    newest.write_bytes(newest.read_bytes()[:-7])
    assert rows(log.directory, isolation="read_committed") == expected


def test_a_damaged_transaction_index_is_named(tmp_path: Path) -> None:
    log = TransactionalLog(tmp_path / "t-0")
    log.produce(1, 10)
    log.finish(1, commit=False)
    index = log.path("txnindex")
    log.close_segment()
    index.write_bytes(b"\1" + index.read_bytes()[1:])
    with pytest.raises(CorruptFileError, match=index.name):
        kafkalite.read_log(log.directory, isolation="read_committed")
    assert len(offsets(log.directory)) == 10


def test_the_view_stays_as_it_was_when_the_log_goes_on(tmp_path: Path) -> None:
    log = TransactionalLog(tmp_path / "t-0")
    log.produce(1, 10)
    records = kafkalite.read_log(log.directory, isolation="read_committed")
    log.finish(1, commit=True)
    assert records.to_pyarrow().num_rows == 0
    assert len(offsets(log.directory, isolation="read_committed")) == 10
