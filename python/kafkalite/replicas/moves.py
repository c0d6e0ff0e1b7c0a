"""Moves of replicas between the log directories of this node, as far as Python has to do with them:
the metadata is to say where a replica is about to lie, before its log is there. The engine copies
and swaps (`rust/src/node/moves/`).

Kafka: `DirectoryEventHandler`.
"""

from collections.abc import Callable
from typing import Final, Protocol

from kafkalite import _native
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.engine import Engine
from kafkalite.service.stderr_log import Log
from kafkalite.tasks import Future, Tasks
from kafkalite.timers import Timers

RETRY_MS: Final = 1_000


class MovesHost(Protocol):
    """The parts of the broker that are needed here (`kafkalite.context.Context`)."""

    @property
    def engine(self) -> Engine: ...
    @property
    def log(self) -> Log: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def on_number(self) -> dict[int, Callable[[], object]]: ...
    def now_ms(self) -> int: ...


class Moves:
    """Used by the control thread only."""

    def __init__(self, core: _native.BrokerCore, context: MovesHost) -> None:
        self._moves = core.moves
        self._context = context
        self._wanted: dict[tuple[bytes, int], bytes] = {}
        """The directory of each replica of which the metadata is not asked yet to say it."""
        self._is_asking = False
        context.on_number[_native.ASSIGNMENTS_NUMBER] = self._assign

    def request(self) -> _native.MoveRequest:
        """A request to move replicas. Its `begin` waits for disks: not for the control thread."""
        return self._moves.request()

    def directory_id(self, path: str) -> bytes | None:
        """The id of the log directory at a path, if it is in use."""
        return self._moves.directory_id(path)

    def _assign(self) -> None:
        for topic_id, index, directory in self._moves.take_assignments():
            self._wanted[topic_id, index] = directory
        if self._wanted and not self._is_asking:
            self._is_asking = True
            self._context.tasks.start(self._ask())

    async def _ask(self) -> None:
        context = self._context
        while self._wanted and not context.tasks.is_stopping:
            wanted, self._wanted = self._wanted, {}
            try:
                await context.engine.assign_directories([(*key, at) for key, at in wanted.items()])
            except ControllerError as error:
                context.log.warning(f"the metadata does not say where replicas lie yet: {error}")
                # What has been wanted since counts.
                self._wanted = wanted | self._wanted
                await self._pause()
        self._is_asking = False

    async def _pause(self) -> None:
        over = Future[None]()
        due_ms = self._context.now_ms() + RETRY_MS
        self._context.timers.call_at(due_ms, lambda: over.set(None))
        await over
