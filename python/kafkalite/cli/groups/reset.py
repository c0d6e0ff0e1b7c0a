"""`kafkalite groups reset-offsets`: every way in which kafka-consumer-groups sets offsets.

    which partitions    --topic orders, --topic orders:0,2, --all-topics (those that have an offset)
    which offset        --to-earliest --to-latest --to-current --to-offset --shift-by --to-datetime
                        --by-duration --from-file
    and then            --dry-run (the default) --execute
                        --export (CSV: [group,]topic,partition,offset)

An offset outside a partition's log is moved to the nearer end of it.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence

from kafkalite.cli.actions import Actions
from kafkalite.cli.client_config import client_of
from kafkalite.cli.console.terminal import print_table
from kafkalite.cli.options import (
    INT_MAX,
    LONG_MAX,
    UsageError,
    decimal,
    names_of,
    print_error,
    print_json,
    read_text,
)
from kafkalite.client.admin import EARLIEST, LATEST, Admin
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.network.cluster import Cluster
from kafkalite.timers import wall_ms

EXAMPLES = """
kafkalite groups reset-offsets billing --topic orders --to-earliest
kafkalite groups reset-offsets billing --topic orders:0,1 --shift-by -10 --execute
kafkalite groups reset-offsets billing --all-topics --to-datetime 2026-11-21T06:00:00.000 --execute
kafkalite groups reset-offsets billing --all-topics --by-duration PT2H30M --export
"""

Partition = tuple[str, int]


def add(actions: Actions, add_groups: Callable[[argparse.ArgumentParser], None]) -> None:
    """Adds the action `reset-offsets`."""
    parser = actions.add(
        "reset-offsets",
        _reset,
        "reset the committed offsets of groups that have no active members",
        EXAMPLES,
    )
    add_groups(parser)
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--topic",
        action="append",
        metavar="TOPIC[:0,1]",
        help="a topic, or some partitions of it; may be repeated",
    )
    scope.add_argument(
        "--all-topics", action="store_true", help="all topics with a committed offset"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="reset to the log start offset")
    where.add_argument("--to-latest", action="store_true", help="reset to the log end offset")
    where.add_argument(
        "--to-current",
        action="store_true",
        help="reset to the committed offset, or the log end offset if there is none",
    )
    where.add_argument("--to-offset", type=int, metavar="N", help="reset to this offset")
    where.add_argument(
        "--shift-by",
        type=int,
        metavar="N",
        help="move the committed offset by N records; a negative N moves it back",
    )
    where.add_argument(
        "--to-datetime",
        metavar="TIME",
        help="reset to the first record at or after this time: YYYY-MM-DDTHH:mm:ss.sss, in UTC "
        "unless a zone (Z, +02:00) follows",
    )
    where.add_argument(
        "--by-duration",
        metavar="PnDTnHnMnS",
        help="reset to the first record since this long ago, such as PT2H30M",
    )
    where.add_argument(
        "--from-file", metavar="CSV", help="reset to the offsets in a file written with --export"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--dry-run", action="store_true", help="only show the new offsets (the default)"
    )
    mode.add_argument("--execute", action="store_true", help="commit the new offsets")
    parser.add_argument("--export", action="store_true", help="print the new offsets as CSV")


def _reset(options: argparse.Namespace) -> int:
    if not (options.topic or options.all_topics or options.from_file):
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    named = names_of(options.names, options.group)
    if not named and not options.all_groups:
        raise UsageError("name a group, or say --all-groups")
    timestamp = _timestamp(options)
    exit_code = 0
    new: dict[str, dict[Partition, int]] = {}
    with client_of(Cluster, options) as cluster:
        groups = GroupAdmin(cluster)
        if options.all_groups:
            named = [group.name for group in groups.list()]
        planned = _plan(options.from_file, named) if options.from_file else {}
        for name in named:
            state = groups.describe(name).state
            if state not in ("Empty", "Dead"):
                print_error(
                    f"Assignments can only be reset if the group '{name}' is inactive, but the "
                    f"current state is {state}."
                )
                exit_code = 1
                continue
            reset = _Reset(cluster, groups, name, timestamp)
            if options.from_file and name not in planned:
                print_error(f"No reset plan for group {name} found")
                exit_code = 1
                continue
            new[name] = dict(sorted(reset.offsets(options, planned.get(name, {})).items()))
            if options.execute and new[name]:
                groups.alter(name, new[name])
    if options.export:
        _print_csv(new, has_groups=len(named) != 1)
    else:
        _print(new, options)
    return exit_code


class _Reset:
    """The offsets to come of one group."""

    def __init__(
        self, cluster: Cluster, groups: GroupAdmin, group: str, timestamp: int | None
    ) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._groups = groups
        self._group = group
        self._timestamp = timestamp

    def offsets(
        self, options: argparse.Namespace, planned: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """By partition. Raises `UsageError` for what cannot be shifted."""
        if options.from_file:
            return self._within(planned)
        if options.all_topics:
            places = list(self._groups.committed(self._group))
        else:
            places = parse_topics(self._cluster, options.topic)
        if options.to_offset is not None:
            return self._within(dict.fromkeys(places, options.to_offset))
        if options.to_earliest:
            return self._listed(places, EARLIEST)
        if options.to_latest:
            return self._listed(places, LATEST)
        if options.shift_by is not None:
            return self._within(self._shifted(places, options.shift_by))
        if options.to_current:
            committed = self._groups.committed(self._group)
            current = {place: committed[place].offset for place in places if place in committed}
            return current | self._listed([each for each in places if each not in current], LATEST)
        return self._at_timestamp(places)

    def _listed(self, places: Sequence[Partition], kind: int) -> dict[Partition, int]:
        found = self._admin.list_offsets(dict.fromkeys(places, kind))
        return {place: listed.offset for place, listed in found.items()}

    def _within(self, wanted: Mapping[Partition, int]) -> dict[Partition, int]:
        """Offsets outside the log moved into it, with a word on stderr."""
        starts, ends = self._listed(list(wanted), EARLIEST), self._listed(list(wanted), LATEST)
        offsets = {}
        for place, offset in wanted.items():
            start, end = starts[place], ends[place]
            offsets[place] = min(max(offset, start), end)
            if offsets[place] != offset:
                which = "higher than latest" if offset > end else "lower than earliest"
                print_error(
                    f"New offset ({offset}) is {which} offset for topic partition "
                    f"{place[0]}-{place[1]}. Value will be set to {offsets[place]}"
                )
        return offsets

    def _shifted(self, places: Sequence[Partition], by: int) -> dict[Partition, int]:
        committed = self._groups.committed(self._group)
        for topic, partition in places:
            if (topic, partition) not in committed:
                raise UsageError(
                    f"Cannot shift offset for partition {topic}-{partition} since there is no "
                    "current committed offset"
                )
        return {place: committed[place].offset + by for place in places}

    def _at_timestamp(self, places: Sequence[Partition]) -> dict[Partition, int]:
        timestamp = 0 if self._timestamp is None else self._timestamp
        found = self._listed(places, timestamp)
        later = [place for place, offset in found.items() if offset < 0]
        for topic, partition in later:
            print_error(
                f"Partition {partition} from topic {topic} is empty. Falling back to latest known "
                "offset."
            )
        return found | self._listed(later, LATEST)


# --- what the options say -------------------------------------------------------------------------


def parse_topics(cluster: Cluster, texts: Sequence[str]) -> list[Partition]:
    """`orders` and `orders:0,2` as partitions. Raises `UsageError`."""
    places: list[Partition] = []
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not colon:
            places += [(topic, partition) for partition in cluster.topic(topic).partitions]
            continue
        for number in numbers.split(","):
            partition = decimal(number.strip())
            if partition is None or partition > INT_MAX:
                raise UsageError(f"'{text}' is not TOPIC or TOPIC:0,1")
            places.append((topic, partition))
    return list(dict.fromkeys(places))


def _timestamp(options: argparse.Namespace) -> int | None:
    """Milliseconds since 1970 of --to-datetime or --by-duration."""
    if options.to_datetime is not None:
        return parse_datetime(options.to_datetime)
    if options.by_duration is not None:
        return _clamped(wall_ms() - parse_duration(options.by_duration))
    return None


def _clamped(timestamp_ms: int) -> int:
    """As a timestamp that a record can have; below 0 are Kafka's names for the latest offset and
    the like."""
    return min(max(0, timestamp_ms), LONG_MAX)


DATETIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?(Z|[+-]\d\d(?::?\d\d)?)?"
)


def parse_datetime(text: str) -> int:
    """Milliseconds since 1970 of `2026-11-21T06:00:00.000`, with a zone or, without, in UTC, as
    Kafka's tool reads it. Raises `UsageError`."""
    from datetime import UTC, datetime, timedelta, timezone

    match = DATETIME.fullmatch(text)
    if match is None:
        raise UsageError(f"'{text}' is not a time such as 2026-11-21T06:00:00.000")
    year, month, day, hour, minute = (int(match[at]) for at in range(1, 6))
    second = int(match[6] or 0)
    fraction_us = int((match[7] or "0").ljust(3, "0")) * 1000
    offset = match[8] or "Z"
    try:
        zone = UTC
        if offset != "Z":
            digits = offset[1:].replace(":", "").ljust(4, "0")
            away = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
            zone = timezone(away if offset[0] == "+" else -away)
        moment = datetime(year, month, day, hour, minute, second, fraction_us, zone)
    except ValueError as error:
        raise UsageError(f"'{text}' is no time: {error}") from error
    return _clamped((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


DURATION = re.compile(
    r"([+-]?)P(?:([+-]?\d{1,18})D)?"
    r"(T(?:([+-]?\d{1,18})H)?(?:([+-]?\d{1,18})M)?(?:([+-]?\d{1,18})(?:[.,](\d{1,9}))?S)?)?",
    re.IGNORECASE,
)


def parse_duration(text: str) -> int:
    """Milliseconds of an ISO 8601 duration as Java's `Duration.parse` takes it: `P7DT1H30M0.5S`.
    Raises `UsageError`."""
    match = DURATION.fullmatch(text)
    parts = match and [match[at] for at in (2, 4, 5, 6)]
    if match is None or not parts or not any(parts) or (match[3] or "").upper() == "T":
        raise UsageError(f"'{text}' is not a duration such as P7D, PT2H30M or PT90S")
    days, hours, minutes, seconds = (int(part or 0) for part in parts)
    total = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    fraction = int((match[7] or "0").ljust(9, "0")) // 1_000_000
    total += -fraction if (match[6] or "").startswith("-") else fraction
    return -total if match[1] == "-" else total


def _plan(path: str, groups: Sequence[str]) -> dict[str, dict[Partition, int]]:
    """A CSV of `topic,partition,offset`, for the one group that is named, or with the group first.
    Raises `UsageError`."""
    import csv

    plan: dict[str, dict[Partition, int]] = {}
    try:
        rows = [row for row in csv.reader(read_text(path).splitlines(), strict=True) if row]
    except csv.Error as error:
        raise UsageError(f"{path}: {error}") from error
    for number, row in enumerate(rows, 1):
        cells = [cell.strip() for cell in row]
        if len(cells) == 3 and len(groups) == 1:
            cells = [groups[0], *cells]
        numbers = [decimal(cell.removeprefix("-")) for cell in cells[2:]]
        if len(cells) != 4 or None in numbers or cells[2].startswith("-"):
            raise UsageError(f"{path}, line {number}: not [group,]topic,partition,offset")
        group, topic, partition, offset = cells
        plan.setdefault(group, {})[topic, int(partition)] = int(offset)
    return plan


# --- what is printed ------------------------------------------------------------------------------


def _print_csv(new: Mapping[str, Mapping[Partition, int]], *, has_groups: bool) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    for group, offsets in new.items():
        for (topic, partition), offset in offsets.items():
            row = [topic, partition, offset]
            writer.writerow([group, *row] if has_groups else row)


def _print(new: Mapping[str, Mapping[Partition, int]], options: argparse.Namespace) -> None:
    if options.json:
        for group, offsets in new.items():
            for (topic, partition), offset in offsets.items():
                print_json(
                    {
                        "group": group,
                        "topic": topic,
                        "partition": partition,
                        "newOffset": offset,
                        "executed": options.execute,
                    }
                )
        return
    if not new:
        return
    rows: list[tuple[object, ...]] = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")]
    for group, offsets in new.items():
        rows += [(group, topic, partition, new) for (topic, partition), new in offsets.items()]
    print()
    print_table(rows, (30, 30, 10, 15))
    if not options.execute:
        sys.stdout.flush()
        sys.stderr.write("Nothing was set: this was a dry run, --execute sets the offsets.\n")
