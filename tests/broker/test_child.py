"""`kafkalite.Broker`, a broker as a child process: start, refusals, restarts, stop."""

import asyncio
import os
import pickle
import re
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import kafkalite
from api.raw import Connection
from broker.serving import TIMEOUT_S, ends
from kafkalite.child import BrokerFailedError
from ports import free_ports


def test_a_broker_of_python_serves_and_leaves_nothing_behind() -> None:
    with kafkalite.Broker() as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("orders").error_code == 0
        pid, data = broker.pid, Path(str(broker.data))
        assert (data / "orders-0").is_dir()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not data.exists()
    assert broker.data is None


def test_modules_of_the_current_directory_are_not_the_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project with a `signal.py`, which its tests never met, had no broker."""
    (tmp_path / "signal.py").write_text("raise RuntimeError('of the project')")
    monkeypatch.chdir(tmp_path)
    # An empty entry is the current directory.
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, entries)))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    with kafkalite.Broker() as broker:
        assert broker.pid
    monkeypatch.syspath_prepend(str(tmp_path))  # as the directory of a script is
    with pytest.raises(BrokerFailedError, match="of the project"):
        kafkalite.Broker().start()


@pytest.mark.parametrize(
    "config",
    [
        {"advertised.listeners": "PLAINTEXT://127.0.0.1:1"},
        {
            "listeners": "ONE://127.0.0.1:0,TWO://127.0.0.1:0",
            "advertised.listeners": "ONE://127.0.0.1:1,TWO://127.0.0.1:2",
            "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT",
            "inter.broker.listener.name": "ONE",
            "kafkalite.arrow.listener": "127.0.0.1:0",
        },
    ],
)
def test_a_broker_behind_a_proxy_comes_back_where_it_was_bound(config: dict[str, str]) -> None:
    """It took what clients are told for its own address: the proxy found nobody behind it."""
    with kafkalite.Broker(config=config) as broker:
        bound = [listeners_in(broker.log_tail())]
        for end in (broker.stop, broker.kill):
            told = broker.bootstrap_servers
            end()
            broker.start()
            assert broker.bootstrap_servers == told
            bound.append(listeners_in(broker.log_tail()))
            for address in bound[-1][: config["advertised.listeners"].count("://")]:
                with Connection(address) as connection:
                    assert connection.create_topic("proxied").error_code in (0, 36)
    assert bound[0] == bound[1] == bound[2]


def listeners_in(log: str) -> list[str]:
    """Where the broker that started last is bound, by its log."""
    last = log.rpartition("log directories: ")[2]
    return re.findall(r"(?:listener \w+|Arrow endpoint) on ([\w.:]+)", last)


def test_a_start_that_fails_shows_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "foreign.txt").write_text("not Kafka's")
    with pytest.raises(BrokerFailedError, match=r"foreign\.txt"):
        kafkalite.Broker(tmp_path).start()
    assert [each.name for each in tmp_path.iterdir()] == ["foreign.txt"]


def test_a_broker_that_cannot_even_be_run_is_a_broker_that_did_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the error of a file, and left its temporary directory."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    broker = kafkalite.Broker()
    with pytest.raises(BrokerFailedError, match=r"cannot be started: .*No such file .*/python'"):
        broker.start()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(BrokerFailedError, match=r"cannot be started: .*/none"):
        broker.start()


def test_a_folder_that_is_gone_is_said_with_the_way_out(tmp_path: Path) -> None:
    """Its shell stood in a directory that had been deleted: tracebacks."""
    told = {}
    for name, program in {
        "serve": "import sys; from kafkalite.__main__ import main; sys.exit(main())",
        "read": "import kafkalite; kafkalite.read_log('orders-0')",
    }.items():
        gone = tmp_path / name
        gone.mkdir()
        code = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); {program}"
        done = subprocess.run(
            [sys.executable, "-c", code, "serve", "--listen", "127.0.0.1:0"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 1
        told[name] = done.stderr.splitlines()[-1]
        if name == "serve":
            assert "Traceback" not in done.stderr
    assert told["serve"] == (
        "kafkalite: log.dir=./kafkalite-data is relative, and the current directory has been "
        "deleted: name an absolute path"
    )
    assert "path orders-0 is relative, and the current directory" in told["read"]


def test_a_start_that_is_interrupted_leaves_no_process_and_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    broker = kafkalite.Broker()

    seen: list[int] = []

    def interrupted() -> None:
        seen.append(broker.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr("select.poll", interrupted)
    with pytest.raises(KeyboardInterrupt):
        broker.start()
    monkeypatch.undo()
    (pid,) = seen
    assert ends(pid)
    assert list(tmp_path.iterdir()) == []


def test_a_start_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that watched the time could still be there afterwards: it held up the end of a program
    that was interrupted, and Python 3.12 warned those that forked. And it failed of `inf`."""

    def start(thread: threading.Thread) -> None:
        raise AssertionError(f"{thread} is not needed")

    monkeypatch.setattr(threading.Thread, "start", start)
    with kafkalite.Broker(start_timeout_s=float("inf")) as broker:
        assert broker.pid


