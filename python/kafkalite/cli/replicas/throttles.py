"""Limits of what `kafkalite reassign` lets go over the network and between directories: which keys
say so, of which brokers and topics (`ReassignPartitionsCommand` sets the same ones)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkalite.cli.options import print_error
from kafkalite.client.admin import BROKER, TOPIC, Admin
from kafkalite.client.cluster_admin import Partition, Reassignment
from kafkalite.errors import BrokerError

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


class Move(NamedTuple):
    """Brokers that have a partition, and those that are to get it."""

    sources: set[int]
    destinations: set[int]


def moves(
    ongoing: Mapping[Partition, Reassignment],
    wanted: Mapping[Partition, Sequence[int]],
    current: Mapping[Partition, Sequence[int]],
) -> dict[Partition, Move]:
    """All that moves once the wanted replicas are asked for, beside what moves already."""
    found = {
        place: Move(set(each.replicas) - set(each.adding), set(each.adding))
        for place, each in ongoing.items()
    }
    for place, replicas in wanted.items():
        sources = found[place].sources if place in found else set(current[place])
        found[place] = Move(sources, set(replicas) - sources)
    return found


def topic_limits(found: Mapping[Partition, Move]) -> dict[str, dict[str, str]]:
    """The keys of each topic: which replicas are throttled, as `partition:broker`."""
    limits: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, index), move in sorted(found.items()):
        leaders, followers = limits.setdefault(topic, ([], []))
        leaders += [f"{index}:{each}" for each in sorted(move.sources)]
        followers += [f"{index}:{each}" for each in sorted(move.destinations)]
    return {
        topic: {LEADER_REPLICAS: ",".join(leaders), FOLLOWER_REPLICAS: ",".join(followers)}
        for topic, (leaders, followers) in limits.items()
    }


def throttle(admin: Admin, found: Mapping[Partition, Move], bytes_per_second: int) -> None:
    """Limits what the moves may take of the network."""
    for topic, keys in topic_limits(found).items():
        admin.alter_configs(TOPIC, topic, keys)
    rate = str(bytes_per_second)
    for broker_id in sorted({each for move in found.values() for each in set().union(*move)}):
        admin.alter_configs(BROKER, str(broker_id), {LEADER_RATE: rate, FOLLOWER_RATE: rate})


def throttle_directories(admin: Admin, brokers: Iterable[int], bytes_per_second: int) -> None:
    """Limits what moves between the directories of brokers may take."""
    for broker_id in sorted(set(brokers)):
        admin.alter_configs(BROKER, str(broker_id), {DIRECTORY_RATE: str(bytes_per_second)})


def clear(admin: Admin, brokers: Iterable[int], topics: Iterable[str]) -> bool:
    """Takes all these limits away; False, and a line a refusal, where one stays: of a broker that
    is away, which alone can be asked for it."""
    is_clear = True
    resources: list[tuple[int, str, tuple[str, ...]]] = [
        *((BROKER, str(b), (LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE)) for b in sorted(brokers)),
        *((TOPIC, topic, (LEADER_REPLICAS, FOLLOWER_REPLICAS)) for topic in sorted(topics)),
    ]
    for kind, name, keys in resources:
        try:
            admin.alter_configs(kind, name, dict.fromkeys(keys))
        except BrokerError as error:
            print_error(f"the throttles stay: {error}")
            is_clear = False
    return is_clear
