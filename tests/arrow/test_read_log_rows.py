"""Every row of every format, equal to what the slow reader makes of the same files."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow
import pytest

import kafkalite
from arrow import slow_reader
from arrow.encoder import CODECS, GZIP, LZ4, SNAPPY, LogWriter, Record, message, message_set
from arrow.rows import rows

if TYPE_CHECKING:
    from pathlib import Path

ALL = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def some_records(rng: random.Random, count: int) -> list[Record]:
    """Nulls, empty ones, headers of all kinds, lengths on both sides of one and two bytes."""

    def data() -> bytes | None:
        kind = rng.randrange(8)
        if kind == 0:
            return None
        if kind == 1:
            return b""
        return rng.randbytes(rng.choice([1, 5, 62, 63, 64, 65, 127, 128, 200, 8191, 8192, 9000]))

    def header() -> tuple[bytes, bytes | None]:
        key = rng.choice([b"", b"trace", "schlüssel".encode(), b"\xff\xfe", b"a\xe2\x82z"])
        return key, data()

    return [
        Record(
            key=data(),
            value=data(),
            timestamp=1_700_000_000_000 + rng.randrange(-1000, 100_000_000),
            headers=tuple(header() for _ in range(rng.choice([0, 0, 0, 1, 2, 9]))),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_rows_of_each_codec_are_those_of_the_slow_reader(tmp_path: Path, codec: str) -> None:
    rng = random.Random(codec)
    log = LogWriter(tmp_path / "orders-3")
    for count in [1, 2, 100, 7, 300, 1]:
        log.append(some_records(rng, count), codec=CODECS[codec])
        if count == 7:
            log.roll()
    expected = slow_reader.read(log.directory)
    assert len(expected) == 411
    assert rows(log.directory) == expected
    assert rows(log.directory, batch_rows=17) == expected
    assert rows(log.directory, batch_bytes=20_000) == expected


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("column", ALL)
def test_a_column_read_alone_is_the_column_read_with_all(
    tmp_path: Path, column: str, codec: str
) -> None:
    rng = random.Random(7)
    log = LogWriter(tmp_path / "t-0")
    for _ in range(5):
        log.append(some_records(rng, 50), codec=CODECS[codec])
    whole = pyarrow.table(kafkalite.read_log(log.directory))
    alone = pyarrow.table(kafkalite.read_log(log.directory, columns=[column], batch_rows=33))
    assert alone.column(column).combine_chunks() == whole.column(column).combine_chunks()
    part = kafkalite.read_log(log.directory, 30, 201, [column])
    assert pyarrow.table(part).column(column) == whole.column(column)[30:201]


def test_the_schema_is_exactly_that_of_sparks_kafka_source(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "t-0")
    log.append([Record(b"k", b"v")])
    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    expected = pyarrow.schema(
        [
            ("key", pyarrow.binary()),
            ("value", pyarrow.binary()),
            ("topic", pyarrow.string()),
            ("partition", pyarrow.int32()),
            ("offset", pyarrow.int64()),
            ("timestamp", pyarrow.timestamp("us", tz="UTC")),
            ("timestampType", pyarrow.int32()),
            ("headers", pyarrow.list_(pyarrow.field("element", header))),
        ]
    )
    records = kafkalite.read_log(log.directory)
    assert pyarrow.schema(records).equals(expected, check_metadata=True)
    assert pyarrow.table(records).schema.equals(expected, check_metadata=True)
    assert list(records.schema) == expected.names
    two = kafkalite.read_log(log.directory, columns=["timestamp", "key"])
    assert pyarrow.table(two).schema.names == ["timestamp", "key"]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_read_plain_and_in_compressed_sets(
    tmp_path: Path, magic: int
) -> None:
    log = LogWriter(tmp_path / "old-0")
    plain = [Record(b"k", b"v", 1000), Record(None, b"", 2000), Record(b"", None, -1)]
    for record in plain:
        log.write(message(log.end, record, magic=magic))
    for codec in [GZIP, SNAPPY] + ([LZ4] if magic == 1 else []):
        records = [Record(b"%d" % n, b"x" * n, 5000 + n) for n in range(40)]
        log.write(message_set(log.end, records, magic=magic, codec=codec))
    if magic == 1:
        stamped = [Record(b"a", b"b", 7), Record(b"c", b"d", 8)]
        log.write(message_set(log.end, stamped, magic=1, codec=GZIP, log_append_time=99))
    log.append([Record(b"new", b"format", 3000)])
    expected = slow_reader.read(log.directory)
    assert len(expected) == 3 + (123 if magic == 1 else 81)
    assert rows(log.directory) == expected
    assert rows(log.directory, batch_rows=9) == expected
    assert rows(log.directory, 20, 60) == slow_reader.read(log.directory, 20, 60)


def test_a_record_without_a_timestamp_shows_minus_one_millisecond_as_in_spark(
    tmp_path: Path,
) -> None:
    log = LogWriter(tmp_path / "t-0")
    log.write(message(0, Record(b"k", b"v"), magic=0))
    log.append([Record(b"k", b"v", timestamp=-1)])
    found = rows(log.directory, columns=["timestamp", "timestampType"])
    assert found == [
        {"timestamp": -1, "timestampType": -1},
        {"timestamp": -1, "timestampType": 0},
    ]


def test_a_timestamp_beyond_what_microseconds_hold_is_null(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "t-0")
    log.append([Record(timestamp=stamp) for stamp in (5, (1 << 63) - 1, 6)])
    assert [row["timestamp"] for row in rows(log.directory)] == [5, None, 6]


def test_log_append_time_stands_for_every_record_of_its_batch(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "t-0")
    log.append([Record(timestamp=1), Record(timestamp=2)], log_append_time=77)
    log.append([Record(timestamp=3)])
    found = [(row["timestamp"], row["timestampType"]) for row in rows(log.directory)]
    assert found == [(77, 1), (77, 1), (3, 0)]


def test_timestamps_count_from_the_delete_horizon_once_the_cleaner_has_set_one(
    tmp_path: Path,
) -> None:
    log = LogWriter(tmp_path / "t-0")
    log.append([Record(b"k", None, 1000), Record(b"l", None, 1001)], delete_horizon=5000)
    assert [row["timestamp"] for row in rows(log.directory)] == [1000, 1001]


def test_gaps_that_compaction_left_are_gaps_in_the_offsets(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "t-0")
    log.append([Record(b"a", offset=3), Record(b"b", offset=9)], last_offset=20)
    log.append([], last_offset=40)
    log.roll(100)
    log.append([Record(b"c", offset=107)], codec=GZIP, last_offset=120)
    log.roll(300)
    expected = slow_reader.read(log.directory)
    assert [row["offset"] for row in expected] == [3, 9, 107]
    assert rows(log.directory) == expected
    for start, stop in [(0, 4), (4, 9), (9, 10), (10, 107), (21, 50), (50, 108), (108, 300)]:
        wanted = slow_reader.read(log.directory, start, stop)
        assert rows(log.directory, start, stop) == wanted, (start, stop)


def test_a_ten_megabyte_value_goes_alone_and_unharmed(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "t-0")
    large = random.Random(0).randbytes(10 << 20)
    log.append([Record(b"small", b"before")])
    log.append([Record(b"k", b"tiny"), Record(b"large", large), Record(b"l", b"tiny")])
    log.append([Record(b"small", b"after")] * 3)
    records = kafkalite.read_log(log.directory, columns=["value"], batch_bytes=1 << 20)
    with pyarrow.RecordBatchReader.from_stream(records) as reader:
        counts = [batch.num_rows for batch in reader]
    assert counts == [2, 1, 4]
    values = pyarrow.table(records).column("value").to_pylist()
    assert values == [b"before", b"tiny", large, b"tiny", b"after", b"after", b"after"]


def test_rows_and_bytes_of_a_batch_stay_within_their_bounds(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "t-0")
    for _ in range(4):
        log.append([Record(b"key", b"v" * 100, headers=((b"h", b"w" * 20),))] * 250)
    records = kafkalite.read_log(log.directory, batch_rows=300, batch_bytes=1 << 20)
    with pyarrow.RecordBatchReader.from_stream(records) as reader:
        assert [batch.num_rows for batch in reader] == [300, 300, 300, 100]
    records = kafkalite.read_log(log.directory, columns=["value"], batch_bytes=5000)
    with pyarrow.RecordBatchReader.from_stream(records) as reader:
        assert {batch.num_rows for batch in reader} == {50}


def test_all_partitions_of_a_log_directory_come_by_topic_and_number(tmp_path: Path) -> None:
    for name in ["b-0", "a-10", "a-2", "__consumer_offsets-0", "a-3.0f0f-delete"]:
        LogWriter(tmp_path / name).append([Record(b"k", name.encode())])
    (tmp_path / "meta.properties").write_text("version=1\n")
    assert [row["value"] for row in rows(tmp_path)] == [b"a-2", b"a-10", b"b-0"]
    assert [row["value"] for row in rows(tmp_path, topic="a")] == [b"a-2", b"a-10"]
    internal = rows(tmp_path, topic="__consumer_offsets")
    assert [row["value"] for row in internal] == [b"__consumer_offsets-0"]
    two = rows([tmp_path / "b-0", tmp_path / "a-2"])
    assert [(row["topic"], row["partition"]) for row in two] == [("a", 2), ("b", 0)]


def test_an_empty_log_gives_no_rows_and_its_schema(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "t-0")
    assert rows(log.directory) == []
    assert pyarrow.table(kafkalite.read_log(log.directory)).schema.names == ALL
