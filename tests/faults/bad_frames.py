"""Frames that are wrong in a way that knows the format: a valid request, and what is done to it."""

import random
import struct
from collections.abc import Iterator, Sequence

from api.raw import header_is_tagged
from golden.table import Encoded, Field, Maker, Schema, Site, encode, uvarint

LIES = {
    "int16": [-1, -2, -(2**15), 0, 1, 2**15 - 1],
    "int32": [-1, -2, -(2**31), 0, 1, 2**16, 2**31 - 1],
}
# As bytes: also what is longer than any number, and what never ends.
UVARINT_LIES = [
    *[uvarint(value) for value in (0, 1, 2, 2**14, 2**31 - 1, 2**31, 2**32 - 1)],
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x80",
]
FORMATS = {"int16": ">h", "int32": ">i"}


# What stands in requests that get further than the first look-up.
WORDS = [
    *("1", "-1", "0", "9223372036854775807", "", "true", "delete", "compact"),
    *("retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes", "flush.messages"),
    *("consumer", "range", "classic", "Stable", "group.version", "metadata.version"),
]


class QuietMaker(Maker):
    """Draws requests that wait for nothing: a wait that was asked for is no hang.

    With `known`, names and ids that the broker has, most requests get past the first look-up.
    """

    def __init__(self, chance: random.Random, known: Sequence[str | bytes] = ()) -> None:
        super().__init__(chance)
        self.names = [each for each in known if isinstance(each, str)]
        self.ids = [each for each in known if isinstance(each, bytes)]

    def primitive(self, of: Field) -> object:
        draw = self.chance.random()
        if self.names and draw < 0.8:
            if of.kind == "string":
                return self.chance.choice(self.names if draw < 0.5 else WORDS)
            if of.kind == "uuid":
                return self.chance.choice(self.ids)
            if of.kind.startswith("int"):
                return self.chance.choice((0, 0, 1, 2, 4, -1))
        return super().primitive(of)

    def message(self, schema: Schema, version: int) -> object:
        made = super().message(schema, version)
        for name in ("max_wait_ms", "timeout_ms"):
            if hasattr(made, name):
                setattr(made, name, 10)
        if schema.name == "JoinGroupRequest" and not self.names:
            made.group_id = f"bad-{self.chance.getrandbits(64):x}"
        return made


def header(schema: Schema, version: int, correlation_id: int) -> bytes:
    """A request's header, with tagged fields where the version has them."""
    plain = struct.pack(">hhih3s", schema.key, version, correlation_id, 3, b"bad")
    return plain + (b"\0" if header_is_tagged(schema.key, version, False) else b"")


def bad_bodies(
    schema: Schema,
    version: int,
    chance: random.Random,
    each: int,
    known: Sequence[str | bytes] = (),
) -> Iterator[tuple[str, bytes]]:
    """Bodies of a version with a word about each: the valid one first, `each` of every kind."""
    maker = QuietMaker(chance, known)
    made = encode(schema, version, maker.message(schema, version))
    whole = bytes(made.content)
    yield "valid", whole
    for _ in range(each if known else 0):
        yield "valid", bytes(encode(schema, version, maker.message(schema, version)).content)
    for length in sorted({chance.randrange(len(whole) + 1) for _ in range(each)}):
        yield f"cut at {length}", whole[:length]
    for site in chance.sample(made.sites, min(each, len(made.sites))):
        for lie in chance.sample(_lies(site), min(each, len(_lies(site)))):
            yield f"{site} says {lie.hex()}", _with(made, site, lie)
    for _ in range(each):
        changed = bytearray(whole or b"\0")
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        yield "changed bytes", bytes(changed)
    yield "random bytes", chance.randbytes(chance.randint(1, 200))
    yield "bytes behind", whole + chance.randbytes(chance.randint(1, 50))
    other = encode(schema, version, maker.message(schema, version)).content
    yield "two halves", whole[: len(whole) // 2] + bytes(other[len(other) // 2 :])


def _lies(site: Site) -> list[bytes]:
    if site.kind == "uvarint":
        return UVARINT_LIES
    return [struct.pack(FORMATS[site.kind], value) for value in LIES[site.kind]]


def _with(made: Encoded, site: Site, lie: bytes) -> bytes:
    return bytes(made.content[: site.start]) + lie + bytes(made.content[site.end :])
