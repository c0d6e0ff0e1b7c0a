"""Requests of clients that may not do what they ask for, and the error codes of the answers.

Rights hang on addresses, since nobody is authenticated here: 127.0.0.1 may do everything, 127.0.0.2
(`guest`) everything to topics, groups and transactional ids whose names begin with `open` and may
see topics that begin with `seen`, 127.0.0.3 (`stranger`) nothing. Rust's keys are not among them
(tests/rust/denied.rs).
"""

from collections.abc import Iterator
from typing import Any

from differential.script import Case, Kept
from kafkalite.access import CLUSTER, DESCRIBE, GROUP, TOPIC, TRANSACTIONAL_ID

SOURCES = {"guest": "127.0.0.2", "stranger": "127.0.0.3"}
"""Address by the name of the connection."""

ALL = 2
LITERAL, PREFIXED = 3, 4
ALLOW = 3
NO_ID = bytes(15) + b"\1"
BROKER, LOGGER, CLIENT_METRICS, CONFIGS_OF_GROUP = 4, 8, 16, 32


def may(host: str, operation: int, kind: int, name: str | None) -> bool:
    """The rights as they are above; without a name to some topic, or to the cluster."""
    if host not in SOURCES.values():
        return True
    if host == SOURCES["stranger"] or kind == CLUSTER:
        return False
    is_seen = kind == TOPIC and operation == DESCRIBE and name is not None
    return name is None or name.startswith("open") or (is_seen and name.startswith("seen"))


def _acl(host: str, operation: int, kind: int, pattern: int, name: str) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": "User:*",
        "host": host,
        "operation": operation,
        "permission_type": ALLOW,
    }


ACLS = [
    _acl("127.0.0.1", ALL, CLUSTER, LITERAL, "kafka-cluster"),
    *(_acl("127.0.0.1", ALL, kind, LITERAL, "*") for kind in (TOPIC, GROUP, TRANSACTIONAL_ID)),
    *(
        _acl(SOURCES["guest"], ALL, kind, PREFIXED, "open")
        for kind in (TOPIC, GROUP, TRANSACTIONAL_ID)
    ),
    _acl(SOURCES["guest"], DESCRIBE, TOPIC, PREFIXED, "seen"),
]
"""The same rights as ACLs of Kafka."""

RIGHTS = [Case("rights", "CreateAcls", 3, {"creations": ACLS})]


def _topic(name: str) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1}


MADE = ("open-topic", "seen-topic", "hidden-topic")
PREPARATIONS = [
    Case("topics", "CreateTopics", 7, {"topics": [_topic(name) for name in MADE]}),
    Case("group", "FindCoordinator", 3, {"key": "open-group"}, until={"error_code": 0}),
    Case(
        "offsets",
        "OffsetCommit",
        9,
        {
            "group_id": "open-group",
            "generation_id_or_member_epoch": -1,
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 3}]}
                for name in MADE
            ],
        },
        until={"topics.0.partitions.0.error_code": 0},
    ),
    Case("ids", "FindCoordinator", 3, {"key": "open-id", "key_type": 1}, until={"error_code": 0}),
    *(
        Case(
            f"the id {name}",
            "InitProducerId",
            5,
            {"transactional_id": name, "transaction_timeout_ms": 60_000},
            until={"error_code": 0},
        )
        for name in ("open-id", "hidden-id")
    ),
]

Denial = tuple[Case, list[int]]


def _asked(api: str, version: int, codes: list[int], on: str = "guest", **fields: Any) -> Denial:
    name = f"{api} v{version}: {fields!r:.200} of a {on}"
    return Case(name, api, version, fields, on=on), codes


