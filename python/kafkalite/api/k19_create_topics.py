"""CreateTopics (key 19), versions 2 to 7.

Behaviour: each topic of the request is made or refused on its own. A topic has a new id, the given
number of partitions (-1: `num.partitions`), and the broker's configuration with the given configs
on top; it is on disk before the answer. `validate_only` judges and makes nothing.

Refusals, per topic, in Kafka's order (`ReplicationControlManager.createTopics`): INVALID_REQUEST if
it is named twice; INVALID_TOPIC_EXCEPTION for an illegal name; TOPIC_ALREADY_EXISTS;
INVALID_TOPIC_EXCEPTION for a name that collides with another (`.` and `_` are one in metric names);
INVALID_CONFIG; with a manual assignment INVALID_REQUEST, INVALID_REPLICA_ASSIGNMENT; without one
INVALID_REPLICATION_FACTOR, INVALID_PARTITIONS; POLICY_VIOLATION beyond 10,000 partitions a request.

Version notes: v5 answers with the topic's configs (KIP-525); v7 with its id (KIP-516).
"""

from collections import Counter
from typing import Any

from kafkalite.context import Context
from kafkalite.metadata.controller import ControllerError
from kafkalite.protocol import messages

NAME = "CreateTopics"

INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_REQUEST = 42
POLICY_VIOLATION = 44

PARTITIONS_PER_REQUEST_MAX = 10_000
"""`ReplicationControlManager.MAX_PARTITIONS_PER_BATCH`"""


def handle(context: Context, _request: Any, message: Any) -> Any:
    """Makes the topics of the request; one result each, in order."""
    counts = Counter(topic.name for topic in message.topics)
    response = messages.CreateTopicsResponse()
    room = PARTITIONS_PER_REQUEST_MAX
    for name in counts:
        topic = next(each for each in message.topics if each.name == name)
        result = messages.CreateTopicsResponse.CreatableTopicResult(name=name, error_message=None)
        try:
            if counts[name] > 1:
                raise ControllerError(INVALID_REQUEST, "Duplicate topic name.")
            room -= _create(context, topic, message.validate_only, result, room)
        except ControllerError as refusal:
            result.error_code = refusal.code
            result.error_message = str(refusal)
            result.configs = None
        response.topics.append(result)
    return response


def _create(context: Context, topic: Any, validate_only: bool, result: Any, room: int) -> int:
    """Fills in `result`; returns how many partitions the topic has."""
    context.controller.check_new_topic(topic.name)
    configs = {config.name: config.value for config in topic.configs}
    context.check_topic_configs(configs)
    partition_count = _partition_count(context, topic)
    if partition_count > room:
        raise ControllerError(
            POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    if not validate_only:
        result.topic_id = context.create_topic(topic.name, partition_count, configs).id
    result.num_partitions = partition_count
    result.replication_factor = 1
    result.configs = [
        messages.CreateTopicsResponse.CreatableTopicResult.CreatableTopicConfigs(
            name=each.name,
            value=each.value,
            read_only=False,
            config_source=each.source,
            is_sensitive=False,
        )
        for each in context.describe_topic_configs(configs)
    ]
    return partition_count


def _partition_count(context: Context, topic: Any) -> int:
    """The partitions that are asked for, whichever way; raises where it cannot be so."""
    if topic.assignments:
        return _assigned_partitions(context, topic)
    factor = topic.replication_factor
    if factor < -1 or factor == 0:
        raise ControllerError(
            INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise ControllerError(
            INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if factor > 1:
        raise ControllerError(
            INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor "
            f"of {factor} cannot be reached because only 1 broker(s) are registered.",
        )
    default: int = context.config["num.partitions"]
    return default if topic.num_partitions == -1 else topic.num_partitions


def _assigned_partitions(context: Context, topic: Any) -> int:
    if topic.replication_factor != -1:
        raise ControllerError(
            INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        )
    if topic.num_partitions != -1:
        raise ControllerError(
            INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    indexes = sorted(each.partition_index for each in topic.assignments)
    if indexes != list(range(len(indexes))):
        raise ControllerError(
            INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    for each in topic.assignments:
        if each.broker_ids != [context.node_id]:
            raise ControllerError(
                INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment of partition {each.partition_index} must be "
                f"[{context.node_id}], the only broker.",
            )
    return len(indexes)
