"""The schema table read a second time, by the tests: messages at random, and a plain encoder.

`read_table` parses `protocol/schema.txt`; `Maker` draws messages of a version (nulls, empty and
long fields, extreme numbers, tags present and absent); `encode` writes them the slow way and
remembers where each length, count, size and tag lies, so that a fuzzer can lie there.
"""

import random
import struct
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from kafkalite.protocol import messages

FORMATS = {
    "bool": ">b",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}
BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
STRINGS = ["", "a", "orders", "Grüße, 世界 🦀", "x" * 127, "y" * 128, "\0", "z" * 20_000]
BLOBS = [b"", b"\0", b"\xff" * 127, bytes(range(256)), b"\x80" * 16_384]


@dataclass(frozen=True)
class Versions:
    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    @staticmethod
    def parse(text: str) -> "Versions":
        if text == "none":
            return Versions(0, -1)
        if text.endswith("+"):
            return Versions(int(text[:-1]), 32767)
        first, _, last = text.partition("-")
        return Versions(int(first), int(last or first))


NEVER = Versions(0, -1)


@dataclass(eq=False)
class Field:
    """One field; `fields` are those of its struct, if it has one."""

    name: str
    kind: str
    is_array: bool
    versions: Versions
    nullable: Versions = NEVER
    tag: int = -1
    tagged: Versions = NEVER
    is_flexible: bool = True
    fields: list["Field"] | None = None


@dataclass(eq=False)
class Schema:
    """A message: `kind` is request, response, header or data; `key` is -1 where there is none."""

    name: str
    kind: str
    key: int
    versions: Versions
    flexible: Versions
    fields: list[Field] = field(default_factory=list)


def read_table() -> dict[str, Schema]:
    """Every message of the table by its name."""
    text = resources.files("kafkalite.protocol").joinpath("schema.txt").read_text("utf-8")
    table: dict[str, Schema] = {}
    inside: list[list[Field]] = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        words = line.split()
        if line.startswith("message "):
            _, name, kind, key, versions, flexible = words
            number = int(key) if key != "-" else -1
            schema = Schema(name, kind, number, Versions.parse(versions), Versions.parse(flexible))
            table[name] = schema
            inside = [schema.fields]
            continue
        depth = len(line) - len(line.lstrip())
        kind = words[1].removeprefix("[]")
        options = dict(word.split("=", 1) for word in words[3:])
        made = Field(
            name=words[0],
            kind="struct" if kind.startswith("{") else kind,
            is_array=words[1].startswith("[]"),
            versions=Versions.parse(words[2]),
            nullable=Versions.parse(options.get("nullable", "none")),
            tag=int(options.get("tag", -1)),
            tagged=Versions.parse(options.get("tagged", "none")),
            is_flexible="flexible" not in options,
            fields=[] if kind.startswith("{") else None,
        )
        del inside[depth:]
        inside[depth - 1].append(made)
        if made.fields is not None:
            inside.append(made.fields)
    return table


