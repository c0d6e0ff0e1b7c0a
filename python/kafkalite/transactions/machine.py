"""All transactional ids of one partition of `__transaction_state`.

    request ──► pending ──► record ──► on disk: the state holds, the answer leaves
                                  └──► failed: as before, the client hears why
    Prepare* on disk ──► markers to every partition ──► Complete*

A state counts once it is on disk, and meanwhile others are told CONCURRENT_TRANSACTIONS, but for
Complete*: that the transaction is over was decided before, so it counts at once, and is written
without anybody waiting. A fence counts before it is on disk too where the version of transactions
is below 2: the old epoch stays out, whatever becomes of the write.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kafkalite.coordinator.machine import Append, Effect, FirstAnswer, Moment, Note, Reply
from kafkalite.coordinator.record_serde import Unread
from kafkalite.errors import MalformedRequestError
from kafkalite.protocol import codes
from kafkalite.transactions import states
from kafkalite.transactions.records import transaction_of, transaction_record
from kafkalite.transactions.states import (
    CLIENT_TV_OF_EPOCHS,
    NO_ID,
    OPENABLE,
    PREPARED,
    End,
    Expected,
    TopicPartition,
    Transaction,
)

STEP_IDS: Final = 1_000
"""Transactional ids that are looked at before other work has its turn."""
STEP_PAUSE_MS: Final = 1
RETRY_MS: Final = 100


class TransactionLimits(NamedTuple):
    """The broker's configuration."""

    timeout_ms_max: int
    timeout_interval_ms: int
    """Between two looks for transactions that took too long."""
    expiration_ms: int
    expiry_interval_ms: int
    """Between two looks for ids that nobody has used for so long."""


class InitRequest(NamedTuple):
    """InitProducerId with a transactional id."""

    timeout_ms: int
    expected: Expected | None


class ProducerAnswer(NamedTuple):
    """The answer to InitProducerId and EndTxn."""

    error_code: int
    producer_id: int = NO_ID
    producer_epoch: int = NO_ID


class AddRequest(NamedTuple):
    """AddPartitionsToTxn and AddOffsetsToTxn."""

    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int


class DueMarkers(NamedTuple):
    """A transaction whose markers are to be written to all its partitions."""

    transactional_id: str
    transaction: Transaction


class Entry:
    """A transactional id: what is on disk, and what is being written."""

    __slots__ = ("has_failed_fence", "is_pending", "now", "waiters")

    def __init__(self, now: Transaction) -> None:
        self.now = now
        self.is_pending = False
        """A transition is being written."""
        self.has_failed_fence = False
        self.waiters: list[Callable[[None], None]] = []
        """Callbacks that wait until nothing is pending and the transaction is not ending."""


AnswerTo = Callable[[ProducerAnswer], None]
TakeId = Callable[[], int]
"""Gives a producer id that nobody has; NO_ID while there is none."""


