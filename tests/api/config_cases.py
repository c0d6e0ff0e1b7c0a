"""Changes of configurations, and what Apache Kafka 4.3.1 answers to each: code and sentence.

The same table is put to kafkalite (tests/api/test_k44_incremental_alter_configs.py) and to Kafka
(tests/oracle/test_config_changes.py), one after the other on the topic `altered` with two
partitions and `retention.ms=1234`, as node 1.
"""

from typing import NamedTuple

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


class Case(NamedTuple):
    """(resource type, name), [(key, operation, text)], code, sentence."""

    resource: tuple[int, str]
    operations: list[tuple[str, int, str | None]]
    code: int = 0
    sentence: str | None = None


ALTERED = (TOPIC, "altered")
NODE = (BROKER, "1")
ALL_NODES = (BROKER, "")
METRICS = (CLIENT_METRICS, "some")
SOME_GROUP = (GROUP, "some")


def not_a_number(key: str, text: str, kind: str = "LONG") -> str:
    return f"Invalid value {text} for configuration {key}: Not a number of type {kind}"


def at_least(key: str, text: str, least: int) -> str:
    return f"Invalid value {text} for configuration {key}: Value must be at least {least}"


def not_dynamic(key: str) -> str:
    return f"Cannot update these configs dynamically: [{key}]"


def invalid_dynamic(reason: str) -> str:
    return (
        f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} for configuration "
        "Invalid dynamic configuration"
    )


PER_LISTENER = (
    "These security configs can be dynamically updated only per-listener using the listener prefix:"
)
THROTTLED = "leader.replication.throttled.replicas"
OF_LISTENER = "listener.name.plaintext"
OVERRIDES = "max.connections.per.ip.overrides"
NOBODY_MAY_CONNECT = (
    "requirement failed: max.connections.per.ip can be set to zero only if "
    "max.connections.per.ip.overrides property is set."
)

