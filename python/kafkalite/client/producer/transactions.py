"""Transactions of a producer: begun by one process and, if wanted, ended by another.

    transaction = Transaction(cluster, "orders-etl-0", timeout_ms=900_000)
    transaction.begin()                        # fences whoever had the id, aborts what it left open
    transaction.add([("orders", 0), ("orders", 1)])
    …                                          # produce to them with its producer id and epoch
    end(cluster, transaction.handle, commit=True)      # here, or wherever the handle was sent

Everything is asked of the id's coordinator, in the versions that every broker since 0.11 speaks:
partitions are added by a request of their own. After `choose_protocol`, where the cluster has
finalised `transaction.version` 2 (KIP-890), Produce and TxnOffsetCommit add them, and each end has
the epoch of the next transaction. Then only who has begun it can end it: the handle does not.

A transaction that nobody ends is aborted by its coordinator after `timeout_ms`.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from kafkalite.client.arguments import short_text
from kafkalite.client.consumer.group_options import GroupMetadata
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.network.connection import check
from kafkalite.client.network.metadata import TRANSACTION
from kafkalite.client.producer.transaction_state import FENCED, fenced
from kafkalite.errors import BrokerError, UnsupportedVersionError
from kafkalite.protocol import messages
from kafkalite.protocol.codes import (
    CONCURRENT_TRANSACTIONS,
    NONE,
    OPERATION_NOT_ATTEMPTED,
    TRANSACTIONAL_ID_NOT_FOUND,
)

__all__ = [
    "Fate",
    "OpenTransaction",
    "Transaction",
    "end",
    "fates",
    "is_open",
    "is_under_way",
    "open_ids",
    "read_offsets",
]

Partition = tuple[str, int]

INIT_VERSION = 5
ADD_VERSION = 3
COMMIT_OFFSET_VERSION = 4
END_VERSION = 4
# Those of `transaction.version` 2.
COMMIT_OFFSET_VERSION_2 = 5
END_VERSION_2 = 5

ONGOING = "Ongoing"
TO_COMMIT = ("PrepareCommit", "CompleteCommit")
UNDER_WAY = (ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class Fate(Enum):
    """The fate of a transaction that was left open."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()
    FORGOTTEN = auto()
    """It has ended in one way or the other, longer than `transactional.id.expiration.ms` ago."""


