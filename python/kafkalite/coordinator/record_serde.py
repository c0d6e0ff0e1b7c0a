"""The records of coordinators' topics: kind and message, both ways, by the schema table.

key     kind: int16, then a message of that kind, version 0
value   version: int16, then the message; null is a tombstone

Kinds and versions that are not in the table are left in the log as they are: a newer broker has
written them, and may read them again.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkalite import _native
from kafkalite.errors import MalformedRequestError
from kafkalite.protocol import messages

Record = tuple[bytes, bytes | None]
"""Key and value."""

_SHORT: Final = struct.Struct(">h")


class Unread(NamedTuple):
    """A value that is there and cannot be read here: of a version that is not known, or torn."""

    data: bytes
    why: str


class CoordinatorRecord(NamedTuple):
    """A record taken apart. `value` is None for a tombstone."""

    kind: int
    key: Any
    value: Any


_Codec = tuple[
    bytes,
    Callable[[Any, int], bytes],
    Callable[[Any, int], bytes],
    Callable[[bytes, int], Any],
    Callable[[bytes, int], Any],
    Sequence[bytes],
]
"""The kind as keys begin; what writes key and value, and what reads them; each version as values
begin. A plain tuple, which is unpacked for each record."""


class RecordSerde:
    """The kinds of records of one topic: number -> names of key and value in the schema table."""

    def __init__(self, kinds: Mapping[int, tuple[str, str]]) -> None:
        self._names = dict(kinds)
        self._codecs: dict[int, _Codec] = {}
        """By kind, of those that have come up."""

    def record(
        self, kind: int, key: tuple[Any, ...], value: Any | None, version: int = 0
    ) -> Record:
        """Key and value of a record. `key` is a tuple of fields, `value` one or a message; None is
        a tombstone."""
        head, pack_key, pack_value, _, _, versions = self._codecs.get(kind) or self._make(kind)
        if value is None:
            return head + pack_key(key, 0), None
        return head + pack_key(key, 0), versions[version] + pack_value(value, version)

    def read(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord | int:
        """Takes a record apart; gives the number of a kind that is not in the table. A value that
        cannot be read is `Unread`.

        Raises MalformedRequestError where a key of a known kind cannot be read, or has no kind.
        """
        if key is None or len(key) < 2:
            raise MalformedRequestError("a record without a kind")
        kind: int = _SHORT.unpack_from(key)[0]
        if kind not in self._names:
            return kind
        _, _, _, read_key, read_value, versions = self._codecs.get(kind) or self._make(kind)
        read = read_key(key[2:], 0)
        if value is None:
            return CoordinatorRecord(kind, read, None)
        if len(value) < 2:
            return CoordinatorRecord(kind, read, Unread(value, "a value without a version"))
        version: int = _SHORT.unpack_from(value)[0]
        if not 0 <= version < len(versions):
            why = f"a value of version {version}, which is not known"
            return CoordinatorRecord(kind, read, Unread(value, why))
        try:
            return CoordinatorRecord(kind, read, read_value(value[2:], version))
        except MalformedRequestError as error:
            return CoordinatorRecord(kind, read, Unread(value, str(error)))

    def _make(self, kind: int) -> _Codec:
        key_name, value_name = self._names[kind]
        key, value = getattr(messages, key_name), getattr(messages, value_name)
        _, _, version_max, _ = _native.message_versions(value_name)
        versions = tuple(_SHORT.pack(version) for version in range(version_max + 1))
        made = (_SHORT.pack(kind), key.pack, value.pack, key.decode, value.decode, versions)
        self._codecs[kind] = made
        return made
