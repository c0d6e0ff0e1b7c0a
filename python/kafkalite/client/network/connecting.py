"""Connections that are being made, without anybody waiting for them.

    resolved ──► a socket that connects ──► ApiVersions asked ──► a `Connection`
        ▲              │ refused, no answer         │ no answer, no broker
        └──────────────┴────────────────────────────┘ the next address; without one it has failed

A broker that is away costs those who do not want it nothing: whoever wants the connection asks now
and then, and waits for `fileno` beside all else. Only names of hosts are resolved while others
wait, as by Kafka's clients.
"""

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kafkalite.client.network.connection import (
    Closing,
    Connection,
    Writable,
    connection_failed,
    may_pass,
    none_connected,
    peer_text,
)
from kafkalite.client.network.wakeup import poller
from kafkalite.errors import ClientError, ConnectionFailedError, RequestTimedOutError

__all__ = ["Address", "Connecting", "DialOptions"]

Address = tuple[str, int]


class DialOptions(NamedTuple):
    """The settings of a new connection. `connect_timeout_ms` bounds each address,
    `request_timeout_ms` its answer to ApiVersions."""

    client_id: str
    connect_timeout_ms: int
    request_timeout_ms: int
    hint: str = ""
    """Said behind what failed."""


class Connecting(Closing):
    """A connection to the first of some addresses behind which there is a broker. One thread."""

    def __init__(
        self,
        addresses: Iterable[Address],
        options: DialOptions,
        on_end: Callable[[Address, ClientError | None], None],
    ) -> None:
        """Connects to nobody yet. `on_end` is told of each address what came of it."""
        self._addresses = deque(addresses)
        """The first is the one that is being tried."""
        self._options = options
        self._on_end = on_end
        self._targets: deque[tuple[int, Any]] = deque()
        """Addresses of the host that have not been tried."""
        self._failures: list[ClientError] = []
        self._dialled: socket.socket | None = None
        """A socket that connects."""
        self._connection: Connection | None = None
        self._deadline = 0.0

    def close(self) -> None:
        """Gives up."""
        for each in (self._dialled, self._connection):
            if each is not None:
                each.close()
        self._dialled = self._connection = None

    def fileno(self) -> int:
        """Ready when there is something to `take`."""
        if self._connection is not None:
            return self._connection.fileno()
        return -1 if self._dialled is None else Writable(self._dialled.fileno())

    @property
    def due(self) -> float:
        """Monotonic seconds by which to `take` though nothing is ready."""
        return self._deadline

    def take(self, now: float) -> Connection | None:
        """The connection, which is the caller's; None while it is being made.

        Raises `ConnectionFailedError`, and `RequestTimedOutError` if there was one address.
        """
        while True:
            try:
                if self._connection is None:
                    self._connection = self._connected(now)
                return None if self._connection is None else self._negotiated(now, self._connection)
            except ClientError as error:
                self._fail(error)
            except BaseException:
                # Interrupted: the next call begins with the same address anew.
                self.close()
                self._targets.clear()
                raise

    def _fail(self, error: ClientError) -> None:
        """The next address has its turn. Raises if there is none."""
        self.close()
        if self._targets and may_pass(error):
            return
        self._targets.clear()
        self._on_end(self._addresses[0], error)
        self._failures.append(error)
        if len(self._addresses) > 1 and may_pass(error):
            self._addresses.popleft()
            return
        if len(self._failures) > 1 and may_pass(error):
            error = none_connected(self._failures)
        if self._options.hint and isinstance(error, ConnectionFailedError):
            error = ConnectionFailedError(f"{error}{self._options.hint}")
        self._failures = []
        raise error

    def _connected(self, now: float) -> Connection | None:
        """A connection that is asked for its versions."""
        if self._dialled is None:
            self._dialled = self._dial(now)
        connecting = self._dialled
        peer = peer_text(*self._addresses[0])
        if not poller([Writable(connecting.fileno())]).poll(0):
            if now < self._deadline:
                return None
            raise connection_failed(peer, TimeoutError())
        code = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise connection_failed(peer, OSError(code, os.strerror(code)))
        self._dialled, options = None, self._options
        made = Connection.over(
            connecting,
            *self._addresses[0],
            client_id=options.client_id,
            request_timeout_ms=options.request_timeout_ms,
        )
        made.ask_versions()
        self._deadline = now + options.request_timeout_ms / 1000
        return made

    def _dial(self, now: float) -> socket.socket:
        peer = peer_text(*self._addresses[0])
        try:
            if not self._targets:
                found = socket.getaddrinfo(*self._addresses[0], type=socket.SOCK_STREAM)
                self._targets.extend((row[0], row[4]) for row in found)
            family, target = self._targets.popleft()
            dialled = _begin(family, target)
        except (OSError, ValueError, OverflowError) as error:
            raise connection_failed(peer, error) from error
        self._deadline = now + self._options.connect_timeout_ms / 1000
        return dialled

    def _negotiated(self, now: float, made: Connection) -> Connection | None:
        response = made.receive_ready()
        if response is None or not made.take_versions(response):
            if now < self._deadline:
                return None
            raise RequestTimedOutError(
                f"no answer from {made.peer} to ApiVersions within "
                f"{self._options.request_timeout_ms} ms"
            )
        self._connection = None
        self._on_end(self._addresses[0], None)
        return made


def _begin(family: int, target: Any) -> socket.socket:
    """A socket that connects, and is writable once it has, or has failed. Raises OSError."""
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        code = connecting.connect_ex(target)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
    except BaseException:
        connecting.close()
        raise
    return connecting
