"""Sends records in batches, one thread, nothing in the background.

    with Producer("127.0.0.1:9092") as producer:
        producer.send("orders", b"value", key=b"key")
        producer.flush()

What is under way moves on inside `send`, `poll` and `flush`: a program that sends now and then
calls `poll` in between. Records with a key go where Kafka's default partitioner puts them; those
without one fill a batch of one partition, then one of another.

    open     the batch that takes records, one a partition, until full or linger_ms old
    ready    closed, in the order of their sequence numbers
    flying   sent and not answered, at most max_in_flight requests a broker

Idempotent unless told otherwise: a batch keeps its sequence number however often it is sent, and
batches of a partition that come back are sent again in their order, one that is larger than the
topic allows as two halves. Who brings them to their brokers is in `sender.py`, who leads in
`leaders.py`.
"""

import random
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from kafkalite._native import partition_for_key
from kafkalite.client.arguments import (
    TIMESTAMP_MAX,
    Bytes,
    bytes_of,
    flag,
    header,
    int32,
    short_text,
    text,
    whole,
    wrong_type,
)
from kafkalite.client.cluster import (
    BACKOFF_MS,
    UNKNOWN_TOPIC_MS,
    Cluster,
    Servers,
    TopicMetadata,
)
from kafkalite.client.connection import may_pass
from kafkalite.client.lane import Batch, Lane, OnDelivery, OpenBatch
from kafkalite.client.leaders import Leaders
from kafkalite.client.producer_settings import check_level
from kafkalite.client.sender import Sender, SendOptions
from kafkalite.client.transactions import Transaction
from kafkalite.errors import (
    BrokerError,
    ClientError,
    InvalidArgumentError,
    KafkaliteError,
    RequestTimedOutError,
)

__all__ = ["Producer"]

Headers = Sequence[tuple[str, bytes | None]]

RECORD_OVERHEAD_BYTES = 21
"""A record without key, value and headers takes no more of a batch."""
HEADER_OVERHEAD_BYTES = 10
"""A header without name and content takes no more of a record."""
START_S = 2.0
"""What a broker that does not answer costs the others at most, each time that it is tried."""
TURN_MS = 100
"""A wait of this length needs no look at what is to be given up meanwhile."""
TOPICS_AGE_S = 300.0
"""Topics are looked up again after so long, as `metadata.max.age.ms` of Kafka's producer says, and
forgotten if nothing was sent to them (`metadata.max.idle.ms`)."""

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}


