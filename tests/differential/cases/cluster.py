"""The broker itself: versions, the cluster, features, transactions, and frames that are none."""

from differential.script import Case, ask, versions

VERSIONS = [
    *versions(
        "api versions",
        "ApiVersions",
        range(5),
        client_software_name="kafkalite-test",
        client_software_version="1.0",
    ),
    Case("api versions of the future", "ApiVersions", 99, body=b"\x01\x02\x03"),
    ask(
        "api versions of an illegal client",
        "ApiVersions",
        3,
        client_software_name="-",
        client_software_version="1",
    ),
    ask(
        "api versions of no client",
        "ApiVersions",
        3,
        client_software_name="",
        client_software_version="",
    ),
    *[
        Case(f"{api} v{version} is unknown", api, version, body=bytes(16), on="unknown")
        for api, version in [
            ("Produce", 2),
            ("Produce", 14),
            ("Fetch", 3),
            ("Fetch", 19),
            ("ListOffsets", 0),
            ("Metadata", 14),
            ("CreateTopics", 1),
            ("OffsetCommit", 1),
            ("OffsetFetch", 0),
            ("JoinGroup", 10),
            ("DeleteTopics", 0),
            ("Metadata", -1),
            ("4", 0),
            ("Vote", 0),
            ("999", 0),
            ("-1", 0),
        ]
    ],
    ask("bytes behind a request", "DescribeCluster", 1),
    Case("bytes behind a metadata request", "Metadata", 9, {"topics": []}, behind=b"\0\0\0"),
    Case("bytes behind a request of another key", "ListGroups", 4, behind=b"\0\0\0", only="d-"),
    Case("half a request", "CreateTopics", 7, body=b"\x02\x05"),
    Case("half a request of groups", "JoinGroup", 5, body=b"\0\5d"),
]

CLUSTER = [
    *versions("describe the cluster", "DescribeCluster", (0, 1, 2)),
    ask(
        "describe the cluster with operations",
        "DescribeCluster",
        2,
        include_cluster_authorized_operations=True,
    ),
    ask("describe the controllers to a broker's client", "DescribeCluster", 1, endpoint_type=2),
    ask("describe an unknown kind of endpoint", "DescribeCluster", 1, endpoint_type=9),
    ask("describe fenced brokers", "DescribeCluster", 2, include_fenced_brokers=True),
    *[
        Case(
            f"describe the quorum{of} v{v}",
            "DescribeQuorum",
            v,
            {"topics": [{"topic_name": topic, "partitions": [{"partition_index": partition}]}]},
            without=("high_watermark", "log_end_offset", "nodes", "leader_epoch"),
        )
        for of, topic, partition, each in [
            ("", "__cluster_metadata", 0, (0, 1, 2)),
            (" of a topic", "d-plain", 0, (2,)),
            (" of a partition that is not there", "__cluster_metadata", 1, (2,)),
        ]
        for v in each
    ],
    *[
        ask(
            f"features: {name}",
            "UpdateFeatures",
            version,
            timeout_ms=5000,
            feature_updates=[
                {"feature": feature, "max_version_level": level, "upgrade_type": kind}
            ],
            validate_only=only,
        )
        for name, version, feature, level, kind, only in [
            ("an unknown one", 2, "no.such.feature", 1, 1, False),
            ("an unknown one v1", 1, "no.such.feature", 1, 1, False),
            ("a level too high", 2, "group.version", 99, 1, False),
            ("a level too high v0", 0, "group.version", 99, 1, False),
            ("a downgrade called an upgrade", 2, "metadata.version", 7, 1, False),
            ("an unknown kind of update", 2, "group.version", 1, 9, False),
            ("a negative level", 2, "group.version", -1, 1, False),
            ("metadata.version to zero", 2, "metadata.version", 0, 2, False),
        ]
    ],
    ask("features: nothing", "UpdateFeatures", 2, timeout_ms=5000, feature_updates=[]),
]

EVERY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
ACL = {
    "resource_type": 2,
    "resource_name": "d-plain",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}

