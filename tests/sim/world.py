"""The world of a simulation: one heap of events, one random generator, one clock.

    seed ──► Plan ──► clients ──► network (delay, loss, repetition) ──► broker (`sim.broker`)
                └───► faults: death and restart, power cuts, failing appends, jumps of the clock,
                      expiry, late markers, other versions (`sim.faults`)

Every step of every part is an event, so that a death, a late request or another client's step can
come between any two of them. After so many events the faults end, and everything has to come to
rest: then the next process has to find what this one knew.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from kafkalite import _native
from kafkalite.coordinator.shard import ACTIVE
from kafkalite.metadata.image import TRANSACTIONS_TOPIC
from kafkalite.protocol.java_hash import java_hash
from kafkalite.transactions.records import transaction_record
from kafkalite.transactions.states import EMPTY, STATE_NAMES, Transaction
from sim import clients, truth
from sim.broker import TOPIC, Broker, Disk
from sim.checker import OPENABLE, Checker, ViolationError, kept
from sim.clients import Counters, Habits, Pause, Producer
from sim.faults import FAULTS, Faults
from sim.model_log import EPOCH_MAX, Batch, ModelLog, parsed_batch
from sim.network import Network
from sim.trace import EVERYONE, Trace
from sim.words import described, states_of

WALL_START_MS: Final = 1_700_000_000_000
REST_MS_MAX: Final = 60_000
"""Within this time everything has come to rest once the faults have ended."""


class Plan(NamedTuple):
    """The knobs of one history, drawn from its seed."""

    level: int
    ids: int
    producers: int
    partitions: int
    groups: int
    offsets: float
    """How much of what clients send is offsets."""
    events: int
    loss: float
    repetition: float
    lateness: float
    stalls: float
    """How often a step within the broker takes long."""
    parks: float
    """How often a Produce waits long between the coordinator's word and its append."""
    knows_epochs: float
    bumps: float
    tries_max: tuple[int, ...]
    """The ways of its clients (`Habits`)."""
    faults: tuple[str, ...]
    fault_pause_ms: int
    first_epoch: int | None
    """An epoch near the last one, with which the first id begins; None for none."""


THEMES: Final[tuple[dict[str, Any], ...]] = (
    # Old clients go on in the same epoch, while their requests wait within the broker.
    {
        "knows_epochs": 0.0,
        "bumps": 0.0,
        "tries_max": (1,),
        "parks": 0.4,
        "stalls": 0.01,
        "partitions": 1,
        "offsets": 0.1,
    },
    # Many transactions commit offsets of one partition at the same time.
    {"offsets": 0.9, "ids": 4, "producers": 4, "partitions": 1, "groups": 1},
    # The same client is fenced again and again.
    {"ids": 1, "producers": 4},
)
"""Some seeds have much of one thing, which chance would bring together rarely."""
THEMED: Final = 0.4


def draw_plan(random: Random) -> Plan:
    """The plan of a seed."""
    is_calm = random.random() < 0.3
    plan = Plan(
        level=random.choice((0, 1, 2, 2, 2, 2)),
        ids=random.randint(1, 2),
        producers=random.randint(1, 4),
        partitions=random.randint(1, 3),
        groups=len(clients.GROUPS),
        offsets=random.choice((0.1, 0.3, 0.7)),
        events=random.randint(300, 1_500),
        loss=0.0 if is_calm else random.choice((0.0, 0.02, 0.1)),
        repetition=0.0 if is_calm else random.choice((0.0, 0.05, 0.2)),
        lateness=0.0 if is_calm else random.choice((0.0, 0.05, 0.2)),
        stalls=random.choice((0.01, 0.03, 0.15, 0.3)),
        parks=random.choice((0.0, 0.0, 0.2)),
        knows_epochs=random.choice((0.0, 0.8, 1.0)),
        bumps=random.choice((0.0, 0.6, 1.0)),
        tries_max=random.choice(((1,), (1, 3, 12), (12,))),
        faults=tuple(random.sample(FAULTS, random.randint(1, len(FAULTS)))),
        fault_pause_ms=random.choice((30, 100, 400)),
        first_epoch=EPOCH_MAX - random.randint(2, 5) if random.random() < 0.15 else None,
    )
    theme = random.choice(THEMES) if random.random() < THEMED else {}
    return plan._replace(**theme)


