"""Reads logs, and talks to brokers, from Python: blocking, and without a dependency.

    Admin         topics, configurations (of a TOPIC, BROKER or GROUP), offsets (LATEST, EARLIEST,
                  MAX_TIMESTAMP, a time), brokers
    GroupAdmin    consumer groups and their offsets
    Producer      sends records
    Consumer      reads records, each a Record
    read_arrow    topics as Arrow
    read_log      files as Arrow
    write_arrow   Arrow into topics
    Cluster       brokers, leaders, coordinators, and what is tried again
    Connection    one connection: requests, responses, versions

The other names are the tuples that these give. What they raise is in `kafkalite.errors`, above all
`BrokerError`, with Kafka's `code` and `name`. Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same as in _HOMES, for type checkers and editors
    from kafkalite.client.admin import (
        BROKER,
        EARLIEST,
        GROUP,
        LATEST,
        MAX_TIMESTAMP,
        TOPIC,
        Admin,
        BrokerDescription,
        ClusterDescription,
        ConfigEntry,
        ListedOffset,
        PartitionDescription,
        TopicDescription,
        TopicListing,
        uuid_text,
    )
    from kafkalite.client.arrow.records import LogRecords, read_log
    from kafkalite.client.arrow.wire import read_arrow
    from kafkalite.client.arrow.writer import Written, WrittenPartition, write_arrow
    from kafkalite.client.consumer.consumer import Consumer, Fetched, Record
    from kafkalite.client.consumer.group_options import GroupOptions
    from kafkalite.client.group_admin import (
        Committed,
        GroupAdmin,
        GroupDescription,
        GroupListing,
        GroupMember,
    )
    from kafkalite.client.network.cluster import Cluster
    from kafkalite.client.network.connection import Connection
    from kafkalite.client.network.metadata import Node
    from kafkalite.client.producer.producer import Producer

# Public name -> module that holds it.
_HOMES: dict[str, str] = {
    "Admin": "kafkalite.client.admin",
    "BROKER": "kafkalite.client.admin",
    "BrokerDescription": "kafkalite.client.admin",
    "Cluster": "kafkalite.client.network.cluster",
    "ClusterDescription": "kafkalite.client.admin",
    "Committed": "kafkalite.client.group_admin",
    "ConfigEntry": "kafkalite.client.admin",
    "Connection": "kafkalite.client.network.connection",
    "Consumer": "kafkalite.client.consumer.consumer",
    "EARLIEST": "kafkalite.client.admin",
    "Fetched": "kafkalite.client.consumer.consumer",
    "GROUP": "kafkalite.client.admin",
    "GroupAdmin": "kafkalite.client.group_admin",
    "GroupDescription": "kafkalite.client.group_admin",
    "GroupListing": "kafkalite.client.group_admin",
    "GroupMember": "kafkalite.client.group_admin",
    "GroupOptions": "kafkalite.client.consumer.group_options",
    "LATEST": "kafkalite.client.admin",
    "ListedOffset": "kafkalite.client.admin",
    "LogRecords": "kafkalite.client.arrow.records",
    "MAX_TIMESTAMP": "kafkalite.client.admin",
    "Node": "kafkalite.client.network.metadata",
    "PartitionDescription": "kafkalite.client.admin",
    "Producer": "kafkalite.client.producer.producer",
    "Record": "kafkalite.client.consumer.consumer",
    "TOPIC": "kafkalite.client.admin",
    "TopicDescription": "kafkalite.client.admin",
    "TopicListing": "kafkalite.client.admin",
    "Written": "kafkalite.client.arrow.writer",
    "WrittenPartition": "kafkalite.client.arrow.writer",
    "read_arrow": "kafkalite.client.arrow.wire",
    "read_log": "kafkalite.client.arrow.records",
    "uuid_text": "kafkalite.client.admin",
    "write_arrow": "kafkalite.client.arrow.writer",
}

__all__ = [
    "BROKER",
    "EARLIEST",
    "GROUP",
    "LATEST",
    "MAX_TIMESTAMP",
    "TOPIC",
    "Admin",
    "BrokerDescription",
    "Cluster",
    "ClusterDescription",
    "Committed",
    "ConfigEntry",
    "Connection",
    "Consumer",
    "Fetched",
    "GroupAdmin",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupOptions",
    "ListedOffset",
    "LogRecords",
    "Node",
    "PartitionDescription",
    "Producer",
    "Record",
    "TopicDescription",
    "TopicListing",
    "Written",
    "WrittenPartition",
    "read_arrow",
    "read_log",
    "uuid_text",
    "write_arrow",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kafkalite.client' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
