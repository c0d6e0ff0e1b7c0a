"""The files of `kafkalite reassign`, which are those of kafka-reassign-partitions. Proposes who is
to have the replicas of topics, too.

    {"version": 1, "partitions": [
        {"topic": "orders", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}]}
    {"version": 1, "topics": [{"topic": "orders"}]}
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple, TypeVar

from kafkalite.cli.options import UsageError, read_json
from kafkalite.client.arguments import INT_MAX, text, whole
from kafkalite.client.cluster_admin import Partition, Replica
from kafkalite.client.descriptions import BrokerDescription

Parsed = TypeVar("Parsed")

ANY = "any"
"""The log directory of whoever does not care."""
VERSION = 1
PLAN_FORM = (
    '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}'
)
TOPICS_FORM = '{"version": 1, "topics": [{"topic": "orders"}]}'


class Plan(NamedTuple):
    """Where replicas are to be."""

    replicas: dict[Partition, list[int]]
    log_dirs: dict[Replica, str]
    """The log directories, of those replicas for which the file names one."""


def read_plan(path: str) -> Plan:
    """The file of `--reassignment-json-file`. Raises `UsageError`."""

    def parse(found: Any) -> Plan:
        plan = Plan({}, {})
        for row in found.get("partitions", ()):
            place = (text("topic", row["topic"]), whole("partition", row["partition"], 0, INT_MAX))
            replicas = [whole("a replica", each, 0, INT_MAX) for each in row["replicas"]]
            paths = [text("a log directory", each) for each in row.get("log_dirs", ())]
            what = f"{path}: {place[0]}-{place[1]}"
            if place in plan.replicas:
                raise UsageError(f"{what} is named twice")
            if len(set(replicas)) < len(replicas) or not replicas:
                raise UsageError(f"{what} has the replicas {replicas}: some, and each once")
            if "log_dirs" in row and len(paths) != len(replicas):
                raise UsageError(f"{what} has {len(replicas)} replicas and {len(paths)} log_dirs")
            plan.replicas[place] = replicas
            named = zip(replicas, paths, strict=False)
            plan.log_dirs.update({(b, *place): each for b, each in named if each != ANY})
        return plan

    plan = _read(path, PLAN_FORM, parse)
    if not plan.replicas:
        raise UsageError(f"{path} names no partition")
    return plan


def read_topics(path: str) -> list[str]:
    """The file of `--topics-to-move-json-file`. Raises `UsageError`."""

    def parse(found: Any) -> list[str]:
        return [text("topic", row["topic"]) for row in found.get("topics", ())]

    return _read(path, TOPICS_FORM, parse)


def _read(path: str, form: str, parse: Callable[[Any], Parsed]) -> Parsed:
    try:
        found = read_json(path)
        version = found.get("version", VERSION)
        if version != VERSION:
            raise UsageError(f"{path} is of version {version}, known is {VERSION}")
        return parse(found)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is not of the form {form}: {error!r}") from error


def plan_fields(
    replicas: Mapping[Partition, Sequence[int]], log_dirs: Mapping[Replica, str]
) -> dict[str, Any]:
    """Gives a plan as an object of JSON."""
    return {
        "version": VERSION,
        "partitions": [
            {
                "topic": topic,
                "partition": index,
                "replicas": list(found),
                "log_dirs": [log_dirs.get((each, topic, index), ANY) for each in found],
            }
            for (topic, index), found in sorted(replicas.items())
        ],
    }


def plan_text(replicas: Mapping[Partition, Sequence[int]], log_dirs: Mapping[Replica, str]) -> str:
    """As Kafka's tool prints it, a file for `--reassignment-json-file`."""
    fields = plan_fields(replicas, log_dirs)
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


# --- a proposal -----------------------------------------------------------------------------------


def propose(
    current: Mapping[Partition, Sequence[int]],
    brokers: Sequence[BrokerDescription],
    start: int,
    *,
    is_rack_aware: bool,
) -> dict[Partition, list[int]]:
    """Spreads the partitions of each topic over brokers: as many first replicas on each as on any
    other, or one more, and the replicas of a partition on as many racks as there are, or as it has
    replicas. Which broker comes first is said by `start`. A topic keeps the replication factor of
    its first partition.

    Raises `UsageError` for more replicas than brokers, and for racks that only some brokers tell.
    """
    racks = {each.id: each.rack if is_rack_aware else None for each in brokers}
    known = {rack for rack in racks.values() if rack is not None}
    if known and None in racks.values():
        raise UsageError("not all brokers tell a rack: --disable-rack-aware leaves racks out")
    order = _by_turns(racks)
    topics = Counter(topic for topic, _ in current)
    proposed = {}
    for topic, count in sorted(topics.items()):
        factor = len(next(found for place, found in sorted(current.items()) if place[0] == topic))
        if factor > len(order):
            raise UsageError(
                f"topic '{topic}' has {factor} replicas, and there are {len(order)} brokers"
            )
        for index in range(count):
            proposed[topic, index] = _spread(order, racks, start + index, factor)
    return proposed


def _by_turns(racks: Mapping[int, str | None]) -> list[int]:
    """The brokers, of one rack after the other: a1, b1, c1, a2, b2, …"""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id] or "", []).append(broker_id)
    order: list[int] = []
    for rack in cycle(sorted(by_rack)):
        if len(order) == len(racks):
            break
        if by_rack[rack]:
            order.append(by_rack[rack].pop(0))
    return order


def _spread(order: list[int], racks: Mapping[int, str | None], at: int, count: int) -> list[int]:
    """The replicas of one partition: the first in its turn, the others on racks that have fewest of
    them. Those begin farther along with each round, so that if a broker fails its load goes to
    several others."""
    turn, first = divmod(at, len(order))
    rest = order[first + 1 :] + order[:first]
    shift = turn % max(len(rest), 1)
    rest = rest[shift:] + rest[:shift]
    chosen = [order[first]]
    while len(chosen) < count:
        used = Counter(racks[each] for each in chosen)
        free = [each for each in rest if each not in chosen]
        chosen.append(min(free, key=lambda each: used[racks[each]]))
    return chosen
