"""What a writing query's driver does about the transactions of its tasks."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from kafkalite.errors import KafkaliteError
from kafkalite.spark import sink
from kafkalite.spark.options.write import WriteOptions

VALUES = StructType([StructField("value", StringType())])
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
    options = WriteOptions.of(OPTIONS, VALUES)
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


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_stream_that_fails_before_a_task_is_done_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str
) -> None:
    """The driver knows the query's id from tasks that are done. Where there was none, the others'
    transactions were open, and readers waiting, for a quarter of an hour."""
    (tmp_path / "metadata").write_text('{"id":"5f3a"}')
    options = WriteOptions.of(OPTIONS | {"checkpointLocation": f"{scheme}{tmp_path}"}, VALUES)
    is_open = {"kafkalite-spark-5f3a-0-1", "kafkalite-spark-77ee-0-1"}

    class NoNote:
        def settles(self, _: int) -> bool:
            return False

    class Fencing:
        def __init__(self, _: Any, name: str, __: int) -> None:
            self._name = name

        def begin(self) -> None:
            is_open.discard(self._name)

    monkeypatch.setattr(sink, "KILLED_TASKS_GO_ON_S", 0.0)
    monkeypatch.setattr(sink, "_cluster", lambda _: nullcontext())
    monkeypatch.setattr(sink, "_note", lambda *_: NoNote())
    monkeypatch.setattr(
        sink, "open_ids", lambda _, prefix: [each for each in is_open if each.startswith(prefix)]
    )
    monkeypatch.setattr(sink, "Transaction", Fencing)
    sink.StreamWriter(options).abort([None, None], 3)
    assert is_open == {"kafkalite-spark-77ee-0-1"}, "of this query alone"
    (tmp_path / "metadata").write_text("[]")
    sink.StreamWriter(options).abort([None, None], 3)
