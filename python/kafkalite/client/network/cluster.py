"""The brokers of a cluster: who they are, who leads and coordinates what, and a connection to each.

    cluster = Cluster("127.0.0.1:9092")
    response = cluster.ask(messages.DescribeClusterRequest())              # any broker
    leader = cluster.leader("orders", 0)
    response = cluster.ask(request, node_id=leader)

A failure that may pass (a lost connection, an election, a loading coordinator) is tried again with
a growing pause until the time is over, as Kafka's AdminClient does; the last failure is then
raised.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import SystemRandom
from typing import Any, TypeVar

from kafkalite.client import lifetime
from kafkalite.client.arguments import int32, short_text
from kafkalite.client.network.connecting import Address, Connecting, DialOptions
from kafkalite.client.network.connection import (
    CLIENT_ID,
    CONNECT_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    Closing,
    Connection,
    broker_error,
    check,
    may_pass,
    none_connected,
    without_frames,
)
from kafkalite.client.network.metadata import (
    GROUP,
    TRANSACTION,
    Node,
    PartitionMetadata,
    TopicMetadata,
    coordinator_request,
    found_topics,
    metadata_request,
    topic_metadata,
)
from kafkalite.client.network.servers import Servers, parse_servers
from kafkalite.errors import (
    BrokerError,
    ClientError,
    ConnectionFailedError,
    InvalidArgumentError,
    RequestTimedOutError,
)
from kafkalite.protocol.codes import (
    LEADER_NOT_AVAILABLE,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)

__all__ = ["Cluster", "ClusterClient"]

Result = TypeVar("Result")

# As default.api.timeout.ms, retry.backoff.ms and retry.backoff.max.ms of Kafka's clients.
TIMEOUT_MS = 60_000
BACKOFF_MS = 100
BACKOFF_MS_MAX = 1_000
RANDOM = SystemRandom()
"""Has no state: what a program draws from `random`, which it may have seeded, is its own whatever
the threads of its clients do, and processes that it forks draw differently."""
# A topic that was made a moment ago may be unknown to the broker that is asked.
UNKNOWN_TOPIC_MS = 5_000

# Before it, brokers told of leader epochs that had passed (KAFKA-9212).
LEADER_EPOCHS_SINCE = 9


class Cluster(Closing):
    """Connections to the brokers of one cluster, made when they are first needed. One thread at a
    time."""

    def __init__(
        self,
        bootstrap_servers: Servers,
        *,
        client_id: str = CLIENT_ID,
        timeout_ms: int = TIMEOUT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        wait_for_servers_ms: int = 0,
    ) -> None:
        """Connects to nobody yet. `timeout_ms` bounds a whole operation with its retries,
        `request_timeout_ms` a single answer; `wait_for_servers_ms` is how long the first contact
        is waited for, where nobody answers at first."""
        self._servers = parse_servers(bootstrap_servers)
        int32("timeout_ms", timeout_ms, 0)
        int32("request_timeout_ms", request_timeout_ms, 0)
        int32("wait_for_servers_ms", wait_for_servers_ms, 0)
        self._wait_for_servers_ms = wait_for_servers_ms
        self._patient_until: float | None = None
        self._client_id = short_text("client_id", client_id)
        self.timeout_ms = timeout_ms
        self.request_timeout_ms = request_timeout_ms
        self._connections: dict[int, Connection] = {}
        self._bootstrap: Connection | None = None
        self._nodes: dict[int, Node] = {}
        # `_nodes` are all of the cluster's, not only coordinators that were looked up.
        self._has_all_nodes = False
        # That of the thread whose operation is under way: threads that share an Admin take turns.
        self._lock = threading.RLock()
        # When the time of the operation is over that is tried again and again.
        self._deadline: float | None = None
        self._topics: dict[str, TopicMetadata] = {}
        # Another thread wants what is under way to end.
        self._is_interrupted = False
        # Where a broker has answered.
        self._reached: set[Address] = set()
        # Where none did, since when (monotonic seconds): the others are asked before it.
        self._failed_at: dict[Address, float] = {}
        # The cluster whose twin it is: what that one knows of brokers, it knows too.
        self._twin_of: Cluster | None = None
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.is_ended = False
        """The client that used it has been closed."""
        lifetime.watch(self)

    def __repr__(self) -> str:
        return f"<kafkalite.Cluster: {self.servers_text}>"

    @property
    def was_reached(self) -> bool:
        """Says whether any broker has ever answered."""
        return bool(self._reached)

    @property
    def is_awaited(self) -> bool:
        """Says whether brokers that do not answer are waited for: one of them has answered before,
        or the first contact has time left. Else their name is wrong, most likely, or nothing has
        been started."""
        return self.was_reached or (
            self._patient_until is not None and time.monotonic() < self._patient_until
        )

    @property
    def servers_text(self) -> str:
        """The bootstrap servers, as `host:port,…`."""
        return ",".join(Node(-1, host, port, None).address for host, port in self._servers)

    def close(self) -> None:
        """Closes all connections."""
        for connection in (*self._connections.values(), self._bootstrap):
            if connection is not None:
                connection.close()
        self._connections.clear()
        self._bootstrap = None

    def end(self) -> None:
        """Closes it for good: what another thread asks fails."""
        self.is_ended = True
        self.interrupt()
        self.close()

    def after_fork(self) -> None:
        """Forgets, in a child, the operation that a thread of its parent had under way."""
        lifetime.free(self._lock)
        self._deadline, self._is_interrupted = None, False

    def at_exit(self, _timeout_ms: int) -> None:
        """Leaves its connections to the kernel."""

    def twin(self) -> "Cluster":
        """Makes a client of this cluster for another thread. It asks where this one finds brokers
        too: bootstrap servers may have gone."""
        twin = Cluster(
            self.servers_text,
            client_id=self._client_id,
            timeout_ms=self.timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
            wait_for_servers_ms=self._wait_for_servers_ms,
        )
        twin._twin_of, twin._reached, twin._failed_at = self, self._reached, self._failed_at
        return twin

    def interrupt(self) -> None:
        """Fails what another thread asks, at once or when it has connected, until `resume`."""
        self._is_interrupted = True
        for connection in (*self._connections.values(), self._bootstrap):
            if connection is not None:
                connection.interrupt()

    def resume(self) -> None:
        """The end of an interrupt."""
        self._is_interrupted = False

    # --- asking -----------------------------------------------------------------------------------

    def ask(
        self,
        message: Any,
        *,
        node_id: int | None = None,
        at_most: int | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """The answer of a broker, or of any; not tried again, and waited for no longer than `retry`
        has time left, if no time is given. See `Connection.request`."""
        with self._lock:
            connection = self.connection(node_id)
            if self._is_interrupted:
                raise ConnectionFailedError(f"the request to {connection.peer} was interrupted")
            if timeout_ms is None:
                timeout_ms = self._within(self.request_timeout_ms)
            return connection.request(message, at_most=at_most, timeout_ms=timeout_ms)

    def connection(self, node_id: int | None = None) -> Connection:
        """An open connection to the broker, or to any that can be reached.

        Raises `ConnectionFailedError`.
        """
        if node_id is None or node_id < 0:
            return self._any_connection()
        connection = self._connections.get(node_id)
        if connection is not None and connection.is_open:
            return connection
        connection = self.new_connection(node_id)
        self._connections[node_id] = connection
        return connection

    def new_connection(self, node_id: int) -> Connection:
        """A connection of the caller's own, which they close."""
        node = self._nodes.get(node_id)
        if node is None:
            self.refresh([])
            node = self._nodes.get(node_id)
        if node is None:
            raise ConnectionFailedError(f"the cluster has no broker {node_id} at the moment")
        try:
            return self._connect(node.host, node.port)
        except ConnectionFailedError as error:
            hint = self._hint(node)
            if not hint:
                raise
            raise ConnectionFailedError(f"{error}{hint}") from error

    def _hint(self, node: Node) -> str:
        """Said behind a failure to connect: who has a broker in a container meets it first."""
        address = (node.host, node.port)
        if address in self._reached or address in self._servers:
            return ""
        return (
            f" (which is where broker {node.id} tells its clients to go, by its "
            "advertised.listeners)"
        )

    def retry(
        self,
        operation: Callable[[], Result],
        *,
        timeout_ms: int | None = None,
        forget: Callable[[ClientError], None] | None = None,
        unknown_topic: bool = False,
        passing: Callable[[int], bool] | None = None,
    ) -> Result:
        """Calls the operation until it succeeds, fails for good or the time is over, that of an
        operation around it included. `forget` is called with the failure before each further
        attempt: what was looked up may be out of date. A topic that the cluster does not know is
        waited for only with `unknown_topic`. `passing` says which codes are tried again, in place
        of all that Kafka calls retriable.

        Bootstrap servers of which none was ever reached are not waited for beyond
        `wait_for_servers_ms`.
        """
        timeout_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        pause_ms = float(BACKOFF_MS)
        failure: ClientError | None = None
        try:
            with self.until(time.monotonic() + timeout_ms / 1000) as deadline:
                while True:
                    try:
                        return operation()
                    except ClientError as error:
                        self._refuse_ended(error)
                        if not self.is_awaited or not _may_pass(error, unknown_topic, passing):
                            raise
                        if self._is_interrupted:
                            raise
                        left = deadline - time.monotonic()
                        if left <= 0:
                            if isinstance(error, RequestTimedOutError) and failure is not None:
                                # The end of the time has cut the answer off: what came before says
                                # why.
                                raise failure from error
                            raise
                        failure = error
                    self._pause(min(pause_ms * RANDOM.uniform(0.8, 1.2) / 1000, left))
                    pause_ms = min(2 * pause_ms, BACKOFF_MS_MAX)
                    if forget is not None:
                        forget(failure)
        finally:
            failure = None  # its traceback holds this frame, and what was open in it

    def _pause(self, seconds: float) -> None:
        """Waits, but not for who has been closed meanwhile."""
        until = time.monotonic() + seconds
        while not self.is_ended and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, BACKOFF_MS / 1000))

    def _refuse_ended(self, error: ClientError | None = None) -> None:
        if self.is_ended:
            raise InvalidArgumentError("the client has been closed") from error

    @contextmanager
    def until(self, deadline: float) -> Iterator[float]:
        """Bounds the wait for what is asked in the block: until then (monotonic seconds), or until
        an operation around it is over: gives the sooner. No other thread asks meanwhile.

        Raises `RequestTimedOutError` if the operation of another thread has not ended by then."""
        self._refuse_ended()
        if not self._lock.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            raise RequestTimedOutError("another thread's operation has taken all the time")
        around = self._deadline
        self._deadline = deadline if around is None else min(deadline, around)
        try:
            yield self._deadline
        finally:
            self._deadline = around
            self._lock.release()

    def _within(self, timeout_ms: int) -> int:
        """So long, or as long as `retry` or `until` has time left."""
        if self._deadline is None:
            return timeout_ms
        left_ms = 1000 * (self._deadline - time.monotonic())
        return min(timeout_ms, max(math.ceil(left_ms), 1))

    # --- metadata ---------------------------------------------------------------------------------

    @property
    def nodes(self) -> dict[int, Node]:
        """The brokers, by id."""
        if not self._has_all_nodes:
            self.retry(lambda: self.refresh([]))
        return self._nodes

    def refresh(
        self, topics: Iterable[str] | None, *, allow_auto_create: bool = False
    ) -> dict[str, TopicMetadata]:
        """Asks for brokers and topics, `None` for all; the answer is kept for `leader`. Unknown
        topics are missing in it.

        Raises `BrokerError` for a topic that has an error of another kind.
        """
        connection = self._any_connection()
        request = metadata_request(topics, allow_auto_create=allow_auto_create)
        timeout_ms = self._within(self.request_timeout_ms)
        response = connection.request(request, timeout_ms=timeout_ms)
        told = self.learn(response, connection.version_for("Metadata"))
        return found_topics(told)

    def learn(self, response: Any, version: int) -> "dict[str, TopicMetadata | BrokerError]":
        """Keeps what a Metadata response tells; gives each topic's partitions, or its error.

        Raises `BrokerError` for what concerns no topic.
        """
        check(response.error_code, "Metadata")
        self._nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        self._has_all_nodes = True
        self.cluster_id, self.controller_id = response.cluster_id, response.controller_id
        told: dict[str, TopicMetadata | BrokerError] = {}
        for row in response.topics:
            before = self._topics.pop(row.name, None)
            if row.error_code != NONE:
                told[row.name] = broker_error(row.error_code, f"topic '{row.name}'")
                continue
            topic = topic_metadata(row, before, has_epochs=version >= LEADER_EPOCHS_SINCE)
            told[row.name] = self._topics[row.name] = topic
        return told

    def known_topic(self, name: str) -> TopicMetadata | None:
        """A topic as it was told last, if it was. Asks nobody."""
        return self._topics.get(name)

    def topic(self, name: str, *, allow_auto_create: bool = False) -> TopicMetadata:
        """A topic and its partitions, from memory if it is there.

        Raises `BrokerError` (UNKNOWN_TOPIC_OR_PARTITION) after some seconds without it.
        """
        known = self._topics.get(name)
        if known is not None:
            return known
        short_text("topic", name)

        def look_up() -> TopicMetadata:
            found = self.refresh([name], allow_auto_create=allow_auto_create).get(name)
            if found is None:
                raise broker_error(UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}'")
            return found

        wait_ms = UNKNOWN_TOPIC_MS if allow_auto_create else BACKOFF_MS
        try:
            return look_up()
        except BrokerError as error:
            if not error.retriable:
                raise
        wait_ms = min(wait_ms, self.timeout_ms)
        return self.retry(look_up, timeout_ms=wait_ms, unknown_topic=True)

    def leader(self, topic: str, partition: int) -> int:
        """The broker that leads a partition. Raises `BrokerError` while there is none."""
        return self.led(topic, partition).leader

    def led(self, topic: str, partition: int) -> PartitionMetadata:
        """As `leader`, with all that is known of the partition."""
        metadata = self.topic(topic)
        found = metadata.partitions.get(partition)
        what = f"partition {partition} of topic '{topic}'"
        if found is None:
            raise broker_error(UNKNOWN_TOPIC_OR_PARTITION, what)
        if found.leader < 0:
            self.forget(topic)
            raise broker_error(LEADER_NOT_AVAILABLE, what)
        return found

    def forget(self, topic: str | None = None) -> None:
        """Leaders are looked up anew, of a topic or of all."""
        if topic is None:
            self._topics.clear()
        else:
            self._topics.pop(topic, None)

    def node(self, node_id: int) -> Node:
        """Where a broker is that was told or looked up before."""
        return self._nodes[node_id]

    def controller(self) -> int | None:
        """The broker that is to be asked for changes of the cluster, if the brokers tell."""
        if self.controller_id < 0:
            self.refresh([])
        return self.controller_id if self.controller_id in self._nodes else None

    def forget_controller(self) -> None:
        """It is looked up anew."""
        self.controller_id = -1

    def coordinator(self, name: str, kind: int = GROUP) -> int:
        """The broker that coordinates a group, or a transactional id. Raises `BrokerError`."""
        connection = self._any_connection()
        timeout_ms = self._within(self.request_timeout_ms)
        response = connection.request(coordinator_request(name, kind), timeout_ms=timeout_ms)
        return self.learn_coordinator(response, name, kind)

    def learn_coordinator(self, response: Any, name: str, kind: int = GROUP) -> int:
        """Keeps and gives the broker that an answer to `coordinator_request` names."""
        found = response.coordinators[0] if response.coordinators else response
        what = "transactional id" if kind == TRANSACTION else "group"
        check(found.error_code, f"coordinator of {what} '{name}'", found.error_message)
        known = self._nodes.get(found.node_id)
        rack = None if known is None else known.rack
        self._nodes[found.node_id] = Node(found.node_id, found.host, found.port, rack)
        return int(found.node_id)

    # --- connections ------------------------------------------------------------------------------

    def begin(self, node_id: int | None) -> Connecting:
        """Begins to connect to a broker, or to any, for who does not wait for that. Raises
        `ConnectionFailedError` for one that the cluster has not."""
        hint = ""
        if node_id is None:
            addresses = self._addresses()
        else:
            node = self._nodes.get(node_id)
            if node is None:
                raise ConnectionFailedError(f"the cluster has no broker {node_id} at the moment")
            addresses, hint = [(node.host, node.port)], self._hint(node)
        connect_timeout_ms = min(CONNECT_TIMEOUT_MS, self.timeout_ms)
        options = DialOptions(self._client_id, connect_timeout_ms, self.request_timeout_ms, hint)
        return Connecting(addresses, options, self.note)

    def note(self, address: Address, error: ClientError | None) -> None:
        """A broker has answered there, or nobody did."""
        if error is None:
            self._reached.add(address)
            self._failed_at.pop(address, None)
        else:
            now = self._failed_at[address] = time.monotonic()
            if self._patient_until is None:
                self._patient_until = now + self._wait_for_servers_ms / 1000

    def lend(self) -> Connection | None:
        """A connection to any broker, if there is one, for a request whose answer the caller does
        not wait for: it is theirs until they give it back, or close it."""
        connection = self._bootstrap
        if connection is None or connection.awaited_count:
            return None
        self._bootstrap = None
        return connection if connection.is_open else None

    def take_back(self, connection: Connection) -> None:
        """Takes back a connection that was lent, on which nothing is awaited."""
        if self._bootstrap is not None:
            self._bootstrap.close()
        self._bootstrap = connection

    def _any_connection(self) -> Connection:
        for connection in (*self._connections.values(), self._bootstrap):
            if connection is not None and connection.is_open and not connection.awaited_count:
                return connection
        self._bootstrap = self._connect_to_any()
        return self._bootstrap

    def _connect_to_any(self) -> Connection:
        failures: list[ClientError] = []
        for host, port in self._addresses():
            try:
                return self._connect(host, port)
            except (ConnectionFailedError, RequestTimedOutError) as error:
                without_frames(error)
                failures.append(error)
        raise none_connected(failures)

    def _addresses(self) -> list[Address]:
        """Where there may be a broker: those where none was last come last."""
        nodes = list(self._nodes.values())
        if self._twin_of is not None:
            nodes += self._twin_of._nodes.values()  # at once: another thread may learn of some
        known = [(node.host, node.port) for node in nodes]
        every = dict.fromkeys([*self._servers, *known])
        return sorted(every, key=lambda address: self._failed_at.get(address, 0.0))

    def _connect(self, host: str, port: int) -> Connection:
        self._refuse_ended()
        try:
            connection = Connection(
                host,
                port,
                client_id=self._client_id,
                connect_timeout_ms=self._within(min(CONNECT_TIMEOUT_MS, self.timeout_ms)),
                request_timeout_ms=self._within(self.request_timeout_ms),
            )
        except ClientError as error:
            self.note((host, port), error)
            raise
        # Other operations have more time than the one that made it.
        connection.request_timeout_ms = self.request_timeout_ms
        self.note((host, port), None)
        if self.is_ended:  # by another thread, which knows nothing of this connection
            connection.close()
        self._refuse_ended()
        return connection


