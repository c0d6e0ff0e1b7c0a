"""What fetches have brought and the caller has not been handed out yet.

    answer ──► Waiting ──► bytes    Consumer.fetch      the caller says how far they are
                     └───► records  Consumer.poll       all that are there
                     └───► a record Consumer.__iter__   the position is behind it, the rest stays

Nothing leaves without its position moving, and no position moves without that: whatever fails in
between finds the records still here. What belongs to another epoch of its place is dropped, what
belongs to a paused one is kept.
"""

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from kafkalite._native import count_fetched, fetched_end, fetched_tail, read_fetched
from kafkalite.client.place import Partition, Places
from kafkalite.errors import KafkaliteError

__all__ = ["Fetched", "Record", "Row", "Waiting"]

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]
Result = TypeVar("Result")

# Before what a batch says to be its size: its offset and the size itself.
BATCH_HEAD = struct.Struct(">qi")


class Record(NamedTuple):
    """A record as a consumer gets it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970; -1 for none."""
    timestamp_type: int
    """0 create time, 1 log append time, -1 none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


class Fetched:
    """What one fetch brought of one partition, as bytes until somebody looks."""

    __slots__ = (
        "aborted",
        "epoch",
        "high_watermark",
        "offset",
        "on_damage",
        "partition",
        "records",
        "rows_left",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        records: bytes,
        aborted: list[tuple[int, int]],
        high_watermark: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        """The first offset of interest; the first batch may begin before it."""
        self.records = records
        """Batches, the last one maybe cut off."""
        self.aborted = aborted
        """Producer id and first offset of the aborted transactions in it."""
        self.high_watermark = high_watermark
        self.epoch = -1
        """That of its place when it was asked for."""
        self.rows_left: deque[Row] | None = None
        """What an iterator has not handed out of it, once it has begun to."""
        self.on_damage: Callable[[Fetched, KafkaliteError], None] | None = None
        """Told in place of whoever looks, who gets what comes before the damage."""

    @property
    def place(self) -> Partition:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def end(self) -> int:
        """The offset behind it."""
        return fetched_end(self.records, self.offset)

    def rows(self) -> tuple[list[Row], int]:
        """Offset, timestamp, timestamp type, key, value and headers of each record, and the offset
        behind. They end before a batch that cannot be read, of which the consumer's next call tells
        (`CorruptMessageError`, `InvalidRecordError`, …)."""
        return self._read(read_fetched)

    def count(self) -> tuple[int, int, int]:
        """As `rows`: number of records, bytes of their keys and values, and the offset behind."""
        return self._read(count_fetched)

    def _read(self, read: Callable[[bytes, int, list[tuple[int, int]]], Result]) -> Result:
        try:
            return read(self.records, self.offset, self.aborted)
        except KafkaliteError as error:
            if self.on_damage is None:
                raise
            sound = sound_bytes(self.records, self.offset, self.aborted)
            damaged, self.records = self.records[sound:], self.records[:sound]
            self.on_damage(self, unreadable(self.place, self.end, damaged, error))
        return read(self.records, self.offset, self.aborted)


def sound_bytes(records: bytes, offset: int, aborted: list[tuple[int, int]]) -> int:
    """Bytes of the batches before the first that cannot be read."""
    ends = [0]
    while len(records) - ends[-1] >= BATCH_HEAD.size:
        _, size = BATCH_HEAD.unpack_from(records, ends[-1])
        if size <= 0 or ends[-1] + BATCH_HEAD.size + size > len(records):
            break
        ends.append(ends[-1] + BATCH_HEAD.size + size)

    def is_damaged(end: int) -> bool:
        try:
            count_fetched(records[:end], offset, aborted)
        except KafkaliteError:
            return True
        return False

    return ends[bisect_left(ends, True, key=is_damaged) - 1]


def unreadable(
    place: Partition, offset: int, damaged: bytes, error: KafkaliteError
) -> KafkaliteError:
    """What a caller is told of bytes that begin with a batch that cannot be read."""
    sentence = f"{place[0]}-{place[1]} cannot be read at offset {offset}: {error}"
    if len(damaged) >= BATCH_HEAD.size:
        _, size = BATCH_HEAD.unpack_from(damaged)
        behind = fetched_end(damaged[: BATCH_HEAD.size + max(size, 0)], offset)
        if behind > offset:
            sentence += f" (seek to {behind} leaves the batch out)"
    return type(error)(sentence)


class Waiting:
    """What has come and was not handed out, in its order."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._queue: deque[Fetched] = deque()
        self._open: Fetched | None = None
        """The one that is handed out record by record."""

    def put(self, fetched: Fetched, epoch: int) -> None:
        """The answer to a fetch that was sent in an epoch of its place."""
        fetched.epoch, fetched.on_damage = epoch, self._on_damage
        self._queue.append(fetched)
        end, read_epoch = fetched_tail(fetched.records, fetched.offset)
        self._places.fetched(fetched.place, epoch, end, read_epoch)

    def has(self, partition: Partition) -> bool:
        """Whether something of a partition is still to be handed out."""
        return any(each.place == partition and self._is_due(each) for each in self._queue)

    @property
    def is_ready(self) -> bool:
        """Whether there is something that may be handed out now."""
        return any(map(self._is_ready, self._queue))

    def take_bytes(self) -> list[Fetched]:
        """What may be handed out, of a partition the first: the caller may find it damaged. Of what
        was handed out in part the rest is fetched anew: its bytes begin with what the caller has.
        """
        found: dict[Partition, Fetched] = {}
        for fetched in self._ready():
            if fetched.rows_left is not None:
                self._places.rewind(fetched.place, fetched.epoch)
            elif self._is_ready(fetched):
                found.setdefault(fetched.place, fetched)
        for partition, fetched in found.items():
            self._places.give(partition, fetched.epoch, fetched.end)
        self._remove(list(found.values()))
        return list(found.values())

    def take_records(self) -> list[Record]:
        """The records of all that may be handed out."""
        records: list[Record] = []
        taken = []
        for fetched in self._ready():
            if not self._is_ready(fetched):
                continue  # it follows something that was damaged
            topic, partition = fetched.place
            records += [Record(topic, partition, *row) for row in self._rows(fetched)]
            taken.append(fetched)
        for fetched in taken:
            self._places.hand_out(fetched.place, fetched.epoch, fetched.end)
        self._remove(taken)
        return records

    def take_record(self) -> Record | None:
        """The next record, if there is one that may be handed out."""
        while (fetched := self._opened()) is not None:
            rows = self._rows(fetched)
            if rows:
                row = rows.popleft()
                end = row[0] + 1 if rows else fetched.end
                self._places.hand_out(fetched.place, fetched.epoch, end)
                return Record(fetched.topic, fetched.partition, *row)
            self._places.hand_out(fetched.place, fetched.epoch, fetched.end)
            self._remove([fetched])
        return None

    def _opened(self) -> Fetched | None:
        if self._open is None or not self._is_ready(self._open):
            self._open = next(iter(self._ready()), None)
        return self._open

    def _rows(self, fetched: Fetched) -> deque[Row]:
        if fetched.rows_left is None:
            fetched.rows_left = deque(fetched.rows()[0])
        return fetched.rows_left

    def _is_due(self, fetched: Fetched) -> bool:
        return self._places.of(fetched.place, fetched.epoch) is not None

    def _is_ready(self, fetched: Fetched) -> bool:
        place = self._places.of(fetched.place, fetched.epoch)
        return place is not None and not place.is_paused

    def _ready(self) -> list[Fetched]:
        self._queue = deque(filter(self._is_due, self._queue))
        return [each for each in self._queue if self._is_ready(each)]

    def _remove(self, taken: list[Fetched]) -> None:
        gone = set(taken)
        self._queue = deque(each for each in self._queue if each not in gone)
        self._open = None

    def _on_damage(self, fetched: Fetched, error: KafkaliteError) -> None:
        fetched.epoch = self._places.damage(fetched.place, fetched.epoch, fetched.end, error)
