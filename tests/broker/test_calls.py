"""Calls of logs and of threads are futures: each has the answer to its own number, once."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.calls import Background, Calls, LogCalls
from kafkalite.disks import Disks
from kafkalite.errors import InvalidArgumentError, KafkaliteError, StorageError
from kafkalite.tasks import Future, TimedOutError


class Core:
    """Its logs answer when the test says so."""

    def __init__(self) -> None:
        self.deleting: dict[int, int] = {}
        self.answers: dict[int, int | KafkaliteError] = {}
        self.woken = threading.Semaphore(0)
        self.numbers: list[int] = []
        self.is_full = False

    def is_held_up(self, _topic: str, _partition: int) -> bool:
        return self.is_full

    def ask(self, number: int, topic: str, _partition: int, call: str, offset: int) -> None:
        assert call == "delete_records"
        if topic != "t":
            raise InvalidArgumentError(f"there is no partition {topic}-0")
        self.deleting[number] = offset

    def answer(self, number: int) -> int:
        answer = self.answers.pop(number)
        if isinstance(answer, KafkaliteError):
            raise answer
        return answer

    def wake(self, number: int) -> None:
        self.numbers.append(number)
        self.woken.release()


@pytest.fixture
def core() -> Core:
    return Core()


def delete_records(logs: LogCalls, topic: str, partition: int, offset: int) -> Future[int]:
    return logs.delete_records(topic, partition, offset)


def calls_of(core: Any) -> tuple[Calls, LogCalls, Background]:
    calls = Calls(core)
    return calls, LogCalls(core, calls), Background(core, calls)


def test_each_call_has_the_answer_to_its_number(core: Core) -> None:
    calls, logs, _ = calls_of(core)
    first, second = delete_records(logs, "t", 0, 10), delete_records(logs, "t", 0, 20)
    (one, two) = core.deleting
    core.answers = {one: StorageError("no room"), two: 20}
    calls.end(two)
    assert second.result() == 20 and not first.is_done
    calls.end(one)
    with pytest.raises(StorageError, match="no room"):
        first.result()


def test_a_call_that_cannot_begin_has_failed_at_once(core: Core) -> None:
    _, logs, _ = calls_of(core)
    with pytest.raises(InvalidArgumentError):
        delete_records(logs, "unknown", 0, 1).result()
    core.is_full = True
    with pytest.raises(TimedOutError):
        delete_records(logs, "t", 0, 1).result()
    assert not core.deleting


@pytest.mark.parametrize(
    ("work", "outcome"),
    [
        (lambda: 7, "7"),
        (lambda: Path("/no/such/file").read_text(), "a defect"),
        (lambda: (_ for _ in ()).throw(StorageError("no room")), "no room"),
    ],
)
def test_what_a_thread_returns_or_fails_with_is_told(
    core: Core, work: Callable[[], object], outcome: str
) -> None:
    calls, _, background = calls_of(core)
    future = background.run(work)
    assert core.woken.acquire(timeout=10)
    calls.end(core.numbers.pop())
    if outcome == "7":
        assert future.result() == 7
    else:
        with pytest.raises(KafkaliteError, match=outcome):
            future.result()


def test_no_thread_is_an_error_of_the_call(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_threads(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_threads)
    _, _, background = calls_of(core)
    with pytest.raises(StorageError, match="can't start new thread"):
        background.run(lambda: None).result()


def test_a_disk_is_asked_once_whoever_wants_to_know(core: Core, tmp_path: Path) -> None:
    calls, _, background = calls_of(core)
    disks = Disks(background)
    asked = disks.size(str(tmp_path))
    assert disks.size(str(tmp_path)) is asked
    assert core.woken.acquire(timeout=10)
    calls.end(core.numbers.pop())
    assert 0 <= asked.result().usable_bytes <= asked.result().total_bytes
    missing = disks.size(str(tmp_path / "missing"))
    assert missing is not asked
    assert core.woken.acquire(timeout=10)
    calls.end(core.numbers.pop())
    with pytest.raises(StorageError, match="cannot be described"):
        missing.result()
    assert disks.size(str(tmp_path)) is not asked
    assert core.woken.acquire(timeout=10)
