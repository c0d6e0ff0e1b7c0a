"""Requests, connections and calls that are under way while nobody waits for them.

    PendingRequest       one request to one broker, or to any: connects, asks, has the answer later
    PendingConnections   connections to brokers, by their id, which are there some time later
    PendingCall          a call in a thread of its own: a join, which may take minutes, or a commit

Who has one calls `take` now and then, and waits for `descriptors` beside all else.
"""

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kafkalite.client.network.cluster import Cluster
from kafkalite.client.network.connecting import Connecting
from kafkalite.client.network.connection import Closing, Connection
from kafkalite.errors import ClientError, RequestTimedOutError

__all__ = ["PendingCall", "PendingConnections", "PendingRequest"]

Result = TypeVar("Result")


class PendingRequest(Closing):
    """One request. One thread."""

    def __init__(
        self,
        cluster: Cluster,
        request: Any,
        now: float,
        *,
        node_id: int | None = None,
        at_most: int | None = None,
    ) -> None:
        """Asks a broker, on a connection of its own, or any, in the highest version that both
        speak, but `at_most`. Raises `ClientError` if nobody can be asked."""
        self._cluster = cluster
        self._request = request
        self._node_id = node_id
        self._at_most = at_most
        self._connection: Connection | None = None
        self._connecting: Connecting | None = None
        self._is_sent = False
        self._deadline = 0.0
        self.version = -1
        """The version of the answer."""
        self._go_on(now)

    def close(self) -> None:
        """The answer is not wanted any more."""
        for each in (self._connecting, self._connection):
            if each is not None:
                each.close()
        self._connecting = self._connection = None

    def descriptors(self) -> list[int]:
        """The descriptor that is ready when there is something to `take`."""
        return [each.fileno() for each in (self._connecting, self._connection) if each is not None]

    @property
    def due(self) -> float:
        """Monotonic seconds by which to `take` though nothing is ready."""
        return self._deadline if self._connecting is None else self._connecting.due

    def take(self, now: float) -> Any:
        """The answer; None while it is not there. Raises `ClientError` if none will come: then, and
        with the answer, it is over. After an interrupt it is asked again."""
        self._go_on(now)
        if self._connection is None:
            return None
        try:
            response = self._connection.receive_ready()
            if response is None and now >= self._deadline:
                name = self._request._name.removesuffix("Request")
                late = RequestTimedOutError(f"no answer from {self._connection.peer} to {name}")
                self._cluster.note(self._connection.address, late)
                raise late
        except BaseException:
            self.close()
            raise
        if response is None:
            return None
        if self._node_id is None:
            self._cluster.take_back(self._connection)
            self._connection = None
        self.close()
        return response

    def _go_on(self, now: float) -> None:
        """Asks, once there is a connection."""
        try:
            if self._connecting is None and self._connection is None:
                self._is_sent = False
                self._connection = self._cluster.lend() if self._node_id is None else None
                if self._connection is None:
                    self._connecting = self._cluster.begin(self._node_id)
            if self._connecting is not None:
                self._connection = self._connecting.take(now)
            if self._connection is None or self._is_sent:
                return
            self._connecting = None
            if now < self._connection.throttled_until:
                self._deadline = self._connection.throttled_until
                return
            self._deadline = now + self._cluster.request_timeout_ms / 1000
            name = self._request._name.removesuffix("Request")
            self.version = self._connection.version_for(name, self._at_most)
            self._connection.send(self._request, version=self.version, waits=False)
            self._is_sent = True
        except BaseException:
            self.close()
            raise


class PendingConnections(Closing):
    """Connections that are being made, one a broker. One thread."""

    def __init__(self, cluster: Cluster) -> None:
        """Connects to nobody yet."""
        self._cluster = cluster
        self.begun_at = 0.0
        """Monotonic seconds at which the last of them was begun."""
        self._begun: dict[int, Connecting] = {}
        self._ended: dict[int, Connection | ClientError] = {}

    def close(self) -> None:
        """Drops the answers that nobody has taken."""
        for each in (*self._begun.values(), *self._ended.values()):
            if not isinstance(each, ClientError):
                each.close()
        self._begun.clear()
        self._ended.clear()

    @property
    def is_under_way(self) -> bool:
        """Says whether any is being made."""
        return bool(self._begun)

    def descriptors(self) -> list[int]:
        """Ready when there is something to do for `go_on`."""
        return [each.fileno() for each in self._begun.values()]

    @property
    def due(self) -> float:
        """Monotonic seconds by which to call `go_on` though nothing is ready."""
        return min((each.due for each in self._begun.values()), default=float("inf"))

    def go_on(self, now: float) -> None:
        """Moves all of them on, also those that nobody wants any more."""
        if not self._begun:
            return
        for node_id, connecting in list(self._begun.items()):
            try:
                made: Connection | ClientError | None = connecting.take(now)
            except ClientError as error:
                made = error
            if made is not None:
                del self._begun[node_id]
                self._ended[node_id] = made

    def take(self, node_id: int, now: float) -> Connection | None:
        """A new connection to a broker, which is the caller's; None while it is being made. Raises
        `ClientError` if there will be none: the next call tries again."""
        if node_id not in self._begun and node_id not in self._ended:
            self._begun[node_id] = self._cluster.begin(node_id)
            self.begun_at = now
            self.go_on(now)
        made = self._ended.pop(node_id, None)
        if isinstance(made, ClientError):
            raise made
        return made


class PendingCall(Generic[Result]):
    """Calls a function once. Who has begun it waits for it as often, and as long, as they like."""

    def __init__(
        self, join: Callable[[], Result], name: str, on_end: Callable[[], None] = lambda: None
    ) -> None:
        """Begins. `on_end` is called in its thread. Raises RuntimeError where no thread can be
        started."""
        self._join = join
        self._on_end = on_end
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._is_over = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._results.append(self._join())
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            self._error = error
        finally:
            self._is_over.set()
            self._on_end()

    @property
    def is_over(self) -> bool:
        """Says whether there is a `result`."""
        return self._is_over.is_set()

    def wait(self, seconds: float) -> bool:
        """Says whether it is over by then."""
        return self._is_over.wait(max(seconds, 0.0))

    def result(self) -> Result:
        """Gives what the function gave, once it is over. Raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._results[0]
