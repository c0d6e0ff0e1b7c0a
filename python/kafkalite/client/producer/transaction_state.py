"""The states of a transactional producer, and what may be done in each.

    READY ── begin ──► OPEN ── commit ──► FLUSHING ── ask ────► COMMITTING ── ended ──► READY
                        │ failed           │ failed                │ failed
                        ▼                  ▼                       ▼
                      FAILED ◄─────────────┴───────────────────────┘
    OPEN, FLUSHING, FAILED ── abort ──► ABORTING ── ended ──► READY

    any ── failed for good ──► FATAL     another producer has the id, or this one may not
    any ── the child of a fork ──► FORKED

COMMITTING and ABORTING stay while no answer is there: the same may be asked for again, and nothing
else, since it may have been done. No I/O: who asks brokers tells what came of it.

Threads may share a producer: a transaction has a number, so that who was to end one, and has waited
for its records meanwhile, ends no other.
"""

import time
from enum import Enum, auto

from kafkalite.errors import (
    BrokerError,
    ClientError,
    InvalidArgumentError,
    KafkaliteError,
    UnsupportedVersionError,
)
from kafkalite.protocol.codes import (
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    PRODUCER_FENCED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNSUPPORTED_VERSION,
)

__all__ = ["State", "TransactionState", "because", "fenced"]

# The last of them: the coordinator has ended the transaction, which was to be ended otherwise.
FENCED = (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, INVALID_TXN_STATE)
FATAL = (
    *FENCED,
    INVALID_PRODUCER_ID_MAPPING,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNSUPPORTED_VERSION,  # `transaction.version` was lowered
)


class State(Enum):
    """See the picture above."""

    READY = auto()
    OPEN = auto()
    FLUSHING = auto()
    FAILED = auto()
    COMMITTING = auto()
    ABORTING = auto()
    FATAL = auto()
    FORKED = auto()


