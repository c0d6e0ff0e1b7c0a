"""Tells what a broker waits for that joins its cluster or leaves it, and ends the wait for
controllers; has its logs loaded meanwhile, and later keeps those who wait for a change of the
metadata."""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from kafkalite.errors import KafkaliteError
from kafkalite.replication.lifecycle import NOT_REGISTERED, Lifecycle, Silence
from kafkalite.replication.observer import Observer
from kafkalite.service.stderr_log import Log
from kafkalite.tasks import Future

LEAVE_WAIT_S: Final = 60
"""The longest time of a controlled shutdown, which ends when partitions are led elsewhere."""
LEAVE_TOLD_S: Final = 5

T = TypeVar("T")


class Waiting:
    """The wait of one start, until its broker is not fenced any more."""

    def __init__(self, observer: Observer, lifecycle: Lifecycle, now_ms: int) -> None:
        self.trouble = ""
        """The reason why a controller does not answer that was asked for the metadata."""
        self._observer = observer
        self._lifecycle = lifecycle
        self._known_ms = now_ms
        """When an active controller was known last."""

    def why(self, form: str) -> str:
        """The trouble, put into `form`; empty where there is none."""
        return form.format(self.trouble) if self.trouble else ""

    def sentence(self) -> str:
        """Says what is waited for."""
        observer = self._observer
        if observer.refused_epoch >= 0:
            return (
                f"controllers of epoch {observer.leader.epoch}, which it has known, or later: "
                f"those that answer are in epoch {observer.refused_epoch}"
            )
        if observer.leader.address is None and not observer.is_caught_up:
            return f"an active controller to answer{self.why(' ({})')}"
        if not observer.is_caught_up:
            return "the metadata, which the active controller sends"
        return self._lifecycle.waiting_for

    def check(self, now_ms: int) -> None:
        """Raises LifecycleError where no active controller is found for as long as a registration
        may take: Kafka's broker ends then, too, so that whoever has started it learns of it."""
        lifecycle, observer = self._lifecycle, self._observer
        if lifecycle.state != NOT_REGISTERED or observer.is_caught_up:
            return
        if observer.leader.address is not None:
            self._known_ms = now_ms
        elif now_ms - self._known_ms >= lifecycle.registration_ms:
            raise lifecycle.overdue(self.sentence())


class Leaving:
    """The wait of a controlled shutdown, until the controllers let the broker go."""

    def __init__(self, silence: Silence, log: Log) -> None:
        self._silence = silence
        self._log = log
        self._is_over = threading.Event()

    def end(self) -> None:
        """The broker may stop."""
        self._is_over.set()

    def wait(self) -> None:
        """Returns when the broker may stop, or at once after `give_up`. Not for the control
        thread."""
        limit = f"{LEAVE_WAIT_S} s at most"
        self._log.info(
            "waits for the controllers to have its partitions led by others, "
            f"{limit}; a second signal stops it without them"
        )
        for waited_s in range(LEAVE_TOLD_S, LEAVE_WAIT_S + 1, LEAVE_TOLD_S):
            if self._is_over.wait(LEAVE_TOLD_S):
                return
            why = self._silence.reason or "they have not let it go yet"
            self._log.info(f"still waits for the controllers, {waited_s} s and {limit}: {why}")
        self._log.warning("the controlled shutdown took too long: the broker stops without it")

    def give_up(self) -> None:
        """Ends the wait before the controllers have let the broker go."""
        if not self._is_over.is_set():
            self._log.warning(
                "a second signal: stops without the controllers, who take this broker for failed "
                "until its next start"
            )
            self._is_over.set()


class Published:
    """Callers that wait for the metadata in force to reach an offset."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], bool], Future[None]]] = []

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Returns once `is_so()` at a call of `wake`, or by now."""
        if not is_so():
            waiting = Future[None]()
            self._waiting.append((is_so, waiting))
            await waiting

    def wake(self) -> None:
        """Something has come into force."""
        waiting, self._waiting = self._waiting, []
        for is_so, future in waiting:
            if is_so():
                future.set(None)
            else:
                self._waiting.append((is_so, future))


def load_beside(
    load: Callable[[], T], stop: Callable[[], None], run_until: Callable[[Callable[[], bool]], None]
) -> T:
    """Calls `load()` on a thread of its own, and `run_until` here; where that raises, `stop()`.
    Raises as both."""
    outcome: list[T | Exception] = []

    def run() -> None:
        try:
            outcome.append(load())
        except Exception as error:  # noqa: BLE001 - raised again below
            outcome.append(error)

    loading = threading.Thread(target=run, name="load")
    loading.start()
    try:
        run_until(lambda: bool(outcome))
    except KafkaliteError:
        stop()
        raise
    finally:
        loading.join()
    (loaded,) = outcome
    if isinstance(loaded, Exception):
        raise loaded
    return loaded
