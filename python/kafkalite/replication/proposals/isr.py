"""Changes of in-sync replicas on their way to the controller: what leaders propose (Rust) goes into
AlterPartition requests (56), one in flight, and each answer back to the leader that has asked.

    add ──► request ──► the controller ──► on_answer ──► Settled: accepted, refused, again
                            └─ not carried out as a whole ──► asked again

Until a leader hears of its change, it counts the old and the new in-sync replicas as needed
(`rust/src/replica/leader.rs`); so nothing here need be quick to be safe. Pure. Kafka:
`DefaultAlterPartitionManager`, `Partition.handleAlterPartitionError`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kafkalite.protocol import codes, messages

VERSION: Final = 3
RETRY_MS: Final = 50
RECOVERED: Final = 0
"""A leader has all that it will ever have: nobody else is asked for the records of before."""

REFUSED: Final = frozenset((codes.INELIGIBLE_REPLICA, codes.OPERATION_NOT_ATTEMPTED))
"""A change was not carried out: what was committed before holds."""

OPEN: Final = frozenset(
    (
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.INVALID_REQUEST,
        codes.FENCED_LEADER_EPOCH,
        codes.INVALID_UPDATE_VERSION,
        codes.UNKNOWN_TOPIC_ID,
        codes.NEW_LEADER_ELECTED,
    )
)
"""The controller knows something newer: the metadata will say what holds."""

Replica = tuple[bytes, int]
"""The id of a topic, and the index of a partition."""


class IsrChange(NamedTuple):
    """A leader's proposal. `number` tells its proposals apart."""

    topic_id: bytes
    partition: int
    number: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]
    """Each broker with the epoch in which it fetched."""


class Settled(NamedTuple):
    """The word that a leader gets of its proposal. `accepted`: the leader epoch, partition epoch
    and in-sync replicas that hold now."""

    topic_id: bytes
    partition: int
    number: int
    accepted: tuple[int, int, list[int]] | None
    is_asked_again: bool


class IsrChanges:
    """The changes that the controller has not answered."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._waiting: dict[Replica, IsrChange] = {}
        """The newest of each partition, sent or not."""
        self._sent: dict[Replica, IsrChange] = {}

    def add(self, changes: Iterable[IsrChange]) -> None:
        """Leaders propose these; an older proposal for the same partition is out of date."""
        for change in changes:
            self._waiting[change.topic_id, change.partition] = change

    def request(self, broker_epoch: int) -> Any:
        """Gives what the controller is to be asked now; None where nothing is, or it has not
        answered yet."""
        if self._sent or not self._waiting:
            return None
        self._sent = dict(self._waiting)
        kind = messages.AlterPartitionRequest
        topics: dict[bytes, Any] = {}
        for change in self._sent.values():
            topic = topics.get(change.topic_id)
            if topic is None:
                topic = topics[change.topic_id] = kind.TopicData(topic_id=change.topic_id)
            topic.partitions.append(_partition(topic, change))
        return kind(
            broker_id=self._node_id, broker_epoch=broker_epoch, topics=list(topics.values())
        )

    def on_failure(self) -> None:
        """The request was not answered: all of it is asked again, in `RETRY_MS`."""
        self._sent = {}

    def on_answer(self, answer: Any) -> list[Settled]:
        """The controller has answered. What it says nothing about is asked again."""
        sent, self._sent = self._sent, {}
        if answer.error_code != codes.NONE:
            return []
        settled = []
        for topic in answer.topics:
            for each in topic.partitions:
                change = sent.pop((topic.topic_id, each.partition_index), None)
                if change is None:
                    continue
                self._forget(change)
                if each.error_code not in OPEN:
                    settled.append(_settled(change, each))
        return settled

    def _forget(self, change: IsrChange) -> None:
        replica = change.topic_id, change.partition
        # A newer one has been proposed meanwhile, where the metadata was quicker than the answer.
        if self._waiting.get(replica) == change:
            del self._waiting[replica]


def _partition(topic: Any, change: IsrChange) -> Any:
    data = topic.PartitionData
    isr = [data.BrokerState(broker_id=each, broker_epoch=epoch) for each, epoch in change.isr]
    return data(
        partition_index=change.partition,
        leader_epoch=change.leader_epoch,
        new_isr_with_epochs=isr,
        leader_recovery_state=RECOVERED,
        partition_epoch=change.partition_epoch,
    )


def _settled(change: IsrChange, answer: Any) -> Settled:
    accepted = None
    if answer.error_code == codes.NONE:
        accepted = (answer.leader_epoch, answer.partition_epoch, list(answer.isr))
    is_asked_again = accepted is None and answer.error_code not in REFUSED
    return Settled(change.topic_id, change.partition, change.number, accepted, is_asked_again)
