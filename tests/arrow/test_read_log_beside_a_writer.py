"""Files that grow, roll, go away or are damaged: the right rows, or an error with the file."""

from __future__ import annotations

import random
import re
import shutil
import threading
from typing import TYPE_CHECKING

import pyarrow
import pytest

import kafkalite
from api.batches import crc32c
from arrow import slow_reader
from arrow.encoder import CODECS, LogWriter, Record, at_offset, batch
from arrow.rows import offsets, rows, rows_of

if TYPE_CHECKING:
    from pathlib import Path


def a_log(directory: Path, index_interval: int | None = None) -> LogWriter:
    """Offsets 0 to 99 in batches of 10, one segment."""
    log = LogWriter(directory, index_interval=index_interval)
    for number in range(10):
        log.append([Record(b"%d" % number, b"value %d" % n) for n in range(10)])
    return log


def fails(path: Path, sentence: str, **options: object) -> None:
    records = kafkalite.read_log(path, **options)  # type: ignore[arg-type]
    with pytest.raises((OSError, pyarrow.ArrowException), match=sentence):
        pyarrow.table(records)


@pytest.mark.parametrize("codec", CODECS)
def test_a_torn_last_batch_is_the_end_at_every_byte(tmp_path: Path, codec: str) -> None:
    log = a_log(tmp_path / "t-0")
    whole = log.path().read_bytes()
    torn = batch(100, [Record(b"torn", b"batch")] * 3, codec=CODECS[codec])
    for size in range(len(torn)):
        log.path().write_bytes(whole + torn[:size])
        assert kafkalite.read_log(log.directory).ranges == [("t", 0, 0, 100)], size
    assert offsets(log.directory) == list(range(100))
    log.path().write_bytes(whole + torn)
    assert offsets(log.directory) == list(range(103))


@pytest.mark.parametrize("interval", [None, 100])
def test_zeros_and_a_garbled_batch_at_the_end_are_the_end(
    tmp_path: Path, interval: int | None
) -> None:
    log = a_log(tmp_path / "t-0", interval)
    whole = log.path().read_bytes()
    last = bytearray(batch(100, [Record(b"x" * 300)]))
    last[200] ^= 1
    for tail in (bytes(100_000), bytes(last), b"\xff" * 500, bytes(last) + bytes(7000)):
        log.path().write_bytes(whole + tail)
        assert offsets(log.directory) == list(range(100))


@pytest.mark.parametrize("interval", [None, 100])
@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (200, "the CRC of the batch at offset 40 is wrong"),
        (17, "the CRC of the batch at offset 40 is wrong"),
        (10, "offset 40 is due|CRC of the batch at offset 40|the batch of .* at offset 40"),
        (16, "offset 40 is due|CRC of the batch at offset 40"),
        (0, "a batch at offset 50 stands behind one that ends at"),
    ],
)
def test_damage_in_the_middle_is_named_by_file_position_and_offset(
    tmp_path: Path, at: int, reason: str, interval: int | None
) -> None:
    log = a_log(tmp_path / "t-0", interval)
    encoded = bytearray(log.path().read_bytes())
    size = len(encoded) // 10
    encoded[4 * size + at] ^= 0x41
    log.path().write_bytes(encoded)
    position = 4 * size if at else 5 * size
    where = f"{re.escape(str(log.path()))} is corrupt at byte {position}: .*({reason})"
    fails(log.directory, where)
    assert offsets(log.directory, stop=40) == list(range(40))
    if interval:
        assert offsets(log.directory, 60) == list(range(60, 100))


def test_damage_in_a_closed_segment_is_no_end(tmp_path: Path) -> None:
    log = a_log(tmp_path / "t-0")
    closed = log.path()
    log.roll()
    log.append([Record()])
    whole = closed.read_bytes()
    for content, reason in {
        whole[:-1]: "the file ends within the batch of .* at offset 90",
        whole[:-1000]: "the file ends within|offset .* is due",
        whole + b"\xff" * 100: "offset 100 is due",
    }.items():
        closed.write_bytes(content)
        fails(log.directory, f"{re.escape(str(closed))} is corrupt at byte .*({reason})")
    # Preallocated and not trimmed: nothing is missing.
    closed.write_bytes(whole + bytes(100_000))
    assert offsets(log.directory) == list(range(101))


def test_a_record_that_lies_about_its_size_is_an_error_and_not_a_row(tmp_path: Path) -> None:
    good = batch(0, [Record(b"key", b"value"), Record(b"key", b"value")])
    rng = random.Random(5)
    for at in range(61, len(good)):
        encoded = bytearray(good)
        encoded[at] ^= 1 << rng.randrange(8)
        encoded[17:21] = crc32c(encoded[21:]).to_bytes(4, "big")
        directory = tmp_path / f"t-{at}"
        LogWriter(directory, index_interval=None).write(bytes(encoded))
        try:
            found = rows(directory)
        except (OSError, pyarrow.ArrowException) as error:
            assert "in the batch at offset 0: record" in str(error)
        else:
            assert len(found) <= 2


