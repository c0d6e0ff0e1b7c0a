"""DeleteRecords (key 21), versions 0 to 2: records below an offset are no longer there (KIP-107).

Behaviour: moves the log start offset of each partition up to the given offset, -1 for the high
watermark, and answers with the low watermark, the least log start offset of the replicas that live,
once that has come there. Segments below it go with the next look at retention. A log directory or
a follower that does not come within the request's time makes it REQUEST_TIMED_OUT, and the records
may go later.

Refusals, per partition, in Kafka's order (`ReplicaManager.deleteRecordsOnLocalLog`,
`Partition.deleteRecordsOnLeader`): TOPIC_AUTHORIZATION_FAILED; INVALID_TOPIC_EXCEPTION for an
internal topic; UNKNOWN_TOPIC_OR_PARTITION; KAFKA_STORAGE_ERROR if its log directory has failed;
NOT_LEADER_OR_FOLLOWER, also where another node leads before all replicas have come there;
POLICY_VIOLATION if `cleanup.policy` is `compact` alone; OFFSET_OUT_OF_RANGE below -1 and beyond the
high watermark.

Version notes: v2 is flexible; nothing else differs.
"""

from typing import Final

from kafkalite import _native, access
from kafkalite.access import DELETE
from kafkalite.api.log_answers import answer_of, in_time
from kafkalite.context import Context
from kafkalite.errors import KafkaliteError
from kafkalite.metadata.image import INTERNAL_TOPICS, TOPIC
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Future

NAME = "DeleteRecords"

Row = messages.DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult

HIGH_WATERMARK = -1

WAIT_MS_MIN: Final = 1_000
"""A log has so long to answer, also where the client gives no time: Kafka moves the start before it
looks at the clock."""


async def handle(
    context: Context, request: _native.Request, message: messages.DeleteRecordsRequest
) -> messages.DeleteRecordsResponse:
    """Each partition once; of one that is named twice, the last offset counts."""
    kind = messages.DeleteRecordsResponse
    response = kind()
    deleting: list[tuple[str, Row, Future[int]]] = []
    asked: dict[str, dict[int, int]] = {}
    sliced = context.tasks.sliced
    async for topic in sliced(message.topics):
        async for each in sliced(topic.partitions):
            asked.setdefault(topic.name, {})[each.partition_index] = each.offset
    async for name, offsets in sliced(asked.items()):
        result = kind.DeleteRecordsTopicResult(name=name)
        response.topics.append(result)
        is_permitted = context.may(request, DELETE, access.TOPIC, name)
        async for index, offset in sliced(offsets.items()):
            row = Row(partition_index=index, low_watermark=-1)
            result.partitions.append(row)
            if not is_permitted:
                row.error_code = codes.TOPIC_AUTHORIZATION_FAILED
                continue
            row.error_code, offset = _judge(context, name, index, offset)
            if row.error_code == codes.NONE:
                deleting.append((name, row, context.logs.delete_records(name, index, offset)))
    wait_ms = max(message.timeout_ms, WAIT_MS_MIN)
    await in_time(context, request, wait_ms, [asked for _, _, asked in deleting])
    async for name, row, start in sliced(deleting):
        try:
            row.low_watermark = answer_of(start)
        except KafkaliteError as error:
            context.log.error(f"records of {name}-{row.partition_index} are not deleted: {error}")
            row.error_code = error.kafka_code
    return response


def _judge(context: Context, name: str, index: int, offset: int) -> tuple[int, int]:
    """Error code, and the offset that is meant."""
    code = context.replicas.leader_refusal(name, index)
    if name in INTERNAL_TOPICS and code != codes.UNKNOWN_TOPIC_OR_PARTITION:
        return codes.INVALID_TOPIC_EXCEPTION, -1
    log = context.replicas.log(name, index)
    if code or log is None:
        return code, -1
    own = context.image.configs.get((TOPIC, name), {})
    policy = context.config.topic_value(own, "cleanup.policy")
    if policy and "delete" not in policy.split(","):
        return codes.POLICY_VIOLATION, -1
    high_watermark = log.offsets.high_watermark
    if offset == HIGH_WATERMARK:
        offset = high_watermark
    if offset < 0 or offset > high_watermark:
        return codes.OFFSET_OUT_OF_RANGE, -1
    return codes.NONE, offset
