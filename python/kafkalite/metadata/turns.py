"""Whose turn it is to change the metadata, and who waits for a topic whose logs are being made.

    in_turn ──► queue ──► the turn ──► judged by the image, take() ──► on disk ──► give_back() ─┐
                  └────────────────────────────── the next one ◄────────────────────────────────┘

One change is written at a time, and the next is judged once that is in the image: so each sees all
that were before it, though the disk may take its time. Whoever has the turn may judge that there is
nothing to be written. Nothing here waits in a thread: who waits is called.

Kafka's controller judges by its memory, which is ahead of the log (`QuorumController`,
`SnapshotRegistry`), and answers when the log has come after: in the same order.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial

Waiter = Callable[[], None]


class Turns:
    """See above. Used by the control thread only."""

    def __init__(self, soon: Callable[[Callable[[], None]], None]) -> None:
        """`soon` calls back before another request is looked at (`Context.soon`)."""
        self._soon = soon
        self._is_taken = False
        self._queue: dict[Waiter, Collection[str]] = {}
        """Who waits for the turn, and for which topics then; in this order."""
        self._changing: dict[str, dict[Waiter, Callable[[], None]]] = {}
        """Topics whose logs are being made, who waits for that, and what is to be done then."""
        self._awaited: dict[Waiter, str] = {}
        """For which of them each waits."""
        self._being_made: set[str] = set()
        """Those of them that are new."""

    def take(self) -> None:
        """Whoever has the turn keeps it until `give_back`."""
        if self._is_taken:
            raise RuntimeError("two changes of the metadata at a time")
        self._is_taken = True

    def give_back(self) -> None:
        """The change is in the image, or will never be."""
        self._is_taken = False
        self._soon(self._next)

    def has_to_wait(self, names: Iterable[str]) -> bool:
        """Whether `in_turn` would not call at once."""
        return self._is_taken or bool(self._queue) or any(map(self.is_changing, names))

    def in_turn(self, names: Collection[str], then: Waiter) -> None:
        """`then()` when it has the turn and none of the topics is changing, at once if that is so.
        It waits once."""
        if self._is_taken or self._queue:
            self._queue[then] = names
        else:
            self._call_settled(names, then, self.in_turn)

    def when_settled(self, names: Collection[str], then: Waiter) -> None:
        """`then()` once none of the topics is changing, at once if none is. It waits once."""
        self._call_settled(names, then, self.when_settled)

    def forget(self, then: Waiter) -> None:
        """`then` is not called any more. Nothing happens if it was."""
        self._queue.pop(then, None)
        name = self._awaited.pop(then, None)
        if name is not None:
            del self._changing[name][then]

    def begin_change(self, names: Collection[str], *, are_new: bool) -> None:
        """Topics are changing until `settle`: their logs are being made."""
        self._changing.update({name: {} for name in names})
        if are_new:
            self._being_made.update(names)

    def settle(self, names: Collection[str]) -> None:
        """The topics are not changing any more: who waits for them looks again."""
        self._being_made.difference_update(names)
        for waiters in [self._changing.pop(name) for name in names]:
            for then, again in waiters.items():
                del self._awaited[then]
                self._soon(again)

    def is_changing(self, name: str) -> bool:
        """Whether logs of a topic are being made."""
        return name in self._changing

    def is_being_made(self, name: str) -> bool:
        """Whether a topic is changing because it is new."""
        return name in self._being_made

    def _next(self) -> None:
        if self._is_taken or not self._queue:
            return
        then = next(iter(self._queue))
        names = self._queue.pop(then)
        # Whatever becomes of this one, and if it writes nothing.
        self._soon(self._next)
        self._call_settled(names, then, self.in_turn)

    def _call_settled(
        self,
        names: Collection[str],
        then: Waiter,
        again: Callable[[Collection[str], Waiter], None],
    ) -> None:
        name = next((each for each in names if each in self._changing), None)
        if name is None:
            then()
        else:
            self._changing[name][then] = partial(again, names, then)
            self._awaited[then] = name
