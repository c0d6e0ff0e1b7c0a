"""Brings the batches of a producer to the brokers that lead their partitions.

    ready ──► in flight ──► done: taken, or given up
      ▲          │
      └──────────┘ refused for now, or the answer was lost: again, in the order of their numbers

Idempotent, a batch keeps its sequence number however often it is sent. One that is given up leaves
a hole in the sequence, so the partition goes on under the next producer epoch (KIP-360): once those
batches behind it that may be in the log have been sent under their old numbers, one after the
other, and were taken or found missing.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from kafkalite._native import stamp_producer
from kafkalite.client.network.cluster import BACKOFF_MS, Cluster
from kafkalite.client.network.connection import Closing, broker_error, check, may_pass
from kafkalite.client.network.leaders import Leaders
from kafkalite.client.network.pending_request import PendingConnections, PendingRequest
from kafkalite.client.producer.deliveries import Deliveries
from kafkalite.client.producer.link import Link, produce_request
from kafkalite.client.producer.options import SendOptions
from kafkalite.client.producer.partition_queue import Batch, PartitionQueue
from kafkalite.client.producer.transaction_state import because
from kafkalite.client.producer.transactions import Transaction
from kafkalite.client.trouble import Troubles
from kafkalite.errors import (
    BrokerError,
    ClientError,
    ConnectionFailedError,
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

__all__ = ["Sender"]

# Later versions name topics by id, which a topic that is made anew changes.
PRODUCE_BY_NAME = 12
# With later ones partitions join a transaction by themselves, if the cluster can, and only then.
PRODUCE_IN_TRANSACTION = 11

ADD_S = 5.0
"""The time that a coordinator is waited for in one go, under the producer's lock."""

HANG_UPS = 3
"""So often a broker may hang up on a request before that is said to be the reason."""

EPOCH_MAX = 2**15 - 1
"""The last epoch of a producer id."""


