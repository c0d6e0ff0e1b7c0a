"""Edges of topics, configs and groups: what comes twice or not at all, and the order of refusals.

Most of it no client asks in earnest. Each case stands for a question that was answered otherwise
once, or whose answer cannot be read off a neighbour's.
"""

from collections.abc import Sequence
from dataclasses import replace

from differential.cases.configs import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    altered,
    replaced,
    shown,
)
from differential.cases.groups import beat, commit, join, leave, member, offsets, sync
from differential.script import (
    NO_SUCH_ID,
    ZERO_ID,
    Case,
    ask,
    create,
    describe_partitions,
    finished,
    id_of,
    started,
)

UNKNOWN = "e-unknown"

MANUAL = {"num_partitions": -1, "replication_factor": -1}


def assigned(name: str, *assignments: tuple[int, Sequence[int]], **options: object) -> Case:
    """CreateTopics with a manual assignment."""
    lies = [{"partition_index": index, "broker_ids": ids} for index, ids in assignments]
    topic = {"name": "e-x", **MANUAL, "assignments": lies, **options}
    return ask(f"create assigned {name}", "CreateTopics", 7, topics=[topic], timeout_ms=5000)


def made(name: str, *names: str, timeout_ms: int = 5000, **options: object) -> Case:
    """CreateTopics of several."""
    topics = [{"name": n, "num_partitions": 1, "replication_factor": 1, **options} for n in names]
    return ask(f"create {name}", "CreateTopics", 7, topics=topics, timeout_ms=timeout_ms)


def grown(name: str, *topics: tuple[str, int, object], only: bool = True, ms: int = 5000) -> Case:
    asked = [{"name": topic, "count": count, "assignments": lies} for topic, count, lies in topics]
    return ask(
        f"grow {name}", "CreatePartitions", 3, topics=asked, timeout_ms=ms, validate_only=only
    )


def deleted(name: str, *topics: object, ms: int = 5000) -> Case:
    asked = [
        {"name": each} if isinstance(each, str) else {"name": None, "topic_id": each}
        for each in topics
    ]
    return ask(f"delete {name}", "DeleteTopics", 6, topics=asked, timeout_ms=ms)


def known(name: str, *topics: object, version: int = 12, **options: object) -> Case:
    asked = [
        {"name": each, "topic_id": ZERO_ID} if isinstance(each, str) else each for each in topics
    ]
    fields = {"topics": asked, "allow_auto_topic_creation": False, **options}
    return ask(f"metadata of {name}", "Metadata", version, **fields)


# What a key takes and what it does not; the answer tells every config of the topic.
VALUES: dict[str, list[str]] = {
    "retention.ms": [" 5 ", "+5", "1.5", "0x10", "9223372036854775808", ""],
    "cleanup.policy": ["", "delete,delete", "Compact", " compact ", "compact,", ","],
    "max.message.bytes": ["-1", "0", "2147483648"],
    "segment.bytes": ["1048575", "1048576"],
    "unclean.leader.election.enable": ["TRUE", "yes", " true "],
    "message.timestamp.type": ["createtime"],
    "compression.type": ["GZIP", "none"],
    "compression.gzip.level": ["0", "-1", "10"],
    "compression.lz4.level": ["0", "17"],
    "compression.zstd.level": ["-131073", "0"],
    "min.cleanable.dirty.ratio": [
        "0",
        "1.1",
        "0.5f",
        "1e-1",
        "1_0",
        "inf",
        "Infinity",
        "0x1p-1",
        "0x1p3",
    ],
    "leader.replication.throttled.replicas": ["*", " *", "0:1,1:2", "x", "0:", ",", ",*", "٣:1"],
    "local.retention.ms": ["-3", "-2"],
    "remote.log.copy.disable": ["true", "x"],
    "message.format.version": ["2.0"],
    "retention.MS": ["1"],
}

