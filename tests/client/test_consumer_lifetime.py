"""A consumer and its process: forks, ends with and without `close`, brokers that are gone."""

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import kafkalite
from client.fake import FakeBroker
from client.filled import fill, members
from client.logs import TOPIC, Logs
from client.test_lifetime import in_a_fork
from kafkalite.client import Consumer, GroupOptions

ZERO = (TOPIC, 0)
WAIT_S = 30


def test_a_fork_of_a_consumer_is_refused_and_leaves_its_parent_alone(
    kafka_broker: kafkalite.Broker,
) -> None:
    """A child that closed its copy sent LeaveGroup for its parent; both read from one socket."""
    servers = kafka_broker.bootstrap_servers
    fill(servers, "forked-consumer", 20)
    options = GroupOptions("forked-consumer", heartbeat_interval_ms=50)
    with Consumer(servers, group=options, max_poll_records=5) as consumer:
        consumer.subscribe("forked-consumer")
        assert [record.offset for record in consumer.poll(10_000)] == [0, 1, 2, 3, 4]
        loop = iter(consumer)
        assert next(loop).offset == 5

        def use() -> None:
            for call in (
                consumer.poll,
                consumer.commit,
                lambda: next(loop),
                lambda: next(iter(consumer)),
                lambda: consumer.subscribe("forked-consumer"),
                lambda: consumer.assignment,
            ):
                with pytest.raises(ValueError, match="make a Consumer in this process"):
                    call()
            consumer.close()
            consumer.at_exit(0)
            consumer.__del__()
            with Consumer(servers, group="of-the-child") as own:
                own.subscribe("forked-consumer")
                assert own.poll(10_000)[0].offset == 0

        assert consumer._coordinator is not None
        generation = consumer._coordinator.group.generation
        in_a_fork(use)
        time.sleep(0.5)  # ten heartbeats without a poll
        assert next(loop).offset == 6
        assert [record.offset for record in consumer.poll(10_000)] == [7, 8, 9, 10, 11]
        consumer.commit()
        assert consumer.committed([("forked-consumer", 0)]) == {("forked-consumer", 0): 12}
        assert consumer._coordinator.group.generation == generation
        assert members(servers, "forked-consumer") == 1


def test_to_close_does_not_wait_for_brokers_that_are_gone() -> None:
    """It took 30 s to tell the group."""
    with kafkalite.Broker() as broker:
        servers = broker.bootstrap_servers
        fill(servers, "gone", 10)
        consumer = Consumer(servers, group="gone")
        consumer.subscribe("gone")
        assert len(consumer.poll(10_000)) == 10
    started = time.monotonic()
    consumer.close()
    assert time.monotonic() - started < 4


def test_to_close_waits_for_a_slow_coordinator_as_long_as_it_may() -> None:
    logs = Logs({0: 1})
    slow = False

    def handle(name: str, request: object) -> object:
        if name == "OffsetCommit" and slow:
            threading.Event().wait(2.5)  # longer than for a broker that is gone
        return logs(name, request)

    with FakeBroker(handle) as broker:
        logs.address = (broker.host, broker.port)
        consumer = Consumer(broker.servers, group="slow-coordinator")
        consumer.assign([ZERO])
        assert len(consumer.poll(5_000)) == 3
        slow = True
        consumer.close(timeout_ms=20_000)
        assert logs.committed == {0: 3}
        consumer = Consumer(broker.servers, group="slow-coordinator")
        consumer.assign({ZERO: 0})
        assert len(consumer.poll(5_000)) == 3
        started = time.monotonic()
        consumer.close(timeout_ms=100)
        assert time.monotonic() - started < 2.4


def test_a_consumer_that_is_dropped_says_so_and_leaves_its_group(
    kafka_broker: kafkalite.Broker,
) -> None:
    """It stayed a member for 45 s, in which nobody got its partitions."""
    servers = kafka_broker.bootstrap_servers
    fill(servers, "dropped", 3)
    consumer = Consumer(servers, group="dropped")
    consumer.subscribe("dropped")
    assert len(consumer.poll(10_000)) == 3
    assert members(servers, "dropped") == 1
    with pytest.warns(ResourceWarning, match="was not closed"):
        del consumer
    assert members(servers, "dropped") == 0
    with Consumer(servers, group="dropped") as consumer:
        assert consumer.committed([("dropped", 0)]) == {}


PROGRAM = """
    import sys
    from kafkalite.client import Consumer
    consumer = Consumer(sys.argv[1], group=sys.argv[2], max_poll_records=4)
    consumer.subscribe(sys.argv[2])
    for record in consumer:
        if record.offset == 6:
            {end}
"""


@pytest.mark.parametrize("end", ["break", "1 / 0", "sys.exit(3)"])
def test_the_end_of_a_program_closes_its_consumer_and_commits_what_it_has_dealt_with(
    kafka_broker: kafkalite.Broker, tmp_path: Path, end: str
) -> None:
    """It committed nothing, and stayed a member for 45 s. Nobody knows what the program has done
    with the record that it got last."""
    servers = kafka_broker.bootstrap_servers
    name = f"ended-{tmp_path.name}"
    fill(servers, name, 10)
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM).format(end=end))
    ended = subprocess.run(
        [sys.executable, str(program), servers, name], check=False, env=os.environ, timeout=60
    )
    assert ended.returncode == {"break": 0, "1 / 0": 1, "sys.exit(3)": 3}[end]
    assert members(servers, name) == 0
    with Consumer(servers, group=name) as consumer:
        assert consumer.committed([(name, 0)]) == {(name, 0): 6}


def test_a_first_contact_may_wait_for_its_servers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        host, port = silent.getsockname()
        address = f"{host}:{port}"
        with Consumer(address, group="waits", wait_for_servers_ms=20_000) as consumer:
            consumer.subscribe(TOPIC)
            assert consumer.poll(500) == []
            consumer.assign([ZERO])
            assert consumer.poll(500) == []
