"""Listeners: where the broker listens, and what clients of each are told.

    listeners             NAME://HOST:PORT, …   port 0 takes a free one; no host is all addresses
    kafkalite.arrow.listener    HOST:PORT   of the Arrow endpoint, which is no listener of Kafka's
    kafkalite.metrics.listener  HOST:PORT   of the metrics
    advertised.listeners  NAME://HOST:PORT, …   what clients are told; port 0 or no entry: as bound
    listener.security.protocol.map  NAME:PROTOCOL, …   only PLAINTEXT so far
    controller.listener.names       these of `listeners` are not opened: one node needs none

A client that came in by a listener is told the broker's endpoint of that listener, whatever it
asks.
"""

# Python's `socket` wraps this one, and its import takes as long as reading the configuration.
import _socket
import errno
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from kafkalite.config import LISTENER_KEYS, Config
from kafkalite.config.values import NOBODY_MAY_CONNECT, PER_HOST, connections_by_host, parse
from kafkalite.errors import InvalidArgumentError

INT_MAX = 2**31 - 1
SYSTEM_BUFFER = -1
SEND_BUFFER_BYTES = 200_000
WILDCARD_HOSTS = ("", "0.0.0.0", "::")  # noqa: S104 - named so as to be told apart


class Endpoint(NamedTuple):
    """A listener, as `listeners` names it; IPv6 addresses without brackets."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def client_listeners(config: Config) -> list[Endpoint]:
    """The listeners for clients. Raises InvalidArgumentError where there can be none such."""
    controllers = [name.upper() for name in config["controller.listener.names"]]
    every = [_parse("listeners", text) for text in config["listeners"]]
    _refuse_twins(every)
    endpoints = [each for each in every if each.name not in controllers]
    if not endpoints:
        raise InvalidArgumentError("listeners names no listener for clients")
    for endpoint in endpoints:
        _refuse_protocol(config, endpoint)
        _refuse_open_listener(config, endpoint)
    between_brokers = config["inter.broker.listener.name"]
    names = [each.name for each in endpoints]
    if between_brokers is not None and between_brokers.upper() not in names:
        raise InvalidArgumentError(
            f"inter.broker.listener.name={between_brokers} is not one of the listeners "
            f"{', '.join(names)}"
        )
    return endpoints


def between_brokers(config: Config) -> str:
    """The name of the listener that brokers use among themselves."""
    name: str | None = config["inter.broker.listener.name"]
    return (name or config["security.inter.broker.protocol"]).upper()


def place_between_brokers(config: Config, names: Sequence[str]) -> int:
    """The place of that listener among these; the first where there is none of its name."""
    name = between_brokers(config)
    return names.index(name) if name in names else 0


def arrow_listener(config: Config) -> Endpoint | None:
    """`kafkalite.arrow.listener`, if there is one."""
    endpoint = _listener_beside(config, "kafkalite.arrow.listener", "ARROW")
    if endpoint is not None:
        refuse_beyond_loopback("kafkalite.arrow.listener", endpoint)
    return endpoint


def metrics_listener(config: Config) -> Endpoint | None:
    """`kafkalite.metrics.listener`, if there is one."""
    endpoint = _listener_beside(config, "kafkalite.metrics.listener", "METRICS")
    if endpoint is not None:
        instead = "have kafkalite.metrics.listener name a loopback address"
        _refuse_open_listener(config, endpoint, instead)
    return endpoint


def _listener_beside(config: Config, key: str, name: str) -> Endpoint | None:
    text = config[key]
    if not text:
        return None
    found = address(text)
    if found is None:
        raise InvalidArgumentError(f"{key}: {text} is not of the form HOST:PORT")
    return Endpoint(name, *found)


def refuse_beyond_loopback(setting: str, endpoint: Endpoint) -> None:
    """Raises InvalidArgumentError for an Arrow endpoint that other machines can reach."""
    if not _is_loopback(endpoint.host):
        raise InvalidArgumentError(
            f"{setting}={endpoint} is open to other machines: the Arrow endpoint has no "
            "authentication, and may be on loopback only, such as 127.0.0.1:9099"
        )


class Buffers(NamedTuple):
    """`socket.send.buffer.bytes` and `socket.receive.buffer.bytes`; -1 leaves it to the system."""

    send_bytes: int
    receive_bytes: int


def socket_buffers(config: Config) -> Buffers:
    """The buffers of the sockets of clients, whose defaults were measured (benches/TRIED.md).

    Sending, twice Kafka's 100 KiB, which saves a large fetch every second wait for room; more than
    the receiver's window, and above all the megabytes that Linux takes by itself, cost twice the
    CPU. Receiving, Linux's: with 100 KiB a Produce request of 1 MB takes nine calls of `recv`
    instead of two, and 1.8 times the CPU. Kafka's defaults stand in its example files too, so
    there as well they count as not set.
    """

    def unless_default(name: str, ours: int) -> int:
        is_default = config.text(name) == config.default_text(name)
        return ours if is_default else int(config[name])

    return Buffers(
        send_bytes=unless_default("socket.send.buffer.bytes", SEND_BUFFER_BYTES),
        receive_bytes=unless_default("socket.receive.buffer.bytes", SYSTEM_BUFFER),
    )


def bind(endpoint: Endpoint, buffers: Buffers, setting: str = "--listen") -> _socket.socket:
    """A bound socket that does not listen yet: a start that takes long is seen as closed. What of
    `buffers` is set here is that of the sockets it will accept. Raises InvalidArgumentError, which
    names the setting, where none can be had."""
    try:
        # Without a host: IPv6 first, which takes IPv4 as well.
        first = _socket.AF_INET if endpoint.host else _socket.AF_INET6
        found = _addresses(endpoint.host, endpoint.port, first)
        try:
            return _bound(*found[0], buffers)
        except OSError as error:
            # This machine has addresses of the other kind only.
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL) or len(found) == 1:
                raise
            return _bound(*found[-1], buffers)
    except OSError as error:
        raise InvalidArgumentError(
            f"cannot listen on {endpoint}: {error.strerror}; name another address with {setting}"
        ) from error


_Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


def _addresses(host: str, port: int, first: int) -> list[tuple[int, _Address]]:
    """The family and the address of each that a host has; none: of all. Those of one family come
    first, for a name of IPv4 as in Java, and then in the system's order. Raises OSError."""
    # Bytes, since a text would have Python load its tables of international names.
    found = _socket.getaddrinfo(
        host.encode() or None, port, type=_socket.SOCK_STREAM, flags=_socket.AI_PASSIVE
    )
    found.sort(key=lambda each: each[0] != first)
    return [(family, address) for family, _, _, _, address in found]


