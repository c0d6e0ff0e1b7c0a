"""Configs: shown, altered, refused."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from differential.script import Case, ask, versions

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
# Broker configs whose values are the same on any broker that was told the same.
BROKER_KEYS = [
    "auto.create.topics.enable",
    "compression.type",
    "group.initial.rebalance.delay.ms",
    "log.cleaner.threads",
    "log.cleanup.policy",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.segment.bytes",
    "message.max.bytes",
    "min.insync.replicas",
    "num.io.threads",
    "num.partitions",
    "offsets.topic.num.partitions",
    "ssl.keystore.password",
    "unclean.leader.election.enable",
]


def shown(
    name: str, kind: int, resource: str, keys: Sequence[str] | None, **options: object
) -> Case:
    return ask(
        f"configs of {name}",
        "DescribeConfigs",
        4,
        resources=[{"resource_type": kind, "resource_name": resource, "configuration_keys": keys}],
        **options,
    )


def altered(
    name: str,
    kind: int,
    resource: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> Case:
    """IncrementalAlterConfigs of one resource: (key, operation, value)."""
    configs = [
        {"name": key, "config_operation": what, "value": value} for key, what, value in changes
    ]
    return ask(
        f"alter: {name}",
        "IncrementalAlterConfigs",
        version,
        resources=[{"resource_type": kind, "resource_name": resource, "configs": configs}],
        validate_only=validate_only,
    )


def replaced(
    name: str,
    kind: int,
    resource: str,
    configs: Mapping[str, str | None],
    version: int = 2,
    **options: object,
) -> Case:
    """AlterConfigs, which replaces all configs of a resource."""
    pairs = [{"name": key, "value": value} for key, value in configs.items()]
    return ask(
        f"replace: {name}",
        "AlterConfigs",
        version,
        resources=[{"resource_type": kind, "resource_name": resource, "configs": pairs}],
        **options,
    )


def holds(after: str, value: str, key: str = "cleanup.policy") -> Case:
    """What d-configs holds once the change has come to the broker."""
    case = shown(f"d-configs after {after}", TOPIC, "d-configs", [key], include_synonyms=True)
    return replace(case, until={"results.0.configs.0.value": value})


def applied(case: Case, value: str) -> Case:
    return replace(case, until={"results.0.configs.0.value": value})


TOPIC_CONFIGS = [
    ask(
        "create a topic for configs",
        "CreateTopics",
        7,
        topics=[
            {
                "name": "d-configs",
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": [{"name": "retention.ms", "value": "7200000"}],
            }
        ],
        timeout_ms=5000,
    ),
    *versions(
        "configs of a topic",
        "DescribeConfigs",
        (1, 2, 3, 4),
        resources=[
            {"resource_type": TOPIC, "resource_name": "d-configs", "configuration_keys": None}
        ],
        include_synonyms=True,
    ),
    shown("a topic without synonyms", TOPIC, "d-configs", ["retention.ms", "segment.bytes"]),
    shown("a topic and no keys", TOPIC, "d-configs", []),
    shown("a topic and an unknown key", TOPIC, "d-configs", ["no.such.key", "retention.ms"]),
    shown("an unknown topic", TOPIC, "d-unknown", None),
    shown("a topic of an illegal name", TOPIC, "d/x", None),
    shown("a topic without a name", TOPIC, "", None),
    shown("an unknown kind", 77, "x", None),
    shown("kind zero", 0, "x", None),
    ask(
        "configs of one resource twice",
        "DescribeConfigs",
        4,
        resources=[
            {
                "resource_type": TOPIC,
                "resource_name": "d-configs",
                "configuration_keys": ["retention.ms"],
            }
        ]
        * 2,
    ),
    ask("configs of nothing", "DescribeConfigs", 4, resources=[]),
    altered("set a value", TOPIC, "d-configs", ("retention.ms", SET, "3600000")),
    holds("set", "3600000", "retention.ms"),
    altered("set a value v0", TOPIC, "d-configs", ("segment.ms", SET, "600000"), version=0),
    altered("delete a value", TOPIC, "d-configs", ("segment.ms", DELETE, None)),
    altered("delete what is not set", TOPIC, "d-configs", ("flush.ms", DELETE, None)),
    altered("append to a list", TOPIC, "d-configs", ("cleanup.policy", APPEND, "compact")),
    holds("append", "delete,compact"),
    altered("append what is there", TOPIC, "d-configs", ("cleanup.policy", APPEND, "compact")),
    holds("append again", "delete,compact"),
    altered("subtract from a list", TOPIC, "d-configs", ("cleanup.policy", SUBTRACT, "delete")),
    holds("subtract", "compact"),
    altered(
        "subtract what is not there", TOPIC, "d-configs", ("cleanup.policy", SUBTRACT, "delete")
    ),
    altered("subtract the last", TOPIC, "d-configs", ("cleanup.policy", SUBTRACT, "compact")),
    holds("the last was subtracted", ""),
    altered("delete a list", TOPIC, "d-configs", ("cleanup.policy", DELETE, None)),
    holds("the list was deleted", "delete"),
    altered("append to what is no list", TOPIC, "d-configs", ("retention.ms", APPEND, "1")),
    altered("subtract from what is no list", TOPIC, "d-configs", ("retention.ms", SUBTRACT, "1")),
    altered("append an illegal value", TOPIC, "d-configs", ("cleanup.policy", APPEND, "burn")),
    altered("set an unknown key", TOPIC, "d-configs", ("no.such.key", SET, "1")),
    altered("set no number", TOPIC, "d-configs", ("retention.ms", SET, "soon")),
    altered("set out of range", TOPIC, "d-configs", ("retention.ms", SET, "-2")),
    altered(
        "set a ratio out of range", TOPIC, "d-configs", ("min.cleanable.dirty.ratio", SET, "1.5")
    ),
    altered("set no boolean", TOPIC, "d-configs", ("preallocate", SET, "maybe")),
    altered("set the empty value", TOPIC, "d-configs", ("retention.ms", SET, "")),
    altered("set null", TOPIC, "d-configs", ("retention.ms", SET, None)),
    altered(
        "set a key twice",
        TOPIC,
        "d-configs",
        ("retention.ms", SET, "1"),
        ("retention.ms", SET, "2"),
    ),
    altered("an unknown operation", TOPIC, "d-configs", ("retention.ms", 9, "1")),
    altered("an empty key", TOPIC, "d-configs", ("", SET, "1")),
    altered(
        "one good key and one bad",
        TOPIC,
        "d-configs",
        ("flush.ms", SET, "5"),
        ("retention.ms", SET, "x"),
    ),
    altered("nothing of a topic", TOPIC, "d-configs"),
    altered("only to see", TOPIC, "d-configs", ("flush.ms", SET, "7"), validate_only=True),
    altered(
        "only to see what is wrong", TOPIC, "d-configs", ("flush.ms", SET, "x"), validate_only=True
    ),
    holds("only seeing", "9223372036854775807", "flush.ms"),
    altered("min.insync.replicas", TOPIC, "d-configs", ("min.insync.replicas", SET, "2")),
    altered("an unknown topic", TOPIC, "d-unknown", ("flush.ms", SET, "5")),
    altered("an illegal topic", TOPIC, "d/x", ("flush.ms", SET, "5")),
    altered("a topic without a name", TOPIC, "", ("flush.ms", SET, "5")),
    altered("an unknown kind", 77, "x", ("flush.ms", SET, "5")),
    ask(
        "alter: one resource twice",
        "IncrementalAlterConfigs",
        1,
        resources=[
            {
                "resource_type": TOPIC,
                "resource_name": "d-configs",
                "configs": [{"name": "flush.ms", "config_operation": SET, "value": "5"}],
            }
        ]
        * 2,
    ),
    replaced("all configs of a topic v0", TOPIC, "d-configs", {"retention.ms": "60000"}, 0),
    replaced("all configs of a topic v1", TOPIC, "d-configs", {"flush.ms": "60000"}, 1),
    replaced("all configs of a topic v2", TOPIC, "d-configs", {"flush.messages": "60000"}),
    replace(
        shown("d-configs after all were replaced", TOPIC, "d-configs", ["flush.messages"]),
        until={"results.0.configs.0.value": "60000"},
    ),
    replaced("by an unknown key", TOPIC, "d-configs", {"no.such.key": "1"}),
    replaced("by a value out of range", TOPIC, "d-configs", {"segment.bytes": "1"}),
    replaced("by null", TOPIC, "d-configs", {"segment.bytes": None}),
    replaced("of an unknown topic", TOPIC, "d-unknown", {"flush.ms": "1"}),
    replaced("only to see", TOPIC, "d-configs", {"flush.ms": "1"}, validate_only=True),
    replaced("by nothing", TOPIC, "d-configs", {}),
]

OTHER_CONFIGS = [
    shown("the broker", BROKER, "1", BROKER_KEYS, include_synonyms=True),
    shown(
        "the broker with documentation", BROKER, "1", ["num.partitions"], include_documentation=True
    ),
    shown(
        "a topic with documentation",
        TOPIC,
        "d-configs",
        ["retention.ms"],
        include_documentation=True,
    ),
    shown("the broker in full", BROKER, "1", None),
    shown("all brokers", BROKER, "", None, include_synonyms=True),
    shown("an unknown broker", BROKER, "7", None),
    shown("a broker that is no number", BROKER, "one", None),
    shown("an unknown group", GROUP, "d-group", None, include_synonyms=True),
    shown("no group", GROUP, "", None),
    shown("unknown client metrics", METRICS, "d-metrics", None),
    shown("loggers of an unknown broker", LOGGER, "7", None),
    altered("a broker", BROKER, "1", ("log.retention.ms", SET, "86400000")),
    applied(
        shown(
            "the broker after it was altered",
            BROKER,
            "1",
            ["log.retention.ms"],
            include_synonyms=True,
        ),
        "86400000",
    ),
    applied(
        shown(
            "a topic after the broker was altered",
            TOPIC,
            "d-configs",
            ["retention.ms"],
            include_synonyms=True,
        ),
        "86400000",
    ),
    altered("a broker back", BROKER, "1", ("log.retention.ms", DELETE, None)),
    altered("all brokers", BROKER, "", ("message.max.bytes", SET, "1048600")),
    applied(
        shown(
            "the broker after all were altered",
            BROKER,
            "1",
            ["message.max.bytes"],
            include_synonyms=True,
        ),
        "1048600",
    ),
    altered("all brokers back", BROKER, "", ("message.max.bytes", DELETE, None)),
    *[
        case
        for name, broker, key, value in [
            ("connections", "", "max.connections", "5000"),
            ("connections of a listener", "1", "listener.name.plaintext.max.connections", "4000"),
            (
                "connections by address",
                "1",
                "max.connections.per.ip.overrides",
                "::1:70, 10.0.0.1:7",
            ),
            ("the cleaner", "", "log.cleaner.io.buffer.load.factor", "0.7"),
        ]
        for case in (
            altered(f"a limit of {name}", BROKER, broker, (key, SET, value)),
            applied(
                shown(f"the limit of {name}", BROKER, "1", [key], include_synonyms=True), value
            ),
            altered(f"the limit of {name} back", BROKER, broker, (key, DELETE, None)),
        )
    ],
    altered("no connections", BROKER, "", ("max.connections", SET, "0")),
    altered(
        "no connections of a listener",
        BROKER,
        "1",
        ("listener.name.plaintext.max.connections", SET, "0"),
    ),
    altered("no address", BROKER, "1", ("max.connections.per.ip.overrides", SET, "[::1]:5")),
    altered("what a broker only reads", BROKER, "1", ("broker.id", SET, "2")),
    altered("what a broker only reads, of all", BROKER, "", ("log.dirs", SET, "/elsewhere")),
    altered(
        "what only one broker may have, of all", BROKER, "", ("listeners", SET, "PLAINTEXT://:1")
    ),
    altered("an unknown key of a broker", BROKER, "1", ("no.such.key", SET, "2")),
    altered("a broker out of range", BROKER, "1", ("log.cleaner.threads", SET, "-1")),
    altered("a broker by no number", BROKER, "1", ("log.cleaner.threads", SET, "two")),
    altered("an unknown broker", BROKER, "7", ("log.retention.ms", SET, "1")),
    altered("a broker that is no number", BROKER, "one", ("log.retention.ms", SET, "1")),
    altered("a group", GROUP, "d-group", ("consumer.session.timeout.ms", SET, "50000")),
    applied(
        shown(
            "the group", GROUP, "d-group", ["consumer.session.timeout.ms"], include_synonyms=True
        ),
        "50000",
    ),
    altered("a group out of range", GROUP, "d-group", ("consumer.session.timeout.ms", SET, "1")),
    altered("an unknown key of a group", GROUP, "d-group", ("no.such.key", SET, "1")),
    altered("a group without a name", GROUP, "", ("consumer.session.timeout.ms", SET, "50000")),
    altered("client metrics", METRICS, "d-metrics", ("interval.ms", SET, "60000")),
    altered(
        "an unknown key of client metrics", METRICS, "d-metrics", ("no.such.key", SET, "60000")
    ),
    replaced("all configs of a broker", BROKER, "1", {"log.retention.ms": "90000000"}),
    replaced("configs of a broker by nothing", BROKER, "1", {}),
    *[
        Case(
            f"list resources: {name}",
            "ListConfigResources",
            version,
            {"resource_types": kinds},
            only="d-",
        )
        for name, version, kinds in [
            ("client metrics v0", 0, []),
            ("topics", 1, [TOPIC]),
            ("groups", 1, [GROUP]),
            ("client metrics", 1, [METRICS]),
            ("every kind", 1, []),
            ("an unknown kind", 1, [77]),
        ]
    ],
    ask("list resources: brokers", "ListConfigResources", 1, resource_types=[BROKER]),
    altered("a group back", GROUP, "d-group", ("consumer.session.timeout.ms", DELETE, None)),
    altered("client metrics back", METRICS, "d-metrics", ("interval.ms", DELETE, None)),
]
