"""Brokers that controllers do not take, and those that find no controller: for how long they wait,
and what they say."""

import re
import socket
import time
from pathlib import Path

import pytest

from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import SESSION_MS, Node, new_kafka, wait_until

REGISTRATION = "initial.broker.registration.timeout.ms"
WAIT_MS = 4_000


def nobody() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return f"127.0.0.1:{found.getsockname()[1]}"


@pytest.mark.oracle
def test_a_start_without_a_controller_ends_when_kafkas_does(
    kafka_tools: KafkaTools, kafka_controller: KafkaBroker, tmp_path: Path
) -> None:
    """It waited without an end, and did not say for whom."""
    configs = {REGISTRATION: str(WAIT_MS)}
    address = nobody()
    began = time.monotonic()
    gone = {"controller.quorum.bootstrap.servers": address}
    node = Node(9, tmp_path / "node", kafka_controller, **configs, **gone)
    assert node.launch().exit_code() == 1
    assert time.monotonic() - began >= WAIT_MS / 1000
    last = node.told().splitlines()[-1]
    assert re.search(
        rf"not registered within {WAIT_MS} ms \({REGISTRATION}\); it has waited for an active "
        rf"controller to answer \({address}: .*refused",
        last,
    ), last
    voters = {"controller.quorum.voters": f"3000@{address}"}
    kafka = new_kafka(kafka_tools, tmp_path / "kafka", kafka_controller, 8, **configs, **voters)
    with pytest.raises(RuntimeError, match=r"fatal error while waiting for the controller"):
        kafka.start()


def test_a_second_broker_of_an_id_says_whose_session_it_waits_for(
    kafka_controller: KafkaBroker, three_nodes: list[Node], tmp_path: Path
) -> None:
    times = {"broker.session.timeout.ms": SESSION_MS, REGISTRATION: 12_000}
    node = Node(3, tmp_path / "node", kafka_controller, **times)
    address = three_nodes[2].address
    node.launch()
    try:
        wait_until(lambda: f"broker 3, registered at {address}, to end" in node.told())
        wait_until(lambda: "a process with this node.id runs" in node.told(), 60)
        assert node.exit_code() == 1
    finally:
        node.kill()
    assert " s so far and 12 s at most, for the session of broker 3" in node.told()
    assert f"not registered within 12000 ms ({REGISTRATION})" in node.told()


def test_a_copied_log_directory_is_named_with_the_broker_that_has_its_id(
    kafka_controller: KafkaBroker, three_nodes: list[Node], tmp_path: Path
) -> None:
    node = Node(9, tmp_path / "node", kafka_controller)
    copied = (three_nodes[0].data / "meta.properties").read_text()
    (node.data / "meta.properties").write_text(copied.replace("node.id=1", "node.id=9"))
    assert node.launch().exit_code() == 1
    assert f"{node.data} has the directory.id of a log directory of broker 1 (" in node.told()
