"""Two log directories, one of which is slow, and what clients ask of the logs there."""

import time
from pathlib import Path
from typing import Any

import kafkalite
from api.group_requests import describe, find_coordinator
from api.raw import Connection
from faults.mount import Mount
from kafkalite.protocol import messages
from kafkalite.protocol.java_hash import java_hash

# A stalled request has no answer before the thaw, which comes after; a prompt one takes
# milliseconds, or seconds where the machine is busy.
PROMPT_S = 25.0


OFFSETS_PARTITIONS = 4


SESSION_MS = 3_000


def two_directories(slow: Mount, quick: Path) -> dict[str, str]:
    """A broker's configuration with both, and one network thread to be stuck. Commits wait for the
    thaw, however long it takes: `groups/test_overdue_writes.py` has those that do not."""
    return {
        "log.dirs": f"{quick},{slow.path / 'logs'}",
        "num.network.threads": "1",
        "offsets.commit.timeout.ms": "600000",
        "kafkalite.acks.fsync": "none",
    }


def partitions_by_directory(broker: kafkalite.Broker, slow: Mount, quick: Path) -> tuple[str, str]:
    """A topic whose partition lies in the slow directory, and one in the quick one."""
    found: dict[bool, str] = {}
    with Connection(broker.bootstrap_servers) as connection:
        for number in range(8):
            name = f"topic-{number}"
            assert connection.create_topic(name).error_code == 0
            is_slow = (slow.path / "logs" / f"{name}-0").is_dir()
            assert is_slow or (quick / f"{name}-0").is_dir()
            found.setdefault(is_slow, name)
            if len(found) == 2:
                return found[True], found[False]
    raise AssertionError("all topics lie in one directory")


def groups_in(logs: Path, connection: Connection) -> list[str]:
    """Groups of twenty whose offsets lie in a log directory."""
    find_coordinator(connection, "any")
    partitions = {
        index
        for index in range(OFFSETS_PARTITIONS)
        if (logs / f"__consumer_offsets-{index}").is_dir()
    }
    groups = [f"group-{number}" for number in range(20)]
    found = [each for each in groups if java_hash(each) % OFFSETS_PARTITIONS in partitions]
    assert found
    return found


def wait_until_loaded(connection: Connection, *groups: str) -> None:
    began = time.monotonic()
    while any(each.error_code for each in describe(connection, *groups)):
        assert time.monotonic() - began < PROMPT_S


def commit_request(group: str, topic: str, offset: int) -> Any:
    kind = messages.OffsetCommitRequest
    partition = kind.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1
    )
    named = kind.OffsetCommitRequestTopic(name=topic, partitions=[partition])
    return kind(group_id=group, generation_id_or_member_epoch=-1, topics=[named])


def code_of(response: Any) -> int:
    code: int = response.topics[0].partitions[0].error_code
    return code


def commit(connection: Connection, group: str, topic: str, offset: int) -> int:
    """The error code."""
    return code_of(connection.ask("OffsetCommit", 8, commit_request(group, topic, offset)))


def committed(connection: Connection, group: str, topic: str) -> int:
    kind = messages.OffsetFetchRequest
    named = kind.OffsetFetchRequestGroup.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    request = kind(groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=[named])])
    answer = connection.ask("OffsetFetch", 8, request)
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset
