"""`read_arrow`: topics as Arrow columns, fetched from brokers.

    import kafkalite, polars
    orders = kafkalite.read_arrow("orders", "broker:9092", columns=["key", "value"])
    polars.DataFrame(orders)            pyarrow.table(orders)           duckdb.sql("from orders")

The columns are those of `read_log` (`records.py`), from any broker that speaks Kafka's protocol.
The rows are fixed once: from the log start (or `start`) to the end as it is then (or `stop`). Each
consumer of the object has connections of its own and starts anew; memory holds two fetches and one
Arrow batch. A topic that is recreated meanwhile raises: its rows are others.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from kafkalite._native import FetchRead
from kafkalite.client.admin import EARLIEST, LATEST, Admin, ListedOffset, Partition
from kafkalite.client.arguments import OffsetOfTime, Offsets, choice, int32, offsets, texts
from kafkalite.client.arrow.range_source import ISOLATION, FetchSettings, Range, RangeSource
from kafkalite.client.arrow.records import (
    BATCH_BYTES,
    BATCH_ROWS,
    ArrowSchema,
    LogRecords,
    formats_of,
    schema_of,
)
from kafkalite.client.network.servers import Servers
from kafkalite.errors import InvalidArgumentError

__all__ = ["read_arrow"]

Spec = int | OffsetOfTime


def read_arrow(
    topic: str | Iterable[str],
    bootstrap_servers: Servers = "localhost:9092",
    start: Offsets = None,
    stop: Offsets = None,
    columns: str | Iterable[str] | None = None,
    isolation: str = "read_uncommitted",
    *,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    timeout_ms: int = 60_000,
    key_format: str = "binary",
    value_format: str = "binary",
    key_schema: ArrowSchema | None = None,
    value_schema: ArrowSchema | None = None,
    mode: str = "PERMISSIVE",
    format_options: Mapping[str, str] | None = None,
) -> LogRecords:
    """Records of a topic, or of several, for anything that takes an Arrow C stream.

    `start` and `stop` (exclusive) are offsets: a number for every partition, or a mapping with a
    number each, by `"orders-0"` or, where there is but one topic, by partition (`{0: 5}`). A
    datetime, which must say its time zone, stands for the offset of the first record whose
    timestamp is as late, which the broker is asked for once, and for the end if there is none.
    Without them the range is the whole log; a `stop` behind the end means the end. `columns` is one
    column or several.

    `isolation="read_committed"` leaves out aborted transactions and ends at the last stable offset.
    Control records are never among the rows, which come by topic and partition, in order.

    Formats, schemas and `mode` are those of `read_log`.

    Raises `BrokerError` for a topic that there is not, `InvalidArgumentError` for an unknown column
    or isolation, for offsets outside the log and for a time without a zone, `TypeError` for an
    argument of another type, `ConnectionFailedError`. What happens while streaming (retention
    deleted what was still to be read, the topic was deleted and recreated, a broker was away for
    `timeout_ms`) the consumer raises in its own class.
    """
    topics = set(texts("topic", topic))
    servers = texts("bootstrap_servers", bootstrap_servers)
    wanted = None if columns is None else texts("columns", columns)
    asked_start, asked_stop = offsets("start", start), offsets("stop", stop)
    formats = formats_of(key_format, value_format, mode, format_options)
    schemas = schema_of("key_schema", key_schema), schema_of("value_schema", value_schema)
    int32("timeout_ms", timeout_ms, 1)
    choice("isolation", isolation, ISOLATION)
    rows = partial(
        FetchRead,
        columns=wanted,
        batch_rows=int32("batch_rows", batch_rows, 1),
        batch_bytes=int32("batch_bytes", batch_bytes, 1),
        key_schema=schemas[0],
        value_schema=schemas[1],
        formats=formats,
    )
    settings = FetchSettings(isolation, poll_timeout_ms=timeout_ms)
    ranges: list[Range] = []
    topic_ids: dict[str, bytes] = {}

    def open_source() -> RangeSource:
        return RangeSource(servers, ranges, settings, topic_ids=topic_ids)

    rows(open_source, ranges=ranges)  # wrong columns and formats are told before all else
    is_committed = isolation == "read_committed"
    with Admin(servers, timeout_ms=timeout_ms) as admin:
        # Before the offsets: those of a topic that is recreated meanwhile are of the new one.
        topic_ids |= _ids(admin, topics)
        ranges += _ranges(admin, topics, asked_start, asked_stop, committed=is_committed)
    return LogRecords(rows(open_source, ranges=ranges))


def _ids(admin: Admin, topics: Iterable[str]) -> dict[str, bytes]:
    """By topic; none of brokers before 2.8, which do not tell."""
    found = {name: admin.cluster.topic(name).id for name in sorted(topics)}
    return {name: topic_id for name, topic_id in found.items() if any(topic_id)}


def _ranges(
    admin: Admin,
    topics: Iterable[str],
    start: Spec | dict[str, Spec] | None,
    stop: Spec | dict[str, Spec] | None,
    *,
    committed: bool,
) -> list[Range]:
    """The offsets to be read of each partition, by topic and partition."""
    places = [
        (name, partition)
        for name in sorted(topics)
        for partition in admin.cluster.topic(name).partitions
    ]
    first = admin.list_offsets(dict.fromkeys(places, EARLIEST))
    last = admin.list_offsets(dict.fromkeys(places, LATEST), committed=committed)
    wanted_starts = _requested("start", start, places)
    wanted_stops = _requested("stop", stop, places)
    for place in wanted_starts.keys() & wanted_stops.keys():
        _refuse_reversed(place, wanted_starts[place], wanted_stops[place])
    starts = _looked_up(admin, wanted_starts, last, committed=committed)
    stops = _looked_up(admin, wanted_stops, last, committed=committed)
    ranges = []
    for place in places:
        ends = (first[place].offset, last[place].offset)
        asked = (starts.get(place), stops.get(place))
        ranges.append((*place, *_range(place, asked, ends, committed)))
    return ranges


def _requested(
    what: str, asked: Spec | dict[str, Spec] | None, places: list[Partition]
) -> dict[Partition, Spec]:
    """By partition. Raises `InvalidArgumentError` for a partition that is not read."""
    if asked is None:
        return {}
    if not isinstance(asked, dict):
        return dict.fromkeys(places, asked)
    by_name = {f"{topic}-{partition}": (topic, partition) for topic, partition in places}
    if len({topic for topic, _ in places}) == 1:
        by_name |= {str(partition): (topic, partition) for topic, partition in places}
    found = {}
    for name, offset in asked.items():
        if name not in by_name:
            raise InvalidArgumentError(f"{what} names the partition {name}, which is not read")
        found[by_name[name]] = offset
    return found


def _refuse_reversed(place: Partition, start: Spec, stop: Spec) -> None:
    """An offset and a time have no order: where they are reversed, there are no rows."""
    match start, stop:
        case (int(), int()) | (OffsetOfTime(), OffsetOfTime()) if start > stop:  # type: ignore[operator]
            name = f"{place[0]}-{place[1]}"
            raise InvalidArgumentError(
                f"stop {_told(stop)} of {name} lies before its start {_told(start)}"
            )


def _told(spec: Spec) -> str:
    return str(spec) if isinstance(spec, int) else f"{spec.timestamp_ms} ms since 1970"


def _looked_up(
    admin: Admin,
    wanted: Mapping[Partition, Spec],
    last: Mapping[Partition, ListedOffset],
    *,
    committed: bool,
) -> dict[Partition, int]:
    """Offsets; that of a time is the end where no record is as late."""
    times = {
        place: each.timestamp_ms for place, each in wanted.items() if isinstance(each, OffsetOfTime)
    }
    found = {
        place: each.offset if each.offset >= 0 else last[place].offset
        for place, each in admin.list_offsets(times, committed=committed).items()
    }
    return {
        place: min(found[place], last[place].offset) if isinstance(each, OffsetOfTime) else each
        for place, each in wanted.items()
    }


def _range(
    place: Partition,
    asked: tuple[int | None, int | None],
    ends: tuple[int, int],
    leeway: bool,
) -> tuple[int, int]:
    """The offsets to read. `leeway`: the end is the last stable offset, and a start behind it is no
    error, but nothing to read."""
    name = f"{place[0]}-{place[1]}"
    first, last = ends
    start = first if asked[0] is None else asked[0]
    stop = last if asked[1] is None else min(asked[1], last)
    if start < first or (start > last and not leeway):
        raise InvalidArgumentError(f"start {start} is outside the log of {name}: {first} to {last}")
    if asked[0] is None and asked[1] is not None and asked[1] < start:
        raise InvalidArgumentError(f"stop {asked[1]} of {name} lies before its start {start}")
    return start, max(start, stop)