TOPICS = [
    *[
        create(f"create only to see {key}={value!r}", "e-v", configs={key: value}, validate=True)
        for key, values in VALUES.items()
        for value in values
    ],
    create("create an emoji of a name", "😀" * 200),
    create("create a name of umlauts", "ä" * 300),
    create("create more than 10,000 records", "e-x", partitions=10_000, validate=True),
    create("create 10,001 partitions", "e-x", partitions=10_001),
    ask(
        "create more than 10,000 records, and what is refused anyway",
        "CreateTopics",
        7,
        topics=[
            {"name": name, "num_partitions": partitions, "replication_factor": 1}
            for name, partitions in (
                ("e-wide1", 5000),
                ("e-wide2", 4999),
                ("d/x", 1),
                ("e-twice", 1),
                ("e-twice", 1),
                ("__cluster_metadata", 1),
                ("e-plain", 1),
            )
        ],
        timeout_ms=30000,
    ),
    create("create neither partitions nor replicas", "e-x", partitions=0, replicas=0),
    create("create two replicas and a wrong config", "e-x", replicas=2, configs={"bad": "x"}),
    create("create what is there, with a wrong config", "e-plain", configs={"bad": "x"}),
    assigned("with a partition twice", (0, [1]), (0, [1])),
    assigned("with a broker twice before a partition twice", (0, [1]), (1, [1, 1]), (0, [1])),
    assigned("with a negative partition", (-1, [1])),
    assigned("with a negative broker", (0, [-1])),
    assigned("with one replica and two", (0, [1]), (1, [1, 2])),
    assigned("and a number of partitions", (0, [1]), num_partitions=1),
    assigned("and a null config", (0, []), configs=[{"name": "flush.ms", "value": None}]),
    made(
        "with a config twice",
        "e-y",
        configs=[
            {"name": "flush.ms", "value": "1"},
            {"name": "flush.ms", "value": "2"},
        ],
    ),
    made(
        "with two nulls",
        "e-z",
        configs=[
            {"name": "flush.ms", "value": None},
            {"name": "segment.ms", "value": None},
        ],
    ),
    made("what is there twice", "e-plain", "e-plain"),
    made("the same twice and another", "e-t1", "e-t1", "e-t2"),
    made("names that collide at once", "e-k.q", "e-k_q"),
    made("without a time", "e-late", "e-plain", "d/x", "e-l", "e-l", timeout_ms=0),
    made("with a negative time", "e-late", timeout_ms=-1),
    made("twice without a time", "e-late", "e-late", "__cluster_metadata", timeout_ms=0),
    made("nothing without a time", timeout_ms=0),
    grown("without a time", ("e-plain", 4, None), (UNKNOWN, 4, None), ("e-l", 1, None), ms=0),
    grown("twice without a time", ("e-plain", 4, None), ("e-plain", 5, None), ms=-1),
    grown(
        "twice and once without a time",
        ("e-plain", 4, None),
        ("e-plain", 5, None),
        ("e-cut", 2, None),
        ms=0,
    ),
    grown("with no assignments", ("e-plain", 4, [])),
    grown("with too few assignments", ("e-plain", 5, [{"broker_ids": [1]}])),
    grown("on two brokers", ("e-plain", 4, [{"broker_ids": [1, 2]}])),
    grown("less, with assignments", ("e-plain", 2, [{"broker_ids": [1]}])),
    grown("one twice and one well", ("e-plain", 4, None), ("e-plain", 5, None), ("e-cut", 2, None)),
    deleted("without a time", UNKNOWN, "d/x", "e-plain", "e-plain", NO_SUCH_ID, ms=0),
    deleted("twice without a time", "e-plain", "e-plain", ZERO_ID, NO_SUCH_ID, NO_SUCH_ID, ms=0),
    deleted("with a negative time", "e-plain", ms=-1),
    deleted("an id twice", id_of("e-plain"), id_of("e-plain")),
    deleted("an id and its name", id_of("e-plain"), "e-plain"),
    deleted("a name and its id", "e-plain", id_of("e-plain")),
    deleted("an unknown id twice", NO_SUCH_ID, NO_SUCH_ID),
    deleted("neither twice", ZERO_ID, ZERO_ID),
    deleted("the metadata topic", "__cluster_metadata"),
    *[
        known(f"all sorts v{version}", UNKNOWN, "d/x", "", "e-plain", version=version, **operations)
        for operations in [{"include_topic_authorized_operations": True}]
        for version in (8, 10, 12, 13)
    ],
    known("internal topics", "__transaction_state", "__share_group_state", "__cluster_metadata"),
    known("a name too long", "x" * 250),
    known(
        "an id that is not known, with operations",
        {"topic_id": NO_SUCH_ID, "name": None},
        {"topic_id": id_of("e-plain"), "name": None},
        include_topic_authorized_operations=True,
    ),
    known(
        "an id under two names",
        {"topic_id": id_of("e-plain"), "name": "d/x"},
        {"topic_id": id_of("e-plain"), "name": "e-cut"},
        version=13,
    ),
    known(
        "an id and a name",
        {"topic_id": id_of("e-plain"), "name": None},
        {"topic_id": ZERO_ID, "name": "e-cut"},
    ),
    known(
        "an id and nothing",
        {"topic_id": id_of("e-plain"), "name": None},
        {"topic_id": ZERO_ID, "name": None},
    ),
    known(
        "an id and a name before they may stand alone",
        {"topic_id": id_of("e-plain"), "name": None},
        {"topic_id": ZERO_ID, "name": "e-cut"},
        version=10,
    ),
    *[
        describe_partitions(f"partitions: {name}", topics, limit, cursor)
        for name, topics, limit, cursor in [
            ("of a topic twice", ["e-plain", "e-plain"], 9, None),
            ("just one topic's", ["e-cut", "e-plain"], 1, None),
            ("just both topics'", ["e-cut", "e-plain"], 4, None),
            ("from a cursor at the end", ["e-cut", "e-plain"], 9, ("e-plain", 3)),
            ("from a cursor behind all", ["e-cut"], 9, ("e-cut", 1)),
            ("from an unknown topic on", ["e-cut", "e-cux", "e-plain"], 9, ("e-cux", 5)),
            ("behind an illegal name", ["d/x", "e-cut"], 9, ("d/x", 0)),
            ("without a name before the cursor", ["", "e-cut"], 9, ("e-cut", 0)),
            ("without a name, behind the cursor", ["", "e-cut"], 9, ("", 0)),
            ("of unknown topics, one at most", ["e-u1", "e-u2", "e-cut"], 1, None),
        ]
    ],
]


