"""Moves of replicas between log directories, as tests ask a broker for them by frames."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from api.raw import Connection
from kafkalite.protocol import messages

LIMIT_S = 120
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def alter(connection: Connection, path: str | Path, *places: tuple[str, int]) -> list[int]:
    """The codes, in the order of the partitions."""
    kind = messages.AlterReplicaLogDirsRequest
    directory = kind.AlterReplicaLogDir
    topics = [
        directory.AlterReplicaLogDirTopic(name=name, partitions=[index]) for name, index in places
    ]
    request = kind(dirs=[directory(path=str(path), topics=topics)])
    answer = connection.ask("AlterReplicaLogDirs", 2, request)
    found = {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in answer.results
        for each in topic.partitions
    }
    return [found[place] for place in places]


def places(connection: Connection, topic: str) -> list[tuple[str, bool, int]]:
    """Path, whether it is a future replica, and lag of each replica of partition 0 on a broker."""
    answer = connection.ask("DescribeLogDirs", 4, messages.DescribeLogDirsRequest(topics=None))
    return [
        (result.log_dir, each.is_future_key, each.offset_lag)
        for result in answer.results
        for found in result.topics
        if found.name == topic
        for each in found.partitions
        if each.partition_index == 0
    ]


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)  # a poll


def home_of(connection: Connection, topic: str) -> Path:
    ((path, is_future, _),) = places(connection, topic)
    assert not is_future
    return Path(path)


def other_than(paths: Sequence[Path], home: Path) -> Path:
    """The one of two."""
    (other,) = set(paths) - {home}
    return other


def has_moved(connection: Connection, topic: str, home: Path) -> Callable[[], bool]:
    return lambda: places(connection, topic) == [(str(home), False, 0)]


def set_rate(connection: Connection, rate: str | None, broker: int = 1) -> None:
    """Sets the rate of moves between log directories of a broker; None: there is none."""
    kind = messages.IncrementalAlterConfigsRequest
    config = kind.AlterConfigsResource.AlterableConfig(
        name=RATE, config_operation=1 if rate is None else 0, value=rate
    )
    resource = kind.AlterConfigsResource(
        resource_type=4, resource_name=str(broker), configs=[config]
    )
    (answer,) = connection.ask("IncrementalAlterConfigs", 1, kind(resources=[resource])).responses
    assert answer.error_code == 0, answer
