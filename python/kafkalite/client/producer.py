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
topic allows as two halves. A batch that is given up leaves a hole in the sequence, so the partition
goes on under the next producer epoch (KIP-360): once those batches behind it that may be in the log
have been sent under their old numbers, one after the other, and were taken or found missing.
"""

import random
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from kafkalite._native import BatchBuilder, partition_for_key, stamp_producer
from kafkalite.client.arguments import Bytes, bytes_of, header, short_text, text, whole
from kafkalite.client.cluster import (
    BACKOFF_MS,
    UNKNOWN_TOPIC_MS,
    Cluster,
    Servers,
    TopicMetadata,
)
from kafkalite.client.connection import Connection, broker_error, check, may_pass
from kafkalite.client.lane import SEQUENCES, Batch, Lane, OnDelivery, OpenBatch
from kafkalite.client.leaders import Leaders
from kafkalite.client.transactions import Transaction
from kafkalite.errors import (
    BrokerError,
    ClientError,
    InvalidArgumentError,
    KafkaliteError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kafkalite.protocol import messages
from kafkalite.protocol.codes import (
    DUPLICATE_SEQUENCE_NUMBER,
    MESSAGE_TOO_LARGE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_PRODUCER_ID,
)

__all__ = ["Producer"]

Headers = Sequence[tuple[str, bytes | None]]

# Later versions name topics by id, which a topic that is made anew changes.
PRODUCE_BY_NAME = 12
# With later ones partitions join a transaction by themselves, if the cluster can (KIP-890).
PRODUCE_IN_TRANSACTION = 11

RECORD_OVERHEAD_BYTES = 21
"""A record without key, value and headers takes no more of a batch."""
HEADER_OVERHEAD_BYTES = 10
"""A header without name and content takes no more of a record."""
EPOCH_MAX = 2**15 - 1
"""The last epoch of a producer id."""
TOPICS_AGE_S = 300.0
"""Topics are looked up again after so long, as `metadata.max.age.ms` of Kafka's producer says, and
forgotten if nothing was sent to them (`metadata.max.idle.ms`)."""

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}


class _Link:
    """A connection of the producer's own, and what was sent on it and not answered, oldest first,
    each with the moment at which that is too late."""

    __slots__ = ("connection", "flights")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.flights: deque[tuple[float, list[Batch]]] = deque()


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
        text("codec", codec)
        short_text("client_id", client_id)
        whole("linger_ms", linger_ms, 0)
        whole("batch_bytes", batch_bytes, 0)
        whole("request_bytes_max", request_bytes_max, 1)
        whole("buffer_bytes", buffer_bytes, 0)
        whole("max_in_flight", max_in_flight, 1)
        whole("delivery_timeout_ms", delivery_timeout_ms, 0)
        whole("request_timeout_ms", request_timeout_ms, 1)
        if str(acks) not in ACKS:
            raise InvalidArgumentError(f"acks is all, -1, 0 or 1, not {acks}")
        self._acks = ACKS[str(acks)]
        if idempotent and self._acks != -1:
            raise InvalidArgumentError("an idempotent producer needs acks=all")
        if idempotent and max_in_flight > 5:
            raise InvalidArgumentError("an idempotent producer has at most 5 requests in flight")
        if transaction is not None and not idempotent:
            raise InvalidArgumentError("transactions need an idempotent producer")
        BatchBuilder(codec, level=level)
        self._idempotent = idempotent
        self._wants_id = self._acks == -1 and idempotent is not False and max_in_flight <= 5
        self._transaction = transaction
        self._producer_id, self._epoch = -1, 0
        self._codec, self._level = codec, level
        self._linger_s = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._request_bytes_max = request_bytes_max
        self._buffer_bytes = buffer_bytes
        self._max_in_flight = max_in_flight
        self._delivery_s = delivery_timeout_ms / 1000
        self._request_timeout_ms = request_timeout_ms
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
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._sticky: dict[str, int] = {}
        self._links: dict[int, _Link] = {}
        self._made_count = 0
        self._pending_bytes = 0
        self._next_linger = float("inf")
        self._next_look = time.monotonic() + TOPICS_AGE_S
        self._used: set[str] = set()
        """Topics that something was sent to since the last look."""
        self._transaction_error: KafkaliteError | None = None
        """Why the transaction can only be aborted."""
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
        for link in self._links.values():
            link.connection.close()
        self._links.clear()
        self._leaders.close()
        if self._owns:
            self.cluster.close()

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
        """Puts a record into a batch; waits only if `buffer_bytes` are under way.

        Raises `BrokerError` for a topic or partition that there is not, `TypeError` for what is no
        text and what are no bytes. What happens to the record later, `on_delivery` is told and
        `flush` raises. What `on_delivery` itself raises comes out of the next `poll` or `flush`,
        as in confluent-kafka, after all that were due have been called; of several the first.
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
            wall_ms = whole("timestamp_ms", timestamp_ms)
        lane = self._lane(topic, partition, key)
        opened = lane.open
        size = len(value or b"") + len(key or b"") + RECORD_OVERHEAD_BYTES
        for name, content in encoded:
            size += len(name) + len(content or b"") + HEADER_OVERHEAD_BYTES
        has_closed = False
        if opened is not None and opened.builder.size_bytes + size > self._batch_bytes:
            self._close_batch(lane)
            has_closed = True
            if partition is None and key is None:
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
        self._pending_bytes += size
        if opened.builder.size_bytes >= self._batch_bytes:
            self._close_batch(lane)
            has_closed = True
        now = time.monotonic()
        if has_closed or now >= self._next_linger:
            self._turn(now)
        while self._pending_bytes > self._buffer_bytes:
            if not any(lane.ready or lane.flying for lane in self._lanes.values()):
                self._close_all()  # nothing else makes room before linger_ms is over
            self._poll(100)

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

    def _poll(self, timeout_ms: int) -> None:
        now = time.monotonic()
        self._turn(now)
        if timeout_ms <= 0 or not self.pending_count:
            return
        deadline = min(now + timeout_ms / 1000, self._next_linger)
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
            self._poll(100)
        self._call_back()
        self._raise_callback_error()
        if self.first_error is not None:
            error, self.first_error = self.first_error, None
            raise error

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
        return self._pending_bytes

    def fileno_list(self) -> list[int]:
        """Sockets on which answers are due: a caller that waits for input of its own can wait for
        these too, and then call `poll`."""
        links = [link.connection.fileno() for link in self._links.values() if link.flights]
        return links + self._leaders.descriptors()

    @property
    def next_due(self) -> float:
        """Monotonic seconds by which `poll` should be called though no answer comes."""
        return self._next_linger

    # --- partitions -------------------------------------------------------------------------------

    def partition_count(self, topic: str) -> int:
        """Partitions of a topic; it is created if the broker does that."""
        return len(self._topic(topic).partitions)

    def _topic(self, name: str) -> TopicMetadata:
        """As it was told last. One that is not known is waited for, as `max.block.ms` of Kafka's
        producer says, and a broker that was there; what is under way moves on meanwhile."""
        known = self.cluster.known_topic(name)
        if known is not None:
            return known
        short_text("topic", name)
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
            self._turn(now)
            self._wait(BACKOFF_MS / 1000)

    def _wait_for_topic_s(self, error: ClientError) -> float:
        """How long a topic is waited for that cannot be looked up."""
        wait_ms = self.cluster.timeout_ms if self.cluster.was_reached else 0
        if isinstance(error, BrokerError):
            wait_ms = min(wait_ms, UNKNOWN_TOPIC_MS)
        return wait_ms / 1000 if may_pass(error) else 0.0

    def _lane(self, topic: str, partition: int | None, key: bytes | None) -> Lane:
        if partition is None:
            if key is not None:
                partition = partition_for_key(key, len(self._topic(topic).partitions))
            else:
                sticky = self._sticky.get(topic)
                if sticky is None:
                    sticky = self._sticky[topic] = self._draw(topic)
                partition = sticky
        lane = self._lanes.get((topic, partition))
        if lane is None:
            whole("partition", partition)
            count = len(self._topic(topic).partitions)
            if not 0 <= partition < count:
                raise InvalidArgumentError(
                    f"topic '{topic}' has no partition {partition}, but 0 to {count - 1}"
                )
            # A callback may have made it while the topic was looked up.
            lane = Lane(topic, partition, self._producer_id, self._epoch)
            lane = self._lanes.setdefault((topic, partition), lane)
        return lane

    def _draw(self, topic: str) -> int:
        partitions = self._topic(topic).partitions
        led = [row.partition for row in partitions.values() if row.leader >= 0]
        return random.choice(led or list(partitions))  # noqa: S311

    # --- batches ----------------------------------------------------------------------------------

    def _close_batch(self, lane: Lane) -> None:
        opened, lane.open = lane.open, None
        if opened is None:
            return
        if self._sticky.get(lane.topic) == lane.partition:
            del self._sticky[lane.topic]
        records = opened.builder.finish()
        self._pending_bytes -= opened.size_bytes
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
        self._made_count += 1
        batch.number = self._made_count
        batch.deadline = batch.made_at + self._delivery_s
        lane.ready.append(batch)
        self._pending_bytes += len(batch.records)

    def _finish(self, batch: Batch, error: KafkaliteError | None, base_offset: int) -> None:
        self._pending_bytes -= len(batch.records)
        if error is None:
            self.sent_count += batch.count
        else:
            self.failed_count += batch.count
            self.first_error = self.first_error or error
            if self._transaction is not None:
                self._transaction_error = self._transaction_error or error
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
        self._take_answers(now)
        self._leaders.take(now)
        if now >= self._next_look:
            self._look_at_topics(now)
        if now >= self._next_linger:
            self._close_old(now)
        self._send_ready(now)
        self._leaders.send(now)
        self._call_back()

    def _look_at_topics(self, now: float) -> None:
        """Partitions that were added get their share of the records."""
        self._next_look = now + TOPICS_AGE_S
        for topic in {topic for topic, _ in self._lanes} - self._used:
            self.cluster.forget(topic)
        self._leaders.look(self._used)
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

    def _send_ready(self, now: float) -> None:
        by_node: dict[int, list[Lane]] = {}
        for lane in list(self._lanes.values()):
            self._give_up_old(lane, now)
            if self._transaction_error is not None:
                self._give_up_all(lane, self._transaction_error)
            if lane.renumber and not lane.flying:
                self._renumber(lane, now)
            waits = not lane.may_send or now < lane.paused_until
            if not lane.ready or waits:
                continue
            try:
                led = self._leaders.find(lane.topic, lane.partition, now)
            except ClientError as error:
                lane.pause(now, error)
                continue
            if led is not None:
                by_node.setdefault(led.leader, []).append(lane)
        for node_id, lanes in by_node.items():
            self._send_to(node_id, lanes, now)

    def _send_to(self, node_id: int, lanes: list[Lane], now: float) -> None:
        """Requests with one batch a partition, as many as may fly."""
        try:
            if self._wants_id and self._producer_id < 0:
                self._take_producer_id()
            if self._transaction is not None:
                self._transaction.add((lane.topic, lane.partition) for lane in lanes)
            link = self._link(node_id)
        except ClientError as error:
            for lane in lanes:
                self._come_back(lane, [lane.ready.popleft()], error, now)
            return
        while len(link.flights) < self._max_in_flight:
            batches: list[Batch] = []
            size = 0
            for lane in lanes:
                if not lane.ready or not lane.may_send:
                    continue
                size += len(lane.ready[0].records)
                if batches and size > self._request_bytes_max:
                    break
                batches.append(lane.ready.popleft())
                lane.flying.append(batches[-1])
            if not batches:
                return
            link.flights.append((now + self._request_timeout_ms / 1000, batches))
            try:
                request = self._request(batches)
                link.connection.send(request, at_most=self._at_most, answered=self._acks != 0)
            except ClientError as error:
                self._lose(link, error, now)
                return
            if self._acks == 0:
                link.flights.pop()
                for batch in batches:
                    self._lanes[batch.topic, batch.partition].flying.remove(batch)
                    self._finish(batch, None, -1)

    def _link(self, node_id: int) -> _Link:
        link = self._links.get(node_id)
        if link is None or not link.connection.is_open:
            link = self._links[node_id] = _Link(self.cluster.new_connection(node_id))
        return link

    def _request(self, batches: Iterable[Batch]) -> Any:
        kind = messages.ProduceRequest
        inner = kind.TopicProduceData
        topics: dict[str, Any] = {}
        for batch in batches:
            records = self._stamped(batch) if self._producer_id >= 0 else batch.records
            row = inner.PartitionProduceData(index=batch.partition, records=records)
            topic = topics.get(batch.topic)
            if topic is None:
                topic = topics[batch.topic] = inner(name=batch.topic)
            topic.partition_data.append(row)
        transaction = self._transaction
        return kind(
            transactional_id=None if transaction is None else transaction.transactional_id,
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
            topic_data=list(topics.values()),
        )

    def _stamped(self, batch: Batch) -> bytes:
        lane = self._lanes[batch.topic, batch.partition]
        lane.number(batch)
        return stamp_producer(batch.records, batch.producer_id, batch.epoch, batch.sequence)

    @property
    def _at_most(self) -> int:
        return PRODUCE_BY_NAME if self._transaction is None else PRODUCE_IN_TRANSACTION

    def _take_producer_id(self) -> None:
        if self._transaction is not None:
            self._take_id(self._transaction.producer_id, self._transaction.epoch)
            return
        try:
            found = self._ask_producer_id()
        except UnsupportedVersionError:
            if self._idempotent:
                raise
            self._wants_id = False
            return
        self._take_id(*found)

    def _ask_producer_id(self) -> tuple[int, int]:
        """A producer id that nobody else has, and its epoch."""
        request = messages.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000
        )
        response = self.cluster.ask(request)
        check(response.error_code, "a producer id")
        return response.producer_id, response.producer_epoch

    def _take_id(self, producer_id: int, epoch: int) -> None:
        self._producer_id, self._epoch = producer_id, epoch
        for lane in self._lanes.values():
            lane.producer_id, lane.epoch = producer_id, epoch

    # --- answers ----------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        descriptors = self.fileno_list()
        if descriptors:
            poller = select.poll()
            for descriptor in descriptors:
                poller.register(descriptor, select.POLLIN)
            poller.poll(seconds * 1000)
        elif seconds > 0:
            time.sleep(min(seconds, 0.05))

    def _take_answers(self, now: float) -> None:
        for link in list(self._links.values()):
            flights, connection = link.flights, link.connection
            if not flights:
                continue
            try:
                while flights and (response := connection.receive_ready()) is not None:
                    _, batches = flights.popleft()
                    self._take_answer(response, batches, now)
            except ClientError as error:
                self._lose(link, error, now)
                continue
            if flights and now >= flights[0][0]:
                connection.close()
                peer, waited_ms = connection.peer, self._request_timeout_ms
                late = RequestTimedOutError(f"no answer from {peer} to Produce in {waited_ms} ms")
                self._lose(link, late, now)

    def _take_answer(self, response: Any, batches: list[Batch], now: float) -> None:
        rows = {
            (topic.name, row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }
        for batch in batches:
            lane = self._lanes[batch.topic, batch.partition]
            lane.flying.remove(batch)
            row = rows.get((batch.topic, batch.partition))
            code = -1 if row is None else row.error_code
            if row is not None and code in (NONE, DUPLICATE_SEQUENCE_NUMBER):
                lane.pause_ms = BACKOFF_MS
                lane.acknowledged = (batch.sequence + batch.count) % SEQUENCES
                self._finish(batch, None, row.base_offset)
                continue
            told = None
            if row is not None:
                told = row.error_message
                if row.record_errors:
                    told = row.record_errors[0].batch_index_error_message or told
            error = broker_error(code, f"partition {batch.topic}-{batch.partition}", told)
            self._refused(lane, batch, error, now)

    def _refused(self, lane: Lane, batch: Batch, error: BrokerError, now: float) -> None:
        numbered = batch.sequence >= 0
        is_odd = numbered and error.code in (OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID)
        # The batch before it has not been taken yet: its turn comes again.
        follows_a_gap = error.code == OUT_OF_ORDER_SEQUENCE_NUMBER and (
            batch.sequence != lane.acknowledged
        )
        batch.is_missing = is_odd
        if is_odd and follows_a_gap:
            lane.put_back([batch])
        elif is_odd and self._transaction is None:
            # The broker has lost what was before it.
            lane.renumber = True
            lane.put_back([batch])
            lane.pause(now, error)
        elif error.retriable:
            self._come_back(lane, [batch], error, now)
        elif error.code == MESSAGE_TOO_LARGE and batch.count > 1:
            self._split(lane, batch)
        else:
            lane.renumber = lane.renumber or numbered
            self._finish(batch, error, -1)

    def _split(self, lane: Lane, batch: Batch) -> None:
        """A batch is larger than the topic allows, and each of its records may not be
        (`RecordAccumulator.splitAndReenqueue`)."""
        halves = batch.halves({self._codec: self._level})
        self._pending_bytes += sum(len(each.records) for each in halves) - len(batch.records)
        lane.put_back(halves)

    def _lose(self, link: _Link, error: ClientError, now: float) -> None:
        """The connection is gone, and with it every answer that was due."""
        lost: dict[tuple[str, int], list[Batch]] = {}
        for _, batches in link.flights:
            for batch in batches:
                lost.setdefault((batch.topic, batch.partition), []).append(batch)
        link.flights.clear()
        link.connection.close()
        for place, batches in lost.items():
            lane = self._lanes[place]
            for batch in batches:
                lane.flying.remove(batch)
            self._come_back(lane, batches, error, now)

    def _come_back(self, lane: Lane, batches: list[Batch], error: ClientError, now: float) -> None:
        """Batches that could not be sent, or of which it is not known what became of them."""
        if may_pass(error):
            lane.put_back(batches)
            lane.pause(now, error)
        else:
            lane.renumber = lane.renumber or any(batch.sequence >= 0 for batch in batches)
            for batch in batches:
                self._finish(batch, error, -1)
        self._leaders.doubt(lane.topic, lane.partition)

    def _give_up_old(self, lane: Lane, now: float) -> None:
        while lane.ready and now >= lane.ready[0].deadline:
            batch = lane.ready.popleft()
            lane.renumber = lane.renumber or batch.sequence >= 0
            what = f"{batch.count} records for partition {batch.topic}-{batch.partition}"
            late = f"{what} were not acknowledged within {self._delivery_s:g} s"
            late += f": {lane.trouble}" if lane.trouble is not None else ""
            self._finish(batch, RequestTimedOutError(late), -1)

    def _give_up_all(self, lane: Lane, error: KafkaliteError) -> None:
        """A transaction that lacks a record is not committed: nothing more is sent of it."""
        lane.renumber = False
        while lane.ready:
            self._finish(lane.ready.popleft(), error, -1)

    def _renumber(self, lane: Lane, now: float) -> None:
        if lane.is_unsure or now < lane.paused_until:
            return
        producer_id, epoch = lane.producer_id, lane.epoch + 1
        if epoch > EPOCH_MAX:
            try:
                producer_id, epoch = self._ask_producer_id()
            except ClientError as error:
                lane.pause(now, error)
                return
        lane.renumber = False
        lane.begin_epoch(producer_id, epoch)
