"""Requests of the keys that Python answers, as large as they may be.

Each has as many elements as a request may have (`REQUEST_ELEMENTS_MAX`), with names that make up
its size: of what there is not, and, by the topic that `prepare` makes, of what there is. Where a
request has several kinds of elements there is one for each.
"""

from collections.abc import Callable
from typing import Any

from api.raw import KEYS, Connection
from kafkalite.protocol import messages

ELEMENTS_MAX = 100_000
KNOWN = "known"
KNOWN_PARTITIONS = 1000
MADE_MAX = 4999
"""Topics of one partition each, which take two records; more than 10,000 are refused."""

Text = Callable[[int], str]


def prepare(bootstrap_servers: str) -> None:
    """Makes the topic, and the coordinator's."""
    topic = (KNOWN, KNOWN_PARTITIONS, 1, [], [])
    create = messages.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    find = messages.FindCoordinatorRequest(coordinator_keys=["group"])
    with Connection(bootstrap_servers) as connection:
        for key, version, request in ((19, 7, create), (10, 6, find)):
            connection.send(key, version, request.encode(version))
            assert connection.receive_frame() is not None


def commit_unknown(count: int, text: Text) -> Any:
    topics = [(text(index), bytes(16), [(0, 1, -1, "")]) for index in range(count // 2)]
    return messages.OffsetCommitRequest(group_id="group", topics=topics)


def commit_known(count: int, text: Text) -> Any:
    rows = [(index % KNOWN_PARTITIONS, 1, -1, text(index)) for index in range(count - 1)]
    return messages.OffsetCommitRequest(group_id="group", topics=[(KNOWN, bytes(16), rows)])


def fetch_offsets(count: int, text: Text) -> Any:
    topics = [(text(index), bytes(16), [0]) for index in range((count - 1) // 2)]
    return messages.OffsetFetchRequest(groups=[("group", None, -1, topics)])


def fetch_offsets_of_groups(count: int, text: Text) -> Any:
    groups = [(text(index), None, -1, None) for index in range(count)]
    return messages.OffsetFetchRequest(groups=groups)


def join(count: int, text: Text) -> Any:
    protocols = [(text(index), b"") for index in range(count)]
    return messages.JoinGroupRequest(
        group_id="group",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=protocols,
    )


def create(count: int, text: Text) -> Any:
    topics = [(text(index), 0, 1, [], []) for index in range(count)]
    return messages.CreateTopicsRequest(topics=topics)


def create_made(count: int, text: Text) -> Any:
    topics = [(text(index), 1, 1, [], []) for index in range(min(count, MADE_MAX))]
    return messages.CreateTopicsRequest(topics=topics)


def create_configs(count: int, text: Text) -> Any:
    configs = [(text(index), "1") for index in range(count - 1)]
    return messages.CreateTopicsRequest(topics=[("t", 1, 1, [], configs)])


def create_assignments(count: int, _text: Text) -> Any:
    assignments = [(index, [0]) for index in range(min(count // 2 - 1, 9_998))]
    return messages.CreateTopicsRequest(topics=[("t", -1, -1, assignments, [])])


def delete_topics(count: int, text: Text) -> Any:
    return messages.DeleteTopicsRequest(topic_names=[text(index) for index in range(count)])


def delete_topics_by_id(count: int, _text: Text) -> Any:
    topics = [(None, index.to_bytes(16, "big")) for index in range(1, count)]
    return messages.DeleteTopicsRequest(topics=topics)


def delete_records(count: int, text: Text) -> Any:
    topics = [(text(index), [(0, 1)]) for index in range(count // 2)]
    return messages.DeleteRecordsRequest(topics=topics, timeout_ms=1000)


def delete_records_known(count: int, _text: Text) -> Any:
    rows = [(index, 0) for index in range(count - 1)]
    return messages.DeleteRecordsRequest(topics=[(KNOWN, rows)], timeout_ms=1000)


def epochs(count: int, text: Text) -> Any:
    topics = [(text(index), [(0, -1, 0)]) for index in range(count // 2)]
    return messages.OffsetForLeaderEpochRequest(topics=topics)


def epochs_known(count: int, _text: Text) -> Any:
    rows = [(index % KNOWN_PARTITIONS, -1, 0) for index in range(count - 1)]
    return messages.OffsetForLeaderEpochRequest(topics=[(KNOWN, rows)])


def describe_configs(count: int, text: Text) -> Any:
    resources = [(2, text(index), None) for index in range(count)]
    return messages.DescribeConfigsRequest(resources=resources)


def describe_known(count: int, text: Text) -> Any:
    resources = [(2, KNOWN, [text(index)]) for index in range(count // 2)]
    return messages.DescribeConfigsRequest(resources=resources)


def alter(count: int, text: Text) -> Any:
    resources = [(2, text(index), []) for index in range(count)]
    return messages.AlterConfigsRequest(resources=resources)


def alter_keys(count: int, text: Text) -> Any:
    configs = [(text(index), 0, "1") for index in range(count - 1)]
    return messages.IncrementalAlterConfigsRequest(resources=[(2, KNOWN, configs)])


def alter_groups(count: int, text: Text) -> Any:
    configs = [("consumer.session.timeout.ms", 0, "50000")]
    resources = [(32, text(index), configs) for index in range(min(count // 2, 2 * MADE_MAX))]
    return messages.IncrementalAlterConfigsRequest(resources=resources)


def add_partitions(count: int, _text: Text) -> Any:
    indexes = [index % KNOWN_PARTITIONS for index in range(count - 1)]
    return messages.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="nobody",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=1,
        v3_and_below_topics=[(KNOWN, indexes)],
    )


def verify_partitions(count: int, text: Text) -> Any:
    transactions = [(text(index), 1, 1, True, [(KNOWN, [0])]) for index in range(count // 3)]
    return messages.AddPartitionsToTxnRequest(transactions=transactions)


def write_markers(count: int, text: Text) -> Any:
    topics = [(text(index), [0]) for index in range(count // 2)]
    return messages.WriteTxnMarkersRequest(markers=[(1, 1, True, topics, 0)])


def commit_in_transaction(count: int, text: Text) -> Any:
    rows = [(index % KNOWN_PARTITIONS, 1, -1, text(index)) for index in range(count - 1)]
    return messages.TxnOffsetCommitRequest(
        transactional_id="nobody",
        group_id="group",
        producer_id=1,
        producer_epoch=1,
        generation_id=-1,
        topics=[(KNOWN, rows)],
    )


def names_of(kind: str, field: str, **others: Any) -> Callable[[int, Text], Any]:
    """A request with an array of strings."""

    def build(count: int, text: Text) -> Any:
        names = [text(index) for index in range(count)]
        return getattr(messages, f"{kind}Request")(**{field: names}, **others)

    return build


def rows_of(kind: str, field: str, row: Callable[[str], Any], **others: Any) -> Any:
    """A request with an array of structs, each of so many elements."""
    elements = 1 + sum(isinstance(each, list) for each in row(""))

    def build(count: int, text: Text) -> Any:
        rows = [row(text(index)) for index in range(count // elements)]
        return getattr(messages, f"{kind}Request")(**{field: rows}, **others)

    return build


CASES: dict[str, tuple[str, int, Callable[[int, Text], Any]]] = {
    "OffsetCommit": ("OffsetCommit", 9, commit_unknown),
    "OffsetCommit, known": ("OffsetCommit", 9, commit_known),
    "OffsetFetch": ("OffsetFetch", 9, fetch_offsets),
    "OffsetFetch, groups": ("OffsetFetch", 9, fetch_offsets_of_groups),
    "FindCoordinator": ("FindCoordinator", 6, names_of("FindCoordinator", "coordinator_keys")),
    "JoinGroup": ("JoinGroup", 9, join),
    "LeaveGroup": (
        "LeaveGroup",
        5,
        rows_of("LeaveGroup", "members", lambda text: (text, None, None), group_id="group"),
    ),
    "SyncGroup": (
        "SyncGroup",
        5,
        rows_of("SyncGroup", "assignments", lambda text: (text, b""), group_id="group"),
    ),
    "DescribeGroups": ("DescribeGroups", 6, names_of("DescribeGroups", "groups")),
    "ListGroups": ("ListGroups", 5, names_of("ListGroups", "states_filter")),
    "CreateTopics": ("CreateTopics", 7, create),
    "CreateTopics, made": ("CreateTopics", 7, create_made),
    "CreateTopics, configs": ("CreateTopics", 7, create_configs),
    "CreateTopics, assignments": ("CreateTopics", 7, create_assignments),
    "DeleteTopics": ("DeleteTopics", 5, delete_topics),
    "DeleteTopics, ids": ("DeleteTopics", 6, delete_topics_by_id),
    "DeleteRecords": ("DeleteRecords", 2, delete_records),
    "DeleteRecords, known": ("DeleteRecords", 2, delete_records_known),
    "OffsetForLeaderEpoch": ("OffsetForLeaderEpoch", 4, epochs),
    "OffsetForLeaderEpoch, known": ("OffsetForLeaderEpoch", 4, epochs_known),
    "CreateAcls": (
        "CreateAcls",
        3,
        rows_of("CreateAcls", "creations", lambda text: (2, text, 3, "User:a", "*", 3, 3)),
    ),
    "DeleteAcls": (
        "DeleteAcls",
        3,
        rows_of("DeleteAcls", "filters", lambda text: (2, text, 3, None, None, 3, 3)),
    ),
    "DescribeConfigs": ("DescribeConfigs", 4, describe_configs),
    "DescribeConfigs, known": ("DescribeConfigs", 4, describe_known),
    "AlterConfigs": ("AlterConfigs", 2, alter),
    "IncrementalAlterConfigs, keys": ("IncrementalAlterConfigs", 1, alter_keys),
    "IncrementalAlterConfigs, made": ("IncrementalAlterConfigs", 1, alter_groups),
    "DescribeLogDirs": (
        "DescribeLogDirs",
        4,
        rows_of("DescribeLogDirs", "topics", lambda text: (text, [0])),
    ),
    "CreatePartitions": (
        "CreatePartitions",
        3,
        rows_of("CreatePartitions", "topics", lambda text: (text, 2, None), timeout_ms=1000),
    ),
    "DeleteGroups": ("DeleteGroups", 2, names_of("DeleteGroups", "groups_names")),
    "ElectLeaders": (
        "ElectLeaders",
        2,
        rows_of("ElectLeaders", "topic_partitions", lambda text: (text, [0])),
    ),
    "AlterPartitionReassignments": (
        "AlterPartitionReassignments",
        0,
        lambda count, text: messages.AlterPartitionReassignmentsRequest(
            topics=[(text(index), [(0, [0])]) for index in range(count // 3)]
        ),
    ),
    "ListPartitionReassignments": (
        "ListPartitionReassignments",
        0,
        rows_of("ListPartitionReassignments", "topics", lambda text: (text, [0])),
    ),
    "OffsetDelete": (
        "OffsetDelete",
        0,
        rows_of("OffsetDelete", "topics", lambda text: (text, [(0,)]), group_id="group"),
    ),
    "OffsetDelete, known": (
        "OffsetDelete",
        0,
        lambda count, _text: messages.OffsetDeleteRequest(
            group_id="group",
            topics=[(KNOWN, [(index % KNOWN_PARTITIONS,) for index in range(count - 1)])],
        ),
    ),
    "UpdateFeatures": (
        "UpdateFeatures",
        1,
        rows_of("UpdateFeatures", "feature_updates", lambda text: (text, 1, False, 1)),
    ),
    "DescribeProducers": (
        "DescribeProducers",
        0,
        rows_of("DescribeProducers", "topics", lambda text: (text, [0])),
    ),
    "DescribeProducers, known": (
        "DescribeProducers",
        0,
        lambda count, _text: messages.DescribeProducersRequest(
            topics=[(KNOWN, [index % KNOWN_PARTITIONS for index in range(count - 1)])]
        ),
    ),
    "ListConfigResources": (
        "ListConfigResources",
        1,
        lambda count, _text: messages.ListConfigResourcesRequest(
            resource_types=[index % 100 for index in range(count)]
        ),
    ),
    "AddPartitionsToTxn": ("AddPartitionsToTxn", 3, add_partitions),
    "AddPartitionsToTxn, of brokers": ("AddPartitionsToTxn", 5, verify_partitions),
    "WriteTxnMarkers": ("WriteTxnMarkers", 1, write_markers),
    "WriteTxnMarkers, many": (
        "WriteTxnMarkers",
        1,
        rows_of("WriteTxnMarkers", "markers", lambda text: (1, 1, True, [(text, [0])], 0)),
    ),
    "TxnOffsetCommit": ("TxnOffsetCommit", 3, commit_in_transaction),
    "DescribeTransactions": (
        "DescribeTransactions",
        0,
        names_of("DescribeTransactions", "transactional_ids"),
    ),
    "DescribeTopicPartitions": (
        "DescribeTopicPartitions",
        0,
        rows_of("DescribeTopicPartitions", "topics", lambda text: (text,)),
    ),
}


def body(name: str, size: int, elements_max: int = ELEMENTS_MAX) -> tuple[int, int, bytes]:
    """Key, version and body of a request of about `size` bytes; less where only its count of
    elements makes it large. Names are no longer than a string of old versions may be."""
    kind, version, build = CASES[name]
    sample = len(build(1000, lambda index: f"{index:05}").encode(version))
    names = 0

    def text(index: int) -> str:
        nonlocal names
        names += 1
        return f"{index:05}"

    count = min(elements_max, max(1000, size * 1000 // sample))
    short = len(build(count, text).encode(version))
    padding = min(32_000, max(0, size - short) // max(1, names))
    filling = "x" * padding
    message = build(count, lambda index: f"{index:05}{filling}")
    return KEYS[kind], version, message.encode(version)
