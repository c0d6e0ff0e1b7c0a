"""The endpoint of `kafkalite.metrics.listener`: HTTP, as far as Prometheus speaks it.

    connected ──► its request comes ──► its page is made ──► it reads the page ──► closed
    at most CLIENTS_MAX clients                              at most PAGES_MAX of them

One thread looks after all clients, so that none holds up another: it waits for whichever goes on
first. Where there are too many, the one is closed that has not gone on for longest.
"""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from kafkalite.service.metrics import CONTENT_TYPE

REQUEST_BYTES_MAX: Final = 8192
"""Size of a request with its headers; the connection of a longer one is closed."""
CLIENT_S: Final = 10.0
"""Time that a client has to send its request, and again to read its page."""
CLIENTS_MAX: Final = 64
PAGES_MAX: Final = 4
"""Pages that are not read yet: one may take some MB."""
ACCEPT_RETRY_S: Final = 1.0
STOP_S: Final = 2.0
"""How long a stop waits for the page that is being made."""


class _Client:
    """A connection, its request as far as that has come, and what it has not read of its page."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.request = b""
        self.unread = memoryview(b"")
        self.due_s = time.monotonic() + CLIENT_S

    def receive_line(self) -> bytes | None:
        """The first line of the request, once all headers have come; empty of one that ends before
        them, or is too long. Raises OSError."""
        received = self.socket.recv(REQUEST_BYTES_MAX)
        self.request += received
        if b"\r\n\r\n" in self.request:
            return self.request.split(b"\r\n", 1)[0]
        return None if received and len(self.request) <= REQUEST_BYTES_MAX else b""


class MetricsServer:
    """Answers `GET /metrics` on a listening socket, on a thread of its own, until `stop`.
    `make_page` is called for each; what it raises is answered with 500, and `tell` is told."""

    def __init__(
        self,
        listener: socket.socket,
        make_page: Callable[[], bytes],
        tell: Callable[[str], None],
    ) -> None:
        self._listener = listener
        self._make_page = make_page
        self._tell = tell
        self._is_stopping = False
        self._clients: dict[_Client, None] = {}
        """In the order in which they are due."""
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Returns at once."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, whatever its clients do."""
        self._is_stopping = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        self._thread.join(STOP_S)

    def _run(self) -> None:
        with self._listener, self._selector:
            while not self._is_stopping:
                for key, _ in self._selector.select(self._wait_s()):
                    if key.data is None:
                        self._accept()
                    elif key.data in self._clients:  # or it was closed in this round
                        self._go_on(key.data)
                while self._wait_s() == 0:
                    self._close_first()
            while self._clients:
                self._close_first()

    def _wait_s(self) -> float | None:
        """Seconds until a client is due; None if there is none."""
        first = next(iter(self._clients), None)
        return None if first is None else max(0, first.due_s - time.monotonic())

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # it has gone again
            return
        except OSError as error:
            if not self._is_stopping:
                self._tell(f"metrics: a connection could not be taken: {error.strerror}")
                time.sleep(ACCEPT_RETRY_S)  # descriptors may come back
            return
        if len(self._clients) == CLIENTS_MAX:
            self._close_first()
        connection.setblocking(False)
        client = _Client(connection)
        self._clients[client] = None
        self._selector.register(connection, selectors.EVENT_READ, client)

    def _go_on(self, client: _Client) -> None:
        try:
            if not client.unread:
                line = client.receive_line()
                if line is None:
                    return
                self._give_page(client, line)
            client.unread = client.unread[client.socket.send(client.unread) :]
        except BlockingIOError:
            return
        except OSError:
            client.unread = memoryview(b"")
        if not client.unread:
            self._close(client)

    def _give_page(self, client: _Client, line: bytes) -> None:
        readers = [each for each in self._clients if each.unread]
        if len(readers) == PAGES_MAX:
            self._close(readers[0])
        client.unread = memoryview(self._answer(line))
        client.due_s = time.monotonic() + CLIENT_S
        del self._clients[client]
        self._clients[client] = None
        self._selector.modify(client.socket, selectors.EVENT_WRITE, client)

    def _answer(self, line: bytes) -> bytes:
        match line.split():
            case [b"GET", path, *_] if path.partition(b"?")[0] == b"/metrics":
                status, content = self._page()
            case [b"GET", _, *_]:
                status, content = "404 Not Found", b"the metrics are at /metrics\n"
            case _:
                status, content = "400 Bad Request", b"only GET /metrics is answered\n"
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\n"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + content

    def _page(self) -> tuple[str, bytes]:
        try:
            return "200 OK", self._make_page()
        except Exception as error:  # noqa: BLE001 - whatever it is, the broker goes on without
            self._tell(f"metrics: {type(error).__name__}: {error}")
            return "500 Internal Server Error", b"the broker's log says why\n"

    def _close_first(self) -> None:
        self._close(next(iter(self._clients)))

    def _close(self, client: _Client) -> None:
        del self._clients[client]
        self._selector.unregister(client.socket)
        client.socket.close()
