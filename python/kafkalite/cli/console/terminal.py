"""Prints for commands: sizes, times, bytes, and progress on a terminal."""

import sys
import time
from collections.abc import Sequence
from shutil import get_terminal_size
from types import TracebackType
from typing import Any, Self

# Progress shows once a command has taken this long, and then as often.
PROGRESS_EVERY_S = 0.5


def size_text(size_bytes: int) -> str:
    """`1536` as `1.5 KiB`."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    size = size_bytes / 1024
    units = ["KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.1f} {units[0]}"


def count_text(count: int, noun: str) -> str:
    """`1 batch`, `2,000 batches`."""
    plural = "es" if noun.endswith(("ch", "x", "s")) else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def time_text(timestamp_ms: int) -> str:
    """Milliseconds since 1970 as `2026-11-21 03:12:11.123Z`; the number if no calendar has it."""
    from datetime import UTC, datetime

    if timestamp_ms == -1:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03}Z"


def json_bytes(value: bytes | None) -> Any:
    """Text as it is; what is no UTF-8 as an object that says so."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def bytes_text(value: bytes | None) -> str:
    """Text in quotes with what does not print escaped, `null`, or `0x…` if it is no UTF-8."""
    if value is None:
        return "null"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    quoted = "".join(
        character if character.isprintable() and character not in '"\\' else _escape(character)
        for character in text
    )
    return f'"{quoted}"'


def _escape(character: str) -> str:
    return f"\\{character}" if character in '"\\' else character.encode("unicode_escape").decode()


def print_table(rows: Sequence[Sequence[object]], widths: Sequence[int] = ()) -> None:
    """Columns, the first row their titles, each as wide as its widest cell, and as `widths` at
    least; a wide character takes two places, as terminals have it."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    least = [*widths, *[0] * (len(texts[0]) - len(widths))]
    wide = [
        max([*map(_places, column), low])
        for column, low in zip(zip(*texts, strict=True), least, strict=True)
    ]
    for row in texts:
        cells = (
            cell + " " * (width - _places(cell)) for cell, width in zip(row, wide, strict=True)
        )
        print(" ".join(cells).rstrip())


def print_listed(head: str, items: Sequence[str], separator: str) -> None:
    """One line, as Kafka's tools have it; on a terminal, which would break it anywhere, as many as
    it takes, broken between two items."""
    if not sys.stdout.isatty():
        print(f"{head} {separator.join(items)}")
        return
    width, lines = get_terminal_size().columns, [f"{head} "]
    for at, item in enumerate(items):
        word = item if at + 1 == len(items) else item + separator
        if at and _places(lines[-1]) + _places(word.rstrip()) > width:
            lines.append("  ")
        lines[-1] += word
    print("\n".join(line.rstrip() for line in lines))


def _places(text: str) -> int:
    """Columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(character) else 1 + (east_asian_width(character) in "WF")
        for character in text
    )


class Progress:
    """One line on stderr that is rewritten, if stderr is a terminal; nothing otherwise."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shows = sys.stderr.isatty()
        self._next = time.monotonic() + PROGRESS_EVERY_S
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def show(self, done_bytes: int, total_bytes: int) -> None:
        """Tells how far it is; cheap to call often."""
        if not self._shows or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PROGRESS_EVERY_S
        share = 100 * done_bytes // total_bytes if total_bytes else 100
        self._write(f"{size_text(done_bytes)} of {size_text(total_bytes)}, {share} %")

    def count(self, done_count: int, noun: str) -> None:
        """As `show`, where nobody knows how much there is in all."""
        if not self._shows or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PROGRESS_EVERY_S
        self._write(count_text(done_count, noun))

    def _write(self, told: str) -> None:
        """In one line of the terminal, since only that can be taken away again."""
        room = max(get_terminal_size().columns - len(told) - 3, 8)
        what = self._what if len(self._what) <= room else f"…{self._what[1 - room :]}"
        sys.stderr.write(f"\r\x1b[K{what}: {told}")
        sys.stderr.flush()
        self._is_shown = True

    def clear(self) -> None:
        """Takes the line away, before something else is printed."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_shown = False
