"""One connection to a broker: frames out, frames in, and which versions both sides speak.

    with Connection("127.0.0.1", 9092) as connection:
        response = connection.request(messages.MetadataRequest(topics=None))

Blocking, one thread at a time, no background work. Requests may be pipelined by `send` and
`receive`: Kafka answers in the order of the requests. A connection that has broken, timed out or
been answered out of order is closed and stays so; whoever holds it makes a new one.

    frame      size i32 │ header │ body
    request    api key i16, version i16, correlation id i32, client id string16 (flexible: + tags)
    response   correlation id i32 (flexible: + tags; never for ApiVersions)
"""

import math
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from kafkalite._native import message_versions
from kafkalite.client import lifetime
from kafkalite.client.arguments import short_text
from kafkalite.errors import (
    BrokerError,
    ClientError,
    ConnectionFailedError,
    KafkaliteError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kafkalite.protocol import messages
from kafkalite.protocol.codes import NONE, UNSUPPORTED_VERSION
from kafkalite.protocol.error_codes import error_code

__all__ = ["Connection", "Writable", "broker_error", "check", "may_pass", "without_frames"]

CLIENT_ID = "kafkalite"
CONNECT_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 30_000

# The answer is a frame of at most this size: more is not Kafka ("HTTP" read as a size is 1.2 GB).
FRAME_BYTES_MAX = 1 << 30
# Taken from the socket at a time, and while a large frame is under way.
RECEIVE_BYTES = 1 << 16
RECEIVE_BYTES_LARGE = 1 << 20


class Writable(int):
    """A descriptor of which is waited until it takes something, too."""


class _Awaited(NamedTuple):
    """A request whose answer is due."""

    correlation_id: int
    name: str
    version: int
    flexible_since: int | None


def broker_error(code: int, what: str, message: str | None = None) -> BrokerError:
    """The exception for an error code. `what` says what was asked for and of whom; `message` is the
    broker's own sentence, where the response has one."""
    row = error_code(code)
    told = message or row.sentence
    sentence = f"{what}: {told} ({row.name})" if told else f"{what}: {row.name}"
    return BrokerError(sentence, code=code, name=row.name, retriable=row.retriable)


def check(code: int, what: str, message: str | None = None) -> None:
    """Raises `BrokerError` unless the code is 0."""
    if code != NONE:
        raise broker_error(code, what, message)


def may_pass(error: ClientError) -> bool:
    """Says whether the same may go well a moment later, of this broker or another."""
    if isinstance(error, BrokerError):
        return error.retriable
    return isinstance(error, ConnectionFailedError | RequestTimedOutError)


def without_frames(error: KafkaliteError) -> KafkaliteError:
    """An error that is kept, without the tracebacks of its own and of what caused it: their frames
    hold whoever was at work."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error


def peer_text(host: str, port: int) -> str:
    """An address, as errors name it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connection_failed(peer: str, error: Exception) -> ConnectionFailedError:
    """The sentence about a socket that cannot be connected."""
    why: object = error
    if isinstance(error, ValueError | OverflowError):  # of the resolver
        why = "not a valid host name"
    elif isinstance(error, TimeoutError):
        why = "no answer"
    elif isinstance(error, OSError) and error.strerror:
        why = error.strerror
    is_refused = isinstance(error, ConnectionRefusedError)
    what = "no broker answers at" if is_refused else "no connection to"
    failure = ConnectionFailedError(f"{what} {peer}: {why}")
    failure.is_refused = is_refused
    return failure


def none_connected(failures: Sequence[ClientError]) -> ConnectionFailedError:
    """The sentence about several addresses, at none of which a broker was reached."""
    failure = ConnectionFailedError("; ".join(map(str, failures)))
    failure.is_refused = all(getattr(each, "is_refused", False) for each in failures)
    return failure


class Closing(ABC):
    """Something that a `with` block closes at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Gives back what it holds."""


class Connection(Closing):
    """A socket on which requests and responses go, and the versions of the broker behind it."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = CLIENT_ID,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Connects and asks for the broker's versions.

        Raises `ConnectionFailedError`, `RequestTimedOutError`, and `UnsupportedVersionError` if the
        other side is no Kafka broker of this century.
        """
        self._set_up(host, port, client_id, request_timeout_ms)
        try:
            connected = socket.create_connection((host, port), connect_timeout_ms / 1000)
        except (OSError, ValueError) as error:
            raise connection_failed(self.peer, error) from error
        self._use(connected)
        try:
            self._negotiate()
        except BaseException:
            self.close()
            raise

    @classmethod
    def over(
        cls,
        connected: socket.socket,
        host: str,
        port: int,
        *,
        client_id: str,
        request_timeout_ms: int,
    ) -> Self:
        """On a socket that is connected. Before all else `ask_versions`."""
        made = cls.__new__(cls)
        made._set_up(host, port, client_id, request_timeout_ms)
        made._use(connected)
        return made

    def _set_up(self, host: str, port: int, client_id: str, request_timeout_ms: int) -> None:
        self.address = (host, port)
        self.peer = peer_text(host, port)
        """Host and port, as errors name them."""
        self.versions: dict[int, tuple[int, int]] = {}
        """Lowest and highest version that the broker speaks, by api key."""
        self.features: dict[str, int] = {}
        """Finalized features of the cluster and their levels (KIP-584)."""
        self.request_timeout_ms = request_timeout_ms
        self._client_id = short_text("client_id", client_id).encode()
        self._correlation_id = 0
        self._awaited: deque[_Awaited] = deque()
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._unsent: deque[bytes | memoryview] = deque()
        self.throttled_until = 0.0
        """Monotonic seconds before which the broker wants no request (KIP-219)."""

    def _use(self, connected: socket.socket) -> None:
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:  # it has been reset
            connected.close()
            raise connection_failed(self.peer, error) from error
        self._socket = connected
        self._socket_timeout_s = connected.gettimeout()
        self.is_open = True
        lifetime.watch(self)

    def close(self) -> None:
        """Closes the socket. Answers that are due are lost, and requests that have not left."""
        self.is_open = False
        self._awaited.clear()
        self._unsent.clear()
        self._socket.close()
        lifetime.forget(self)  # closed: a process that forks before has the child close its copy

    def after_fork(self) -> None:
        """Closes the child's copy: answers on it are the parent's, which keeps its own."""
        self.close()

    def at_exit(self, _timeout_ms: int) -> None:
        """Leaves it to the kernel, which closes it."""

    def interrupt(self) -> None:
        """Makes another thread that waits for an answer see a broken connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def fileno(self) -> int:
        """Ready when there is something for `receive_ready` to do; -1 once closed."""
        descriptor = self._socket.fileno()
        return Writable(descriptor) if self._unsent else descriptor

    @property
    def awaited_count(self) -> int:
        """Requests that have not been answered yet."""
        return len(self._awaited)

    def version_for(self, name: str, at_most: int | None = None) -> int:
        """The highest version of a request, as in `Metadata`, that both sides speak.

        Raises `UnsupportedVersionError`.
        """
        key, lowest, highest, _ = message_versions(f"{name}Request")
        if at_most is not None:
            highest = min(highest, at_most)
        theirs = self.versions.get(-1 if key is None else key)
        if theirs is None:
            raise UnsupportedVersionError(f"the broker at {self.peer} does not support {name}")
        version = min(highest, theirs[1])
        if version < max(lowest, theirs[0]):
            raise UnsupportedVersionError(
                f"the broker at {self.peer} speaks versions {theirs[0]} to {theirs[1]} of {name}, "
                f"this client {lowest} to {highest}"
            )
        return version

    def supports(self, name: str) -> bool:
        """Says whether both sides speak some version of a request."""
        try:
            self.version_for(name)
        except UnsupportedVersionError:
            return False
        return True

    def request(
        self,
        message: Any,
        *,
        version: int | None = None,
        at_most: int | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Sends a request and waits for its response; nothing else may be under way.

        `version` is taken as it is; else the highest that both speak, but `at_most`. Raises
        `ConnectionFailedError`, `RequestTimedOutError`, `UnsupportedVersionError`.
        """
        if self._awaited:
            raise RuntimeError(f"{self.peer} has {len(self._awaited)} other requests to answer")
        if timeout_ms is None:
            timeout_ms = self.request_timeout_ms
        throttled_s = self.throttled_until - time.monotonic()
        if throttled_s > 0:
            time.sleep(min(throttled_s, timeout_ms / 1000))
            timeout_ms -= math.ceil(throttled_s * 1000)
            if timeout_ms <= 0:
                raise RequestTimedOutError(
                    f"{self.peer} accepts no requests for another {throttled_s:.1f} s (quota is "
                    "used up)"
                )
        try:
            self.send(message, version=version, at_most=at_most)
            return self.receive(timeout_ms)
        except Exception:
            raise
        except BaseException:
            self.close()  # interrupted: an answer that is due would be in the way of the next
            raise

    def send(
        self,
        message: Any,
        *,
        version: int | None = None,
        at_most: int | None = None,
        answered: bool = True,
        waits: bool = True,
    ) -> int:
        """Sends a request and returns its correlation id. `answered=False` for what the broker
        does not answer, which is Produce with acks=0 alone. `waits=False`: what the socket does not
        take now leaves with `receive_ready`, or `push`."""
        name = message._name.removesuffix("Request")
        if version is None:
            version = self.version_for(name, at_most)
        key, _, _, flexible_since = message_versions(message._name)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        header = struct.pack(
            f">hhih{len(self._client_id)}s",
            key,
            version,
            self._correlation_id,
            len(self._client_id),
            self._client_id,
        )
        if flexible_since is not None and version >= flexible_since:
            header += b"\0"
        body = message.encode(version)
        frame = struct.pack(">i", len(header) + len(body)) + header + body
        if waits:
            self._send_all(frame)
        else:
            self._unsent.append(frame)
            self.push()
        if answered:
            self._awaited.append(
                _Awaited(self._correlation_id, name, version, flexible_since),
            )
        return self._correlation_id

    def receive(self, timeout_ms: int) -> Any:
        """The response to the oldest request that has none.

        Raises `RequestTimedOutError`, after which the connection is closed.
        """
        awaited = self._awaited[0]
        response = self._receive(time.monotonic() + timeout_ms / 1000)
        if response is None:
            self.close()
            raise RequestTimedOutError(
                f"no answer from {self.peer} to {awaited.name} within {timeout_ms} ms"
            )
        return response

    def receive_ready(self) -> Any:
        """As `receive` without waiting: None if the response is not there as a whole."""
        if self._unsent:
            self.push()
        return self._receive(None)

    def push(self) -> bool:
        """Sends what has not left yet, as far as the socket takes it; whether that is all."""
        if not self.is_open:
            raise ConnectionFailedError(f"the connection to {self.peer} is closed")
        unsent = self._unsent
        try:
            self._wait_at_most(0.0)
            while unsent:
                count = self._socket.send(unsent[0])
                if count < len(unsent[0]):
                    unsent[0] = memoryview(unsent[0])[count:]
                else:
                    unsent.popleft()
        except BlockingIOError:
            return False
        except OSError as error:
            self.close()
            raise self._broken(error) from error
        except BaseException:
            self.close()  # interrupted: nobody knows how much has left
            raise
        return True

    # --- large answers, piece by piece ------------------------------------------------------------

    def prepare_for_large(self, timeout_ms: int, buffer_bytes: int = -1) -> None:
        """From here on answers are taken by `receive_head` and `receive_exactly`, which wait for at
        most `timeout_ms` at a time; nothing may be under way. `buffer_bytes`: of the kernel's
        receive buffer, -1 as the system chooses."""
        if self._awaited or self._buffered:
            raise RuntimeError(f"{self.peer} has other requests to answer")
        seconds, rest_ms = divmod(timeout_ms, 1000)
        wait = struct.pack("@ll", seconds, 1000 * rest_ms)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
        if buffer_bytes >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)

    def receive_head(self) -> int:
        """The head of the oldest request's response; the number of bytes that follow, all of which
        must be taken. Only for versions that are not flexible."""
        awaited = self._awaited.popleft()
        self._wait_at_most(None)
        size, correlation_id = struct.unpack(">ii", self.receive_exactly(8))
        if size < 4 or size > FRAME_BYTES_MAX or correlation_id != awaited.correlation_id:
            self.close()
            raise ConnectionFailedError(f"{self.peer} does not answer as a Kafka broker does")
        return int(size) - 4

    def receive_exactly(self, size: int) -> bytes:
        """The next bytes of a response, in the one object that the kernel has written them to.

        Raises `ConnectionFailedError`, `RequestTimedOutError`.
        """
        parts: list[bytes] = []
        left = size
        while left:
            try:
                part = self._socket.recv(left, socket.MSG_WAITALL)
            except BlockingIOError as error:
                self.close()
                raise RequestTimedOutError(f"no answer from {self.peer} in time") from error
            except OSError as error:
                self.close()
                raise self._broken(error) from error
            if not part:
                self.close()
                raise ConnectionFailedError(f"{self.peer} closed the connection in an answer")
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # --- versions ---------------------------------------------------------------------------------

    def _negotiate(self) -> None:
        self.ask_versions()
        while not self.take_versions(self.receive(self.request_timeout_ms)):
            pass

    def ask_versions(self, version: int = 4) -> None:
        """Asks what the broker speaks, for `take_versions`."""
        request = messages.ApiVersionsRequest(
            client_software_name="kafkalite", client_software_version="1"
        )
        self.send(request, version=version, waits=False)
        self._asked_version = version

    def take_versions(self, response: Any) -> bool:
        """Takes the answer. False if it has to be asked for again, which it was: a broker that does
        not know the version answers in version 0, with those it knows."""
        if response.error_code == UNSUPPORTED_VERSION and self._asked_version > 0:
            self.ask_versions(0)
            return False
        check(response.error_code, f"ApiVersions from {self.peer}")
        self.versions = {
            row.api_key: (row.min_version, row.max_version) for row in response.api_keys
        }
        self.features = {
            feature.name: feature.max_version_level for feature in response.finalized_features
        }
        return True

    # --- bytes ------------------------------------------------------------------------------------

    def _wait_at_most(self, seconds: float | None) -> None:
        """How long the socket's calls may take; None for ever."""
        if seconds != self._socket_timeout_s:
            self._socket.settimeout(seconds)
            self._socket_timeout_s = seconds

    def _send_all(self, frame: bytes) -> None:
        if not self.is_open:
            raise ConnectionFailedError(f"the connection to {self.peer} is closed")
        try:
            self._wait_at_most(self.request_timeout_ms / 1000)
            self._socket.sendall(frame)
        except OSError as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise RequestTimedOutError(
                    f"{self.peer} took no request for {self.request_timeout_ms} ms"
                ) from error
            raise self._broken(error) from error
        except BaseException:
            self.close()  # interrupted: what is half sent would be in the way of the next
            raise

    def _receive(self, deadline: float | None) -> Any:
        """One response; None if it is not there by the deadline, or now."""
        if not self.is_open:
            raise ConnectionFailedError(f"the connection to {self.peer} is closed")
        try:
            return self._receive_one(deadline)
        except ClientError:
            raise
        except KafkaliteError as error:
            self.close()
            raise ConnectionFailedError(
                f"{self.peer} does not answer as a broker: {error}"
            ) from error
        except BaseException:
            # Interrupted: what was taken from the socket, or is still due, would be in the way.
            self.close()
            raise

    def _receive_one(self, deadline: float | None) -> Any:
        if not self._fill(4, deadline):
            return None
        (size,) = struct.unpack_from(">i", self._joined())
        if not 4 <= size <= FRAME_BYTES_MAX:
            self.close()
            raise ConnectionFailedError(f"{self.peer} does not answer as a Kafka broker does")
        if not self._fill(4 + size, deadline):
            return None
        received = self._joined()
        rest = received[4 + size :]
        self._chunks = [rest] if rest else []
        self._buffered = len(rest)
        return self._parse(received, 4 + size)

    def _parse(self, received: bytes, end: int) -> Any:
        (correlation_id,) = struct.unpack_from(">i", received, 4)
        if not self._awaited:
            self.close()
            raise ConnectionFailedError(
                f"{self.peer} answered request {correlation_id} where no answer was due"
            )
        awaited = self._awaited.popleft()
        if correlation_id != awaited.correlation_id:
            self.close()
            raise ConnectionFailedError(
                f"{self.peer} answered request {correlation_id} "
                f"where {awaited.correlation_id} ({awaited.name}) was due"
            )
        start, version = 8, awaited.version
        if awaited.name == "ApiVersions":
            if version and received[start : start + 2] == UNSUPPORTED_VERSION.to_bytes(2):
                version = 0
        elif awaited.flexible_since is not None and version >= awaited.flexible_since:
            start += 1  # no tag of a response header has been defined
        kind = getattr(messages, f"{awaited.name}Response")
        response = kind.decode(received[start:end], version)
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            until = time.monotonic() + throttle_ms / 1000
            self.throttled_until = max(self.throttled_until, until)
        return response

    def _fill(self, wanted: int, deadline: float | None) -> bool:
        """Receives until so many bytes are buffered; False if they are not there in time."""
        size = RECEIVE_BYTES if wanted < RECEIVE_BYTES else RECEIVE_BYTES_LARGE
        while self._buffered < wanted:
            left = 0.0 if deadline is None else max(deadline - time.monotonic(), 0.0)
            try:
                self._wait_at_most(left)
                chunk = self._socket.recv(size)
            except (TimeoutError, BlockingIOError):
                if left > 0:
                    continue
                return False
            except OSError as error:
                self.close()
                raise self._broken(error) from error
            if not chunk:
                awaited = self._awaited[0].name if self._awaited else "anything"
                self.close()
                raise ConnectionFailedError(
                    f"{self.peer} closed the connection before it answered {awaited}"
                )
            self._chunks.append(chunk)
            self._buffered += len(chunk)
        return True

    def _joined(self) -> bytes:
        if len(self._chunks) > 1:
            self._chunks = [b"".join(self._chunks)]
        return self._chunks[0]

    def _broken(self, error: OSError) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"the connection to {self.peer} broke: {error.strerror or error}"
        )
