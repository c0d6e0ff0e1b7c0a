"""Logs of given values, and `LogRead`s of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arrow.encoder import LogWriter, Record
from kafkalite._native import LogRead

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def log_of(
    place: Path, records: Iterable[tuple[bytes | None, bytes | None]], batch_records: int = 100
) -> Path:
    """The directory of a partition `typed-0` with these keys and values."""
    log = LogWriter(place / "typed-0")
    every = [Record(key=key, value=value) for key, value in records]
    for at in range(0, len(every), batch_records):
        log.append(every[at : at + batch_records])
    return log.directory


def open_log(log: Path, *, columns: list[str] | None = None, **options: Any) -> LogRead:
    given: dict[str, Any] = {"batch_rows": 1000, "batch_bytes": 1 << 20} | options
    return LogRead(
        [str(log)],
        topic=None,
        start=None,
        start_by_partition={},
        stop=None,
        stop_by_partition={},
        columns=columns,
        isolation="read_uncommitted",
        **given,
    )
