"""Asks who produces in transactions, and ends those that hang.

with TransactionAdmin("127.0.0.1:9092") as transactions:
    transactions.list_transactions()   # [TransactionListing("copier", 1, 4711, "Ongoing"), …]
    transactions.describe("copier")

What is asked again is what Kafka's admin client asks again (`DescribeTransactionsHandler`,
`DescribeProducersHandler`, `AbortTransactionHandler`, `FenceProducersHandler`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from kafkalite.client.arguments import pairs, short_text
from kafkalite.client.network.cluster import Cluster, ClusterClient
from kafkalite.client.network.connection import broker_error, check
from kafkalite.client.network.metadata import TRANSACTION
from kafkalite.errors import BrokerError, ClientError, UnsupportedVersionError
from kafkalite.protocol import messages
from kafkalite.protocol.codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    TRANSACTIONAL_ID_NOT_FOUND,
)

__all__ = ["OpenProducer", "TransactionAdmin", "TransactionDescription", "TransactionListing"]

Result = TypeVar("Result")
Partition = tuple[str, int]

HAS_MOVED = frozenset((COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR))
PASSES = HAS_MOVED | {COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS}
STATE_TOPIC = "__transaction_state"
DURATION_SINCE, PATTERN_SINCE = 1, 2
"""Versions of ListTransactions."""
FENCE_TIMEOUT_MS = 1
"""The time-out of a transaction that is never begun."""


class TransactionListing(NamedTuple):
    """A transactional id."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id and its transaction; `start_ms` is -1 where there has been none."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: list[Partition]


