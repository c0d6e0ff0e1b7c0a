"""Records the frames between clients and a broker: a TCP proxy that keeps what passes.

    python3 tools/record_frames.py --listen 127.0.0.1:9192 --broker 127.0.0.1:9092 > frames.txt

Clients must be told the proxy's address by the broker (`advertised.listeners`), else they go past
it after their first request. One line a frame, in the order in which they passed:

    request|response KEY VERSION HEX

HEX is the frame without its size: header and body. A response has the key and version of the
request with its correlation id. End it with Ctrl-C. Tests use `Recorder` directly.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import struct
import sys
import threading
from typing import NamedTuple


class Frame(NamedTuple):
    """One frame without its size."""

    is_response: bool
    key: int
    version: int
    content: bytes


class Recorder:
    """Listens from its making on; connections go to `target` (host, port), to be set by then."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.target = ("", 0)
        self.frames: list[Frame] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server((host, port))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Ends all connections. Frames that were recorded stay."""
        with self._lock:
            for each in [self._listener, *self._sockets]:
                with contextlib.suppress(OSError):  # it is closed already
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self.target)
            except OSError:
                return
            with self._lock:
                self._sockets += [client, broker]
            asked: dict[int, tuple[int, int]] = {}
            for way in ((client, broker, False), (broker, client, True)):
                threading.Thread(target=self._pass, args=(*way, asked), daemon=True).start()

    def _pass(
        self,
        source: socket.socket,
        sink: socket.socket,
        is_response: bool,
        asked: dict[int, tuple[int, int]],
    ) -> None:
        with contextlib.suppress(OSError), source.makefile("rb") as reader:
            while len(size := reader.read(4)) == 4:
                content = reader.read(struct.unpack(">i", size)[0])
                self._keep(content, is_response, asked)
                sink.sendall(size + content)
        for each in (source, sink):
            with contextlib.suppress(OSError):  # it is closed already
                each.shutdown(socket.SHUT_RDWR)

    def _keep(self, content: bytes, is_response: bool, asked: dict[int, tuple[int, int]]) -> None:
        if is_response:
            key, version = asked.pop(struct.unpack_from(">i", content)[0])
        else:
            key, version, correlation_id = struct.unpack_from(">hhi", content)
            asked[correlation_id] = key, version
        with self._lock:
            self.frames.append(Frame(is_response, key, version, content))


def main() -> int:
    parser = argparse.ArgumentParser(description="Records the frames between clients and a broker.")
    parser.add_argument("--listen", required=True, help="HOST:PORT that clients connect to")
    parser.add_argument("--broker", required=True, help="HOST:PORT of the broker")
    arguments = parser.parse_args()
    host, port = arguments.listen.rsplit(":", 1)
    recorder = Recorder(host, int(port))
    host, port = arguments.broker.rsplit(":", 1)
    recorder.target = (host, int(port))
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        recorder.close()
    for frame in recorder.frames:
        way = "response" if frame.is_response else "request"
        print(way, frame.key, frame.version, frame.content.hex())
    return 0


if __name__ == "__main__":
    sys.exit(main())
