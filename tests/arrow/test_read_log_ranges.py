"""Which rows are asked for, and what is said to those who ask for others."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

import kafkalite
from arrow import slow_reader
from arrow.encoder import CODECS, LogWriter, Record
from arrow.rows import offsets, rows
from kafkalite.errors import InvalidArgumentError, LogDirRefusedError

if TYPE_CHECKING:
    from pathlib import Path


def a_log(directory: Path, codec: int = 0, index_interval: int | None = 200) -> LogWriter:
    """Offsets 0 to 299 in batches of 10, three segments."""
    log = LogWriter(directory, index_interval=index_interval)
    for number in range(30):
        if number in (11, 20):
            log.roll()
        records = [Record(b"k%d" % n, b"v" * n) for n in range(10)]
        log.append(records, codec=codec)
    return log


@pytest.mark.parametrize("codec", CODECS)
def test_every_start_and_stop_cuts_at_the_record(tmp_path: Path, codec: str) -> None:
    log = a_log(tmp_path / "t-0", CODECS[codec])
    for start in range(0, 301, 7):
        for stop in {start, start + 1, start + 13, 110, 200, 299, 300, 5000}:
            if stop >= start:
                expected = list(range(start, min(stop, 300)))
                assert offsets(log.directory, start, stop) == expected, (start, stop)
    assert rows(log.directory, 105, 215) == slow_reader.read(log.directory, 105, 215)


def test_without_a_start_the_log_is_read_from_its_first_segment(tmp_path: Path) -> None:
    log = a_log(tmp_path / "t-0")
    log.path("log", 0).unlink()
    assert offsets(log.directory) == list(range(110, 300))
    assert kafkalite.read_log(log.directory).ranges == [("t", 0, 110, 300)]


def test_deleted_records_are_not_shown_although_their_segment_stands(tmp_path: Path) -> None:
    log = a_log(tmp_path / "t-0")
    checkpoint = tmp_path / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n2\nother 0 7\nt 0 123\n")
    assert offsets(log.directory) == list(range(123, 300))
    with pytest.raises(InvalidArgumentError, match="before the log start offset 123 of t-0"):
        kafkalite.read_log(log.directory, start=122)


@pytest.mark.parametrize("damage", ["missing", "empty", "zeros", "garbage", "shifted", "torn"])
def test_a_wrong_offset_index_costs_time_but_no_row(tmp_path: Path, damage: str) -> None:
    log = a_log(tmp_path / "t-0")
    for base in log.bases:
        index = log.path("index", base)
        entries = index.read_bytes()
        assert len(entries) > 16
        content = {
            "missing": None,
            "empty": b"",
            "zeros": entries + bytes(4096),
            "garbage": os.urandom(256),
            "shifted": b"".join(
                entries[at : at + 7] + bytes([entries[at + 7] ^ 1])
                for at in range(0, len(entries), 8)
            ),
            "torn": entries[:-3],
        }[damage]
        index.unlink()
        if content is not None:
            index.write_bytes(content)
    for start in (0, 55, 109, 110, 187, 299):
        assert offsets(log.directory, start) == list(range(start, 300))


def test_start_and_stop_can_differ_by_partition(tmp_path: Path) -> None:
    for name in ("a-0", "a-1", "b-0"):
        LogWriter(tmp_path / name).append([Record()] * 10)
    by_name = kafkalite.read_log(tmp_path, start={"a-1": 4}, stop={"a-0": 3, "b-0": 9})
    assert by_name.ranges == [("a", 0, 0, 3), ("a", 1, 4, 10), ("b", 0, 0, 9)]
    by_number = kafkalite.read_log(tmp_path, start={0: 2}, stop={1: 5}, topic="a")
    assert by_number.ranges == [("a", 0, 2, 10), ("a", 1, 0, 5)]
    assert len(pyarrow.table(by_number)) == 13
    assert kafkalite.read_log(tmp_path, 1, 2).ranges == [
        ("a", 0, 1, 2),
        ("a", 1, 1, 2),
        ("b", 0, 1, 2),
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"columns": ["value", "size"]},
            "unknown column 'size': the columns are key, value, topic, partition, offset, timest",
        ),
        ({"columns": ["key", "key"]}, "column 'key' is named twice"),
        ({"columns": []}, "columns names no column: the columns are key, value"),
        ({"start": 20, "stop": 19}, "start=20 is after stop=19 (t-0)"),
        ({"start": 301}, "start=301 is after the log end offset 300 of t-0"),
        ({"start": -1}, "start=-1 is no offset"),
        ({"stop": {0: -2}}, "stop=-2 is no offset"),
        ({"start": {7: 1}}, "start names partition '7', which is not among those to be read"),
        ({"isolation": "snapshot"}, "unknown isolation 'snapshot': it is read_uncommitted or"),
        ({"topic": "x"}, "no partition of topic 'x' is there; topics found: t"),
        ({"batch_rows": 0}, "batch_rows=0 is less than 1"),
        ({"batch_bytes": 1 << 40}, "batch_bytes=1099511627776 is more than 2147483647"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(
    tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    log = a_log(tmp_path / "t-0")
    with pytest.raises(InvalidArgumentError, match=re.escape(sentence)):
        kafkalite.read_log(log.directory, **options)


def test_a_start_before_the_log_start_is_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path / "t-0")
    log.path("log", 0).unlink()
    with pytest.raises(
        InvalidArgumentError, match="start=109 is before the log start offset 110 of t-0"
    ):
        kafkalite.read_log(log.directory, start=109)
    with pytest.raises(InvalidArgumentError, match="stop=50 is before the log start offset 110"):
        kafkalite.read_log(log.directory, stop=50)


def test_a_number_for_partitions_of_several_topics_is_ambiguous(tmp_path: Path) -> None:
    for name in ("a-1", "b-1"):
        LogWriter(tmp_path / name).append([Record()])
    with pytest.raises(InvalidArgumentError, match="several topics: name it as topic-1"):
        kafkalite.read_log(tmp_path, start={1: 0})


def test_a_path_that_holds_no_log_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    LogWriter(tmp_path / "t-0.0f0f-delete")
    for name, reason in {
        "missing": "it does not exist",
        "file": "it is not a directory",
        "empty": "it holds neither segments (<20 digits>.log) nor partitions (<topic>-<number>)",
        "t-0.0f0f-delete": "it holds segments, but its name is not <topic>-<number>",
    }.items():
        with pytest.raises(LogDirRefusedError, match=re.escape(reason)) as raised:
            kafkalite.read_log(tmp_path / name)
        assert name in str(raised.value)


def test_a_relative_path_names_its_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log(tmp_path / "a-b-7")
    monkeypatch.chdir(log.directory)
    assert kafkalite.read_log(".").ranges == [("a-b", 7, 0, 300)]