CONFIGS = [
    shown("broker ' 1'", BROKER, " 1", ["num.partitions"]),
    shown("broker 01", BROKER, "01", ["num.partitions"]),
    shown("broker +1", BROKER, "+1", ["num.partitions"]),
    shown("broker 1_0", BROKER, "1_0", ["num.partitions"]),
    shown("a broker beyond 32 bits", BROKER, "99999999999", ["num.partitions"]),
    shown("the root logger", LOGGER, "1", ["root"]),
    shown("the root logger, documented", LOGGER, "1", ["root"], include_documentation=True),
    shown("a key twice", TOPIC, "e-cut", ["retention.ms", "retention.ms"]),
    *[
        altered(f"{name} of {of}", kind, resource, *changes)
        for of, kind, resource in [
            ("an unknown topic", TOPIC, UNKNOWN),
            ("no topic", TOPIC, ""),
            ("no group", GROUP, ""),
            ("no subscription", METRICS, ""),
            ("another broker", BROKER, "9"),
            ("a logger", LOGGER, "1"),
            ("kind 3", 3, "x"),
        ]
        for name, changes in [
            ("a null", [("retention.ms", SET, None)]),
            ("a key twice", [("retention.ms", SET, "1"), ("retention.ms", SET, "1")]),
            ("a wrong value", [("retention.ms", SET, "x")]),
            ("an append to no list", [("retention.ms", APPEND, "x")]),
        ]
    ],
    *[
        altered(f"{key} by {kind} {value!r}", TOPIC, "e-cut", (key, kind, value))
        for key, kind, value in [
            ("cleanup.policy", APPEND, ""),
            ("cleanup.policy", SUBTRACT, ""),
            ("cleanup.policy", APPEND, "compact,delete"),
            ("cleanup.policy", SET, " compact "),
            ("cleanup.policy", DELETE, "x"),
            ("follower.replication.throttled.replicas", APPEND, "0:1"),
            ("follower.replication.throttled.replicas", APPEND, "bad"),
            ("no.such.key", DELETE, None),
            ("no.such.key", APPEND, "x"),
        ]
    ],
    # Of several faults, the first in the order in which Kafka looks.
    altered(
        "two wrong values", TOPIC, "e-cut", ("retention.ms", SET, "x"), ("segment.ms", SET, "0")
    ),
    altered("other digits", TOPIC, "e-cut", ("flush.ms", SET, "٣"), ("flush.messages", SET, "𝟛")),
    altered("digits of other scripts", TOPIC, "e-cut", ("flush.ms", SET, "٣"), validate_only=True),
    altered("an operation that is none of a broker", BROKER, "1", ("log.retention.ms", 9, "1")),
    altered("an operation that is none of a logger", LOGGER, "1", ("root", 9, "INFO")),
    altered("two unknown keys", TOPIC, "e-cut", ("no.such.key", SET, "1"), ("log.dir", SET, "1")),
    altered(
        "two appends to no lists",
        TOPIC,
        "e-cut",
        ("preallocate", APPEND, "1"),
        ("max.message.bytes", SUBTRACT, "1"),
        ("", APPEND, "1"),
    ),
    *[
        ask(
            f"alter: an operation that is none beside {name}",
            "IncrementalAlterConfigs",
            1,
            resources=[
                {"resource_type": kind, "resource_name": of, "configs": configs}
                for kind, of, configs in [
                    (TOPIC, "e-cut", [{"name": "flush.ms", "config_operation": 0, "value": "9"}]),
                    (TOPIC, "e-plain", wrong),
                    (TOPIC, UNKNOWN, []),
                    (GROUP, "e-g", []),
                    (BROKER, "9", []),
                    (99, "x", []),
                ]
            ],
        )
        for name, wrong in [
            ("others", [{"name": "flush.ms", "config_operation": 9, "value": "1"}]),
            ("a null", [{"name": "flush.ms", "config_operation": 9, "value": None}]),
            (
                "an append to no list",
                [
                    {"name": "flush.ms", "config_operation": 9, "value": "1"},
                    {"name": "max.message.bytes", "config_operation": 2, "value": "1"},
                ],
            ),
        ]
    ],
    *[
        altered(f"{key} of {of} by {kind}", BROKER, name, (key, kind, "x"), validate_only=True)
        for of, name in [("a broker", "1"), ("all brokers", "")]
        for key, kind in [
            ("node.id", APPEND),
            ("log.retention.ms", SUBTRACT),
            ("no.such.key", APPEND),
            ("no.such.key", SUBTRACT),
        ]
    ],
    altered(
        "two appends to no lists of a broker",
        BROKER,
        "1",
        ("log.retention.ms", APPEND, "1"),
        ("num.io.threads", SUBTRACT, "1"),
        validate_only=True,
    ),
    *[
        altered(f"{key} with spaces", TOPIC, "e-cut", (key, SET, " x "), validate_only=True)
        for key in ("flush.ms", "segment.bytes", "min.cleanable.dirty.ratio", "preallocate")
    ],
    altered("a segment without room", TOPIC, "e-cut", ("internal.segment.bytes", SET, "-1")),
    altered("a segment of no size", TOPIC, "e-cut", ("internal.segment.bytes", SET, "x")),
    altered("a segment with room", TOPIC, "e-cut", ("internal.segment.bytes", DELETE, None)),
    ask(
        "configs of a known and an unknown kind",
        "DescribeConfigs",
        4,
        resources=[
            {"resource_type": TOPIC, "resource_name": "e-cut", "configuration_keys": ["flush.ms"]},
            {"resource_type": 99, "resource_name": "x", "configuration_keys": None},
        ],
    ),
    altered("a metric appended", METRICS, "e-m", ("metrics", APPEND, "org.")),
    altered("a level in small letters", LOGGER, "1", ("root", SET, "info"), validate_only=True),
    altered("no level", LOGGER, "1", ("root", DELETE, None)),
    *[
        altered(f"a group's {key}={value}", GROUP, "e-g", (key, SET, value), validate_only=True)
        for key, value in [
            ("share.auto.offset.reset", "LATEST"),
            ("share.auto.offset.reset", "by_duration:PT1H"),
            ("share.auto.offset.reset", "By_Duration:PT1H"),
            ("consumer.session.timeout.ms", "44999"),
            ("consumer.heartbeat.interval.ms", "15001"),
            ("streams.num.standby.replicas", "3"),
        ]
    ],
    *[
        altered(f"{of} {key}={value}", BROKER, name, (key, SET, value), validate_only=True)
        for of, name in [("a broker's", "1"), ("all brokers'", "")]
        for key, value in [
            ("log.retention.ms", "0"),
            ("log.roll.ms", "0"),
            ("log.cleaner.threads", "3"),
            ("num.io.threads", "3"),
            ("num.io.threads", "17"),
            ("background.threads", "100"),
            ("log.cleanup.policy", "compact,"),
            ("ssl.keystore.location", "/x"),
        ]
    ],
    replaced("a wrong value of an unknown topic", TOPIC, UNKNOWN, {"retention.ms": "x"}),
    replaced("a logger", LOGGER, "1", {"root": "INFO"}),
    replaced("nothing of no topic", TOPIC, "", {}),
]


