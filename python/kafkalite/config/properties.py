"""Java properties files, as `server.properties` is one (`java.util.Properties.load`)."""

import os
from collections.abc import Iterable

from kafkalite.errors import InvalidArgumentError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Key -> text of a file; a key that comes twice has its last text.

    Raises InvalidArgumentError if the file cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is slow to import
            text = file.read()
    except (OSError, ValueError) as error:  # no text in UTF-8, or a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgumentError(f"{os.fspath(path)} cannot be read: {reason}") from error
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """As `read_properties`, of what such a file holds."""
    # Not `splitlines`, for which a line of Java's may have several ends.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return dict(map(_pair, _logical_lines(lines)))


def _logical_lines(lines: Iterable[str]) -> Iterable[str]:
    """Without comments and empty lines; an odd number of `\\` at the end joins the next line."""
    begun: str | None = None
    for line in lines:
        line = line.lstrip(" \t\f")
        if begun is None and (not line or line[0] in "#!"):
            continue
        whole = (begun or "") + line
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            begun = whole[:-1]
        else:
            yield whole
            begun = None
    if begun is not None:
        yield begun


def _pair(line: str) -> tuple[str, str]:
    """The key ends at the first `=`, `:` or space that has no `\\` in front of it."""
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescaped(line[:end]), _unescaped(rest)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    done, at = [], 0
    while at < len(text):
        each = text[at]
        at += 1
        if each == "\\" and at < len(text):
            each = text[at]
            at += 1
            if each == "u" and len(text) >= at + 4:
                try:
                    each = chr(int(text[at : at + 4], 16))
                    at += 4
                except ValueError:
                    pass
            else:
                each = _ESCAPES.get(each, each)
        done.append(each)
    return "".join(done)
