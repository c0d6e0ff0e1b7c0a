"""`kafkalite groups`: consumer groups, their members, how far they are; and sets that. In
kafka-consumer-groups' words; the ways to reset offsets are in `reset.py`."""

import argparse
import sys
from collections.abc import Sequence
from itertools import compress
from typing import Any, NamedTuple

from kafkalite.cli.actions import Actions
from kafkalite.cli.client_config import client_of
from kafkalite.cli.console.terminal import print_table
from kafkalite.cli.groups import reset
from kafkalite.cli.options import UsageError, names_of, print_error, print_json
from kafkalite.client.admin import LATEST, Admin
from kafkalite.client.group_admin import Committed, GroupAdmin, GroupDescription
from kafkalite.client.network.cluster import Cluster
from kafkalite.errors import BrokerError

EXAMPLES = """
kafkalite groups list --state
kafkalite groups describe billing
kafkalite groups describe billing --members --verbose
kafkalite groups reset-offsets billing --topic orders --to-earliest --execute
kafkalite groups delete billing
kafkalite groups delete-offsets billing --topic orders
kafkalite groups --describe --group billing   # as kafka-consumer-groups
"""

STATES = {
    state.lower(): state
    for state in (
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
        "Empty",
        "Assigning",
        "Reconciling",
    )
}
TYPES = {"classic": "Classic", "consumer": "Consumer"}
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")

Partition = tuple[str, int]


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    return _actions().run(arguments)


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    return _actions().parser


def _actions() -> Actions:
    actions = Actions(
        "kafkalite groups",
        "List and describe consumer groups, reset or delete their offsets, delete groups.",
        EXAMPLES,
    )
    listing = actions.add("list", _list, "list groups")
    listing.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="STATE,…",
        help="show states; with a list, only groups in these states",
    )
    listing.add_argument(
        "--type",
        nargs="?",
        const="",
        metavar="TYPE,…",
        help="show types; with a list, only groups of these types",
    )
    describe = actions.add(
        "describe", _describe, "show the offsets and lag, members or state of groups"
    )
    _add_groups(describe)
    view = describe.add_mutually_exclusive_group()
    view.add_argument("--offsets", action="store_true", help="show offsets and lag (the default)")
    view.add_argument("--members", action="store_true", help="show members")
    view.add_argument(
        "--state", action="store_true", help="show state, coordinator and assignment strategy"
    )
    describe.add_argument(
        "--verbose", action="store_true", help="with --members: also show their partitions"
    )
    reset.add(actions, _add_groups)
    delete = actions.add("delete", _delete, "delete groups and their offsets")
    _add_groups(delete)
    offsets = actions.add("delete-offsets", _delete_offsets, "delete committed offsets of a group")
    _add_groups(offsets, everything=False)
    offsets.add_argument(
        "--topic",
        action="append",
        required=True,
        metavar="TOPIC[:0,1]",
        help="the topic, or some partitions of it; may be repeated",
    )
    return actions


def _add_groups(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("names", nargs="*", metavar="GROUP", help="the name of a group")
    parser.add_argument("--group", action="append", help=argparse.SUPPRESS)
    if everything:
        parser.add_argument("--all-groups", action="store_true", help="all groups")


def _groups(groups: GroupAdmin, options: argparse.Namespace) -> list[str]:
    named = names_of(options.names, options.group)
    if getattr(options, "all_groups", False):
        return [group.name for group in groups.list()]
    if not named:
        raise UsageError("name a group, or say --all-groups")
    return named


# --- list -----------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    states = _chosen(options.state, STATES, "states")
    types = _chosen(options.type, TYPES, "types")
    with client_of(GroupAdmin, options) as groups:
        found = groups.list(states=states, types=types)
    if options.json:
        for group in found:
            print_json({"group": group.name, "type": group.type, "state": group.state})
        return 0
    if options.state is None and options.type is None:
        for group in found:
            print(group.name)
        return 0
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(group.name, _type(group.type), group.state) for group in found]
    shown = (True, options.type is not None, options.state is not None)
    print_table([list(compress(row, shown)) for row in rows], (25, 20))
    return 0


