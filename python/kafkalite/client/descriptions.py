"""Types of what `Admin` answers."""

from typing import Any, NamedTuple

__all__ = [
    "BrokerDescription",
    "ClusterDescription",
    "ConfigEntry",
    "ListedOffset",
    "PartitionDescription",
    "TopicDescription",
    "TopicListing",
    "config_entry",
]

# Where a value comes from (`ConfigEntry.ConfigSource`, as on the wire).
CONFIG_SOURCES = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
DEFAULT_CONFIG = 5


class BrokerDescription(NamedTuple):
    """A broker; a fenced one has registered but takes no clients."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class ClusterDescription(NamedTuple):
    """`controller_id` is -1 if the brokers do not tell."""

    cluster_id: str
    controller_id: int
    brokers: list[BrokerDescription]


class TopicListing(NamedTuple):
    """A topic's name and id."""

    name: str
    id: bytes
    is_internal: bool


class PartitionDescription(NamedTuple):
    """`leader` is -1 while there is none; `elr` and `last_known_elr` (KIP-966) are None where the
    broker does not tell."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    elr: list[int] | None
    last_known_elr: list[int] | None
    offline_replicas: list[int]


class TopicDescription(NamedTuple):
    """A topic, partitions by index."""

    name: str
    id: bytes
    is_internal: bool
    partitions: list[PartitionDescription]


class ConfigEntry(NamedTuple):
    """One configuration of a resource; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    synonyms: list[tuple[str, str, str | None]]
    """Source, name and value of whatever would apply, the first that does first."""
    documentation: str | None


class ListedOffset(NamedTuple):
    """An offset that ListOffsets found; -1 each for nothing."""

    offset: int
    timestamp: int
    leader_epoch: int


def config_entry(row: Any) -> ConfigEntry:
    """A configuration from its row of DescribeConfigs."""
    source = CONFIG_SOURCES.get(row.config_source, "UNKNOWN")
    return ConfigEntry(
        row.name,
        row.value,
        source,
        row.config_source == DEFAULT_CONFIG,
        row.read_only,
        row.is_sensitive,
        [(CONFIG_SOURCES.get(s.source, "UNKNOWN"), s.name, s.value) for s in row.synonyms],
        row.documentation,
    )
