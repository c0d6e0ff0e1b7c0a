"""Partitions: where they can lie, and the records by which topics grow. Pure functions.

Kafka: `ReplicationControlManager.createPartitions`, `validateManualPartitionAssignment` and
`alterPartitionReassignment`.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.metadata.controller import ControllerError, check_record_count
from kafkalite.metadata.image import Image, PartitionImage, TopicImage
from kafkalite.metadata.image_records import partition_record
from kafkalite.protocol import codes, messages

if TYPE_CHECKING:
    Grown = messages.CreatePartitionsRequest.CreatePartitionsTopic
    Reassigned = messages.AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition


class Assignment(NamedTuple):
    """Where a new partition lies: its brokers, of which the first leads, and of each the id of a
    log directory."""

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]


def check_assignment(replicas: Sequence[int], broker_ids: Collection[int]) -> None:
    """Raises ControllerError where a partition cannot have these replicas; `broker_ids` are the
    brokers that can have one."""
    if not replicas:
        raise ControllerError(
            codes.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        )
    unknown = [each for each in sorted(replicas) if each not in broker_ids]
    if unknown:
        raise ControllerError(
            codes.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes broker {unknown[0]}, but no such broker is "
            "registered.",
        )
    twice = [each for each in sorted(replicas) if replicas.count(each) > 1]
    if twice:
        raise ControllerError(
            codes.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes the broker {twice[0]} more than once.",
        )


def check_reassignment(
    image: Image, name: str, asked: "Reassigned", broker_ids: Collection[int]
) -> None:
    """Raises ControllerError where a partition cannot be moved; no move is ever under way."""
    topic = image.topics.get(name)
    unknown = codes.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        raise ControllerError(unknown, f"Unable to find a topic named {name}.")
    index = asked.partition_index
    if not 0 <= index < len(topic.partitions):
        raise ControllerError(unknown, f"Unable to find partition {name}:{index}.")
    if asked.replicas is None:
        raise ControllerError(codes.NO_REASSIGNMENT_IN_PROGRESS, "")
    check_assignment(asked.replicas, broker_ids)


def find_topic(image: Image, name: str) -> TopicImage:
    """The topic of a name. Raises ControllerError if there is none."""
    topic = image.topics.get(name)
    if topic is None:
        raise ControllerError(
            codes.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    return topic


def check_growth(image: Image, asked: "Grown", room: int, broker_ids: Collection[int]) -> int:
    """The number of partitions by which a topic grows, at most `room`. Raises ControllerError where
    it cannot."""
    known = image.topics.get(asked.name)
    if known is None:
        raise ControllerError(codes.UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic.")
    count = len(known.partitions)
    if asked.count == count:
        raise ControllerError(codes.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if asked.count < count:
        raise ControllerError(
            codes.INVALID_PARTITIONS,
            f"The topic {asked.name} currently has {count} partition(s); {asked.count} would not "
            "be an increase.",
        )
    news = asked.count - count
    if asked.assignments is not None:
        if len(asked.assignments) != news:
            raise ControllerError(
                codes.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {news} additional partition(s), but only "
                f"{len(asked.assignments)} assignment(s) were specified.",
            )
        for each in asked.assignments:
            check_assignment(each.broker_ids, broker_ids)
    if news > room:
        raise ControllerError(
            codes.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    return news


def count_new(image: Image, total_counts: Mapping[str, int]) -> int:
    """The number of partitions that topics lack to have their totals. Raises ControllerError where
    one has as many already, or they take too many records."""
    new_count = 0
    for name, total_count in total_counts.items():
        count = len(find_topic(image, name).partitions)
        if total_count <= count:
            raise ControllerError(
                codes.INVALID_PARTITIONS,
                f"Topic currently has {count} partitions, which is higher than the requested "
                f"{total_count}.",
            )
        new_count += total_count - count
    check_record_count(new_count)
    return new_count


class Growth(NamedTuple):
    """Topics with more partitions, and the records that make these."""

    topics: list[TopicImage]
    records: list[Any]


def grow(
    image: Image, total_counts: Mapping[str, int], assignments: Sequence[Assignment]
) -> Growth:
    """Gives topics more partitions, so that each has its total. `assignments` are those of the
    new ones of all topics (`count_new`), in their order."""
    left = iter(assignments)
    growth = Growth([], [])
    for name, total_count in total_counts.items():
        topic = find_topic(image, name)
        count = len(topic.partitions)
        news = new_partitions(count, list(islice(left, total_count - count)))
        growth.topics.append(topic._replace(partitions=(*topic.partitions, *news)))
        growth.records.extend(partition_record(topic.id, each) for each in news)
    return growth


def new_partitions(first: int, assignments: Sequence[Assignment]) -> list[PartitionImage]:
    """Partitions in their first epoch, all of their replicas in sync, by index from `first` on."""
    return [
        PartitionImage(
            index=index,
            leader=each.replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            replicas=each.replicas,
            isr=each.replicas,
            directories=each.directories,
        )
        for index, each in enumerate(assignments, first)
    ]
