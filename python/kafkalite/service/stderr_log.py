"""The broker's log: lines on stderr for whoever runs it."""

import os
import select
import sys
import threading
import time
from contextlib import suppress
from typing import ClassVar

from kafkalite.timers import wall_ms

SENTENCE_CHARACTERS_MAX = 10_000
"""A line shows so much of a sentence, which may tell what a client has sent."""
DETAILS_CHARACTERS_MAX = 100_000

_CONTROL = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
}
"""Control characters and line separators, and what is written in their place."""


class Log:
    """Lines on stderr: time, level, sentence. Nothing below `level` is written, and nothing while
    stderr has no room or no reader: the broker goes on, also where stderr is a pipe that nobody
    empties. The next line for which there is room says how many were left out.

        text    2026-11-21 03:12:11,123 INFO stopping                                    local time
                    the lines of a traceback                              below, indented
        json    {"time": "2026-11-21T02:12:11.123Z", "level": "INFO", "message": "stopping"}    UTC

    In text a sentence is one line, whatever client ids and names it tells: control characters are
    escaped, so that no client writes lines of its own.
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

    def error(self, sentence: str, details: str = "") -> None:
        """`details` are lines, as those of a traceback."""
        self._write(3, sentence, details)

    def _write(self, rank: int, sentence: str, details: str = "") -> None:
        if rank < self._rank:
            return
        with self._lock:
            self._rest = self._put(self._rest)
            line = self._encode(
                rank,
                _cut(sentence, SENTENCE_CHARACTERS_MAX),
                _cut(details, DETAILS_CHARACTERS_MAX),
            )
            if self._left_out:
                told = f"{self._left_out} line(s) were dropped here: stderr was blocked"
                line = self._encode(self.LEVELS.index("warning"), told) + line
            rest = line if self._rest else self._put(line)
            if len(rest) == len(line):
                self._left_out += 1
                self.room_wait_ms = 0
            else:
                self._left_out, self._rest = 0, rest

    def _encode(self, rank: int, sentence: str, details: str = "") -> bytes:
        now_ms = wall_ms()
        line = self._line(now_ms, self.LEVELS[rank].upper(), sentence, details)
        return f"{line}\n".encode(sys.stderr.encoding, "backslashreplace")

    def _put(self, line: bytes) -> bytes:
        """Writes what stderr has room for, and gives the rest."""
        poll = select.poll()
        poll.register(sys.stderr, select.POLLOUT)
        left = memoryview(line)
        with suppress(OSError):
            # A pipe that may be written has room for so much at least.
            while left and poll.poll(self.room_wait_ms):
                left = left[os.write(sys.stderr.fileno(), left[: select.PIPE_BUF]) :]
        return bytes(left)


def _cut(text: str, characters_max: int) -> str:
    left_out = len(text) - characters_max
    return f"{text[:characters_max]}… ({left_out} more characters)" if left_out > 0 else text


def _text_line(now_ms: int, level: str, sentence: str, details: str) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ms // 1000))
    lines = [f"{stamp},{now_ms % 1000:03d} {level} {sentence.translate(_CONTROL)}"]
    lines += [
        f"    {each.translate(_CONTROL)}" for each in details.rstrip("\n").split("\n") if each
    ]
    return "\n".join(lines)


def _json_line(now_ms: int, level: str, sentence: str, details: str) -> str:
    import json  # here, since a start has 0.15 s

    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms // 1000))
    message = f"{sentence}\n{details}" if details else sentence
    fields = {"time": f"{stamp}.{now_ms % 1000:03d}Z", "level": level, "message": message}
    return json.dumps(fields)  # in ASCII, whatever stderr can write
