"""DeleteRecords (key 21), versions 0 to 2: records below an offset are no longer there (KIP-107).

Behaviour: moves the log start offset of each partition up to the given offset, -1 for the high
watermark, and answers with the log start offset, which is never moved down. Segments below it go
with the next look at retention. There is one replica, so nothing waits for others.

Refusals, per partition, in Kafka's order (`ReplicaManager.deleteRecordsOnLocalLog`,
`Partition.deleteRecordsOnLeader`): INVALID_TOPIC_EXCEPTION for an internal topic;
UNKNOWN_TOPIC_OR_PARTITION; POLICY_VIOLATION if `cleanup.policy` is `compact` alone;
OFFSET_OUT_OF_RANGE below -1 and beyond the high watermark.

Version notes: v2 is flexible; nothing else differs.
"""

from typing import Any

from kafkalite.context import Context
from kafkalite.errors import KafkaliteError
from kafkalite.metadata.image import INTERNAL_TOPICS
from kafkalite.protocol import codes, messages

NAME = "DeleteRecords"

HIGH_WATERMARK = -1


def handle(context: Context, _request: Any, message: Any) -> Any:
    """Each partition once; of one that is named twice, the last offset counts."""
    kind = messages.DeleteRecordsResponse
    response = kind()
    asked: dict[str, dict[int, int]] = {}
    for topic in message.topics:
        for each in topic.partitions:
            asked.setdefault(topic.name, {})[each.partition_index] = each.offset
    for name, offsets in asked.items():
        results = []
        for index, offset in offsets.items():
            code, low_watermark = _delete(context, name, index, offset)
            results.append(
                kind.DeleteRecordsTopicResult.DeleteRecordsPartitionResult(
                    partition_index=index, low_watermark=low_watermark, error_code=code
                )
            )
        response.topics.append(kind.DeleteRecordsTopicResult(name=name, partitions=results))
    return response


def _delete(context: Context, name: str, index: int, offset: int) -> tuple[int, int]:
    """Error code and log start offset, -1 with an error."""
    log = context.plane.log(name, index)
    if log is not None and name in INTERNAL_TOPICS:
        return codes.INVALID_TOPIC_EXCEPTION, -1
    if log is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION, -1
    own = context.image.configs.get((2, name), {})
    policy = next(
        each.value for each in context.config.topic_configs(own) if each.name == "cleanup.policy"
    )
    if policy and "delete" not in policy.split(","):
        return codes.POLICY_VIOLATION, -1
    high_watermark = log.offsets.high_watermark
    if offset == HIGH_WATERMARK:
        offset = high_watermark
    if offset < 0 or offset > high_watermark:
        return codes.OFFSET_OUT_OF_RANGE, -1
    try:
        return 0, log.advance_log_start_offset(offset)
    except KafkaliteError as error:
        context.log.error(f"records of {name}-{index} are not deleted: {error}")
        return error.kafka_code, -1
