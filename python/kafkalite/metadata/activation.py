"""Activation: the records that a node writes when it takes the metadata over, and when it stops.

A start takes over as Kafka's controller does: it registers the broker and elects each partition's
leader anew, so that leader epochs tell apart what was written before and after; a clean stop takes
leaders away and fences the broker. With eligible.leader.replicas.version 1 the replica is then in
the ELR and not in the ISR. Whose metadata it is, is judged before anything is written.

Kafka: `ClusterControlManager`, `ReplicationControlManager`, `ActivationRecordsGenerator`.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kafkalite import _native
from kafkalite.config.keys import MIN_INSYNC_REPLICAS
from kafkalite.errors import LogDirRefusedError
from kafkalite.metadata import reading, snapshots
from kafkalite.metadata.features import ELR_VERSION, FEATURES, KRAFT_VERSION, own_features
from kafkalite.metadata.image import (
    BROKER,
    NO_LEADER,
    BrokerEndpoint,
    Image,
    PartitionImage,
    TopicImage,
)
from kafkalite.metadata.image_records import config_record
from kafkalite.protocol import messages

LOST_PARTITIONS_NAMED = 10
"""Partitions that are lost and named in the log, at most."""
RESERVED_DIRECTORY_IDS = 100
"""Ids below are no directories: migrating, unassigned, lost (`DirectoryId`)."""


class Registration(NamedTuple):
    """A broker's own words when it starts."""

    node_id: int
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None
    min_insync_replicas: str
    """The broker's default, which eligible.leader.replicas.version 1 takes into the metadata."""


def refuse_strangers(found: reading.Found, node_id: int, log_dirs: Sequence[Path]) -> None:
    """Raises LogDirRefusedError where the metadata says what one node alone cannot serve."""
    folder = found.folder

    def refuse(reason: str) -> LogDirRefusedError:
        return LogDirRefusedError(f"{folder.parent} cannot be used: {reason}")

    if found.is_new:
        for log_dir in log_dirs:
            for path in log_dir.iterdir():
                if re.fullmatch(r".+-\d+", path.name) and path.name != snapshots.FOLDER:
                    raise refuse(
                        f"{path} holds records, and there is no {snapshots.FOLDER} that would "
                        "say of what topic"
                    )
    if found.quorum.voter_ids not in ((), (node_id,)):
        raise refuse(
            f"its quorum has the voters {', '.join(map(str, found.quorum.voter_ids))}, and only "
            f"node.id={node_id} alone can be one here"
        )
    levels = dict(found.image.features) or _levels(found.bootstrap)
    known = {each.name: each for each in FEATURES}
    for name, level in {**levels, KRAFT_VERSION: found.quorum.kraft_version}.items():
        feature = known.get(name)
        if feature is None or not feature.low <= level <= feature.high:
            raise refuse(f"it has the feature {name} at level {level}, which is not supported")
    for topic in found.image.topics.values():
        for partition in topic.partitions:
            if partition.replicas != (node_id,):
                raise refuse(
                    f"{topic.name}-{partition.index} has the replicas {list(partition.replicas)}, "
                    f"and this node is {node_id}: it belongs to a cluster of several brokers"
                )


