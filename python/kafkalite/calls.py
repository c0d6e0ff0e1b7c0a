"""Calls that the control thread awaits: of logs, and of threads in the background.

    await context.logs.append(…) ──► a number ──► Rust: the log's directory asks the log
            future ◄── set() or fail() ◄── `core.requests.wait` gives the number

Each call returns a future at once (`kafkalite.tasks`) and blocks nobody, however long a directory
takes; a call that cannot even begin is a future that has failed. Used by the control thread only.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from kafkalite import _native
from kafkalite.errors import KafkaliteError, StorageError
from kafkalite.tasks import Computation, Future, TimedOutError

T = TypeVar("T")

CallName = Literal["append", "delete_records", "describe_producers", "has_open_transaction"]

SILENCE = "its log directory does not answer"


class Calls:
    """Futures by the numbers that `core.requests.wait` gives."""

    def __init__(self, logs: _native.Logs) -> None:
        self._logs = logs
        self._last_number = _native.STOP_NUMBER
        self._under_way: dict[int, tuple[Future[Any], Callable[[int], Any]]] = {}

    def begin(
        self,
        ask: Callable[[int], object],
        answer: Callable[[int], Any] | None = None,
        kind: type[Future[Any]] = Future,
    ) -> Future[Any]:
        """Calls `ask(number)` now, and sets the future, of a `kind`, to `answer(number)`, that of
        the logs if there is none, once the core gives the number. What either of them raises, the
        future raises."""
        future = kind()
        number = self._last_number + 1
        try:
            ask(number)
        except KafkaliteError as error:
            future.fail(error.with_traceback(None))
        else:
            self._last_number = number
            self._under_way[number] = future, answer or self._logs.answer
        return future

    def end(self, number: int) -> None:
        """The core has given this number."""
        future, answer = self._under_way.pop(number)
        try:
            value = answer(number)
        except KafkaliteError as error:
            # Its frames refer to the future, which refers to it.
            future.fail(error.with_traceback(None))
        else:
            future.set(value)


class LogCalls:
    """Calls of logs. KafkaliteError says why one was refused, or what was written is lost."""

    def __init__(self, logs: _native.Logs, calls: Calls) -> None:
        self._logs = logs
        self._begin = calls.begin

    def ask(self, topic: str, partition: int, call: CallName, *arguments: object) -> Future[Any]:
        """Makes a call of `rust/src/py/broker/log_calls.rs`, by its name there."""
        logs = self._logs
        return self._begin(lambda number: logs.ask(number, topic, partition, call, *arguments))

    def _ask_for_client(
        self, topic: str, partition: int, call: CallName, *arguments: object
    ) -> Future[Any]:
        if self._logs.is_held_up(topic, partition):
            refused = Future[Any]()
            refused.fail(TimedOutError(SILENCE))
            return refused
        return self.ask(topic, partition, call, *arguments)

    def delete_records(self, topic: str, partition: int, offset: int) -> Future[int]:
        """Deletes the records below an offset, for a client: the log start offset then.
        TimedOutError where too many requests wait for the log directory already."""
        return self._ask_for_client(topic, partition, "delete_records", offset)

    def describe_producers(self, topic: str, partition: int) -> Future[_native.ProducerEntries]:
        """The producers that a log knows, for a client, by their ids. TimedOutError as of
        `delete_records`. There may be a million: who goes through them does so in slices."""
        return self._ask_for_client(topic, partition, "describe_producers")

    def has_open_transaction(self, topic: str, partition: int, producer_id: int) -> Future[bool]:
        """Says whether a producer has begun a transaction in a log that no marker has ended.
        TimedOutError as of `delete_records`."""
        return self._ask_for_client(topic, partition, "has_open_transaction", producer_id)

    def append(
        self,
        topic: str,
        partition: int,
        records: bytes,
        transaction_version: int | None = None,
        decided_in: int | None = None,
    ) -> Future[int]:
        """Appends batches of a coordinator: the offset of the first record, once all are
        committed. The version is that of the transactions that markers among them end;
        `decided_in` the leader epoch in which they were decided, in which alone they are taken."""
        given = records, transaction_version, decided_in
        return self.ask(topic, partition, "append", *given)

    def make(self, topics: Mapping[str, Any]) -> Future[None]:
        """Makes the logs that topics lack: all of them, or none."""
        return self._begin(partial(self._logs.make, topics))

    def make_each(self, topics: Mapping[str, Any]) -> Future[None]:
        """As `make`, but as many as can be made: what fails is the first of those that cannot."""
        return self._begin(partial(self._logs.make_each, topics))

    def delete(self, names: Sequence[str]) -> Future[None]:
        """Takes topics out of sight at once, and deletes their logs. A log directory in which that
        fails is offline then."""
        return self._begin(partial(self._logs.delete, names))

    def append_metadata(
        self, log: _native.Log, batches: Sequence[bytes], leader_epoch: int
    ) -> Future[None]:
        """Appends batches to the log of the metadata, and makes them durable."""
        return self._begin(partial(self._logs.append_metadata, log, batches, leader_epoch))


class Background:
    """Threads for what is rare and may take long."""

    def __init__(self, requests: _native.Requests, calls: Calls) -> None:
        self._wake = requests.wake
        self._begin = calls.begin

    def run(self, work: Callable[[], T]) -> Future[T]:
        """Has `work()` done by a thread of its own: what that returns, or raises, be it a defect.
        StorageError where no thread can be started."""
        return self._run(work, Future)

    def compute(self, work: Callable[[], T]) -> Future[T]:
        """Does as `run` with work that waits for nothing, as for a file or another thread: a large
        request that awaits it keeps its turn."""
        return self._run(work, Computation)

    def _run(self, work: Callable[[], T], kind: type[Future[Any]]) -> Future[T]:
        outcome: list[T | KafkaliteError] = []

        def run(number: int) -> None:
            try:
                outcome.append(work())
            except KafkaliteError as error:
                outcome.append(error)
            except Exception:  # noqa: BLE001 - who waits for it must hear of that, too
                import traceback

                outcome.append(KafkaliteError(f"a defect:\n{traceback.format_exc()}"))
            self._wake(number)

        def start(number: int) -> None:
            thread = threading.Thread(target=run, args=(number,), name="background", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise StorageError(str(error)) from error

        def answer(_number: int) -> T:
            (found,) = outcome
            if isinstance(found, KafkaliteError):
                raise found
            return found

        return self._begin(start, answer, kind)