ACLS = [
    *versions("describe acls", "DescribeAcls", (1, 2, 3), **EVERY_ACL),
    *versions("create acls", "CreateAcls", (1, 2, 3), creations=[ACL, {**ACL, "host": "?"}]),
    *versions("delete acls", "DeleteAcls", (1, 2, 3), filters=[EVERY_ACL, EVERY_ACL]),
    ask("create no acls", "CreateAcls", 3, creations=[]),
    ask("delete no acls", "DeleteAcls", 3, filters=[]),
    *[
        Case(f"describe acls of {name} {code}", "DescribeAcls", 3, {**EVERY_ACL, name: code})
        for name, code in [
            ("resource_type_filter", 0),
            ("resource_type_filter", 7),
            ("resource_type_filter", 8),
            ("pattern_type_filter", 4),
            ("pattern_type_filter", 5),
            ("operation", 0),
            ("operation", 15),
            ("operation", 16),
            ("permission_type", -1),
            ("permission_type", 4),
        ]
    ],
    ask("create acls of operation 0", "CreateAcls", 3, creations=[{**ACL, "operation": 0}]),
    ask("create acls of operation 16", "CreateAcls", 3, creations=[{**ACL, "operation": 16}]),
    ask("create acls of any resource", "CreateAcls", 3, creations=[{**ACL, "resource_type": 1}]),
    ask(
        "delete acls of an unknown permission",
        "DeleteAcls",
        3,
        filters=[EVERY_ACL, {**EVERY_ACL, "permission_type": 0}],
    ),
]


def elect(name: str, version: int, kind: int = 0, timeout_ms: int = 5000, **topics: object) -> Case:
    """`topics`: name with `_` for `-` -> partitions; none: null."""
    named = [
        {"topic": topic.replace("_", "-"), "partitions": each} for topic, each in topics.items()
    ]
    return Case(
        f"elect leaders {name}",
        "ElectLeaders",
        version,
        {"election_type": kind, "topic_partitions": named or None, "timeout_ms": timeout_ms},
        only="d-",
    )


def reassign(name: str, *partitions: object, topic: str = "d-plain", **fields: object) -> Case:
    """`partitions`: index and replicas."""
    asked = [
        {"partition_index": index, "replicas": replicas}
        for index, replicas in partitions  # type: ignore[misc]
    ]
    return ask(
        f"reassign {name}",
        "AlterPartitionReassignments",
        1,
        **{"timeout_ms": 5000, "topics": [{"name": topic, "partitions": asked}], **fields},
    )


PLACES = [
    *[elect(f"v{version}", version, d_plain=[0, 0, 99], d_none=[0]) for version in (0, 1, 2)],
    elect("unclean", 2, 1, d_plain=[0, -1]),
    elect("of an unknown kind", 2, 2, d_plain=[0]),
    elect("of an unknown kind v0", 0, 2, d_plain=[0]),
    elect("too late", 2, 0, 0, d_plain=[0]),
    elect("too late v0", 0, 0, 0, d_plain=[0]),
    elect("of all", 2),
    elect("of all too late", 2, 0, 0),
    elect("of all of an unknown kind", 2, -1),
    ask("elect no leaders", "ElectLeaders", 2, topic_partitions=[], timeout_ms=0, election_type=7),
    *versions(
        "reassign",
        "AlterPartitionReassignments",
        (0, 1),
        timeout_ms=5000,
        topics=[
            {
                "name": "d-plain",
                "partitions": [
                    {"partition_index": 0, "replicas": [1]},
                    {"partition_index": 0, "replicas": None},
                ],
            }
        ],
    ),
    reassign("to nobody", (0, [])),
    reassign("to strangers", (0, [2]), (0, [1, 2]), (0, [3, 2]), (0, [1, 1]), (0, [-1])),
    reassign("a partition that is not there", (99, [1]), (-1, None)),
    reassign("a topic that is not there", (0, [1]), topic="d-none"),
    reassign("no partition"),
    reassign("no topic", topics=[]),
    reassign("no topic too late", topics=[], timeout_ms=0),
    reassign("too late", (0, [1]), timeout_ms=0),
    reassign("with as many replicas", (0, [1]), allow_replication_factor_change=False),
    reassign("with more replicas", (0, [1, 2]), allow_replication_factor_change=False),
    ask("reassignments", "ListPartitionReassignments", 0, topics=None),
    ask(
        "reassignments of some",
        "ListPartitionReassignments",
        0,
        topics=[
            {"name": "d-plain", "partition_indexes": [0, 7]},
            {"name": "d-none", "partition_indexes": [0]},
        ],
    ),
    ask("reassignments of none", "ListPartitionReassignments", 0, topics=[]),
    ask("reassignments too late", "ListPartitionReassignments", 0, topics=None, timeout_ms=0),
]
