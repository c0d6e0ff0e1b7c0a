"""The object as other libraries take it."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars
import pyarrow
import pytest

import kafkalite
from arrow import slow_reader
from arrow.encoder import LogWriter, Record, at_offset, batch
from arrow.rows import rows_of
from kafkalite.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    log = LogWriter(tmp_path / "orders-3")
    for codec in range(5):
        log.append([Record(b"k", b"v", headers=((b"h", b"w"), (b"n", None)))] * 20, codec=codec)
        log.append([Record(None, None)], codec=codec)
    return log


def test_pyarrow_takes_the_object_as_it_is(log: LogWriter) -> None:
    records = kafkalite.read_log(log.directory)
    table = pyarrow.table(records)
    table.validate(full=True)
    assert rows_of(table) == slow_reader.read(log.directory)
    assert records.to_pyarrow() == table


def test_polars_takes_the_object_as_it_is(log: LogWriter) -> None:
    records = kafkalite.read_log(log.directory, batch_rows=33)
    frame = polars.DataFrame(records)
    assert frame.schema["timestamp"] == polars.Datetime("us", "UTC")
    assert rows_of(frame.to_arrow()) == slow_reader.read(log.directory)
    assert records.to_polars().equals(frame)


def test_duckdb_takes_the_object_as_it_is(log: LogWriter) -> None:
    records = kafkalite.read_log(log.directory, batch_rows=33)
    with duckdb.connect() as connection:
        connection.register("records", records)
        query = 'select count(*), sum(octet_length(value)), max("offset"), min(topic) from records'
        for _ in range(2):
            assert connection.sql(query).fetchall() == [(105, 100, 104, "orders")]
        headers = connection.sql("select headers[1].key from records limit 1").fetchall()
        assert headers == [("h",)]


def test_every_consumer_starts_anew_also_beside_another(log: LogWriter) -> None:
    records = kafkalite.read_log(log.directory, columns=["offset"], batch_rows=10)
    with (
        pyarrow.RecordBatchReader.from_stream(records) as one,
        pyarrow.RecordBatchReader.from_stream(records) as two,
    ):
        one.read_next_batch()
        assert two.read_all().num_rows == 105
        assert one.read_all().num_rows == 95
    assert pyarrow.table(records).num_rows == 105


def test_a_capsule_that_no_one_consumes_holds_nothing(log: LogWriter) -> None:
    records = kafkalite.read_log(log.directory)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5000):
        records.__arrow_c_stream__()
        records.__arrow_c_schema__()
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_a_requested_schema_may_change_types_but_not_columns(log: LogWriter) -> None:
    records = kafkalite.read_log(log.directory, columns=["key", "offset"])
    wide = pyarrow.schema([("key", pyarrow.large_binary()), ("offset", pyarrow.int64())])
    capsule = records.__arrow_c_stream__(wide.__arrow_c_schema__())
    reader = pyarrow.RecordBatchReader._import_from_c_capsule(capsule)
    assert reader.schema.types == [pyarrow.binary(), pyarrow.int64()]
    assert reader.read_all().num_rows == 105
    other = pyarrow.schema([("offset", pyarrow.int64())])
    with pytest.raises(InvalidArgumentError, match="choose by columns="):
        records.__arrow_c_stream__(other.__arrow_c_schema__())


def test_python_runs_on_while_batches_are_built(tmp_path: Path) -> None:
    """Also for polars, which holds the GIL while it asks for a batch."""
    log = LogWriter(tmp_path / "t-0", index_interval=None)
    encoded = batch(0, [Record(b"k", b"compressible" * 400)] * 50, codec=1)
    log.path().write_bytes(b"".join(at_offset(encoded, n * 50) for n in range(3000)))
    records = kafkalite.read_log(log.directory, columns=["offset"], batch_rows=1 << 20)
    for consume in (pyarrow.table, polars.DataFrame):
        # A busy machine makes a pause now and then, and a GIL that is held makes one each time.
        pauses = (longest_pause(lambda consume=consume: len(consume(records))) for _ in range(8))
        assert any(pause < 0.5 for pause in pauses), consume


def longest_pause(run: Callable[[], int]) -> float:
    """Of another thread while this one runs something, as a part of the time that takes."""
    steps: list[float] = []
    halt = threading.Event()

    def tick() -> None:
        while not halt.wait(0.001):
            steps.append(time.perf_counter())

    ticker = threading.Thread(target=tick)
    ticker.start()
    begin = time.perf_counter()
    assert run() == 150_000
    end = time.perf_counter()
    halt.set()
    ticker.join()
    inside = [begin, *(step for step in steps if begin < step < end), end]
    return max(later - earlier for earlier, later in itertools.pairwise(inside)) / (end - begin)


def test_memory_is_bounded_by_the_batch_not_by_the_log(tmp_path: Path) -> None:
    """700 MB of log, and 1.4 GB of records in it, in 120 MB on top of what Python takes."""
    log = LogWriter(tmp_path / "t-0", index_interval=None)
    plain = batch(0, [Record(b"k", b"v" * 1000)] * 700)
    zipped = batch(0, [Record(b"k", b"v" * 1000)] * 7000, codec=4)
    pieces = [at_offset(plain, n * 700) for n in range(100)]
    pieces += [at_offset(zipped, 70_000 + n * 7000) for n in range(10)]
    chunk, count = b"".join(pieces), 140_000
    with log.path().open("wb") as file:
        for base in range(0, 10 * count, count):
            file.writelines(
                at_offset(piece, base + int.from_bytes(piece[:8], "big")) for piece in pieces
            )
    assert log.path().stat().st_size == 10 * len(chunk)
    script = """
import pyarrow, resource, sys, kafkalite
records = kafkalite.read_log(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(batch.num_rows for batch in pyarrow.RecordBatchReader.from_stream(records))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(rows, (after - before) // 1024)
"""
    command = [sys.executable, "-c", script, str(log.directory)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    count_read, grown_mib = map(int, printed.split())
    assert count_read == 10 * count
    assert grown_mib < 120


def test_pandas_gets_all_rows(log: LogWriter) -> None:
    frame = kafkalite.read_log(log.directory, 3, columns=["offset", "value"]).to_pandas()
    assert list(frame.columns) == ["offset", "value"]
    assert list(frame["offset"]) == list(range(3, 105))


@pytest.mark.parametrize(
    ("name", "method"), [("polars", "to_polars"), ("pandas", "to_pandas"), ("pyarrow", "to_pandas")]
)
def test_a_missing_library_is_named(
    log: LogWriter, monkeypatch: pytest.MonkeyPatch, name: str, method: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=f"{name} is not installed: pip install {name}"):
        getattr(kafkalite.read_log(log.directory), method)()


def test_the_object_says_what_it_reads(log: LogWriter) -> None:
    records = kafkalite.read_log(log.directory, 3, columns=["key"])
    assert repr(records) == "<LogRecords of orders-3[3:105]: key>"
    assert records.schema == {"key": "Binary"}
