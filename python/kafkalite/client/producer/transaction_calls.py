"""A producer's transactions, as its callers see them.

    with Producer("127.0.0.1:9092", transactional_id="billing") as producer:
        with producer.transaction():
            producer.send("invoices", b"10 EUR")
            producer.send_offsets(consumer)

`transaction_state.py` says what may be done when, `transactions.py` asks the coordinator. Records
go as ever; what is given up of one fails its transaction, and the rest is not sent.
"""

import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kafkalite.client.arguments import int32, wrong_type
from kafkalite.client.guard import alone
from kafkalite.client.producer.loop import ProducerLoop
from kafkalite.client.producer.transaction_state import TransactionState
from kafkalite.client.producer.transactions import Transaction
from kafkalite.errors import (
    BrokerError,
    ClientError,
    InvalidArgumentError,
    KafkaliteError,
)
from kafkalite.protocol.codes import INVALID_TRANSACTION_TIMEOUT

if TYPE_CHECKING:
    from kafkalite.client.consumer.consumer import Consumer

__all__ = ["TransactionCalls"]


class TransactionCalls(ProducerLoop):
    """The calls of a `Producer` with a `transactional_id`, beside sending."""

    _state: TransactionState | None = None
    """None without a transactional id."""

    @abstractmethod
    def _flush(self, timeout_ms: int | None) -> None:
        """Returns once everything is on its broker or given up, and told."""

    def _begin_transactions(self, transaction: Transaction) -> None:
        """Fences whoever has the id, and aborts what they have left open."""
        try:
            transaction.begin()
            transaction.choose_protocol()
        except BrokerError as error:
            if error.code != INVALID_TRANSACTION_TIMEOUT:
                raise
            raise InvalidArgumentError(
                f"transaction_timeout_ms={transaction.timeout_ms} is more than the broker allows "
                "(its transaction.max.timeout.ms)"
            ) from error

    def begin_transaction(self) -> None:
        """Has all that is sent from now on become part of a transaction, until that is committed or
        aborted. Raises `InvalidArgumentError` if one is under way, and what ended the producer."""
        self._begin_locked()

    @alone
    def _begin_locked(self) -> int:
        self._refuse_closed()
        state = self._transactional()
        state.check_ready()
        self._whole(self._sender.begin_transaction)
        state.begin()
        return state.number

    def commit_transaction(self, timeout_ms: int | None = None) -> None:
        """Sends what is under way, and commits: all of it is there for `read_committed` readers, or
        nothing is.

        Raises why a record could not be written: then `abort_transaction` is all that can be done.
        Without an answer in time (`RequestTimedOutError`, `ConnectionFailedError`) it may be
        committed: it can be called again. An error of a producer that was fenced is its last. Of
        threads that end a transaction at once, all but the first get `InvalidArgumentError`.
        """
        deadline = self._deadline(timeout_ms)
        number = self._begin_commit()
        self._flush(timeout_ms)
        self._end_locked(number, deadline, commit=True)

    def abort_transaction(self, timeout_ms: int | None = None) -> None:
        """Aborts: what was sent is not there for `read_committed` readers, and what was not is
        given up. Without an answer in time it can be called again. Raises `BrokerError`."""
        self._abort(timeout_ms)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begins a transaction for the block and commits it at its end, unless the block has ended
        it. Aborts it if the block fails, or the commit is refused; what has failed comes out of it.
        A commit without an answer stays to be asked for again, by `commit_transaction`."""
        number = self._begin_locked()
        try:
            yield
            if self._transactional().is_under_way(number):
                self.commit_transaction()
        except BaseException:
            self._abort_quietly(None, number)
            raise

    def send_offsets(self, consumer: "Consumer") -> None:
        """Makes the consumer's positions, which `commit` would commit, part of the transaction: its
        group has them if, and only if, that is committed.

        Raises `BrokerError` if partitions are not the consumer's any more, or were taken from it
        since the transaction began, also if it has them again: what it has read of them it reads
        once more. Raises `InvalidArgumentError` for a consumer that commits by itself, or without a
        group.
        """
        from kafkalite.client.consumer.consumer import Consumer

        if not isinstance(consumer, Consumer):
            raise wrong_type("consumer", consumer, "a Consumer")
        self._send_offsets_locked(consumer)

    @alone
    def _send_offsets_locked(self, consumer: "Consumer") -> None:
        state = self._transactional()
        state.check_open()
        try:
            member, offsets = consumer.positions_of_group(state.began_ns)
            if self._transaction is not None and offsets:
                self._transaction.commit_offsets(member, offsets)
        except InvalidArgumentError:
            raise
        except ClientError as error:
            raise state.failed(error) from error
        except BaseException:
            state.failed(ClientError("send_offsets was interrupted"))
            raise

    # --- the end ----------------------------------------------------------------------------------

    @alone
    def _begin_commit(self) -> int:
        state = self._transactional()
        state.commit()
        return state.number

    def _abort(self, timeout_ms: int | None, number: int | None = None) -> None:
        """Aborts the transaction of that number, or any."""
        deadline = self._deadline(timeout_ms)
        number = self._begin_abort(number)
        self._flush(timeout_ms)
        self._end_locked(number, deadline, commit=False)

    @alone
    def _begin_abort(self, number: int | None) -> int:
        """Has all be given up that is not on its way."""
        state = self._transactional()
        if number is not None and number != state.number:
            raise InvalidArgumentError("there is nothing to abort: another transaction has begun")
        state.abort()
        self._deliveries.is_aborting = True
        self._sender.fail_transaction(ClientError("the transaction was aborted"))
        return state.number

    @alone
    def _end_locked(self, number: int, deadline: float | None, *, commit: bool) -> None:
        state, transaction, sender = self._transactional(), self._transaction, self._sender
        if transaction is None:
            return
        if commit and sender.transaction_error is not None and state.is_under_way(number):
            self._deliveries.first_error = None
            raise state.failed(sender.transaction_error)
        state.ask(number, commit=commit)
        self._deliveries.first_error = None  # it is the transaction's, which tells it
        self._deliveries.is_aborting = False
        if deadline is None:
            deadline = time.monotonic() + self.cluster.timeout_ms / 1000
        try:
            with self.cluster.until(deadline):
                transaction.end(commit=commit)
        except BrokerError as refusal:
            if refusal.retriable:
                raise
            raise state.failed(refusal) from refusal
        state.ended()

    def _abort_quietly(self, timeout_ms: int | None, number: int | None = None) -> None:
        """Aborts what is open, if it has the number, where another error is told; without an answer
        the coordinator does, when the transaction's time is over."""
        if self._state is not None and self._state.is_to_abort:
            with suppress(KafkaliteError):
                self._abort(timeout_ms, number)

    def _check_transaction(self) -> None:
        """Refuses a record outside of a transaction, and of one that has failed."""
        if self._state is not None:
            if self._sender.transaction_error is not None:
                self._state.failed(self._sender.transaction_error)
            self._state.check_open()

    def _deadline(self, timeout_ms: int | None) -> float | None:
        """When an end without an answer is given up; None: some time after the flush."""
        if timeout_ms is None:
            return None
        return time.monotonic() + int32("timeout_ms", timeout_ms, 0) / 1000

    def _transactional(self) -> TransactionState:
        if self._state is None:
            raise InvalidArgumentError(
                "the producer has no transactions: make it with a transactional_id"
            )
        return self._state

    @abstractmethod
    def _refuse_closed(self) -> None:
        """Raises `InvalidArgumentError` after `close`."""