def _may_pass(
    error: ClientError, unknown_topic: bool, passing: Callable[[int], bool] | None
) -> bool:
    if isinstance(error, BrokerError):
        if passing is not None:
            return passing(error.code)
        if error.code == UNKNOWN_TOPIC_OR_PARTITION and not unknown_topic:
            return False
    return may_pass(error)


class ClusterClient(Closing):
    """A client of a cluster: of its own, or of one that the caller closes."""

    def __init__(
        self,
        bootstrap_servers: Servers | Cluster,
        *,
        client_id: str = CLIENT_ID,
        timeout_ms: int = TIMEOUT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        wait_for_servers_ms: int = 0,
    ) -> None:
        """`timeout_ms` bounds each call with its retries, `request_timeout_ms` a single answer;
        `wait_for_servers_ms` is how long the first contact is waited for, where nobody answers at
        first. A `Cluster` that is given has its own, and stays the caller's to close."""
        self._owns = not isinstance(bootstrap_servers, Cluster)
        self.cluster = (
            bootstrap_servers
            if isinstance(bootstrap_servers, Cluster)
            else Cluster(
                bootstrap_servers,
                client_id=client_id,
                timeout_ms=timeout_ms,
                request_timeout_ms=request_timeout_ms,
                wait_for_servers_ms=wait_for_servers_ms,
            )
        )

    def __repr__(self) -> str:
        return f"<kafkalite.{type(self).__name__}: {self.cluster.servers_text}>"

    def close(self) -> None:
        """Closes the connections. Nothing can be asked any more."""
        if self._owns:
            self.cluster.end()