def _bound(family: int, address: _Address, buffers: Buffers) -> _socket.socket:
    bound = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        bound.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        bound.setsockopt(_socket.SOL_SOCKET, _socket.SO_KEEPALIVE, 1)
        if buffers.send_bytes != SYSTEM_BUFFER:
            bound.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, buffers.send_bytes)
        if buffers.receive_bytes != SYSTEM_BUFFER:
            bound.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVBUF, buffers.receive_bytes)
        if family == _socket.AF_INET6:
            bound.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 0)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def advertised_listeners(config: Config, bound: Sequence[Endpoint]) -> list[Endpoint]:
    """The endpoints that clients are told, listener by listener. Raises InvalidArgumentError where
    `advertised.listeners` does not go with `listeners`."""
    controllers = [name.upper() for name in config["controller.listener.names"]]
    texts = config["advertised.listeners"] or []
    given = {each.name: each for each in (_parse("advertised.listeners", text) for text in texts)}
    names = [each.name for each in bound]
    for name, endpoint in given.items():
        if name not in names and name not in controllers:
            raise InvalidArgumentError(
                f"advertised.listeners names {name}, which is not one of the listeners "
                f"{', '.join(names)}"
            )
        if endpoint.host in WILDCARD_HOSTS[1:]:
            raise InvalidArgumentError(
                f"advertised.listeners names {endpoint.host}, which no client can connect to"
            )
    advertised = []
    for endpoint in bound:
        told = given.get(endpoint.name, endpoint)
        if told.host in WILDCARD_HOSTS:
            told = told._replace(host=_own_name())
        advertised.append(told._replace(port=told.port or endpoint.port))
    return advertised


def _own_name() -> str:
    import socket

    return socket.getfqdn()


def _parse(key: str, text: str) -> Endpoint:
    name, separator, rest = text.strip().partition("://")
    found = address(rest)
    if not (name and separator) or found is None:
        hint = "; an IPv6 address needs brackets, as in [::1]" if rest.count(":") > 1 else ""
        raise InvalidArgumentError(f"{key}: {text} is not of the form NAME://HOST:PORT{hint}")
    return Endpoint(name.upper(), *found)


