"""DescribeTopicPartitions (key 75), version 0: topics in pages (KIP-966).

Behaviour: the topics that are named, or all, sorted, each with its partitions, until the page is
full: `response_partition_limit` partitions, at least 1, at most `max.request.partition.size.limit`.
`next_cursor` says where the next page begins, and is where the client's next request does. A
partition whose log directory is offline has no leader, and its replica is offline; it is eligible
in place of in sync where `eligible.leader.replicas.version` is on, and in sync still where it is
not (`PartitionChangeBuilder`: without ELR the last in-sync replica stays).

Refusals, per topic: TOPIC_AUTHORIZATION_FAILED, behind the others (where all are asked for, the
topic is left out); INVALID_TOPIC_EXCEPTION; UNKNOWN_TOPIC_OR_PARTITION. For every topic that was
named: INVALID_REQUEST if the cursor's partition is negative or its topic is not one of those named,
UNKNOWN_SERVER_ERROR if one of the names is empty and there is no cursor.
"""

import heapq
from collections.abc import Collection, Iterable
from typing import Final

from kafkalite import _native
from kafkalite.access import DESCRIBE, TOPIC
from kafkalite.context import Context
from kafkalite.metadata.controller.topics import name_refusal
from kafkalite.metadata.features import ELR_VERSION
from kafkalite.metadata.image import NO_LEADER, PartitionImage
from kafkalite.protocol import codes, messages

NAME = "DescribeTopicPartitions"

SORTED_AT_ONCE: Final = 1_000

Topic = messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition = Topic.DescribeTopicPartitionsResponsePartition


async def handle(
    context: Context, request: _native.Request, message: messages.DescribeTopicPartitionsRequest
) -> messages.DescribeTopicPartitionsResponse:
    """A page of topics and partitions."""
    named = [topic.name for topic in message.topics]
    cursor = message.cursor
    if cursor is not None and (
        cursor.partition_index < 0 or (named and cursor.topic_name not in named)
    ):
        return _refuse(named, codes.INVALID_REQUEST)
    if "" in named and cursor is None:
        return _refuse(named, codes.UNKNOWN_SERVER_ERROR)
    names: Collection[str] = set(named) or context.image.topics
    first_partition = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        first_partition = cursor.partition_index
    most: int = context.config["max.request.partition.size.limit"]
    room = max(1, min(message.response_partition_limit, most))
    response = messages.DescribeTopicPartitionsResponse()
    denied: list[Topic] = []
    async for name in context.tasks.sliced(await _in_order(context, list(names))):
        if not context.may(request, DESCRIBE, TOPIC, name):
            if named:
                refused = Topic(name=name, error_code=codes.TOPIC_AUTHORIZATION_FAILED)
                denied.append(refused)
            continue
        first = first_partition if cursor is not None and name == cursor.topic_name else 0
        if room == 0:
            response.next_cursor = response.Cursor(topic_name=name, partition_index=first)
            break
        topic = _topic(context, name, first, room)
        topic.topic_authorized_operations = context.operations(request, TOPIC, name)
        response.topics.append(topic)
        room -= len(topic.partitions)
        if topic.error_code == 0:
            reached = first + len(topic.partitions)
            if reached < len(context.image.topics[name].partitions):
                response.next_cursor = response.Cursor(topic_name=name, partition_index=reached)
                break
    response.topics += denied
    return response


async def _in_order(context: Context, names: list[str]) -> Iterable[str]:
    """Sorts the names, so many at a time: others have their turn between."""
    runs = [
        sorted(names[start : start + SORTED_AT_ONCE])
        async for start in context.tasks.sliced(range(0, len(names), SORTED_AT_ONCE))
    ]
    return heapq.merge(*runs)


def _topic(context: Context, name: str, first: int, room: int) -> Topic:
    described = Topic(name=name)
    topic = context.image.topics.get(name)
    if topic is None:
        described.error_code = codes.UNKNOWN_TOPIC_OR_PARTITION
        if name_refusal(name):
            described.error_code = codes.INVALID_TOPIC_EXCEPTION
        return described
    described.topic_id = topic.id
    described.is_internal = topic.is_internal
    has_offline = bool(context.replicas.offline_directories())
    alive = set(context.cluster.broker_ids)
    has_elr = bool(context.image.features.get(ELR_VERSION))
    for each in topic.partitions[first : first + room]:
        is_offline = has_offline and context.replicas.is_offline(name, each.index)
        described.partitions.append(_partition(each, alive, is_offline=is_offline, has_elr=has_elr))
    return described


def _partition(
    partition: PartitionImage, alive: Collection[int], *, is_offline: bool, has_elr: bool
) -> Partition:
    if is_offline:
        # Since the start the metadata says so; not where the directory has failed since.
        partition = partition._replace(leader=NO_LEADER)
        if has_elr:
            node = partition.replicas
            partition = partition._replace(isr=(), elr=node, last_known_elr=node)
    return Partition(
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=[each for each in partition.replicas if is_offline or each not in alive],
    )


def _refuse(names: list[str], code: int) -> messages.DescribeTopicPartitionsResponse:
    kind = messages.DescribeTopicPartitionsResponse
    return kind(
        topics=[
            kind.DescribeTopicPartitionsResponseTopic(name=name, error_code=code) for name in names
        ]
    )
