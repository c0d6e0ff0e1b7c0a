"""Tells by the batches of a log alone what is committed: from the first to the last, plainly.

The model log and the product keep indexes, open transactions and pending offsets; here a batch
counts if the first marker of its producer behind it is a commit, and is on disk.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kafkalite import _native
from kafkalite.groups.records import OFFSET_COMMIT_KINDS, SERDE
from sim.model_log import Batch, ModelLog

TOPIC: Final = "t"

OffsetKey = tuple[str, str, int]
"""Group, topic and partition."""


def committed_records(log: ModelLog) -> list[tuple[int, str]]:
    """Offset and value of each record of a transaction that is committed, in the log's order."""
    found = []
    for batch in _committed(log):
        found += [(batch.base_offset + at, value) for at, value in enumerate(batch.values)]
    return sorted(found)


def open_producers(log: ModelLog) -> set[int]:
    """Producers whose last batch is not a marker."""
    last = {each.producer_id: each for each in log.batches if each.producer_id != -1}
    return {each for each, batch in last.items() if batch.commit is None}


def offset_histories(logs: Iterable[ModelLog]) -> dict[OffsetKey, list[tuple[int, int | None]]]:
    """All that groups have committed, each with its place in the log, the present one last; None
    for what was forgotten."""
    found: dict[OffsetKey, list[tuple[int, int | None]]] = {}
    for log in logs:
        for batch, records in records_of(sorted(_committed(log))):
            for at, (_, key, value) in enumerate(records):
                read: Any = SERDE.read(key, value)
                if read.kind in OFFSET_COMMIT_KINDS:
                    offset = None if read.value is None else read.value.offset
                    key_of = (read.key.group, read.key.topic, read.key.partition)
                    found.setdefault(key_of, []).append((batch.base_offset + at, offset))
    return found


def _committed(log: ModelLog) -> list[Batch]:
    waiting: dict[int, list[Batch]] = {}
    found: list[Batch] = []
    for each in log.batches:
        if each.last_offset >= log.flushed_offset:
            break
        if each.producer_id == -1:
            found.append(each)
        elif each.commit is None:
            waiting.setdefault(each.producer_id, []).append(each)
        elif ended := waiting.pop(each.producer_id, None):
            found += ended if each.commit else []
    return found


def records_of(
    batches: Iterable[Batch],
) -> Iterator[tuple[Batch, Sequence[tuple[int, bytes | None, bytes | None]]]]:
    """Each batch of a coordinator, with offset, key and value of its records."""
    for batch in batches:
        (read,) = _native.read_batches(batch.data)
        yield batch, [(offset, key, value) for offset, _, key, value, _ in read.records]
