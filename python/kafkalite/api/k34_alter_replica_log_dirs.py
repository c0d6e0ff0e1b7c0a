"""AlterReplicaLogDirs (key 34), versions 1 and 2: moves replicas of this broker between its log
directories (KIP-113).

Behaviour: each partition is answered once its move has begun, which goes on after that;
DescribeLogDirs (35) shows the future replica until it is the log. A move to where the replica lies
ends one that is under way, and so does a move to another directory. Of a partition that is named
twice, the last directory counts.

Refusals, per partition, in Kafka's order (`ReplicaManager.alterReplicaLogDirs`):
CLUSTER_AUTHORIZATION_FAILED; INVALID_TOPIC_EXCEPTION where the name is too long for a future
replica's directory; LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR where that directory is offline, or
that of the replica; UNKNOWN_TOPIC_OR_PARTITION; REPLICA_NOT_AVAILABLE of a partition that this
broker has no replica of; KAFKA_STORAGE_ERROR while any log directory is offline. Where there is no
replica yet the directory is kept in mind for it. KAFKA_STORAGE_ERROR as well where a disk does not
answer for as long as clients wait, of each partition whose move has not begun by then; it does not
begin later.

Version notes: v2 is flexible; nothing else differs.
"""

from kafkalite import _native
from kafkalite.access import ALTER, CLUSTER
from kafkalite.api.deadline import CHANGE_WAIT_MS
from kafkalite.context import Context
from kafkalite.errors import KafkaliteError
from kafkalite.protocol import codes, messages
from kafkalite.tasks import TimedOutError

NAME = "AlterReplicaLogDirs"

Result = messages.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
Row = Result.AlterReplicaLogDirPartitionResult

NOT_THERE = (codes.UNKNOWN_TOPIC_OR_PARTITION, codes.REPLICA_NOT_AVAILABLE)


async def handle(
    context: Context, request: _native.Request, message: messages.AlterReplicaLogDirsRequest
) -> messages.AlterReplicaLogDirsResponse:
    """Begins the moves on a thread of their own, since disks are waited for."""
    asked: dict[tuple[str, int], str] = {}
    sliced = context.tasks.sliced
    async for directory in sliced(message.dirs):
        async for topic in sliced(directory.topics):
            asked.update({(topic.name, index): directory.path for index in topic.partitions})
    if not context.may(request, ALTER, CLUSTER):
        found = dict.fromkeys(asked, codes.CLUSTER_AUTHORIZATION_FAILED)
    else:
        found = await _begin(context, asked)
    results: dict[str, Result] = {}
    for (name, index), code in found.items():
        result = results.setdefault(name, Result(topic_name=name))
        result.partitions.append(Row(partition_index=index, error_code=code))
    return messages.AlterReplicaLogDirsResponse(results=list(results.values()))


async def _begin(context: Context, asked: dict[tuple[str, int], str]) -> dict[tuple[str, int], int]:
    moving = context.moves.request()

    def begin() -> None:
        for (name, index), path in asked.items():
            if not moving.begin(name, index, path):
                return

    code_of_others = codes.KAFKA_STORAGE_ERROR
    try:
        with context.time_limit(CHANGE_WAIT_MS):
            await context.background.run(begin)
    except TimedOutError:
        if not context.tasks.is_stopping:
            context.log.warning(f"{NAME}: a log directory does not answer")
    except KafkaliteError as error:
        context.log.error(f"{NAME}: {error}")
        code_of_others = codes.UNKNOWN_SERVER_ERROR
    found = dict.fromkeys(asked, code_of_others)
    for name, index, code, sentence in moving.answer():
        found[name, index] = code
        if code:
            context.log.warning(f"{name}-{index} is not moved: {sentence}")
        directory = context.moves.directory_id(asked[name, index]) if code in NOT_THERE else None
        if directory is not None:
            context.replicas.prefer(name, index, directory)
    return found
