"""The broker's log: lines on stderr for whoever runs it."""

import os
import select
import sys
import threading
import time
from contextlib import suppress
from typing import ClassVar


class Log:
    """Lines on stderr: time, level, sentence. Nothing below `level` is written, and nothing while
    stderr has no room or no reader: the broker goes on, also where stderr is a pipe that nobody
    empties. The next line for which there is room says how many were left out.

        text    2026-11-21 03:12:11,123 INFO stopping                                    local time
        json    {"time": "2026-11-21T02:12:11.123Z", "level": "INFO", "message": "stopping"}    UTC
    """

    LEVELS: ClassVar[tuple[str, ...]] = ("debug", "info", "warning", "error")
    FORMATS: ClassVar[tuple[str, ...]] = ("text", "json")

    def __init__(self, level: str, form: str = "text") -> None:
        self._rank = self.LEVELS.index(level)
        self._line = {"text": _text_line, "json": _json_line}[form]
        self.room_wait_ms = 1000
        """How long a line waits for room. A reader may be slow, for which the start waits once;
        clients do not."""
        self._left_out = 0
        self._rest = b""
        """The rest of a long line that has been begun."""
        self._lock = threading.Lock()
        """Held while a line is written, so that lines do not mix."""

    @property
    def level(self) -> str:
        """The least level that is written."""
        return self.LEVELS[self._rank]

    def set_level(self, level: str) -> None:
        """Nothing below `level` is written from now on."""
        self._rank = self.LEVELS.index(level)

    @property
    def is_debug(self) -> bool:
        """True if `debug` writes: what it is told costs something to put together."""
        return self._rank == 0

    def debug(self, sentence: str) -> None:
        self._write(0, sentence)

    def info(self, sentence: str) -> None:
        self._write(1, sentence)

    def warning(self, sentence: str) -> None:
        self._write(2, sentence)

    def error(self, sentence: str) -> None:
        self._write(3, sentence)

    def _write(self, rank: int, sentence: str) -> None:
        if rank < self._rank:
            return
        with self._lock:
            self._rest = self._put(self._rest)
            line = self._encode(rank, sentence)
            if self._left_out:
                told = f"{self._left_out} line(s) are left out here: stderr had no room"
                line = self._encode(self.LEVELS.index("warning"), told) + line
            rest = line if self._rest else self._put(line)
            if rest == line:
                self._left_out += 1
                self.room_wait_ms = 0
            else:
                self._left_out, self._rest = 0, rest

    def _encode(self, rank: int, sentence: str) -> bytes:
        line = self._line(time.time_ns() // 1_000_000, self.LEVELS[rank].upper(), sentence)
        return f"{line}\n".encode(sys.stderr.encoding, "backslashreplace")

    def _put(self, line: bytes) -> bytes:
        """Writes what stderr has room for, and gives the rest."""
        poll = select.poll()
        poll.register(sys.stderr, select.POLLOUT)
        with suppress(OSError):
            # A pipe that may be written has room for so much at least.
            while line and poll.poll(self.room_wait_ms):
                line = line[os.write(sys.stderr.fileno(), line[: select.PIPE_BUF]) :]
        return line


def _text_line(now_ms: int, level: str, sentence: str) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ms // 1000))
    return f"{stamp},{now_ms % 1000:03d} {level} {sentence}"


def _json_line(now_ms: int, level: str, sentence: str) -> str:
    import json  # here, since a start has 0.15 s

    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms // 1000))
    fields = {"time": f"{stamp}.{now_ms % 1000:03d}Z", "level": level, "message": sentence}
    return json.dumps(fields)  # in ASCII, whatever stderr can write
