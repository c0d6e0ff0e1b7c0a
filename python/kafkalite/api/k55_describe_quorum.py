"""DescribeQuorum (key 55), versions 0 to 2.

Behaviour: the quorum of `__cluster_metadata-0` is this node alone; it leads, and what is in its
log is committed.

Refusals: CLUSTER_AUTHORIZATION_FAILED; UNKNOWN_TOPIC_OR_PARTITION for each partition of a request
that is about anything else than just that one (`DescribeQuorumRequest`). A request without topics
gets an answer without any.

Version notes: v1 has times of the last fetch (KIP-836), here the time of the answer; v2 the
directory's id and the endpoints of the voters (KIP-853). There is no controller listener, so the
endpoint is the broker's own.
"""

from kafkalite import _native
from kafkalite.access import CLUSTER, DENIALS, DESCRIBE
from kafkalite.context import Context
from kafkalite.metadata.controller.topics import METADATA_TOPIC
from kafkalite.protocol import codes, messages

NAME = "DescribeQuorum"

Partition = messages.DescribeQuorumResponse.TopicData.PartitionData


def handle(
    context: Context, request: _native.Request, message: messages.DescribeQuorumRequest
) -> messages.DescribeQuorumResponse:
    """The state of the quorum."""
    if not context.may(request, DESCRIBE, CLUSTER):
        code, sentence = DENIALS[CLUSTER]
        return messages.DescribeQuorumResponse(error_code=code, error_message=sentence)
    asked = [(topic.topic_name, each) for topic in message.topics for each in topic.partitions]
    is_known = (
        len(message.topics) == 1
        and len(asked) == 1
        and asked[0][0] == METADATA_TOPIC
        and asked[0][1].partition_index == 0
    )
    kind = messages.DescribeQuorumResponse
    # Kafka's sentences are empty where there is nothing to say.
    response = kind(error_message="")
    for topic in message.topics:
        partitions = [
            _quorum(context) if is_known else _unknown(each.partition_index, request.api_version)
            for each in topic.partitions
        ]
        response.topics.append(kind.TopicData(topic_name=topic.topic_name, partitions=partitions))
    if is_known:
        voter_id = context.cluster.controller_id
        listeners = [
            kind.Node.Listener(name=each.name, host=each.host, port=each.port)
            for each in context.image.brokers[voter_id].endpoints
        ]
        response.nodes = [kind.Node(node_id=voter_id, listeners=listeners)]
    return response


def _quorum(context: Context) -> Partition:
    quorum = context.cluster.quorum
    now_ms = context.wall_ms()
    state = Partition.ReplicaState(
        replica_id=quorum.leader_id,
        replica_directory_id=quorum.voter_directory_id,
        log_end_offset=quorum.end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return Partition(
        partition_index=0,
        error_message="",
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=context.image.last_offset + 1,
        current_voters=[state],
        observers=[],
    )


def _unknown(index: int, version: int) -> Partition:
    sentence = "This server does not host this topic-partition." if version >= 2 else ""
    return Partition(
        partition_index=index, error_code=codes.UNKNOWN_TOPIC_OR_PARTITION, error_message=sentence
    )
