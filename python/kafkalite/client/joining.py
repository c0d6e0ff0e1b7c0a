"""A join of a group that is under way in a thread of its own: the coordinator waits for the other
members, for minutes maybe, and whoever polls meanwhile keeps their time."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Joining"]

Result = TypeVar("Result")


class Joining(Generic[Result]):
    """Calls a function once. Who has begun it waits for it as often, and as long, as they like."""

    def __init__(
        self, join: Callable[[], Result], name: str, on_end: Callable[[], None] = lambda: None
    ) -> None:
        """Begins. `on_end` is called in its thread. Raises RuntimeError where no thread can be
        started."""
        self._join = join
        self._on_end = on_end
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._is_over = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._results.append(self._join())
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            self._error = error
        finally:
            self._is_over.set()
            self._on_end()

    @property
    def is_over(self) -> bool:
        """Whether there is a `result`."""
        return self._is_over.is_set()

    def wait(self, seconds: float) -> bool:
        """Whether it is over by then."""
        return self._is_over.wait(max(seconds, 0.0))

    def result(self) -> Result:
        """What the function gave, once it is over. Raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._results[0]