def start_records(
    image: Image,
    bootstrap: Sequence[Any],
    end_offset: int,
    registration: Registration,
    claimed: _native.ClaimedDirectories,
) -> list[Any]:
    """Features of a new directory, registration, unfencing, fencing of others, leaders.
    `end_offset` is that of the log, by which the broker's epoch is numbered; `bootstrap` the
    records that the directory was formatted with."""
    node_id = registration.node_id
    directories = [each[1] for each in claimed.directories]
    records = [] if image.features else _bootstrap_records(bootstrap, registration)
    epoch = end_offset + len(records)
    kind = messages.RegisterBrokerRecord
    records.append(
        kind(
            broker_id=node_id,
            incarnation_id=_native.random_uuid_bytes(),
            broker_epoch=epoch,
            end_points=[
                kind.BrokerEndpoint(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=each.protocol,
                )
                for each in registration.endpoints
            ],
            features=[
                kind.BrokerFeature(
                    name=each.name,
                    min_supported_version=each.low,
                    max_supported_version=each.high,
                )
                for each in FEATURES
            ],
            rack=registration.rack,
            fenced=True,
            log_dirs=directories,
        )
    )
    change = messages.BrokerRegistrationChangeRecord
    records.append(change(broker_id=node_id, broker_epoch=epoch, fenced=-1))
    # Kafka's controller does so once it has not heard of them for broker.session.timeout.ms.
    records += [
        change(broker_id=each.id, broker_epoch=each.epoch, fenced=1)
        for each in image.brokers.values()
        if each.id != node_id and not each.is_fenced
    ]
    online = set(directories)
    for topic in image.topics.values():
        for partition in topic.partitions:
            directory = partition.directory_of(node_id)
            if directory in online:
                records.append(_led(topic, partition, node_id, None))
                continue
            found = claimed.find_partition(topic.name, topic.id, partition.index)
            if found is None and _is_directory(directory):
                # Its log is offline.
                records += _leaderless(image, topic, partition, node_id)
            else:
                records.append(_led(topic, partition, node_id, found or claimed.place(1)[0]))
    return records


def stop_records(image: Image, node_id: int) -> list[Any]:
    """No partition has a leader, the broker is fenced."""
    epoch = image.brokers[node_id].epoch
    change = messages.BrokerRegistrationChangeRecord
    records = [change(broker_id=node_id, broker_epoch=epoch, in_controlled_shutdown=1)]
    for topic in image.topics.values():
        for partition in topic.partitions:
            records += _leaderless(image, topic, partition, node_id)
    return [*records, change(broker_id=node_id, broker_epoch=epoch, fenced=1)]


def lost_partitions(image: Image) -> list[str]:
    """A sentence about the partitions that one node, which has just started, does not lead."""
    lost = [
        f"{topic.name}-{partition.index}"
        for topic in image.topics.values()
        for partition in topic.partitions
        if partition.leader == NO_LEADER
    ]
    if not lost:
        return []
    rest = len(lost) - LOST_PARTITIONS_NAMED
    more = f" and {rest} more" if rest > 0 else ""
    named = ", ".join(lost[:LOST_PARTITIONS_NAMED])
    return [f"partitions without a leader, as no log directory in use holds them: {named}{more}"]


def _bootstrap_records(bootstrap: Sequence[Any], registration: Registration) -> list[Any]:
    """The records that Kafka's controller writes first into a new log."""
    records = list(bootstrap) or own_features()
    if _levels(records).get(ELR_VERSION):
        default = config_record(BROKER, "", MIN_INSYNC_REPLICAS, registration.min_insync_replicas)
        return [*records, default]
    return records


def _levels(bootstrap: Sequence[Any]) -> dict[str, int]:
    """Feature -> level. `kafka-storage format --add-scram` leaves credentials beside them."""
    levels = [each for each in bootstrap if each._name == "FeatureLevelRecord"]
    return {each.name: each.feature_level for each in levels if each.feature_level}


def _is_directory(directory_id: bytes) -> bool:
    return int.from_bytes(directory_id, "big") >= RESERVED_DIRECTORY_IDS


def _led(
    topic: TopicImage, partition: PartitionImage, node_id: int, directory: bytes | None
) -> Any:
    """The record by which the node leads a partition anew, in another directory if one is given."""
    return messages.PartitionChangeRecord(
        partition_id=partition.index,
        topic_id=topic.id,
        leader=node_id,
        isr=None if partition.isr == (node_id,) else [node_id],
        eligible_leader_replicas=[] if partition.elr else None,
        last_known_elr=[] if partition.last_known_elr else None,
        directories=None if directory is None else [directory],
    )


def _leaderless(
    image: Image, topic: TopicImage, partition: PartitionImage, node_id: int
) -> list[Any]:
    """The record by which a partition has no leader, unless it has none."""
    if partition.leader == NO_LEADER:
        return []
    has_elr = bool(image.features.get(ELR_VERSION))
    return [
        messages.PartitionChangeRecord(
            partition_id=partition.index,
            topic_id=topic.id,
            leader=NO_LEADER,
            isr=[] if has_elr else None,
            eligible_leader_replicas=[node_id] if has_elr else None,
            last_known_elr=[node_id] if has_elr else None,
        )
    ]