def _commit(version: int, group: str, codes: list[int], *topics: Any) -> Denial:
    key = "topic_id" if version >= 10 else "name"
    return _asked(
        "OffsetCommit",
        version,
        codes,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[
            {key: each, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
            for each in topics
        ],
    )


def _named(*names: str, key: str = "name", indexes: str = "partition_indexes") -> list[Any]:
    return [{key: name, indexes: [0]} for name in names]


HIDDEN_ID = Kept("id of hidden-topic")
TOPICS = ("hidden-topic", "hidden-missing", "open-missing", "open-topic")


def _of_groups() -> Iterator[Denial]:
    yield _commit(9, "hidden-group", [30, 30], "open-topic", "hidden-topic")
    yield _commit(9, "open-group", [29, 29, 3, 0], *TOPICS)
    yield _commit(10, "hidden-group", [30], HIDDEN_ID)
    yield _commit(10, "open-group", [100, 29], HIDDEN_ID, NO_ID)
    fetched = {"group_id": "open-group", "topics": _named("hidden-topic", "open-topic")}
    for version, codes in ((1, [30]), (2, [30]), (7, [30])):
        topics = _named("open-topic")
        yield _asked("OffsetFetch", version, codes, group_id="hidden-group", topics=topics)
    everything = {"group_id": "open-group", "topics": None}
    hidden = {"group_id": "hidden-group", "topics": _named("open-topic")}
    for group, codes in ((fetched, [29, 0, 0]), (everything, [0, 0, 0]), (hidden, [30])):
        yield _asked("OffsetFetch", 9, codes, groups=[group])
    by_id = [{"topic_id": each, "partition_indexes": [0]} for each in (HIDDEN_ID, NO_ID)]
    group = {"group_id": "open-group", "topics": by_id}
    yield _asked("OffsetFetch", 10, [100, 29, 0], groups=[group])
    yield _asked("FindCoordinator", 3, [30], key="hidden-group")
    keys = ["hidden-group", "open-group"]
    yield _asked("FindCoordinator", 6, [30, 0], coordinator_keys=keys)
    share = ["hidden-group:AAAAAAAAAAAAAAAAAAAAAQ:0"]
    yield _asked("FindCoordinator", 6, [31], key_type=2, coordinator_keys=share)
    for version in (0, 6, 9):
        yield _asked("JoinGroup", version, [30], group_id="hidden-group")
    yield _asked("Heartbeat", 4, [30], group_id="hidden-group")
    yield _asked("LeaveGroup", 2, [30], group_id="hidden-group")
    members = [{"member_id": "me"}]
    yield _asked("LeaveGroup", 5, [30], group_id="hidden-group", members=members)
    yield _asked("SyncGroup", 4, [30], group_id="hidden-group")
    yield _asked("SyncGroup", 5, [23], group_id="hidden-group")
    spoken = {"protocol_type": "consumer", "protocol_name": "range"}
    yield _asked("SyncGroup", 5, [30], group_id="hidden-group", **spoken)
    for version, codes in ((5, [30, 0]), (6, [30, 69])):
        groups = ["hidden-group", "open-none"]
        asked = {"groups": groups, "include_authorized_operations": True}
        yield _asked("DescribeGroups", version, codes, **asked)
    yield _asked("ListGroups", 5, [0], on="guest")
    yield _asked("ListGroups", 5, [0], on="stranger")
    yield _asked("DeleteGroups", 2, [30, 69], groups_names=["hidden-group", "open-none"])
    deleted = [{"name": each, "partitions": [{"partition_index": 0}]} for each in TOPICS]
    yield _asked("OffsetDelete", 0, [30], group_id="hidden-group", topics=deleted)
    yield _asked("OffsetDelete", 0, [0, 29, 29, 3, 0], group_id="open-group", topics=deleted)


def _of_topics() -> Iterator[Denial]:
    made = [_topic(name) for name in ("hidden-new", "__cluster_metadata")]
    asked = {"topics": [*made, _topic("hidden-twice"), _topic("hidden-twice")]}
    codes = [29, 42, 42]
    yield _asked("CreateTopics", 7, codes, **asked, validate_only=True)
    yield _asked("CreateTopics", 7, [29], topics=made[:1], timeout_ms=0)
    names = ["hidden-topic", "hidden-missing", "seen-topic", "seen-missing", "open-missing"]
    yield _asked("DeleteTopics", 5, [29, 29, 29, 3, 3], topic_names=names, timeout_ms=5000)
    ids = [Kept(f"id of {name}") for name in ("hidden-topic", "seen-topic")]
    topics = [{"name": None, "topic_id": each} for each in [*ids, NO_ID]]
    yield _asked("DeleteTopics", 6, [29, 29, 100], topics=topics, timeout_ms=5000)
    rows = [{"partition_index": 0, "offset": 0}]
    records = [{"name": each, "partitions": rows} for each in TOPICS]
    yield _asked("DeleteRecords", 2, [29, 29, 3, 0], topics=records, timeout_ms=1000)
    yield _asked("InitProducerId", 5, [53], transactional_id="hidden-id")
    yield _asked("InitProducerId", 5, [53], transactional_id="")
    yield _asked("InitProducerId", 5, [31], on="stranger", transactional_id=None)
    ends = [{"partition": 0, "leader_epoch": 0}]
    asked = {"topics": [{"topic": each, "partitions": ends} for each in TOPICS]}
    yield _asked("OffsetForLeaderEpoch", 4, [29, 29, 3, 0], **asked, replica_id=-1)
    grown = [{"name": each, "count": 2} for each in TOPICS[:3]]
    yield _asked("CreatePartitions", 3, [29, 29, 3], topics=grown, timeout_ms=1000)
    yield _asked("CreatePartitions", 3, [29], topics=grown[:1], timeout_ms=0)
    named = _named(*TOPICS, "a b")
    yield _asked("DescribeProducers", 0, [17, 29, 29, 3, 0], topics=named)
    described = {"topics": [{"name": each} for each in (*TOPICS, "seen-topic")]}
    yield _asked("DescribeTopicPartitions", 0, [29, 29, 3, 0, 0, 0, 0], **described)
    yield _asked("DescribeTopicPartitions", 0, [], on="stranger", topics=[])


def _of_transactions() -> Iterator[Denial]:
    producer = {"producer_id": 7, "producer_epoch": 0}
    hidden = {"transactional_id": "hidden-id", **producer}
    topics = [{"name": "open-topic", "partitions": [0]}]
    added = {f"v3_and_below_{name}": value for name, value in {**hidden, "topics": topics}.items()}
    yield _asked("AddPartitionsToTxn", 3, [53], **added)
    transactions = [{**hidden, "verify_only": True, "topics": topics}]
    yield _asked("AddPartitionsToTxn", 5, [31], transactions=transactions)
    yield _asked("AddOffsetsToTxn", 4, [53], **hidden, group_id="open-group")
    yield _asked("EndTxn", 5, [53], **hidden, committed=True)
    markers = {"transaction_result": True, "coordinator_epoch": 0}
    told = [{**producer, **markers, "topics": _named("open-topic", "hidden-topic")}]
    yield _asked("WriteTxnMarkers", 1, [31, 31], markers=told)
    rows = [{"partition_index": 0, "committed_offset": 1}]
    offsets = [{"name": each, "partitions": rows} for each in ("open-topic", "hidden-topic")]
    yield _asked("TxnOffsetCommit", 3, [53, 53], **hidden, group_id="open-group", topics=offsets)
    ids = ["hidden-id", "hidden-other"]
    yield _asked("DescribeTransactions", 0, [53, 53], transactional_ids=ids)
    for on in SOURCES:
        yield _asked("ListTransactions", 2, [0], on=on)


def _of_configs() -> Iterator[Denial]:
    kinds = (
        (TOPIC, "hidden-topic"),
        (TOPIC, "hidden-missing"),
        (BROKER, "1"),
        (LOGGER, "1"),
        (CLIENT_METRICS, "metrics"),
        (CONFIGS_OF_GROUP, "hidden-group"),
    )
    resources = [{"resource_type": kind, "resource_name": name} for kind, name in kinds]
    codes = [31, 31, 30, 29, 29, 31]
    yield _asked("DescribeConfigs", 4, codes, resources=resources)
    retention = [{"name": "retention.ms", "value": "7"}]
    altered = [{**each, "configs": retention} for each in resources[:2]]
    altered.append({**resources[2], "configs": [{"name": "background.threads", "value": "11"}]})
    yield _asked("AlterConfigs", 2, [29, 29, 31], resources=altered)
    yield _asked("IncrementalAlterConfigs", 1, [29, 29, 31], resources=altered)
    twice = {"resource_type": TOPIC, "resource_name": "hidden-topic", "configs": retention}
    yield _asked("IncrementalAlterConfigs", 1, [42, 42], resources=[twice, twice])
    broken = {"name": "background.threads", "value": "x"}
    invalid = {"resource_type": BROKER, "resource_name": "1", "configs": [broken]}
    yield _asked("IncrementalAlterConfigs", 1, [42], resources=[invalid])
    level = [{"name": "root", "value": "INFO"}]
    logger = {"resource_type": LOGGER, "resource_name": "1", "configs": level}
    yield _asked("IncrementalAlterConfigs", 1, [31], resources=[logger])
    odd = [{"name": "retention.ms", "value": "7", "config_operation": 9}]
    strange = {"resource_type": TOPIC, "resource_name": "hidden-topic", "configs": odd}
    yield _asked("IncrementalAlterConfigs", 1, [29], resources=[strange])
    for version in (0, 1):
        yield _asked("ListConfigResources", version, [31])


def _of_cluster() -> Iterator[Denial]:
    for version in (1, 3, 5):
        codes = [31] if version >= 3 else []
        yield _asked("DescribeLogDirs", version, codes, topics=None)
    placed = [{"path": "/elsewhere", "topics": [{"name": "open-topic", "partitions": [0]}]}]
    yield _asked("AlterReplicaLogDirs", 2, [31], dirs=placed)
    elected = [{"topic": each, "partitions": [0]} for each in TOPICS[:2]]
    for version, codes in ((0, [31, 31]), (2, [31, 31, 31])):
        yield _asked("ElectLeaders", version, codes, topic_partitions=elected)
    yield _asked("ElectLeaders", 2, [31], topic_partitions=[])
    moved = [{"name": "open-topic", "partitions": [{"partition_index": 0, "replicas": [1]}]}]
    yield _asked("AlterPartitionReassignments", 1, [31, 31], topics=moved)
    yield _asked("ListPartitionReassignments", 0, [31], topics=_named("open-topic"))
    yield _asked("ListPartitionReassignments", 0, [31], topics=None)
    quorum = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    yield _asked("DescribeQuorum", 2, [31], topics=quorum)
    raised = [{"feature": "metadata.version", "max_version_level": 1}]
    yield _asked("UpdateFeatures", 2, [31], feature_updates=raised)
    yield _asked("DescribeCluster", 2, [0], include_cluster_authorized_operations=True)
    every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1}
    every |= {"permission_type": 1, "resource_name_filter": None, "principal_filter": None}
    every |= {"host_filter": None}
    yield _asked("DescribeAcls", 3, [31], **every)
    yield _asked("DeleteAcls", 3, [31], filters=[every])
    yield _asked("CreateAcls", 3, [31], creations=ACLS[:1])


DENIALS: list[Denial] = [
    *_of_groups(),
    *_of_topics(),
    *_of_transactions(),
    *_of_configs(),
    *_of_cluster(),
]
