"""DescribeLogDirs (key 35), versions 1 to 5: what the log directories hold (KIP-113).

Behaviour: every log directory with the partitions that are asked for, or all, each with the bytes
of its segments; from v4 also how large the disk is and how much of it is left (KIP-827). Partitions
that are not there are left out. A replica on its way to another directory is there as a future one,
with the number of offsets that it lacks (`k34_alter_replica_log_dirs.py`). A directory that failed
has KAFKA_STORAGE_ERROR and no partitions, one whose disk cannot be asked UNKNOWN_SERVER_ERROR
(`ReplicaManager.describeLogDirs`). A disk that does not answer for two and a half seconds is -1
bytes large, which stands for not known.

Refusals: CLUSTER_AUTHORIZATION_FAILED, before version 3 no results.

Version notes: v3 has an error code of the whole, v4 bytes of the disk, v5 whether the directory is
cordoned, which none is.
"""

import os
from contextlib import suppress

from kafkalite import _native
from kafkalite.access import CLUSTER, DESCRIBE
from kafkalite.api.deadline import IMPATIENT_WAIT_MS
from kafkalite.context import Context
from kafkalite.errors import KafkaliteError
from kafkalite.protocol import codes, messages
from kafkalite.tasks import TimedOutError, all_done

NAME = "DescribeLogDirs"

Directory = messages.DescribeLogDirsResponse.DescribeLogDirsResult
Partition = Directory.DescribeLogDirsTopic.DescribeLogDirsPartition


async def handle(
    context: Context, request: _native.Request, message: messages.DescribeLogDirsRequest
) -> messages.DescribeLogDirsResponse:
    """Each log directory, in the order of `log.dirs`, once their disks have answered."""
    response = messages.DescribeLogDirsResponse()
    if not context.may(request, DESCRIBE, CLUSTER):
        response.error_code = codes.CLUSTER_AUTHORIZATION_FAILED
        return response
    usable = await _describe(context, message, response)
    sizes = [context.disks.size(result.log_dir) for result in usable]
    with suppress(TimedOutError), context.time_limit(IMPATIENT_WAIT_MS):
        await all_done(sizes)
    for result, size in zip(usable, sizes, strict=True):
        try:
            if size.is_done:
                result.total_bytes, result.usable_bytes = size.result()
        except KafkaliteError as error:
            context.log.error(str(error))
            result.error_code, result.topics = codes.UNKNOWN_SERVER_ERROR, []
    return response


async def _describe(
    context: Context,
    message: messages.DescribeLogDirsRequest,
    response: messages.DescribeLogDirsResponse,
) -> list[Directory]:
    """Puts into the response what is known without the disks. Returns the results of directories
    that have not failed."""
    partitions: dict[str, dict[str, list[Partition]]] = {}
    sliced = context.tasks.sliced
    asked = await _asked(context, message)
    async for name, indexes in sliced(asked.items()):
        async for index in sliced(indexes):
            log = context.replicas.log(name, index)
            if log is not None:
                path = os.path.dirname(log.directory)  # noqa: PTH120 - a text comes and goes
                found = partitions.setdefault(path, {}).setdefault(name, [])
                found.append(_partition(index, log.size_bytes))
    for name, index, home, size_bytes, lag in context.core.moves.futures():
        if index in asked.get(name, ()):
            found = partitions.setdefault(str(home), {}).setdefault(name, [])
            found.append(_partition(index, size_bytes, lag, is_future=True))
    usable = []
    offline = context.replicas.offline_directories()
    for path in context.config.log_dirs():
        result = Directory(log_dir=path)
        response.results.append(result)
        if path in offline:
            result.error_code = codes.KAFKA_STORAGE_ERROR
            continue
        usable.append(result)
        result.topics = [
            result.DescribeLogDirsTopic(name=name, partitions=found)
            for name, found in partitions.get(path, {}).items()
        ]
    return usable


async def _asked(
    context: Context, message: messages.DescribeLogDirsRequest
) -> dict[str, list[int]]:
    """Topics and partitions, each once however often it is named."""
    if message.topics is None:
        topics = context.image.topics.values()
        return {topic.name: [each.index for each in topic.partitions] for topic in topics}
    asked: dict[str, dict[int, None]] = {}
    async for topic in context.tasks.sliced(message.topics):
        asked.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    return {name: list(indexes) for name, indexes in asked.items()}


def _partition(index: int, size_bytes: int, lag: int = 0, *, is_future: bool = False) -> Partition:
    return Partition(
        partition_index=index, partition_size=size_bytes, offset_lag=lag, is_future_key=is_future
    )
