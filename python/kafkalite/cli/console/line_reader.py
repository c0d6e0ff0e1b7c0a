"""Makes records of lines as kafka-console-producer does, for scripts that were written for it.

    --reader-property parse.key=true           key.separator
    --reader-property parse.headers=true       headers.delimiter, .separator, .key.separator
    --reader-property null.marker=NULL         ignore.error

    h1:v1,h2:v2 HEADERS.DELIMITER key KEY.SEPARATOR value

`headers.separator` is a regular expression, as in Kafka. Bytes that are no UTF-8 stay as they are.

Source: `org.apache.kafka.tools.LineMessageReader`, 4.3.1.
"""

import os
import re
from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

from kafkalite.cli.options import UsageError, print_error, regular_expression

__all__ = ["CLASS", "LineReader", "Parts"]

CLASS = "org.apache.kafka.tools.LineMessageReader"
FLAGS = ("parse.key", "parse.headers", "ignore.error")
DEFAULTS = {
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
}
HEADERS = tuple(name for name in DEFAULTS if name.startswith("headers."))
# Which of these may not be equal; Kafka lets key.separator be the same as headers.delimiter.
EXCLUSIVE = [*combinations(HEADERS, 2), *(("null.marker", name) for name in DEFAULTS)]

Headers = list[tuple[str, bytes | None]]


class Parts(NamedTuple):
    """A record before it is sent."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


class LineReader:
    """Reads a line's key, value and headers, as the properties say."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises `UsageError` for separators that contradict each other."""
        texts = dict(DEFAULTS)
        flags = dict.fromkeys(FLAGS, False)
        marker: str | None = None
        for name, text in properties.items():
            if name in flags:
                flags[name] = text.strip().lower() == "true"
            elif name in texts:
                texts[name] = text
            elif name == "null.marker":
                marker = text
            else:
                print_error(f"the reader property {name} is not supported and is ignored")
        self._parses_key, self._parses_headers, self._ignores_error = flags.values()
        told = texts if marker is None else {**texts, "null.marker": marker}
        for one, other in EXCLUSIVE:
            if one in told and told[one] == told[other]:
                raise UsageError(f"{one} and {other} may not be equal")
        self._marker = None if marker is None else os.fsencode(marker)
        self._key_separator = os.fsencode(texts["key.separator"])
        self._delimiter = os.fsencode(texts["headers.delimiter"])
        self._header_key_separator = os.fsencode(texts["headers.key.separator"])
        regular_expression(texts["headers.separator"])
        self._headers_separator = re.compile(os.fsencode(texts["headers.separator"]))

    def read(self, line: bytes) -> Parts:
        """Raises ValueError for a line that lacks a separator."""
        headers: bytes | None
        key: bytes | None
        headers, rest = self._cut(self._parses_headers, line, self._delimiter, "headers delimiter")
        key, value = self._cut(self._parses_key, rest, self._key_separator, "key separator")
        found = [] if headers is None or headers == self._marker else self._headers(headers)
        return Parts(self._or_null(value), self._or_null(key), found, None, None)

    def _cut(
        self, is_wanted: bool, text: bytes, separator: bytes, name: str
    ) -> tuple[bytes | None, bytes]:
        """Splits at a separator: the part before it and the part behind it; None for nothing."""
        if not is_wanted:
            return None, text
        at = text.find(separator)
        if at >= 0:
            return text[:at], text[at + len(separator) :]
        if self._ignores_error:
            return None, text
        raise ValueError(f"no {name} '{os.fsdecode(separator)}' in it")

    def _or_null(self, text: bytes | None) -> bytes | None:
        return None if text == self._marker else text

    def _headers(self, text: bytes) -> Headers:
        headers: Headers = []
        for pair in _split(self._headers_separator, text):
            at = pair.find(self._header_key_separator)
            shown = pair.decode(errors="replace")
            if at < 0 and not self._ignores_error:
                separator = os.fsdecode(self._header_key_separator)
                raise ValueError(f"no header key separator '{separator}' in '{shown}'")
            if at < 0:
                headers.append((pair.decode(), None))
                continue
            if pair[:at] == self._marker:
                raise ValueError(f"the key of the header '{shown}' is the null marker")
            content = pair[at + len(self._header_key_separator) :]
            headers.append((pair[:at].decode(), self._or_null(content)))
        return headers


def _split(pattern: re.Pattern[bytes], text: bytes) -> list[bytes]:
    """As Java's `Pattern.split`: without empty pieces at the end, nor one of no width before the
    first byte; the whole text where nothing matches."""
    pieces, start = [], 0
    for match in pattern.finditer(text):
        if match.end() == 0:
            continue
        pieces.append(text[start : match.start()])
        start = match.end()
    if not pieces:
        return [text]
    pieces.append(text[start:])
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces
