"""What the seam between Python and Rust costs, by pytest-benchmark: `make bench`, or

    .venv/bin/pytest benches/test_seam.py --benchmark-only

One call a round on a log that lies in the page cache; the engine alone is measured by the Rust
benches beside this file. Figures of note go into RESULTS.md.
"""

import base64
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import kafkalite
from kafkalite import _native

RECORDS_A_BATCH = 160
BATCHES = 6_250


def batch() -> bytes:
    """About 16 KiB: 160 records with values of 100 bytes."""
    builder = _native.BatchBuilder()
    now_ms = time.time_ns() // 1_000_000
    for _ in range(RECORDS_A_BATCH):
        builder.append(now_ms, None, b"v" * 100)
    return builder.finish()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_native.Log]:
    """A log of a million records."""
    now_ms = time.time_ns() // 1_000_000
    ids = [base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode() for _ in range(3)]
    directory = _native.LogDirectory.open(
        tmp_path_factory.mktemp("log"),
        now_ms=now_ms,
        cluster_id=ids[0],
        node_id=1,
        directory_id=ids[1],
    )
    log = directory.create_log("t", 0, ids[2], now_ms=now_ms)
    records = batch()
    for _ in range(BATCHES):
        log.append(records, now_ms=now_ms)
    log.flush()
    yield log
    directory.abandon()


def test_append_a_batch_of_16_kib(benchmark: BenchmarkFixture, log: _native.Log) -> None:
    records, now_ms = batch(), time.time_ns() // 1_000_000
    info = benchmark(lambda: log.append(records, now_ms=now_ms))
    assert info.last_offset - info.first_offset == RECORDS_A_BATCH - 1


def test_read_1_mib_at_a_random_offset(benchmark: BenchmarkFixture, log: _native.Log) -> None:
    offset = RECORDS_A_BATCH * BATCHES // 3
    assert len(benchmark(lambda: log.read(offset))) > 1 << 19


@pytest.mark.parametrize("columns", [["value"], ["offset"], None], ids=["value", "offset", "all"])
def test_read_log_of_a_million_records(
    benchmark: BenchmarkFixture, log: _native.Log, columns: list[str] | None
) -> None:
    path, stop = Path(log.directory), RECORDS_A_BATCH * BATCHES

    def count() -> int:
        stream = kafkalite.read_log(path, stop=stop, columns=columns)
        return sum(rows.num_rows for rows in pyarrow.RecordBatchReader.from_stream(stream))

    assert benchmark(count) == stop