Committed = tuple[str, Sequence[tuple[int, int, str]]]
"""A topic, and partition, offset and metadata."""


def commits(name: str, *topics: Committed, version: int = 9, **options: object) -> Case:
    """OffsetCommit of several topics without a member."""
    asked = [
        {
            "name": topic,
            "topic_id": id_of(topic),
            "partitions": [
                {"partition_index": index, "committed_offset": to, "committed_metadata": metadata}
                for index, to, metadata in partitions
            ],
        }
        for topic, partitions in topics
    ]
    fields = {"group_id": "e-c", "generation_id_or_member_epoch": -1, "topics": asked, **options}
    return ask(f"commit several: {name}", "OffsetCommit", version, **fields)


def forgets(name: str, group: str, *topics: tuple[str, Sequence[int]]) -> Case:
    asked = [
        {"name": topic, "partitions": [{"partition_index": each} for each in indexes]}
        for topic, indexes in topics
    ]
    return ask(f"delete several offsets: {name}", "OffsetDelete", 0, group_id=group, topics=asked)


def listed(name: str, states: Sequence[str], types: Sequence[str] = ()) -> Case:
    fields = {"states_filter": states, "types_filter": types}
    return Case(f"list groups: {name}", "ListGroups", 5, fields, only="e-")


def alone(group: str, version: int = 9, **options: object) -> list[Case]:
    """A group of one member, in generation 1."""
    asked = join(f"{group} asks for an id", group, version=version, **options)
    who = member(group)
    return [
        replace(asked, keep={f"member {group}": "member_id"}),
        join(f"{group} begins", group, who, version=version, **options),
        sync(f"{group} begins", group, who, 1, who),
    ]


