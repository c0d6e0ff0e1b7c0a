"""What a service manager is told (`sd_notify`), and what not."""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from broker.serving import Serving
from kafkalite.service import supervisor
from kafkalite.service.loading import report_loading
from kafkalite.service.stderr_log import Log
from kafkalite.service.supervisor import Supervisor

TIMEOUT_S = 60


@pytest.fixture(params=["path", "abstract name"])
def manager(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """The socket of a service manager, which NOTIFY_SOCKET names."""
    # The path of such a socket has room for 107 bytes.
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound,
    ):
        bound.settimeout(TIMEOUT_S)
        if request.param == "path":
            bound.bind(f"{folder}/notify")
            monkeypatch.setenv("NOTIFY_SOCKET", f"{folder}/notify")
        else:
            bound.bind("")  # the system chooses
            monkeypatch.setenv("NOTIFY_SOCKET", f"@{bound.getsockname()[1:].decode()}")
        yield bound


def test_a_service_manager_is_told_when_it_serves_and_when_it_stops(
    manager: socket.socket, tmp_path: Path
) -> None:
    running = Serving(["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"], tmp_path)
    told = manager.recv(4096).decode().splitlines()
    assert told == ["READY=1", f"STATUS=serving on {running.bootstrap_servers}"]
    code, log = running.end()
    assert manager.recv(4096).decode().splitlines() == ["STOPPING=1", "STATUS=stopping"]
    assert (code, "WARNING" in log) == (0, False)


def test_so_it_is_by_an_arrow_endpoint_of_its_own(manager: socket.socket) -> None:
    command = [sys.executable, "-m", "kafkalite", "arrow", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        endpoint = running.stdout.readline().split("endpoint=")[1].split()[0]
        assert manager.recv(4096).decode() == f"READY=1\nSTATUS=serving on {endpoint}"
        running.terminate()
        assert manager.recv(4096).decode() == "STOPPING=1\nSTATUS=stopping"
    assert running.returncode == 0


def test_a_service_that_has_a_broker_speaks_for_itself(manager: socket.socket) -> None:
    """The service would be ready when its broker is, with `NotifyAccess=all`."""
    with kafkalite.Broker():
        pass
    manager.settimeout(0)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)


def test_a_long_recovery_asks_for_more_time_while_it_lasts(manager: socket.socket) -> None:
    """A service that needs longer than TimeoutStartSec is killed, and would recover for ever."""

    class Claimed:
        directories = ()
        progress = (2, 5_000_000)

    claimed: Any = Claimed()
    address = manager.getsockname()
    name = address if isinstance(address, str) else f"@{address[1:].decode()}"
    log = Log("info")
    with report_loading(claimed, 7, log, Supervisor(name, log.warning), every_s=0.01):
        told = manager.recv(4096).decode().splitlines()
    assert told == [
        "STATUS=2 of 7 logs are loaded, 5.0 MB recovered",
        "EXTEND_TIMEOUT_USEC=60000000",
    ]


@pytest.mark.parametrize("address", ["/no/such/socket", "vsock:2:1234"])
def test_a_manager_that_cannot_be_told_is_named_once_in_the_log(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    teller = Supervisor(address, Log("info").warning)
    teller.serving("127.0.0.1:9092")
    teller.stopping()
    (line,) = capfd.readouterr().err.splitlines()
    assert f"WARNING the service manager at NOTIFY_SOCKET={address} was not told: " in line


def test_a_manager_that_does_not_read_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervisor, "TOLD_S_MAX", 0.01)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind("")
        teller = Supervisor(f"@{deaf.getsockname()[1:].decode()}", Log("info").warning)
        while not (told := capfd.readouterr().err):
            teller.loading("1 of 7 logs are loaded")
    assert "was not told: timed out" in told
