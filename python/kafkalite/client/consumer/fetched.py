"""Keeps what fetches have brought until the caller is handed it out.

    answer ──► Waiting ──► bytes    Consumer.fetch      the caller says how far they are
                     └───► records  Consumer.poll       so many at most, the rest stays
                     └───► open     Consumer.__iter__   a list that tells how far the caller is

Nothing leaves without its position moving, and no position moves without that: whatever fails in
between finds the records still here. Records of another epoch of their partition are dropped, those
of a paused one are kept.
"""

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from operator import itemgetter, length_hint
from typing import NamedTuple, TypeVar

from kafkalite._native import count_fetched, fetched_end, fetched_tail, read_fetched
from kafkalite.client.consumer.subscription_state import Partition, SubscriptionState
from kafkalite.errors import KafkaliteError

__all__ = ["Fetched", "Given", "Record", "Row", "Waiting"]

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]
Result = TypeVar("Result")

HEADERS_OF = itemgetter(5)
"""Gets the headers of a row."""

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
    headers: tuple[tuple[str, bytes | None], ...]
    """As `Producer.send` takes them. A name that is not UTF-8 has U+FFFD in it, as in Java."""


class Fetched:
    """The records of one fetch and one partition, as bytes until somebody looks."""

    __slots__ = (
        "aborted",
        "epoch",
        "high_watermark",
        "offset",
        "on_damage",
        "partition",
        "records",
        "rows_given",
        "rows_read",
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
        """The partition's epoch when it was asked for."""
        self.rows_read: list[Row] | None = None
        """Its records, once they have been looked at."""
        self.rows_given = 0
        """How many of them the caller has."""
        self.on_damage: Callable[[Fetched, KafkaliteError], None] | None = None
        """Told in place of whoever looks, who gets what comes before the damage."""

    @property
    def topic_partition(self) -> Partition:
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
            self.on_damage(self, unreadable(self.topic_partition, self.end, damaged, error))
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
    partition: Partition, offset: int, damaged: bytes, error: KafkaliteError
) -> KafkaliteError:
    """The error about bytes that begin with a batch that cannot be read."""
    sentence = f"{partition[0]}-{partition[1]} cannot be read at offset {offset}: {error}"
    if len(damaged) >= BATCH_HEAD.size:
        _, size = BATCH_HEAD.unpack_from(damaged)
        behind = fetched_end(damaged[: BATCH_HEAD.size + max(size, 0)], offset)
        if behind > offset:
            sentence += f" (seek to {behind} leaves the batch out)"
    return type(error)(sentence)


def _records(fetched: Fetched, rows: list[Row]) -> list[Record]:
    """The rows as a caller gets them. Half the cost of `Record(…)`, which is called by name."""
    partition, new = fetched.topic_partition, tuple.__new__
    if any(map(HEADERS_OF, rows)):
        rows = [(*row[:5], _named(row[5])) for row in rows]  # type: ignore[misc]
    return [new(Record, partition + row) for row in rows]