class Producer:
    """A producer of one cluster. One thread at a time."""

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
        client_id: str = "kafkalite-producer",
        transaction: Transaction | None = None,
    ) -> None:
        """Arguments are Kafka's `acks`, `compression.type`, `compression.*.level`, `linger.ms`,
        `batch.size`, `max.request.size`, `buffer.memory`, `max.in.flight.requests.per.connection`,
        `enable.idempotence` (on, if acks is all and the broker can), `delivery.timeout.ms` and
        `request.timeout.ms`, with Kafka's defaults. What is sent becomes part of `transaction`,
        which was begun and is the caller's to end; then whoever makes the batches makes them
        transactional, and after an error the transaction can only be aborted.

        Raises `InvalidArgumentError` for what contradicts itself, `TypeError`.
        """
        check_level(codec, level)
        short_text("client_id", client_id)
        int32("linger_ms", linger_ms, 0)
        int32("batch_bytes", batch_bytes, 0)
        int32("request_bytes_max", request_bytes_max, 1)
        whole("buffer_bytes", buffer_bytes, 0)
        int32("max_in_flight", max_in_flight, 1)
        int32("delivery_timeout_ms", delivery_timeout_ms, 0)
        int32("request_timeout_ms", request_timeout_ms, 1)
        if idempotent is not None:
            flag("idempotent", idempotent)
        if transaction is not None and not isinstance(transaction, Transaction):
            raise wrong_type("transaction", transaction, "a Transaction")
        if str(acks) not in ACKS:
            raise InvalidArgumentError(f"acks is all, -1, 0 or 1, not {acks}")
        if idempotent and ACKS[str(acks)] != -1:
            raise InvalidArgumentError("an idempotent producer needs acks=all")
        if idempotent and max_in_flight > 5:
            raise InvalidArgumentError("an idempotent producer has at most 5 requests in flight")
        if transaction is not None and not idempotent:
            raise InvalidArgumentError("transactions need an idempotent producer")
        self._codec, self._level = codec, level
        self._linger_s = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._owns = not isinstance(bootstrap_servers, Cluster)
        self.cluster = (
            bootstrap_servers
            if isinstance(bootstrap_servers, Cluster)
            else Cluster(
                bootstrap_servers,
                client_id=client_id,
                timeout_ms=min(60_000, delivery_timeout_ms),
                request_timeout_ms=request_timeout_ms,
            )
        )
        self._leaders = Leaders(self.cluster, allow_auto_create=True)
        options = SendOptions(
            acks=ACKS[str(acks)],
            idempotent=idempotent,
            wants_id=ACKS[str(acks)] == -1 and idempotent is not False and max_in_flight <= 5,
            codec=codec,
            level=level,
            request_bytes_max=request_bytes_max,
            max_in_flight=max_in_flight,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
        )
        self._sender = Sender(self.cluster, self._leaders, options, transaction, self._finish)
        self._lanes = self._sender.lanes
        self._sticky: dict[str, Lane] = {}
        """By topic, where its records without a key go until the batch is full."""
        self._is_closed = False
        self._open_bytes = 0
        """Of the records in open batches, about."""
        self._next_linger = float("inf")
        self._next_look = time.monotonic() + TOPICS_AGE_S
        self._used: set[str] = set()
        """Topics that something was sent to since the last look."""
        self.sent_count = 0
        """Records that the broker has taken."""
        self.failed_count = 0
        """Records that were given up."""
        self.first_error: KafkaliteError | None = None
        """Why the first of them was, until `flush` raises it."""
        self._told: deque[tuple[Batch, KafkaliteError | None, int]] = deque()
        """Batches that are done, with what their callbacks are to be told."""
        self._is_calling_back = False
        self._callback_error: Exception | None = None
        """What the first callback raised, until `poll` or `flush` does."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<kafkalite.Producer: {self.cluster.servers_text}>"

    def close(self) -> None:
        """Closes the connections. What was not flushed is lost."""
        self._is_closed = True
        self._lanes.clear()
        self._sticky.clear()
        self._sender.close()
        self._leaders.close()
        if self._owns:
            self.cluster.close()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise InvalidArgumentError("the producer has been closed")

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
        if type(topic) is not str:
            topic = text("topic", topic)
        if type(value) is not bytes:
            value = bytes_of("value", value)
        if type(key) is not bytes:
            key = bytes_of("key", key)
        encoded = [header(each) for each in headers] if headers else []
        if timestamp_ms is None:
            wall_ms = time.time_ns() // 1_000_000
        else:
            wall_ms = whole("timestamp_ms", timestamp_ms, 0, TIMESTAMP_MAX)
        if self._open_bytes + self._sender.pending_bytes > self._buffer_bytes:
            self._wait_for_room()
        # Most records go where the one before them went.
        is_free = key is None and partition is None
        lane = self._sticky.get(topic) if is_free else None
        if lane is None:
            lane = self._lane(topic, partition, key)
        opened = lane.open
        size = RECORD_OVERHEAD_BYTES
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        for name, content in encoded:
            size += len(name) + len(content or b"") + HEADER_OVERHEAD_BYTES
        has_closed = False
        if opened is not None and opened.batch_bytes + size > self._batch_bytes:
            self._close_batch(lane)
            has_closed = True
            if is_free:
                lane = self._lane(topic, None, None)
            opened = lane.open
        if opened is None:
            opened = lane.open = OpenBatch(self._codec, self._level)
            self._next_linger = min(self._next_linger, opened.made_at + self._linger_s)
        try:
            opened.builder.append(wall_ms, key, value, encoded)
        except BaseException:
            if opened.count == 0:
                lane.open = None  # a batch without a record would be refused
            raise
        if on_delivery is not None:
            opened.callbacks.append((opened.count, on_delivery))
        opened.count += 1
        opened.size_bytes += size
        self._open_bytes += size
        opened.batch_bytes = batch_bytes = opened.builder.size_bytes
        if batch_bytes >= self._batch_bytes:
            self._close_batch(lane)
            has_closed = True
        now = time.monotonic()
        if has_closed or now >= self._next_linger:
            self._turn(now)

    def _wait_for_room(self) -> None:
        """As long as `max.block.ms` of Kafka's producer says. Raises `RequestTimedOutError`."""
        self._refuse_closed()
        wait_ms = self.cluster.timeout_ms
        deadline = time.monotonic() + wait_ms / 1000
        while self.pending_bytes > self._buffer_bytes:
            if time.monotonic() >= deadline:
                raise RequestTimedOutError(
                    f"buffer_bytes={self._buffer_bytes} are under way, and there was no room for "
                    f"another record within {wait_ms} ms"
                )
            if not any(lane.ready or lane.flying for lane in self._lanes.values()):
                self._close_all()  # nothing else makes room before linger_ms is over
            self._poll(TURN_MS)

    def send_batch(
        self,
        topic: str,
        partition: int,
        records: bytes,
        count: int,
        on_done: Callable[[Batch, KafkaliteError | None, int], None] | None = None,
    ) -> None:
        """Sends a batch that was made elsewhere, without a producer id in it. `on_done` gets the
        batch, the error or None, and its base offset; if it had to be split, once a part."""
        lane = self._lane(topic, partition, None)
        self._enqueue(lane, Batch(topic, partition, records, count, time.monotonic(), on_done))
        self._turn(time.monotonic())

    def poll(self, timeout_ms: int = 0) -> None:
        """Moves on what is under way: sends what is due and takes answers, waiting for one as long
        as there is nothing else to do. Raises what a callback has raised."""
        self._poll(timeout_ms)
        self._raise_callback_error()

    def start(self) -> None:
        """For whoever is to do something else for long: what is ready is on its way then, unless a
        broker takes more than `START_S` to be connected to."""
        while (since := self._sender.starting_since) is not None:
            if not self.pending_count or time.monotonic() >= since + START_S:
                return
            self._poll(TURN_MS)

    def _poll(self, timeout_ms: int) -> None:
        now = time.monotonic()
        self._turn(now)
        if timeout_ms <= 0 or not self.pending_count:
            return
        deadline = min(now + timeout_ms / 1000, self._next_linger)
        if timeout_ms > TURN_MS:
            deadline = min(deadline, self._sender.due, max(self._leaders.due, now))
        resumes = [
            lane.paused_until for lane in self._lanes.values() if lane.ready and not lane.flying
        ]
        deadline = min([deadline, *(moment for moment in resumes if moment > now)])
        self._wait(max(deadline - now, 0.0))
        self._turn(time.monotonic())

    def flush(self, timeout_ms: int | None = None) -> None:
        """Returns once everything sent before is on its broker or given up, and its callbacks have
        been called.

        Raises what a callback has raised; else the first error of a record since the last flush.
        `RequestTimedOutError` if something is still under way when the time is over.
        """
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._close_all()
        while self.pending_count:
            if deadline is not None and time.monotonic() >= deadline:
                raise RequestTimedOutError(
                    f"{self.pending_count} batches were not acknowledged within {timeout_ms} ms"
                )
            self._poll(TURN_MS)
        self._call_back()
        self._raise_callback_error()
        if self.first_error is not None:
            error, self.first_error = self.first_error, None
            raise error.with_traceback(None)  # it may be that of other records too

    @property
    def pending_count(self) -> int:
        """Batches that are open, ready or flying."""
        return sum(
            len(lane.ready) + len(lane.flying) + (lane.open is not None)
            for lane in self._lanes.values()
        )

    @property
    def pending_bytes(self) -> int:
        """Bytes of the records that are under way."""
        return self._open_bytes + self._sender.pending_bytes

    def fileno_list(self) -> list[int]:
        """Sockets on which answers are due: a caller that waits for input of its own can wait for
        these too, and then call `poll`."""
        return self._sender.descriptors() + self._leaders.descriptors()

    @property
    def next_due(self) -> float:
        """Monotonic seconds by which `poll` should be called though no answer comes."""
        return self._next_linger

    # --- partitions -------------------------------------------------------------------------------

    def partition_count(self, topic: str) -> int:
        """Partitions of a topic; it is created if the broker does that."""
        return len(self.topic(topic).partitions)

    def topic(self, name: str) -> TopicMetadata:
        """A topic as it was told last; it is created if the broker does that. One that is not known
        is waited for, as `max.block.ms` of Kafka's producer says, and a broker that was there; what
        is under way moves on meanwhile. Raises `BrokerError` and other `ClientError`."""
        known = self.cluster.known_topic(name)
        if known is not None and not self._is_closed:
            return known
        short_text("topic", name)
        self._refuse_closed()
        self._used.add(name)
        began = time.monotonic()
        while True:
            now = time.monotonic()
            self._leaders.take(now)
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

    def _lane(self, topic: str, partition: int | None, key: bytes | None) -> Lane:
        if partition is None:
            if key is not None:
                partition = partition_for_key(key, len(self.topic(topic).partitions))
            else:
                sticky = self._sticky.get(topic)
                if sticky is None:
                    sticky = self._sticky[topic] = self._lane(topic, self._draw(topic), None)
                return sticky
        lane = self._lanes.get((topic, partition))
        if lane is None:
            whole("partition", partition, 0)
            count = len(self.topic(topic).partitions)
            if partition >= count:  # unless it was added since
                self.cluster.forget(topic)
                count = len(self.topic(topic).partitions)
            if partition >= count:
                raise InvalidArgumentError(
                    f"topic '{topic}' has no partition {partition}, but 0 to {count - 1}"
                )
            lane = self._sender.lane(topic, partition)
        return lane

    def _draw(self, topic: str) -> int:
        partitions = self.topic(topic).partitions
        led = [row.partition for row in partitions.values() if row.leader >= 0]
        return random.choice(led or list(partitions))  # noqa: S311

    # --- batches ----------------------------------------------------------------------------------

    def _close_batch(self, lane: Lane) -> None:
        opened, lane.open = lane.open, None
        if opened is None:
            return
        if self._sticky.get(lane.topic) is lane:
            del self._sticky[lane.topic]
        records = opened.builder.finish()
        self._open_bytes -= opened.size_bytes
        callbacks = opened.callbacks

        def done(batch: Batch, error: KafkaliteError | None, base_offset: int) -> None:
            for index, on_delivery in callbacks:
                if not batch.begin <= index < batch.begin + batch.count:
                    continue  # in another batch, since it was split
                offset = base_offset + index - batch.begin if base_offset >= 0 else -1
                self._call(on_delivery, error, batch.topic, batch.partition, offset)

        on_done = done if callbacks else None
        made_at, count = opened.made_at, opened.count
        self._enqueue(lane, Batch(lane.topic, lane.partition, records, count, made_at, on_done))

    def _close_all(self) -> None:
        for lane in self._lanes.values():
            self._close_batch(lane)

    def _enqueue(self, lane: Lane, batch: Batch) -> None:
        self._used.add(batch.topic)
        self._sender.put(lane, batch)

    def _finish(self, batch: Batch, error: KafkaliteError | None, base_offset: int) -> None:
        if error is None:
            self.sent_count += batch.count
        else:
            self.failed_count += batch.count
            self.first_error = self.first_error or error
        if batch.on_done is not None:
            self._told.append((batch, error, base_offset))

    def _call_back(self) -> None:
        """Callbacks are called when nothing is half done: they may send, and may raise. One after
        the other: what is told within a callback that sends waits for its end."""
        if self._is_calling_back:
            return
        self._is_calling_back = True
        try:
            while self._told:
                batch, error, base_offset = self._told.popleft()
                if batch.on_done is not None:
                    self._call(batch.on_done, batch, error, base_offset)
        finally:
            self._is_calling_back = False

    def _call(self, callback: Callable[..., None], *told: Any) -> None:
        try:
            callback(*told)
        except Exception as error:  # noqa: BLE001 - the caller's own, who gets it back
            self._callback_error = self._callback_error or error

    def _raise_callback_error(self) -> None:
        if self._callback_error is not None:
            error, self._callback_error = self._callback_error, None
            raise error

    # --- the turn ---------------------------------------------------------------------------------

    def _turn(self, now: float) -> None:
        """Takes what was answered, gives up what is too old, sends what is due."""
        self._sender.take(now)
        self._leaders.take(now)
        if now >= self._next_look:
            self._look_at_topics(now)
        if now >= self._next_linger:
            self._close_old(now)
        self._sender.send(now)
        self._leaders.send(now)
        self._call_back()

    def _look_at_topics(self, now: float) -> None:
        """Partitions that were added get their share of the records."""
        self._next_look = now + TOPICS_AGE_S
        used = self._used | {topic for (topic, _), lane in self._lanes.items() if lane.is_busy}
        for topic in {topic for topic, _ in self._lanes} - used:
            self.cluster.forget(topic)
        self._leaders.look(used)
        self._used = set()

    def _close_old(self, now: float) -> None:
        due = float("inf")
        for lane in self._lanes.values():
            if lane.open is None:
                continue
            moment = lane.open.made_at + self._linger_s
            if now >= moment:
                self._close_batch(lane)
            else:
                due = min(due, moment)
        self._next_linger = due

    def _wait(self, seconds: float) -> None:
        descriptors = self.fileno_list()
        if descriptors:
            poller = select.poll()
            for descriptor in descriptors:
                poller.register(descriptor, select.POLLIN)
            poller.poll(seconds * 1000)
        elif seconds > 0:
            time.sleep(min(seconds, 0.05))