class TransactionState:
    """The state of one producer. Refuses by `InvalidArgumentError` what may not be, and raises the
    first error of a transaction that has failed."""

    def __init__(self, transactional_id: str) -> None:
        self.now = State.READY
        self.number = 0
        """The transactions that were begun."""
        self.began_ns = 0
        """When the last one was, by the monotonic clock."""
        self._is_repeated = False
        """The coordinator is asked once more for what it may have done."""
        self._transactional_id = transactional_id
        self._error: KafkaliteError | None = None
        """Why it is FAILED, or FATAL."""

    @property
    def is_to_abort(self) -> bool:
        """Says whether there is something that nobody has asked to be committed."""
        return self.now in (State.OPEN, State.FLUSHING, State.FAILED, State.ABORTING)

    def check_open(self) -> None:
        """Refuses records and offsets where they would be part of no transaction."""
        self._refuse_dead()
        if self.now is State.FAILED:
            raise self._again("the transaction has failed and can only be aborted")
        if self.now is State.FLUSHING:
            raise InvalidArgumentError(
                "the transaction is being committed: what is to be part of it comes before that"
            )
        if self.now is not State.OPEN:
            raise InvalidArgumentError(
                "a transactional producer sends within a transaction, and none is under way: "
                "use `with producer.transaction():`"
            )

    def begin(self) -> None:
        """Begins a transaction."""
        self.check_ready()
        self.now = State.OPEN
        self.number += 1
        self._is_repeated = False
        self.began_ns = time.monotonic_ns()

    def is_under_way(self, number: int) -> bool:
        """Says whether that transaction has not been ended."""
        return number == self.number and self.now is not State.READY

    def check_ready(self) -> None:
        """Refuses a transaction within another."""
        self._refuse_dead()
        self._refuse_unanswered()
        if self.now is not State.READY:
            raise InvalidArgumentError(
                "a transaction is under way already: commit or abort it before the next begins"
            )

    def commit(self) -> None:
        """Begins to commit, or goes on with it: takes no more records."""
        self._refuse_dead()
        if self.now is State.ABORTING:
            self._refuse_unanswered()
        if self.now is State.READY:
            raise InvalidArgumentError("there is nothing to commit: no transaction is under way")
        if self.now not in (State.FLUSHING, State.COMMITTING):
            self.check_open()
            self.now = State.FLUSHING

    def ask(self, number: int, *, commit: bool) -> None:
        """All records are on their brokers, and the coordinator is about to be asked. Refuses where
        another thread has ended that transaction, or ends it in the other way."""
        self._refuse_dead()
        if commit and number == self.number and self.now is State.FAILED:
            self.check_open()
        ending = (State.FLUSHING, State.COMMITTING) if commit else (State.ABORTING,)
        if number != self.number or self.now not in ending:
            raise InvalidArgumentError(
                "another thread has ended the transaction meanwhile: one is to end it"
            )
        self._is_repeated = self.now is State.COMMITTING
        if commit:
            self.now = State.COMMITTING

    def abort(self) -> None:
        """Begins to abort, or goes on with it."""
        self._refuse_dead()
        if self.now is State.COMMITTING:
            self._refuse_unanswered()
        if not self.is_to_abort:
            raise InvalidArgumentError("there is nothing to abort: no transaction is under way")
        self.now = State.ABORTING

    def failed(self, error: KafkaliteError) -> KafkaliteError:
        """Takes the error of a record, of offsets or of the end, and gives the one to raise."""
        if self.now in (State.FATAL, State.FORKED):
            return self._error or error
        is_final = isinstance(error, UnsupportedVersionError)
        if isinstance(error, BrokerError):
            is_final = error.code in FATAL
            is_told = isinstance(error, FencedError) and not self._is_repeated
            if error.code in FENCED and not is_told:
                error = fenced(self._transactional_id, error, may_be_done=self._is_repeated)
            elif error.code == UNSUPPORTED_VERSION:
                error = because("transaction.version of the cluster was changed", error)
        if is_final:
            self.now, self._error = State.FATAL, error
        elif self.now in (State.OPEN, State.FLUSHING, State.COMMITTING):
            self.now, self._error = State.FAILED, error
        return error

    def ended(self) -> None:
        """The coordinator has answered: it is committed, or aborted."""
        if self.now in (State.COMMITTING, State.ABORTING):
            self.now, self._error = State.READY, None

    def leave_to_parent(self) -> None:
        """Refuses all, in the child of a fork: the transaction is the parent's."""
        self.now = State.FORKED

    def refuse_forked(self) -> None:
        """Refuses all use in the child of a fork."""
        if self.now is State.FORKED:
            raise InvalidArgumentError(
                "the producer and its transaction belong to the process that has made it, which "
                "has forked this one: make a Producer, with a transactional_id of its own, in this "
                "process"
            )

    def _refuse_dead(self) -> None:
        self.refuse_forked()
        if self.now is State.FATAL:
            raise self._again("the producer can do no more")

    def _refuse_unanswered(self) -> None:
        if self.now is State.COMMITTING:
            raise InvalidArgumentError(
                "the commit of the last transaction was not answered, and may have been done: "
                "call commit_transaction again"
            )
        if self.now is State.ABORTING:
            raise InvalidArgumentError(
                "the abort of the last transaction was not answered: call abort_transaction again"
            )

    def _again(self, what: str) -> KafkaliteError:
        """Makes the error that is raised again, each time anew: a traceback would grow."""
        return because(what, self._error or ClientError("it is not known why"))


def because(what: str, error: KafkaliteError) -> KafkaliteError:
    """An error of the same kind as the one that it comes of."""
    sentence = f"{what}: {error}"
    if isinstance(error, BrokerError):
        return BrokerError(sentence, code=error.code, name=error.name, retriable=error.retriable)
    return type(error)(sentence)


class FencedError(BrokerError):
    """Says in the user's words that their transaction is over."""


def fenced(transactional_id: str, error: BrokerError, *, may_be_done: bool = False) -> FencedError:
    """Makes the error of who is fenced. `may_be_done`: an earlier request to commit was not
    answered."""
    unless = ", unless the request to commit it that was not answered was carried out"
    return FencedError(
        f"transactional id '{transactional_id}': its transaction was aborted, because "
        f"transaction.timeout.ms was over or another producer uses the id ({error.name})"
        + (unless if may_be_done else ""),
        code=error.code,
        name=error.name,
        retriable=False,
    )
