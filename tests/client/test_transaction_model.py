"""A model of the transactional producer's states: whatever a caller does, and whatever answers are
lost or refused, the coordinator is asked to commit only what was taken as a whole, a thread ends
the transaction that it was told to end, and a producer that was shut out asks nothing more."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkalite.client.network.connection import broker_error
from kafkalite.client.producer.transaction_state import State, TransactionState
from kafkalite.errors import InvalidArgumentError, KafkaliteError
from kafkalite.protocol.codes import (
    INVALID_TXN_STATE,
    MESSAGE_TOO_LARGE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)

FATAL = (PRODUCER_FENCED, INVALID_TXN_STATE)
ANSWERS = [*["done", "lost"] * 5, *FATAL]  # few that end it all


class Producers(RuleBasedStateMachine):
    """One producer's `TransactionState`, and beside it what is true: of its transaction, and of
    what the coordinator was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.state = TransactionState("model")
        self.is_open = False
        """A transaction is under way as the caller sees it: begun and not ended."""
        self.asked: str | None = None
        """The result that the coordinator may have been asked for, of this transaction."""
        self.has_lost_a_record = False
        self.is_dead = False
        self.waiting: list[tuple[int, bool]] = []
        """Threads that wait for the records of a transaction, which they commit, or abort, then."""
        self.begun = 0

    def tried(self, call: object) -> bool:
        """Whether it was not refused."""
        try:
            call()  # type: ignore[operator]
        except KafkaliteError as error:
            assert "\n" not in str(error)
            return False
        return True

    @rule()
    def begin(self) -> None:
        may = not (self.is_open or self.is_dead)
        assert self.tried(self.state.begin) == may
        if may:
            self.is_open, self.asked, self.has_lost_a_record = True, None, False
            self.begun += 1

    @rule(code=st.sampled_from([None] * 6 + [MESSAGE_TOO_LARGE] * 2 + [PRODUCER_FENCED]))
    def send(self, code: int | None) -> None:
        is_taken = self.tried(self.state.check_open)
        may = self.is_open and self.asked is None and not (self.has_lost_a_record or self.is_dead)
        assert not is_taken or may
        if is_taken and code is not None:
            self.refuse(code)

    def refuse(self, code: int) -> None:
        error = self.state.failed(broker_error(code, "partition orders-0"))
        self.has_lost_a_record = True
        if code in FATAL:
            self.is_dead, self.is_open = True, False
            assert "another producer uses the id" in str(error)

    @rule(
        flushed=st.sampled_from(["all", "all", "timed out", "lost a record"]),
        answer=st.sampled_from([*ANSWERS, TRANSACTION_ABORTABLE]),
    )
    def commit(self, flushed: str, answer: str | int) -> None:
        if not self.tried(self.state.commit):
            assert not self.is_open or self.asked == "abort" or self.has_lost_a_record
            return
        assert self.is_open
        assert self.asked in (None, "commit")
        if self.asked is None and flushed == "timed out":
            assert self.state.is_to_abort
            assert not self.tried(self.state.check_open)
            return
        if self.asked is None and flushed == "lost a record":
            self.refuse(MESSAGE_TOO_LARGE)
            return
        self.state.ask(self.begun, commit=True)
        assert not self.has_lost_a_record
        self.end("commit", answer)

    @rule(answer=st.sampled_from(ANSWERS))
    def abort(self, answer: str | int) -> None:
        if not self.tried(self.state.abort):
            assert not self.is_open or self.asked == "commit"
            return
        assert self.is_open
        assert self.asked in (None, "abort")
        self.state.ask(self.begun, commit=False)
        self.end("abort", answer)

    @rule(commit=st.booleans())
    def another_thread_waits(self, commit: bool) -> None:
        if self.tried(self.state.commit if commit else self.state.abort):
            assert self.is_open
            self.waiting.append((self.begun, commit))
            if not commit:
                self.asked = "abort"

    @precondition(lambda self: self.waiting)
    @rule(answer=st.sampled_from(ANSWERS))
    def another_thread_goes_on(self, answer: str | int) -> None:
        number, commit = self.waiting.pop(0)
        result = "commit" if commit else "abort"
        if self.tried(lambda: self.state.ask(number, commit=commit)):
            assert self.is_open
            assert number == self.begun
            assert self.asked in (None, result)
            assert not (commit and self.has_lost_a_record)
            self.end(result, answer)

    def end(self, result: str, answer: str | int) -> None:
        assert not self.is_dead
        if answer == "lost":
            self.asked = result
        elif answer == "done":
            self.state.ended()
            self.is_open, self.asked = False, None
        else:
            assert isinstance(answer, int)
            self.refuse(answer)
            self.asked = None  # the coordinator has said that it did not

    @precondition(lambda self: self.is_dead)
    @rule()
    def everything_is_refused(self) -> None:
        for call in (self.state.begin, self.state.commit, self.state.abort, self.state.check_open):
            assert not self.tried(call)

    @invariant()
    def it_is_where_the_picture_says(self) -> None:
        state = self.state.now
        assert (state is State.FATAL) == self.is_dead
        if not self.is_dead:
            assert (state is State.READY) == (not self.is_open)
            assert (state is State.COMMITTING) == (self.asked == "commit")
            assert state is not State.FAILED or self.has_lost_a_record
            assert state not in (State.OPEN, State.FLUSHING) or not self.has_lost_a_record


TestProducers = Producers.TestCase
TestProducers.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


def test_a_child_of_a_fork_may_nothing() -> None:
    state = TransactionState("forked")
    state.begin()
    state.leave_to_parent()
    for call in (state.begin, state.commit, state.abort, state.check_open, state.refuse_forked):
        try:
            call()
        except InvalidArgumentError as error:
            assert "in this process" in str(error)
        else:
            raise AssertionError("it was not refused")
