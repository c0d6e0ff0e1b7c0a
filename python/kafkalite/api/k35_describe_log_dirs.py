"""DescribeLogDirs (key 35), versions 1 to 5: what the log directories hold (KIP-113).

Behaviour: every log directory with the partitions that are asked for, or all, each with the bytes
of its segments; from v4 also how large the disk is and how much of it is left (KIP-827). Partitions
that are not there are left out. A directory that failed has KAFKA_STORAGE_ERROR and no partitions,
one whose disk cannot be asked UNKNOWN_SERVER_ERROR (`ReplicaManager.describeLogDirs`).

Version notes: v3 has an error code of the whole, v4 bytes of the disk, v5 whether the directory is
cordoned, which none is.
"""

import os
from typing import Any

from kafkalite.context import Context
from kafkalite.protocol import codes, messages

NAME = "DescribeLogDirs"


def handle(context: Context, _request: Any, message: Any) -> Any:
    """Each log directory, in the order of `log.dirs`."""
    partitions: dict[str, dict[str, list[Any]]] = {}
    for name, indexes in _asked(context, message).items():
        for index in indexes:
            log = context.plane.log(name, index)
            if log is not None:
                path = os.path.dirname(log.directory)  # noqa: PTH120 - a text comes and goes
                found = partitions.setdefault(path, {}).setdefault(name, [])
                found.append(_partition(index, log.size_bytes))
    offline = context.plane.offline_log_dirs()
    response = messages.DescribeLogDirsResponse()
    for path in context.config.log_dirs():
        result = messages.DescribeLogDirsResponse.DescribeLogDirsResult(log_dir=path)
        response.results.append(result)
        if path in offline:
            result.error_code = codes.KAFKA_STORAGE_ERROR
            continue
        try:
            disk = os.statvfs(path)
        except OSError as error:
            context.log.error(f"the log directory {path} cannot be described: {error}")
            result.error_code = codes.UNKNOWN_SERVER_ERROR
            continue
        result.topics = [
            result.DescribeLogDirsTopic(name=name, partitions=found)
            for name, found in partitions.get(path, {}).items()
        ]
        result.total_bytes = disk.f_blocks * disk.f_frsize
        result.usable_bytes = disk.f_bavail * disk.f_frsize
    return response


def _asked(context: Context, message: Any) -> dict[str, list[int]]:
    """Topics and partitions, each once however often it is named."""
    if message.topics is None:
        topics = context.image.topics.values()
        return {topic.name: [each.index for each in topic.partitions] for topic in topics}
    asked: dict[str, dict[int, None]] = {}
    for topic in message.topics:
        asked.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    return {name: list(indexes) for name, indexes in asked.items()}


def _partition(index: int, size_bytes: int) -> Any:
    kind = messages.DescribeLogDirsResponse.DescribeLogDirsResult.DescribeLogDirsTopic
    return kind.DescribeLogDirsPartition(partition_index=index, partition_size=size_bytes)
