"""OffsetForLeaderEpoch (key 23), versions 2 to 4: where a leader's records end (KIP-101, KIP-320).

Behaviour: the largest epoch at or below the one asked for, and the offset after its last record:
the log end for the newest epoch, the start of the next one for others. Consumers ask it to find out
whether records they have seen are still there. An epoch beyond the newest has none (-1, -1); of one
older than all there are, the end is the start of the oldest.

Refusals, per partition: TOPIC_AUTHORIZATION_FAILED; UNKNOWN_TOPIC_OR_PARTITION; KAFKA_STORAGE_ERROR
if its log directory has failed; FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH if the client knows
another epoch of the leader; NOT_LEADER_OR_FOLLOWER.

Version notes: v2 has the client's epoch of the leader (KIP-320), v3 the replica id (KIP-392).
"""

from kafkalite import _native
from kafkalite.access import CLUSTER, CLUSTER_ACTION, DESCRIBE, TOPIC
from kafkalite.context import Context
from kafkalite.protocol import codes, messages

NAME = "OffsetForLeaderEpoch"

Topic = messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
Result = messages.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
Asked = Topic.OffsetForLeaderPartition

UNDEFINED = -1
"""Stands for no epoch, and for no offset."""


async def handle(
    context: Context, request: _native.Request, message: messages.OffsetForLeaderEpochRequest
) -> messages.OffsetForLeaderEpochResponse:
    """Each partition that is named."""
    kind = messages.OffsetForLeaderEpochResponse
    response = kind()
    is_broker = context.may(request, CLUSTER_ACTION, CLUSTER)
    denied: list[Result] = []
    sliced = context.tasks.sliced
    async for topic in sliced(message.topics):
        if not is_broker and not context.may(request, DESCRIBE, TOPIC, topic.topic):
            denied.append(_denied(topic))
            continue
        result = Result(topic=topic.topic)
        async for each in sliced(topic.partitions):
            end = result.EpochEndOffset(partition=each.partition)
            log = context.replicas.log(topic.topic, each.partition)
            end.error_code = _refusal(context, topic.topic, each)
            if log is not None and end.error_code == codes.NONE:
                undefined = (UNDEFINED, UNDEFINED)
                found = log.end_of_epoch(each.leader_epoch)
                end.leader_epoch, end.end_offset = found or undefined
            result.partitions.append(end)
        response.topics.append(result)
    # Last, as in Kafka.
    response.topics += denied
    return response


def _denied(asked: Topic) -> Result:
    ends = [
        Result.EpochEndOffset(partition=each.partition, error_code=codes.TOPIC_AUTHORIZATION_FAILED)
        for each in asked.partitions
    ]
    return Result(topic=asked.topic, partitions=ends)


def _refusal(context: Context, name: str, asked: Asked) -> int:
    code = context.replicas.refusal(name, asked.partition)
    topic = context.image.topics.get(name)
    if code or topic is None:
        return code or codes.UNKNOWN_TOPIC_OR_PARTITION
    known = asked.current_leader_epoch
    leader_epoch = topic.partitions[asked.partition].leader_epoch
    if known in (UNDEFINED, leader_epoch):
        is_leader = context.replicas.leads(name, asked.partition)
        return codes.NONE if is_leader else codes.NOT_LEADER_OR_FOLLOWER
    return codes.FENCED_LEADER_EPOCH if known < leader_epoch else codes.UNKNOWN_LEADER_EPOCH