class OpenTransaction(NamedTuple):
    """The ids and the coordinator that it takes to end a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


class Transaction:
    """One transaction of a transactional id. One thread."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        """Asks nobody yet."""
        self.transactional_id = short_text("transactional_id", transactional_id)
        self.producer_id = -1
        self.epoch = -1
        self._cluster = cluster
        self.timeout_ms = timeout_ms
        self.adds_partitions = False
        """Produce and TxnOffsetCommit make partitions part of it (KIP-890)."""
        self._partitions: set[Partition] = set()
        self._has_offsets = False
        self._unanswered: Any = None
        """A request to add to it: the coordinator may have begun it."""
        self._has_to_renew = False
        """It was aborted: which numbers the brokers know is not known."""

    @property
    def handle(self) -> OpenTransaction:
        """For `end`, in this process or another."""
        return OpenTransaction(self.transactional_id, self.producer_id, self.epoch)

    @property
    def has_partitions(self) -> bool:
        """Says whether there is anything to end."""
        return bool(self._partitions) or self._has_offsets

    def begin(self) -> None:
        """Gets a producer id and epoch; every earlier producer of the id is fenced, and what it
        left open aborted. Raises `BrokerError`."""
        request = messages.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        response = self._ask(request, INIT_VERSION)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    def choose_protocol(self) -> None:
        """Takes that of `transaction.version` 2 where the cluster has it."""

        def ask() -> bool:
            node_id = self._cluster.coordinator(self.transactional_id, TRANSACTION)
            connection = self._cluster.connection(node_id)
            level = connection.features.get("transaction.version", 0)
            return level >= 2 and connection.version_for("EndTxn") >= END_VERSION_2

        self.adds_partitions = self._cluster.retry(ask)

    def add(self, partitions: Iterable[Partition]) -> None:
        """Makes partitions part of the transaction, before the first batch for each."""
        new = [each for each in dict.fromkeys(partitions) if each not in self._partitions]
        if self.adds_partitions:
            self._partitions.update(new)
            return
        if not new:
            return
        kind = messages.AddPartitionsToTxnRequest
        topics: dict[str, Any] = {}
        for topic, partition in new:
            row = topics.setdefault(topic, kind.AddPartitionsToTxnTopic(name=topic))
            row.partitions.append(partition)
        request = kind(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=list(topics.values()),
        )
        self._ask_to_add(request)
        self._partitions.update(new)

    def commit_offsets(
        self,
        member: GroupMetadata,
        offsets: Mapping[Partition, tuple[int, int]],
        metadata: Mapping[Partition, str] | None = None,
    ) -> None:
        """Makes offsets, each with the leader epoch of what was read before it, and their metadata
        part of the transaction. Raises `BrokerError`, also where the group has gone on without the
        member."""
        if not self.adds_partitions:
            coordinated = messages.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=member.group,
            )
            self._ask_to_add(coordinated)
        self._has_offsets = True
        request = self._offsets_request(member, offsets, metadata or {})
        version = COMMIT_OFFSET_VERSION_2 if self.adds_partitions else COMMIT_OFFSET_VERSION

        def ask() -> None:
            node_id = self._cluster.coordinator(member.group)
            response = self._cluster.ask(request, node_id=node_id, at_most=version)
            for answered in response.topics:
                for partition in answered.partitions:
                    check(partition.error_code, f"group '{member.group}'")

        self._cluster.retry(ask)

    def _offsets_request(
        self,
        member: GroupMetadata,
        offsets: Mapping[Partition, tuple[int, int]],
        metadata: Mapping[Partition, str],
    ) -> Any:
        kind = messages.TxnOffsetCommitRequest
        inner = kind.TxnOffsetCommitRequestTopic
        topics: dict[str, Any] = {}
        for (topic, index), (offset, leader_epoch) in sorted(offsets.items()):
            row = inner.TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata.get((topic, index), ""),
            )
            topics.setdefault(topic, inner(name=topic)).partitions.append(row)
        return kind(
            transactional_id=self.transactional_id,
            group_id=member.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=list(topics.values()),
        )

    def end(self, *, commit: bool) -> None:
        """Ends it here; may be called again after a lost answer. Raises `BrokerError`."""
        if self._unanswered is not None:
            # Asked again, so that there is something to end: what was not begun cannot be.
            self._ask_to_add(self._unanswered)
            self._has_offsets = True
        if self.has_partitions:
            self._has_to_renew = not (commit or self.adds_partitions)
            version = END_VERSION_2 if self.adds_partitions else END_VERSION
            ended = _end(self._cluster, self.handle, version, commit=commit)
            if self.adds_partitions:
                self.producer_id, self.epoch = ended.producer_id, ended.producer_epoch
            self._has_offsets = False
            self._partitions.clear()
        if self._has_to_renew:
            self._renew()
            self._has_to_renew = False

    def _renew(self) -> None:
        """Takes the next epoch, if no other producer has the id by now (KIP-360)."""
        request = messages.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
        )
        response = self._ask(request, INIT_VERSION)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    def _ask_to_add(self, request: Any) -> None:
        """A topic that was just made its coordinator may not know yet."""
        self._unanswered = request
        try:
            _ask(self._cluster, self.transactional_id, request, ADD_VERSION, unknown_topic=True)
        except BrokerError:
            self._unanswered = None
            raise
        self._unanswered = None

    def _ask(self, request: Any, at_most: int) -> Any:
        return _ask(self._cluster, self.transactional_id, request, at_most)


def end(cluster: Cluster, transaction: OpenTransaction, *, commit: bool) -> None:
    """Commits or aborts. May be called again after a lost answer.

    Raises `BrokerError`: the transaction was aborted by its coordinator when its time was over, or
    by another producer of the same id.
    """
    _end(cluster, transaction, END_VERSION, commit=commit)


def _end(cluster: Cluster, transaction: OpenTransaction, version: int, *, commit: bool) -> Any:
    request = messages.EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        committed=commit,
    )
    return _ask(cluster, transaction.transactional_id, request, version, commit=commit)


def fates(cluster: Cluster, transactions: Sequence[OpenTransaction]) -> list[Fate]:
    """The fate of each, one that is decided and not ended everywhere included; all are open where
    the brokers are too old to say."""

    def ask() -> list[Fate]:
        found: dict[str, Fate] = {}
        by_node: dict[int, list[OpenTransaction]] = {}
        for each in transactions:
            node_id = cluster.coordinator(each.transactional_id, TRANSACTION)
            by_node.setdefault(node_id, []).append(each)
        for node_id, asked in by_node.items():
            found |= _fates_at(cluster, node_id, asked)
        return [found[each.transactional_id] for each in transactions]

    try:
        return cluster.retry(ask)
    except UnsupportedVersionError:
        return [Fate.OPEN] * len(transactions)


def _fates_at(
    cluster: Cluster, node_id: int, transactions: Sequence[OpenTransaction]
) -> dict[str, Fate]:
    told = _described(cluster, node_id, [each.transactional_id for each in transactions])
    found = {}
    for each in transactions:
        row = told[each.transactional_id]
        is_same = (row.producer_id, row.producer_epoch) == (each.producer_id, each.epoch)
        if is_same and row.transaction_state == ONGOING:
            found[each.transactional_id] = Fate.OPEN
        elif is_same and row.transaction_state in TO_COMMIT:
            found[each.transactional_id] = Fate.COMMITTED
        elif row.error_code == TRANSACTIONAL_ID_NOT_FOUND:
            found[each.transactional_id] = Fate.FORGOTTEN
        else:
            found[each.transactional_id] = Fate.ABORTED
    return found


def is_under_way(cluster: Cluster, transactional_id: str) -> bool:
    """Says whether a transaction of the id is open, or not ended everywhere. True where the broker
    is too old to say."""

    def ask() -> bool:
        return _state(cluster, transactional_id) in UNDER_WAY

    try:
        return cluster.retry(ask)
    except UnsupportedVersionError:
        return True


def is_open(cluster: Cluster, transactional_id: str) -> bool:
    """Says whether a transaction of the id is open, and waits for the end of one that is decided.
    True where the broker is too old to say."""

    def ask() -> bool:
        state = _state(cluster, transactional_id)
        if state != ONGOING and state in UNDER_WAY:
            check(CONCURRENT_TRANSACTIONS, f"transactional id '{transactional_id}'")
        return state == ONGOING

    try:
        return cluster.retry(ask)
    except UnsupportedVersionError:
        return True


def _state(cluster: Cluster, transactional_id: str) -> str:
    node_id = cluster.coordinator(transactional_id, TRANSACTION)
    row = _described(cluster, node_id, [transactional_id])[transactional_id]
    return str(row.transaction_state)


def _described(cluster: Cluster, node_id: int, transactional_ids: list[str]) -> dict[str, Any]:
    """The rows by id; one that is not known has no state."""
    request = messages.DescribeTransactionsRequest(transactional_ids=transactional_ids)
    rows = cluster.ask(request, node_id=node_id).transaction_states
    for row in rows:
        if row.error_code != TRANSACTIONAL_ID_NOT_FOUND:
            check(row.error_code, f"transactional id '{row.transactional_id}'")
    return {row.transactional_id: row for row in rows}


def open_ids(cluster: Cluster, prefix: str) -> list[str]:
    """Transactional ids that begin with the prefix and have a transaction under way; none where
    the brokers are too old to say."""
    request = messages.ListTransactionsRequest(state_filters=[ONGOING])

    def ask(node_id: int) -> list[str]:
        response = cluster.ask(request, node_id=node_id)
        check(response.error_code, "ListTransactions")
        names = [row.transactional_id for row in response.transaction_states]
        return [name for name in names if name.startswith(prefix)]

    try:
        found = [cluster.retry(lambda each=node_id: ask(each)) for node_id in cluster.nodes]  # type: ignore[misc]
    except UnsupportedVersionError:
        return []
    return sorted(name for names in found for name in names)


def read_offsets(
    cluster: Cluster, group: str, *, wait: bool = True
) -> dict[Partition, tuple[int, str]]:
    """The offsets that a group has committed, with their metadata. Waits for transactions that have
    further ones of the same partitions, if it is to; those of others are not seen."""

    def ask() -> dict[Partition, tuple[int, str]]:
        connection = cluster.connection(cluster.coordinator(group))
        kind = messages.OffsetFetchRequest
        request = kind(
            group_id=group,
            topics=None,
            groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=None)],
            require_stable=wait,
        )
        response = connection.request(request, at_most=9)
        answered = response.groups[0] if response.groups else response
        check(answered.error_code, f"group '{group}'")
        found = {}
        for topic in answered.topics:
            for row in topic.partitions:
                check(row.error_code, f"group '{group}'")
                found[topic.name, row.partition_index] = (row.committed_offset, row.metadata or "")
        return found

    return cluster.retry(ask)


def _ask(
    cluster: Cluster,
    transactional_id: str,
    request: Any,
    at_most: int,
    *,
    unknown_topic: bool = False,
    commit: bool = False,
) -> Any:
    """The answer of the id's coordinator, which may have moved."""
    lost_count = 0

    def ask() -> Any:
        nonlocal lost_count
        node_id = cluster.coordinator(transactional_id, TRANSACTION)
        lost_count += 1
        response = cluster.ask(request, node_id=node_id, at_most=at_most)
        lost_count -= 1
        code = _first_error(response)
        try:
            check(code, f"transactional id '{transactional_id}'")
        except BrokerError as error:
            if code in FENCED:
                may_be_done = commit and lost_count > 0
                raise fenced(transactional_id, error, may_be_done=may_be_done) from error
            raise
        return response

    return cluster.retry(ask, unknown_topic=unknown_topic)


def _first_error(response: Any) -> int:
    """The first that is one of its own: for what is wrong with one partition the others were not
    tried."""
    for topic in getattr(response, "results_by_topic_v3_and_below", ()):
        for row in topic.results_by_partition:
            if row.partition_error_code not in (NONE, OPERATION_NOT_ATTEMPTED):
                return int(row.partition_error_code)
    return int(response.error_code)
