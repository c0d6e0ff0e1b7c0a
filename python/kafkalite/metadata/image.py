"""The metadata of a cluster at one moment: brokers, topics, configs, features. Immutable.

An image holds all partitions of the cluster, whichever brokers they lie on. `fold.py` makes one
from records and `image_records.py` the records that stand for one.

Kafka: `MetadataImage`, `PartitionRegistration`, `BrokerRegistration`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

NO_LEADER = -1

TOPIC = 2
BROKER = 4
CLIENT_METRICS = 16
GROUP = 32

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"))

UNASSIGNED_DIRECTORY = (1).to_bytes(16, "big")
"""The directory of a replica whose node has several and has not said which (`DirectoryId`)."""


class PartitionImage(NamedTuple):
    """One partition. Nodes are ids; directories are ids of 16 bytes, one a replica."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()
    recovery_state: int = 0
    """1 after an election that may have lost records, until the leader says otherwise."""

    def directory_of(self, broker_id: int) -> bytes:
        """The id of the log directory of a broker's replica. Raises ValueError if it has none."""
        at = self.replicas.index(broker_id)
        return self.directories[at] if at < len(self.directories) else UNASSIGNED_DIRECTORY


class TopicImage(NamedTuple):
    """One topic; its partitions by index, without gaps."""

    name: str
    id: bytes
    partitions: tuple[PartitionImage, ...]

    @property
    def is_internal(self) -> bool:
        """It is one of the coordinators' topics."""
        return self.name in INTERNAL_TOPICS


class BrokerEndpoint(NamedTuple):
    """A listener of a broker; `protocol` 0 is PLAINTEXT."""

    name: str
    host: str
    port: int
    protocol: int


class BrokerImage(NamedTuple):
    """A registered broker. `epoch` is the offset of its registration."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[tuple[str, int, int], ...]
    """Name, lowest and highest level that it supports."""
    rack: str | None
    is_fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] | None

    def endpoint(self, listener_name: str) -> BrokerEndpoint | None:
        """The endpoint that clients of a listener are told; None if the broker has none of that
        name."""
        return next((each for each in self.endpoints if each.name == listener_name), None)


class ProducerIds(NamedTuple):
    """The block of producer ids that was given out last ends before `next_id`."""

    broker_id: int
    broker_epoch: int
    next_id: int


class AlikeNames(dict[str, frozenset[str]]):
    """Names of topics by the form in which `.` and `_` are one, as they are in the names of
    metrics; of those names only that have either (`Topic.hasCollisionChars`)."""

    def add(self, name: str) -> None:
        """Enters a name."""
        if "." in name or "_" in name:
            form = name.replace(".", "_")
            self[form] = self.get(form, frozenset()) | {name}

    def discard(self, name: str) -> None:
        """Takes a name out, if it is there."""
        form = name.replace(".", "_")
        rest = self.pop(form, frozenset()) - {name}
        if rest:
            self[form] = rest

    def like(self, name: str) -> frozenset[str]:
        """The names that cannot be told from this one."""
        return self.get(name.replace(".", "_"), frozenset())


class Image(NamedTuple):
    """All of it after the record at `last_offset`."""

    topics: Mapping[str, TopicImage] = {}
    topics_by_id: Mapping[bytes, TopicImage] = {}
    alike: AlikeNames = AlikeNames()
    configs: Mapping[tuple[int, str], Mapping[str, str]] = {}
    """(resource type, name) -> what is set. The name "" is every resource of the type."""
    brokers: Mapping[int, BrokerImage] = {}
    features: Mapping[str, int] = {}
    """Finalised levels; a feature at level 0 is not in it."""
    producer_ids: ProducerIds | None = None
    kept: Mapping[tuple[Any, ...], bytes] = {}
    """Identity -> record, of what is only kept."""
    leader_epoch: int = 0
    """The quorum's, when it wrote the last record."""
    last_offset: int = -1
    last_timestamp: int = 0


def has_partition(image: Image, topic: str, partition: int) -> bool:
    """The partition is there."""
    found = image.topics.get(topic)
    return found is not None and 0 <= partition < len(found.partitions)


def alive_brokers(image: Image) -> list[BrokerImage]:
    """The brokers that clients are told of, by their ids: those that are not fenced."""
    return [
        image.brokers[each] for each in sorted(image.brokers) if not image.brokers[each].is_fenced
    ]
