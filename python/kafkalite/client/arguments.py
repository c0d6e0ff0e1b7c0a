"""Checks what programs give to the public functions. A wrong type is a TypeError that names the
argument; one that Python would let by, above all a text where several are meant, is what was meant.
"""

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from operator import index
from typing import Any, NamedTuple, SupportsIndex

from kafkalite.errors import InvalidArgumentError

Bytes = bytes | bytearray | memoryview
Offset = int | datetime
Offsets = (
    Offset
    | Mapping[int, Offset]
    | Mapping[str, Offset]
    | Mapping[tuple[str, int], Offset]
    | Mapping[int | str | tuple[str, int], Offset]
    | None
)
"""The types that `offsets` takes. The kinds of keys stand alone too: a `dict[str, int]` is no
mapping of several kinds to type checkers."""
SHORT_TEXT_BYTES_MAX = 2**15 - 1
"""Before most texts the protocol has their length as an int16."""
INT_MAX = 2**31 - 1
OFFSET_MAX = TIMESTAMP_MAX = 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OffsetOfTime(NamedTuple):
    """Stands for the offset of the first record at or after a time, or the end without one."""

    timestamp_ms: int


def wrong_type(name: str, given: object, wanted: str) -> TypeError:
    """The error for an argument of another type than the wanted one."""
    return TypeError(f"{name} is of type {type(given).__name__}, it must be {wanted}")


def text(name: str, given: object) -> str:
    """A str, and nothing else. Raises TypeError."""
    if not isinstance(given, str):
        raise wrong_type(name, given, "str")
    return given


def texts(name: str, given: object) -> list[str]:
    """Several texts; a single one is itself, not its letters. Raises TypeError."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise wrong_type(name, given, "str, or several in a list")
    return [text(f"an element of {name}", each) for each in given]


def short_text(name: str, given: object) -> str:
    """A text with room in the protocol: names of topics, groups and clients. Raises TypeError;
    InvalidArgumentError for what is too long or is no text that can be written in bytes."""
    given = text(name, given)
    try:
        size = len(given.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{name} {given[:100]!r} cannot be written in UTF-8") from error
    if size > SHORT_TEXT_BYTES_MAX:
        raise InvalidArgumentError(
            f"{name} has {size} bytes, Kafka's protocol has room for {SHORT_TEXT_BYTES_MAX}"
        )
    return given


def short_texts(name: str, given: object) -> list[str]:
    """Several; a single one is itself. Raises as `short_text` does."""
    return [short_text(f"an element of {name}", each) for each in texts(name, given)]


def directory(name: str, given: object) -> str:
    """A path, in which a `~` is the user's home. Raises TypeError; InvalidArgumentError for ""."""
    if not isinstance(given, str | bytes | os.PathLike):
        raise wrong_type(name, given, "a path")
    path = os.fsdecode(given)
    if not path:
        raise InvalidArgumentError(f"{name} is empty, it must be a path")
    return os.path.expanduser(path)  # noqa: PTH111 - a Path would take "./orders" apart


def real_path(name: str, given: object) -> str:
    """As `directory`, absolute and without symbolic links. Raises InvalidArgumentError for a
    relative path where the current directory has been deleted."""
    path = directory(name, given)
    try:
        return os.path.realpath(path)
    except FileNotFoundError as error:
        raise InvalidArgumentError(
            f"{name} {path} is relative, and the current directory has been deleted"
        ) from error


def whole(name: str, given: object, low: int | None = None, high: int | None = None) -> int:
    """A whole number, numpy's too, which True is not. Raises TypeError; InvalidArgumentError below
    `low` and above `high`."""
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        raise wrong_type(name, given, "int, milliseconds" if name.endswith("_ms") else "int")
    number = index(given)
    if low is not None and number < low:
        raise InvalidArgumentError(f"{name}={number} is less than {low}")
    if high is not None and number > high:
        raise InvalidArgumentError(f"{name}={number} is more than {high}")
    return number


def int32(name: str, given: object, low: int) -> int:
    """One of Kafka's settings of 32 bits: sizes and times in milliseconds. Raises as `whole`."""
    return whole(name, given, low, INT_MAX)


def flag(name: str, given: object) -> bool:
    """True or False, and nothing that is one or the other to an `if`. Raises TypeError."""
    if not isinstance(given, bool):
        raise wrong_type(name, given, "bool")
    return given


def choice(name: str, given: object, choices: Iterable[str]) -> str:
    """One of a few words. Raises TypeError, InvalidArgumentError."""
    word = text(name, given)
    *others, last = choices
    if word not in (*others, last):
        raise InvalidArgumentError(f"unknown {name} '{word}': it is {', '.join(others)} or {last}")
    return word


def header_pairs(given: object) -> list[tuple[str, bytes | None]]:
    """The headers of a record. Raises TypeError, InvalidArgumentError."""
    if given is None:
        return []
    if not isinstance(given, Iterable):
        raise wrong_type("headers", given, "a list of pairs of a text and bytes")
    return [header(each) for each in given]


