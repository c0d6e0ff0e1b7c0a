"""What a read takes in memory while its batches are looked at one after the other."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from kafkalite._native import BatchBuilder

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = 100_000
MIB = 1 << 20

READER = """
import re, sys
from pathlib import Path

import pyarrow

import kafkalite

def peak_kib():
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\\s+(\\d+) kB", status)[0])

fields = [(f"f{each}", pyarrow.decimal128(38, 0)) for each in range(500)]
schema = pyarrow.schema(fields)
before = peak_kib()
log = kafkalite.read_log(
    sys.argv[1], value_schema=schema, columns=["value"], format_options={"value.format": "json"}
)
rows = 0
for batch in pyarrow.RecordBatchReader.from_stream(log):
    rows += batch.num_rows
print(rows, peak_kib() - before)
"""


def test_a_wide_schema_does_not_multiply_the_memory_of_a_small_log(tmp_path: Path) -> None:
    """A megabyte of `{}` with 500 decimals took most of a gigabyte."""
    builder = BatchBuilder()
    for _ in range(RECORDS):
        builder.append(1_700_000_000_000, None, b"{}")
    partition = tmp_path / "wide-0"
    partition.mkdir()
    (partition / f"{0:020}.log").write_bytes(builder.finish())
    command = [sys.executable, "-c", READER, str(partition)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=500)
    rows, peak_kib = map(int, done.stdout.split())
    assert rows == RECORDS
    # Two batches of 32 MiB and what the allocator keeps; it was 676 MiB.
    assert peak_kib * 1024 < 200 * MIB
