"""Requests of transactions to other brokers of the cluster: markers go to the leaders of their
partitions, and who takes records or offsets of a transaction asks its coordinator.

    marker of a producer, partition ──► the broker's queue ─┐
    partitions of a transactional id ─► the broker's queue ─┴─► one request ──► a code for each
                                        what comes meanwhile ─► the next

Of each broker one request of a kind is under way, so that thousands of transactions that end at the
same time are a few requests. What is not answered has a code that is tried again.

Kafka: `TransactionMarkerChannelManager`, `AddPartitionsToTxnManager`.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from kafkalite.coordinator.machine import Producer
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Future, Tasks
from kafkalite.transactions.machine import AddRequest
from kafkalite.transactions.states import TopicPartition

MARKERS_VERSION: Final = 2
MARKERS_VERSION_BEFORE: Final = 1
"""Brokers before 4.3 know no version of the transaction (KIP-1228)."""
LEVEL_OF_MARKERS: Final = 30
"""The `metadata.version` of 4.3, at which no broker is older."""
ADD_VERSION: Final = 5
LATE_MS: Final = 5_000
"""Added to `request.timeout.ms`, after which a broker that writes markers answers which of them are
committed. Kafka's coordinator gives up at that same moment, and learns of none of them."""
AT_ONCE: Final = 1_000
"""Markers, or transactions, of one request."""


class Peers(Protocol):
    """The other brokers (`kafkalite.replication.peers`)."""

    def ask(
        self, purpose: str, node_id: int, message: Any, version: int, timeout_ms: int
    ) -> Future[Any]:
        """The answer, or a sentence that says why there is none."""


class MarkerOf(NamedTuple):
    """A marker for one partition."""

    producer: Producer
    place: TopicPartition
    written: Future[int]

    @property
    def key(self) -> Hashable:
        """The answer knows the marker by it."""
        return self.producer.producer_id

    @property
    def whole(self) -> Hashable:
        """Markers that have this in common go together."""
        return self.producer


class Question(NamedTuple):
    """Partitions that a transaction is to have, or must."""

    transactional_id: str
    request: AddRequest
    verify_only: bool
    answer: Future[dict[TopicPartition, int]]

    @property
    def key(self) -> Hashable:
        """As of `MarkerOf`."""
        return self.transactional_id

    @property
    def whole(self) -> Hashable:
        """Each question is asked by itself."""
        return id(self)


Item = TypeVar("Item", MarkerOf, Question)


class Queues(Generic[Item]):
    """Items that are still to be sent, by the brokers that they go to."""

    def __init__(
        self,
        tasks: Tasks,
        send: Callable[[int, Sequence[Item]], Awaitable[bool]],
        refuse: Callable[[Item], None],
    ) -> None:
        """`send` says whether the broker has answered. `refuse` ends what was not sent, so that who
        waits for it looks anew which broker it concerns."""
        self._tasks = tasks
        self._send_all: Callable[[int, Sequence[Item]], Awaitable[bool]] = send
        self._refuse: Callable[[Item], None] = refuse
        self._waiting: dict[int, deque[Item]] = {}

    def put(self, node_id: int, item: Item) -> None:
        """To be sent to a broker, with what else there is by then."""
        waiting = self._waiting.get(node_id)
        if waiting is not None:
            waiting.append(item)
            return
        self._waiting[node_id] = deque((item,))
        self._tasks.start(self._send(node_id))

    async def _send(self, node_id: int) -> None:
        waiting = self._waiting[node_id]
        # The others of this turn go with the first.
        await self._tasks.yield_now()
        while waiting:
            if await self._send_all(node_id, _take_together(waiting)):
                continue
            # What is behind would wait as long again, while others may lead by now.
            left = list(waiting)
            waiting.clear()
            for item in left:
                self._refuse(item)
        del self._waiting[node_id]


def _take_together(waiting: deque[Item]) -> list[Item]:
    """The first ones, of each key those that go together; the others stay, in their order."""
    taken: list[Item] = []
    left: list[Item] = []
    known: dict[Hashable, Hashable] = {}
    while waiting and len(taken) < AT_ONCE:
        item = waiting.popleft()
        is_of_one = known.setdefault(item.key, item.whole) == item.whole
        (taken if is_of_one else left).append(item)
    waiting.extendleft(reversed(left))
    return taken