class World:
    """One simulation: `run` it."""

    def __init__(self, seed: int, trace: Trace) -> None:
        self.random = Random(seed)
        self.plan = draw_plan(self.random)
        self.trace = trace
        self.now_ms = 0
        self.wall_offset_ms = WALL_START_MS
        self.event_count = 0
        self.seen: Counter[str] = Counter()
        """How often what has happened, so that a simulation that does nothing is noticed."""
        self.is_calm = False
        """The faults have ended."""
        self.checker = Checker()
        self.disk = Disk(self.plan.partitions, self.plan.level)
        self.checker.logs = self.disk.logs
        for log in self.disk.logs.values():
            log.watch = self._on_append
        self.broker: Broker | None = None
        self.network = Network(self)
        self.faults = Faults(self)
        self.producers: list[Producer] = []
        """Those that are dead included."""
        self.alive: dict[str, clients.Steps] = {}
        """By name, the clients."""
        self._counters = Counters()
        self._heap: list[tuple[int, int, str, Broker | None, Callable[[], None]]] = []
        self._made = 0
        self._positions = dict.fromkeys(range(self.plan.partitions), 0)
        """By partition, where the consumer reads next."""

    @property
    def wall_ms(self) -> int:
        return self.now_ms + self.wall_offset_ms

    # --- events -----------------------------------------------------------------------------------

    def after(self, event: str, step: Callable[[], None], *, least_ms: int = 0) -> int:
        """An event of the present process."""
        pick = self.random.random()
        delay_ms = 0 if pick < 0.5 else self.random.randint(1, 4)
        if pick > 1 - self.plan.stalls:
            delay_ms = self.random.randint(5, 200)
        return self.at(self.now_ms + least_ms + delay_ms, event, step, self.broker)

    def parked_ms(self) -> int:
        """So long a Produce waits before it is appended."""
        is_parked = self.random.random() < self.plan.parks
        return self.random.randint(20, 300) if is_parked else 0

    def at(
        self, due_ms: int, event: str, step: Callable[[], None], owner: Broker | None = None
    ) -> int:
        """An event of that time, of nobody's process unless `owner` says so."""
        self._made += 1
        heapq.heappush(self._heap, (due_ms, self._made, event, owner, step))
        return due_ms

    def later(self, low_ms: int, high_ms: int, event: str, step: Callable[[], None]) -> None:
        """An event of nobody's process, some milliseconds later."""
        self.at(self.now_ms + self.random.randint(low_ms, high_ms), event, step)

    def _next(self) -> None:
        due_ms, _, event, owner, step = heapq.heappop(self._heap)
        self.now_ms = max(self.now_ms, due_ms)
        if owner is not None and owner.is_dead:
            return
        self.event_count += 1
        self.checker.step = self.event_count
        if event:
            self.note("", event)
        step()

    def note(self, subject: str, sentence: str) -> None:
        """A line of the trace (`Trace.add`)."""
        self.trace.add(self.now_ms, subject, sentence)

    def fail(self, invariant: str, sentence: str) -> None:
        """An invariant does not hold."""
        raise ViolationError(invariant, sentence)

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        """The whole of it. Raises ViolationError."""
        self.note(EVERYONE, f"{self.plan}")
        self._seed_epochs()
        self.start_broker()
        for index in range(self.plan.producers):
            self.start_client(f"client {index}", f"id{index % self.plan.ids}")
        self.later(1, self.plan.fault_pause_ms, "", self.faults.strike)
        self.later(1, 30, "", self._read)
        while self.event_count < self.plan.events:
            self._next()
        self.rest()
        self._check_end()

    def _seed_epochs(self) -> None:
        """The first id has used up nearly all epochs."""
        epoch = self.plan.first_epoch
        if epoch is not None:
            old = Transaction(900, epoch, 60_000, EMPTY, frozenset(), -1, self.wall_ms, 900)
            self.seed_state("id0", old)

    def seed_state(self, transactional_id: str, state: Transaction) -> None:
        """The state of an id that an earlier process has left."""
        builder = _native.BatchBuilder("none", base_sequence=0)
        record = transaction_record(transactional_id, state, min(self.disk.level, 1))
        builder.extend(self.wall_ms, [record])
        partition = java_hash(transactional_id) % self.disk.counts[TRANSACTIONS_TOPIC]
        log = self.disk.logs[TRANSACTIONS_TOPIC, partition]
        log.append_of_coordinator(parsed_batch(builder.finish()), None)
        log.flush(log.end_offset)

    def start_broker(self) -> None:
        """Another process opens the directory."""
        self.broker = Broker(self, self.disk)
        self.note(EVERYONE, f"process {self.disk.leader_epoch} starts")
        self.broker.start()

    def stop_broker(self, *, cuts_power: bool) -> None:
        """The process dies, and with the power also what is not on disk."""
        assert self.broker is not None
        self.broker.is_dead = True
        self.seen.update(f"death in {each}" for each in self.checker.states_on_disk())
        self.broker = None
        self.note(EVERYONE, "the power is cut" if cuts_power else "the process is killed")
        for log in self.disk.logs.values():
            kept = None
            if cuts_power:
                loose = sum(1 for each in log.batches if each.last_offset >= log.flushed_offset)
                kept = self.random.randint(0, loose)
            lost = log.restart(kept)
            if lost:
                self.seen["loss of what was not on disk"] += 1
                self.note(log.name, f"{log.name} loses {lost} batch(es), ends at {log.end_offset}")
        self.checker.on_restart()

    # --- clients ----------------------------------------------------------------------------------

    def start_client(self, name: str, transactional_id: str) -> None:
        """A client that has nothing but its transactional id."""
        draw = self.random
        habits = Habits(
            knows_epochs=draw.random() < self.plan.knows_epochs,
            bumps=draw.random() < self.plan.bumps,
            commits=draw.choice((0.5, 0.8, 1.0)),
            sleeps=draw.choice((0.0, 0.05, 0.2)),
            abandons=draw.choice((0.0, 0.05)),
            tries_max=draw.choice(self.plan.tries_max),
            offsets=self.plan.offsets,
            groups=clients.GROUPS[: self.plan.groups],
            timeout_ms=draw.choice((200, 600, 1_500)),
        )
        random = Random(draw.random())
        partitions = self.plan.partitions
        client = Producer(name, transactional_id, habits, random, self._counters, partitions)
        self.producers.append(client)
        self.alive[name] = client.run()
        self._resume(client, self.alive[name], None)

    def _resume(self, client: Producer, life: clients.Steps, answer: Any) -> None:
        if self.alive.get(client.name) is not life:
            return
        client.level = self.disk.level
        try:
            step = life.send(answer)
        except StopIteration:
            del self.alive[client.name]
            return
        go_on = partial(self._resume, client, life)
        if isinstance(step, Pause):
            self.at(self.now_ms + step.pause_ms, "", partial(go_on, None))
        else:
            self.network.send(client.name, step, go_on)

    # --- readers ----------------------------------------------------------------------------------

    def _read(self) -> None:
        """A consumer reads on in one of the partitions, and a group asks for its offsets."""
        partition = self.random.randrange(self.plan.partitions)
        self._read_on(partition)
        if self.broker is not None:
            group_id = self.random.choice(clients.GROUPS)
            asked = self.checker.places_of_offsets()
            told = partial(self.checker.on_offsets, group_id, asked=asked)
            self.broker.fetch_offsets(group_id, told)
        self.later(1, 200 if self.is_calm else 40, "", self._read)

    def _read_on(self, partition: int) -> None:
        log = self.disk.logs[TOPIC, partition]
        start = self._positions[partition]
        values, end = log.read_committed(start)
        self._positions[partition] = end
        self.checker.on_read(log, start, end, values)

    # --- what the broker tells and asks -----------------------------------------------------------

    def _on_append(self, log: ModelLog, batch: Batch) -> None:
        if self.trace.is_on:
            subject = self.checker.id_of(batch.producer_id)
            if log.topic == TRANSACTIONS_TOPIC:
                subject = states_of(batch)[0][0]
            self.note(subject, described(log, batch))
        self.checker.on_append(log, batch)
        if batch.commit is not None:
            self.seen["record marker"] += 1
        elif log.topic == TRANSACTIONS_TOPIC:
            for _, state in states_of(batch):
                name = "tombstone" if state is None else STATE_NAMES[state.state]
                self.seen[f"record {name}"] += 1
        self.faults.on_append(log, batch)

    def fails(self, _topic: str) -> bool:
        """An append of a coordinator fails."""
        return self.faults.fails_append()

    def on_failed_append(self, topic: str, batch: Batch) -> None:
        """An append has failed."""
        if topic == TRANSACTIONS_TOPIC:
            self.checker.on_failed_append(batch)

    def transaction_of(self, producer_id: int) -> int:
        """The number of the transaction that is open, by what is on disk."""
        return self.checker.transaction_of(producer_id)

    # --- the end ----------------------------------------------------------------------------------

    def rest(self) -> None:
        """Faults end, clients finish, and everything comes to rest."""
        self.note(EVERYONE, "the faults end")
        self.is_calm = True
        for each in self.producers:
            each.is_stopping = True
        if self.broker is None:
            self.start_broker()
        end_ms = self.now_ms + REST_MS_MAX
        while self.now_ms < end_ms and not self._is_at_rest():
            self._next()

    def _is_at_rest(self) -> bool:
        """Nothing is due but timers and reads, and no transaction is open."""
        if self.alive:
            return False
        broker = self.broker
        assert broker is not None
        shards = [*broker.transactions.runtime.shards, *broker.groups.runtime.shards]
        if not shards or any(each.state != ACTIVE or each.is_writing for each in shards):
            return False
        logs = self.disk.logs.values()
        if any(log.end_offset != log.flushed_offset or truth.open_producers(log) for log in logs):
            return False
        return self.checker.is_decided() and not any(
            entry.is_pending or entry.now.state not in OPENABLE
            for shard in broker.transactions.runtime.shards
            for entry in shard.machine.entries.values()
        )

    def _check_end(self) -> None:
        broker = self.broker
        assert broker is not None
        for partition in self._positions:
            self._read_on(partition)
        self.checker.check_rest()
        if broker.held_bytes:
            raise ViolationError("memory", f"{broker.held_bytes} bytes are held for nobody")
        before = self._known()
        attempts = [attempt for each in self.producers for attempt in each.attempts]
        self.seen.update(f"attempt that {each.fate}" for each in attempts)
        self.checker.check_attempts(attempts, self.plan.partitions)
        self.stop_broker(cuts_power=False)
        self._heap.clear()  # requests that are still under way
        self.wall_offset_ms = 0  # nothing expires while it is loaded
        self.start_broker()
        end_ms = self.now_ms + 5_000
        while self.now_ms < end_ms and not self._is_at_rest():
            self._next()
        after = self._known()
        if before != after:
            raise ViolationError("T6", f"known was {before}, loaded is {after}")
        self.checker.check_loaded(after[0])

    def _known(self) -> Any:
        """All that the coordinators know, and that records keep at every level."""
        broker = self.broker
        assert broker is not None
        states = {
            name: kept(entry.now)
            for shard in broker.transactions.runtime.shards
            for name, entry in shard.machine.entries.items()
        }
        offsets = {
            (group, partition): found.offset
            for shard in broker.groups.runtime.shards
            for group in clients.GROUPS
            for partition in range(self.plan.partitions)
            if (found := shard.machine.offsets.get(group, TOPIC, partition)) is not None
        }
        return states, offsets
