"""A network between clients and a broker that a test can disturb."""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from enum import StrEnum
from types import TracebackType
from typing import Self

CHUNK_BYTES = 16_384
DELAY_S = 0.2


class Mode(StrEnum):
    """What becomes of the bytes, in both directions but for `MUTE` and `DEAF`."""

    ON = "on"
    DELAY = "delay"
    """They come later."""
    STALL = "stall"
    """They come once the mode is another one."""
    MUTE = "mute"
    """Those of the broker come once the mode is another one; those of its clients go on."""
    DEAF = "deaf"
    """Those of the broker's clients come once the mode is another one; its own go on."""
    SLICE = "slice"
    """They come in small pieces."""
    CUT = "cut"
    """Half of what has come goes on, and the connection ends there."""
    RESET = "reset"
    """Connections are reset, old ones at once and new ones with their first bytes."""


class Proxy:
    """Takes connections at `address` and hands their bytes on to `target`, `host:port`, which may
    be away: then it closes them. Peers may have a mode of their own, such as the other brokers of a
    cluster: they are told apart by the client id of the first request."""

    def __init__(self, seed: int) -> None:
        self.target = ""
        self._draw = random.Random(seed)
        self._mode = Mode.ON
        self._modes: dict[str, Mode] = {}
        self._muting_key = b""
        self._open: set[asyncio.StreamWriter] = set()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def set(self, mode: Mode, peer: str = "") -> None:
        """From now on, for all without a mode of their own; or that of peers whose client id begins
        so, which `ON` takes back."""
        self._loop.call_soon_threadsafe(self._set, mode, peer)

    def mute_from(self, key: int) -> None:
        """`MUTE` from the next request of this API key on, if a client waits before it sends it."""
        self._muting_key = key.to_bytes(2)

    def _set(self, mode: Mode, peer: str = "") -> None:
        if not peer:
            self._mode = mode
        elif mode is Mode.ON:
            self._modes.pop(peer, None)
        else:
            self._modes[peer] = mode
        self._changed.set()
        self._changed = asyncio.Event()
        if mode is Mode.RESET and not peer:
            for each in list(self._open):
                _reset(each)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._connect, sock=self._socket)
        )
        self._loop.run_forever()
        server.close()
        # Connections that have just come are noted as open.
        self._loop.run_until_complete(asyncio.sleep(0))
        for each in list(self._open):
            _reset(each)
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0))  # what was reset closes its socket
        self._loop.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self.target.split(":")
        pair, tasks = [writer], []
        peer: list[str] = []  # its client id, once it has sent a request
        self._open.add(writer)
        try:
            there, to_there = await asyncio.open_connection(host, int(port))
            pair.append(to_there)
            self._open.add(to_there)
            tasks += [
                asyncio.ensure_future(self._hand_on(reader, to_there, peer, is_answer=False)),
                asyncio.ensure_future(self._hand_on(there, writer, peer, is_answer=True)),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass  # the broker is away, or the proxy ends
        finally:
            for task in tasks:
                task.cancel()
            for each in pair:
                self._open.discard(each)
                _reset(each)

    async def _hand_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: list[str],
        *,
        is_answer: bool,
    ) -> None:
        held = (Mode.STALL, Mode.MUTE if is_answer else Mode.DEAF)
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                if not is_answer:
                    peer[:] = peer or [_client_id(chunk)]
                    if chunk[4:6] == self._muting_key:
                        self._muting_key = b""
                        self._set(Mode.MUTE)
                while self._mode_of(peer) in held:
                    await self._changed.wait()
                mode = self._mode_of(peer)
                if mode is Mode.RESET:
                    return
                if mode is Mode.DELAY:
                    await asyncio.sleep(self._draw.uniform(0, DELAY_S))
                pieces = [chunk]
                if mode is Mode.SLICE:
                    size = self._draw.randrange(1, 200)
                    pieces = [chunk[at : at + size] for at in range(0, len(chunk), size)]
                if mode is Mode.CUT:
                    pieces = [chunk[: len(chunk) // 2]]
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    if len(pieces) > 1:
                        await asyncio.sleep(0)
                if mode is Mode.CUT:
                    return

    def _mode_of(self, peer: list[str]) -> Mode:
        for name in peer:
            for prefix, mode in self._modes.items():
                if name.startswith(prefix):
                    return mode
        return self._mode


def _client_id(request: bytes) -> str:
    """That in the header of a request whose first bytes have come."""
    length = int.from_bytes(request[12:14], signed=True)
    return request[14 : 14 + max(length, 0)].decode("latin-1")


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes with a reset: nothing more arrives, and the other side is told so."""
    at = writer.get_extra_info("socket")
    if at is not None and at.fileno() >= 0:
        at.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