def test_an_error_is_raised_again_and_never_becomes_an_end(tmp_path: Path) -> None:
    log = a_log(tmp_path / "t-0")
    encoded = bytearray(log.path().read_bytes())
    encoded[-1000] ^= 1
    log.path().write_bytes(encoded)
    log.append([Record()])
    records = kafkalite.read_log(log.directory, batch_rows=10)
    with pyarrow.RecordBatchReader.from_stream(records) as reader:
        with pytest.raises(pyarrow.ArrowException) as first:
            for _ in range(20):
                reader.read_next_batch()
        with pytest.raises(pyarrow.ArrowException) as second:
            reader.read_next_batch()
    assert str(first.value) == str(second.value)


def test_rows_end_at_the_log_end_of_the_call_although_the_log_goes_on(tmp_path: Path) -> None:
    log = a_log(tmp_path / "t-0")
    records = kafkalite.read_log(log.directory)
    log.append([Record()] * 10)
    log.roll()
    log.append([Record()] * 10)
    assert pyarrow.table(records).column("offset").to_pylist() == list(range(100))
    assert offsets(log.directory) == list(range(120))


def test_a_reader_beside_a_writer_sees_whole_rows_in_order(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "t-0", index_interval=500)
    log.append([Record()])
    value = bytes(range(256))
    encoded = batch(0, [Record(b"k", value)] * 5)
    halt = threading.Event()

    def write() -> None:
        rng = random.Random(1)
        while not halt.is_set() and log.end < 40_000:
            if rng.random() < 0.02:
                log.roll()
            log.write(at_offset(encoded, log.end))

    def end() -> int:
        records = kafkalite.read_log(log.directory, columns=["offset", "value"])
        (_, _, start, stop), table = records.ranges[0], pyarrow.table(records)
        assert (start, table.column("offset").to_pylist()) == (0, list(range(stop)))
        assert set(table.column("value").to_pylist()[1:]) <= {value}
        return stop

    ends = [end()]
    writer = threading.Thread(target=write)
    writer.start()
    try:
        while writer.is_alive() and (len(ends) < 60 or ends[-1] == ends[0]):
            ends.append(end())
    finally:
        halt.set()
        writer.join()
    ends.append(end())
    assert ends == sorted(ends)
    assert ends[-1] > ends[0]


def test_segments_that_are_open_are_read_although_retention_deletes_them(tmp_path: Path) -> None:
    log = a_log(tmp_path / "t-0")
    for _ in range(5):
        log.roll()
        log.append([Record()] * 10)
    records = kafkalite.read_log(log.directory, batch_rows=10)
    with pyarrow.RecordBatchReader.from_stream(records) as reader:
        found = [reader.read_next_batch()]
        for base in log.bases[:-1]:
            log.path("log", base).rename(log.path("log.deleted", base))
        found += list(reader)
    assert pyarrow.Table.from_batches(found).column("offset").to_pylist() == list(range(150))


def test_offsets_deleted_before_they_were_reached_are_an_error(tmp_path: Path) -> None:
    log = a_log(tmp_path / "t-0")
    log.roll()
    log.append([Record()])
    records = kafkalite.read_log(log.directory)
    log.path("log", 0).unlink()
    with pytest.raises(
        OSError, match=r"offset 0 was deleted .*: the log now begins with 0{17}100\.log"
    ):
        pyarrow.table(records)
    shutil.rmtree(log.directory)
    with pytest.raises(OSError, match=re.escape(str(log.directory))):
        pyarrow.table(records)


def test_a_log_that_was_cut_meanwhile_is_an_error(tmp_path: Path) -> None:
    log = a_log(tmp_path / "t-0")
    records = kafkalite.read_log(log.directory)
    encoded = log.path().read_bytes()
    log.path().write_bytes(encoded[: len(encoded) // 2])
    with pytest.raises(OSError, match="the log ends at offset 50 now, before 100"):
        pyarrow.table(records)


@pytest.mark.parametrize("moment", ["swapped", "swapping"])
def test_compaction_that_merges_segments_between_two_windows_loses_no_row(
    tmp_path: Path, moment: str
) -> None:
    """Segments are opened 64 at a time; the next ones may have been merged meanwhile."""
    log = LogWriter(tmp_path / "t-0", index_interval=None)
    for number in range(200):
        log.append([Record(b"k", b"%d" % number)])
        log.roll()
    expected = slow_reader.read(log.directory)
    records = kafkalite.read_log(log.directory, batch_rows=10)
    with pyarrow.RecordBatchReader.from_stream(records) as reader:
        found = [reader.read_next_batch()]
        merged = b"".join(log.path("log", base).read_bytes() for base in range(50, 150))
        for base in range(50, 150):
            log.path("log", base).unlink()
        log.path("log" if moment == "swapped" else "log.swap", 50).write_bytes(merged)
        found += list(reader)
    assert rows_of(pyarrow.Table.from_batches(found)) == expected
    assert offsets(log.directory) == list(range(200))