class OtherBrokers:
    """See above. Used by the control thread only."""

    def __init__(
        self, peers: Peers, tasks: Tasks, level: Callable[[], int], timeout_ms: int
    ) -> None:
        """`level` gives the cluster's `metadata.version`; `timeout_ms` is `request.timeout.ms`."""
        self._peers = peers
        self._timeout_ms = max(0, timeout_ms)  # no broker answers within less than none
        self._level = level
        self._markers = Queues[MarkerOf](tasks, self._send_markers, _refuse_marker)
        self._questions = Queues[Question](tasks, self._send_questions, _refuse_question)

    def write_marker(
        self, node_id: int, producer: Producer, place: TopicPartition, written: Future[int]
    ) -> None:
        """Has the leader of a partition write a marker; `written` is set to its code."""
        self._markers.put(node_id, MarkerOf(producer, place, written))

    async def ask_coordinator(
        self, node_id: int, transactional_id: str, request: AddRequest, *, verify_only: bool
    ) -> dict[TopicPartition, int]:
        """AddPartitionsToTxn: a code for each partition."""
        answer = Future[dict[TopicPartition, int]]()
        self._questions.put(node_id, Question(transactional_id, request, verify_only, answer))
        return await answer

    async def _send_markers(self, node_id: int, items: Sequence[MarkerOf]) -> bool:
        kind = messages.WriteTxnMarkersRequest
        by_producer: dict[Producer, list[TopicPartition]] = {}
        for each in items:
            by_producer.setdefault(each.producer, []).append(each.place)
        markers = []
        for producer, places in by_producer.items():
            marker = producer.marker
            if marker is None:
                raise RuntimeError("no marker")
            markers.append(
                kind.WritableTxnMarker(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    transaction_result=marker.commit,
                    topics=[
                        kind.WritableTxnMarker.WritableTxnMarkerTopic(
                            name=name, partition_indexes=indexes
                        )
                        for name, indexes in _by_topic(places)
                    ],
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                )
            )
        is_of_4_3 = self._level() >= LEVEL_OF_MARKERS
        version = MARKERS_VERSION if is_of_4_3 else MARKERS_VERSION_BEFORE
        answer = await self._peers.ask(
            "markers", node_id, kind(markers=markers), version, self._timeout_ms + LATE_MS
        )
        found: dict[tuple[int, TopicPartition], int] = {}
        if not isinstance(answer, str):
            found = {
                (marker.producer_id, (topic.name, each.partition_index)): each.error_code
                for marker in answer.markers
                for topic in marker.topics
                for each in topic.partitions
            }
        for item in items:
            code = found.get((item.producer.producer_id, item.place), codes.NOT_LEADER_OR_FOLLOWER)
            if code == codes.UNKNOWN_TOPIC_OR_PARTITION:
                # Kafka's brokers say so of a replica that is offline, or not theirs any more.
                # Whether the partition is gone is for this broker's image to say.
                code = codes.NOT_LEADER_OR_FOLLOWER
            item.written.set(code)
        return not isinstance(answer, str)

    async def _send_questions(self, node_id: int, items: Sequence[Question]) -> bool:
        kind = messages.AddPartitionsToTxnRequest
        transactions = [
            kind.AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.request.producer_id,
                producer_epoch=each.request.producer_epoch,
                verify_only=each.verify_only,
                topics=[
                    kind.AddPartitionsToTxnTransaction.AddPartitionsToTxnTopic(
                        name=name, partitions=indexes
                    )
                    for name, indexes in _by_topic(each.request.partitions)
                ],
            )
            for each in items
        ]
        request = kind(transactions=transactions)
        answer = await self._peers.ask(
            "verification", node_id, request, ADD_VERSION, self._timeout_ms
        )
        found: dict[tuple[str, TopicPartition], int] = {}
        missing: int = codes.COORDINATOR_LOAD_IN_PROGRESS
        if not isinstance(answer, str):
            missing = answer.error_code or missing
            found = {
                (row.transactional_id, (topic.name, each.partition_index)): (
                    each.partition_error_code
                )
                for row in answer.results_by_transaction
                for topic in row.topic_results
                for each in topic.results_by_partition
            }
        for item in items:
            name = item.transactional_id
            item.answer.set(
                {each: found.get((name, each), missing) for each in item.request.partitions}
            )
        return not isinstance(answer, str)


def _refuse_marker(item: MarkerOf) -> None:
    item.written.set(codes.NOT_LEADER_OR_FOLLOWER)


def _refuse_question(item: Question) -> None:
    item.answer.set(dict.fromkeys(item.request.partitions, codes.COORDINATOR_LOAD_IN_PROGRESS))


def _by_topic(places: Iterable[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for name, index in sorted(places):
        topics.setdefault(name, []).append(index)
    return topics.items()
