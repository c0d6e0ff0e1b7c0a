"""The cluster that users start for their tests."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kafkalite.client import Admin, Consumer, Producer
from kafkalite.errors import InvalidArgumentError
from kafkalite.testing.cluster import ControllerFailedError, LocalCluster, main
from oracle.tools import KafkaTools
from replication.nodes import wait_until


@pytest.mark.oracle
def test_brokers_and_a_controller_are_started_by_one_line(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    with LocalCluster(kafka_tools.classpath, brokers=2, data=tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin:
            assert [each.id for each in admin.describe_cluster().brokers] == [1, 2]
            admin.create_topic("orders", assignments=[[1], [2]])
        with Producer(servers) as producer:
            for partition in (0, 1):
                producer.send("orders", b"order", partition=partition)
        cluster.brokers[2].kill()
        with Admin(servers) as admin:
            wait_until(lambda: len(admin.describe_cluster().brokers) == 1)
            found = admin.describe_cluster(include_fenced=True).brokers
        assert [(each.id, each.is_fenced) for each in found] == [(1, False), (2, True)]
        cluster.brokers[2].start()
    # The same nodes come back to what they had.
    values: list[bytes | None] = []
    with (
        LocalCluster(kafka_tools.classpath, brokers=2, data=tmp_path) as cluster,
        Consumer(cluster.bootstrap_servers) as consumer,
    ):
        consumer.assign([("orders", 0), ("orders", 1)])
        while len(values) < 2:
            values += [each.value for each in consumer.poll(1000)]
    assert values == [b"order", b"order"]


@pytest.mark.oracle
def test_the_command_says_where_it_is_and_ends_with_all_its_processes(
    kafka_tools: KafkaTools,
) -> None:
    words = ["--brokers", "1", "--port", "0", "--kafka", kafka_tools.classpath]
    command = [sys.executable, "-m", "kafkalite.testing.cluster", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("kafkalite cluster ready bootstrap.servers=127.0.0.1:")
        children = psutil.Process(process.pid).children()
        assert len(children) == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not [each for each in children if each.is_running()]
    finally:
        process.kill()
        process.communicate()


def test_what_is_no_kafka_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"has no libs/kafka-server-….jar"):
        LocalCluster(tmp_path)
    assert main(["--kafka", str(tmp_path)]) == 1
    assert capfd.readouterr().err.startswith(f"kafkalite: {tmp_path} is no folder of")
    with pytest.raises(ControllerFailedError, match="cannot be formatted"):
        LocalCluster(f"{tmp_path}/*").start()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ControllerFailedError, match="java is missing"):
        LocalCluster(f"{tmp_path}/*").start()