def test_a_coroutine_that_is_cancelled_in_mid_start_leaves_no_broker() -> None:
    """Nobody closed it until the program ended."""

    async def cancel() -> list[kafkalite.Broker]:
        brokers = [kafkalite.Broker(), kafkalite.Broker(config={"num.partitions": "none"})]
        for broker in brokers:
            entering = asyncio.ensure_future(broker.__aenter__())
            await asyncio.sleep(0)
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
        return brokers

    for broker in asyncio.run(cancel()):
        assert repr(broker) == "<kafkalite.Broker: not running>"
        with pytest.raises(kafkalite.KafkaliteError, match="has not been started"):
            _ = broker.pid


def test_a_broker_is_not_sent_to_other_processes() -> None:
    with pytest.raises(TypeError, match="give others its bootstrap_servers"):
        pickle.dumps(kafkalite.Broker())


def test_a_start_that_takes_too_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = tmp_path / "python"
    idle.write_text("#!/bin/sh\nread never\n")
    idle.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(idle))
    with pytest.raises(
        BrokerFailedError, match=r"did not start within start_timeout_s=0\.001, and has not logged"
    ):
        kafkalite.Broker(tmp_path / "data", start_timeout_s=0.001).start()


def test_a_broker_is_entered_from_a_coroutine_too() -> None:
    async def describe() -> list[str]:
        async with kafkalite.Broker() as broker:
            with Connection(broker.bootstrap_servers) as connection:
                assert connection.create_topic("orders").error_code == 0
            return [broker.bootstrap_servers, str(broker.pid)]

    address, pid = asyncio.run(describe())
    assert address.startswith("127.0.0.1:")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_a_broker_without_a_block_is_closed_and_is_started_once() -> None:
    broker = kafkalite.Broker().start()
    first = broker.pid
    with pytest.raises(kafkalite.KafkaliteError, match="the broker has been started already"):
        broker.start()
    assert broker.pid == first
    folder = Path(str(broker.data))
    assert folder.is_dir()
    broker.close()
    assert ends(first)
    assert not folder.exists()
    broker.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
def test_nobody_else_gets_the_free_port_of_a_stopped_broker(host: str) -> None:
    """Any client of the machine could have it as its own end by then, and `start` failed."""
    config = {"kafkalite.allow.unauthenticated": True}
    with kafkalite.Broker(listen=f"{host}:0", config=config) as broker:
        told = broker.bootstrap_servers
        port = int(told.rpartition(":")[2])
        for end in (broker.stop, broker.kill):
            end()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
                other.bind(("127.0.0.1", port))
            assert broker.start().bootstrap_servers == told
            socket.create_connection(("127.0.0.1", port)).close()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))


def test_a_port_that_was_asked_for_is_anybodys_while_the_broker_is_stopped() -> None:
    (port,) = free_ports(1)
    with kafkalite.Broker(listen=f"127.0.0.1:{port}") as broker, socket.socket() as other:
        broker.stop()
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(BrokerFailedError, match=f"cannot listen on 127.0.0.1:{port}: Address"):
            broker.start()


def test_the_port_is_held_though_a_longer_number_of_the_configuration_begins_like_it() -> None:
    """`:4567` was looked for as text, and found in `:45678`."""
    with kafkalite.Broker() as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        broker._config["advertised.listeners"] = f"PLAINTEXT://proxy:{port}8"
        broker.stop()
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", port))


def test_restarts_that_fail_leave_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each held the same port once more."""
    with kafkalite.Broker() as broker:
        broker.stop()
        before = len(list(Path("/proc/self/fd").iterdir()))
        with monkeypatch.context() as patch:
            patch.setattr(broker, "_start_timeout_s", 0)
            for _ in range(3):
                with pytest.raises(BrokerFailedError):
                    broker.start()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        broker.start()


def test_a_restart_that_fails_loses_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """It removed the temporary directory, and the next start began with an empty one."""
    with kafkalite.Broker() as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("orders").error_code == 0
        broker.stop()
        with monkeypatch.context() as patch:
            patch.setattr(broker, "_start_timeout_s", 0)
            with pytest.raises(BrokerFailedError):
                broker.start()
        broker.start()
        assert (Path(str(broker.data)) / "orders-0").is_dir()


def test_a_misspelt_key_of_a_broker_is_told_where_it_stands() -> None:
    """It stood in the log alone, which nobody reads of a broker that serves."""
    with pytest.warns(UserWarning, match=r"did you mean num\.partitions\?") as told:
        kafkalite.Broker(config={"num.partition": 3})
    assert [each.filename for each in told] == [__file__]


def test_another_thread_may_start_the_broker_and_end() -> None:
    """A signal at the death of the parent would come with the end of the thread that started it."""
    broker = kafkalite.Broker()
    starter = threading.Thread(target=broker.start)
    starter.start()
    starter.join()
    try:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("orders").error_code == 0
    finally:
        broker.close()
