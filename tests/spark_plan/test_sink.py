"""What a writing query's driver does about the transactions of its tasks."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from kafkalite.errors import KafkaliteError
from kafkalite.spark import sink
from kafkalite.spark.options.write import WriteOptions

OPTIONS = {
    "kafka.bootstrap.servers": "here:9092",
    "topic": "orders",
    "transactional": "true",
}


def test_a_task_that_writes_on_when_its_job_has_failed_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver looked for open transactions once, while Spark was still killing tasks: one that
    began its transaction a moment later left it open for a quarter of an hour, and one that ended
    its own at that moment kept the driver from the others."""
    options = WriteOptions.of(OPTIONS, StructType([StructField("value", StringType())]))
    writer = sink.BatchWriter(options)
    is_open: set[str] = {f"{writer._ids}0-0", f"{writer._ids}1-1"}
    late = iter([f"{writer._ids}2-2"])
    clock = iter(range(1_000))

    def open_ids(_: Any, prefix: str) -> Iterator[str]:
        yield from sorted(name for name in is_open if name.startswith(prefix))

    def pause(_: float) -> None:
        is_open.update(late)

    class Fencing:
        def __init__(self, _: Any, name: str, __: int) -> None:
            self._name = name

        def begin(self) -> None:
            is_open.discard(self._name)
            if self._name.endswith("0-0"):
                raise KafkaliteError("the task has just ended it")

    monkeypatch.setattr(sink, "_cluster", lambda _: nullcontext())
    monkeypatch.setattr(sink, "open_ids", open_ids)
    monkeypatch.setattr(sink, "Transaction", Fencing)
    monkeypatch.setattr(sink.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sink.time, "sleep", pause)
    writer.abort([None, None, None])
    assert not is_open
    assert next(late, None) is None
