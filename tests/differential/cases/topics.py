"""Topics: made, grown, shown, deleted."""

from differential.script import (
    NO_SUCH_ID,
    ZERO_ID,
    appears,
    ask,
    create,
    describe_partitions,
    id_of,
    versions,
)


def metadata(*names: str, **options: object) -> dict[str, object]:
    """Fields of a Metadata request that makes no topic."""
    topics = [{"name": name} for name in names]
    return {"topics": topics, "allow_auto_topic_creation": False, **options}


MAKING = [
    *[
        create(
            f"create a topic v{v}", f"d-made-v{v}", version=v, configs={"retention.ms": "3600000"}
        )
        for v in range(2, 8)
    ],
    create("create a topic of three partitions", "d-plain", partitions=3),
    create("create a compacted topic", "d-compact", configs={"cleanup.policy": "compact"}),
    create(
        "create a topic of append times",
        "d-append-time",
        configs={"message.timestamp.type": "LogAppendTime"},
    ),
    create("create a topic of small batches", "d-small", configs={"max.message.bytes": "300"}),
    create("create with defaults", "d-defaults", partitions=-1, replicas=-1),
    create("create with defaults v4", "d-defaults-4", partitions=-1, replicas=-1, version=4),
    create("create with default partitions v3", "d-defaults-3", partitions=-1, version=3),
    create(
        "create with assignments",
        "d-assigned",
        partitions=-1,
        replicas=-1,
        assignments={0: [1], 1: [1]},
    ),
    create("create only to see", "d-seen", validate=True, configs={"segment.bytes": "2000000"}),
    create("create what is there", "d-plain"),
    create("create only to see what is there", "d-plain", validate=True),
    create("create the empty name", ""),
    create("create the name dot", "."),
    create("create the name dot dot", ".."),
    create("create a name with a slash", "d/x"),
    create("create a name with a space", "d x"),
    create("create a name with an umlaut", "dä"),
    create("create a name of 249", "d" * 249, validate=True),
    create("create a name of 250", "d" * 250),
    create("create a name with a dot", "d.made.v2"),
    create("create a name that collides", "d_made_v2"),
    create("create no partitions", "d-none", partitions=0),
    create("create minus two partitions", "d-none", partitions=-2),
    create("create no replicas", "d-none", replicas=0),
    create("create two replicas", "d-none", replicas=2),
    create(
        "create with an unknown broker", "d-none", partitions=-1, replicas=-1, assignments={0: [7]}
    ),
    create(
        "create with a gap in the assignments",
        "d-none",
        partitions=-1,
        replicas=-1,
        assignments={1: [1]},
    ),
    create("create with partitions and assignments", "d-none", assignments={0: [1]}),
    create(
        "create with an empty assignment", "d-none", partitions=-1, replicas=-1, assignments={0: []}
    ),
    create(
        "create with a doubled replica",
        "d-none",
        partitions=-1,
        replicas=-1,
        assignments={0: [1, 1]},
    ),
    create("create with an unknown config", "d-none", configs={"no.such.config": "1"}),
    create("create with a config out of range", "d-none", configs={"retention.ms": "-2"}),
    create("create with a config of no number", "d-none", configs={"segment.bytes": "many"}),
    create("create with a small segment", "d-none", configs={"segment.bytes": "13"}),
    create("create with an unknown policy", "d-none", configs={"cleanup.policy": "burn"}),
    create("create with a null config", "d-none", configs={"retention.ms": None}),
    create("create with an unknown compression", "d-none", configs={"compression.type": "rar"}),
    create(
        "create with retention below local retention",
        "d-none",
        configs={"retention.ms": "1000", "local.retention.ms": "2000"},
    ),
    create("create with remote storage", "d-none", configs={"remote.storage.enable": "true"}),
    ask("create nothing", "CreateTopics", 7, topics=[], timeout_ms=1000),
    ask(
        "create the same topic twice in one request",
        "CreateTopics",
        7,
        topics=[{"name": "d-twice", "num_partitions": 1, "replication_factor": 1}] * 2,
        timeout_ms=1000,
    ),
    ask(
        "create one good and one bad topic",
        "CreateTopics",
        5,
        topics=[
            {"name": "d-good", "num_partitions": 1, "replication_factor": 1},
            {"name": "d?bad", "num_partitions": 1, "replication_factor": 1},
        ],
        timeout_ms=1000,
    ),
    create("create the internal topic", "__cluster_metadata"),
    appears("d-plain", partitions=3),
    appears("d-good"),
]

GROWING = [
    *[
        ask(
            f"grow a topic v{v}",
            "CreatePartitions",
            v,
            topics=[{"name": f"d-made-v{v + 2}", "count": 2, "assignments": None}],
            timeout_ms=5000,
        )
        for v in range(4)
    ],
    *[
        ask(
            f"grow: {name}",
            "CreatePartitions",
            3,
            topics=[{"name": topic, "count": count, "assignments": assignments}],
            timeout_ms=5000,
            validate_only=only,
        )
        for name, topic, count, assignments, only in [
            ("only to see", "d-made-v6", 5, None, True),
            ("to what it is", "d-plain", 3, None, False),
            ("to less", "d-plain", 2, None, False),
            ("to nothing", "d-plain", 0, None, False),
            ("to a negative count", "d-plain", -1, None, False),
            ("an unknown topic", "d-unknown", 2, None, False),
            ("an illegal name", "d/x", 2, None, False),
            ("with assignments", "d-made-v7", 2, [{"broker_ids": [1]}], False),
            ("with too many assignments", "d-plain", 4, [{"broker_ids": [1]}] * 2, False),
            ("with an unknown broker", "d-plain", 4, [{"broker_ids": [9]}], False),
            ("with an empty assignment", "d-plain", 4, [{"broker_ids": []}], False),
        ]
    ],
    ask(
        "grow a topic twice in one request",
        "CreatePartitions",
        3,
        topics=[{"name": "d-plain", "count": 4, "assignments": None}] * 2,
        timeout_ms=5000,
    ),
    ask("grow nothing", "CreatePartitions", 3, topics=[], timeout_ms=5000),
]

