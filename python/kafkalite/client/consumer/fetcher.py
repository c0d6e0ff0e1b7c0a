"""Fetches of a consumer: what is asked of which broker, and what its answer means.

While the caller works on what came, the next fetch is under way: of each broker at most one answer
is being made and one is at the caller's. What goes wrong with one partition concerns that partition
alone: it waits, is looked up anew, or has an error that the caller is told (`Places`).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from kafkalite._native import count_fetched, fetched_end
from kafkalite.client.consumer.fetched import Fetched, Waiting, unreadable
from kafkalite.client.consumer.subscription_state import (
    Partition,
    PartitionState,
    SubscriptionState,
)
from kafkalite.client.network.cluster import BACKOFF_MS, UNKNOWN_TOPIC_MS, Cluster
from kafkalite.client.network.connection import Closing, Connection, broker_error, check, may_pass
from kafkalite.client.network.leaders import Leaders
from kafkalite.client.network.pending_request import PendingConnections
from kafkalite.client.trouble import Troubles
from kafkalite.errors import (
    BrokerError,
    ClientError,
    ConnectionFailedError,
    KafkaliteError,
    MessageTooLargeError,
    RequestTimedOutError,
)
from kafkalite.protocol import messages
from kafkalite.protocol.codes import NONE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION

__all__ = ["FetchOptions", "Fetcher"]

READ_COMMITTED = 1

# Later versions name topics by id, which a topic that is made anew changes. Where the cluster tells
# no id of one of them, all go by name.
FETCH_BY_NAME = 12
NO_ID = bytes(16)


class FetchOptions(NamedTuple):
    """The settings of every fetch: sizes in bytes, `isolation` as the protocol counts."""

    isolation: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int
    wait_ms: int


class _Flight(NamedTuple):
    """A fetch that was not answered yet: offset and epoch of each partition, and the names of the
    topics by their ids."""

    asked: dict[Partition, tuple[int, int]]
    names: dict[bytes, str]
    deadline: float


class Fetcher(Closing):
    """Sends fetches and puts what comes into `waiting`. One thread; nothing of it waits for an
    answer."""

    def __init__(
        self,
        cluster: Cluster,
        leaders: Leaders,
        subscription_state: SubscriptionState,
        options: FetchOptions,
        troubles: Troubles,
    ) -> None:
        self.waiting = Waiting(subscription_state)
        self._troubles = troubles
        self._cluster = cluster
        self._leaders = leaders
        self._subscription_state = subscription_state
        self._options = options
        self._connecting = PendingConnections(cluster)
        self._links: dict[int, Connection] = {}
        self._flights: dict[int, _Flight] = {}
        self._scanned_revision = -1
        """The revision of the subscription state when all that may be fetched was in flight."""

    def close(self) -> None:
        """Closes the connections."""
        for connection in self._links.values():
            connection.close()
        self._links.clear()
        self._flights.clear()
        self._connecting.close()

    def descriptors(self) -> list[int]:
        """Sockets on which answers are due."""
        flying = [self._links[node_id].fileno() for node_id in self._flights]
        return flying + self._connecting.descriptors()

    # --- asking -----------------------------------------------------------------------------------

    def send(self, now: float) -> None:
        """Asks each broker that has nothing to answer for whatever may be fetched of it."""
        if self._scanned_revision == self._subscription_state.revision:
            return
        is_waiting = now < self._subscription_state.waits_until
        revision = self._subscription_state.revision
        by_node: dict[int, dict[Partition, int]] = {}
        for partition, state in list(self._subscription_state.items()):
            if not state.may_be_fetched(now):
                continue
            try:
                led = self._leaders.find(*partition, now)
            except ClientError as error:
                self._unfound(partition, error, now)
                is_waiting = True
                continue
            if led is None or self._is_made_anew(partition, state):
                is_waiting = True
            elif self._subscription_state.led(partition, led.leader_epoch):
                by_node.setdefault(led.leader, {})[partition] = state.epoch
        for node_id, epochs in by_node.items():
            if node_id in self._flights:
                continue
            try:
                self._send(node_id, epochs, now)
            except ClientError as error:
                self._failed(epochs, error, now)
                self._has_trouble(node_id, error, epochs)
                is_waiting = True
        if not is_waiting and all(node_id in self._flights for node_id in by_node):
            self._scanned_revision = revision

    def _has_trouble(self, node_id: int, error: ClientError, waiting: Iterable[Partition]) -> None:
        count = len(list(waiting))
        wait = f"{count} partitions wait" if count > 1 else "a partition waits"
        self._troubles.begin(f"broker {node_id}", f"{error}; {wait} for broker {node_id}")

    def _unfound(self, partition: Partition, error: ClientError, now: float) -> None:
        """Nobody leads it. A topic that the cluster does not know, nor some seconds later, has been
        deleted, or never was there, which the caller is told."""
        state = self._subscription_state[partition]
        if isinstance(error, BrokerError) and error.code == UNKNOWN_TOPIC_OR_PARTITION:
            state.unknown_since = state.unknown_since or now
            if now - state.unknown_since >= UNKNOWN_TOPIC_MS / 1000:
                self._subscription_state.fail(partition, state.epoch, error)
                return
        self._failed({partition: state.epoch}, error, now)

    def _is_made_anew(self, partition: Partition, state: PartitionState) -> bool:
        """Notes the id of its topic. One that has another id than before has been deleted and made
        anew, and the position means nothing: it is read from its first offset on."""
        metadata = self._cluster.known_topic(partition[0])
        topic_id = NO_ID if metadata is None else metadata.id
        before, state.topic_id = state.topic_id, topic_id
        if NO_ID in (before, topic_id) or before == topic_id:
            return False
        name = f"{partition[0]}-{partition[1]}"
        self._troubles.warn(
            f"topic '{partition[0]}' was deleted and created again: {name} is read from its "
            f"beginning, not from offset {state.position}"
        )
        self.waiting.shut()
        self._subscription_state.seek(partition, 0)
        state.committed = None  # the broker forgets the offset with the topic
        return True

    def _send(self, node_id: int, partitions: Iterable[Partition], now: float) -> None:
        connection = self._link(node_id, now)
        if connection is None or now < connection.throttled_until:
            return
        kind, options = messages.FetchRequest, self._options
        topics: dict[str, Any] = {}
        names: dict[bytes, str] = {}
        asked = {}
        for partition in partitions:
            state = self._subscription_state[partition]
            asked[partition] = (state.fetch_offset, state.epoch)
            row = kind.FetchTopic.FetchPartition(
                partition=partition[1],
                current_leader_epoch=state.leader_epoch,
                fetch_offset=state.fetch_offset,
                partition_max_bytes=options.partition_bytes_max,
            )
            names[state.topic_id] = partition[0]
            topic = kind.FetchTopic(topic=partition[0], topic_id=state.topic_id)
            topics.setdefault(partition[0], topic).partitions.append(row)
        request = kind(
            max_wait_ms=options.wait_ms,
            min_bytes=options.bytes_min,
            max_bytes=options.bytes_max,
            isolation_level=options.isolation,
            topics=list(topics.values()),
        )
        at_most = FETCH_BY_NAME if NO_ID in names else None
        connection.send(request, at_most=at_most, waits=False)
        wait_s = (options.wait_ms + self._cluster.request_timeout_ms) / 1000
        self._flights[node_id] = _Flight(asked, names, now + wait_s)

    def _link(self, node_id: int, now: float) -> Connection | None:
        """None while it is being made. Raises `ClientError`."""
        known = self._links.get(node_id)
        if known is not None and known.is_open:
            return known
        made = self._connecting.take(node_id, now)
        if made is not None:
            self._links[node_id] = made
        return made

    # --- answers ----------------------------------------------------------------------------------

    def take(self, now: float) -> None:
        """Takes what has been answered by now."""
        self._connecting.go_on(now)
        for node_id, flight in list(self._flights.items()):
            connection = self._links[node_id]
            try:
                response = connection.receive_ready()
                if response is None:
                    if now < flight.deadline:
                        continue
                    raise RequestTimedOutError(f"no answer from {connection.peer} to Fetch")
                check(response.error_code, f"Fetch from {connection.peer}")
            except ClientError as error:
                self._end_flight(node_id)
                connection.close()
                if not isinstance(error, ConnectionFailedError):
                    # Else it may be there again at once.
                    self._has_trouble(node_id, error, flight.asked)
                self._failed({each: epoch for each, (_, epoch) in flight.asked.items()}, error, now)
                continue
            self._end_flight(node_id)
            self._troubles.end(f"broker {node_id}", f"broker {node_id} answers again")
            for topic in response.responses:
                name = topic.topic or flight.names.get(topic.topic_id, "")
                for row in topic.partitions:
                    partition = (name, row.partition_index)
                    if partition in flight.asked:
                        self._take_row(partition, *flight.asked[partition], row, now)

    def _end_flight(self, node_id: int) -> None:
        del self._flights[node_id]
        self._scanned_revision = -1

    def _take_row(
        self, partition: Partition, offset: int, epoch: int, row: Any, now: float
    ) -> None:
        state = self._subscription_state.of(partition, epoch)
        if state is None or state.fetch_offset != offset:
            return  # another leader has answered in between
        if row.error_code == NONE:
            state.unknown_since = None
            is_committed = self._options.isolation == READ_COMMITTED
            end = row.last_stable_offset if is_committed else row.high_watermark
            state.end = None if end < 0 else end
            if not row.records:
                return
        error = _error_of(partition, offset, row)
        if error is None:
            aborted = [
                (each.producer_id, each.first_offset) for each in row.aborted_transactions or ()
            ]
            fetched = Fetched(*partition, offset, row.records, aborted, row.high_watermark)
            self.waiting.put(fetched, epoch)
        elif self.waiting.has(partition):
            # Asked again once the caller has what comes before it: the answer is the same then.
            self._subscription_state.back_off(partition, epoch, now + BACKOFF_MS / 1000)
        elif row.error_code == OFFSET_OUT_OF_RANGE:
            self._subscription_state.needs_reset(partition, epoch)
        else:
            self._failed({partition: epoch}, error, now)

    def _failed(self, asked: dict[Partition, int], error: KafkaliteError, now: float) -> None:
        """Tries again after a pause if the error may pass. An answer that cannot be read is told:
        the next one is most likely the same."""
        cause = error.__cause__
        is_unreadable = isinstance(cause, KafkaliteError) and not isinstance(cause, ClientError)
        passes = isinstance(error, ClientError) and may_pass(error) and not is_unreadable
        for partition, epoch in asked.items():
            if passes:
                self._subscription_state.back_off(partition, epoch, now + BACKOFF_MS / 1000)
                self._leaders.doubt(*partition)
            else:
                self._subscription_state.fail(partition, epoch, error)


def _error_of(partition: Partition, offset: int, row: Any) -> KafkaliteError | None:
    """The error of an answer for a partition, as far as its first batch."""
    if row.error_code != NONE:
        return broker_error(row.error_code, f"partition {partition[0]}-{partition[1]}")
    if fetched_end(row.records, offset) > offset:
        return None
    try:
        count_fetched(row.records, offset)
    except KafkaliteError as error:
        return unreadable(partition, offset, row.records, error)
    return MessageTooLargeError(
        f"{partition[0]}-{partition[1]} has a batch at offset {offset} of which the broker "
        "sends no more than a part: raise partition_bytes_max"
    )