class TransactionMachine:
    """One partition. Used by the control thread only."""

    def __init__(
        self,
        limits: TransactionLimits,
        level: Callable[[], int],
        take_id: TakeId,
        write_markers: Callable[[DueMarkers], None],
    ) -> None:
        """`level` gives the cluster's `transaction.version`."""
        self.entries: dict[str, Entry] = {}
        self._limits = limits
        self._level = level
        self._take_id = take_id
        self._write_markers = write_markers
        self._unready: list[str] | None = None
        """Once all is replayed: ids that are to be looked at, the first last."""
        self._timeouts_due_ms: int | None = None
        self._expiry_due_ms: int | None = None
        self._expiring: list[str] = []
        self._timing_out: list[str] = []
        """Ids that are still to be looked at, the first last; as in `_expiring`."""
        self._incomplete: dict[str, tuple[Entry, Transaction]] = {}
        """Transactions that are over, of which the log does not say so yet."""
        self._retry_due_ms: int | None = None

    # --- the log ----------------------------------------------------------------------------------

    def replay(self, _kind: int, key: Any, value: Any, _offset: int, _producer_id: int) -> None:
        """As `Machine.replay`."""
        if isinstance(value, Unread):
            raise MalformedRequestError(value.why)
        if value is None:
            self.entries.pop(key.transactional_id, None)
        else:
            self.entries[key.transactional_id] = Entry(transaction_of(value))

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """As `Machine.end_transaction`: there are none in this topic."""

    def on_loaded(self, moment: Moment, count_max: int) -> tuple[Sequence[Effect], bool]:
        """As `Machine.on_loaded`. Of what was decided the markers are written, all of them: which
        ones are there already nobody knows."""
        if self._unready is None:
            self._unready = list(reversed(self.entries))
        effects: list[Effect] = []
        for _ in range(min(count_max, len(self._unready))):
            transactional_id = self._unready.pop()
            entry = self.entries[transactional_id]
            if entry.now.state in PREPARED:
                effects += self._send_markers(transactional_id, entry, moment)
        if not self._unready:
            self._timeouts_due_ms = moment.now_ms + self._limits.timeout_interval_ms
            self._expiry_due_ms = moment.now_ms + self._limits.expiry_interval_ms
        return effects, not self._unready

    def on_topics(self, _deleted: Collection[str], _moment: Moment) -> Sequence[Effect]:
        """As `Machine.on_topics`: a partition that is gone needs no marker."""
        return ()

    def unload(self) -> Sequence[Effect]:
        """As `Machine.unload`."""
        entries, self.entries = self.entries, {}
        return [effect for entry in entries.values() for effect in _wake(entry)]

    # --- time -------------------------------------------------------------------------------------

    def next_wake_ms(self) -> int | None:
        """As `Machine.next_wake_ms`."""
        due = (self._timeouts_due_ms, self._expiry_due_ms, self._retry_due_ms)
        return min((each for each in due if each is not None), default=None)

    def on_time(self, moment: Moment) -> Sequence[Effect]:
        """As `Machine.on_time`."""
        effects: list[Effect] = []
        if self._timeouts_due_ms is not None and self._timeouts_due_ms <= moment.now_ms:
            effects += self._abort_timed_out(moment)
        if self._expiry_due_ms is not None and self._expiry_due_ms <= moment.now_ms:
            effects += self._expire(moment)
        if self._retry_due_ms is not None and self._retry_due_ms <= moment.now_ms:
            self._retry_due_ms = None
            incomplete, self._incomplete = self._incomplete, {}
            for transactional_id, (entry, over) in incomplete.items():
                if self.entries.get(transactional_id) is not entry or entry.now is not over:
                    continue
                if entry.is_pending:
                    # What is being written says it too, unless it fails.
                    self._note_incomplete(transactional_id, entry, moment)
                else:
                    effects += self._write_completion(transactional_id, entry)
        return effects

    def _abort_timed_out(self, moment: Moment) -> list[Effect]:
        """Ends transactions that are open for longer than their producers have said, some of them;
        goes on with the next soon."""
        left = self._timing_out or list(reversed(self.entries))
        effects: list[Effect] = []
        for _ in range(min(STEP_IDS, len(left))):
            transactional_id = left.pop()
            entry = self.entries.get(transactional_id)
            if entry is None or entry.is_pending or entry.now.state != states.ONGOING:
                continue
            now = entry.now
            if now.start_ms + now.timeout_ms < moment.wall_ms:
                sentence = f"the transaction of {transactional_id!r} has timed out, and is aborted"
                effects.append(Note(sentence))
                effects += self._fence(transactional_id, entry, _ignore, moment)
        self._timing_out = left
        pause_ms = STEP_PAUSE_MS if left else self._limits.timeout_interval_ms
        self._timeouts_due_ms = moment.now_ms + pause_ms
        return effects

    def _expire(self, moment: Moment) -> list[Effect]:
        """Forgets ids that nobody has used for long, some of them; goes on with the next soon."""
        expiring = self._expiring or list(reversed(self.entries))
        effects: list[Effect] = []
        oldest_ms = moment.wall_ms - self._limits.expiration_ms
        for _ in range(min(STEP_IDS, len(expiring))):
            transactional_id = expiring.pop()
            entry = self.entries.get(transactional_id)
            if entry is None or entry.is_pending or entry.now.state not in OPENABLE:
                continue
            if entry.now.update_ms <= oldest_ms:
                entry.is_pending = True
                tombstone = transaction_record(transactional_id, None, 0)
                gone = partial(self._on_expired, transactional_id, entry)
                effects.append(Append([tombstone], gone))
        self._expiring = expiring
        pause_ms = STEP_PAUSE_MS if expiring else self._limits.expiry_interval_ms
        self._expiry_due_ms = moment.now_ms + pause_ms
        return effects

    def _on_expired(
        self, transactional_id: str, entry: Entry, error_code: int, _offset: int, _moment: Moment
    ) -> Sequence[Effect]:
        entry.is_pending = False
        if error_code == codes.NONE and self.entries.get(transactional_id) is entry:
            del self.entries[transactional_id]
        return _wake(entry)

    # --- requests ---------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, request: InitRequest, reply: AnswerTo, moment: Moment
    ) -> Sequence[Effect]:
        """InitProducerId. COORDINATOR_LOAD_IN_PROGRESS where there is no producer id to be had."""
        timeout_ms, expected = request
        entry = self.entries.get(transactional_id)
        next_id = NO_ID
        if entry is None:
            next_id = self._take_id()
            if next_id == NO_ID:
                return [_refuse(reply, codes.COORDINATOR_LOAD_IN_PROGRESS)]
            entry = Entry(states.created(next_id, timeout_ms, moment.wall_ms))
            self.entries[transactional_id] = entry
        now = entry.now
        if entry.is_pending:
            return [_refuse(reply, codes.CONCURRENT_TRANSACTIONS)]
        code = states.check_expected(now, expected)
        if not code and now.state in PREPARED:
            code = codes.CONCURRENT_TRANSACTIONS
        if code:
            return [_refuse(reply, code)]
        if now.state == states.ONGOING:
            return self._fence(transactional_id, entry, reply, moment)
        if states.init_needs_id(now, expected):
            next_id = self._take_id()
            if next_id == NO_ID:
                return [_refuse(reply, codes.COORDINATOR_LOAD_IN_PROGRESS)]
        outcome = states.initialised(now, expected, timeout_ms, next_id, moment.wall_ms)
        if isinstance(outcome, int):
            return [_refuse(reply, outcome)]
        answer = ProducerAnswer(codes.NONE, outcome.producer_id, outcome.producer_epoch)
        told = partial(_told, FirstAnswer(reply), answer)
        return self._write(transactional_id, entry, outcome, told)

    def _fence(
        self, transactional_id: str, entry: Entry, reply: AnswerTo, moment: Moment
    ) -> list[Effect]:
        """Aborts an open transaction, and shuts its producer out. Who asked is to ask again."""
        version = CLIENT_TV_OF_EPOCHS if self._level() >= CLIENT_TV_OF_EPOCHS else 0
        fenced = states.fenced(entry.now, version, entry.has_failed_fence)
        next_id = NO_ID
        if states.end_needs_id(fenced, version) and fenced.producer_epoch < states.EPOCH_MAX:
            next_id = self._take_id()
            if next_id == NO_ID:
                return [_refuse(reply, codes.COORDINATOR_LOAD_IN_PROGRESS)]
        prepared = states.prepared(fenced, False, version, next_id, moment.wall_ms)
        if version < CLIENT_TV_OF_EPOCHS:
            # Nobody of the old epoch gets in, whatever becomes of the write.
            entry.now = fenced
        told = partial(self._on_fenced, entry, FirstAnswer(reply))
        return self._write(transactional_id, entry, prepared, told)

    def _on_fenced(self, entry: Entry, reply: AnswerTo, error_code: int) -> Sequence[Effect]:
        entry.has_failed_fence = error_code != codes.NONE
        return [_refuse(reply, error_code or codes.CONCURRENT_TRANSACTIONS)]

    def check_partitions(
        self, transactional_id: str, request: AddRequest
    ) -> dict[TopicPartition, int]:
        """AddPartitionsToTxn that only verifies: a code for each partition."""
        entry = self.entries.get(transactional_id)
        code = codes.INVALID_PRODUCER_ID_MAPPING
        known: frozenset[TopicPartition] = frozenset()
        if entry is not None:
            code = states.check_producer(entry.now, request.producer_id, request.producer_epoch)
            if not code and entry.now.state in PREPARED:
                code = codes.CONCURRENT_TRANSACTIONS
            known = entry.now.partitions
        return {
            each: code or (codes.NONE if each in known else codes.TRANSACTION_ABORTABLE)
            for each in request.partitions
        }

    def add_partitions(
        self,
        transactional_id: str,
        request: AddRequest,
        reply: Callable[[int], None],
        moment: Moment,
    ) -> Sequence[Effect]:
        """AddPartitionsToTxn and AddOffsetsToTxn: one code for all."""
        entry = self.entries.get(transactional_id)
        if entry is None:
            return [Reply(reply, codes.INVALID_PRODUCER_ID_MAPPING)]
        if entry.is_pending:
            return [Reply(reply, codes.CONCURRENT_TRANSACTIONS)]
        now = entry.now
        code = states.check_producer(now, request.producer_id, request.producer_epoch)
        if not code and now.state in PREPARED:
            code = codes.CONCURRENT_TRANSACTIONS
        if not code and request.client_version and not self._level():
            # Its record has no room for that.
            code = codes.UNSUPPORTED_VERSION
        if code or (now.state == states.ONGOING and request.partitions <= now.partitions):
            return [Reply(reply, code)]
        outcome = states.added(now, request.partitions, request.client_version, moment.wall_ms)
        told = partial(_told_code, FirstAnswer(reply))
        return self._write(transactional_id, entry, outcome, told)

    def end(
        self, transactional_id: str, end: End, reply: AnswerTo, moment: Moment
    ) -> Sequence[Effect]:
        """EndTxn. COORDINATOR_LOAD_IN_PROGRESS where there is no producer id to be had."""
        entry = self.entries.get(transactional_id)
        if entry is None:
            return [_refuse(reply, codes.INVALID_PRODUCER_ID_MAPPING)]
        now = entry.now
        has_epochs = end.client_version >= CLIENT_TV_OF_EPOCHS
        if has_epochs and entry.is_pending:
            return [_refuse(reply, codes.CONCURRENT_TRANSACTIONS)]
        if has_epochs and not self._level():
            return [_refuse(reply, codes.UNSUPPORTED_VERSION)]
        code = states.judge_end(now, end)
        if not has_epochs and entry.is_pending:
            fenced = states.check_producer(now, end.producer_id, end.producer_epoch)
            code = fenced or codes.CONCURRENT_TRANSACTIONS
        if code == codes.NONE:
            return [Reply(reply, _ended(now, end))]
        if code is not None:
            return [_refuse(reply, code)]
        next_id = NO_ID
        if states.end_needs_id(now, end.client_version):
            next_id = self._take_id()
            if next_id == NO_ID:
                return [_refuse(reply, codes.COORDINATOR_LOAD_IN_PROGRESS)]
        outcome = states.prepared(now, end.commit, end.client_version, next_id, moment.wall_ms)
        told = partial(_told, FirstAnswer(reply), _ended(outcome, end))
        return self._write(transactional_id, entry, outcome, told)

    def when_settled(self, transactional_id: str, waiter: Callable[[None], None]) -> bool:
        """Calls `waiter` once nothing is pending and no markers are due; False if that is so."""
        entry = self.entries.get(transactional_id)
        if entry is None or not (entry.is_pending or entry.now.state in PREPARED):
            return False
        entry.waiters.append(waiter)
        return True

    def stop_waiting(self, transactional_id: str, waiter: Callable[[None], None]) -> None:
        """Takes a waiter back that may not have been called."""
        entry = self.entries.get(transactional_id)
        if entry is not None and waiter in entry.waiters:
            entry.waiters.remove(waiter)

    # --- writing ----------------------------------------------------------------------------------

    def _write(
        self,
        transactional_id: str,
        entry: Entry,
        outcome: Transaction,
        told: Callable[[int], Sequence[Effect]],
    ) -> list[Effect]:
        """Has a transition written; `told` says what leaves once it is on disk, or is not. One that
        is overdue stays pending, since it is in the log. Kafka goes back to the state before it,
        and may then decide against its log (`TransactionStateManager.appendTransactionToLog`)."""
        entry.is_pending = True
        then = partial(self._on_written, transactional_id, entry, outcome, told)
        overdue = partial(_told_overdue, told)
        return [Append([self._record(transactional_id, outcome)], then, overdue=overdue)]

    def _record(
        self, transactional_id: str, transaction: Transaction
    ) -> tuple[bytes, bytes | None]:
        return transaction_record(transactional_id, transaction, min(self._level(), 1))

    def _on_written(
        self,
        transactional_id: str,
        entry: Entry,
        outcome: Transaction,
        told: Callable[[int], Sequence[Effect]],
        error_code: int,
        _offset: int,
        moment: Moment,
    ) -> Sequence[Effect]:
        entry.is_pending = False
        if error_code == codes.NONE and self.entries.get(transactional_id) is not entry:
            # Unloaded meanwhile. Who has loaded the partition since has found it in the log, and
            # sends the markers: those of two would come apart, and a late one would end the
            # producer's next transaction.
            error_code = codes.NOT_COORDINATOR
        effects = [*told(error_code)]
        if error_code != codes.NONE:
            if entry.now.producer_epoch == NO_ID:
                # Nobody has been given it.
                self.entries.pop(transactional_id, None)
            return [*effects, *_wake(entry)]
        entry.now = outcome
        if outcome.state in PREPARED:
            return [*effects, *self._send_markers(transactional_id, entry, moment)]
        return [*effects, *_wake(entry)]

    def _send_markers(
        self, transactional_id: str, entry: Entry, moment: Moment
    ) -> Sequence[Effect]:
        if not entry.now.partitions:
            return self.on_markers_written(transactional_id, entry.now, moment)
        return [Reply(self._write_markers, DueMarkers(transactional_id, entry.now))]

    def needs_markers(self, due: DueMarkers) -> bool:
        """True until all markers of the transaction are known to be written."""
        entry = self.entries.get(due.transactional_id)
        return entry is not None and entry.now == due.transaction and entry.now.state in PREPARED

    def on_markers_written(
        self, transactional_id: str, transaction: Transaction, moment: Moment
    ) -> Sequence[Effect]:
        """All markers of a transaction are on disk, or need not be written."""
        entry = self.entries.get(transactional_id)
        if entry is None or not self.needs_markers(DueMarkers(transactional_id, transaction)):
            return ()
        entry.now = states.completed(entry.now, moment.wall_ms)
        entry.has_failed_fence = False
        return [*self._write_completion(transactional_id, entry), *_wake(entry)]

    def _write_completion(self, transactional_id: str, entry: Entry) -> list[Effect]:
        """Nobody waits for it: what follows in the partition is on disk only if it is, too."""
        then = partial(self._on_completion, transactional_id, entry, entry.now)
        return [Append([self._record(transactional_id, entry.now)], then)]

    def _on_completion(
        self,
        transactional_id: str,
        entry: Entry,
        written: Transaction,
        error_code: int,
        _offset: int,
        moment: Moment,
    ) -> Sequence[Effect]:
        is_present = entry.now is written and self.entries.get(transactional_id) is entry
        if error_code != codes.NONE and is_present:
            self._note_incomplete(transactional_id, entry, moment)
        return ()

    def _note_incomplete(self, transactional_id: str, entry: Entry, moment: Moment) -> None:
        """Has the end of a transaction written later, if nothing else is until then."""
        self._incomplete[transactional_id] = (entry, entry.now)
        self._retry_due_ms = moment.now_ms + RETRY_MS


def _ended(transaction: Transaction, end: End) -> ProducerAnswer:
    """EndTxn has succeeded: with epochs for each transaction the client is told the next one."""
    if end.client_version < CLIENT_TV_OF_EPOCHS:
        return ProducerAnswer(codes.NONE)
    return ProducerAnswer(codes.NONE, *states.next_producer(transaction))


def _refuse(reply: AnswerTo, code: int) -> Reply[ProducerAnswer]:
    return Reply(reply, ProducerAnswer(code))


def _told(reply: AnswerTo, answer: ProducerAnswer, error_code: int) -> Sequence[Effect]:
    return [_refuse(reply, error_code) if error_code else Reply(reply, answer)]


def _told_code(reply: Callable[[int], None], error_code: int) -> Sequence[Effect]:
    return [Reply(reply, error_code)]


def _told_overdue(
    told: Callable[[int], Sequence[Effect]], error_code: int, _offset: int, _moment: Moment
) -> Sequence[Effect]:
    return told(error_code)


def _ignore(_answer: ProducerAnswer) -> None:
    """Nobody has asked for it."""


def _wake(entry: Entry) -> list[Effect]:
    waiters, entry.waiters = entry.waiters, []
    return [Reply(each, None) for each in waiters]
