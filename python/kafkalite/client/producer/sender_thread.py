"""The thread beside a producer's callers: sends what is due and takes answers while nobody calls.

    poll(sockets, wake) ──► producer.drive(): one step under its lock, then callbacks ──► poll …

Whoever calls a producer often sends and takes answers by the way, which costs least: the thread
then keeps away, and looks every `AWAY_S` whether it is needed.

It holds no reference to its producer while it waits, so that one which nobody closes can be
collected, and ends with it.
"""

import threading
from typing import TYPE_CHECKING
from weakref import ref

from kafkalite.client.network.wakeup import Wakeup

if TYPE_CHECKING:
    from kafkalite.client.producer.loop import ProducerLoop

__all__ = ["AWAY_S", "SenderThread"]

AWAY_S = 0.005


class SenderThread:
    """Calls `drive` of a producer until that has been closed, or is gone."""

    def __init__(self, producer: "ProducerLoop", name: str) -> None:
        """Starts it. Raises RuntimeError where no thread can be started."""
        self._producer = ref(producer)
        self._wakeup = Wakeup()
        self.is_over = False
        self._asleep_until = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._wakeup.close()
            raise

    # --- under the producer's lock ----------------------------------------------------------------

    def wake(self) -> None:
        """Has it take its next step now."""
        self._asleep_until = 0.0
        self._wakeup.set()

    def wake_by(self, due: float, now: float) -> None:
        """Has it take its next step by then (monotonic seconds), give or take `AWAY_S`."""
        if max(due, now + AWAY_S) < self._asleep_until:
            self.wake()

    def sleeps(self, now: float, seconds: float) -> None:
        """Notes how long it is about to wait."""
        self._asleep_until = now + seconds

    def leave_to_parent(self) -> None:
        """Closes the child's copy after a fork, in which the thread does not run."""
        self.is_over = True
        self._wakeup.after_fork()

    # --- without it -------------------------------------------------------------------------------

    def join(self, seconds: float) -> None:
        """Waits for its end, unless it is the one that calls."""
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while self._step():
                pass
        finally:
            self.is_over = True
            self._wakeup.close()

    def _step(self) -> bool:
        producer = self._producer()
        if producer is None:
            return False
        plan = producer.drive()
        del producer  # not held while it waits
        if plan is None or self.is_over:  # a callback has forked, and this is the child
            return False
        descriptors, wait_s = plan
        self._wakeup.wait(wait_s, descriptors)
        return True
