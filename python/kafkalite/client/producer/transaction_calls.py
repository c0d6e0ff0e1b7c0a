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
from collections.abc import Callable, Iterator
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
    def _begin_locked(self) -> None:
        self._refuse_closed()
        state = self._transactional()
        state.check_ready()
        self._whole(self._sender.begin_transaction)
        state.begin()

    def commit_transaction(self, timeout_ms: int | None = None) -> None:
        """Sends what is under way, and commits: all of it is there for `read_committed` readers, or
        nothing is.

        Raises why a record could not be written: then `abort_transaction` is all that can be done.
        Without an answer in time (`RequestTimedOutError`, `ConnectionFailedError`) it may be
        committed: it can be called again. An error of a producer that was fenced is its last.
        """
        deadline = self._deadline(timeout_ms)
        self._change(self._transactional().commit)
        self._flush(timeout_ms)
        self._end_locked(deadline, commit=True)

    def abort_transaction(self, timeout_ms: int | None = None) -> None:
        """Aborts: what was sent is not there for `read_committed` readers, and what was not is
        given up. Without an answer in time it can be called again. Raises `BrokerError`."""
        deadline = self._deadline(timeout_ms)
        self._change(self._transactional().abort)
        self._abort_records()
        self._flush(timeout_ms)
        self._end_locked(deadline, commit=False)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begins a transaction for the block, commits it at its end, and aborts it if the block, or
        the commit, fails; what has failed comes out of it."""
        self.begin_transaction()
        try:
            yield
            self.commit_transaction()
        except BaseException:
            self._abort_quietly(None)
            raise

    def send_offsets(self, consumer: "Consumer") -> None:
        """Makes the consumer's positions, which `commit` would commit, part of the transaction: its
        group has them if, and only if, that is committed.

        Raises `BrokerError` if partitions are not the consumer's any more, and
        `InvalidArgumentError` for a consumer that commits by itself, or without a group.
        """
        from kafkalite.client.consumer.consumer import Consumer

        if not isinstance(consumer, Consumer):
            raise wrong_type("consumer", consumer, "a Consumer")
        state = self._transactional()
        state.check_open()
        try:
            self._send_offsets_locked(consumer)
        except ClientError as error:
            raise state.failed(error) from error

    @alone
    def _send_offsets_locked(self, consumer: "Consumer") -> None:
        member, offsets = consumer.positions_of_group()
        if self._transaction is not None and offsets:
            self._transaction.commit_offsets(member, offsets)

    # --- the end ----------------------------------------------------------------------------------

    @alone
    def _change(self, change: Callable[[], None]) -> None:
        change()

    @alone
    def _abort_records(self) -> None:
        """Has all be given up that is not on its way."""
        self._deliveries.is_aborting = True
        self._sender.fail_transaction(ClientError("the transaction was aborted"))

    @alone
    def _end_locked(self, deadline: float, *, commit: bool) -> None:
        state, transaction, sender = self._transactional(), self._transaction, self._sender
        if transaction is None:
            return
        error = sender.transaction_error
        self._deliveries.first_error = None  # it is the transaction's, which tells it
        self._deliveries.is_aborting = False
        if commit and error is not None:
            raise state.failed(error)
        state.asked()
        try:
            with self.cluster.until(deadline):
                transaction.end(commit=commit)
        except BrokerError as refusal:
            if refusal.retriable:
                raise
            raise state.failed(refusal) from refusal
        state.ended()

    def _abort_quietly(self, timeout_ms: int | None) -> None:
        """Aborts what is open, where another error is told; without an answer the coordinator does,
        when the transaction's time is over."""
        if self._state is not None and self._state.is_to_abort:
            with suppress(KafkaliteError):
                self.abort_transaction(timeout_ms)

    def _check_transaction(self) -> None:
        """Refuses a record outside of a transaction, and of one that has failed."""
        if self._state is not None:
            if self._sender.transaction_error is not None:
                self._state.failed(self._sender.transaction_error)
            self._state.check_open()

    def _deadline(self, timeout_ms: int | None) -> float:
        wait_ms = self.cluster.timeout_ms
        if timeout_ms is not None:
            wait_ms = int32("timeout_ms", timeout_ms, 0)
        return time.monotonic() + wait_ms / 1000

    def _transactional(self) -> TransactionState:
        if self._state is None:
            raise InvalidArgumentError(
                "the producer has no transactions: make it with a transactional_id"
            )
        return self._state

    @abstractmethod
    def _refuse_closed(self) -> None:
        """Raises `InvalidArgumentError` after `close`."""
