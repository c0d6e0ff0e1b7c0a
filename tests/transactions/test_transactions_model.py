"""Invariants of transactional ids under any order of requests, writes that fail or never return,
time, and restarts: T2 to T5 and T7 of the design, over the machine alone."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkalite.coordinator.machine import Append, Effect, Moment, Reply
from kafkalite.coordinator.record_serde import CoordinatorRecord
from kafkalite.protocol import codes
from kafkalite.transactions.machine import (
    AddRequest,
    DueMarkers,
    InitRequest,
    ProducerAnswer,
    TransactionLimits,
    TransactionMachine,
)
from kafkalite.transactions.records import SERDE, transaction_of
from kafkalite.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_MAX,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    End,
    Expected,
    Transaction,
)

NAME = "one"
OPENABLE = {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}
VALID_PREVIOUS = {
    EMPTY: OPENABLE,
    ONGOING: {ONGOING, *OPENABLE},
    PREPARE_COMMIT: {ONGOING},
    PREPARE_ABORT: {ONGOING, *OPENABLE},
    COMPLETE_COMMIT: {PREPARE_COMMIT},
    COMPLETE_ABORT: {PREPARE_ABORT},
}
"""`TransactionState.VALID_PREVIOUS_STATES`."""

VERSIONS = st.sampled_from((0, 2))
WHO = st.integers(0, 1)


class TransactionModel(RuleBasedStateMachine):
    """Two clients of one transactional id, a log, and partitions that take markers."""

    def __init__(self) -> None:
        super().__init__()
        self.level = self.lowest_level = 2
        self.wall_ms = 1_000_000
        self.next_id = 10
        self.log: list[Transaction | None] = []
        """Of the records that are on disk."""
        self.waiting: deque[Append] = deque()
        self.markers: deque[DueMarkers] = deque()
        self.clients: list[Expected | None] = [None, None]
        self.decisions: dict[tuple[int, int], bool] = {}
        """Producer id and epoch of a marker -> commit."""
        self.machine = self.make()

    def make(self) -> TransactionMachine:
        limits = TransactionLimits(900_000, 10_000, 1 << 40, 1 << 40)
        return TransactionMachine(limits, lambda: self.level, self.take_id, self.markers.append)

    def take_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def moment(self) -> Moment:
        return Moment(self.wall_ms, self.wall_ms)

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                effect.send()
            elif isinstance(effect, Append):
                self.waiting.append(effect)

    @initialize(level=st.integers(0, 2), epoch=st.sampled_from((None, 5, EPOCH_MAX - 3)))
    def begin(self, level: int, epoch: int | None) -> None:
        self.level = self.lowest_level = level
        if epoch is not None:
            old = Transaction(10, epoch, 60_000, EMPTY, frozenset(), -1, self.wall_ms, 10)
            self.log.append(old)
            self.restart()

    # --- clients ----------------------------------------------------------------------------------

    @rule(who=WHO, knows=st.booleans(), old=st.booleans())
    def init(self, who: int, knows: bool, old: bool) -> None:
        expected = self.clients[who] if knows else None
        if expected is not None and old:
            expected = expected._replace(producer_epoch=max(0, expected.producer_epoch - 1))

        def told(answer: ProducerAnswer) -> None:
            if answer.error_code == codes.NONE:
                self.clients[who] = Expected(answer.producer_id, answer.producer_epoch)
                assert 0 <= answer.producer_epoch < EPOCH_MAX
                last = self.log[-1]
                assert last is not None
                assert self.clients[who] == (last.producer_id, last.producer_epoch)

        request = InitRequest(60_000, expected)
        self.perform(self.machine.init_producer_id(NAME, request, told, self.moment()))

    @rule(who=WHO, partition=st.integers(0, 2), version=VERSIONS)
    def add(self, who: int, partition: int, version: int) -> None:
        client = self.clients[who]
        if client is None:
            return
        wanted = ("t", partition)

        def told(code: int) -> None:
            if code == codes.NONE:
                # T2: known before a record can be anywhere.
                last = self.log[-1]
                assert last is not None
                assert last.state == ONGOING
                assert wanted in last.partitions
                assert client == (last.producer_id, last.producer_epoch)

        request = AddRequest(*client, frozenset({wanted}), version)
        self.perform(self.machine.add_partitions(NAME, request, told, self.moment()))

    @rule(who=WHO, commit=st.booleans(), version=VERSIONS, late=st.booleans())
    def end(self, who: int, commit: bool, version: int, late: bool) -> None:
        client = self.clients[who]
        if client is None:
            return
        if late:
            client = client._replace(producer_epoch=max(0, client.producer_epoch - 1))

        def told(answer: ProducerAnswer) -> None:
            if answer.error_code != codes.NONE:
                return
            last = self.log[-1]
            assert last is not None
            if last.state == ONGOING or last.state == EMPTY:
                raise AssertionError("answered before it was decided")
            assert (last.state in (PREPARE_COMMIT, COMPLETE_COMMIT)) == commit
            if version == 2:
                assert answer.producer_epoch < EPOCH_MAX
                self.clients[who] = Expected(answer.producer_id, answer.producer_epoch)

        end = End(*client, commit, version)
        self.perform(self.machine.end(NAME, end, told, self.moment()))

    # --- the world --------------------------------------------------------------------------------

    @rule(level=st.integers(0, 2))
    def finalise(self, level: int) -> None:
        """UpdateFeatures, in whatever state the transaction is."""
        self.level = level
        self.lowest_level = min(self.lowest_level, level)

    @rule(count=st.integers(1, 4))
    def write(self, count: int) -> None:
        for _ in range(min(count, len(self.waiting))):
            append = self.waiting.popleft()
            for record in append.records:
                self.on_record(record)
            if append.then is not None:
                self.perform(append.then(codes.NONE, len(self.log), self.moment()))

    @rule()
    def fail(self) -> None:
        if self.waiting:
            append = self.waiting.popleft()
            if append.then is not None:
                code = codes.COORDINATOR_NOT_AVAILABLE
                self.perform(append.then(code, -1, self.moment()))

    def on_record(self, record: tuple[bytes, bytes | None]) -> None:
        read: Any = SERDE.read(*record)
        assert isinstance(read, CoordinatorRecord)
        value = transaction_of(read.value)
        before = self.log[-1] if self.log else None
        if before is not None:
            # T7. A completion that could not be written is made up for by what comes after it.
            is_late = before.state in (PREPARE_COMMIT, PREPARE_ABORT)
            assert before.state in VALID_PREVIOUS[value.state] or is_late, (before, value)
            if before.producer_id == value.producer_id:
                assert before.producer_epoch <= value.producer_epoch
        if value.state in (PREPARE_COMMIT, PREPARE_ABORT):
            # T3 and T4: with epochs for each transaction, one decision for each.
            commit = value.state == PREPARE_COMMIT
            if value.client_version == 2 and value.producer_epoch < EPOCH_MAX:
                key = (value.producer_id, value.producer_epoch)
                assert self.decisions.setdefault(key, commit) == commit
        self.log.append(value)

    @rule()
    def end_markers(self) -> None:
        """T2: markers are due only of what is decided on disk."""
        if self.markers:
            due = self.markers.popleft()
            assert due.transaction.state in (PREPARE_COMMIT, PREPARE_ABORT)
            written = [each for each in self.log if each is not None]
            assert any(
                (each.state, each.producer_id, each.producer_epoch, each.partitions)
                == (
                    due.transaction.state,
                    due.transaction.producer_id,
                    due.transaction.producer_epoch,
                    due.transaction.partitions,
                )
                for each in written
            )
            self.perform(self.machine.on_markers_written(*due, self.moment()))

    @rule(by_ms=st.sampled_from((1, 200, 61_000)))
    def pass_time(self, by_ms: int) -> None:
        self.wall_ms += by_ms
        self.perform(self.machine.on_time(self.moment()))

    @rule()
    def restart(self) -> None:
        """A kill: what is not on disk is lost, and nobody hears of it."""
        self.waiting.clear()
        self.markers.clear()
        self.machine = self.make()
        for value in self.log[-1:]:
            if value is not None:
                self.replay(value)
        is_ready = False
        while not is_ready:
            effects, is_ready = self.machine.on_loaded(self.moment(), 1)
            self.perform(effects)

    def replay(self, value: Transaction) -> None:
        from kafkalite.transactions.records import transaction_record

        # With all that its record said, whatever was the level when it was written.
        read: Any = SERDE.read(*transaction_record(NAME, value, 1))
        self.machine.replay(0, read.key, read.value, 0, -1)

    @invariant()
    def what_ends_goes_on(self) -> None:
        """What is decided has its markers due, or its completion is being written."""
        entry = self.machine.entries.get(NAME)
        if entry is None or entry.is_pending:
            return
        if entry.now.state in (PREPARE_COMMIT, PREPARE_ABORT):
            assert any(due.transaction == entry.now for due in self.markers)

    def teardown(self) -> None:
        """In a world that works everything ends, and a restart finds the same."""
        for _ in range(20):
            self.write(4)
            self.end_markers()
            self.pass_time(200)
        entry = self.machine.entries.get(NAME)
        if entry is not None and self.log:
            last = self.log[-1]
            assert last is not None
            assert not entry.is_pending
            assert entry.now.state not in (PREPARE_COMMIT, PREPARE_ABORT)
            kept = entry.now._replace(last_producer_epoch=-1)
            if self.lowest_level:
                assert kept == last or entry.has_failed_fence
            self.restart()


TestTransactions = TransactionModel.TestCase