def address(text: str) -> tuple[str, int] | None:
    """`HOST:PORT`, or None for what is not that."""
    host, colon, port = text.strip().rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    is_host = ":" not in host or (host[:1], host[-1:]) == ("[", "]")
    if not (colon and is_port and is_host):
        return None
    return host.strip("[]"), int(port)


def _refuse_twins(endpoints: Sequence[Endpoint]) -> None:
    names = [each.name for each in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(f"listeners names {name} twice")
    places = [(each.host, each.port) for each in endpoints if each.port]
    for host, port in places:
        if places.count((host, port)) > 1:
            raise InvalidArgumentError(f"listeners names {host}:{port} twice")


def _refuse_protocol(config: Config, endpoint: Endpoint) -> None:
    protocols = {}
    for text in config["listener.security.protocol.map"].split(","):
        name, _, protocol = text.strip().partition(":")
        protocols[name.upper()] = protocol.upper()
    protocol = protocols.get(endpoint.name)
    if protocol is None:
        raise InvalidArgumentError(
            f"listener.security.protocol.map has no protocol for the listener {endpoint.name}"
        )
    if protocol != "PLAINTEXT":
        raise InvalidArgumentError(
            f"the listener {endpoint.name} has the protocol {protocol}: only PLAINTEXT is supported"
        )


def _refuse_open_listener(
    config: Config, endpoint: Endpoint, instead: str = "give --listen 127.0.0.1:9092"
) -> None:
    if not _is_loopback(endpoint.host) and not config["kafkalite.allow.unauthenticated"]:
        raise InvalidArgumentError(
            f"the listener {endpoint} is open to other machines and has no authentication: "
            f"set kafkalite.allow.unauthenticated=true if that is meant, or {instead}"
        )


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


class ConnectionLimits(NamedTuple):
    """How many clients may connect, and how fast; per listener in the order of the listeners."""

    total: int
    by_listener: list[int]
    rate: int
    rate_by_listener: list[int]
    per_address: int
    by_address: Mapping[str, int]


def connection_limits(config: Config, names: Sequence[str]) -> ConnectionLimits:
    """The limits of connections that hold now. `names` are those of the listeners. Raises
    InvalidArgumentError for what is no number, and for a host that is not known."""
    by_listener, rate_by_listener = (
        [limit_of_listener(config, name, key) for name in names] for key in LISTENER_KEYS
    )
    return ConnectionLimits(
        total=config["max.connections"],
        by_listener=by_listener,
        rate=config["max.connection.creation.rate"],
        rate_by_listener=rate_by_listener,
        per_address=config["max.connections.per.ip"],
        by_address=connections_by_address(config),
    )


def limit_of_listener(config: Config, listener: str, key: str) -> int:
    """`listener.name.<name>.<key>`, of `LISTENER_KEYS`, or no limit of the listener's own."""
    text = config.text_of_listener(listener, key)
    if text is None:
        return INT_MAX
    try:
        return int(parse(config.broker_keys[key], text))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"{key} of the listener {listener} is no number: {text}"
        ) from error


def connections_by_address(config: Config) -> Mapping[str, int]:
    """`max.connections.per.ip.overrides`, hosts by their addresses."""
    limits = _limits_by_address(config[PER_HOST])
    if config["max.connections.per.ip"] == 0 and not limits:
        raise InvalidArgumentError(NOBODY_MAY_CONNECT)
    return limits


@lru_cache(maxsize=1)
def _limits_by_address(text: str) -> Mapping[str, int]:
    """Names are looked up when the text has changed, as Kafka does: whatever else of the broker is
    changed must neither wait for a name server nor need one."""
    try:
        by_host = connections_by_host(text)
    except InvalidArgumentError as error:
        sentence = f"{PER_HOST} is not of the form HOST:NUMBER: {error}"
        raise InvalidArgumentError(sentence) from error
    limits = {}
    for host, limit in by_host.items():
        try:
            _, (address, *_) = _addresses(host.strip("[]"), 0, _socket.AF_INET)[0]
        except OSError as error:
            raise InvalidArgumentError(
                f"{PER_HOST} names {host}, which is not a known host"
            ) from error
        limits[str(address)] = limit
    return limits
