"""The cluster that users start for their tests."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kafkalite.client import Admin, Consumer, Producer
from kafkalite.errors import InvalidArgumentError
from kafkalite.replication.waiting import LEAVE_WAIT_S
from kafkalite.testing.cluster import ControllerFailedError, LocalCluster, main
from oracle.tools import KafkaTools
from replication.nodes import wait_until

READY = "kafkalite cluster ready bootstrap.servers=127.0.0.1:"


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


WITHOUT_PIDFD = """
import errno, os, sys
from kafkalite.testing.cluster import main

def refuse(*_):
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

os.pidfd_open = refuse
sys.exit(main())
"""
"""The command where a sandbox does not allow to watch processes."""


@contextmanager
def command(
    tools: KafkaTools, home: Path, *, has_pidfd: bool = True
) -> Iterator[subprocess.Popen[str]]:
    """The command with one broker, whose temporary directory is in `home`."""
    words = ["--brokers", "1", "--port", "0", "--kafka", tools.classpath]
    program = ["-m", "kafkalite.testing.cluster"] if has_pidfd else ["-c", WITHOUT_PIDFD]
    process = subprocess.Popen(
        [sys.executable, *program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        # Tests may run under nohup, which has SIGHUP ignored, here and by whom this starts.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        env={**os.environ, "TMPDIR": str(home)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.oracle
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_command_tells_each_step_and_leaves_nothing_behind(
    how: signal.Signals, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """SIGHUP, that of a terminal which is closed, left the JVM and its directory."""
    with command(kafka_tools, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(READY)
        everybody = psutil.Process(process.pid).children(recursive=True)
        assert len(psutil.Process(process.pid).children()) == 2
        process.send_signal(how)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0
        lines = told.splitlines()
        assert [line.split(" ")[2] for line in lines] == [
            "formats",
            "starts",
            "starts",
            "broker",
            "stops;",
        ]
        assert all("; its log is /" in line for line in lines[1:3])
        wait_until(lambda: all(map(is_gone, everybody)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.oracle
def test_a_second_interrupt_kills_what_does_not_stop(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """It left the JVM and the temporary directory. The broker stands still here, and so it would
    never stop by itself."""
    with command(kafka_tools, tmp_path) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith(READY)
        children = psutil.Process(process.pid).children()
        (broker,) = [each for each in children if "serve" in each.cmdline()]
        broker.suspend()
        process.send_signal(signal.SIGINT)
        while "stops" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        assert (process.returncode, "kills what has not stopped" in told) == (0, True)
        wait_until(lambda: all(map(is_gone, children)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.oracle
def test_whoever_kills_the_program_has_its_controller_ended_too(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    with command(kafka_tools, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(READY)
        everybody = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        wait_until(lambda: all(map(is_gone, everybody)))


@pytest.mark.oracle
def test_a_controller_that_ends_at_once_is_told_without_a_wait(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    with LocalCluster(kafka_tools.classpath, brokers=1, data=tmp_path):
        pass
    meta = tmp_path / "controller" / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=3000", "node.id=3001"))
    reason = r"(?s)has ended with exit code 1; its log .*Stored node id 3001"
    with pytest.raises(ControllerFailedError, match=reason):
        LocalCluster(kafka_tools.classpath, brokers=1, data=tmp_path).start()


def kill(process: subprocess.Popen[str], word: str) -> None:
    """SIGKILL of the child with this in its command."""
    (child,) = [each for each in psutil.Process(process.pid).children() if word in each.cmdline()]
    child.kill()


def told_until(process: subprocess.Popen[str], words: str) -> list[str]:
    """The lines on stderr up to one with these words."""
    assert process.stderr is not None
    lines: list[str] = []
    for line in iter(process.stderr.readline, ""):
        lines.append(line)
        if words in line:
            return lines
    raise AssertionError("".join(lines))


@pytest.mark.oracle
@pytest.mark.parametrize("has_pidfd", [True, False])
def test_a_broker_that_is_killed_is_told_at_once_with_the_end_of_its_log(
    kafka_tools: KafkaTools, tmp_path: Path, has_pidfd: bool
) -> None:
    """Nobody heard of it, and no broker's log was to be found. Where the system does not let
    processes be watched, the command ended with a traceback."""
    with command(kafka_tools, tmp_path, has_pidfd=has_pidfd) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(READY)
        kill(process, "serve")
        line = told_until(process, "broker 1 has ended by SIGKILL; its log /")[-1]
        log = Path(line.split("its log ")[1].split(" ends with")[0])
        assert "listener PLAINTEXT on 127.0.0.1:" in log.read_text()
        process.send_signal(signal.SIGINT)
        told_until(process, f"the logs stay in {log.parent}")
        assert process.wait(60) == 0
    (folder,) = tmp_path.iterdir()
    assert list(folder.iterdir()) == [log.parent]
    assert {each.name for each in log.parent.iterdir()} == {"controller.log", "broker-1.log"}


@pytest.mark.oracle
@pytest.mark.parametrize("has_pidfd", [True, False])
def test_a_controller_that_is_killed_is_told_at_once_and_its_brokers_do_not_wait_for_it(
    kafka_tools: KafkaTools, tmp_path: Path, has_pidfd: bool
) -> None:
    """It was told after a minute, for which the brokers had waited for it, and without a reason:
    its log was empty."""
    with command(kafka_tools, tmp_path, has_pidfd=has_pidfd) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(READY)
        broker, controller = sorted(
            psutil.Process(process.pid).children(), key=lambda each: "serve" not in each.cmdline()
        )
        controller.kill()
        told_until(process, "the controller has ended by SIGKILL; its log /")
        assert not is_gone(broker)
        began = time.monotonic()
        told = told_until(process, "the logs stay in")
        assert process.wait(60) == 1
        assert time.monotonic() - began < LEAVE_WAIT_S - 5
        assert any(" INFO " in line for line in told), "of Kafka's"
    (log,) = tmp_path.glob("*/logs/broker-1.log")
    assert "a second signal: stops without the controllers" in log.read_text()
    assert log.read_text().splitlines()[-1].endswith("stopped")


def test_what_cannot_be_is_one_sentence_before_anything_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    jars = f"{tmp_path}/*"
    file = tmp_path / "file"
    file.touch()

    def told(*words: str) -> str:
        assert main(list(words)) == 1
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith("kafkalite: ")
        return line.removeprefix("kafkalite: ")

    assert told("--kafka", str(tmp_path)).startswith(f"{tmp_path} is no folder of Apache Kafka's")
    with pytest.raises(InvalidArgumentError, match=r"has no libs/kafka-server-….jar"):
        LocalCluster(tmp_path)
    assert told("--kafka", jars, "--brokers", "0") == "brokers=0 is not within 1 to 2999"
    high = told("--kafka", jars, "--port", "65534")
    assert high == "port=65534 is none for 3 broker(s): ports end at 65535"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        busy = told("--kafka", jars, "--port", str(port), "--brokers", "1")
    assert busy.startswith(f"127.0.0.1:{port} cannot be a broker's: Address already in use")
    for data in (file, file / "below"):
        wrong = told("--kafka", jars, "--port", "0", "--data", str(data))
        assert wrong.startswith(f"{data}") and wrong.endswith(": Not a directory")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert told("--kafka", jars, "--port", "0").endswith(f"JAVA_HOME={tmp_path} has none")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert told("--kafka", jars, "--port", "0").endswith("there is none on PATH")


@pytest.mark.oracle  # for its Java
def test_a_class_path_without_kafka_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = shutil.which("java")
    assert java is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(Path(java).resolve())
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ControllerFailedError, match=r"no Apache Kafka in the class path"):
        LocalCluster(f"{tmp_path}/*", brokers=1).start()
