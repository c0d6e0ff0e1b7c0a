"""Offsets of partitions, and where a stream is: the words in which options, plans and checkpoints
are put.

    offsets         {("orders", 0): 17}: the next record of each partition; in JSON as Spark's
                    connector writes it, {"orders":{"0":17}}, -1 for latest and -2 for earliest
    position        offsets with the ids of their topics, {"orders":{"0":17},"orders:<id>":{}}
    bound           earliest, latest, offsets or timestamps, as an option says it
    range           topic, partition, start, stop (exclusive): what one Spark task reads
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from kafkalite.errors import InvalidArgumentError

__all__ = [
    "EARLIEST",
    "LATEST",
    "OFFSET_MAX",
    "Bound",
    "Offsets",
    "Partition",
    "Position",
    "Range",
    "name_of",
    "names_of",
    "offsets_from_json",
    "offsets_from_text",
    "offsets_to_json",
    "remade",
    "same_topics",
]

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]

# In place of an offset, as in the connector's JSON.
LATEST, EARLIEST = -1, -2
OFFSET_MAX = (1 << 63) - 1


class Range(NamedTuple):
    """Offsets `start .. stop` of a partition."""

    topic: str
    partition: int
    start: int
    stop: int

    @property
    def topic_partition(self) -> Partition:
        """The partition that it is of."""
        return self.topic, self.partition

    @property
    def size(self) -> int:
        """How many offsets, of which compaction and transactions may have left fewer records."""
        return self.stop - self.start


class Bound(NamedTuple):
    """Where reading starts or stops, as the options say it.

    `by_partition` holds offsets or timestamps (milliseconds), `timestamp` one for all partitions.
    """

    kind: Literal["earliest", "latest", "offsets", "timestamps", "timestamp"]
    option: str
    by_partition: Offsets
    timestamp: int


def name_of(partition: Partition) -> str:
    """`orders-0`."""
    return f"{partition[0]}-{partition[1]}"


def names_of(partitions: Iterable[Partition]) -> str:
    """`orders-0, orders-1`, in order."""
    return ", ".join(name_of(partition) for partition in sorted(partitions))


def offsets_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """As the connector writes offsets into its checkpoints."""
    found: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        found.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return found


def offsets_from_json(found: Any) -> dict[Partition, int]:
    """The other way. Raises `ValueError` for anything of another shape."""
    if not isinstance(found, Mapping):
        raise ValueError("it is no object")
    offsets = {}
    for topic, partitions in found.items():
        if not isinstance(topic, str) or not isinstance(partitions, Mapping):
            raise ValueError("topics hold partitions")
        for partition, offset in partitions.items():
            if not isinstance(offset, int) or isinstance(offset, bool):
                raise ValueError("an offset is a whole number")
            if not -OFFSET_MAX <= offset <= OFFSET_MAX:
                raise ValueError("an offset has 64 bits")
            offsets[topic, int(partition)] = offset
    return offsets


def offsets_from_text(text: str) -> dict[Partition, int]:
    """`offsets_from_json` of JSON text. Raises `ValueError`."""
    return offsets_from_json(json.loads(text))


# No topic's name has it.
ID_MARK = ":"


class Position(NamedTuple):
    """Where a stream is.

    In a checkpoint the id of a topic is part of a key that has no partitions: Spark's connector,
    and whoever knows of no ids, reads past it, and checkpoints of theirs lack it.
    """

    offsets: dict[Partition, int]
    ids: dict[str, str]
    """By topic, as far as they are known."""

    def to_json(self) -> dict[str, dict[str, int]]:
        """In an order that depends on nothing else: Spark compares texts."""
        found = offsets_to_json(self.offsets)
        named: dict[str, dict[str, int]] = {
            f"{topic}{ID_MARK}{self.ids[topic]}": {} for topic in found if topic in self.ids
        }
        return dict(sorted({**found, **named}.items()))

    @staticmethod
    def from_json(found: Any) -> "Position":
        """The other way. Raises `InvalidArgumentError` for anything of another shape, which is a
        checkpoint of another source's."""
        try:
            offsets = offsets_from_json(found)
        except ValueError as error:
            raise InvalidArgumentError(
                f"the checkpoint's offsets are {json.dumps(found):.100}, which are not offsets "
                f"of topics ({error}): a query of this source needs a checkpoint of its own"
            ) from error
        marked = (key.partition(ID_MARK) for key, partitions in found.items() if not partitions)
        return Position(offsets, {topic: name for topic, mark, name in marked if mark})


def remade(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Topics that were deleted and recreated between two looks at their ids."""
    return sorted(topic for topic in before if after.get(topic, before[topic]) != before[topic])


def same_topics(start: Position, ids: Mapping[str, str]) -> dict[Partition, int]:
    """Offsets without those of topics that have another id: nothing has been read of them yet."""
    others = set(remade(start.ids, ids))
    return {each: offset for each, offset in start.offsets.items() if each[0] not in others}
