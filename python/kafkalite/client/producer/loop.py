"""Does the work of a producer: closes batches, sends them, takes answers, looks after topics.

    a caller in send, poll, flush ──► _step, _turn ┐
    the thread, while nobody calls ──► drive ──────┴──► accumulator, sender, leaders ──► deliveries

All of it has the producer's lock, which is given up wherever somebody waits, and while callbacks
are called.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from kafkalite._native import RecordAccumulator
from kafkalite.client import lifetime
from kafkalite.client.guard import alone
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.network.leaders import Leaders
from kafkalite.client.network.wakeup import poller
from kafkalite.client.producer.deliveries import Deliveries
from kafkalite.client.producer.options import BatchOptions, SendOptions
from kafkalite.client.producer.partition_queue import Batch
from kafkalite.client.producer.sender import Sender
from kafkalite.client.producer.sender_thread import AWAY_S, SenderThread
from kafkalite.client.producer.transactions import Transaction
from kafkalite.client.trouble import Troubles, Untold

__all__ = ["TURN_MS", "ProducerLoop"]

Result = TypeVar("Result")

TURN_MS = 100
"""A wait of this length needs no look at what is to be given up meanwhile."""
TOPICS_AGE_S = 300.0
"""Topics are looked up again after so long, as `metadata.max.age.ms` of Kafka's producer says, and
forgotten if nothing was sent to them (`metadata.max.idle.ms`)."""


class ProducerLoop(ABC):
    """Does a `Producer`'s work of each batch, for its callers and for its thread."""

    _has_thread = True
    _on_create: Callable[[str], None] | None = None
    """Gets the sentence about a topic that is not there, in place of the log."""
    _transaction: Transaction | None = None
    """All that is sent becomes part of it; after an error it can only be aborted."""

    def __init__(
        self, cluster: Cluster, send_options: SendOptions, batch_options: BatchOptions
    ) -> None:
        """Connects to nobody yet."""
        self.cluster = cluster
        self._send_options = send_options
        self._batch_options = batch_options
        self._lock = threading.RLock()
        self._begin()

    @abstractmethod
    def after_fork(self) -> None:
        """Begins anew, in the child: what is under way is the parent's, who sends it, and so is a
        transaction as a whole."""

    @abstractmethod
    def close(self, timeout_ms: int | None = None) -> None:
        """Sends what is under way, and closes the connections."""

    @abstractmethod
    def at_exit(self, timeout_ms: int) -> None:
        """Closes it, at the end of the program, unless a thread is at it."""

    def _begin(self) -> None:
        """Begins with nothing under way: at first, and in the child of a fork."""
        self._is_shut = False
        """Has no connections any more."""
        self._is_torn = False
        """A change of what is under way has not come to its end."""
        self._is_to_close = False
        """A handler of a signal has closed it in the midst of a call."""
        self._close_timeout_ms: int | None = None
        self._troubles = Troubles() if self._has_thread else Untold()
        self._deliveries = Deliveries(self._troubles)
        self._leaders = Leaders(self.cluster, on_create=self._on_create or self._troubles.warn)
        self._accumulator = RecordAccumulator(
            self._send_options.codec,
            level=self._send_options.level,
            transactional=self._transaction is not None,
            **self._batch_options._asdict(),
        )
        self._sender = Sender(
            self.cluster,
            self._leaders,
            self._send_options,
            self._transaction,
            self._deliveries,
            self._troubles,
        )
        self._thread: SenderThread | None = None
        self._closer: threading.Thread | None = None
        self._waiting_count = 0
        """Calls that wait for answers, and so do the thread's work."""
        self._turned_at = self._turned_before = 0.0
        """When callers sent and took answers last, and before that (monotonic seconds)."""
        self._next_look = time.monotonic() + TOPICS_AGE_S
        self._used: set[str] = set()
        """Topics that something was sent to since the last look."""

    @property
    def pending_count(self) -> int:
        """Batches that are open, ready or in flight."""
        return self._accumulator.open_count + self._sender.pending_count

    @property
    def pending_bytes(self) -> int:
        """Memory of the records that are under way, and of those of which is to be told."""
        return self._accumulator.open_bytes + self._held_bytes

    # --- batches ----------------------------------------------------------------------------------

    def _close_batch(self, topic: str, partition: int) -> bool:
        """False if none was open."""
        batch = Batch(topic, partition)
        self._sender.begin(batch)
        # One call that is whole for handlers of signals: the records are here, or there.
        batch.opened.extend(map(self._accumulator.close, (topic,), (partition,)))
        if not self._sender.put(batch):
            return False
        self._note_closed(topic)
        return True

    def _close_batches(self, partitions: list[tuple[str, int]]) -> None:
        for topic, partition in partitions:
            self._close_batch(topic, partition)

    def _enqueue(self, batch: Batch) -> None:
        self._sender.begin(batch)
        self._sender.put(batch)
        self._note_closed(batch.topic)

    def _note_closed(self, topic: str) -> None:
        self._used.add(topic)
        self._accumulator.closed_bytes = self._held_bytes

    @property
    def _held_bytes(self) -> int:
        """Memory of the closed batches of which not all has been told."""
        return self._sender.pending_bytes + self._deliveries.untold_bytes

    def _whole(self, change: Callable[..., Result], *args: object) -> Result:
        """Makes a change of what is under way. If an exception comes out of its midst, as a handler
        of a signal raises it, the next change begins anew with what is not done."""
        if self._is_torn:
            self._sender.mend()
        self._is_torn = True
        result = change(*args)
        self._is_torn = False
        return result

    # --- the work ---------------------------------------------------------------------------------

    def drive(self) -> tuple[list[int], float] | None:
        """Does what is due, for the thread: gives the sockets to wait for and the seconds to wait
        at most; None once it is over."""
        plan = self._drive()
        try:
            has_told = self._tell()
        except BaseException as error:  # noqa: BLE001 - a callback's, or of the close it asked for
            # Whoever flushes gets it: the thread goes on.
            self._deliveries.keep(error)
            has_told = True
        return ([], 0.0) if has_told else plan  # callbacks may have sent

    @alone
    def _drive(self) -> tuple[list[int], float] | None:
        thread, now = self._thread, time.monotonic()
        if thread is None or self._is_shut:
            return None
        are_callers_busy = self._turned_at - self._turned_before < AWAY_S
        if self._waiting_count or (are_callers_busy and now < self._turned_at + AWAY_S):
            thread.sleeps(now, AWAY_S)
            return [], AWAY_S
        self._turn(now)
        seconds = self._due(now) - now
        thread.sleeps(now, seconds)
        return self._descriptors(), seconds

    def _due(self, now: float) -> float:
        """Monotonic seconds by which something is to be done, though no answer comes, after a turn
        at `now`."""
        if not self.pending_count and not self._leaders.is_asked:
            return float("inf")
        linger_over = now + self._accumulator.seconds_until_due
        return min(linger_over, self._sender.due(now), max(self._leaders.due, now))

    def _descriptors(self) -> list[int]:
        """Sockets on which answers are due."""
        return self._sender.descriptors() + self._leaders.descriptors()

    def _start_thread(self) -> None:
        try:
            self._thread = SenderThread(self, f"sender of {self.cluster.servers_text}")
        except (RuntimeError, OSError) as error:
            # Callers go on doing its work.
            self._troubles.begin("thread", f"no thread for {self!r}: {error}")
        lifetime.watch(self)

    def _turn_unless_inside(self) -> None:
        """Sends what is due; a handler of a signal leaves that to the call that it interrupts."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            return
        with self._lock:
            self._turn_by_the_way(time.monotonic())

    def _turn_by_the_way(self, now: float) -> None:
        """A caller who has something else to do sends and takes answers; if they do not come back
        soon, the thread goes on."""
        self._turn(now)
        self._turned_before, self._turned_at = self._turned_at, now
        if self._thread is not None and self._sender.pending_count:
            self._thread.wake_by(now, now)

    @alone
    def _step_alone(self, timeout_ms: float) -> None:
        self._step(timeout_ms)

    def _step(self, timeout_ms: float) -> None:
        """Does what is due, and waits for something to do once."""
        now = time.monotonic()
        self._turn(now)
        self._turned_before, self._turned_at = self._turned_at, now
        if timeout_ms <= 0 or not (self.pending_count or self._deliveries.has_to_tell):
            return
        deadline = now + timeout_ms / 1000
        if timeout_ms > TURN_MS:
            deadline = min(deadline, self._due(now))
        else:
            linger_over = now + self._accumulator.seconds_until_due
            deadline = min(deadline, linger_over, self._sender.resumes(now))
        self._wait(max(deadline - now, 0.0))
        self._turn(time.monotonic())

    def _turn(self, now: float) -> None:
        """Takes what was answered, gives up what is too old, sends what is due."""
        if self._is_shut:
            return
        self._whole(self._turn_whole, now)

    def _turn_whole(self, now: float) -> None:
        self._sender.take(now)
        self._leaders.take(now)
        if now >= self._next_look:
            self._look_at_topics(now)
        self._close_batches(self._accumulator.due())
        self._sender.send(now)
        self._leaders.send(now)
        self._accumulator.closed_bytes = self._held_bytes

    def _tell(self) -> bool:
        """Calls the callbacks that are due, and writes the log, without the lock. Whether there
        were callbacks."""
        has_told = self._deliveries.tell()
        if has_told:
            self._accumulator.closed_bytes = self._held_bytes
        if self._is_to_close:
            self._is_to_close = False
            self.close(self._close_timeout_ms)
        self._troubles.write()
        return has_told

    def _look_at_topics(self, now: float) -> None:
        """Partitions that were added get their share of the records."""
        self._next_look = now + TOPICS_AGE_S
        queues = self._sender.queues
        used = self._used | {topic for (topic, _), queue in queues.items() if queue.is_busy}
        used.update(topic for topic, _ in self._accumulator.opened())
        for topic in {topic for topic, _ in queues} - used:
            self.cluster.forget(topic)
        self._leaders.look(used, now)
        self._used = set()

    def _wait(self, seconds: float) -> None:
        """Waits for an answer, without the lock; if there are callbacks, calls those instead."""
        descriptors = self._descriptors()
        self._waiting_count += 1
        try:
            self._lock.release()
            if self._tell():
                return
            if descriptors:
                poller(descriptors).poll(seconds * 1000)
            elif seconds > 0:
                time.sleep(min(seconds, 0.05))
        finally:
            # Has the lock again, whatever a handler of a signal raises meanwhile: no function of
            # its own, at whose start it could.
            failure: BaseException | None = None
            while True:
                try:
                    if self._lock._is_owned():  # type: ignore[attr-defined]
                        break
                    self._lock.acquire()
                except BaseException as error:  # noqa: BLE001 - raised below
                    failure = error
            # From 0 if a callback has forked, in the child.
            self._waiting_count = max(self._waiting_count - 1, 0)
            if failure is not None:
                raise failure
