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