def _named(headers: tuple[tuple[bytes, bytes | None], ...]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple([(name.decode("utf-8", "replace"), content) for name, content in headers])


class Given(dict[Partition, tuple[int, int]]):
    """The partitions of which a call is about to give records: the epoch of each, and the offset
    from which on its records are lost if the call fails after all."""


class _Open(NamedTuple):
    """The records of one answer that an iterator has before it, and takes by itself."""

    fetched: Fetched
    left: int
    records: Iterator[Record]


class Waiting:
    """Records that have come and were not handed out, in their order."""

    def __init__(self, subscription_state: SubscriptionState) -> None:
        self._subscription_state = subscription_state
        self._queue: deque[Fetched] = deque()
        self._open: _Open | None = None

    def put(self, fetched: Fetched, epoch: int) -> None:
        """The answer to a fetch that was sent in an epoch of its partition."""
        fetched.epoch, fetched.on_damage = epoch, self._on_damage
        self._queue.append(fetched)
        end, read_epoch = fetched_tail(fetched.records, fetched.offset)
        self._subscription_state.fetched(fetched.topic_partition, epoch, end, read_epoch)

    def has(self, partition: Partition) -> bool:
        """Says whether something of a partition is still to be handed out."""
        return any(
            each.topic_partition == partition
            and self._subscription_state.of(partition, each.epoch) is not None
            for each in self._queue
        )

    @property
    def is_ready(self) -> bool:
        """Says whether there is something that may be handed out now."""
        return next(self._ready(), None) is not None

    def take_bytes(self, given: Given) -> list[Fetched]:
        """Gives what may be handed out, of a partition the first: the caller may find it damaged.
        Of what was handed out in part the rest is fetched anew: its bytes begin with what the
        caller has."""
        found: dict[Partition, Fetched] = {}
        for fetched in self._ready():
            if fetched.rows_given:
                self._subscription_state.rewind(fetched.topic_partition, fetched.epoch)
            else:
                found.setdefault(fetched.topic_partition, fetched)
        given.update({each: (one.epoch, one.offset) for each, one in found.items()})
        for partition, fetched in found.items():
            self._subscription_state.give(partition, fetched.epoch, fetched.end)
        gone = set(found.values())
        self._queue = deque(each for each in self._queue if each not in gone)
        return list(found.values())

    def take_records(self, count_max: int, given: Given) -> list[Record]:
        """The next records that may be handed out, so many at most."""
        records: list[Record] = []
        taken = []
        for fetched in self._ready():
            rows = self._rows(fetched)
            start = fetched.rows_given
            part = rows[start : start + count_max - len(records)]
            records += _records(fetched, part)
            taken.append((fetched, len(part)))
            if len(records) >= count_max:
                break
        # Whatever fails before this finds them still here; behind it `given` says what was moved.
        for fetched, _ in taken:
            partition, epoch = fetched.topic_partition, fetched.epoch
            state = self._subscription_state.of(partition, epoch)
            if state is not None and state.position is not None:
                given.setdefault(partition, (epoch, state.position))
        for fetched, count in taken:
            self._give(fetched, count)
        return records

    # --- record by record -------------------------------------------------------------------------

    def open(self, count_max: int) -> Iterator[Record] | None:
        """The next records of one partition, so many at most, if there are any that may be handed
        out. Positions are where `settle` finds that the caller has come to."""
        self.shut()
        while (fetched := next(self._ready(), None)) is not None:
            start = fetched.rows_given
            part = self._rows(fetched)[start : start + count_max]
            if part:
                records = iter(_records(fetched, part))
                self._open = _Open(fetched, len(part), records)
                return records
            self._give(fetched, 0)  # nothing of it is a record
        return None

    def settle(self) -> None:
        """Moves the position to where the caller has come to: the last record that they got is in
        their hand, those before it they have dealt with."""
        if self._open is not None:
            self._settle(length_hint(self._open.records))

    def shut(self) -> None:
        """As `settle`; and the iterator gets no more from its list, whoever has it."""
        if self._open is not None:
            self._settle(len(list(self._open.records)))
            self._open = None

    def _settle(self, left: int) -> None:
        opened = self._open
        if opened is None or opened.left == left:
            return
        given = opened.left - left
        self._open = opened._replace(left=left)
        if given > 1:
            self._give(opened.fetched, given - 1)
        self._subscription_state.confirm()
        self._give(opened.fetched, 1)

    # --- what is left of it -----------------------------------------------------------------------

    def _give(self, fetched: Fetched, count: int) -> None:
        """So many of its records are the caller's."""
        rows = self._rows(fetched)
        fetched.rows_given += count
        if fetched.rows_given < len(rows):
            end = rows[fetched.rows_given - 1][0] + 1
        else:
            end = fetched.end
            if self._queue and self._queue[0] is fetched:
                self._queue.popleft()
            elif fetched in self._queue:
                self._queue.remove(fetched)
        self._subscription_state.hand_out(fetched.topic_partition, fetched.epoch, end)

    def _rows(self, fetched: Fetched) -> list[Row]:
        if fetched.rows_read is None:
            fetched.rows_read = fetched.rows()[0]
        return fetched.rows_read

    def _ready(self) -> Iterator[Fetched]:
        """Gives what may be handed out at the moment of the call: what follows something that
        was found damaged may not."""
        queue = self._queue
        while (
            queue and self._subscription_state.of(queue[0].topic_partition, queue[0].epoch) is None
        ):
            queue.popleft()
        for fetched in queue:
            state = self._subscription_state.of(fetched.topic_partition, fetched.epoch)
            if state is not None and not state.is_paused:
                yield fetched

    def _on_damage(self, fetched: Fetched, error: KafkaliteError) -> None:
        fetched.epoch = self._subscription_state.damage(
            fetched.topic_partition, fetched.epoch, fetched.end, error
        )
