"""Prints records as kafka-console-consumer does, for scripts that were written for it.

    --formatter-property print.key=true     print.timestamp, .partition, .offset, .headers, .value
    --formatter-property key.separator=-    line.separator, headers.separator, null.literal
    --formatter-property value.deserializer=org.apache.kafka.common.serialization.LongDeserializer

The order of the fields is Kafka's, whatever that of the properties. `print.epoch` and
`print.delivery` say NOT_PRESENT, as in Kafka, whose console consumer knows neither.

Source: `org.apache.kafka.tools.consumer.DefaultMessageFormatter`, 4.3.1.
"""

import os
import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkalite.cli.options import UsageError, print_error
from kafkalite.client.consumer.fetched import Row

__all__ = ["TIMESTAMP_TYPES", "formatter"]

Print = Callable[[str, int, Row], bytes]
Deserialize = Callable[[bytes], bytes]

TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
CLASSES = "org.apache.kafka.tools.consumer."
DEFAULT, NO_OP = "DefaultMessageFormatter", "NoOpMessageFormatter"
SERIALIZATION = "org.apache.kafka.common.serialization."
FLAGS = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
"""In the order in which the fields are printed."""


def _number(form: str, name: str) -> Deserialize:
    unpack = struct.Struct(form)

    def read(data: bytes) -> bytes:
        if len(data) != unpack.size:
            raise ValueError(f"{len(data)} bytes are not the {unpack.size} of {name}")
        return str(unpack.unpack(data)[0]).encode()

    return read


def _boolean(data: bytes) -> bytes:
    words = {b"\0": b"false", b"\1": b"true"}
    if data not in words:
        raise ValueError("BooleanDeserializer reads one byte, 0 or 1")
    return words[data]


DESERIALIZERS: dict[str, Deserialize] = {
    "StringDeserializer": lambda data: data.decode(errors="replace").encode(),
    "LongDeserializer": _number(">q", "LongDeserializer"),
    "IntegerDeserializer": _number(">i", "IntegerDeserializer"),
    "ShortDeserializer": _number(">h", "ShortDeserializer"),
    "BooleanDeserializer": _boolean,
}


class _Format(NamedTuple):
    """Checked properties."""

    fields: tuple[str, ...]
    separator: bytes
    line_end: bytes
    headers_separator: bytes
    null: bytes
    deserializers: Mapping[str, Deserialize]
    """By what they read: key, value, headers."""


def formatter(name: str | None, properties: Mapping[str, str]) -> Print:
    """The function that makes the bytes of a record, whose ValueError says which field cannot be
    read. Raises `UsageError` for a class of Java's that is not here."""
    kind = (name or DEFAULT).removeprefix(CLASSES)
    if kind == NO_OP:
        return lambda topic, partition, row: b""  # noqa: ARG005
    if kind != DEFAULT:
        raise UsageError(f"--formatter {name}: there is {CLASSES}{DEFAULT}, and {NO_OP} beside it")
    form = _checked(properties)

    def print_row(topic: str, partition: int, row: Row) -> bytes:
        del topic
        return _row(form, partition, row)

    return print_row


def _checked(properties: Mapping[str, str]) -> _Format:
    wanted = {"value": True}
    texts = {
        "key.separator": b"\t",
        "line.separator": b"\n",
        "headers.separator": b",",
        "null.literal": b"null",
    }
    deserializers: dict[str, Deserialize] = {}
    for name, text in properties.items():
        head, _, field = name.partition(".")
        if head == "print" and field in FLAGS:
            wanted[field] = text.strip().lower() == "true"
        elif name in texts:
            texts[name] = os.fsencode(text)
        elif field == "deserializer" and head in ("key", "value", "headers"):
            deserializers[head] = _deserializer(name, text)
        else:
            print_error(f"the formatter property {name} is not supported and is ignored")
    return _Format(
        tuple(each for each in FLAGS if wanted.get(each)),
        texts["key.separator"],
        texts["line.separator"],
        texts["headers.separator"],
        texts["null.literal"],
        deserializers,
    )


def _deserializer(name: str, text: str) -> Deserialize:
    found = DESERIALIZERS.get(text.removeprefix(SERIALIZATION))
    if found is None:
        known = ", ".join(DESERIALIZERS)
        raise UsageError(f"{name}={text}: classes of Java do not run here, there is {known}")
    return found


def _row(form: _Format, partition: int, row: Row) -> bytes:
    pieces = []
    for field in form.fields:
        pieces += [_field(form, field, partition, row), form.separator]
    if pieces:
        pieces[-1] = form.line_end
    return b"".join(pieces)


def _field(form: _Format, field: str, partition: int, row: Row) -> bytes:
    offset, timestamp, timestamp_type, key, value, headers = row
    match field:
        case "key":
            return _content(form, field, key)
        case "value":
            return _content(form, field, value)
        case "headers":
            pairs = (name + b":" + _content(form, field, content) for name, content in headers)
            return form.headers_separator.join(pairs) if headers else b"NO_HEADERS"
        case "timestamp":
            kind = TIMESTAMP_TYPES.get(timestamp_type)
            return b"NO_TIMESTAMP" if kind is None else f"{kind}:{timestamp}".encode()
        case "partition":
            return b"Partition:%d" % partition
        case "offset":
            return b"Offset:%d" % offset
        case _:
            return field.capitalize().encode() + b":NOT_PRESENT"


def _content(form: _Format, field: str, data: bytes | None) -> bytes:
    """Without a deserializer the bytes as they are."""
    if data is None:
        return form.null
    read = form.deserializers.get(field)
    if read is None:
        return data
    try:
        return read(data)
    except ValueError as error:
        raise ValueError(f"the {field} cannot be read: {error}") from error
