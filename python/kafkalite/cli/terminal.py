"""What commands print with: sizes, times, bytes, and progress on a terminal."""

import sys
import time
from types import TracebackType
from typing import Self

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
        told = f"{self._what}: {size_text(done_bytes)} of {size_text(total_bytes)}, {share} %"
        sys.stderr.write(f"\r\x1b[K{told}")
        sys.stderr.flush()
        self._is_shown = True

    def count(self, done_count: int, noun: str) -> None:
        """As `show`, where nobody knows how much there is in all."""
        if not self._shows or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PROGRESS_EVERY_S
        sys.stderr.write(f"\r\x1b[K{self._what}: {count_text(done_count, noun)}")
        sys.stderr.flush()
        self._is_shown = True

    def clear(self) -> None:
        """Takes the line away, before something else is printed."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_shown = False
