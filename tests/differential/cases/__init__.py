"""The script: every case in the order in which it is played."""

from differential.cases import (
    cluster,
    configs,
    edges,
    edges_of_records,
    groups,
    records,
    topics,
    transactions,
)
from differential.script import Case

SCRIPT: list[Case] = [
    # First, since on a Kafka that other tests have used the groups' topic is there already.
    *groups.COORDINATORS,
    *cluster.VERSIONS,
    *topics.MAKING,
    *topics.GROWING,
    *topics.SHOWING,
    *configs.TOPIC_CONFIGS,
    *records.PRODUCING,
    *records.IDEMPOTENT,
    *records.FETCHING,
    *records.OFFSETS,
    *records.CUTTING,
    *groups.MEMBERS,
    *groups.OFFSETS,
    *groups.SHOWN,
    *configs.OTHER_CONFIGS,
    *transactions.LISTING,
    *transactions.WRONG,
    *cluster.CLUSTER,
    *cluster.ACLS,
    *cluster.PLACES,
    *edges_of_records.PRODUCING,
    *edges_of_records.READING,
    *edges.TOPICS,
    *edges.CONFIGS,
    *edges.GROUPS,
    *topics.DELETING,
]
