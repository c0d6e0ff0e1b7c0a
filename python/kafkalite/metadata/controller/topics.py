"""Topics: which of them can be made, and the records that make and remove them. Pure functions.

Kafka: `ReplicationControlManager.createTopics` and `deleteTopics`, `Topic.validate`.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.metadata.controller import ControllerError, check_record_count
from kafkalite.metadata.controller.partitions import (
    Assignment,
    check_assignment,
    find_topic,
    new_partitions,
)
from kafkalite.metadata.image import TOPIC, AlikeNames, Image
from kafkalite.metadata.image_records import config_record, partition_record
from kafkalite.protocol import codes, messages
from kafkalite.protocol.java import java_length

if TYPE_CHECKING:
    Asked = messages.CreateTopicsRequest.CreatableTopic

METADATA_TOPIC = "__cluster_metadata"
TOPIC_NAME_MAX = 249
"""Characters of a topic's name (`Topic.MAX_NAME_LENGTH`)."""
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class NewTopic(NamedTuple):
    """A topic that is to be made."""

    name: str
    partition_count: int
    configs: Mapping[str, str]
    replication_factor: int = 1
    """In a cluster; of a node that is alone each partition has one replica."""

    @property
    def record_count(self) -> int:
        """The number of records that make it."""
        return 1 + len(self.configs) + self.partition_count


def name_refusal(name: str) -> str:
    """Why a topic's name is illegal, in Kafka's words (`Topic.validate`); empty if it is not."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if java_length(name) > TOPIC_NAME_MAX:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed "
            f"length {TOPIC_NAME_MAX}"
        )
    if not _NAME_CHARACTERS.issuperset(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )
    return ""


def check_new_topic(image: Image, name: str, others: AlikeNames) -> None:
    """Raises ControllerError where a topic of this name cannot be made; `others` will be made
    before it."""
    if name == METADATA_TOPIC:
        raise ControllerError(
            codes.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )
    refusal = name_refusal(name)
    if refusal:
        raise ControllerError(codes.INVALID_TOPIC_EXCEPTION, refusal)
    if name in image.topics:
        raise ControllerError(codes.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    alike = image.alike.like(name) | others.like(name)
    if alike:
        raise ControllerError(
            codes.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {min(alike)}",
        )


def partition_count(topic: "Asked", default_count: int, broker_ids: Collection[int]) -> int:
    """The partitions that are asked for, by number or by assignment; -1 asks for the
    default. Brokers are those that can have replicas. Raises ControllerError where it cannot be
    so."""
    if topic.assignments:
        return _assigned_count(topic, broker_ids)
    factor = topic.replication_factor
    if factor < -1 or factor == 0:
        raise ControllerError(
            codes.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise ControllerError(
            codes.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if factor > len(broker_ids):
        raise ControllerError(
            codes.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor "
            f"of {factor} cannot be reached because only {len(broker_ids)} broker(s) are "
            "registered.",
        )
    return default_count if topic.num_partitions == -1 else topic.num_partitions


def _assigned_count(topic: "Asked", broker_ids: Collection[int]) -> int:
    if topic.replication_factor != -1:
        raise ControllerError(
            codes.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        )
    if topic.num_partitions != -1:
        raise ControllerError(
            codes.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    indexes: set[int] = set()
    for each in topic.assignments:
        if each.partition_index in indexes:
            raise ControllerError(
                codes.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {each.partition_index}",
            )
        check_assignment(each.broker_ids, broker_ids)
        indexes.add(each.partition_index)
    if sorted(indexes) != list(range(len(indexes))):
        raise ControllerError(
            codes.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return len(indexes)


def count_partitions(wanted: Sequence[NewTopic]) -> int:
    """The number of partitions of topics that are to be made. Raises ControllerError if they take
    too many records."""
    check_record_count(sum(each.record_count for each in wanted))
    return sum(each.partition_count for each in wanted)


def creation_records(
    wanted: Sequence[NewTopic], topic_ids: Mapping[str, bytes], assignments: Sequence[Assignment]
) -> list[Any]:
    """The records that make topics, which must have been checked. `topic_ids` are by name,
    `assignments` those of all partitions of all topics, in their order."""
    left = iter(assignments)
    records: list[Any] = []
    for each in wanted:
        topic_id = topic_ids[each.name]
        records.append(messages.TopicRecord(name=each.name, topic_id=topic_id))
        configs = each.configs.items()
        records += [config_record(TOPIC, each.name, key, value) for key, value in configs]
        partitions = new_partitions(0, list(islice(left, each.partition_count)))
        records += [partition_record(topic_id, partition) for partition in partitions]
    return records


def removal_records(image: Image, names: Sequence[str]) -> list[Any]:
    """The records that remove topics, with their configs. Raises ControllerError if one is not
    there, or they take too many."""
    topics = [find_topic(image, name) for name in names]
    check_record_count(len(topics))
    return [messages.RemoveTopicRecord(topic_id=each.id) for each in topics]
