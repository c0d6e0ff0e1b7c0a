"""WriteTxnMarkers (key 27), versions 1 to 2: markers of transactions, as a coordinator of another
broker writes them, and an operator who ends a hanging transaction.

Behaviour: each marker is written to its partitions that are here, and committed before the answer;
offsets that it commits hold then. One that is not after `request.timeout.ms` may still be.

Refusals, per partition: CLUSTER_AUTHORIZATION_FAILED; UNKNOWN_TOPIC_OR_PARTITION;
NOT_LEADER_OR_FOLLOWER, also while groups are loaded; INVALID_PRODUCER_EPOCH,
TRANSACTION_COORDINATOR_FENCED for markers of the past; NOT_ENOUGH_REPLICAS; KAFKA_STORAGE_ERROR;
UNKNOWN_SERVER_ERROR for a producer id, an epoch or a version of -1; REQUEST_TIMED_OUT.

Version notes: v2 tells the version of the transaction, by which its epoch is judged (KIP-1228).
"""

from collections.abc import Sequence

from kafkalite import _native
from kafkalite.access import ALTER, CLUSTER, CLUSTER_ACTION
from kafkalite.context import Context
from kafkalite.coordinator.machine import Producer
from kafkalite.metadata.image import has_partition
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Task, all_done
from kafkalite.transactions.markers import marker_of
from kafkalite.transactions.states import NO_ID, TopicPartition

NAME = "WriteTxnMarkers"


async def handle(
    context: Context, request: _native.Request, message: messages.WriteTxnMarkersRequest
) -> messages.WriteTxnMarkersResponse:
    """Answers once every marker is committed or refused, or its time is over."""
    kind = messages.WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic_kind = kind.WritableTxnMarkerTopicResult
    response = messages.WriteTxnMarkersResponse()
    is_permitted = context.may(request, ALTER, CLUSTER) or context.may(
        request, CLUSTER_ACTION, CLUSTER
    )
    sliced = context.tasks.sliced
    begun: list[Task[dict[TopicPartition, int]]] = []
    async for marker in sliced(message.markers):
        producer = marker_of(
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version if request.api_version >= 2 else 0,
        )
        asked = [
            (each.name, index)
            async for each in sliced(marker.topics)
            async for index in sliced(each.partition_indexes)
        ]
        if is_permitted:
            writing = _write(context, producer, asked)
            begun.append(context.tasks.start(writing, request))
    await all_done(begun)
    for place, marker in enumerate(message.markers):
        found = begun[place].result() if is_permitted else {}
        result = kind(producer_id=marker.producer_id)
        async for each in sliced(marker.topics):
            rows = [
                topic_kind.WritableTxnMarkerPartitionResult(
                    partition_index=index,
                    error_code=found.get((each.name, index), codes.CLUSTER_AUTHORIZATION_FAILED),
                )
                async for index in sliced(each.partition_indexes)
            ]
            result.topics.append(topic_kind(name=each.name, partitions=rows))
        if any(each.partitions for each in result.topics):
            response.markers.append(result)
    return response


async def _write(
    context: Context, producer: Producer, asked: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """A code for each partition."""
    sliced = context.tasks.sliced
    there = {each async for each in sliced(asked) if has_partition(context.image, *each)}
    if there and NO_ID in (producer.producer_id, producer.producer_epoch):
        return dict.fromkeys(asked, codes.UNKNOWN_SERVER_ERROR)  # Kafka makes no such batch
    if producer.marker is not None and producer.marker.transaction_version == NO_ID:
        missing, refused = codes.UNKNOWN_TOPIC_OR_PARTITION, codes.UNKNOWN_SERVER_ERROR
        return {each: refused if each in there else missing async for each in sliced(asked)}
    return await context.transactions.writer.write(producer, dict.fromkeys(asked))
