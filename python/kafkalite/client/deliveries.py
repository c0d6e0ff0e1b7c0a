"""Tells a producer's callers what became of their records: counts, callbacks, the first error.

    a batch is done ──► finish (under the producer's lock) ──► tell (without it) ──► on_delivery

Callbacks are called when nothing is half done and no lock is held: they may send, and may raise.
One after the other, though several threads may have something to tell.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kafkalite.client.connection import without_frames
from kafkalite.client.partition_queue import Batch, OnDelivery, OnDone
from kafkalite.client.trouble import Troubles
from kafkalite.errors import KafkaliteError

__all__ = ["Deliveries"]


class Deliveries:
    """Batches that are under way, those that are done, and who has not been told of them."""

    def __init__(self, troubles: Troubles) -> None:
        self.sent_count = 0
        """Records that the brokers have taken."""
        self.failed_count = 0
        """Records that were given up."""
        self.first_error: KafkaliteError | None = None
        """Why the first of them was, until it is raised."""
        self._troubles = troubles
        self._flush_number = 0
        self._unfinished: dict[int, int] = {}
        """Batches that are not done, by the number of the flush that is to wait for them."""
        self._done: deque[tuple[Batch, KafkaliteError | None, int]] = deque()
        self._callback_error: Exception | None = None
        """The error of the first callback that raised, until it is raised here."""
        self._telling = threading.Lock()
        self._teller = 0
        """The thread that calls callbacks."""

    # --- under the producer's lock ----------------------------------------------------------------

    def begin(self, batch: Batch) -> None:
        """A batch is under way."""
        batch.flush = self._flush_number
        self._unfinished[batch.flush] = self._unfinished.get(batch.flush, 0) + 1

    def split(self, batch: Batch, parts_count: int) -> None:
        """A batch that is under way goes in parts."""
        self._unfinished[batch.flush] += parts_count - 1

    def finish(self, batch: Batch, error: KafkaliteError | None, base_offset: int) -> None:
        """Notes the end of a batch: the error or None; its base offset, -1 if it is not known."""
        left = self._unfinished[batch.flush] - 1
        if left:
            self._unfinished[batch.flush] = left
        else:
            del self._unfinished[batch.flush]
        name = f"lost {batch.topic}" if error is not None or self._troubles else ""
        if error is None:
            self.sent_count += batch.count
            if name:
                self._troubles.end(name, f"records of {batch.topic} are taken again")
        else:
            self.failed_count += batch.count
            self.first_error = self.first_error or without_frames(error)
            if batch.on_done is None:
                many = "a record was" if batch.count == 1 else f"{batch.count} records were"
                self._troubles.begin(name, f"{many} given up: {error}")
        if batch.on_done is not None:
            self._done.append((batch, error, base_offset))

    def begin_flush(self) -> int:
        """The number of a flush that waits for all that is under way."""
        self._flush_number += 1
        return self._flush_number - 1

    def is_flushed(self, number: int) -> bool:
        """Says whether that is done, and its callbacks have been called. Who is called back does
        not wait for that."""
        if any(each <= number for each in self._unfinished):
            return False
        return self._teller == threading.get_ident() or not self.has_to_tell

    @property
    def has_to_tell(self) -> bool:
        """Says whether callbacks are due, or under way in another thread."""
        return bool(self._done) or self._teller not in (0, threading.get_ident())

    # --- without it -------------------------------------------------------------------------------

    def tell(self) -> bool:
        """Calls the callbacks that are due, unless a thread is at it already, which then does it:
        what is done within a callback that sends is told after its end. Whether there were any."""
        if not self._done or not self._telling.acquire(blocking=False):
            return False
        try:
            self._teller = threading.get_ident()
            while self._done:
                batch, error, base_offset = self._done.popleft()
                if batch.on_done is not None:
                    self._call(batch.on_done, batch, error, base_offset)
        finally:
            self._teller = 0
            self._telling.release()
        return True

    def callbacks_of(self, callbacks: Sequence[tuple[int, OnDelivery]]) -> OnDone | None:
        """Has these called, each with the number of its record in the batch; None for none."""
        if not callbacks:
            return None

        def tell_each(batch: Batch, error: KafkaliteError | None, base_offset: int) -> None:
            for index, on_delivery in callbacks:
                if not batch.begin <= index < batch.begin + batch.count:
                    continue  # in another batch, since it was split
                offset = base_offset + index - batch.begin if base_offset >= 0 else -1
                self._call(on_delivery, error, batch.topic, batch.partition, offset)

        return tell_each

    def _call(self, callback: Callable[..., None], *told: Any) -> None:
        try:
            callback(*told)
        except Exception as error:  # noqa: BLE001 - the caller's own, who gets it back
            self._callback_error = self._callback_error or error

    def raise_callback_error(self) -> None:
        """Raises what the first callback has raised since the last call."""
        if self._callback_error is not None:
            error, self._callback_error = self._callback_error, None
            raise error

    def raise_first(self) -> None:
        """Raises that, else the first error of a record since the last call."""
        self.raise_callback_error()
        if self.first_error is not None:
            error, self.first_error = self.first_error, None
            raise error.with_traceback(None)  # it may be that of other records too
