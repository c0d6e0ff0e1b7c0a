"""Tells a producer's callers what became of their records: counts, callbacks, the first error.

    a batch is done ──► finish (under the producer's lock) ──► tell (without it) ──► on_delivery

Callbacks are called when nothing is half done and no lock is held: they may send, and may raise.
One after the other, though several threads may have something to tell.
"""

import threading
from collections import deque
from collections.abc import Sequence

from kafkalite.client.network.connection import without_frames
from kafkalite.client.producer.partition_queue import Batch
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
        self.is_aborting = False
        """The caller has wanted that records are given up, and need not be told."""
        self._troubles = troubles
        self._flush_number = 0
        self.unfinished: dict[tuple[int, int], Batch] = {}
        """All batches that are closed and not done, by their order: what is true of them, also
        after an exception that came out of the midst of something."""
        self._done: deque[Batch] = deque()
        self.untold_bytes = 0
        """Memory of those that are done, and of which callbacks are to be called."""
        self._callback_error: BaseException | None = None
        """The error of the first callback that raised, until it is raised here."""
        self._telling = threading.RLock()
        self._teller = 0
        """The thread that calls callbacks."""

    # --- under the producer's lock ----------------------------------------------------------------

    def begin(self, batch: Batch) -> None:
        """Notes that a batch is under way."""
        batch.flush, order = self._flush_number, batch.order
        self.unfinished[order] = batch

    def split(self, batch: Batch, halves: Sequence[Batch]) -> None:
        """Notes that a batch that is under way goes in two parts."""
        first, second = halves
        first_order, second_order = batch.order, second.order
        # No call in between, as in `finish`.
        self.unfinished[first_order] = first
        self.unfinished[second_order] = second

    def finish(self, batch: Batch, error: KafkaliteError | None, base_offset: int) -> None:
        """Notes what became of a batch: the error or None, and its base offset, -1 if it is not
        known."""
        has_callbacks = batch.on_done is not None or bool(batch.callbacks)
        untold = 0 if batch.on_done is not None else batch.count - len(batch.callbacks)
        if error is None and self._troubles:
            self._troubles.end_all(
                f"lost {batch.topic}\n", f"records of {batch.topic} are taken again"
            )
        elif error is not None and untold and not self.is_aborting:
            many = "a record was" if untold == 1 else f"{untold} records were"
            # Another reason is another trouble: the one must not hide the other.
            name = f"lost {batch.topic}\n{getattr(error, 'code', type(error).__name__)}"
            self._troubles.begin(name, f"{many} given up: {error}")
        kept, order = None if error is None else without_frames(error), batch.order
        # What the handler of a signal raises comes out behind a call, at the start of a function or
        # at the end of a turn of a loop: never between these.
        del self.unfinished[order]
        batch.error, batch.base_offset = error, base_offset
        if error is None:
            self.sent_count += batch.count
        else:
            self.failed_count += batch.count
            self.first_error = self.first_error or kept
        if has_callbacks:
            self.untold_bytes += batch.held_bytes
            self._done.append(batch)

    def begin_flush(self) -> int:
        """The number of a flush that waits for all that is under way."""
        self._flush_number += 1
        return self._flush_number - 1

    def is_flushed(self, number: int) -> bool:
        """Says whether that is done, and its callbacks have been called. Who is called back does
        not wait for that."""
        if any(batch.flush <= number for batch in self.unfinished.values()):
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
        is_mine, me = False, threading.get_ident()
        if not self._done:
            return False
        try:
            with self._telling:
                if self._teller:
                    return False
                self._teller, is_mine = me, True
            while self._done:
                batch = self._done[0]
                self._tell_of(batch)
                if self._done:  # else a callback has forked, in the child
                    self.untold_bytes -= batch.held_bytes
                    self._done.popleft()
        finally:
            if is_mine:
                self._teller = 0
        return True

    def _tell_of(self, batch: Batch) -> None:
        """Calls each callback once, though one of them, or a signal, ends it in the midst."""
        error, topic, partition = batch.error, batch.topic, batch.partition
        if batch.on_done is not None and not batch.told_count:
            batch.told_count = 1
            try:
                batch.on_done(batch, error, batch.base_offset)
            except Exception as raised:  # noqa: BLE001 - the caller's own, who gets it back
                self.keep(raised)
        callbacks, count = batch.callbacks, len(batch.callbacks)
        offset = batch.base_offset
        while batch.told_count < count and self._done:
            index, on_delivery = callbacks[batch.told_count]
            at = offset + index - batch.begin if offset >= 0 else -1
            batch.told_count += 1
            try:
                on_delivery(error, topic, partition, at)
            except Exception as raised:  # noqa: BLE001 - the caller's own, who gets it back
                self.keep(raised)

    def keep(self, error: BaseException) -> None:
        """Has the next `poll` or `flush` raise what a callback has raised, if it is the first."""
        self._callback_error = self._callback_error or error

    def leave_to_parent(self) -> None:
        """Calls no more callbacks, in the child of a fork."""
        self._done.clear()

    @property
    def is_called_back(self) -> bool:
        """True if this thread is in a callback."""
        return self._teller == threading.get_ident()

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
