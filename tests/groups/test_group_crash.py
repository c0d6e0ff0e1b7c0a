"""Offsets through SIGKILL and through compaction, on a real broker."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import kafkalite
from api.group_requests import commit, committed, find_coordinator
from api.raw import Connection
from groups.conftest import CONFIG

MakeTopic = Callable[[kafkalite.Broker, int, int], str]


def commit_until_killed(
    servers: str, topic: str, partition: int, first: int, told: dict[int, tuple[int, int]]
) -> None:
    """Commits ever higher offsets; `told` holds the last that was answered and the last sent."""
    offset = first
    try:
        with Connection(servers) as connection:
            while True:
                told[partition] = (told[partition][0], offset)
                if commit(connection, "crash", topic, (partition, offset)) != [0]:
                    return
                told[partition] = (offset, offset)
                offset += 1
    except (AssertionError, OSError):
        return


def wait_until_loaded(connection: Connection) -> None:
    from kafkalite.protocol import messages

    while connection.ask("ListGroups", 5, messages.ListGroupsRequest()).error_code:
        pass


def test_commits_that_were_answered_survive_a_kill(make_topic: MakeTopic, tmp_path: Path) -> None:
    with kafkalite.Broker(tmp_path / "data", config=CONFIG) as broker:
        topic = make_topic(broker, 8, 0)
        with Connection(broker.bootstrap_servers) as connection:
            find_coordinator(connection, "crash")
        told = dict.fromkeys(range(8), (-1, -1))
        for _ in range(3):
            threads = [
                threading.Thread(
                    target=commit_until_killed,
                    args=(broker.bootstrap_servers, topic, index, told[index][1] + 1, told),
                )
                for index in range(8)
            ]
            for thread in threads:
                thread.start()
            target = {index: answered + 20 for index, (answered, _) in told.items()}
            end = time.monotonic() + 150
            while any(told[index][0] < target[index] for index in target):
                assert time.monotonic() < end
                time.sleep(0.01)  # poll of what was answered
            broker.kill()
            for thread in threads:
                thread.join()
            broker.start()
            with Connection(broker.bootstrap_servers) as connection:
                wait_until_loaded(connection)
                for index, (answered, sent) in told.items():
                    assert answered <= committed(connection, "crash", topic, index) <= sent


def test_offsets_survive_the_compaction_of_their_topic(
    make_topic: MakeTopic, tmp_path: Path
) -> None:
    config = {
        **CONFIG,
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": str(1 << 20),
        "log.cleaner.backoff.ms": "100",
        "log.segment.delete.delay.ms": "0",
    }
    data = tmp_path / "data"

    def size_bytes() -> int:
        return sum(each.stat().st_size for each in data.glob("__consumer_offsets-0/*.log"))

    with kafkalite.Broker(data, config=config) as broker:
        topic = make_topic(broker, 4, 0)
        with Connection(broker.bootstrap_servers) as connection:
            find_coordinator(connection, "compacted")
            written = 0
            for round_ in range(900):
                text = "m" * 900
                offsets = [(index, round_ * 4 + index) for index in range(4)]
                assert commit(connection, "compacted", topic, *offsets, metadata=text) == [0] * 4
                written += 4 * 900
        end = time.monotonic() + 150
        while size_bytes() > written // 2:
            assert time.monotonic() < end, size_bytes()
            time.sleep(0.05)  # poll of the size on disk
        broker.kill()
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            wait_until_loaded(connection)
            found = [committed(connection, "compacted", topic, index) for index in range(4)]
            assert found == [899 * 4 + index for index in range(4)]
