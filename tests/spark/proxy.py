"""A way to a broker that ends in the middle: everything is handed on, up to so many bytes from the
broker; then all connections are cut and new ones are refused, as if the broker had gone."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

CHUNK_BYTES = 16_384


class CutProxy:
    """Listens on a free port of 127.0.0.1 from the start on; `to` names the broker later, since
    its configuration has to say the proxy's port."""

    def __init__(self, bytes_max: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_cut = False
        self._left = bytes_max
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._target = ("127.0.0.1", 0)

    def to(self, bootstrap_servers: str) -> None:
        """From now on connections are taken."""
        host, port = bootstrap_servers.split(":")
        self._target = (host, int(port))
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cut()
        for each in self._threads:
            each.join(10)
        for one in self._sockets:
            one.close()

    def _start(self, work: "object", *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._target)
                with self._lock:
                    self._sockets += [client, broker]
                self._start(self._ask, client, broker)
                self._start(self._answer, broker, client)

    def _ask(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := client.recv(CHUNK_BYTES):
                broker.sendall(chunk)
            broker.shutdown(socket.SHUT_WR)

    def _answer(self, broker: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := broker.recv(CHUNK_BYTES):
                with self._lock:
                    self._left -= len(chunk)
                    is_over = self._left < 0
                if is_over:
                    self._cut()
                client.sendall(chunk)
            client.shutdown(socket.SHUT_WR)

    def _cut(self) -> None:
        with self._lock:
            self.is_cut = True
            open_now = list(self._sockets)
        for each in (self._listener, *open_now):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._listener.close()
