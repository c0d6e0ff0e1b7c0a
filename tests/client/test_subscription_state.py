"""Positions and what waits to be handed out, beside a plain model: a number a partition.

Whatever comes in whatever order, the caller gets the records of a partition from its position on,
one after the other, and none that they have not been given moves the position."""

import struct
from itertools import islice

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from client.logs import TOPIC, Logs, damaged
from kafkalite.client.consumer.fetched import Fetched, Given, Record, Waiting
from kafkalite.client.consumer.subscription_state import Need, Partition, SubscriptionState
from kafkalite.errors import CorruptMessageError

PARTITIONS = [(TOPIC, index) for index in range(3)]
LOGS = Logs(dict.fromkeys(range(3), 20))
LOG_END = 60
NOW, LATER = 1.0, 2.0

partitions = st.sampled_from(PARTITIONS)
offsets = st.integers(0, LOG_END)


class Reading(RuleBasedStateMachine):
    """`positions` is the model: what the next record of each partition has to be."""

    def __init__(self) -> None:
        super().__init__()
        self.subscription_state = SubscriptionState()
        self.waiting = Waiting(self.subscription_state)
        self.positions: dict[Partition, int | None] = {}
        self.paused: set[Partition] = set()
        self.flights: list[tuple[Partition, int, int]] = []
        self.lookups: list[tuple[Partition, int]] = []
        self.checks: list[tuple[Partition, int]] = []
        self.leader_epochs = dict.fromkeys(PARTITIONS, 0)

    @initialize()
    def begin(self) -> None:
        self.assign(set(PARTITIONS))
        for partition in PARTITIONS:
            self.subscription_state.seek(partition, 0)
            self.positions[partition] = 0
        self.send_and_answer(2, None)

    # --- what the caller does ---

    @rule(wanted=st.sets(partitions))
    def assign(self, wanted: set[Partition]) -> None:
        self.subscription_state.assign(sorted(wanted))
        self.positions = {each: self.positions.get(each) for each in wanted}
        self.paused &= wanted

    @rule()
    def join_again(self) -> None:
        self.subscription_state.forget_positions()
        self.positions = dict.fromkeys(self.positions)

    @precondition(lambda self: self.positions)
    @rule(data=st.data(), offset=offsets)
    def seek(self, data: st.DataObject, offset: int) -> None:
        partition = data.draw(st.sampled_from(sorted(self.positions)))
        self.subscription_state.seek(partition, offset)
        self.positions[partition] = offset

    @precondition(lambda self: self.positions)
    @rule(data=st.data())
    def pause_or_resume(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.positions)))
        self.paused ^= {partition}
        self.waiting.shut()
        self.subscription_state.pause(partition, is_paused=partition in self.paused)

    @rule()
    def poll(self) -> None:
        for record in self.waiting.take_records(7, Given()):
            self.got(record)

    @rule(count=st.integers(1, 5))
    def iterate(self, count: int) -> None:
        records = self.waiting.open(7)
        for record in islice(records or (), count):
            self.got(record)
        self.waiting.shut()

    @rule(ahead=st.integers(0, 30))
    def fetch(self, ahead: int) -> None:
        for fetched in self.waiting.take_bytes(Given()):
            rows, end = fetched.rows()
            partition = fetched.topic_partition
            for row in rows:
                self.got(Record(*partition, *row))
            assert self.positions[partition] == end
            self.subscription_state.advance(
                partition, self.subscription_state[partition].given + 1 + ahead
            )
            self.subscription_state.advance(partition, end)

    @rule()
    def hear_of_an_error(self) -> None:
        self.subscription_state.take_error(until=NOW)

    def got(self, record: Record) -> None:
        partition = (record.topic, record.partition)
        assert partition not in self.paused
        assert record.offset == self.positions[partition]
        self.positions[partition] = record.offset + 1

    # --- what brokers do ---

    @rule()
    def send_fetches(self) -> None:
        for partition, state in self.subscription_state.items():
            may_be_fetched = state.may_be_fetched(NOW)
            if may_be_fetched and self.subscription_state.led(
                partition, self.leader_epochs[partition]
            ):
                self.flights.append((partition, state.fetch_offset, state.epoch))

    @rule(count=st.integers(1, 3), bad=st.none() | st.integers(0, 2))
    def send_and_answer(self, count: int, bad: int | None) -> None:
        before = len(self.flights)
        self.send_fetches()
        while len(self.flights) > before:
            self.answer(self.flights.pop(), count, bad)

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), count=st.integers(1, 3), bad=st.none() | st.integers(0, 2))
    def answer_one(self, data: st.DataObject, count: int, bad: int | None) -> None:
        index = data.draw(st.integers(0, len(self.flights) - 1))
        self.answer(self.flights.pop(index), count, bad)

    def answer(self, flight: tuple[Partition, int, int], count: int, bad: int | None) -> None:
        partition, offset, epoch = flight
        state = self.subscription_state.of(partition, epoch)
        if state is None or state.fetch_offset != offset or offset == LOG_END:
            return  # a broker has at most one fetch of a partition to answer
        first = offset // 3
        batches = list(LOGS.batches[partition[1]][first : first + count])
        if bad is not None and bad < len(batches):
            batches[bad] = damaged(batches[bad])
        epoch_bytes = struct.pack(">i", self.leader_epochs[partition])
        batches = [each[:12] + epoch_bytes + each[16:] for each in batches]
        fetched = Fetched(*partition, offset, b"".join(batches), [], LOG_END)
        if fetched.end > offset:
            self.waiting.put(fetched, epoch)

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def say_that_it_is_outside(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.flights) - 1))
        partition, _, epoch = self.flights.pop(index)
        if not self.waiting.has(partition):
            self.subscription_state.needs_reset(partition, epoch)

    @rule()
    def look_up(self) -> None:
        for need in (Need.COMMITTED, Need.RESET):
            self.lookups += self.subscription_state.needing(need, LATER).items()

    @rule(partition=partitions)
    def another_leads(self, partition: Partition) -> None:
        self.leader_epochs[partition] += 1

    @rule()
    def check(self) -> None:
        self.checks += self.subscription_state.needing(Need.CHECK, LATER).items()

    @precondition(lambda self: self.checks)
    @rule(data=st.data(), end=offsets)
    def say_where_the_log_ends(self, data: st.DataObject, end: int) -> None:
        index = data.draw(st.integers(0, len(self.checks) - 1))
        partition, epoch = self.checks.pop(index)
        state = self.subscription_state.of(partition, epoch)
        if state is None or state.need is not Need.CHECK:
            return
        if end >= state.given:
            self.subscription_state.holds(partition, epoch)
        else:
            self.subscription_state.cut(partition, epoch, end)
            self.positions[partition] = end

    @precondition(lambda self: self.lookups)
    @rule(data=st.data(), offset=offsets)
    def find(self, data: st.DataObject, offset: int) -> None:
        index = data.draw(st.integers(0, len(self.lookups) - 1))
        partition, epoch = self.lookups.pop(index)
        if self.subscription_state.of(partition, epoch) is not None:
            self.positions[partition] = offset
        self.subscription_state.found(partition, epoch, offset)

    # --- what always holds ---

    @invariant()
    def positions_are_what_the_caller_has_seen(self) -> None:
        assert dict(self.subscription_state.items()).keys() == self.positions.keys()
        for partition, state in self.subscription_state.items():
            assert state.position == self.positions[partition]
            if state.position is not None:
                assert state.position <= state.given <= state.fetch_offset
            assert state.error is None or isinstance(state.error, CorruptMessageError)


TestReading = Reading.TestCase
TestReading.settings = settings(TestReading.settings, stateful_step_count=30)
