"""Sends records in batches.

    with Producer("127.0.0.1:9092") as producer:
        producer.send("orders", b"value", key=b"key")

`send` puts a record into the open batch of its partition: one call of `RecordAccumulator`, which is
whole without a lock. A batch that is full, or `linger_ms` old, is closed and sent (`sender.py`) by
whoever is in a call of the producer's, else by its thread (`sender_thread.py`); `on_delivery` is
told what became of each record (`deliveries.py`). Idempotent unless told otherwise: a batch keeps
its sequence number however often it is sent, and batches of a partition that come back are sent
again in their order, one that is larger than the topic allows as two halves.

One lock guards all else. It is given up wherever somebody waits, and while callbacks are called.
"""

import threading
import time
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from kafkalite._native import partition_for_key
from kafkalite.client import lifetime
from kafkalite.client.arguments import (
    OFFSET_MAX,
    TIMESTAMP_MAX,
    Bytes,
    bytes_of,
    flag,
    header_pairs,
    int32,
    short_text,
    text,
    whole,
    wrong_type,
)
from kafkalite.client.guard import alone
from kafkalite.client.network.cluster import BACKOFF_MS, UNKNOWN_TOPIC_MS, Cluster
from kafkalite.client.network.connection import may_pass
from kafkalite.client.network.leaders import draw
from kafkalite.client.network.metadata import TopicMetadata
from kafkalite.client.network.servers import Servers
from kafkalite.client.producer.loop import TURN_MS
from kafkalite.client.producer.options import BatchOptions, SendOptions
from kafkalite.client.producer.partition_queue import OnDelivery
from kafkalite.client.producer.settings import check_level
from kafkalite.client.producer.transaction_calls import TransactionCalls
from kafkalite.client.producer.transaction_state import TransactionState
from kafkalite.client.producer.transactions import Transaction
from kafkalite.errors import (
    BrokerError,
    ClientError,
    InvalidArgumentError,
    KafkaliteError,
    RequestTimedOutError,
)

__all__ = ["Producer"]

Headers = Sequence[tuple[str, bytes | None]]

APPENDED_AND_DUE, REFUSED = 1, 2
"""The outcomes of `RecordAccumulator.append` after which there is something to do."""
JOIN_S = 5.0
"""The time that `close` waits for the thread, which a callback may hold."""
MAX_BLOCK_MS = 60_000
CLOSE_MS = 30_000
INTERRUPTED_CLOSE_MS = 2_000
"""The time that `close` may take for a user who has pressed Ctrl-C."""

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}