SHOWING = [
    *versions("metadata of a topic", "Metadata", range(14), **metadata("d-plain")),
    *versions("metadata of an unknown topic", "Metadata", (0, 4, 9, 13), **metadata("d-unknown")),
    *versions("metadata of no topic", "Metadata", (1, 9, 12), **metadata()),
    ask("metadata of an illegal name", "Metadata", 12, **metadata("d/x")),
    ask("metadata of the empty name", "Metadata", 12, **metadata("")),
    ask("metadata of a topic twice", "Metadata", 12, **metadata("d-plain", "d-plain")),
    ask(
        "metadata that may create an illegal name",
        "Metadata",
        12,
        topics=[{"name": "d/x"}],
        allow_auto_topic_creation=True,
    ),
    ask(
        "metadata with authorized operations",
        "Metadata",
        12,
        **metadata("d-plain", include_topic_authorized_operations=True),
    ),
    ask(
        "metadata with cluster operations v8",
        "Metadata",
        8,
        **metadata("d-plain", include_cluster_authorized_operations=True),
    ),
    *versions(
        "metadata by id",
        "Metadata",
        (12, 13),
        topics=[{"topic_id": id_of("d-plain"), "name": None}],
    ),
    *versions(
        "metadata by an unknown id",
        "Metadata",
        (12, 13),
        topics=[{"topic_id": NO_SUCH_ID, "name": None}],
    ),
    ask(
        "metadata by id v10", "Metadata", 10, topics=[{"topic_id": id_of("d-plain"), "name": None}]
    ),
    ask(
        "metadata of neither name nor id",
        "Metadata",
        12,
        topics=[{"topic_id": ZERO_ID, "name": None}],
    ),
    ask(
        "metadata of name and id",
        "Metadata",
        12,
        topics=[{"topic_id": id_of("d-plain"), "name": "d-good"}],
    ),
    *[
        describe_partitions(f"partitions: {name}", topics, limit, cursor)
        for name, topics, limit, cursor in [
            ("of a topic", ["d-plain"], 2000, None),
            ("of two topics", ["d-plain", "d-assigned"], 2000, None),
            ("of an unknown topic", ["d-unknown", "d-plain"], 2000, None),
            ("of an illegal name", ["d/x"], 2000, None),
            ("at most two", ["d-plain", "d-small"], 2, None),
            ("from a cursor on", ["d-assigned", "d-plain"], 2, ("d-plain", 1)),
            ("from a cursor in an absent topic", ["d-assigned", "d-plain"], 9, ("d-b", 0)),
            ("from a cursor beyond the partitions", ["d-plain"], 9, ("d-plain", 9)),
            ("from a negative cursor", ["d-plain"], 9, ("d-plain", -1)),
            ("with a limit of zero", ["d-plain"], 0, None),
            ("with a negative limit", ["d-plain"], -1, None),
        ]
    ],
]

DELETING = [
    *[
        ask(
            f"delete a topic v{v}",
            "DeleteTopics",
            v,
            topic_names=[f"d-made-v{v + 1}"],
            timeout_ms=5000,
        )
        for v in (1, 3, 4, 5)
    ],
    ask("delete by name v6", "DeleteTopics", 6, topics=[{"name": "d-made-v7"}], timeout_ms=5000),
    ask(
        "delete by id",
        "DeleteTopics",
        6,
        topics=[{"name": None, "topic_id": id_of("d-defaults")}],
        timeout_ms=5000,
    ),
    ask(
        "delete an unknown topic",
        "DeleteTopics",
        6,
        topics=[{"name": "d-unknown"}],
        timeout_ms=5000,
    ),
    ask(
        "delete an unknown topic v1", "DeleteTopics", 1, topic_names=["d-unknown"], timeout_ms=5000
    ),
    ask("delete an illegal name", "DeleteTopics", 6, topics=[{"name": "d/x"}], timeout_ms=5000),
    ask(
        "delete an unknown id",
        "DeleteTopics",
        6,
        topics=[{"name": None, "topic_id": NO_SUCH_ID}],
        timeout_ms=5000,
    ),
    ask(
        "delete neither name nor id",
        "DeleteTopics",
        6,
        topics=[{"name": None, "topic_id": ZERO_ID}],
        timeout_ms=5000,
    ),
    ask(
        "delete name and id",
        "DeleteTopics",
        6,
        topics=[{"name": "d-good", "topic_id": id_of("d-plain")}],
        timeout_ms=5000,
    ),
    ask(
        "delete a name twice", "DeleteTopics", 5, topic_names=["d-good", "d-good"], timeout_ms=5000
    ),
    ask("delete nothing", "DeleteTopics", 6, topics=[], timeout_ms=5000),
]
