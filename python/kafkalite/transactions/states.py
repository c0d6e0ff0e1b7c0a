"""One transactional id: its states, and the transitions between them.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ──┐
      ▲          │  └───► PrepareAbort ───► CompleteAbort ───┤ (and Ongoing again)
      └──────────┴───────── InitProducerId ◄────────────────┘

Pure functions over immutable values (`TransactionMetadata` of Apache Kafka 4.3): each transition
gives what is to be written, or the error code of its refusal. With transactions of version 2
(KIP-890) each has an epoch of its own; where epochs run out, the producer gets another id.
"""

from typing import Final, NamedTuple

from kafkalite.protocol import codes

EMPTY: Final = 0
ONGOING: Final = 1
PREPARE_COMMIT: Final = 2
PREPARE_ABORT: Final = 3
COMPLETE_COMMIT: Final = 4
COMPLETE_ABORT: Final = 5

STATE_NAMES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)
"""By their numbers in records."""

OPENABLE: Final = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""States in which no transaction is open or about to end."""
PREPARED: Final = (PREPARE_COMMIT, PREPARE_ABORT)

NO_ID: Final = -1
"""Also of an epoch, and of a time."""
EPOCH_MAX: Final = 32_767
"""No client is given it: it is for the last fence of a producer id."""
CLIENT_TV_OF_EPOCHS: Final = 2
"""From this version of transactions on each has an epoch of its own."""

TopicPartition = tuple[str, int]


class Transaction(NamedTuple):
    """A transactional id as its record says it. Times are since 1970."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: int
    partitions: frozenset[TopicPartition]
    start_ms: int
    update_ms: int
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    client_version: int = 0
    last_producer_epoch: int = NO_ID
    """The one before, for a client that asks again; it is not written."""

    @property
    def is_exhausted(self) -> bool:
        """The epochs of this producer id are at their end."""
        return is_exhausted(self.producer_epoch)

    @property
    def commits(self) -> bool:
        """The transaction is ending by a commit, or has ended by one."""
        return self.state in (PREPARE_COMMIT, COMPLETE_COMMIT)


class Expected(NamedTuple):
    """Producer id and epoch that a client says it has (KIP-360)."""

    producer_id: int
    producer_epoch: int


Outcome = Transaction | int
"""The state that is to be written, or the error code of a refusal."""


def is_exhausted(producer_epoch: int) -> bool:
    """No further epoch may be given to a client."""
    return producer_epoch >= EPOCH_MAX - 1


def created(producer_id: int, timeout_ms: int, wall_ms: int) -> Transaction:
    """A transactional id that nobody has used; its first epoch is yet to come."""
    return Transaction(
        producer_id=producer_id,
        producer_epoch=NO_ID,
        timeout_ms=timeout_ms,
        state=EMPTY,
        partitions=frozenset(),
        start_ms=NO_ID,
        update_ms=wall_ms,
    )


def init_needs_id(now: Transaction, expected: Expected | None) -> bool:
    """InitProducerId changes the producer id: the epochs are at their end."""
    return (
        now.state in OPENABLE
        and now.is_exhausted
        and (expected is None or expected.producer_epoch == now.producer_epoch)
    )


def check_expected(now: Transaction, expected: Expected | None) -> int:
    """Refuses a client that names a producer that is not this one, nor the one before."""
    if expected is None or now.producer_epoch == NO_ID:
        return codes.NONE
    if expected.producer_id == now.producer_id:
        return codes.NONE
    was_rotated = expected.producer_id == now.previous_producer_id
    if was_rotated and is_exhausted(expected.producer_epoch):
        return codes.NONE
    return codes.PRODUCER_FENCED


def initialised(
    now: Transaction, expected: Expected | None, timeout_ms: int, next_id: int, wall_ms: int
) -> Outcome:
    """InitProducerId where no transaction is open: another epoch, or with `next_id` another
    producer id where `init_needs_id` says so."""
    base = now._replace(
        state=EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_ID,
        update_ms=wall_ms,
        previous_producer_id=now.producer_id,
        next_producer_id=NO_ID,
    )
    if init_needs_id(now, expected):
        last = NO_ID if expected is None else now.producer_epoch
        return base._replace(producer_id=next_id, producer_epoch=0, last_producer_epoch=last)
    bumped = now.producer_epoch + 1
    if expected is None:
        return base._replace(producer_epoch=bumped, last_producer_epoch=NO_ID)
    if now.producer_epoch in (NO_ID, expected.producer_epoch):
        return base._replace(producer_epoch=bumped, last_producer_epoch=now.producer_epoch)
    if expected.producer_epoch == now.last_producer_epoch:
        return base
    return codes.PRODUCER_FENCED


def check_producer(now: Transaction, producer_id: int, producer_epoch: int) -> int:
    """Refuses who is not the producer of this transactional id."""
    if producer_id != now.producer_id:
        return codes.INVALID_PRODUCER_ID_MAPPING
    return codes.NONE if producer_epoch == now.producer_epoch else codes.PRODUCER_FENCED


