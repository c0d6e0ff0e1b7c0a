"""Judges whether this broker can be of a cluster: whether it serves the cluster's features and
enforces its records, and whether its logs have what its registration has vouched for. Pure.
"""

from collections.abc import Collection, Sequence
from typing import Final, NoReturn

from kafkalite.errors import KafkaliteError
from kafkalite.metadata.features import KRAFT_VERSION
from kafkalite.metadata.image import UNASSIGNED_DIRECTORY, Image
from kafkalite.metadata.reading import Replay
from kafkalite.service.listed import listed

RANGES: Final = {
    "eligible.leader.replicas.version": (0, 1),
    KRAFT_VERSION: (0, 1),
    "metadata.version": (25, 30),
    "transaction.version": (0, 2),
}
"""Levels of features at which all that brokers of a cluster do works here. Of the others only
level 0, at which a feature is not there, can be served yet."""

UNSERVED: Final = {
    "acl": "ACLs",
    "scram": "SCRAM credentials",
    "token": "delegation tokens",
    "quota": "client quotas",
}
"""Kinds of records (`Fold`) that a cluster with this broker must not hold."""


class JoinError(KafkaliteError):
    """This broker cannot be of the cluster."""


def judge_cluster(replay: Replay) -> None:
    """Raises JoinError where the cluster has a feature at a level that this broker cannot serve, or
    records that it cannot enforce."""
    levels = {**replay.fold.features, KRAFT_VERSION: replay.quorum.kraft_version}
    told, wanted = [], {"up": "", "down": ""}
    for name, level in sorted(levels.items()):
        low, high = RANGES.get(name, (0, 0))
        if not low <= level <= high:
            told.append(f"{name} at level {level} (served are {low} to {high})")
            way = "up" if level < low else "down"
            wanted[way] += f" --feature {name}={min(max(level, low), high)}"
    if told:
        commands = [
            f"kafka-features.sh --bootstrap-server HOST:PORT {way}grade{features}"
            for way, features in wanted.items()
            if features
        ]
        raise JoinError(
            f"the cluster has {', '.join(told)}; HOST:PORT being a broker that runs: "
            f"{'; '.join(commands)}"
        )
    if sentence := unserved_sentence(replay):
        raise JoinError(f"{sentence}: remove them first")


def unserved_sentence(replay: Replay) -> str:
    """The sentence about records of the cluster that this broker does not enforce, if there are
    any."""
    kinds = {UNSERVED[kind] for kind, *_ in replay.fold.kept if kind in UNSERVED}
    named = " and ".join(sorted(kinds))
    return f"the cluster has {named}, which this broker cannot enforce" if kinds else ""


def lost_logs(image: Image, node_id: int, lost: Sequence[tuple[str, int]]) -> list[str]:
    """The partitions of those which lack records that the metadata takes for complete here."""
    return [
        f"{name}-{index}"
        for name, index in lost
        if (found := image.topics.get(name)) is not None
        and node_id in (*found.partitions[index].isr, *found.partitions[index].elr)
    ]


def homeless_logs(
    image: Image,
    node_id: int,
    directories: Collection[bytes],
    moved: Collection[tuple[bytes, int, bytes]],
) -> list[tuple[str, int]]:
    """The replicas of this broker that the metadata has in another directory than one of these, and
    that were not found to have `moved` into one."""
    own = {UNASSIGNED_DIRECTORY, *directories}
    found = {(topic_id, index) for topic_id, index, _ in moved}
    return [
        (topic.name, each.index)
        for topic in image.topics.values()
        for each in topic.partitions
        if node_id in each.replicas
        and each.directory_of(node_id) not in own
        and (topic.id, each.index) not in found
    ]


def homeless_sentence(logs: Sequence[tuple[str, int]], offline: Sequence[str]) -> str:
    """The sentence about such logs; these log directories are offline."""
    named = listed([f"{name}-{index}" for name, index in logs])
    told = f"{len(logs)} replicas lie in log directories whose directory.id is not here: {named}"
    if offline:
        return (
            f"{told}; they stay offline until {', '.join(offline)} is back, which may have them; "
            "if that disk is lost, format a new one in its place: kafkalite format "
            "--ignore-formatted"
        )
    return f"{told}; they are created again, empty, in a log directory that this broker has"


def raise_lost(lost: Sequence[str]) -> NoReturn:
    """The broker must not be elected in the epoch in which it has vouched for these."""
    raise JoinError(
        f"{listed(lost)} lack records that were on disk before: the broker stops, and its next "
        "start registers as one that has lost records"
    )