FIRST, PENDING, STATIC = member("e-two"), member("e-pending"), member("e-static")
SECOND = member("e-second")

GROUPS = [
    # A member that was only given its id.
    replace(join("an id alone", "e-pending"), keep={"member e-pending": "member_id"}),
    # Kafka does not show the group before something else is written to its partition.
    commit("beside an id", "e-beside", 1, topic="e-plain"),
    ask("describe a group of an id", "DescribeGroups", 6, groups=["e-pending"]),
    join("an id with an instance", "e-pending", PENDING, group_instance_id="i"),
    sync("an id", "e-pending", PENDING, 0),
    beat("an id", "e-pending", PENDING, 0),
    commit("an id", "e-pending", 1, topic="e-cut", who=PENDING, generation=0),
    leave("an id", "e-pending", {"member_id": PENDING}),
    leave("an id again", "e-pending", {"member_id": PENDING}),
    join("an id that left", "e-pending", PENDING),
    ask("delete a group of nobody", "DeleteGroups", 2, groups_names=["e-pending"]),
    join("an id of a deleted group", "e-pending", PENDING),
    # A member of its own, and what it may leave out.
    *alone("e-alone"),
    *[
        sync(f"a {name}", "e-alone", member("e-alone"), 1, **options)
        for name, options in [
            ("null type", {"protocol_type": None}),
            ("null protocol", {"protocol_name": None}),
            ("null of both", {"protocol_type": None, "protocol_name": None}),
            ("null of both v4", {"protocol_type": None, "protocol_name": None, "version": 4}),
            ("type that is empty", {"protocol_type": ""}),
            ("wrong instance", {"group_instance_id": "i"}),
        ]
    ],
    sync("a wrong generation and protocol", "e-alone", member("e-alone"), 9, protocol_name="x"),
    beat("an empty instance", "e-alone", member("e-alone"), 1, group_instance_id=""),
    join("the leader again", "e-alone", member("e-alone")),
    sync("the leader again", "e-alone", member("e-alone"), 2, member("e-alone")),
    join("the leader with other protocols", "e-alone", member("e-alone"), protocols=("sticky",)),
    leave(
        "all sorts",
        "e-alone",
        {"member_id": "somebody"},
        {"member_id": "", "group_instance_id": None},
        {"member_id": "", "group_instance_id": "i"},
        {"member_id": member("e-alone"), "group_instance_id": "i"},
    ),
    leave(
        "the same twice",
        "e-alone",
        {"member_id": member("e-alone")},
        {"member_id": member("e-alone")},
    ),
    *[
        join(name, f"e-odd-{index}", version=version, **options)
        for index, (name, version, options) in enumerate(
            [
                ("an empty instance", 5, {"group_instance_id": ""}),
                ("an instance of odd characters", 5, {"group_instance_id": "a b/ü"}),
                ("a rebalance of -1", 3, {"rebalance_timeout_ms": -1}),
                ("a session too short by one", 3, {"session_timeout_ms": 499}),
                ("a session too long by one", 3, {"session_timeout_ms": 1_800_001}),
                ("a protocol without a name", 3, {"protocols": ("",)}),
                ("no protocol and no type", 9, {"protocols": (), "protocol_type": ""}),
            ]
        )
    ],
    # A static member, with and without its names.
    replace(
        join("an instance", "e-static", group_instance_id="i"),
        keep={"member e-static": "member_id"},
    ),
    sync("an instance", "e-static", STATIC, 1, STATIC, group_instance_id="i"),
    beat("an instance without its name", "e-static", STATIC, 1),
    beat("an instance by another name", "e-static", STATIC, 1, group_instance_id="j"),
    *[
        commit(f"an instance, {name}", "e-static", 5, topic="e-cut", **options)
        for name, options in [
            ("without its name", {"who": STATIC, "generation": 1}),
            ("by another name", {"who": STATIC, "generation": 1, "instance": "j"}),
            ("by its name alone", {"generation": -1, "instance": "i"}),
            ("by its name and generation", {"generation": 1, "instance": "i"}),
            ("with a wrong id and generation", {"who": "x", "generation": 9, "instance": "i"}),
        ]
    ],
    replace(
        join(
            "an instance with other protocols",
            "e-static",
            group_instance_id="i",
            protocols=("sticky", "range"),
        ),
        keep={"member e-static again": "member_id"},
    ),
    beat("an instance after its return", "e-static", member("e-static again"), 1),
    leave("an instance by its old id", "e-static", {"member_id": STATIC, "group_instance_id": "i"}),
    leave("an old id", "e-static", {"member_id": STATIC}),
    ask("describe an instance", "DescribeGroups", 5, groups=["e-static"]),
    # Two members that vote for one protocol each.
    *alone("e-vote", protocols=("range", "sticky")),
    replace(join("a voter's id", "e-vote"), keep={"member e-voter": "member_id"}),
    started(
        replace(
            join("a voter", "e-vote", member("e-voter"), protocols=("sticky", "range")), on="edges"
        )
    ),
    replace(beat("a voter is heard of", "e-vote", member("e-vote"), 1), until={"error_code": 27}),
    join("against a voter", "e-vote", member("e-vote"), protocols=("range", "sticky")),
    finished(
        replace(
            join("a voter", "e-vote", member("e-voter"), protocols=("sticky", "range")), on="edges"
        )
    ),
    # Two members, in every state.
    *alone("e-two"),
    replace(join("a second id", "e-two"), keep={"member e-second": "member_id"}),
    started(replace(join("a second", "e-two", SECOND), on="edges")),
    replace(beat("a second is heard of", "e-two", FIRST, 1), until={"error_code": 27}),
    ask("describe a rebalance", "DescribeGroups", 6, groups=["e-two"]),
    listed("rebalancing, in small letters", ["preparingrebalance "]),
    ask("delete in a rebalance", "DeleteGroups", 2, groups_names=["e-two"]),
    commit("in a rebalance", "e-two", 5, topic="e-cut", who=FIRST, generation=1),
    commit("in a rebalance by nobody", "e-two", 5, topic="e-cut"),
    forgets("in a rebalance", "e-two", ("e-cut", [0])),
    sync("in a rebalance, a wrong generation", "e-two", FIRST, 5),
    beat("in a rebalance, the second", "e-two", SECOND, 1),
    join("the first of two", "e-two", FIRST),
    finished(replace(join("a second", "e-two", SECOND), on="edges")),
    ask("describe what waits for assignments", "DescribeGroups", 6, groups=["e-two"]),
    join("the first while assignments are awaited", "e-two", FIRST),
    join("the second while assignments are awaited", "e-two", SECOND),
    commit("while assignments are awaited by nobody", "e-two", 5, topic="e-cut"),
    started(replace(sync("a second", "e-two", SECOND, 2), on="edges")),
    sync("assignments of one and a stranger", "e-two", FIRST, 2, FIRST, "stranger"),
    finished(replace(sync("a second", "e-two", SECOND, 2), on="edges")),
    ask("describe two, one without an assignment", "DescribeGroups", 6, groups=["e-two"]),
    join("the second as before", "e-two", SECOND),
    sync("the second again, with assignments", "e-two", SECOND, 2, FIRST),
    commit("a member of two without a generation", "e-two", 7, topic="e-cut", who=FIRST),
    commit("a generation alone", "e-two", 7, topic="e-cut", generation=2),
    commit("a member of two", "e-two", 7, topic="e-cut", who=FIRST, generation=2),
    commit(
        "a member of two, what it does not read",
        "e-two",
        7,
        topic="d-plain",
        who=FIRST,
        generation=2,
    ),
    forgets("of topics that are read and not", "e-two", ("e-cut", [0]), ("d-plain", [0])),
    started(
        replace(
            join("a second with more", "e-two", SECOND, protocols=("range", "sticky")), on="edges"
        )
    ),
    replace(beat("more is heard of", "e-two", FIRST, 2), until={"error_code": 27}),
    leave("the leader in a rebalance", "e-two", {"member_id": FIRST}),
    finished(
        replace(
            join("a second with more", "e-two", SECOND, protocols=("range", "sticky")), on="edges"
        )
    ),
    sync("the new leader", "e-two", SECOND, 3, SECOND),
    leave("the last of two", "e-two", {"member_id": SECOND}),
    sync("an empty group", "e-two", SECOND, 4),
    beat("an empty group", "e-two", SECOND, 4),
    commit("an empty group's member", "e-two", 9, topic="e-cut", who=SECOND, generation=4),
    commit("an empty group's member without a generation", "e-two", 9, topic="e-cut", who=SECOND),
    commit("an empty group's generation", "e-two", 9, topic="e-cut", generation=4),
    # Offsets.
    commits("a partition twice", ("e-plain", [(0, 1, ""), (0, 2, "")])),
    commits("a topic twice", ("e-plain", [(0, 3, "")]), ("e-plain", [(1, 4, "")])),
    commits(
        "a topic twice and refused once",
        ("e-plain", [(0, 3, "")]),
        (UNKNOWN, [(1, 4, "")]),
        ("e-plain", [(9, 3, "")]),
    ),
    commits("no partition", ("e-plain", [])),
    commits("no partition of an unknown topic", (UNKNOWN, [])),
    commits("an emoji too much", ("e-plain", [(0, 3, "😀" * 2049)])),
    commits("emojis that fit", ("e-plain", [(1, 3, "😀" * 2048)])),
    commits("one of two too long", ("e-plain", [(0, 3, "m" * 5000), (2, 9, "x")])),
    commits("an offset of -2", ("e-plain", [(2, -2, "")])),
    commits("a generation of -5", ("e-plain", [(2, 5, "")]), generation_id_or_member_epoch=-5),
    commits(
        "generation 0 of no group",
        ("e-plain", [(2, 5, "")]),
        group_id="e-never",
        generation_id_or_member_epoch=0,
    ),
    commits(
        "generation 0 of no group v8",
        ("e-plain", [(2, 5, "")]),
        group_id="e-never",
        generation_id_or_member_epoch=0,
        version=8,
    ),
    commits("illegal topics", ("d/x", [(0, 5, "")]), ("", [(0, 5, "")])),
    *[
        commits(f"for {ms} ms v2", ("e-plain", [(2, 3, "")]), version=2, retention_time_ms=ms)
        for ms in (-2, 0, 2**63 - 1)
    ],
    offsets("of all edges", "e-c", whole=True),
    *[
        ask(
            f"offsets: of edges v{version}",
            "OffsetFetch",
            version,
            groups=[
                {
                    "group_id": "e-c",
                    "topics": [
                        {"name": topic, "topic_id": id_of(topic), "partition_indexes": [0, 0, -1]}
                    ]
                    * 2,
                }
                for topic in ("e-plain", UNKNOWN)
            ],
        )
        for version in (8, 9, 10)
    ],
    forgets("nothing", "e-c"),
    forgets("no partition", "e-c", ("e-plain", []), ("e-cut", [0])),
    forgets("a topic twice", "e-c", ("e-plain", [0]), ("e-plain", [1])),
    forgets(
        "a topic twice and refused once",
        "e-c",
        ("e-plain", [0, 9]),
        (UNKNOWN, [0]),
        ("e-plain", [1]),
    ),
    forgets("of an unknown topic and group", "e-never", (UNKNOWN, [0])),
    listed("empty, in capitals", ["EMPTY"]),
    listed("of no state", [""]),
    listed("of a state that there is none of, too", ["Empty", "Sleeping"]),
    listed("of a type with a space", [], [" classic"]),
    listed("of a type in capitals", [], ["CLASSIC"]),
    ask("describe a group twice", "DescribeGroups", 5, groups=["e-c", "e-c", "e-never"]),
    ask(
        "delete all sorts of groups", "DeleteGroups", 2, groups_names=["e-c", "", "e-never", "e-c"]
    ),
]