def added(
    now: Transaction, partitions: frozenset[TopicPartition], client_version: int, wall_ms: int
) -> Transaction:
    """The transaction with further partitions; it begins with the first. `now` is not ending."""
    return now._replace(
        state=ONGOING,
        partitions=now.partitions | partitions,
        start_ms=wall_ms if now.state in OPENABLE else now.start_ms,
        update_ms=wall_ms,
        previous_producer_id=now.producer_id,
        client_version=client_version,
    )


def prepared(
    now: Transaction, commit: bool, client_version: int, next_id: int, wall_ms: int
) -> Transaction:
    """The decision. With epochs for each transaction the next one begins here, and `next_id` is the
    next producer id where they are at their end, else NO_ID."""
    bumps = client_version >= CLIENT_TV_OF_EPOCHS and now.producer_epoch < EPOCH_MAX
    return now._replace(
        state=PREPARE_COMMIT if commit else PREPARE_ABORT,
        producer_epoch=now.producer_epoch + 1 if bumps else now.producer_epoch,
        last_producer_epoch=now.producer_epoch if bumps else now.last_producer_epoch,
        start_ms=wall_ms if now.state in OPENABLE else now.start_ms,
        update_ms=wall_ms,
        previous_producer_id=now.producer_id,
        next_producer_id=next_id,
        client_version=client_version,
    )


def fenced(now: Transaction, client_version: int, has_failed: bool) -> Transaction:
    """An open transaction whose producer is to be shut out: its epoch is raised before the
    decision, unless an earlier fence that could not be written has (KAFKA-9666). With epochs
    for each transaction the decision itself raises it."""
    if client_version >= CLIENT_TV_OF_EPOCHS or has_failed or now.producer_epoch == EPOCH_MAX:
        return now
    return now._replace(producer_epoch=now.producer_epoch + 1, last_producer_epoch=NO_ID)


def end_needs_id(now: Transaction, client_version: int) -> bool:
    """The end of this transaction takes the last epoch: the next has another producer id."""
    return client_version >= CLIENT_TV_OF_EPOCHS and now.is_exhausted


def completed(now: Transaction, wall_ms: int) -> Transaction:
    """All markers are on disk."""
    done = now._replace(
        state=COMPLETE_COMMIT if now.state == PREPARE_COMMIT else COMPLETE_ABORT,
        partitions=frozenset(),
        update_ms=wall_ms,
        previous_producer_id=now.producer_id,
        next_producer_id=NO_ID,
    )
    if now.client_version >= CLIENT_TV_OF_EPOCHS and now.next_producer_id != NO_ID:
        return done._replace(producer_id=now.next_producer_id, producer_epoch=0)
    return done


def next_producer(now: Transaction) -> Expected:
    """The producer of the next transaction, as a client is told by EndTxn."""
    if now.next_producer_id != NO_ID:
        return Expected(now.next_producer_id, 0)
    return Expected(now.producer_id, now.producer_epoch)


class End(NamedTuple):
    """EndTxn, or the coordinator's own abort."""

    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int


def judge_end(now: Transaction, end: End) -> int | None:
    """The code with which EndTxn is answered at once: NONE for a retry of what is done. None: the
    transaction is to be prepared."""
    if end.client_version >= CLIENT_TV_OF_EPOCHS:
        return _judge_end_with_epochs(now, end)
    code = check_producer(now, end.producer_id, end.producer_epoch)
    if code or now.state == ONGOING:
        return code or None
    if now.state in (COMPLETE_COMMIT, COMPLETE_ABORT) and now.commits == end.commit:
        return codes.NONE
    if now.state in PREPARED and now.commits == end.commit:
        return codes.CONCURRENT_TRANSACTIONS
    return codes.INVALID_TXN_STATE


def _judge_end_with_epochs(now: Transaction, end: End) -> int | None:
    is_of_rotated = (
        end.producer_id == now.previous_producer_id
        and end.producer_epoch == EPOCH_MAX - 1
        and now.producer_epoch == 0
    )
    if end.producer_id != now.producer_id and not is_of_rotated:
        return codes.INVALID_PRODUCER_ID_MAPPING
    is_current = end.producer_id == now.producer_id and end.producer_epoch == now.producer_epoch
    is_of_last_epoch = end.producer_epoch + 1 == now.producer_epoch
    match now.state:
        case 2 | 3:
            if not is_of_last_epoch:
                return codes.PRODUCER_FENCED
            is_same = now.commits == end.commit
            return codes.CONCURRENT_TRANSACTIONS if is_same else codes.INVALID_TXN_STATE
        case 4 | 5 if is_of_rotated or is_of_last_epoch:
            return codes.NONE if now.commits == end.commit else codes.INVALID_TXN_STATE
        case _ if not is_current:
            return codes.PRODUCER_FENCED
        case 1:
            return None
        case _:
            # A client that does not know whether it has begun one may abort it.
            return codes.INVALID_TXN_STATE if end.commit else None
