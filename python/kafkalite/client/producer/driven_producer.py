"""A producer that does nothing outside of its calls: for commands, which wait for input of their
own beside its sockets, for what makes whole batches (`arrow/writer.py`), and for transactions."""

import time
from collections.abc import Callable
from typing import Any

from kafkalite.client.arguments import whole, wrong_type
from kafkalite.client.guard import alone
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.network.servers import Servers
from kafkalite.client.producer.loop import TURN_MS
from kafkalite.client.producer.partition_queue import Batch, OnDone
from kafkalite.client.producer.producer import Producer
from kafkalite.client.producer.transactions import Transaction
from kafkalite.errors import ClientError, InvalidArgumentError

__all__ = ["DrivenProducer"]

START_S = 2.0
"""The time that a broker that does not answer costs the others at most, each time it is tried."""


class DrivenProducer(Producer):
    """Sends and takes answers inside `send`, `poll` and `flush` alone, and leaves the log be."""

    _has_thread = False

    def __init__(
        self,
        bootstrap_servers: Servers | Cluster,
        *,
        transaction: Transaction | None = None,
        on_create: Callable[[str], None] | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are those of `Producer`; `on_create` gets the sentence about a topic that is
        not there, which a broker may make. What is sent becomes part of `transaction`, which was
        begun and is the caller's to end; after an error it can only be aborted. Raises as
        `Producer` does."""
        if transaction is not None and not isinstance(transaction, Transaction):
            raise wrong_type("transaction", transaction, "a Transaction")
        if transaction is not None and not settings.get("idempotent"):
            raise InvalidArgumentError("transactions need an idempotent producer")
        self._transaction = transaction
        self._on_create = on_create
        super().__init__(bootstrap_servers, **settings)

    @alone
    def start(self) -> None:
        """For whoever is to do something else for long: what is ready is on its way then, unless a
        broker takes more than `START_S` to be connected to."""
        while (since := self._sender.starting_since) is not None:
            if not self.pending_count or time.monotonic() >= since + START_S:
                return
            self._step(TURN_MS)

    def send_batch(
        self,
        topic: str,
        partition: int,
        records: bytes,
        count: int,
        on_done: OnDone | None = None,
    ) -> None:
        """Sends a batch that was made elsewhere, without a producer id in it. `on_done` gets the
        batch, the error or None, and its base offset; if it had to be split, once a part."""
        self._put_batch(Batch(topic, partition, records, count, on_done))
        self._tell()

    @alone
    def _put_batch(self, batch: Batch) -> None:
        self._partition(batch.topic, whole("partition", batch.partition, 0), None)
        self._refuse_closed()
        self._whole(self._enqueue, batch)
        self._turn(time.monotonic())

    @alone
    def fail_transaction(self) -> None:
        """Gives up, with the next turn, what is not on its way of its transaction, if it has one:
        that is to be aborted, once `flush` has waited for the rest."""
        if self._transaction is not None:
            self._sender.fail_transaction(ClientError("the transaction was aborted"))

    def fileno_list(self) -> list[int]:
        """Sockets on which answers are due: a caller that waits for input of its own can wait for
        these too (`wakeup.poller`), and then call `poll`."""
        return self._descriptors()

    @property
    def next_due(self) -> float:
        """Monotonic seconds by which `poll` should be called though no answer comes."""
        return time.monotonic() + self._accumulator.seconds_until_due
