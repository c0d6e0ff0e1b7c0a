"""The invariants of transactions, held against the logs at every append, answer and read.

T1  a reader of what is committed sees all of a transaction or nothing of it, and so with offsets
T2  each partition of a transaction gets one marker, all of the same result, behind all its records;
    its coordinator knows of the partition, on disk, before a record is appended
T3  what `Prepare*` on disk says comes to pass; `Complete*` is appended once all markers are on
    disk; EndTxn is answered once `Prepare*` is
T4  with version 2 an epoch is one transaction: who commits has committed what he was promised
T5  a producer that was fenced gets nothing in from the answer on
T6  what the next process loads is what this one knew
T7  each state that is written may follow the one before it in Kafka

Nothing here asks the product what it thinks: the truth is in the batches (`sim.truth`), with the
number of the step at which each was appended.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kafkalite.groups.offsets import OffsetsAnswer
from kafkalite.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kafkalite.protocol import codes
from kafkalite.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    NO_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    STATE_NAMES,
    Transaction,
)
from sim import truth
from sim.clients import Ask, Attempt
from sim.model_log import EPOCH_MAX, NO_TRANSACTION, Batch, ModelLog
from sim.words import in_words, states_of

OPENABLE: Final = {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}
VALID_PREVIOUS: Final = {
    EMPTY: OPENABLE,
    ONGOING: {ONGOING, *OPENABLE},
    PREPARE_COMMIT: {ONGOING},
    PREPARE_ABORT: {ONGOING, *OPENABLE},
    COMPLETE_COMMIT: {PREPARE_COMMIT},
    COMPLETE_ABORT: {PREPARE_ABORT},
}
"""`TransactionState.validPreviousStates` of Kafka."""
BEYOND_EPOCHS: Final = EPOCH_MAX + 1

Place = tuple[str, int]


class ViolationError(AssertionError):
    """An invariant does not hold. `subject` is the transactional id, or the log, it is about."""

    def __init__(self, invariant: str, sentence: str, subject: str = "") -> None:
        super().__init__(f"{invariant}: {sentence}")
        self.invariant = invariant
        self.subject = subject


class Written(NamedTuple):
    """A record of `__transaction_state`; `value` is None for a tombstone."""

    log: ModelLog
    offset: int
    value: Transaction | None
    step: int
    number: int
    """How many transactions of the id have been decided before this record."""

    @property
    def is_on_disk(self) -> bool:
        return self.offset < self.log.flushed_offset


class Seen(NamedTuple):
    """A batch of a producer in a partition. `commit` is None unless it is a marker."""

    offset: int
    producer_id: int
    producer_epoch: int
    commit: bool | None
    number: int
    """The transaction of its id that a record belongs to."""
    step: int


class Checker:
    """Watches one world."""

    def __init__(self) -> None:
        self.step = 0
        self.excused: set[tuple[int, int]] = set()
        """Producers of old versions, of which a request came after their next transaction had
        begun: nobody can tell then what it belongs to, and Kafka cannot either."""
        self._written: dict[str, list[Written]] = {}
        self._ids: dict[int, str] = {}
        """Producer id -> transactional id."""
        self._seen: dict[Place, list[Seen]] = {}
        self._fenced: dict[int, int] = {}
        """Producer id -> the lowest epoch that may still write."""
        self._given: set[tuple[int, int]] = set()
        self._lost_completions: set[str] = set()

    # --- what is known ----------------------------------------------------------------------------

    def id_of(self, producer_id: int) -> str:
        """The transactional id that a producer id belongs to."""
        return self._ids.get(producer_id, "")

    def on_disk(self, transactional_id: str) -> Written | None:
        """The newest record of the id that is on disk."""
        written = reversed(self._written.get(transactional_id, ()))
        return next((each for each in written if each.is_on_disk), None)

    def transaction_of(self, producer_id: int) -> int:
        """The number of the transaction that is open, or being ended, by what is on disk."""
        known = self.on_disk(self.id_of(producer_id))
        if known is None or known.value is None:
            return NO_TRANSACTION
        return known.number - 1 if known.value.state in PREPARED else known.number

    def _begun(self, transactional_id: str, number: int) -> Transaction | None:
        """A transaction before its end was decided. Fences may have raised its epoch more than once
        since, if some of them could not be written."""
        for each in reversed(self._written.get(transactional_id, ())):
            is_open = each.value is not None and each.value.state == ONGOING
            if is_open and each.number == number and each.is_on_disk:
                return each.value
        return None

    def _open_of(self, place: Place, producer_id: int) -> Seen | None:
        """The first record of the producer's open transaction in a partition."""
        first = None
        for each in reversed(self._seen.get(place, ())):
            if each.producer_id == producer_id:
                if each.commit is not None:
                    break
                first = each
        return first

    # --- appends ----------------------------------------------------------------------------------

    def on_append(self, log: ModelLog, batch: Batch) -> None:
        """A batch is about to be there."""
        place = (log.topic, log.partition)
        if log.topic == TRANSACTIONS_TOPIC:
            self._check_states(log, batch)
        elif batch.producer_id != -1:
            number = NO_TRANSACTION
            if batch.commit is None:
                number = self._check_records(place, batch)
            else:
                self._check_marker(place, batch)
            seen = Seen(
                batch.base_offset,
                batch.producer_id,
                batch.producer_epoch,
                batch.commit,
                number,
                self.step,
            )
            self._seen.setdefault(place, []).append(seen)

    def _check_records(self, place: Place, batch: Batch) -> int:
        """T2, T5: records of a transaction. Gives its number."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        transactional_id = self.id_of(producer_id)
        what = f"records of {producer_id}/{epoch} in {name_of(place)}"
        if epoch < self._fenced.get(producer_id, 0):
            raise ViolationError("T5", f"{what}, who was fenced", transactional_id)
        known = self.on_disk(transactional_id)
        value = None if known is None else known.value
        if known is None or value is None or value.state not in (ONGOING, *PREPARED):
            raise ViolationError(
                "T2", f"{what}, and no transaction is open: {in_words(value)}", transactional_id
            )
        number = self.transaction_of(producer_id)
        opened = self._begun(transactional_id, number)
        if opened is None or (opened.producer_id, opened.producer_epoch) != (producer_id, epoch):
            why = f"{what}, which {in_words(value)} is not of"
            raise ViolationError("T2", why, transactional_id)
        if place not in value.partitions:
            raise ViolationError(
                "T2", f"{what}, which {in_words(value)} does not have", transactional_id
            )
        is_ended = value.state in PREPARED and any(
            (each.producer_id, each.producer_epoch) == (producer_id, value.producer_epoch)
            and each.commit is not None
            and each.step > known.step
            for each in self._seen.get(place, ())
        )
        if is_ended:
            raise ViolationError("T2", f"{what}, behind their marker", transactional_id)
        is_first = self._open_of(place, producer_id) is None
        if is_first and batch.agreed_for not in (NO_TRANSACTION, number):
            why = f"{what} in transaction {number}, agreed to for {batch.agreed_for}"
            raise ViolationError("T2", why, transactional_id)
        return number

    def _check_marker(self, place: Place, batch: Batch) -> None:
        """T2: a marker, of a decision that is on disk."""
        producer_id, epoch, commit = batch.producer_id, batch.producer_epoch, batch.commit
        transactional_id = self.id_of(producer_id)
        word = "commit" if commit else "abort"
        what = f"the {word} marker of {producer_id}/{epoch} in {name_of(place)}"
        decided = [
            each.number - 1
            for each in self._written.get(transactional_id, ())
            if each.is_on_disk
            and each.value is not None
            and each.value.state == (PREPARE_COMMIT if commit else PREPARE_ABORT)
            and (each.value.producer_id, each.value.producer_epoch) == (producer_id, epoch)
            and place in each.value.partitions
        ]
        if not decided:
            raise ViolationError(
                "T2", f"{what}, which nothing on disk has decided", transactional_id
            )
        opened = self._open_of(place, producer_id)
        if opened is not None and opened.number not in decided:
            why = f"{what} ends transaction {opened.number}, and is of {decided}"
            raise ViolationError("T4", why, transactional_id)

    def _check_states(self, log: ModelLog, batch: Batch) -> None:
        for transactional_id, value in states_of(batch):
            written = self._written.setdefault(transactional_id, [])
            before = written[-1].value if written else None
            number = written[-1].number if written else 0
            if value is not None:
                self._ids[value.producer_id] = transactional_id
                self._check_transition(transactional_id, before, value)
                if value.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
                    self._check_completion(transactional_id, written[-1])
                number += value.state in PREPARED
            written.append(Written(log, batch.base_offset, value, self.step, number))

    def _check_transition(
        self, transactional_id: str, before: Transaction | None, value: Transaction
    ) -> None:
        """T7, and T3: nothing but the same result follows a decision."""
        if before is None:
            if value.state != EMPTY:
                raise ViolationError(
                    "T7", f"the first state is {in_words(value)}", transactional_id
                )
            return
        is_lost = before.state in PREPARED and transactional_id in self._lost_completions
        if before.state not in VALID_PREVIOUS[value.state] and not is_lost:
            raise ViolationError(
                "T7", f"{in_words(value)} follows {in_words(before)}", transactional_id
            )
        is_of_same = before.producer_id == value.producer_id
        if is_of_same and value.producer_epoch < before.producer_epoch:
            raise ViolationError(
                "T7",
                f"the epoch of {in_words(value)} is below that of {in_words(before)}",
                transactional_id,
            )
        if value.state != EMPTY and value.state not in (COMPLETE_COMMIT, COMPLETE_ABORT):
            if not is_of_same and not is_lost:
                raise ViolationError(
                    "T4", f"{in_words(value)} has not begun: {in_words(before)}", transactional_id
                )
            if not before.partitions <= value.partitions and not is_lost:
                raise ViolationError(
                    "T2",
                    f"{in_words(value)} has lost partitions of {in_words(before)}",
                    transactional_id,
                )

    def _check_completion(self, transactional_id: str, prepared: Written) -> None:
        """T3: all markers are on disk."""
        value = prepared.value
        assert value is not None
        for place in value.partitions:
            seen = self._seen.get(place, ())
            log = self.logs[place]
            if not any(
                each.producer_id == value.producer_id
                and each.producer_epoch == value.producer_epoch
                and each.commit == value.commits
                and each.step > prepared.step
                and each.offset < log.flushed_offset
                for each in seen
            ):
                why = f"it is complete, and no marker is on disk in {name_of(place)}"
                raise ViolationError("T3", why, transactional_id)

    logs: dict[Place, ModelLog]

    def on_failed_append(self, batch: Batch) -> None:
        """A batch could not be written: a completion among it is made up for by what follows."""
        for transactional_id, value in states_of(batch):
            if value is not None and value.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
                self._lost_completions.add(transactional_id)

    def on_restart(self) -> None:
        """The process has died, and logs may have lost their ends."""
        for transactional_id, written in self._written.items():
            left = [each for each in written if each.offset < each.log.end_offset]
            self._written[transactional_id] = left
        for place, seen in self._seen.items():
            end_offset = self.logs[place].end_offset
            self._seen[place] = [each for each in seen if each.offset < end_offset]

    # --- answers ----------------------------------------------------------------------------------

    def on_answer(self, ask: Ask, answer: Any) -> None:
        """The broker answers, whether the client will hear of it or not."""
        if ask.name == "InitProducerId" and answer.error_code == codes.NONE:
            self._check_init(ask, answer.producer_id, answer.producer_epoch)
        elif ask.name == "EndTxn" and answer.error_code == codes.NONE:
            self._check_end(ask)

    def _check_init(self, ask: Ask, producer_id: int, epoch: int) -> None:
        """T5: whoever came before is shut out from now on."""
        given = (producer_id, epoch)
        is_retry = ask.message.producer_id != -1
        if given in self._given and not is_retry:
            raise ViolationError("T5", f"{given} is given twice", ask.transactional_id)
        self._given.add(given)
        known = self.on_disk(ask.transactional_id)
        value = None if known is None else known.value
        if value is None or (value.producer_id, value.producer_epoch) != given:
            raise ViolationError(
                "T5", f"{given} is given, and {in_words(value)} on disk", ask.transactional_id
            )
        for each, transactional_id in self._ids.items():
            if transactional_id == ask.transactional_id and each != producer_id:
                self._fenced[each] = BEYOND_EPOCHS
        self._fenced[producer_id] = max(self._fenced.get(producer_id, 0), epoch)

    def _check_end(self, ask: Ask) -> None:
        """T3: what EndTxn has been told is on disk."""
        message = ask.message
        has_epochs = ask.version >= 5
        epoch = message.producer_epoch
        result = PREPARE_COMMIT if message.committed else PREPARE_ABORT
        for each in self._written.get(ask.transactional_id, ()):
            value = each.value
            if value is None or value.state != result or not each.is_on_disk:
                continue
            ended = epoch if not has_epochs or epoch == EPOCH_MAX else epoch + 1
            if (value.producer_id, value.producer_epoch) == (message.producer_id, ended):
                return
        why = f"EndTxn({message.committed}) is answered, and no decision is on disk"
        raise ViolationError("T3", why, ask.transactional_id)

    def places_of_offsets(self) -> dict[truth.OffsetKey, int]:
        """Where in its log each offset stands that a group has at present."""
        histories = truth.offset_histories(self._offset_logs())
        return {key: history[-1][0] for key, history in histories.items()}

    def on_offsets(
        self, group_id: str, answer: OffsetsAnswer, asked: dict[truth.OffsetKey, int]
    ) -> None:
        """T1: offsets that are told are those of transactions that are committed, and none is older
        than what the group had when it `asked`."""
        if answer.error_code:
            return
        histories = truth.offset_histories(self._offset_logs())
        assert answer.is_unstable is not None
        for topic, partition in self.logs:
            if topic != truth.TOPIC or answer.is_unstable(topic, partition):
                continue
            found = answer.find(topic, partition)
            told = None if found is None else found.offset
            key = (group_id, topic, partition)
            least = asked.get(key, -1)
            known = [offset for place, offset in histories.get(key, ()) if place >= least]
            if told not in known and not (told is None and least == -1):
                why = f"{group_id} is told {told} of {topic}-{partition}, the log has {known}"
                raise ViolationError("T1", why, name_of((topic, partition)))

    def _offset_logs(self) -> list[ModelLog]:
        return [log for (topic, _), log in self.logs.items() if topic == OFFSETS_TOPIC]

    # --- readers ----------------------------------------------------------------------------------

    def on_read(self, log: ModelLog, start: int, end: int, values: list[tuple[int, str]]) -> None:
        """T1: a consumer has read all that is committed from `start` to `end`, and nothing else."""
        decided = truth.committed_records(log)
        expected = [each for each in decided if start <= each[0] < end]
        if values != expected:
            why = f"read {values} from {start} to {end}, committed is {expected}"
            raise ViolationError("T1", why, log.name)

    # --- the end ----------------------------------------------------------------------------------

    def is_decided(self) -> bool:
        """The log says of every transaction that it is over."""
        return not self.states_on_disk() & {"Ongoing", "PrepareCommit", "PrepareAbort"}

    def states_on_disk(self) -> set[str]:
        """The names of the states that transactional ids are in."""
        known = map(self.on_disk, self._written)
        values = [each.value for each in known if each is not None]
        return {STATE_NAMES[each.state] for each in values if each is not None}

    def check_rest(self) -> None:
        """All that was begun is over (T2, T3)."""
        for transactional_id in self._written:
            known = self.on_disk(transactional_id)
            value = None if known is None else known.value
            if value is not None and value.state not in OPENABLE:
                raise ViolationError("T3", f"it never ends: {in_words(value)}", transactional_id)
        for log in self.logs.values():
            opened = truth.open_producers(log)
            if opened:
                name = self.id_of(next(iter(opened)))
                raise ViolationError("T2", f"{opened} hang in {log.name}", name)
            if log.last_stable_offset != log.end_offset:
                why = f"its last stable offset is {log.last_stable_offset} of {log.end_offset}"
                raise ViolationError("T1", why, log.name)

    def check_loaded(self, loaded: dict[str, Transaction]) -> None:
        """T6: what was loaded is what the log says last of each id."""
        for transactional_id in {*self._written, *loaded}:
            known = self.on_disk(transactional_id)
            value = None if known is None else known.value
            if value is not None:
                value = kept(value)
            if loaded.get(transactional_id) != value:
                why = (
                    f"loaded is {in_words(loaded.get(transactional_id))}, on disk {in_words(value)}"
                )
                raise ViolationError("T6", why, transactional_id)

    def check_attempts(self, attempts: Iterable[Attempt], partitions: int) -> None:
        """T1, T4: what clients were promised is what readers see, all of it or nothing."""
        seen: dict[int, dict[int, list[str]]] = {}
        for partition in range(partitions):
            for _, value in truth.committed_records(self.logs[truth.TOPIC, partition]):
                serial = int(value.split(":")[0])
                seen.setdefault(serial, {}).setdefault(partition, []).append(value)
        histories = truth.offset_histories(self._offset_logs()).values()
        offsets = {offset for history in histories for _, offset in history}
        for each in attempts:
            is_excused = (each.producer_id, each.producer_epoch) in self.excused
            if not (is_excused or each.is_careless):
                self._check_attempt(each, seen.get(each.serial, {}), offsets)

    def _check_attempt(
        self, attempt: Attempt, seen: dict[int, list[str]], offsets: set[int | None]
    ) -> None:
        visible = {offset for offset in attempt.sent_offsets if offset in offsets}
        is_seen = bool(seen or visible)
        what = f"transaction {attempt.serial} of {attempt.producer_id}/{attempt.producer_epoch}"
        if is_seen and (attempt.committed is False or not attempt.asked_to_commit):
            why = f"{what} is not committed, and {seen or visible} is seen"
            raise ViolationError("T1", why, attempt.transactional_id)
        promised = set(attempt.acked_offsets.values())
        is_whole = seen == attempt.acked and visible == promised
        if (attempt.committed or is_seen) and not is_whole:
            why = f"{what} has {attempt.acked} and {promised}, seen is {seen} and {visible}"
            raise ViolationError("T1" if is_seen else "T4", why, attempt.transactional_id)


def kept(state: Transaction) -> Transaction:
    """Strips a state of all that not every version of a record keeps, or that has no use in it."""
    version = 0 if state.state in OPENABLE else state.client_version
    return state._replace(
        client_version=version, last_producer_epoch=NO_ID, previous_producer_id=NO_ID
    )


def name_of(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
