"""The faults of a simulated world, each one method: the seed's plan says which, and how often."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalite.protocol import messages
from sim.model_log import Batch, ModelLog
from sim.trace import EVERYONE

if TYPE_CHECKING:
    from sim.world import World

FAULTS: Final = (
    "kill",
    "cut_power",
    "fail_appends",
    "jump_clock",
    "expire_producers",
    "send_late_marker",
    "kill_client",
    "raise_level",
    "lower_level",
)
CLOCK_JUMPS_MS: Final = (-5_000, -300, 300, 2_000, 8 * 86_400_000)
"""The last is longer than transactional ids and offsets are kept."""
WRITE_MARKERS_VERSION: Final = 2
"""The first that tells the version of the transaction."""


class Faults:
    """Those of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._failing_until_ms = 0
        self._markers: list[tuple[ModelLog, Batch]] = []
        """Markers of transactions that have an epoch each, as they were written."""

    def strike(self) -> None:
        """One of the plan's faults, and the next one later."""
        world = self._world
        if not world.is_calm:
            name = world.random.choice(world.plan.faults)
            world.seen[f"fault {name}"] += 1
            getattr(self, name)()
            world.later(1, 2 * world.plan.fault_pause_ms, "", self.strike)

    def fails_append(self) -> bool:
        """An append of a coordinator fails now."""
        world = self._world
        is_failing = not world.is_calm and world.now_ms < self._failing_until_ms
        return is_failing and world.random.random() < 0.5

    def on_append(self, log: ModelLog, batch: Batch) -> None:
        """Keeps markers, to send them once more much later."""
        if batch.commit is not None and self._has_epochs(batch):
            self._markers.append((log, batch))

    def _has_epochs(self, batch: Batch) -> bool:
        checker = self._world.checker
        known = checker.on_disk(checker.id_of(batch.producer_id))
        return known is not None and known.value is not None and known.value.client_version >= 2

    # --- the faults -------------------------------------------------------------------------------

    def kill(self) -> None:
        self._stop(cuts_power=False)

    def cut_power(self) -> None:
        self._stop(cuts_power=True)

    def _stop(self, *, cuts_power: bool) -> None:
        world = self._world
        if world.broker is not None:
            world.stop_broker(cuts_power=cuts_power)
            world.later(1, 150, "", self._start)

    def _start(self) -> None:
        if self._world.broker is None:
            self._world.start_broker()

    def fail_appends(self) -> None:
        world = self._world
        self._failing_until_ms = world.now_ms + world.random.randint(3, 100)
        world.note(EVERYONE, "appends begin to fail")

    def jump_clock(self) -> None:
        world = self._world
        jump_ms = world.random.choice(CLOCK_JUMPS_MS)
        world.wall_offset_ms += jump_ms
        world.note(EVERYONE, f"the wall clock jumps by {jump_ms} ms")

    def expire_producers(self) -> None:
        world = self._world
        log = world.random.choice(list(world.disk.logs.values()))
        log.expire_producers()
        world.note(log.name, f"{log.name} forgets producers")

    def send_late_marker(self) -> None:
        """A marker of long ago comes once more, as from a coordinator that was cut off."""
        world = self._world
        if not self._markers or world.broker is None:
            return
        log, batch = world.random.choice(self._markers)
        kind = messages.WriteTxnMarkersRequest.WritableTxnMarker
        topic = kind.WritableTxnMarkerTopic(name=log.topic, partition_indexes=[log.partition])
        marker = kind(
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            transaction_result=batch.commit,
            coordinator_epoch=batch.coordinator_epoch,
            transaction_version=2,
            topics=[topic],
        )
        world.note(
            world.checker.id_of(batch.producer_id),
            f"a late marker of {batch.producer_id}/{batch.producer_epoch} for {log.name}",
        )
        message = messages.WriteTxnMarkersRequest(markers=[marker])
        world.broker.handle("WriteTxnMarkers", WRITE_MARKERS_VERSION, message, lambda _: None)

    def kill_client(self) -> None:
        """A client dies, and another one takes its place."""
        world = self._world
        if world.alive:
            name = world.random.choice(sorted(world.alive))
            world.alive.pop(name).close()
            client = next(each for each in reversed(world.producers) if each.name == name)
            world.note(client.transactional_id, f"{name} dies")
            start = partial(self._start_client, name, client.transactional_id)
            world.later(1, 300, "", start)

    def _start_client(self, name: str, transactional_id: str) -> None:
        if not self._world.is_calm:
            self._world.start_client(name, transactional_id)

    def raise_level(self) -> None:
        """UpdateFeatures: `transaction.version` is one more."""
        world = self._world
        if world.disk.level < 2 and world.broker is not None:
            world.broker.set_level(world.disk.level + 1)
            world.note(EVERYONE, f"transaction.version is {world.disk.level}")

    def lower_level(self) -> None:
        """UpdateFeatures: `transaction.version` is one less."""
        world = self._world
        if world.disk.level > 0 and world.broker is not None:
            world.broker.set_level(world.disk.level - 1)
            world.note(EVERYONE, f"transaction.version is {world.disk.level}")
