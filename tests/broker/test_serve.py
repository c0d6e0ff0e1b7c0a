"""`kafkalite serve`: start, refusals, stop."""

import contextlib
import fcntl
import json
import os
import platform
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalite
from api.batches import batch
from api.raw import Connection
from broker.serving import SERVE, TIMEOUT_S, Serving, refusal
from kafkalite.child import READY_PREFIX
from kafkalite.protocol import messages
from ports import free_ports
from tasks import told_of_threads


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    arguments = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    running = Serving([*arguments, "--config", "num.network.threads=1"], tmp_path)
    yield running
    running.process.kill()
    running.process.communicate()


def test_it_says_once_where_it_serves_and_with_which_process(serving: Serving) -> None:
    assert serving.line.split()[-1] == f"pid={serving.process.pid}"
    with Connection(serving.bootstrap_servers) as connection:
        found = connection.ask("Metadata", 1, messages.MetadataRequest(topics=[]))
    assert f"{found.brokers[0].host}:{found.brokers[0].port}" == serving.bootstrap_servers


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_cleanly(serving: Serving, tmp_path: Path, by: signal.Signals) -> None:
    with Connection(serving.bootstrap_servers) as connection:
        connection.create_topic("orders")
        waiting = connection.fetch_request("orders", 0, max_wait_ms=60_000)
        correlation_id = connection.send(1, 12, waiting.encode(12))
        with Connection(serving.bootstrap_servers) as other:
            # The one network thread has seen the request by then.
            other.ask("Metadata", 1, messages.MetadataRequest(topics=[]))
        code, log = serving.end(by)
        # A request that waits is answered rather than cut off.
        assert connection.receive(1, 12, correlation_id).responses[0].partitions[0].records == b""
        assert connection.is_closed()
    assert code == 0, log
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_nohup_keeps_it_serving_when_its_terminal_is_closed(tmp_path: Path) -> None:
    command = f"trap '' HUP; exec {sys.executable} -m kafkalite serve --listen 127.0.0.1:0"
    process = subprocess.Popen(
        ["sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(READY_PREFIX)
    process.send_signal(signal.SIGHUP)
    with Connection(line.removeprefix(READY_PREFIX).split()[0]) as connection:
        assert connection.create_topic("orders").error_code == 0
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("is_full", [True, False])
def test_it_serves_though_what_it_says_cannot_be_written(
    tmp_path: Path, stream: str, is_full: bool
) -> None:
    """Where the ready line had no room, it hung, deaf to SIGTERM; without stderr it did not start,
    and ended with the first line that a log on a full disk had no room for."""
    reader, writer = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("wb") as full:
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        other = {"stdout": "stderr", "stderr": "stdout"}[stream]
        process = subprocess.Popen(
            [*SERVE, "--data", str(tmp_path / "data"), "--listen", listen],
            **{stream: full if is_full else writer, other: subprocess.PIPE},  # type: ignore[call-overload]
        )
        os.close(writer)
        heard = process.stderr if stream == "stdout" else process.stdout
        while b"ready bootstrap.servers" not in (line := heard.readline()):
            assert line, "it ended"
        with Connection(listen) as connection:
            assert connection.create_topic("orders").error_code == 0
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_log_that_nobody_reads_holds_nobody_up(tmp_path: Path) -> None:
    """Once the pipe at stderr was full, the thread that answers most requests waited for its
    reader, as a program's that starts the broker with a pipe and never looks at it."""
    arguments = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    running = Serving([*arguments, "--log-level", "debug"], tmp_path)
    assert running.process.stderr is not None
    pipe_bytes = fcntl.fcntl(running.process.stderr, fcntl.F_GETPIPE_SZ)
    with Connection(running.bootstrap_servers) as connection:
        # Each request is a line that names its client.
        for _ in range(pipe_bytes // 50):
            connection.ask("ListGroups", 4, messages.ListGroupsRequest())
        read = os.read(running.process.stderr.fileno(), pipe_bytes)
        assert len(read) > pipe_bytes - 2 * select.PIPE_BUF
        connection.ask("ListGroups", 4, messages.ListGroupsRequest())
    code, log = running.end()
    assert code == 0
    assert re.search(r" WARNING \d+ line\(s\) were dropped here", log)
    assert re.fullmatch(r"([\d-]+ [\d:,]+ [A-Z]+ [^\n]+\n)+", read.decode() + log)


def test_without_data_it_names_the_folder_in_its_first_line(tmp_path: Path) -> None:
    running = Serving(["--listen", "127.0.0.1:0"], tmp_path)
    code, log = running.end()
    assert code == 0
    assert str(tmp_path / "kafkalite-data") in log.splitlines()[0]
    assert f"kafkalite {kafkalite.__version__}, node 1" in log.splitlines()[0]
    assert f"listener PLAINTEXT on {running.bootstrap_servers}" in log


def test_listen_goes_with_an_advertised_name_that_is_given_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("advertised.listeners=PLAINTEXT://elsewhere.example:9092\n")
    arguments = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", str(file)]
    running = Serving(arguments, tmp_path)
    _, log = running.end()
    assert running.bootstrap_servers.startswith("127.0.0.1:")
    assert f"advertised.listeners of {file} is left out, since --listen is given" in log
    named = ["--config", "advertised.listeners=PLAINTEXT://localhost:0"]
    running = Serving([*arguments, *named], tmp_path)
    running.end()
    assert running.bootstrap_servers.startswith("localhost:")


@pytest.mark.usefixtures("serving")
def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    log = refusal("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    assert "in use by another process" in log


def test_a_port_that_is_taken_is_said_with_the_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        log = refusal("--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}")
    assert "--listen" in log
    assert str(port) in log
    assert not (tmp_path / "data").exists()


def test_a_listener_beyond_loopback_needs_a_word(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path / "data")]
    log = refusal(*data, "--listen", "0.0.0.0:0")
    assert "kafkalite.allow.unauthenticated=true" in log
    allowed = ["--listen", "0.0.0.0:0", "--config", "kafkalite.allow.unauthenticated=true"]
    assert Serving([*data, *allowed], tmp_path).end()[0] == 0


@pytest.mark.parametrize(
    "text",
    ["sasl.enabled.mechanisms=PLAIN", "authorizer.class.name=x", "remote.log.storage.x=1"],
)
def test_a_key_that_is_not_supported_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    log = refusal("--data", str(tmp_path / "data"), "--config", text)
    assert text.partition("=")[0] in log


def test_an_unknown_key_gets_a_warning_and_a_wrong_value_a_refusal(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    _, log = Serving([*data, "--config", "no.such.key=1"], tmp_path).end()
    assert "WARNING unknown configuration key no.such.key" in log
    assert "num.partitions" in refusal(*data, "--config", "num.partitions=many")


def test_a_file_of_kafkas_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# combined mode\nprocess.roles=broker,controller\nnode.id=7\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093\n"
        "advertised.listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://localhost:9093\n"
        "inter.broker.listener.name=PLAINTEXT\ncontroller.listener.names=CONTROLLER\n"
        "num.network.threads=3\nsocket.send.buffer.bytes=102400\nnum.partitions=1\n"
        "offsets.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        f"log.dirs={tmp_path / 'one'},\\\n   {tmp_path / 'two'}\n"
        "log.retention.hours=1\nlog.segment.bytes=1073741824\nnum.io.threads=8\n"
    )
    running = Serving([str(file)], tmp_path)
    with Connection(running.bootstrap_servers) as connection:
        found = connection.ask("Metadata", 1, messages.MetadataRequest(topics=[]))
        assert found.brokers[0].node_id == 7
        made = connection.create_topic("spread", partitions=4)
        configs = {each.name: (each.value, each.config_source) for each in made.configs}
        assert configs["retention.ms"] == ("3600000", 4)
    code, log = running.end()
    assert (code, "WARNING" in log) == (0, False)
    for name in ("one", "two"):
        assert len(list((tmp_path / name).glob("spread-*"))) == 2


def test_the_start_imports_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys, threading\n"
        # What the interpreter loads by itself, a `sitecustomize` above all, is none of ours.
        "known = set(sys.modules)\n"
        "import kafkalite.broker as broker\n"
        "from kafkalite.cli import run\n"
        "class Out:\n"
        "    def write(self, text):\n"
        "        if text.startswith(broker.READY_PREFIX):\n"
        "            import os, signal\n"
        "            sys.stderr.write(f'modules {\" \".join(set(sys.modules) - known)}\\n')\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "    def flush(self): pass\n"
        "sys.stdout = Out()\n"
        f"sys.exit(run(['serve', '--data', {str(tmp_path / 'data')!r}, '--listen', "
        "'127.0.0.1:0']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    line = next(each for each in done.stderr.splitlines() if each.startswith("modules "))
    modules = set(line.split()[1:])
    assert not modules & {
        *("asyncio", "ssl", "logging", "pyarrow", "json", "subprocess", "tempfile"),
        *("argparse", "shutil", "socket", "dataclasses"),
    }
    ours = {name.split(".")[1] for name in modules if name.startswith("kafkalite.")}
    assert not ours & {"groups", "client", "testing"}
    assert not [name for name in modules if name.startswith("kafkalite.api.")]


def test_its_log_has_what_is_asked_for() -> None:
    """`debug` had nothing that `info` has not."""
    with kafkalite.Broker(log_level="warning") as broker:
        assert "INFO" not in broker.log_tail()
    with (
        kafkalite.Broker(log_level="debug") as broker,
        Connection(broker.bootstrap_servers) as asks,
    ):
        assert asks.create_topic("orders").error_code == 0
        assert re.search(r"DEBUG CreateTopics v\d+ of 127\.0\.0\.1:\d+, client", broker.log_tail())
    with pytest.raises(kafkalite.KafkaliteError, match="log_level=loud is none of debug, info"):
        kafkalite.Broker(log_level="loud")


def test_its_log_is_json_where_that_is_asked_for(tmp_path: Path) -> None:
    arguments = ["--data", str(tmp_path / "Zoë"), "--listen", "127.0.0.1:0", "--log-format", "json"]
    code, log = Serving(arguments, tmp_path).end()
    lines = [json.loads(line) for line in log.splitlines()]
    assert code == 0
    assert [list(line) for line in lines] == [["time", "level", "message"]] * len(lines)
    assert f"log directories: {tmp_path}/Zoë" in lines[0]["message"]
    assert lines[-1]["message"] == "stopped"
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", line["time"]) for line in lines)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--config", "num.partitions"], "--config num.partitions: not of the form KEY=VALUE"),
        (["--config", "=3"], "--config =3: not of the form KEY=VALUE"),
        (["--listen", "9092"], "--listen 9092: not of the form HOST:PORT"),
        (["--listen", "h:x"], "--listen h:x: not of the form HOST:PORT"),
        (["--listen", "h:65536"], "--listen h:65536: the port is beyond 65535"),
        (["--no-such"], "unrecognized arguments: --no-such"),
        (["--data", ""], "--data is empty"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str], sentence: str) -> None:
    done = subprocess.run(
        [*SERVE, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 2
    expected = f"kafkalite serve: {sentence}; see 'kafkalite serve --help'\n"
    assert done.stderr == expected


def test_a_start_without_room_for_its_threads_says_so(tmp_path: Path) -> None:
    """A traceback of Python's, and the process stayed where only the second thread failed."""
    for failing in (1, 2):
        program = (
            "import sys, threading\n"
            "from kafkalite.__main__ import main\n"
            "start, left = threading.Thread.start, [" + str(failing) + "]\n"
            "def limited(thread):\n"
            "    left[0] -= thread.name == 'control'\n"
            '    if not left[0]: raise RuntimeError("can\'t start new thread")\n'
            "    start(thread)\n"
            "threading.Thread.start = limited\n"
            "sys.exit(main())\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, "serve", "--listen", "127.0.0.1:0"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            cwd=tmp_path,
        )
        assert (done.returncode, done.stdout) == (1, "")
        told = "kafkalite: can't start new thread: the limit of threads (ulimit -u, pids.max) or"
        assert done.stderr.splitlines()[-1].startswith(told), done.stderr


def test_connections_leave_descriptors_for_files(tmp_path: Path) -> None:
    """Clients that did no more than connect took the last descriptors. The next segment could not
    be opened, and its log directory was offline until the next start."""
    partitions = 100  # more than the segments that stay open
    serve = shlex.join([*SERVE, "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"])
    process = subprocess.Popen(
        ["sh", "-c", f"ulimit -n 128; exec {serve}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    servers = process.stdout.readline().removeprefix(READY_PREFIX).split()[0]
    host, _, port = servers.rpartition(":")
    with contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        client = stack.enter_context(Connection(servers))
        assert client.create_topic("t", partitions).error_code == 0
        with contextlib.ExitStack() as crowd:
            for _ in range(200):
                one = crowd.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex((host, int(port)))
            while "ulimit -n" not in (line := process.stderr.readline()):
                assert line, "it ended"
            data = messages.ProduceRequest.TopicProduceData
            each = [
                data.PartitionProduceData(index=index, records=batch([b"x"]))
                for index in range(partitions)
            ]
            request = messages.ProduceRequest(
                acks=-1, timeout_ms=60_000, topic_data=[data(name="t", partition_data=each)]
            )
            (answer,) = client.ask("Produce", 9, request).responses
            assert {each.error_code for each in answer.partition_responses} == {0}
            assert client.create_topic("u").error_code == 0
        with Connection(servers) as later:
            assert later.create_topic("v").error_code == 0, "there is room again"
        process.terminate()
        _, log = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert " ERROR " not in log, "it is told once"


def test_arrow_connections_leave_descriptors_for_files(tmp_path: Path) -> None:
    """They were not counted: the next segment could not be opened, and its log directory was
    offline until the next start."""
    partitions = 100
    serve = shlex.join([*SERVE, "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"])
    (port,) = free_ports(1)
    serve += f" --config kafkalite.arrow.listener=127.0.0.1:{port}"
    process = subprocess.Popen(
        ["sh", "-c", f"ulimit -n 128; exec {serve}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    servers = process.stdout.readline().removeprefix(READY_PREFIX).split()[0]
    with contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        client = stack.enter_context(Connection(servers))
        assert client.create_topic("t", partitions).error_code == 0
        crowd = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(120)
        ]
        # Those that are served say nothing until they are asked.
        readable, _, _ = select.select(crowd, [], [], TIMEOUT_S)
        sentences = {b"ulimit -n" in (each.recv(1000) or b"ulimit -n") for each in readable}
        data = messages.ProduceRequest.TopicProduceData
        each = [
            data.PartitionProduceData(index=index, records=batch([b"x"]))
            for index in range(partitions)
        ]
        request = messages.ProduceRequest(
            acks=-1, timeout_ms=60_000, topic_data=[data(name="t", partition_data=each)]
        )
        (answer,) = client.ask("Produce", 9, request).responses
        assert {each.error_code for each in answer.partition_responses} == {0}
        assert sentences == {True}
        for one in crowd:
            one.close()
        with Connection(servers) as later:
            assert later.create_topic("u").error_code == 0, "there is room again"
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


def test_network_threads_ask_the_scheduler_for_short_slices(tmp_path: Path) -> None:
    major, minor = map(int, platform.release().split(".")[:2])
    if (major, minor) < (6, 12) or not Path("/proc/self/sched").exists():
        pytest.skip("slices of threads need Linux 6.12, and one that tells them")
    deadline = time.monotonic() + TIMEOUT_S
    with kafkalite.Broker(tmp_path / "data", config={"num.network.threads": "1"}) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            connection.ask("Metadata", 1, messages.MetadataRequest(topics=[]))
        # The network thread has answered, so that it has asked; another may not have its name yet.
        while not {"network-0", "housekeeper"} <= (slices := slices_of_threads(broker.pid)).keys():
            assert time.monotonic() < deadline, slices
    assert slices["network-0"] == 100_000
    assert slices["housekeeper"] != 100_000


def slices_of_threads(pid: int) -> dict[str, int]:
    """In nanoseconds, by their names."""
    slices = {}
    for told in told_of_threads(pid, "sched"):
        found = re.search(r"^(\S+) \(.*^se.slice *: *(\d+)", told, re.M | re.S)
        if found is not None:
            slices[found[1]] = int(found[2])
    return slices