def pair(name: str, given: object) -> tuple[str, int]:
    """A pair of a topic and a partition. Raises TypeError."""
    match given:
        case (str(topic), number) if not isinstance(number, bool):
            if isinstance(number, SupportsIndex):
                return short_text(f"a topic in {name}", topic), index(number)
    verb = "has" if name.endswith("s") else "is"
    raise TypeError(f"{name} {verb} {given!r}, which is no pair of topic and partition")


def pairs(name: str, given: object) -> list[tuple[str, int]]:
    """Pairs of a topic and a partition. Raises TypeError."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        wanted = "a list of pairs of topic and partition, as ('orders', 0)"
        raise wrong_type(name, given, wanted)
    return [pair(name, each) for each in given]


def offsets_by_pair(name: str, given: object, low: int | None = None) -> dict[tuple[str, int], int]:
    """Offsets by pairs of topic and partition. Raises as `whole` does."""
    return {
        pair(name, place): whole(f"{name}[{place!r}]", offset, low, OFFSET_MAX)
        for place, offset in mapping(name, given).items()
    }


def replica_lists(name: str, given: object) -> list[list[int]]:
    """The broker ids of each new partition. Raises TypeError."""
    wanted = "a list that has a list of broker ids for each partition, as [[1], [1]]"
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise wrong_type(name, given, wanted)
    lists = []
    for each in given:
        if not isinstance(each, Iterable) or isinstance(each, str | bytes):
            raise wrong_type(name, given, wanted)
        lists.append([int32(f"a broker id in {name}", broker_id, -1) for broker_id in each])
    return lists


def mapping(name: str, given: object) -> Mapping[Any, Any]:
    """Raises TypeError for what is no mapping."""
    if not isinstance(given, Mapping):
        raise wrong_type(name, given, "a mapping, as a dict is")
    return given


def resource_kind(name: str, given: object) -> int:
    """A type of resources. Raises as `whole`: it is an int8 in the protocol."""
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        raise wrong_type(name, given, "int: TOPIC, BROKER or GROUP of kafkalite.client.admin")
    return whole(name, given, 0, 127)


def config_texts(name: str, given: object) -> dict[str, str]:
    """Configurations by name, as texts; numbers and flags are written as Kafka writes them. Raises
    TypeError."""
    return {
        text(f"a name in {name}", key): config_text(f"{name}[{key!r}]", value)
        for key, value in mapping(name, given).items()
    }


def config_text(name: str, given: object) -> str:
    """The text of one value. Raises TypeError."""
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, int | float):
        return str(given)
    if not isinstance(given, str):
        hint = f": {','.join(map(str, given))!r} is a list" if isinstance(given, list) else ""
        raise wrong_type(name, given, f"str, int, float or bool{hint}")
    return given


def bytes_of(name: str, given: object) -> bytes | None:
    """Raises TypeError for what is no buffer of bytes."""
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    hint = ": .encode() makes them of a text" if isinstance(given, str) else ""
    raise wrong_type(name, given, f"bytes{hint}")


def header(given: object) -> tuple[str, bytes | None]:
    """Raises TypeError for what is no pair of a text and bytes, InvalidArgumentError for a text
    that cannot be written in bytes."""
    match given:
        case (str(name), content):
            try:
                name.encode()
                return name, bytes_of(f"the header {name!r}", content)
            except UnicodeEncodeError as error:
                sentence = f"the header {name[:100]!r} cannot be written in UTF-8"
                raise InvalidArgumentError(sentence) from error
    raise TypeError(f"headers has {given!r}, which is no pair of a text and bytes")


def offsets(name: str, given: object) -> int | OffsetOfTime | dict[str, int | OffsetOfTime] | None:
    """An offset or a time for every partition; or one each, by `orders-0` or partition, or by the
    tuple of both. Raises TypeError, and InvalidArgumentError for a time without a zone."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return {
            _partition_name(name, place): _offset(f"{name}[{place!r}]", each)
            for place, each in given.items()
        }
    return _offset(name, given, ", or a mapping with one a partition")


def _offset(name: str, given: object, otherwise: str = "") -> int | OffsetOfTime:
    if isinstance(given, datetime):
        return OffsetOfTime(timestamp_ms(name, given))
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        wanted = f"an offset: an int, or a datetime with its time zone{otherwise}"
        raise wrong_type(name, given, wanted)
    return min(index(given), OFFSET_MAX)


def _partition_name(name: str, place: object) -> str:
    match place:
        case bool():
            pass
        case str() | SupportsIndex():
            return str(place)
        case (str(topic), int(partition)):
            return f"{topic}-{partition}"
    raise wrong_type(f"{place!r} in {name}", place, 'a partition, as 0 or "orders-0" is')


def timestamp_ms(name: str, given: object) -> int:
    """Milliseconds since 1970, or a datetime that says its zone. Raises TypeError, and
    InvalidArgumentError for one that does not."""
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise InvalidArgumentError(
                f"{name}={given.isoformat()} does not say its time zone: .astimezone() takes it "
                "for local time, .replace(tzinfo=datetime.UTC) for UTC"
            )
        since = given - EPOCH
        # Below 0 are Kafka's names for the latest offset and the like.
        return max(0, (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000)
    return whole(name, given)
