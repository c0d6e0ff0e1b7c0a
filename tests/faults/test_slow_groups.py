"""A slow log directory and the groups whose offsets lie there: they wait, and no others."""

import threading
import time
from pathlib import Path

import kafkalite
from api.group_requests import describe, heartbeat, stable_member
from api.raw import Connection
from faults.directories import (
    OFFSETS_PARTITIONS,
    PROMPT_S,
    SESSION_MS,
    code_of,
    commit,
    commit_request,
    committed,
    groups_in,
    partitions_by_directory,
    wait_until_loaded,
)
from faults.mount import Mount
from kafkalite.protocol import messages


def test_a_frozen_directory_stalls_its_own_groups_only(
    two: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    """Commits were appended by the one thread of Python, which then answered nothing any more."""
    _, topic = partitions_by_directory(two, slow, tmp_path / "quick")
    servers = two.bootstrap_servers
    with Connection(servers) as seed:
        stalled = groups_in(slow.path / "logs", seed)
        going = groups_in(tmp_path / "quick", seed)
        for group in stalled + going:
            assert commit(seed, group, topic, 7) == 0
    slow.freeze()
    try:
        waiting = [Connection(servers) for _ in stalled]
        sent = [
            connection.send(8, 8, commit_request(group, topic, 8).encode(8))
            for connection, group in zip(waiting, stalled, strict=True)
        ]
        with Connection(servers) as connection:
            connection.socket.settimeout(PROMPT_S)
            for group in going:
                assert commit(connection, group, topic, 9) == 0
                assert committed(connection, group, topic) == 9
            # What is not on disk is not seen, and asking for it stalls nobody.
            for group in stalled:
                assert committed(connection, group, topic) == 7
            member = stable_member(connection, going[0])
            assert heartbeat(connection, going[0], 1, member) == 0
            listed = connection.ask("ListGroups", 4, messages.ListGroupsRequest())
            assert {each.group_id for each in listed.groups} >= {*stalled, *going}
            connection.ask("DescribeCluster", 1, messages.DescribeClusterRequest())
    finally:
        slow.thaw()
    for connection, correlation_id in zip(waiting, sent, strict=True):
        assert code_of(connection.receive(8, 8, correlation_id)) == 0
        connection.socket.close()
    with Connection(servers) as connection:
        assert {committed(connection, group, topic) for group in stalled} == {8}
        assert {commit(connection, group, topic, 10) for group in stalled} == {0}


def test_members_are_missed_in_time_while_another_directory_is_frozen(
    two: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    """Whoever goes on for the thread that is stuck knows of the timers that were set meanwhile."""
    _, topic = partitions_by_directory(two, slow, tmp_path / "quick")
    with (
        Connection(two.bootstrap_servers) as connection,
        Connection(two.bootstrap_servers) as stuck,
    ):
        connection.socket.settimeout(PROMPT_S)
        group = groups_in(tmp_path / "quick", connection)[0]
        frozen_group = groups_in(slow.path / "logs", connection)[0]
        slow.freeze()
        try:
            sent = stuck.send(8, 8, commit_request(frozen_group, topic, 1).encode(8))
            stable_member(connection, group, session_ms=SESSION_MS)
            began = time.monotonic()
            while describe(connection, group)[0].group_state != "Empty":
                assert time.monotonic() - began < PROMPT_S
        finally:
            slow.thaw()
        assert code_of(stuck.receive(8, 8, sent)) == 0


def test_commits_outlive_a_directory_that_freezes_again_and_again(
    two: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    _, topic = partitions_by_directory(two, slow, tmp_path / "quick")
    rounds = 15
    with Connection(two.bootstrap_servers) as seed:
        group, *others = groups_in(slow.path / "logs", seed) + groups_in(tmp_path / "quick", seed)
        for number in range(rounds):
            slow.freeze()
            thaw = threading.Timer(0.05, slow.thaw)
            thaw.start()
            with Connection(two.bootstrap_servers) as other:
                sent = other.send(8, 8, commit_request(group, topic, number).encode(8))
                for each in others:
                    assert commit(seed, each, topic, number) == 0
                    assert committed(seed, each, topic) == number
                assert code_of(other.receive(8, 8, sent)) == 0
            thaw.join()
    assert two.stop() == 0
    two.start()
    with Connection(two.bootstrap_servers) as connection:
        wait_until_loaded(connection, group, *others)
        assert {committed(connection, each, topic) for each in (group, *others)} == {rounds - 1}


def test_two_frozen_directories_leave_the_third_to_its_groups(tmp_path: Path) -> None:
    """The control thread has one other to go on for it; the second directory must not take that."""
    frozen = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        frozen.append(Mount(tmp_path / name))
    try:
        logs = [mount.path / "logs" for mount in frozen]
        config = {
            "log.dirs": ",".join(map(str, [tmp_path / "quick", *logs])),
            "num.network.threads": "1",
            "kafkalite.acks.fsync": "none",
            "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        }
        with (
            kafkalite.Broker(config=config) as broker,
            Connection(broker.bootstrap_servers) as connection,
            Connection(broker.bootstrap_servers) as first,
            Connection(broker.bootstrap_servers) as second,
        ):
            connection.socket.settimeout(PROMPT_S)
            assert connection.create_topic("topic").error_code == 0
            going = groups_in(tmp_path / "quick", connection)[0]
            stalled = [groups_in(each, connection)[0] for each in logs]
            sent = []
            for mount in frozen:
                mount.freeze()
            try:
                for waiting, group in zip((first, second), stalled, strict=True):
                    sent.append(waiting.send(8, 8, commit_request(group, "topic", 5).encode(8)))
                    for offset in range(20):
                        assert commit(connection, going, "topic", offset) == 0
                        assert committed(connection, going, "topic") == offset
                for group in stalled:
                    assert committed(connection, group, "topic") == -1
            finally:
                for mount in frozen:
                    mount.thaw()
            for waiting, number in zip((first, second), sent, strict=True):
                assert code_of(waiting.receive(8, 8, number)) == 0
            assert {committed(connection, group, "topic") for group in stalled} == {5}
    finally:
        for mount in frozen:
            mount.unmount()
