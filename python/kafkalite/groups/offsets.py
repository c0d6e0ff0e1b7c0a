"""Committed offsets: how far each group has read each partition, and when that is forgotten.

Values are as the log has them. What this broker writes comes in here once it is committed, so that
nobody is told an offset that a power cut could take back; what it finds in the log when it is
elected comes in at once, although its high watermark may be below (docs/DIFFERENCES.md). Offsets
that were committed within a transaction wait beside them for its marker.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from kafkalite.groups.classic import ClassicGroup
from kafkalite.groups.events import CommitRequest
from kafkalite.groups.states import CONSUMER_PROTOCOL_TYPE, EMPTY, STABLE
from kafkalite.protocol import codes
from kafkalite.protocol.java import java_length


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

Place = tuple[str, str, int]
"""Group, topic and partition."""

Leaf = TypeVar("Leaf")
Tree = dict[str, dict[str, dict[int, Leaf]]]
"""Group -> topic -> partition, none of which is there without something in it."""


class UnderWay:
    """Commits that are not on disk yet, by their group."""

    __slots__ = ("_by_group", "_last_number")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[int, list[Commit]]] = {}
        self._last_number = 0

    def add(self, group_id: str, commits: list[Commit]) -> int:
        """Gives the number by which they are taken out again."""
        number = self._last_number = self._last_number + 1
        self._by_group.setdefault(group_id, {})[number] = commits
        return number

    def take(self, group_id: str, number: int) -> list[Commit]:
        """They are on disk, or will never be."""
        numbered = self._by_group[group_id]
        commits = numbered.pop(number)
        if not numbered:
            del self._by_group[group_id]
        return commits

    def partitions_of(self, group_id: str) -> dict[tuple[str, int], None]:
        """Topic and partition of each offset that the group commits."""
        numbered = self._by_group.get(group_id, {})
        return {each[:2]: None for commits in numbered.values() for each in commits}

    def groups_reading(self, names: frozenset[str]) -> list[str]:
        """Groups that commit an offset in one of the topics."""
        return [
            group_id
            for group_id, numbered in self._by_group.items()
            if any(each[0] in names for commits in numbered.values() for each in commits)
        ]


class OpenTransaction:
    """The offsets that a transaction commits; once it has ended, those still to be taken."""

    __slots__ = ("is_committed", "offsets")

    def __init__(self) -> None:
        self.offsets: dict[Place, CommittedOffset] = {}
        self.is_committed = False


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
        self._by_group: Tree[CommittedOffset] = {}
        self._open: dict[int, OpenTransaction] = {}
        """By producer id."""
        self._ended = deque[OpenTransaction]()
        """The ended transactions that are not applied completely yet, the oldest first."""
        self._unstable: Tree[tuple[OpenTransaction, ...]] = {}
        """The transactions that commit an offset of it, and are open or not taken yet."""

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> GroupOffsets:
        """Not to be changed by the caller."""
        return self._by_group.get(group_id, {})

    def partitions_of(self, group_id: str) -> list[tuple[str, int]]:
        """Topic and partition of every offset, those of open transactions included."""
        trees = (self.of_group(group_id), self._unstable.get(group_id, {}))
        found = {
            (topic, partition): None
            for tree in trees
            for topic, partitions in tree.items()
            for partition in partitions
        }
        return list(found)

    def count_of(self, group_id: str) -> int:
        """How many `partitions_of` gives."""
        topics = self.of_group(group_id)
        count = sum(map(len, topics.values()))
        for topic, unstable in self._unstable.get(group_id, {}).items():
            partitions = topics.get(topic, {})
            count += sum(each not in partitions for each in unstable)
        return count

    def group_ids(self) -> list[str]:
        """Groups with an offset, be it of an open transaction."""
        return list(dict.fromkeys([*self._by_group, *self._unstable]))

    def groups_reading(self, names: frozenset[str]) -> list[str]:
        """Groups with an offset in one of the topics, be it of an open transaction."""
        found = [
            each for each, topics in self._by_group.items() if not topics.keys().isdisjoint(names)
        ]
        unstable = self._unstable.items()
        return found + [each for each, topics in unstable if not topics.keys().isdisjoint(names)]

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """True if an open transaction commits an offset of the partition."""
        return partition in self._unstable.get(group_id, {}).get(topic, {})

    def put(self, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        _put(self._by_group, (group_id, topic, partition), offset)

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
        place = (group_id, topic, partition)
        for transaction in _take(self._unstable, place) or ():
            del transaction.offsets[place]
        _take(self._by_group, place)

    def put_open(
        self, producer_id: int, group_id: str, topic: str, partition: int, offset: CommittedOffset
    ) -> None:
        """An offset that counts once the producer's transaction is committed."""
        place = (group_id, topic, partition)
        transaction = self._open.get(producer_id)
        if transaction is None:
            transaction = self._open[producer_id] = OpenTransaction()
        if place not in transaction.offsets:
            others = self._unstable.get(group_id, {}).get(topic, {}).get(partition, ())
            _put(self._unstable, place, (*others, transaction))
        transaction.offsets[place] = offset

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Ends a transaction: its offsets are unstable until `take_ended` has come to them."""
        transaction = self._open.pop(producer_id, None) or OpenTransaction()
        transaction.is_committed = commit
        self._ended.append(transaction)

    @property
    def has_ended(self) -> bool:
        """Transactions have ended that are not taken yet."""
        return bool(self._ended)

    def take_ended(self, count_max: int) -> int:
        """Has so many offsets of transactions that have ended hold, or be dropped, in the order of
        the ends: how many transactions are through. Of an offset within a transaction and one
        without, the later in the log holds."""
        taken = 0
        while self._ended:
            transaction = self._ended[0]
            while transaction.offsets:
                if count_max <= 0:
                    return taken
                count_max -= 1
                self._take_one(transaction, *transaction.offsets.popitem())
            self._ended.popleft()
            taken += 1
        return taken

    def _take_one(
        self, transaction: OpenTransaction, place: Place, offset: CommittedOffset
    ) -> None:
        others = [each for each in _take(self._unstable, place) or () if each is not transaction]
        if others:
            _put(self._unstable, place, tuple(others))
        present = self.get(*place)
        if transaction.is_committed and (
            present is None or offset.record_offset > present.record_offset
        ):
            self.put(*place, offset)

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
            unstable = self._unstable.get(group.group_id, {}).get(topic, {})
            for partition, offset in partitions.items():
                if partition in unstable:
                    continue
                since_ms = offset.commit_timestamp_ms if since_empty_ms == -1 else since_empty_ms
                if offset.expire_timestamp_ms != -1:
                    is_over = wall_ms >= offset.expire_timestamp_ms
                else:
                    is_over = wall_ms - since_ms >= retention_ms
                if is_over:
                    yield topic, partition


def judge_offsets(
    request: CommitRequest, metadata_bytes_max: int, wall_ms: int
) -> tuple[list[int], list[Commit]]:
    """A code for each offset, and those that are taken."""
    retention_ms = request.retention_time_ms
    # The end of time is the largest number that the record holds.
    expire_ms = min(wall_ms + retention_ms, 2**63 - 1) if retention_ms != -1 else -1
    results = []
    taken = []
    for topic, topic_id, partition, offset, leader_epoch, metadata in request.offsets:
        is_long = 2 * len(metadata) > metadata_bytes_max
        if is_long and java_length(metadata) > metadata_bytes_max:
            results.append(codes.OFFSET_METADATA_TOO_LARGE)
            continue
        results.append(codes.NONE)
        committed = CommittedOffset(offset, leader_epoch, metadata, wall_ms, expire_ms, topic_id)
        taken.append((topic, partition, committed))
    return results, taken


def _put(tree: Tree[Leaf], place: Place, leaf: Leaf) -> None:
    group_id, topic, partition = place
    tree.setdefault(group_id, {}).setdefault(topic, {})[partition] = leaf


def _take(tree: Tree[Leaf], place: Place) -> Leaf | None:
    """Takes out what is there, and what is left with nothing in it."""
    group_id, topic, partition = place
    topics = tree.get(group_id, {})
    partitions = topics.get(topic, {})
    taken = partitions.pop(partition, None)
    if not partitions:
        topics.pop(topic, None)
    if not topics:
        tree.pop(group_id, None)
    return taken