class Sender(Closing):
    """Sends what is ready in `queues`. One thread at a time; nothing of it waits for an answer to
    Produce."""

    def __init__(
        self,
        cluster: Cluster,
        leaders: Leaders,
        options: SendOptions,
        transaction: Transaction | None,
        deliveries: Deliveries,
        troubles: Troubles,
    ) -> None:
        """Connects to nobody yet."""
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.pending_bytes = 0
        """Memory of the batches that are ready or in flight, as they were before compression."""
        self.pending_count = 0
        """Number of those batches."""
        self._ready: dict[PartitionQueue, None] = {}
        """The partitions with a batch that is ready, in their order."""
        self._cluster = cluster
        self._leaders = leaders
        self._options = options
        self._wants_id = options.wants_id
        self._producer_id, self._epoch = -1, 0
        self._cluster_id: str | None = None
        """The cluster that the producer id is of."""
        self._pending_id: PendingRequest | None = None
        self._id_asked_at = 0.0
        self._connecting = PendingConnections(cluster)
        self._transaction = transaction
        self.transaction_error: KafkaliteError | None = None
        """Why the transaction can only be aborted."""
        self._deliveries = deliveries
        self._troubles = troubles
        self._links: dict[int, Link] = {}
        self._closed_count = 0
        self._hung_up: dict[int, int] = {}
        """How often, one after the other, a broker has hung up with batches unanswered."""

    def close(self) -> None:
        """Closes the connections."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()
        self._connecting.close()
        if self._pending_id is not None:
            self._pending_id.close()

    def descriptors(self) -> list[int]:
        """Sockets that are ready when there is something to do for `take`."""
        sent = [link.connection.fileno() for link in self._links.values() if link.flights]
        asked = [] if self._pending_id is None else self._pending_id.descriptors()
        return sent + asked + self._connecting.descriptors()

    @property
    def starting_since(self) -> float | None:
        """Since when (monotonic seconds) a connection is being made, or a producer id asked for,
        without which nothing can be sent; None if nothing of that is under way."""
        if self._pending_id is None and not self._connecting.is_under_way:
            return None
        return max(self._id_asked_at, self._connecting.begun_at)

    def due(self, now: float) -> float:
        """Monotonic seconds by which to `take` and to `send` though nothing is ready: something
        may go again, or is given up. What was due by `now` has been done."""
        moments = [link.late for link in self._links.values() if link.flights]
        moments += [link.connection.throttled_until for link in self._links.values()]
        moments += [queue.ready[0].deadline for queue in self._ready if queue.ready]
        moments += [self._connecting.due, self.resumes(now)]
        if self._pending_id is not None:
            moments.append(self._pending_id.due)
        return min((moment for moment in moments if moment > now), default=float("inf"))

    def resumes(self, now: float) -> float:
        """Monotonic seconds at which the first pause of a partition is over."""
        pauses = (queue.paused_until for queue in self._ready if not queue.in_flight)
        return min((moment for moment in pauses if moment > now), default=float("inf"))

    @property
    def trouble_text(self) -> str:
        """The trouble of a partition, behind a colon; nothing if there is none."""
        troubles = (queue.trouble for queue in self._ready if queue.trouble is not None)
        first = next(troubles, None)
        return "" if first is None else f": {first}"

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """The queue of a partition, which must exist."""
        queue = self.queues.get((topic, partition))
        if queue is None:
            queue = self.queues[topic, partition] = PartitionQueue(
                topic, partition, self._producer_id, self._epoch
            )
        return queue

    def begin(self, batch: Batch) -> None:
        """Notes a batch that is being closed, behind those that were closed before it. From now on
        it has `delivery_timeout_ms`."""
        self._closed_count += 1
        batch.number = self._closed_count
        batch.deadline = time.monotonic() + self._options.delivery_timeout_ms / 1000
        self._deliveries.begin(batch)

    def put(self, batch: Batch) -> bool:
        """Has a batch that was closed go; says whether there are records in it."""
        if not batch.fill():
            del self._deliveries.unfinished[batch.order]
            return False
        self.pending_bytes += batch.held_bytes
        self.pending_count += 1
        queue = self.queue(batch.topic, batch.partition)
        queue.ready.append(batch)
        self._ready[queue] = None
        return True

    def mend(self) -> None:
        """Begins anew with what is not done, as if all connections had been lost: an exception, of
        a handler of a signal's, has come out of the midst of a change."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()
        self._connecting.close()
        self._connecting = PendingConnections(self._cluster)
        if self._pending_id is not None:
            self._pending_id.close()
            self._pending_id = None
        self._leaders.close()
        for queue in self.queues.values():
            queue.in_flight.clear()
            queue.ready.clear()
            queue.is_unproven = True
        self._ready.clear()
        self.pending_bytes = self.pending_count = 0
        for order in sorted(self._deliveries.unfinished):
            self.put(self._deliveries.unfinished[order])

    def abandon(self, error: KafkaliteError) -> None:
        """Gives up all batches: nobody sends them any more."""
        for queue in self.queues.values():
            left = [*queue.in_flight, *queue.ready]
            queue.in_flight.clear()
            queue.ready.clear()
            for batch in left:
                self._finish(batch, error, -1)
        self._ready.clear()
        for link in self._links.values():
            link.flights.clear()

    def fail_transaction(self, error: KafkaliteError) -> None:
        """Has all that is not on its way be given up, with the next turn."""
        self.transaction_error = self.transaction_error or error

    def begin_transaction(self) -> None:
        """Begins anew, after the end of a transaction, when nothing is under way."""
        transaction = self._transaction
        if transaction is None:
            return
        self.transaction_error = None
        if (transaction.producer_id, transaction.epoch) != (self._producer_id, self._epoch):
            for queue in self.queues.values():
                queue.renumber = False
                queue.begin_epoch(transaction.producer_id, transaction.epoch)
            self._producer_id, self._epoch = transaction.producer_id, transaction.epoch

    def _finish(self, batch: Batch, error: KafkaliteError | None, base_offset: int) -> None:
        self.pending_bytes -= batch.held_bytes
        self.pending_count -= 1
        if error is not None and self._transaction is not None:
            self.fail_transaction(error)
        self._deliveries.finish(batch, error, base_offset)

    # --- sending ----------------------------------------------------------------------------------

    def send(self, now: float) -> None:
        """Gives up what is too old, and sends what may go."""
        if not self._ready:
            return
        self._leave_other_cluster()
        by_node: dict[int, list[PartitionQueue]] = {}
        # First of all partitions: one that is given up ends the transaction of the others.
        for queue in self._ready:
            self._give_up_old(queue, now)
        if self.transaction_error is not None:
            for queue in self._ready:
                self._give_up_all(queue, self.transaction_error)
        for queue in [queue for queue in self._ready if not queue.ready]:
            del self._ready[queue]
        for queue in self._ready:
            if queue.renumber and not queue.in_flight:
                self._renumber(queue, now)
            waits = not queue.may_send or now < queue.paused_until
            if waits or (self._options.max_in_flight == 1 and queue.in_flight):
                continue
            try:
                led = self._leaders.find(queue.topic, queue.partition, now)
            except ClientError as error:
                self._pause(queue, error, "metadata", now)
                continue
            if led is not None:
                by_node.setdefault(led.leader, []).append(queue)
        for node_id, queues in by_node.items():
            if self.transaction_error is None:
                self._send_to(node_id, queues, now)

    def _send_to(self, node_id: int, queues: list[PartitionQueue], now: float) -> None:
        """Requests with one batch a partition, as many as may fly."""
        try:
            if self._wants_id and self._producer_id < 0 and not self._take_producer_id(now):
                return
            link = self._link(node_id, now)
            if link is None or now < link.connection.throttled_until:
                return
            if self._transaction is not None:
                with self._cluster.until(now + ADD_S):
                    self._transaction.add((queue.topic, queue.partition) for queue in queues)
        except ClientError as error:
            for queue in queues:
                batch = queue.ready.popleft()
                if not queue.ready:
                    del self._ready[queue]
                self._come_back(queue, [batch], error, f"broker {node_id}", now)
            return
        while len(link.flights) < self._options.max_in_flight:
            batches: list[Batch] = []
            size = 0
            for queue in queues:
                if not queue.ready or not queue.may_send:
                    continue
                size += len(queue.ready[0].records)
                if batches and size > self._options.request_bytes_max:
                    break
                batches.append(queue.ready.popleft())
                queue.in_flight.append(batches[-1])
                if not queue.ready:
                    del self._ready[queue]
            if not batches:
                return
            # Who sent the records is told by `delivery_timeout_ms`, whatever the broker does.
            late = now + self._options.request_timeout_ms / 1000
            for batch in batches:
                batch.was_sent = True
                if now < batch.deadline:
                    late = min(late, batch.deadline)
            link.flights.append((late, batches))
            link.late = min(link.late, late)
            try:
                request, is_answered = self._request(batches), self._options.acks != 0
                link.connection.send(
                    request, at_most=self._at_most, answered=is_answered, waits=False
                )
                if not is_answered and link.connection.push():
                    self._take_as_sent(link)
            except ClientError as error:
                self._lose(link, error, now)
                return

    def _take_as_sent(self, link: Link) -> None:
        """With acks=0 that is all that there is to know."""
        while link.flights:
            for batch in link.flights.popleft()[1]:
                queue = self.queues[batch.topic, batch.partition]
                queue.in_flight.remove(batch)
                self._taken(queue, link)
                self._finish(batch, None, -1)

    def _link(self, node_id: int, now: float) -> Link | None:
        """None while it is being made. Raises `ClientError`."""
        link = self._links.get(node_id)
        if link is not None and not self._has_ended(link):
            return link
        made = self._connecting.take(node_id, now)
        if made is None:
            return None
        link = self._links[node_id] = Link(node_id, made)
        return link

    def _has_ended(self, link: Link) -> bool:
        """Says whether the broker has hung up, as it does after `connections.max.idle.ms`. Where no
        answer is due nobody would be told, and what is sent would be gone."""
        if self._options.acks == 0 and not link.flights and link.connection.is_open:
            with suppress(ClientError):
                link.connection.receive_ready()
        return not link.connection.is_open

    def _request(self, batches: Iterable[Batch]) -> Any:
        numbered = self._producer_id >= 0
        records = [(each, self._stamped(each) if numbered else each.records) for each in batches]
        transaction = self._transaction
        name = None if transaction is None else transaction.transactional_id
        return produce_request(records, self._options, name)

    def _stamped(self, batch: Batch) -> bytes:
        self.queues[batch.topic, batch.partition].number(batch)
        return stamp_producer(batch.records, batch.producer_id, batch.epoch, batch.sequence)

    @property
    def _at_most(self) -> int:
        transaction = self._transaction
        joins = transaction is None or transaction.adds_partitions
        return PRODUCE_BY_NAME if joins else PRODUCE_IN_TRANSACTION

    def _take_producer_id(self, now: float) -> bool:
        """Says whether batches may go: with an id, or without one where the brokers have none."""
        if self._transaction is not None:
            self._take_id(self._transaction.producer_id, self._transaction.epoch)
            return True
        try:
            found = self._ask_producer_id(now)
        except UnsupportedVersionError:
            if self._options.idempotent:
                raise
            self._wants_id = False
            return True
        if found is None:
            return False
        self._take_id(*found)
        return True

    def _ask_producer_id(self, now: float) -> tuple[int, int] | None:
        """A producer id that nobody else has, and its epoch; None while no answer is there. Raises
        `ClientError`: the next call asks again."""
        pending, self._pending_id = self._pending_id, None
        if pending is None:
            request = messages.InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=60_000
            )
            pending = PendingRequest(self._cluster, request, now)
            self._id_asked_at = now
        response = pending.take(now)
        if response is None:
            self._pending_id = pending
            return None
        check(response.error_code, "a producer id")
        return response.producer_id, response.producer_epoch

    def _leave_other_cluster(self) -> None:
        """Has all go under a new producer id where another cluster answers: a broker with a new
        data directory, which gives this one's to somebody else."""
        told = self._cluster.cluster_id
        if told is None or told == self._cluster_id or self._transaction is not None:
            return
        was, self._cluster_id = self._cluster_id, told
        if was is None or self._producer_id < 0:
            return
        self._troubles.warn(f"cluster {told} answers in place of {was}: records go there")
        self.mend()
        for batch in self._deliveries.unfinished.values():
            batch.sequence = -1
        for queue in self.queues.values():
            queue.renumber = False
            queue.begin_epoch(-1, 0)
        self._producer_id = -1

    def _take_id(self, producer_id: int, epoch: int) -> None:
        self._producer_id, self._epoch = producer_id, epoch
        for queue in self.queues.values():
            queue.producer_id, queue.epoch = producer_id, epoch

    # --- answers ----------------------------------------------------------------------------------

    def take(self, now: float) -> None:
        """Takes what has been answered by now."""
        self._connecting.go_on(now)
        for link in list(self._links.values()):
            flights, connection = link.flights, link.connection
            if not flights:
                continue
            try:
                if self._options.acks == 0 and connection.push():
                    self._take_as_sent(link)
                while flights and (response := connection.receive_ready()) is not None:
                    _, batches = flights.popleft()
                    self._take_answer(response, batches, link, now)
            except ClientError as error:
                self._lose(link, error, now)
                continue
            if flights and now >= link.late:
                link.late = min(moment for moment, _ in flights)
            if flights and now >= link.late:
                late = RequestTimedOutError(f"no answer from {connection.peer} to Produce in time")
                self._lose(link, late, now)

    def _take_answer(self, response: Any, batches: list[Batch], link: Link, now: float) -> None:
        rows = {
            (topic.name, row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }
        for batch in batches:
            queue = self.queues[batch.topic, batch.partition]
            queue.in_flight.remove(batch)
            row = rows.get((batch.topic, batch.partition))
            code = -1 if row is None else row.error_code
            if row is not None and code in (NONE, DUPLICATE_SEQUENCE_NUMBER):
                self._taken(queue, link)
                self._finish(batch, None, row.base_offset)
                continue
            told = None
            if row is not None:
                told = row.error_message
                if row.record_errors:
                    told = row.record_errors[0].batch_index_error_message or told
            error = broker_error(code, f"partition {batch.topic}-{batch.partition}", told)
            self._refused(queue, batch, error, now)

    def _taken(self, queue: PartitionQueue, link: Link) -> None:
        """Ends what was in the partition's way."""
        queue.pause_ms, queue.trouble, queue.is_unproven = BACKOFF_MS, None, False
        self._hung_up.pop(link.node_id, None)
        if self._troubles:
            name = f"{queue.topic}-{queue.partition}"
            self._troubles.end(name, f"records of {name} are taken again")
            self._troubles.end(f"broker {link.node_id}", f"{link.connection.peer} answers again")
            self._troubles.end("metadata", "leaders are found again")

    def _refused(self, queue: PartitionQueue, batch: Batch, error: BrokerError, now: float) -> None:
        numbered = batch.sequence >= 0
        name = f"{queue.topic}-{queue.partition}"
        is_odd = numbered and error.code in (OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID)
        is_out_of_order = numbered and error.code == OUT_OF_ORDER_SEQUENCE_NUMBER
        batch.is_missing = is_odd
        if is_out_of_order and queue.follows_a_gap(batch):
            # It goes after the one before it, which has its pause.
            self._put_back(queue, [batch])
        elif is_odd and self._transaction is None:
            # The broker has lost what was before it, unless that was given up.
            if not queue.renumber:
                self._pause(queue, error, name, now)
            queue.renumber = True
            self._put_back(queue, [batch])
        elif error.retriable:
            self._come_back(queue, [batch], error, name, now)
        elif error.code == MESSAGE_TOO_LARGE and batch.count > 1:
            self._split(queue, batch)
        else:
            queue.renumber = queue.renumber or numbered
            self._finish(batch, error, -1)

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        """A batch is larger than the topic allows, and each of its records may not be
        (`RecordAccumulator.splitAndReenqueue`)."""
        halves = batch.halves({self._options.codec: self._options.level})
        self.pending_bytes += sum(each.held_bytes for each in halves) - batch.held_bytes
        self.pending_count += len(halves) - 1
        self._deliveries.split(batch, halves)
        self._put_back(queue, halves)

    def _lose(self, link: Link, error: ClientError, now: float) -> None:
        """The connection is gone, and with it every answer that was due."""
        error = self._with_a_hint(link, error)
        lost: dict[PartitionQueue, list[Batch]] = {}
        for _, batches in link.flights:
            for batch in batches:
                queue = self.queues[batch.topic, batch.partition]
                lost.setdefault(queue, []).append(batch)
        link.flights.clear()
        link.connection.close()
        for queue, batches in lost.items():
            for batch in batches:
                queue.in_flight.remove(batch)
            self._come_back(queue, batches, error, f"broker {link.node_id}", now)
        # Who answers at its address next may be of another cluster, which Metadata tells.
        for topic, partition in self.queues:
            known = self._cluster.known_topic(topic)
            row = None if known is None else known.partitions.get(partition)
            if row is not None and row.leader == link.node_id:
                self._leaders.doubt(topic, partition)

    def _with_a_hint(self, link: Link, error: ClientError) -> ClientError:
        """A broker says in no other way that a request is larger than it takes."""
        if not link.flights or not isinstance(error, ConnectionFailedError):
            return error
        times = self._hung_up[link.node_id] = self._hung_up.get(link.node_id, 0) + 1
        if times < HANG_UPS:
            return error
        hinted = link.hung_up(error, times)
        if times == HANG_UPS:
            self._troubles.warn(str(hinted))
        return hinted

    def _come_back(
        self, queue: PartitionQueue, batches: list[Batch], error: ClientError, name: str, now: float
    ) -> None:
        """Batches that could not be sent, or of which it is not known what became of them, because
        of the trouble `name`."""
        if may_pass(error):
            self._put_back(queue, batches)
            self._pause(queue, error, name, now)
        else:
            queue.renumber = queue.renumber or any(batch.sequence >= 0 for batch in batches)
            for batch in batches:
                self._finish(batch, error, -1)
        self._leaders.doubt(queue.topic, queue.partition)

    def _put_back(self, queue: PartitionQueue, batches: list[Batch]) -> None:
        queue.put_back(batches)
        self._ready[queue] = None

    def _pause(self, queue: PartitionQueue, error: ClientError, name: str, now: float) -> None:
        queue.pause(now, error)
        self._troubles.begin(name, f"{error}; records wait")

    def _give_up_old(self, queue: PartitionQueue, now: float) -> None:
        while queue.ready and queue.is_given_up(now):
            batch = queue.ready.popleft()
            queue.renumber = queue.renumber or batch.sequence >= 0
            where = f"for partition {batch.topic}-{batch.partition}"
            many = f"{batch.count} records {where} were"
            what = f"1 record {where} was" if batch.count == 1 else many
            late = f"{what} not acknowledged within {self._options.delivery_timeout_ms / 1000:g} s"
            late += f": {queue.trouble}" if queue.trouble is not None else ""
            self._finish(batch, RequestTimedOutError(late), -1)

    def _give_up_all(self, queue: PartitionQueue, error: KafkaliteError) -> None:
        """A transaction that lacks a record is not committed: nothing more is sent of it."""
        queue.renumber = False
        unsent = because("not sent, since the transaction can only be aborted", error)
        while queue.ready:
            self._finish(queue.ready.popleft(), unsent, -1)

    def _renumber(self, queue: PartitionQueue, now: float) -> None:
        if queue.is_unsure or now < queue.paused_until:
            return
        producer_id, epoch = queue.producer_id, queue.epoch + 1
        if epoch > EPOCH_MAX:
            try:
                found = self._ask_producer_id(now)
            except ClientError as error:
                self._pause(queue, error, "metadata", now)
                return
            if found is None:
                return
            producer_id, epoch = found
        queue.begin_epoch(producer_id, epoch)
        queue.renumber = False
