"""The metadata write lock, and the topics whose logs are being made.

    async with lock.held(names) ──► judged by the image ──► records, durable, in the image ──► next
                 │                                                                              ▲
                 └── queue, first come first served ── none of the topics is changing ──────────┘

One change is written at a time, and the next is judged once that is in the image: so each sees all
that were before it, though the disk may take its time. Whoever holds the lock may judge that there
is nothing to be written. A change that begins takes the lock over (`take_over`) from who has judged
it, and lets it go once its records are in the image: it goes on, though the other may not wait.

A topic is *changing* while its logs are being made, which needs no lock: it is not deleted then,
nor does it grow. Used by the control thread only.

Kafka's controller judges by its memory, which is ahead of the log (`QuorumController`,
`SnapshotRegistry`), and answers when the log has come after: in the same order.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from kafkalite.tasks import Future


class WriteLock:
    """See above."""

    def __init__(self) -> None:
        self._holder: Hold | None = None
        self._queue: deque[tuple[Hold, Future[None]]] = deque()
        self._changing: dict[str, Future[None]] = {}
        """Set when the topic is not changing any more."""
        self._new: set[str] = set()
        """The changing topics that are new."""

    def held(self, names: Collection[str] = ()) -> "Hold":
        """`async with` this: waits for the lock, with none of the topics changing, and holds it for
        the block, or until it is taken over."""
        return Hold(self, names)

    def take_over(self) -> "Hold":
        """Takes the lock from its holder, which need not let it go any more."""
        if self._holder is None:
            raise RuntimeError("a change of the metadata without the lock")
        self._holder = Hold(self, ())
        return self._holder

    def has_to_wait(self, names: Iterable[str] = ()) -> bool:
        """Says that `held` would not have the lock at once."""
        is_held = self._holder is not None or bool(self._queue)
        return is_held or any(map(self.is_changing, names))

    async def settled(self, names: Collection[str]) -> None:
        """Returns once none of the topics is changing."""
        while (changing := self._first_changing(names)) is not None:
            await changing.done()

    @contextmanager
    def changing(self, names: Collection[str], *, are_new: bool) -> Iterator[None]:
        """The topics are changing for the block."""
        end = Future[None]()
        self._changing.update(dict.fromkeys(names, end))
        if are_new:
            self._new.update(names)
        try:
            yield
        finally:
            self._new.difference_update(names)
            for name in names:
                del self._changing[name]
            end.set(None)

    def is_changing(self, name: str) -> bool:
        """Says that logs of a topic are being made."""
        return name in self._changing

    def is_being_made(self, name: str) -> bool:
        """Says that a topic is changing because it is new. Any thread may ask."""
        return name in self._new

    async def _acquire(self, hold: "Hold", names: Collection[str]) -> None:
        while True:
            if self._holder is None and not self._queue:
                self._holder = hold
            else:
                await self._wait_in_queue(hold)
            changing = self._first_changing(names)
            if changing is None:
                return
            self._let_go(hold)
            await changing.done()

    async def _wait_in_queue(self, hold: "Hold") -> None:
        place = hold, Future[None]()
        self._queue.append(place)
        try:
            await place[1]
        except BaseException:
            if place in self._queue:
                self._queue.remove(place)
            else:
                # It has been given the lock since it was interrupted.
                self._let_go(hold)
            raise

    def _let_go(self, hold: "Hold") -> None:
        """The next in the queue has the lock, if `hold` had it."""
        if self._holder is hold:
            self._holder = None
            if self._queue:
                self._holder, turn = self._queue.popleft()
                turn.set(None)

    def _first_changing(self, names: Collection[str]) -> Future[None] | None:
        if not self._changing:
            return None  # without a look at a hundred thousand names
        return next((self._changing[each] for each in names if each in self._changing), None)


class Hold:
    """A hold of the lock, or the wait for one."""

    def __init__(self, lock: WriteLock, names: Collection[str]) -> None:
        self._lock = lock
        self._names = names

    async def __aenter__(self) -> None:
        await self._lock._acquire(self, self._names)

    async def __aexit__(self, *_outcome: object) -> None:
        self.release()

    def release(self) -> None:
        """Lets the lock go, unless it has been taken over."""
        self._lock._let_go(self)