class OpenProducer(NamedTuple):
    """A producer that a partition knows; -1 stands for none."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_start_offset: int


class TransactionAdmin(ClusterClient):
    """The transactions of a cluster. Threads that share one take turns."""

    def list_transactions(
        self,
        *,
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Transactional ids of all brokers, by name; those of some producers, those whose
        transaction is open for longer than so many milliseconds, or those of a pattern (RE2).

        Raises `UnsupportedVersionError` for a filter that a broker does not know.
        """
        request = messages.ListTransactionsRequest(
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        needed = DURATION_SINCE if longer_than_ms >= 0 else 0
        needed = needed if pattern is None else PATTERN_SINCE

        def ask(node_id: int) -> list[TransactionListing]:
            connection = self.cluster.connection(node_id)
            if connection.version_for("ListTransactions") < needed:
                raise UnsupportedVersionError(
                    f"the broker at {connection.peer} lists transactions without that filter"
                )
            response = self.cluster.ask(request, node_id=node_id)
            check(response.error_code, "ListTransactions")
            return [
                TransactionListing(
                    row.transactional_id, node_id, row.producer_id, row.transaction_state
                )
                for row in response.transaction_states
            ]

        self.cluster.retry(lambda: self.cluster.refresh([]))
        found = []
        for node_id in self.cluster.nodes:
            found += self.cluster.retry(
                lambda each=node_id: ask(each),  # type: ignore[misc]
                passing=PASSES.__contains__,
            )
        return sorted(found)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Raises `BrokerError` (TRANSACTIONAL_ID_NOT_FOUND) for one that is not known."""
        name = short_text("transactional_id", transactional_id)
        request = messages.DescribeTransactionsRequest(transactional_ids=[name])

        def ask(coordinator: int) -> TransactionDescription:
            (row,) = self.cluster.ask(request, node_id=coordinator).transaction_states
            check(row.error_code, f"transactional id '{name}'")
            return TransactionDescription(
                name,
                coordinator,
                row.producer_id,
                row.producer_epoch,
                row.transaction_state,
                row.transaction_timeout_ms,
                row.transaction_start_time_ms,
                sorted((topic.topic, index) for topic in row.topics for index in topic.partitions),
            )

        return self._ask_coordinator(name, ask)

    def describe_producers(
        self, partitions: Iterable[Partition], *, broker: int | None = None
    ) -> dict[Partition, list[OpenProducer]]:
        """Producers of partitions, as the leader of each knows them, or as one broker does."""
        found: dict[Partition, list[OpenProducer]] = {}

        def ask(place: Partition) -> list[OpenProducer]:
            kind = messages.DescribeProducersRequest
            topic = kind.TopicRequest(name=place[0], partition_indexes=[place[1]])
            node_id = self.cluster.leader(*place) if broker is None else broker
            response = self.cluster.ask(kind(topics=[topic]), node_id=node_id)
            row = response.topics[0].partitions[0]
            check(row.error_code, f"partition {place[0]}-{place[1]}", row.error_message)
            return [
                OpenProducer(
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.last_sequence,
                    each.last_timestamp,
                    each.current_txn_start_offset,
                )
                for each in row.active_producers
            ]

        for place in pairs("partitions", partitions):
            self.cluster.retry(lambda place=place: self.cluster.leader(*place))  # type: ignore[misc]
            found[place] = self.cluster.retry(
                lambda place=place: ask(place),  # type: ignore[misc]
                forget=lambda _: self.cluster.forget(),
            )
        return found

    def abort(self, place: Partition, producer: OpenProducer) -> None:
        """Ends the transaction of a producer in one partition, whatever its coordinator thinks."""
        topic, index = place
        kind = messages.WriteTxnMarkersRequest
        inner = kind.WritableTxnMarker
        marker = inner(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            # A producer that has seen no marker yet has no epoch of a coordinator.
            coordinator_epoch=max(producer.coordinator_epoch, 0),
            transaction_result=False,
            topics=[inner.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        )

        def ask() -> None:
            node_id = self.cluster.leader(topic, index)
            response = self.cluster.ask(kind(markers=[marker]), node_id=node_id)
            row = response.markers[0].topics[0].partitions[0]
            check(row.error_code, f"partition {topic}-{index}")

        self.cluster.retry(ask, forget=lambda _: self.cluster.forget())

    def force_terminate(self, transactional_id: str) -> None:
        """Aborts the transaction of an id and shuts its producer out."""
        name = short_text("transactional_id", transactional_id)
        request = messages.InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=FENCE_TIMEOUT_MS
        )

        def ask(coordinator: int) -> None:
            response = self.cluster.ask(request, node_id=coordinator)
            check(response.error_code, f"transactional id '{name}'")

        self._ask_coordinator(name, ask)

    def _ask_coordinator(self, name: str, ask: Callable[[int], Result]) -> Result:
        """Asks the coordinator of an id, which is looked up anew where it has moved."""

        def attempt() -> Result:
            return ask(self.cluster.coordinator(name, TRANSACTION))

        def forget(error: ClientError) -> None:
            if not isinstance(error, BrokerError):
                self.cluster.forget()

        return self.cluster.retry(attempt, passing=PASSES.__contains__, forget=forget)


def hanging(
    transactions: TransactionAdmin, found: dict[Partition, Sequence[OpenProducer]]
) -> list[tuple[Partition, OpenProducer]]:
    """Producers of open transactions that their coordinator does not know, or not as transactions
    of that partition. Raises `BrokerError` while a partition of `__transaction_state` has no
    leader, who might know them."""
    ids = {each.producer_id for producers in found.values() for each in producers}
    if ids:
        _refuse_unled(transactions.cluster)
    names: dict[int, str] = {}
    if ids:
        rows = transactions.list_transactions(producer_ids=sorted(ids))
        names = {row.producer_id: row.transactional_id for row in rows}
    known = {producer_id: _partitions(transactions, name) for producer_id, name in names.items()}
    return [
        (place, each)
        for place, producers in found.items()
        for each in producers
        if place not in known.get(each.producer_id, ())
    ]


def _refuse_unled(cluster: Cluster) -> None:
    known = cluster.retry(lambda: cluster.refresh([STATE_TOPIC])).get(STATE_TOPIC)
    for index, partition in sorted(known.partitions.items()) if known is not None else ():
        if partition.leader < 0:
            raise broker_error(COORDINATOR_NOT_AVAILABLE, f"{STATE_TOPIC}-{index} has no leader")


def _partitions(transactions: TransactionAdmin, name: str) -> list[Partition]:
    try:
        return transactions.describe(name).partitions
    except BrokerError as error:
        if error.code != TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return []
