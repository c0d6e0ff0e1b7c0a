"""Several listeners, what clients of each are told, and files that cannot be."""

import errno
import re
import socket
import subprocess
import sys

import pytest

import kafkalite
from api.group_requests import describe, stable_member
from api.raw import Connection
from kafkalite.cli import arrow_serve
from kafkalite.config import LISTENER_KEYS, Config
from kafkalite.errors import InvalidArgumentError
from kafkalite.listeners import (
    Endpoint,
    advertised_listeners,
    bind,
    client_listeners,
    connection_limits,
    connections_by_address,
    limit_of_listener,
    socket_buffers,
)
from kafkalite.protocol import messages

COORDINATOR_NOT_AVAILABLE = 15

MAP = "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SSL"


def config(**given: str) -> Config:
    keys = {"listener.security.protocol.map": MAP}
    keys.update({name.replace("_", "."): text for name, text in given.items()})
    return Config(keys)


def told(connection: Connection) -> list[tuple[str, int]]:
    """The endpoint of the broker, by each key that tells it."""
    metadata = connection.ask("Metadata", 1, messages.MetadataRequest(topics=[]))
    cluster = connection.ask("DescribeCluster", 0, messages.DescribeClusterRequest())
    finding = messages.FindCoordinatorRequest(coordinator_keys=["some-group"])
    while True:
        found = connection.ask("FindCoordinator", 4, finding).coordinators[0]
        if found.error_code != COORDINATOR_NOT_AVAILABLE:
            break
    answers = [*metadata.brokers, *cluster.brokers, found]
    assert len(answers) == 3
    return [(each.host, each.port) for each in answers]


def test_a_client_is_told_the_endpoint_of_the_listener_it_came_in_by() -> None:
    keys = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.2:0,CONTROLLER://127.0.0.1:9093",
        "advertised.listeners": "INTERNAL://inside.example:0,PLAINTEXT://localhost:0",
        "listener.security.protocol.map": MAP,
        "inter.broker.listener.name": "INTERNAL",
    }
    with kafkalite.Broker(listen=None, config=keys) as broker:
        plain, internal = broker.bootstrap_servers.split(",")
        assert plain.startswith("localhost:")
        port = int(internal.removeprefix("inside.example:"))
        with Connection(plain) as connection:
            assert set(told(connection)) == {("localhost", int(plain.split(":")[1]))}
        with Connection(f"127.0.0.2:{port}") as connection:
            assert set(told(connection)) == {("inside.example", port)}


def test_ipv6_addresses_are_in_brackets() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with kafkalite.Broker(listen="[::1]:0") as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        assert host == "[::1]"
        with Connection(f"::1:{port}") as connection:
            assert set(told(connection)) == {("::1", int(port))}
        command = [sys.executable, "-m", "kafkalite", "cluster"]
        command += ["--bootstrap-server", broker.bootstrap_servers]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert f"\tAddress: [::1]:{port}\t" in shown