def _chosen(text: str | None, known: dict[str, str], what: str) -> list[str]:
    """`stable, Empty` as Kafka spells them. Raises `UsageError`."""
    chosen = []
    for part in (text or "").split(","):
        word = part.strip().lower()
        if word and word not in known:
            raise UsageError(f"'{part.strip()}' is none of the {what} {', '.join(known.values())}")
        if word:
            chosen.append(known[word])
    return chosen


def _type(text: str) -> str:
    return TYPES.get(text.lower(), text) or "Unknown"


# --- describe -------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """One partition of a group; a column that has nothing is None."""

    topic: str | None
    partition: int | None
    offset: int | None
    end: int | None
    member: str
    host: str
    client_id: str

    @property
    def lag(self) -> int | None:
        return None if self.offset is None or self.end is None else self.end - self.offset


def _describe(options: argparse.Namespace) -> int:
    exit_code = 0
    with client_of(Cluster, options) as cluster:
        groups = GroupAdmin(cluster)
        for name in sorted(set(_groups(groups, options))):
            group = groups.describe(name)
            if group.state == "Dead":
                print_error(f"Consumer group '{name}' does not exist.")
                exit_code = 1
                continue
            if options.json:
                print_json(_as_json(group, _rows(cluster, groups, group)))
                continue
            _warn(group)
            if options.members:
                _print_members(group, options.verbose)
            elif options.state:
                _print_state(group)
            else:
                _print_offsets(group, _rows(cluster, groups, group))
    return exit_code


def _warn(group: GroupDescription) -> None:
    sys.stdout.flush()
    if group.state == "Empty":
        sys.stderr.write(f"\nConsumer group '{group.name}' has no active members.\n")
    elif group.state in REBALANCING:
        sys.stderr.write(f"\nWarning: Consumer group '{group.name}' is rebalancing.\n")
    sys.stderr.flush()


def _rows(cluster: Cluster, groups: GroupAdmin, group: GroupDescription) -> list[_Row]:
    """Members with the most partitions first, then what is nobody's."""
    committed = groups.committed(group.name)
    assigned = {place for member in group.members for place in member.partitions}
    ends = _ends(cluster, sorted(assigned | set(committed)))
    rows = []
    for member in sorted(group.members, key=lambda member: -len(member.partitions)):
        for place in sorted(member.partitions, key=lambda place: place[1]):
            rows.append(_row(place, committed, ends, (member.id, member.host, member.client_id)))
    left = sorted(set(committed) - assigned, key=lambda place: place[1])
    return rows + [_row(place, committed, ends, ("-", "-", "-")) for place in left]


def _row(
    place: Partition,
    committed: dict[Partition, Committed],
    ends: dict[Partition, int],
    member: tuple[str, str, str],
) -> _Row:
    found = committed.get(place)
    return _Row(*place, None if found is None else found.offset, ends.get(place), *member)


def _ends(cluster: Cluster, places: Sequence[Partition]) -> dict[Partition, int]:
    """Log end offsets; a topic that is gone has none."""
    found = cluster.retry(lambda: cluster.refresh(sorted({topic for topic, _ in places})))
    there = [
        place for place in places if place[0] in found and place[1] in found[place[0]].partitions
    ]
    listed = Admin(cluster).list_offsets(dict.fromkeys(there, LATEST))
    return {place: each.offset for place, each in listed.items()}


def _print_offsets(group: GroupDescription, rows: list[_Row]) -> None:
    if not rows:
        return
    titles = (
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    )
    told = [
        (
            group.name,
            row.topic,
            row.partition,
            row.offset,
            row.end,
            row.lag,
            row.member,
            row.host,
            row.client_id,
        )
        for row in rows
    ]
    print()
    print_table([titles, *told], (15, 15, 10, 15, 15, 15, 15, 15))


