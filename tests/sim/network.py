"""The network between clients and the broker: it delays, loses, repeats and reorders.

A request that is late stands for one on a connection that its client has given up: the client has
gone on by a new one, and the broker reads the old one when it comes to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sim.clients import EPOCHS_VERSION, REQUEST_MS, Ask, code_of

if TYPE_CHECKING:
    from sim.world import World

LATE_MS = (50, 1_500)


class Network:
    """All connections of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._newest: dict[tuple[int, int], int] = {}
        """By producer id and epoch, the newest attempt of which a request was sent."""

    def send(self, sender: str, ask: Ask, told: Callable[[Any], None]) -> None:
        """Sends a request; `told` hears once of an answer, or None after the client's patience."""
        world, plan = self._world, self._world.plan
        producer = (ask.producer_id, ask.producer_epoch)
        self._newest[producer] = max(self._newest.get(producer, 0), ask.serial)
        connection = _Connection(told)
        world.at(world.now_ms + REQUEST_MS, "", partial(connection.tell, None))
        is_repeated = not world.is_calm and world.random.random() < plan.repetition
        for _ in range(2 if is_repeated else 1):
            if self._is_lost():
                world.note(ask.transactional_id, f"{sender}: {ask.name} is lost")
                continue
            delay_ms = world.random.randint(0, 3)
            if not world.is_calm and world.random.random() < plan.lateness:
                delay_ms = world.random.randint(*LATE_MS)
            deliver = partial(self._deliver, sender, ask, connection)
            world.at(world.now_ms + delay_ms, "", deliver)

    def _is_lost(self) -> bool:
        world = self._world
        return not world.is_calm and world.random.random() < world.plan.loss

    def _deliver(self, sender: str, ask: Ask, connection: _Connection) -> None:
        world = self._world
        if world.broker is None:
            return
        producer = (ask.producer_id, ask.producer_epoch)
        is_late = ask.serial < self._newest.get(producer, 0)
        if is_late and not speaks_of_epochs(ask):
            world.checker.excused.add(producer)
        late = ", of an earlier transaction" if is_late else ""
        who = f"{ask.producer_id}/{ask.producer_epoch}"
        world.note(ask.transactional_id, f"{sender}: {ask.name} v{ask.version} of {who}{late}")
        reply = partial(self._answer, sender, ask, connection)
        world.broker.handle(ask.name, ask.version, ask.message, reply)

    def _answer(self, sender: str, ask: Ask, connection: _Connection, answer: Any) -> None:
        world = self._world
        code = code_of(ask.name, answer)
        world.note(ask.transactional_id, f"{sender}: {ask.name} is answered {code or 'well'}")
        world.seen[f"{ask.name} answered {code}"] += 1
        world.checker.on_answer(ask, answer)
        if not self._is_lost():
            world.later(0, 3, "", partial(connection.tell, answer))


class _Connection:
    """Tells a client once."""

    def __init__(self, told: Callable[[Any], None]) -> None:
        self._told: Callable[[Any], None] | None = told

    def tell(self, answer: Any) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(answer)


def speaks_of_epochs(ask: Ask) -> bool:
    """The request is one of version 2 of transactions."""
    since = {"Produce": 12, "TxnOffsetCommit": 5, "EndTxn": 5, "InitProducerId": 0}
    return ask.version >= since.get(ask.name, ask.version + EPOCHS_VERSION)