def test_a_client_of_ipv4_is_called_so_whatever_socket_it_came_in_by() -> None:
    """By an IPv6 socket it was ::ffff:127.0.0.1, in answers and in the group's records."""
    try:
        socket.create_server(("::", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    keys = {
        "kafkalite.allow.unauthenticated": "true",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
        "max.connections.per.ip": "0",
        "max.connections.per.ip.overrides": "127.0.0.1:1",
    }
    with (
        kafkalite.Broker(listen="[::]:0", config=keys) as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        stable_member(connection, "g")
        (member,) = describe(connection, "g")[0].members
        assert member.client_host == "/127.0.0.1"
        with Connection(broker.bootstrap_servers) as second:
            assert second.is_closed()


def test_without_a_host_all_addresses_are_listened_on() -> None:
    bound = bind(Endpoint("PLAINTEXT", "", 0), socket_buffers(config()))
    bound.listen()
    port = bound.getsockname()[1]
    socket.create_connection(("127.0.0.1", port), timeout=60).close()
    bound.close()


V4, V6 = ("127.0.0.1", 0), ("::1", 0, 0, 0)


@pytest.fixture
def both_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """`localhost` has an address of IPv6 and one of IPv4, in this order, as on most machines."""
    rows = [(socket.AF_INET6, 1, 6, "", V6), (socket.AF_INET, 1, 6, "", V4)]
    monkeypatch.setattr("kafkalite.listeners._socket.getaddrinfo", lambda *_, **__: list(rows))


@pytest.mark.usefixtures("both_kinds")
def test_a_name_stands_for_its_address_of_ipv4_as_in_java() -> None:
    """`--listen localhost:9092` was ::1, and who asked 127.0.0.1 found nobody."""
    bound = bind(Endpoint("PLAINTEXT", "localhost", 0), socket_buffers(config()))
    assert bound.getsockname()[0] == "127.0.0.1"
    bound.close()
    keys = config(**{"max.connections.per.ip.overrides": "localhost:3"})
    assert connections_by_address(keys) == {"127.0.0.1": 3}


def test_names_of_limits_are_looked_up_when_they_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any change of the broker's keys asked the name server anew, on the thread that answers all
    but the hot requests; one that did not know a name kept every other limit as it was."""
    asked = []

    def known(host: bytes, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(socket.AF_INET, 1, 6, "", V4)]

    monkeypatch.setattr("kafkalite.listeners._socket.getaddrinfo", known)
    changing = config(**{"max.connections.per.ip.overrides": "once.example:1"})
    for total in ("5", "6"):
        changing.set_dynamic({"max.connections": total}, {})
        limits = connection_limits(changing, [])
        assert (limits.total, limits.by_address) == (int(total), {"127.0.0.1": 1})
    assert asked == [b"once.example"]
    changing.set_dynamic({"max.connections.per.ip.overrides": "else.example:2"}, {})
    assert connection_limits(changing, []).by_address == {"127.0.0.1": 2}
    assert asked == [b"once.example", b"else.example"]


@pytest.mark.usefixtures("both_kinds")
@pytest.mark.parametrize(
    ("host", "missing"), [("", socket.AF_INET6), ("localhost", socket.AF_INET)]
)
def test_where_one_kind_of_address_is_missing_the_other_will_do(
    monkeypatch: pytest.MonkeyPatch, host: str, missing: int
) -> None:
    """Without a host, a kernel without IPv6 refused to listen at all."""
    tried = []

    def made(family: int, address: object, _: object) -> int:
        tried.append(address)
        if family == missing:
            raise OSError(errno.EAFNOSUPPORT, "not supported")
        return family

    monkeypatch.setattr("kafkalite.listeners._bound", made)
    buffers = socket_buffers(config())
    assert bind(Endpoint("PLAINTEXT", host, 0), buffers) != missing
    assert len(tried) == 2


def accepted_by(listener: socket.socket) -> list[int]:
    """SO_SNDBUF, SO_RCVBUF and SO_KEEPALIVE of a connection that came in there."""
    listener.listen()
    with socket.create_connection(listener.getsockname(), timeout=60), listener.accept()[0] as got:
        options = (socket.SO_SNDBUF, socket.SO_RCVBUF, socket.SO_KEEPALIVE)
        return [got.getsockopt(socket.SOL_SOCKET, option) for option in options]


def accepted_with(**given: str) -> list[int]:
    """The same, with our listener so configured."""
    bound = bind(Endpoint("PLAINTEXT", "127.0.0.1", 0), socket_buffers(config(**given)))
    with socket.socket(fileno=bound.detach()) as listener:
        return accepted_by(listener)


def test_connections_have_the_buffers_that_are_configured() -> None:
    given = {"socket_send_buffer_bytes": "50000", "socket_receive_buffer_bytes": "60000"}
    # Linux takes twice what it is told, for its own bookkeeping.
    assert accepted_with(**given) == [100_000, 120_000, 1]


def test_an_arrow_endpoint_of_its_own_has_the_buffers_of_a_broker() -> None:
    assert socket_buffers(config()) == arrow_serve.BUFFERS


def test_the_default_sends_by_twice_kafkas_buffer_and_receives_by_the_systems() -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        _, system, _ = accepted_by(plain)
    assert accepted_with() == [400_000, system, 1]
    given = {"socket_send_buffer_bytes": "102400", "socket_receive_buffer_bytes": "102400"}
    assert accepted_with(**given) == [400_000, system, 1]


def test_buffers_of_minus_one_are_left_to_the_system() -> None:
    given = {"socket_send_buffer_bytes": "-1", "socket_receive_buffer_bytes": "-1"}
    with socket.create_server(("127.0.0.1", 0)) as plain:
        assert accepted_with(**given)[:2] == accepted_by(plain)[:2]


def test_names_are_in_capitals_and_the_controllers_listener_is_left_out() -> None:
    given = config(
        listeners="internal://localhost:1,ctl://localhost:2",
        controller_listener_names="CTL",
    )
    assert client_listeners(given) == [Endpoint("INTERNAL", "localhost", 1)]


@pytest.mark.parametrize(
    ("listeners", "reason"),
    [
        ("PLAINTEXT://localhost", "is not of the form NAME://HOST:PORT"),
        ("PLAINTEXT://localhost:70000", "is not of the form NAME://HOST:PORT"),
        ("PLAINTEXT://::1:1", "form NAME://HOST:PORT; an IPv6 address needs brackets"),
        ("localhost:9092", "is not of the form NAME://HOST:PORT"),
        ("PLAINTEXT://localhost:1,plaintext://localhost:2", "names PLAINTEXT twice"),
        ("PLAINTEXT://localhost:1,INTERNAL://localhost:1", "names localhost:1 twice"),
        ("CONTROLLER://localhost:1", "names no listener for clients"),
        ("OTHER://localhost:1", "has no protocol for the listener OTHER"),
        ("SECURE://localhost:1", "only PLAINTEXT is supported"),
        ("PLAINTEXT://10.0.0.1:1", r"kafkalite\.allow\.unauthenticated=true"),
    ],
)
def test_listeners_that_cannot_be_are_refused(listeners: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        client_listeners(config(listeners=listeners))


@pytest.mark.parametrize(
    ("advertised", "reason"),
    [
        ("INTERNAL://x:1", "names INTERNAL, which is not one of the listeners PLAINTEXT"),
        ("PLAINTEXT://0.0.0.0:1", r"names 0\.0\.0\.0, which no client can connect to"),
    ],
)
def test_what_is_advertised_must_go_with_the_listeners(advertised: str, reason: str) -> None:
    given = config(advertised_listeners=advertised)
    with pytest.raises(InvalidArgumentError, match=reason):
        advertised_listeners(given, [Endpoint("PLAINTEXT", "localhost", 1)])


def test_the_listener_between_brokers_must_be_one_of_the_listeners() -> None:
    with pytest.raises(InvalidArgumentError, match=r"inter\.broker\.listener\.name=ELSE"):
        client_listeners(config(inter_broker_listener_name="ELSE"))


@pytest.mark.parametrize("number", ["²", "9" * 5000, "99999999999", "x", ""])
def test_a_limit_of_connections_that_is_no_number_is_refused(number: str) -> None:
    """Digits that are none, and more of them than a number has, were tracebacks at the start."""
    config = Config(
        {
            **{f"listener.name.one.{key}": number for key in LISTENER_KEYS},
            "max.connections.per.ip.overrides": f"127.0.0.1:{number}",
        }
    )
    for key in LISTENER_KEYS:
        with pytest.raises(InvalidArgumentError, match=re.escape(f"{key} of the listener ONE")):
            limit_of_listener(config, "ONE", key)
    with pytest.raises(InvalidArgumentError, match="is not of the form HOST:NUMBER"):
        connections_by_address(config)