class Maker:
    """Draws messages out of one source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def message(self, schema: Schema, version: int) -> Any:
        """A message whose fields of the version are drawn; the others hold their defaults."""
        return self._struct(getattr(messages, schema.name), schema.fields, version, 0)

    def _struct(self, kind: Any, fields: list[Field], version: int, depth: int) -> Any:
        made = kind()
        for index, each in enumerate(fields):
            if version not in each.versions:
                continue
            # A tag that is absent stands for the default, which is as good as any other value.
            if version in each.tagged and self.chance.random() < 0.4:
                continue
            setattr(made, each.name, self._value(each, kind._structs[index], version, depth))
        return made

    def _value(self, of: Field, kind: Any, version: int, depth: int) -> Any:
        if version in of.nullable and self.chance.random() < 0.25:
            return None
        if not of.is_array:
            return self._element(of, kind, version, depth)
        count = self.chance.choice((0, 1, 1, 2, 3) if depth < 2 else (0, 1, 2))
        if of.fields is None and self.chance.random() < 0.02:
            count = 130
        return [self._element(of, kind, version, depth) for _ in range(count)]

    def _element(self, of: Field, kind: Any, version: int, depth: int) -> Any:
        if of.fields is not None:
            return self._struct(kind, of.fields, version, depth + 1)
        return self.primitive(of)

    def primitive(self, of: Field) -> Any:
        """A value for a field without parts."""
        chance = self.chance
        if of.kind == "bool":
            return chance.random() < 0.5
        if of.kind == "float64":
            return chance.choice((0.0, -0.5, 1e300, 5e-324, chance.random()))
        if of.kind == "string":
            return chance.choice(STRINGS)
        if of.kind == "uuid":
            return chance.choice((bytes(16), b"\xff" * 16, chance.randbytes(16)))
        if of.kind in ("bytes", "records"):
            return chance.choice(BLOBS)
        bits = BITS[of.kind]
        low, high = (
            (0, 2**bits - 1) if of.kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        return chance.choice((low, high, 0, 1, max(low, -1), chance.randint(low, high)))


@dataclass(frozen=True)
class Site:
    """Bytes of a frame that say how much follows: `kind` is i16, i32 or uvarint."""

    start: int
    end: int
    kind: str


class Encoded:
    """Bytes on their way, and where in them the lengths are."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.sites: list[Site] = []

    def count(self, value: int, kind: str) -> None:
        start = len(self.content)
        self.content += uvarint(value) if kind == "uvarint" else struct.pack(FORMATS[kind], value)
        self.sites.append(Site(start, len(self.content), kind))


def uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode(schema: Schema, version: int, message: Any) -> Encoded:
    """The body of a message, and its sites."""
    out = Encoded()
    _encode_struct(schema.fields, version, version in schema.flexible, message, out)
    return out


def _encode_struct(
    fields: list[Field], version: int, flexible: bool, value: Any, out: Encoded
) -> None:
    present = [each for each in fields if version in each.versions]
    for each in present:
        if version not in each.tagged:
            _encode_field(each, version, flexible, getattr(value, each.name), out)
    if not flexible:
        return
    fresh = type(value)()
    tagged = [
        each
        for each in sorted(present, key=lambda each: each.tag)
        if version in each.tagged and getattr(value, each.name) != getattr(fresh, each.name)
    ]
    out.count(len(tagged), "uvarint")
    for each in tagged:
        inner = Encoded()
        _encode_field(each, version, True, getattr(value, each.name), inner)
        out.count(each.tag, "uvarint")
        out.count(len(inner.content), "uvarint")
        start = len(out.content)
        out.content += inner.content
        out.sites += [Site(s.start + start, s.end + start, s.kind) for s in inner.sites]


def _encode_field(of: Field, version: int, flexible: bool, value: Any, out: Encoded) -> None:
    compact = flexible and of.is_flexible
    if not of.is_array:
        if of.fields is not None and version in of.nullable:
            out.content += struct.pack(">b", -1 if value is None else 1)
            if value is None:
                return
        _encode_element(of, version, flexible, value, out)
    elif value is None:
        out.count(*((0, "uvarint") if compact else (-1, "int32")))
    else:
        out.count(len(value) + compact, "uvarint" if compact else "int32")
        for element in value:
            _encode_element(of, version, flexible, element, out)


def _encode_element(of: Field, version: int, flexible: bool, value: Any, out: Encoded) -> None:
    compact = flexible and of.is_flexible
    if of.fields is not None:
        _encode_struct(of.fields, version, flexible, value, out)
    elif of.kind == "uuid":
        out.content += value
    elif of.kind in FORMATS:
        out.content += struct.pack(FORMATS[of.kind], value)
    else:
        data = value.encode() if isinstance(value, str) else value
        plain = "int16" if of.kind == "string" else "int32"
        if data is None:
            out.count(*((0, "uvarint") if compact else (-1, plain)))
        else:
            out.count(len(data) + compact, "uvarint" if compact else plain)
            out.content += data