CASES = [
    Case(ALTERED, [("retention.ms", SET, "77")]),
    Case(
        (TOPIC, "no-topic"),
        [("retention.ms", SET, "77")],
        3,
        "The topic 'no-topic' does not exist.",
    ),
    Case(
        (TOPIC, "bad name"),
        [("retention.ms", SET, "77")],
        17,
        "Topic name is invalid: 'bad name' contains one or more characters other than ASCII "
        "alphanumerics, '.', '_' and '-'",
    ),
    Case((TOPIC, ""), [("a", SET, "1")], 42, "Default topic resources are not allowed."),
    Case(ALTERED, [("no.such", SET, "77")], 40, "Unknown topic config name: no.such"),
    Case(ALTERED, [("retention.ms", SET, "x")], 40, not_a_number("retention.ms", "x")),
    Case(ALTERED, [("retention.ms", SET, "-2")], 40, at_least("retention.ms", "-2", -1)),
    Case(ALTERED, [("retention.ms", SET, None)], 42, "Null value not supported for : retention.ms"),
    Case(ALTERED, [("retention.ms", SET, "")], 40, not_a_number("retention.ms", "")),
    Case(ALTERED, [("segment.bytes", SET, "9")], 40, at_least("segment.bytes", "9", 1 << 20)),
    Case(
        ALTERED,
        [("segment.bytes", SET, "99999999999")],
        40,
        not_a_number("segment.bytes", "99999999999", "INT"),
    ),
    Case(
        ALTERED,
        [("cleanup.policy", SET, "delete,zap")],
        40,
        "Invalid value zap for configuration cleanup.policy: String must be one of: "
        "compact, delete",
    ),
    Case(ALTERED, [("cleanup.policy", SET, "")]),
    Case(ALTERED, [("cleanup.policy", SET, "delete,delete")]),
    Case(ALTERED, [("cleanup.policy", APPEND, "compact")]),
    Case(ALTERED, [("cleanup.policy", APPEND, "compact")]),
    Case(ALTERED, [("cleanup.policy", SUBTRACT, "delete")]),
    Case(ALTERED, [("cleanup.policy", DELETE, None)]),
    Case(ALTERED, [("cleanup.policy", DELETE, None)]),
    Case(
        ALTERED,
        [("retention.ms", APPEND, "5")],
        40,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    ),
    Case(ALTERED, [("no.such", DELETE, None)]),
    Case(ALTERED, [("retention.ms", 9, "5")], -1),
    Case(
        ALTERED,
        [("retention.ms", SET, "5"), ("retention.ms", SET, "6")],
        42,
        "Error due to duplicate config keys",
    ),
    Case(
        ALTERED,
        [("retention.ms", SET, "5"), ("retention.bytes", SET, "x")],
        40,
        not_a_number("retention.bytes", "x"),
    ),
    Case(
        ALTERED,
        [("min.compaction.lag.ms", SET, "50"), ("max.compaction.lag.ms", SET, "10")],
        40,
        "conflict topic config setting min.compaction.lag.ms (50) > max.compaction.lag.ms (10)",
    ),
    Case(
        ALTERED,
        [("compression.gzip.level", SET, "0")],
        40,
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 "
        "or equal to -1",
    ),
    Case(
        ALTERED,
        [("compression.type", SET, "none")],
        40,
        "Invalid value none for configuration compression.type: String must be one of: "
        "uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    Case(ALTERED, [("min.insync.replicas", SET, "0")], 40, at_least("min.insync.replicas", "0", 1)),
    Case(
        ALTERED,
        [("min.cleanable.dirty.ratio", SET, "2")],
        40,
        "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more "
        "than 1",
    ),
    Case(
        ALTERED,
        [("preallocate", SET, "yes")],
        40,
        "Invalid value yes for configuration preallocate: Expected value to be either true or "
        "false",
    ),
    Case(
        ALTERED,
        [("remote.storage.enable", SET, "true")],
        40,
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with "
        "remote log storage.",
    ),
    Case(ALTERED, [(THROTTLED, SET, "0:1, ,1:1,")]),
    Case(ALTERED, [(THROTTLED, SET, ",*")]),
    Case(ALTERED, [(THROTTLED, SET, "0:1")]),
    Case(
        ALTERED,
        [(THROTTLED, SET, "zz")],
        40,
        f"Invalid value [zz] for configuration {THROTTLED}: {THROTTLED} must be the literal '*' or "
        "a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
    Case(ALTERED, [("unclean.leader.election.enable", SET, "true")]),
    Case(ALTERED, [("retention.ms", SET, " 88 ")]),
    Case(ALTERED, [("internal.segment.bytes", SET, "1000")]),
    Case(ALTERED, []),
    Case((TOPIC, "no-topic"), [], 3, "The topic 'no-topic' does not exist."),
    Case(NODE, [("num.io.threads", SET, "9")]),
    Case(ALL_NODES, [("num.io.threads", SET, "10")]),
    Case(NODE, [("num.io.threads", SET, "0")], 42, at_least("num.io.threads", "0", 1)),
    Case(
        NODE,
        [("num.io.threads", SET, "900")],
        42,
        invalid_dynamic(
            "Dynamic thread count update validation failed for num.io.threads=900, value should "
            "not be greater than double the current value 9"
        ),
    ),
    Case(
        NODE,
        [("remote.log.reader.threads", SET, "4")],
        42,
        invalid_dynamic(
            "Dynamic thread count update validation failed for remote.log.reader.threads=4, value "
            "should be at least half the current value 10"
        ),
    ),
    Case(
        NODE,
        [("log.cleaner.threads", SET, "128")],
        42,
        "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner "
        "thread.",
    ),
    Case(
        ALL_NODES,
        [("max.connection.creation.rate", SET, "0")],
        42,
        invalid_dynamic("Invalid max.connection.creation.rate 0"),
    ),
    Case(NODE, [("max.connections", SET, "0")], 42, invalid_dynamic("Invalid max.connections 0")),
    Case(ALL_NODES, [("max.connections", SET, "-1")], 42, at_least("max.connections", "-1", 0)),
    Case(ALL_NODES, [("max.connections", SET, "1000")]),
    Case(NODE, [(f"{OF_LISTENER}.max.connections", SET, "900")]),
    Case(
        NODE,
        [(f"{OF_LISTENER}.max.connections", SET, "0")],
        42,
        invalid_dynamic("Invalid max.connections 0"),
    ),
    Case(
        ALL_NODES,
        [(f"{OF_LISTENER}.max.connection.creation.rate", SET, "x")],
        42,
        not_a_number("max.connection.creation.rate", "x", "INT"),
    ),
    # Nobody listens there.
    Case(ALL_NODES, [("listener.name.none.max.connections", SET, "0")]),
    Case(ALL_NODES, [("listener.name.none.max.connections", DELETE, None)]),
    Case(NODE, [("max.connections.per.ip", SET, "0")], 42, NOBODY_MAY_CONNECT),
    Case(
        NODE,
        [("max.connections.per.ip", SET, "0"), (OVERRIDES, SET, "127.0.0.1:90, ::1:-1,")],
    ),
    Case(NODE, [("max.connections.per.ip", SET, "80")]),
    Case(
        NODE,
        [(OVERRIDES, SET, "here")],
        42,
        f"Error parsing configuration property '{OVERRIDES}': begin 0, end -1, length 4",
    ),
    Case(NODE, [(OVERRIDES, SET, "here:x")], 42, 'For input string: "x"'),
    Case(
        NODE,
        [(OVERRIDES, SET, "[::1]:3")],
        42,
        f"{OVERRIDES} contains invalid addresses : [::1]",
    ),
    Case(
        ALL_NODES,
        [("log.cleaner.dedupe.buffer.size", SET, "1000")],
        42,
        "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner "
        "thread.",
    ),
    # Either alone would do.
    Case(
        NODE,
        [("log.cleaner.threads", SET, "2"), ("log.cleaner.dedupe.buffer.size", SET, "2097153")],
        42,
        "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner "
        "thread.",
    ),
    Case(NODE, [("log.cleaner.io.buffer.load.factor", SET, "0.5")]),
    Case(
        NODE,
        [("log.roll.jitter.ms", SET, "-1")],
        42,
        "requirement failed: log.roll.jitter.ms must be greater than or equal to 0",
    ),
    Case(
        ALL_NODES,
        [("group.consumer.assignment.interval.ms", SET, "15001")],
        42,
        "group.consumer.assignment.interval.ms must be less than or equal to "
        "group.consumer.max.assignment.interval.ms",
    ),
    Case(
        NODE,
        [("log.local.retention.ms", SET, "604800001")],
        42,
        invalid_dynamic(
            "Invalid value 604800001 for configuration log.local.retention.ms: Value must not be "
            "more than log.retention.ms property value: 604800000"
        ),
    ),
    Case(
        ALL_NODES,
        [("log.retention.bytes", SET, "5"), ("log.local.retention.bytes", SET, "-1")],
        42,
        invalid_dynamic(
            "Invalid value -1 for configuration log.local.retention.bytes: Value must not be -1 as "
            "log.retention.bytes value is set as 5."
        ),
    ),
    Case(
        NODE,
        [("leader.replication.throttled.rate", APPEND, "1")],
        40,
        "Unknown config name: leader.replication.throttled.rate",
    ),
    Case(
        ALL_NODES,
        [("ssl.protocol", SET, "TLSv1.3")],
        42,
        "Cannot update these configs at default cluster level, broker id must be specified: "
        "[ssl.protocol]",
    ),
    Case(NODE, [("num.partitions", SET, "3")], 42, not_dynamic("num.partitions")),
    Case(ALL_NODES, [("num.partitions", SET, "3")], 42, not_dynamic("num.partitions")),
    Case(NODE, [("no.such.key", SET, "3")]),
    Case(NODE, [("no.such.key", DELETE, None)]),
    Case(
        (BROKER, "2"),
        [("log.retention.ms", SET, "3")],
        42,
        "Unexpected broker id, expected 1, but received 2",
    ),
    Case((BROKER, "x"), [("a", SET, "3")], 42, "Node id must be an integer, but it is: x"),
    Case(ALL_NODES, [("log.retention.ms", SET, "30000")]),
    Case(NODE, [("log.retention.ms", SET, "x")], 42, not_a_number("log.retention.ms", "x")),
    Case(NODE, [("log.retention.ms", DELETE, None)]),
    Case(
        ALL_NODES,
        [("ssl.keystore.location", SET, "/x")],
        42,
        f"{PER_LISTENER} [ssl.keystore.location]",
    ),
    Case(
        NODE,
        [("advertised.listeners", SET, "PLAINTEXT://x:1")],
        42,
        not_dynamic("advertised.listeners"),
    ),
    Case(
        ALL_NODES,
        [("listeners", SET, "PLAINTEXT://x:1")],
        42,
        "Cannot update these configs at default cluster level, broker id must be specified: "
        "[listeners]",
    ),
    Case(NODE, [("log.cleanup.policy", APPEND, "compact")]),
    Case(NODE, [("log.cleanup.policy", DELETE, None)]),
    Case(NODE, [("log.roll.hours", SET, "3")], 42, not_dynamic("log.roll.hours")),
    Case(ALL_NODES, [("leader.replication.throttled.rate", SET, "1000")]),
    Case(
        NODE,
        [("min.insync.replicas", SET, "1")],
        40,
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    ),
    Case(
        ALL_NODES,
        [("min.insync.replicas", DELETE, None)],
        40,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    ),
    Case(
        (LOGGER, "1"),
        [("root", SET, "loud")],
        40,
        "Cannot set the log level of root to loud as it is not a supported log level. Valid log "
        "levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
    ),
    Case((LOGGER, "1"), [("root", SET, "INFO")]),
    Case(
        (LOGGER, "1"),
        [("root", DELETE, None)],
        42,
        "Removing the log level of the root logger is not allowed",
    ),
    Case((LOGGER, "1"), [("strange", SET, "INFO")], 40, "Logger strange does not exist!"),
    Case(
        (LOGGER, "1"),
        [("root", APPEND, "INFO")],
        42,
        "APPEND operation is not allowed for the BROKER_LOGGER resource",
    ),
    Case(
        (LOGGER, "2"), [("root", SET, "INFO")], 42, "Unexpected node id. Expected 1, but received 2"
    ),
    Case((LOGGER, ""), [("root", SET, "INFO")], 42, "Node id must be an integer, but it is: "),
    Case(SOME_GROUP, [("consumer.session.timeout.ms", SET, "46000")]),
    Case(
        SOME_GROUP,
        [("consumer.session.timeout.ms", SET, "1")],
        40,
        "consumer.session.timeout.ms must be greater than or equal to "
        "group.consumer.min.session.timeout.ms",
    ),
    Case(
        SOME_GROUP,
        [("consumer.session.timeout.ms", SET, "990000")],
        40,
        "consumer.session.timeout.ms must be less than or equal to "
        "group.consumer.max.session.timeout.ms",
    ),
    Case(SOME_GROUP, [("no.such", SET, "1")], 40, "Unknown group config name: no.such"),
    Case((GROUP, ""), [("a", SET, "1")], 42, "Default group resources are not allowed."),
    # Of several that cannot be, the first that is asked for is named, which here is Kafka's first.
    Case(
        SOME_GROUP,
        [("consumer.heartbeat.interval.ms", SET, "0"), ("share.delivery.count.limit", SET, "0")],
        40,
        at_least("consumer.heartbeat.interval.ms", "0", 1),
    ),
    Case(
        NODE,
        [("leader.replication.throttled.rate", SET, "-1"), ("log.retention.ms", SET, "x")],
        42,
        at_least("leader.replication.throttled.rate", "-1", 0),
    ),
    Case(
        SOME_GROUP,
        [("share.auto.offset.reset", SET, "never")],
        40,
        "Invalid value never for configuration share.auto.offset.reset: Invalid value `never` for "
        "configuration share.auto.offset.reset. The value must be either 'earliest', 'latest' or "
        "of the format 'by_duration:<PnDTnHnMn.nS>'.",
    ),
    Case(SOME_GROUP, [("consumer.session.timeout.ms", DELETE, None)]),
    Case(
        METRICS,
        [
            ("interval.ms", SET, "1000"),
            ("metrics", SET, "a,b"),
            ("match", SET, "client_id=x"),
        ],
    ),
    Case(
        METRICS,
        [("interval.ms", SET, "1")],
        42,
        "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
    ),
    Case(
        METRICS,
        [("interval.ms", SET, " +7 ")],
        42,
        "Invalid value 7 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
    ),
    Case(
        METRICS,
        [("interval.ms", SET, "2147483648")],
        40,
        not_a_number("interval.ms", "2147483648", "INT"),
    ),
    Case(
        METRICS, [("metrics", SET, "a,")], 40, "Configuration 'metrics' values must not be empty."
    ),
    Case(METRICS, [("match", SET, ",")], 40, "Configuration 'match' values must not be empty."),
    Case(
        METRICS,
        [("match", SET, "client_id=a=b")],
        40,
        "Illegal client matching pattern: client_id=a=b",
    ),
    Case(
        METRICS, [("match", SET, "client_id=")], 40, "Illegal client matching pattern: client_id="
    ),
    Case(METRICS, [("match", SET, "client_id=(?<who>\\p{Alpha}+)")]),
    Case(METRICS, [("match", SET, "client_id=x")]),
    Case(
        METRICS,
        [("match", SET, "client_id=a{4294967296}")],
        40,
        "Illegal client matching pattern: client_id=a{4294967296}",
    ),
    Case(METRICS, [("match", SET, "zz")], 40, "Illegal client matching pattern: zz"),
    Case(METRICS, [("no.such", SET, "1")], 42, "Unknown client metrics configuration: no.such"),
    Case((CLIENT_METRICS, ""), [("metrics", SET, "a")], 42, "Subscription name can't be empty"),
    Case((0, ""), [("metrics", SET, "a")], 42, "Unknown resource type 0"),
    Case((99, "x"), [("metrics", SET, "a")], 42, "Unknown resource type 99"),
]

# What is set once all cases have had their turn.
SET_AT_LAST = {
    ALTERED: {
        "internal.segment.bytes": "1000",
        THROTTLED: "0:1",
        "retention.ms": "88",
        "unclean.leader.election.enable": "true",
    },
    NODE: {
        "log.cleaner.io.buffer.load.factor": "0.5",
        "num.io.threads": "9",
        OVERRIDES: "127.0.0.1:90, ::1:-1,",
        "max.connections.per.ip": "80",
        f"{OF_LISTENER}.max.connections": "900",
    },
    ALL_NODES: {
        "leader.replication.throttled.rate": "1000",
        "log.retention.ms": "30000",
        "max.connections": "1000",
        "min.insync.replicas": "1",
        "num.io.threads": "10",
    },
    METRICS: {"interval.ms": "1000", "match": "client_id=x", "metrics": "a,b"},
    SOME_GROUP: {},
}

# Kafka's codes of sources: set for this very resource.
OWN_SOURCES = {TOPIC: 1, BROKER: 2, CLIENT_METRICS: 7, GROUP: 8}
