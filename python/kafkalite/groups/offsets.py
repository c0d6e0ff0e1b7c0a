"""Committed offsets: how far each group has read each partition, and when that is forgotten.

Values are as the log has them; only what is on disk is in here, so that nobody is told an offset
that a power cut could take back. Offsets that were committed within a transaction wait beside them
for its marker.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkalite.groups.classic import ClassicGroup
from kafkalite.groups.states import CONSUMER_PROTOCOL_TYPE, EMPTY, STABLE


class CommittedOffset(NamedTuple):
    """`leader_epoch` and `expire_timestamp_ms` are -1 where there is none; times since 1970. The
    fields of its record (`OffsetCommitValue`) in their order, and one more."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """Set by clients of versions 2 to 4 only (`retention_time_ms`)."""
    topic_id: bytes = bytes(16)
    record_offset: int = -1
    """Where in the log it stands."""


Commit = tuple[str, int, CommittedOffset]
"""Topic, partition, and what is committed of it."""

GroupOffsets = dict[str, dict[int, CommittedOffset]]
"""Topic -> partition -> offset."""


class OffsetsAnswer(NamedTuple):
    """The answer to OffsetFetch for one group."""

    error_code: int
    offsets: GroupOffsets
    """As they were when this was made."""
    find: Callable[[str, int], CommittedOffset | None]
    """The offset of a topic's partition now: a transaction may end while the answer is put
    together, and `is_unstable` is of now, too."""
    is_unstable: Callable[[str, int], bool] | None
    """Asked of a topic and a partition; None where nobody wants to know."""

    @classmethod
    def refusal(cls, error_code: int) -> "OffsetsAnswer":
        """There are no offsets to tell."""
        return cls(error_code, {}, lambda _topic, _partition: None, None)


class Offsets:
    """The offsets of the groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._by_group: dict[str, GroupOffsets] = {}
        self._open: dict[int, dict[tuple[str, str, int], CommittedOffset]] = {}
        """Producer id -> what its open transaction commits."""
        self._unstable: dict[tuple[str, str, int], int] = {}
        """Open transactions that commit an offset of it."""

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> GroupOffsets:
        """Not to be changed by the caller."""
        return self._by_group.get(group_id, {})

    def partitions_of(self, group_id: str) -> list[tuple[str, int]]:
        """Topic and partition of every offset, those of open transactions included."""
        found = {
            (topic, partition): None
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        }
        for transaction in self._open.values():
            found.update({key[1:]: None for key in transaction if key[0] == group_id})
        return list(found)

    def group_ids(self) -> list[str]:
        """Groups with an offset, be it of an open transaction."""
        found = dict.fromkeys(self._by_group)
        for transaction in self._open.values():
            found.update(dict.fromkeys(key[0] for key in transaction))
        return list(found)

    def groups_reading(self, names: frozenset[str]) -> list[str]:
        """Groups with an offset in one of the topics, be it of an open transaction."""
        by_group = self._by_group.items()
        found = [each for each, topics in by_group if not topics.keys().isdisjoint(names)]
        for transaction in self._open.values():
            found += [group_id for group_id, topic, _ in transaction if topic in names]
        return found

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """True if an open transaction commits an offset of the partition."""
        return (group_id, topic, partition) in self._unstable

    def put(self, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        self._by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset

    def put_all(self, group_id: str, committed: list[Commit], record_offset: int) -> None:
        """Takes what one write has committed, whose first record stands there in the log."""
        topics = self._by_group.setdefault(group_id, {})
        for topic, partition, offset in committed:
            partitions = topics.get(topic)
            if partitions is None:
                partitions = topics[topic] = {}
            partitions[partition] = CommittedOffset(*offset[:-1], record_offset)
            record_offset += 1

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        key = (group_id, topic, partition)
        if self._unstable.pop(key, 0):
            for transaction in self._open.values():
                transaction.pop(key, None)
        topics = self._by_group.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._by_group.pop(group_id, None)

    def put_open(
        self, producer_id: int, group_id: str, topic: str, partition: int, offset: CommittedOffset
    ) -> None:
        """An offset that counts once the producer's transaction is committed."""
        key = (group_id, topic, partition)
        transaction = self._open.setdefault(producer_id, {})
        if key not in transaction:
            self._unstable[key] = self._unstable.get(key, 0) + 1
        transaction[key] = offset

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Ends a transaction. Of an offset within it and one without, the later in the log
        holds."""
        for key, offset in self._take_open(producer_id).items():
            present = self.get(*key)
            if commit and (present is None or offset.record_offset > present.record_offset):
                self.put(*key, offset)

    def _take_open(self, producer_id: int) -> dict[tuple[str, str, int], CommittedOffset]:
        """The offsets of an open transaction, which is open no more."""
        taken = self._open.pop(producer_id, {})
        for key in taken:
            left = self._unstable.pop(key) - 1
            if left:
                self._unstable[key] = left
        return taken

    def expired(
        self, group: ClassicGroup, wall_ms: int, retention_ms: int
    ) -> Iterator[tuple[str, int]]:
        """Topic and partition of each offset of the group that is to be forgotten (KIP-211): of an
        empty group, so long after it became empty; of a group without members, and of topics that
        no member reads, so long after the commit."""
        is_consumer = group.protocol_type == CONSUMER_PROTOCOL_TYPE
        counts_from_empty = group.protocol_type is not None and group.state == EMPTY
        counts_from_commit = group.protocol_type is None or (
            is_consumer and group.state == STABLE and group.subscribed_topics is not None
        )
        if not counts_from_empty and not counts_from_commit:
            return
        since_empty_ms = group.state_timestamp_ms if counts_from_empty else -1
        for topic, partitions in self.of_group(group.group_id).items():
            if group.is_subscribed_to(topic):
                continue
            for partition, offset in partitions.items():
                if self.is_unstable(group.group_id, topic, partition):
                    continue
                since_ms = offset.commit_timestamp_ms if since_empty_ms == -1 else since_empty_ms
                if offset.expire_timestamp_ms != -1:
                    is_over = wall_ms >= offset.expire_timestamp_ms
                else:
                    is_over = wall_ms - since_ms >= retention_ms
                if is_over:
                    yield topic, partition