class Producer(TransactionCalls):
    """A producer of one cluster, for any number of threads, and for processes that fork: a child
    begins anew, without the records of its parent, who sends those."""

    def __init__(
        self,
        bootstrap_servers: Servers | Cluster,
        *,
        acks: str | int = "all",
        codec: str = "none",
        level: int | None = None,
        linger_ms: int = 5,
        batch_bytes: int = 16_384,
        request_bytes_max: int = 1 << 20,
        buffer_bytes: int = 32 << 20,
        max_in_flight: int = 5,
        idempotent: bool | None = None,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        max_block_ms: int = MAX_BLOCK_MS,
        wait_for_servers_ms: int = 0,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        client_id: str = "kafkalite-producer",
    ) -> None:
        """Arguments are Kafka's `acks`, `compression.type`, `compression.*.level`, `linger.ms`,
        `batch.size`, `max.request.size`, `buffer.memory`, `max.in.flight.requests.per.connection`,
        `enable.idempotence` (on, if acks is all and the broker can), `delivery.timeout.ms`,
        `request.timeout.ms` and `max.block.ms`, with Kafka's defaults. Servers of which none ever
        answered are waited for `wait_for_servers_ms`. With a `transactional_id` it sends within
        transactions, which take `transaction_timeout_ms` at most: whoever had the id is shut out,
        and what they left open aborted, before this returns, and `BrokerError` raised, or
        `ConnectionFailedError`, where that cannot be.

        Raises `InvalidArgumentError` for what contradicts itself, `TypeError`.
        """
        check_level(codec, level)
        short_text("client_id", client_id)
        int32("linger_ms", linger_ms, 0)
        int32("batch_bytes", batch_bytes, 0)
        int32("request_bytes_max", request_bytes_max, 1)
        whole("buffer_bytes", buffer_bytes, 0, OFFSET_MAX)
        int32("max_in_flight", max_in_flight, 1)
        int32("delivery_timeout_ms", delivery_timeout_ms, 0)
        int32("request_timeout_ms", request_timeout_ms, 1)
        int32("max_block_ms", max_block_ms, 0)
        int32("wait_for_servers_ms", wait_for_servers_ms, 0)
        int32("transaction_timeout_ms", transaction_timeout_ms, 1)
        acks_number, idempotent = _promise(acks, idempotent, max_in_flight, transactional_id)
        send_options = SendOptions(
            acks=acks_number,
            idempotent=idempotent,
            wants_id=acks_number == -1 and idempotent is not False and max_in_flight <= 5,
            codec=codec,
            level=level,
            request_bytes_max=request_bytes_max,
            max_in_flight=max_in_flight,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
        )
        self._owns = not isinstance(bootstrap_servers, Cluster)
        cluster = (
            bootstrap_servers
            if isinstance(bootstrap_servers, Cluster)
            else Cluster(
                bootstrap_servers,
                client_id=client_id,
                timeout_ms=min(max_block_ms, delivery_timeout_ms),
                request_timeout_ms=request_timeout_ms,
                wait_for_servers_ms=wait_for_servers_ms,
            )
        )
        if transactional_id is not None:
            self._transaction = Transaction(cluster, transactional_id, transaction_timeout_ms)
            self._state = TransactionState(transactional_id)
        super().__init__(
            cluster, send_options, BatchOptions(linger_ms / 1000, batch_bytes, buffer_bytes)
        )
        self._is_closed = False
        """Takes no more records."""
        lifetime.watch(self)
        if self._state is not None and self._transaction is not None:
            try:
                self._begin_transactions(self._transaction)
            except BaseException:
                self._shut_down()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            # What was sent before the block failed is none of its failure, which goes on.
            is_interrupted = issubclass(kind, KeyboardInterrupt)
            self._close_quietly(INTERRUPTED_CLOSE_MS if is_interrupted else CLOSE_MS)

    def __repr__(self) -> str:
        return f"<kafkalite.Producer: {self.cluster.servers_text}>"

    def __del__(self) -> None:
        if getattr(self, "_is_shut", True) or lifetime.is_untold():
            return
        if self._thread is None and not self.pending_count:
            self._close_quietly(0)  # nothing was sent that it could lose
            return
        self._close_beside()
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)

    def after_fork(self) -> None:
        """Begins anew, in the child: what is under way is the parent's, who sends it, and so is a
        transaction as a whole. One that the parent is closing is closed here."""
        lifetime.free(self._lock)
        try:
            self._sender.close()
            self._leaders.close()
            self._deliveries.leave_to_parent()
            if self._thread is not None:
                self._thread.leave_to_parent()
        finally:
            was_closed = self._is_closed
            self._is_closed = was_closed or self._transaction is not None
            if self._state is not None:
                self._state.leave_to_parent()
            self._begin()
            self._is_shut = was_closed

    def at_exit(self, timeout_ms: int) -> None:
        """Closes it, at the end of the program, unless a thread is at it."""
        self._close_quietly(timeout_ms)
        if self._closer is not None:
            self._closer.join(timeout_ms / 1000)

    def close(self, timeout_ms: int | None = None) -> None:
        """Sends what is under way, and closes the connections. A transaction that is under way is
        aborted. What the brokers have not taken in
        time, at the latest after `delivery_timeout_ms`, is given up, and its callbacks are told.

        A handler of a signal that comes in the midst of another call has it done at the end of that
        call, or of the program. Raises as `flush` does.
        """
        if timeout_ms is not None:
            int32("timeout_ms", timeout_ms, 0)
        if self._is_shut:
            return
        if self._lock._is_owned():  # type: ignore[attr-defined]
            self._is_to_close, self._close_timeout_ms = True, timeout_ms
            return
        self._is_closed = True
        try:
            self._abort_quietly(timeout_ms)
            self._flush(timeout_ms)
        except RequestTimedOutError as error:
            self._abandon(error)
        except BaseException:
            self._abandon(RequestTimedOutError("the producer was closed in the midst of it"))
            self._shut_down()
            raise
        self._shut_down()
        self._deliveries.raise_first()

    def _close_beside(self) -> None:
        """Has a thread of its own send what is left, which holds the producer until then."""
        lifetime.watch(self)
        try:
            self._closer = threading.Thread(target=self._close_quietly, args=(None,), daemon=True)
            self._closer.start()
        except RuntimeError:  # no thread can be started
            self._close_quietly(CLOSE_MS)

    def _close_quietly(self, timeout_ms: int | None) -> None:
        """Closes it where nobody takes an error: the log is told."""
        try:
            self.close(timeout_ms)
        except Exception as error:  # noqa: BLE001 - a callback's too
            self._troubles.warn(f"{self!r} was closed: {error}")
            self._troubles.write()

    @alone
    def _abandon_locked(self, error: KafkaliteError) -> None:
        self._whole(self._close_batches, self._accumulator.opened())
        self._whole(self._sender.abandon, error)

    def _abandon(self, error: KafkaliteError) -> None:
        self._abandon_locked(error)
        self._tell()

    def _shut_down(self) -> None:
        thread = self._thread
        with self._lock:
            self._is_shut = True
            if thread is not None:
                thread.wake()
            self._sender.close()
            self._leaders.close()
            if self._owns:
                self.cluster.close()
        lifetime.forget(self)
        self._tell()
        if thread is not None:
            thread.join(JOIN_S)

    def _refuse_closed(self) -> None:
        if self._state is not None:
            self._state.refuse_forked()
        if self._is_closed:
            raise InvalidArgumentError("the producer has been closed")

    def _refuse_shut(self) -> None:
        """As `confluent_kafka.Consumer`, and `KafkaProducer.send` of Java's: what is called after
        `close` is a mistake of the program's, which may believe that it has waited for something.
        A callback that `close` calls may."""
        if self._is_shut and not self._deliveries.is_called_back:
            self._refuse_closed()

    # --- sending ----------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Bytes | None,
        key: Bytes | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Puts a record into a batch; waits only if more than `buffer_bytes` are under way.

        Raises `RequestTimedOutError` if they are for too long, `BrokerError` for a topic or
        partition that there is not, `TypeError` for what is no text and what are no bytes. What
        happens to the record later, `on_delivery` is told and `flush` raises. What `on_delivery`
        itself raises comes out of the next `poll` or `flush`, as in confluent-kafka, after all that
        were due have been called; of several the first.
        """
        outcome = self._accumulator.append(
            topic, value, key, headers, partition, timestamp_ms, on_delivery
        )
        if not outcome:
            return  # as almost always: the rest is once a batch
        if outcome == REFUSED:
            topic, value, key = text("topic", topic), bytes_of("value", value), bytes_of("key", key)
            pairs = header_pairs(headers)
            if partition is not None:
                partition = int32("partition", partition, 0)
            if timestamp_ms is not None:
                timestamp_ms = whole("timestamp_ms", timestamp_ms, 0, TIMESTAMP_MAX)
            if on_delivery is not None and not callable(on_delivery):
                raise wrong_type("on_delivery", on_delivery, "a function")
            self._append(topic, value, key, pairs, partition, timestamp_ms, on_delivery)
        else:
            self._turn_unless_inside()
        self._tell()

    @alone
    def _append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> None:
        """Puts a record into the open batch of its partition; closes that if it is full, and opens
        one if there is none."""
        self._refuse_closed()
        self._check_transaction()
        self._refuse_too_large(topic, value, key, headers)
        if not self._has_room:
            self._wait_for_room()
        outcome, has_closed = REFUSED, False
        while outcome == REFUSED:
            at = self._partition(topic, partition, key)
            self._refuse_closed()
            self._check_transaction()  # it may have ended while this call has waited
            outcome = self._accumulator.append(
                topic, value, key, headers, at, timestamp_ms, on_delivery, True
            )
            if outcome == REFUSED and not self._whole(self._close_batch, topic, at):
                raise InvalidArgumentError(f"no batch takes the record for {topic}-{at}")
            has_closed = has_closed or outcome == REFUSED
        now = time.monotonic()
        if self._has_thread:
            if self._thread is None or self._thread.is_over:
                self._start_thread()
            else:
                self._thread.wake_by(now + self._accumulator.seconds_until_due, now)
        if has_closed or outcome == APPENDED_AND_DUE:
            self._turn_by_the_way(now)

    def _refuse_too_large(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]],
    ) -> None:
        """Raises `InvalidArgumentError` for a record that no request takes."""
        size = len(value or b"") + len(key or b"")
        size += sum(len(name) + len(content or b"") for name, content in headers)
        most = self._send_options.request_bytes_max
        if size > most:
            raise InvalidArgumentError(
                f"the record for topic '{topic}' has {size} bytes, more than "
                f"request_bytes_max={most}"
            )

    @property
    def _has_room(self) -> bool:
        """Says whether another record may be under way. A callback does not wait for itself."""
        held_bytes = self.pending_bytes
        if self._deliveries.is_called_back:
            held_bytes -= self._deliveries.untold_bytes
        return held_bytes <= self._batch_options.buffer_bytes

    def _wait_for_room(self) -> None:
        """As long as `max.block.ms` of Kafka's producer says. Raises `RequestTimedOutError`."""
        wait_ms = self.cluster.timeout_ms
        deadline = time.monotonic() + wait_ms / 1000
        buffer_bytes = self._batch_options.buffer_bytes
        while not self._has_room:
            self._refuse_closed()
            if time.monotonic() >= deadline:
                raise RequestTimedOutError(
                    f"buffer_bytes={buffer_bytes} are under way, and there was no room for "
                    f"another record within {wait_ms} ms"
                )
            if not self._sender.pending_count:
                # Nothing else makes room before linger_ms is over.
                self._whole(self._close_batches, self._accumulator.opened())
            self._step(TURN_MS)

    def poll(self, timeout_ms: int = 0) -> None:
        """Sends what is due and takes answers, waiting for one as long as there is nothing else to
        do: for who wants callbacks called in this thread. Raises what a callback has raised."""
        int32("timeout_ms", timeout_ms, 0)
        self._refuse_shut()
        self._step_alone(timeout_ms)
        self._tell()
        self._deliveries.raise_callback_error()

    def flush(self, timeout_ms: int | None = None) -> None:
        """Returns once everything sent before is on its broker or given up, and its callbacks have
        been called.

        Raises what a callback has raised; else the first error of a record since the last flush.
        `RequestTimedOutError` if something is still under way when the time is over.
        """
        if timeout_ms is not None:
            int32("timeout_ms", timeout_ms, 0)
        self._refuse_shut()
        self._flush(timeout_ms)
        self._deliveries.raise_first()

    def _flush(self, timeout_ms: int | None) -> None:
        self._flush_alone(timeout_ms)
        self._tell()

    @alone
    def _flush_alone(self, timeout_ms: int | None) -> None:
        deadline = float("inf") if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._whole(self._close_batches, self._accumulator.opened())
        number = self._deliveries.begin_flush()
        while not self._deliveries.is_flushed(number):
            left_ms = (deadline - time.monotonic()) * 1000
            self._step(min(TURN_MS, left_ms))
            if left_ms <= 0 and not self._deliveries.is_flushed(number):
                count = self._sender.pending_count
                many = "1 batch was" if count == 1 else f"{count} batches were"
                what = f"{many} not acknowledged" if count else "callbacks were not at their end"
                raise RequestTimedOutError(
                    f"{what} within {timeout_ms} ms{self._sender.trouble_text}"
                )

    @property
    def sent_count(self) -> int:
        """Records that the brokers have taken."""
        return self._deliveries.sent_count

    @property
    def failed_count(self) -> int:
        """Records that were given up."""
        return self._deliveries.failed_count

    @property
    def first_error(self) -> KafkaliteError | None:
        """Why the first of them was, until `flush` raises it."""
        return self._deliveries.first_error

    # --- partitions -------------------------------------------------------------------------------

    @alone
    def topic(self, name: str) -> TopicMetadata:
        """A topic as it was told last; it is created if the broker does that. One that is not known
        is waited for, as `max.block.ms` of Kafka's producer says, and a broker that was there; what
        is under way moves on meanwhile. Raises `BrokerError` and other `ClientError`."""
        return self._topic(short_text("name", name))

    def _topic(self, name: str) -> TopicMetadata:
        known = self.cluster.known_topic(name)
        if known is not None and not self._is_closed:
            return known
        short_text("topic", name)
        self._used.add(name)
        began = time.monotonic()
        while True:
            self._refuse_closed()
            now = time.monotonic()
            self._whole(self._leaders.take, now)
            try:
                found = self._leaders.topic(name, now)
            except ClientError as error:
                if now - began >= self._wait_for_topic_s(error):
                    raise
            else:
                if found is not None:
                    return found
                wait_ms = self.cluster.timeout_ms
                if now - began >= wait_ms / 1000:
                    raise RequestTimedOutError(f"topic '{name}' was not found within {wait_ms} ms")
            self._turn(now)
            self._wait(BACKOFF_MS / 1000)

    def _wait_for_topic_s(self, error: ClientError) -> float:
        """How long a topic is waited for that cannot be looked up."""
        wait_ms = self.cluster.timeout_ms if self.cluster.is_awaited else 0
        if isinstance(error, BrokerError):
            wait_ms = min(wait_ms, UNKNOWN_TOPIC_MS)
        return wait_ms / 1000 if may_pass(error) else 0.0

    def _partition(self, topic: str, partition: int | None, key: bytes | None) -> int:
        """The partition given, else that of the key, else the one that is drawn for a batch."""
        if partition is not None:
            return self._known_partition(topic, partition)
        found = self._topic(topic)
        self._accumulator.learn(topic, len(found.partitions))
        if key is not None:
            return partition_for_key(key, len(found.partitions))
        sticky = self._accumulator.sticky(topic)
        if sticky is None:
            sticky = draw(found)
            self._accumulator.stick(topic, sticky)
        return sticky

    def _known_partition(self, topic: str, partition: int) -> int:
        """Raises `InvalidArgumentError` for one that there is not; one that was used is there."""
        found = self.cluster.known_topic(topic)
        if (topic, partition) not in self._sender.queues:
            found = self._topic(topic)
            if partition >= len(found.partitions):  # unless it was added since
                self.cluster.forget(topic)
                found = self._topic(topic)
            if partition >= len(found.partitions):
                raise InvalidArgumentError(
                    f"topic '{topic}' has no partition {partition}, but 0 to "
                    f"{len(found.partitions) - 1}"
                )
        if found is not None:
            self._accumulator.learn(topic, len(found.partitions))
        return partition


def _promise(
    acks: str | int, idempotent: bool | None, max_in_flight: int, transactional_id: str | None
) -> tuple[int, bool | None]:
    """`acks` as the protocol counts, and if the producer is idempotent; None: if the broker can.
    Raises `InvalidArgumentError` for what contradicts itself."""
    if idempotent is not None:
        flag("idempotent", idempotent)
    if str(acks) not in ACKS:
        raise InvalidArgumentError(f"acks is all, -1, 0 or 1, not {acks}")
    number = ACKS[str(acks)]
    if idempotent and number != -1:
        raise InvalidArgumentError("an idempotent producer needs acks=all")
    if idempotent and max_in_flight > 5:
        raise InvalidArgumentError("an idempotent producer has at most 5 requests in flight")
    if transactional_id is None:
        return number, idempotent
    if not short_text("transactional_id", transactional_id):
        raise InvalidArgumentError("transactional_id is empty")
    if idempotent is False or number != -1 or max_in_flight > 5:
        raise InvalidArgumentError(
            "transactional_id needs an idempotent producer: acks=all, and max_in_flight of 5 at "
            "most"
        )
    return number, True