def _print_members(group: GroupDescription, is_verbose: bool) -> None:
    shares = []
    for member in group.members:
        by_topic: dict[str, list[str]] = {}
        for topic, partition in member.partitions:
            by_topic.setdefault(topic, []).append(str(partition))
        shares.append(
            ", ".join(f"{topic}({','.join(by_topic[topic])})" for topic in sorted(by_topic))
        )
    rows: list[tuple[object, ...]] = [
        (
            "GROUP",
            "CONSUMER-ID",
            "GROUP-INSTANCE-ID",
            "HOST",
            "CLIENT-ID",
            "#PARTITIONS",
            "ASSIGNMENT",
        )
    ]
    rows += [
        (
            group.name,
            member.id,
            member.instance_id or "",
            member.host,
            member.client_id,
            len(member.partitions),
            share or "-",
        )
        for member, share in zip(group.members, shares, strict=True)
    ]
    with_instances = any(member.instance_id for member in group.members)
    shown = (True, True, with_instances, True, True, True, is_verbose)
    widths = compress((15, 15, 17, 15, 15, 15), shown)
    print()
    print_table([list(compress(row, shown)) for row in rows], list(widths))


def _print_state(group: GroupDescription) -> None:
    coordinator = f"{group.coordinator.address}  ({group.coordinator.id})"
    titles = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    row = (group.name, coordinator, group.assignor or "-", group.state, len(group.members))
    print()
    print_table([titles, row], (25, 25, 25, 20))


def _as_json(group: GroupDescription, rows: list[_Row]) -> dict[str, Any]:
    return {
        "group": group.name,
        "state": group.state,
        "type": group.type,
        "assignmentStrategy": group.assignor,
        "coordinator": {"id": group.coordinator.id, "address": group.coordinator.address},
        "members": [
            {
                "consumerId": member.id,
                "groupInstanceId": member.instance_id,
                "host": member.host,
                "clientId": member.client_id,
                "partitions": [{"topic": t, "partition": p} for t, p in member.partitions],
            }
            for member in group.members
        ],
        "offsets": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "currentOffset": row.offset,
                "logEndOffset": row.end,
                "lag": row.lag,
                "consumerId": None if row.member == "-" else row.member,
            }
            for row in rows
        ],
    }


# --- delete ---------------------------------------------------------------------------------------


def _delete(options: argparse.Namespace) -> int:
    deleted: list[str] = []
    failed: dict[str, BrokerError] = {}
    with client_of(GroupAdmin, options) as groups:
        for name in _groups(groups, options):
            try:
                groups.delete(name)
            except BrokerError as error:
                failed[name] = error
            else:
                deleted.append(name)
    if options.json:
        for name in deleted:
            print_json({"group": name, "deleted": True})
        for name, refusal in failed.items():
            print_json({"group": name, "deleted": False, "error": refusal.name})
    elif deleted:
        names = ", ".join(f"'{name}'" for name in deleted)
        print(f"Deletion of requested consumer groups ({names}) was successful.")
    for name, refusal in failed.items():
        print_error(f"Group '{name}' could not be deleted due to: {refusal}")
    return 1 if failed else 0


def _delete_offsets(options: argparse.Namespace) -> int:
    named = names_of(options.names, options.group)
    if len(named) != 1:
        raise UsageError("name one group")
    with client_of(Cluster, options) as cluster:
        places = reset.parse_topics(cluster, options.topic)
        results = GroupAdmin(cluster).delete_offsets(named[0], places)
    if options.json:
        for (topic, partition), refusal in sorted(results.items()):
            fields = {"topic": topic, "partition": partition, "deleted": refusal is None}
            print_json(fields | ({"error": refusal.name} if refusal else {}))
    else:
        if not any(results.values()):
            topics = ", ".join(options.topic)
            print(f"Request succeed for deleting offsets with topic {topics} group {named[0]}")
        rows: list[tuple[object, ...]] = [("TOPIC", "PARTITION", "STATUS")]
        rows += [
            (topic, partition, f"Error: {refusal}" if refusal else "Successful")
            for (topic, partition), refusal in sorted(results.items())
        ]
        print()
        print_table(rows, (30, 15))
    return 1 if any(results.values()) else 0
