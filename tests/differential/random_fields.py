"""Fields of requests at random: what stands in them usually, and what seldom does.

A message is drawn along the schema table, so that each field of each version has its turn. What a
field is drawn from hangs on its name (`FIELDS`), else on its type. How odd a request is, is drawn
first: half of all requests are usual throughout, since those that are odd in ten places are refused
for the first and say nothing of the others.

In texts `~` stands for the world of a sequence (`random_requests.py`), whose own the name is so.

What kafkalite does otherwise on purpose (docs/DIFFERENCES.md), and what would make the state of the
two brokers differ, is never drawn: records that are null, partitions that a Produce names twice,
transactional ids, sizes below 0, isolation levels but 0 and 1, codecs that are none, the zero id in
a Fetch. Nor is what would make a single client wait for others (`random_groups.py` has several).
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from differential.cases.groups import SUBSCRIPTION
from differential.script import NO_SUCH_ID, T0, ZERO_ID, Kept, id_of
from golden.table import Field
from kafkalite.config.keys import KeyTable

INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
# Tiering is refused here; what another codec makes of records has another size at each broker.
TABLE = KeyTable("topic.txt")
TOPIC_KEYS = tuple(key for key in TABLE if not key.startswith(("remote.", "compression.type")))
# Others are refused here, or cannot be changed while the broker runs; limits of connections would
# close those by which the brokers are asked.
BROKER_TABLE = KeyTable("broker.txt")
BROKER_KEYS = tuple(
    key
    for key, row in BROKER_TABLE.items()
    if row.is_dynamic
    and row.support in ("obeyed", "taken")
    and not row.is_sensitive
    and not key.startswith("max.connections")
)
GROUP_TABLE = KeyTable("group.txt")


@dataclass(frozen=True)
class Pool:
    """Values of a field. A null that the version does not know is not drawn."""

    usual: Sequence[Any]
    odd: Sequence[Any] = ()


@dataclass(frozen=True)
class IdOf:
    """Stands for the id of a topic of the sequence's world."""

    topic: str


# The topics that each world begins with, and two that requests may make.
MADE = ("plain", "three", "compact", "stamped")
NEW = ("new", "newer")

TOPICS = Pool(
    ("~plain", "~plain", "~three", "~three", "~compact", "~stamped"),
    ("~new", "~newer", "~none", "", "no name!", ".", "~" + "x" * 250),
)
NEW_TOPICS = Pool(("~new", "~newer"), ("~plain", "", "no name!", "..", "~" + "x" * 250))
IDS = Pool(tuple(map(IdOf, (*MADE, "new"))), (NO_SUCH_ID, IdOf("newer"), ZERO_ID))
GROUPS = Pool(("~g", "~g", "~h"), ("~none", ""))
PARTITIONS = Pool((0, 0, 0, 1), (2, 3, -1, INT32_MAX, INT32_MIN))
OFFSETS = Pool((0, 0, 0, 1, 2, 3, 5), (-1, -2, 1000, INT64_MAX, INT64_MIN))
EPOCHS = Pool((-1, -1, 0), (1, -2, INT32_MAX, INT32_MIN))
SESSION_MS = 300_000  # longer than brokers take to start again
TIMEOUTS = Pool((5000, 30_000), (INT32_MAX,))
MEMBER = Kept("member", otherwise="nobody")
MEMBERS = Pool(("", MEMBER), ("nobody", "consumer"))
INSTANCES = Pool((None,), ("instance", "", "no instance!"))
GENERATIONS = Pool((-1, 1), (0, 2, -2, INT32_MAX))
WORDS = Pool(("", "word"), ("Grüße", "x" * 300))
FLAGS = Pool((False, True))

# By the name of the field, or by more of its path where the name alone does not say enough.
FIELDS: Mapping[str, Pool] = {
    "topic": TOPICS,
    "name": TOPICS,
    "topic_name": TOPICS,
    "topic_names": TOPICS,
    "topic_id": IDS,
    "Fetch.topics.topic_id": Pool(IDS.usual, (NO_SUCH_ID, IdOf("newer"))),
    "Fetch.forgotten_topics_data.topic_id": Pool(IDS.usual, (NO_SUCH_ID,)),
    "partition": PARTITIONS,
    "partitions": PARTITIONS,
    "partition_index": PARTITIONS,
    "partition_indexes": PARTITIONS,
    "index": PARTITIONS,
    "offset": OFFSETS,
    "fetch_offset": OFFSETS,
    "committed_offset": OFFSETS,
    "committed_leader_epoch": EPOCHS,
    "committed_metadata": Pool(("", "word", None), ("Grüße", "x" * 4096, "x" * 4097)),
    "retention_time_ms": Pool((-1,), (0, 1, INT64_MAX)),
    "current_leader_epoch": EPOCHS,
    "last_fetched_epoch": Pool((-1,), (0, 1, -2, INT32_MAX)),
    "leader_epoch": Pool((0, 0, -1), (1, -2, INT32_MAX, INT32_MIN)),
    "log_start_offset": Pool((-1,), (0, 5, INT64_MAX)),
    "high_watermark": Pool((INT64_MAX,), (0, -1)),
    "timestamp": Pool((-1, -2, -3, T0, T0 + 1, 0), (-4, -5, -6, -7, INT64_MAX, INT64_MIN)),
    "replica_id": Pool((-1,), (-2,)),
    "replica_epoch": Pool((-1,), (0, INT64_MAX)),
    "max_wait_ms": Pool((0,), (-1, 3)),
    "min_bytes": Pool((0, 1), (-1, 100, INT32_MAX)),
    "max_bytes": Pool((1 << 20, INT32_MAX), (0, 1, 80, 200)),
    "partition_max_bytes": Pool((1 << 20,), (0, 1, 80, 200, INT32_MAX)),
    "isolation_level": Pool((0, 1)),
    "cluster_id": Pool((None,), ("", "other")),
    "rack_id": WORDS,
    "acks": Pool((-1, -1, 1, 0), (2, -2, 32767)),
    "timeout_ms": TIMEOUTS,
    "CreateTopics.timeout_ms": Pool(TIMEOUTS.usual, (0, -1, INT32_MAX)),
    "DeleteTopics.timeout_ms": Pool(TIMEOUTS.usual, (0, -1, INT32_MAX)),
    "CreatePartitions.timeout_ms": Pool(TIMEOUTS.usual, (0, -1, INT32_MAX)),
    "transactional_id": Pool((None,)),
    "transaction_timeout_ms": Pool((60_000,), (0, -1, INT32_MAX)),
    "producer_id": Pool((-1,), (Kept("p"), 0, -2, INT64_MAX)),
    "producer_epoch": Pool((-1,), (0, 1, -2, 32767)),
    "group_id": GROUPS,
    # The group without a name would be all worlds'.
    "OffsetCommit.group_id": Pool(GROUPS.usual, ("~none",)),
    "groups_names": GROUPS,
    "DescribeGroups.groups": GROUPS,
    "member_id": MEMBERS,
    "JoinGroup.member_id": Pool((MEMBER,), ("nobody",)),
    "JoinGroup.group_instance_id": Pool((None,)),
    "JoinGroup.protocol_type": Pool(("consumer",), ("", "connect")),
    "group_instance_id": INSTANCES,
    "member_epoch": Pool((-1,), (0, 1)),
    "generation_id": GENERATIONS,
    "generation_id_or_member_epoch": GENERATIONS,
    "session_timeout_ms": Pool((SESSION_MS,), (0, -1, 5, INT32_MAX)),
    "rebalance_timeout_ms": Pool((60_000,), (0, -1, INT32_MAX)),
    "protocol_type": Pool(("consumer", "consumer"), ("", "connect", None)),
    "protocol_name": Pool(("range",), ("roundrobin", "", None)),
    "protocols.name": Pool(("range",), ("",)),
    # Kafka never answers one that is longer than the version it begins with, and no subscription.
    "metadata": Pool((SUBSCRIPTION,), (b"", b"\0")),
    "assignment": Pool((b"", b"assignment")),
    "reason": Pool((None, "word"), ("", "x" * 300)),
    "key": GROUPS,
    "coordinator_keys": GROUPS,
    "key_type": Pool((0,)),
    "states_filter": Pool(("Empty", "Stable"), ("Dead", "stable", "", "CompletingRebalance", "x")),
    "types_filter": Pool(("classic", "Classic"), ("consumer", "share", "", "x")),
    "CreateTopics.topics.name": NEW_TOPICS,
    # More than 2 ** 31 partitions in all count as none in Kafka, which then sets about making them.
    "num_partitions": Pool((1, 2, 3, -1), (0, -2, 10_001)),
    "replication_factor": Pool((1, -1), (0, -2, 2, 32767)),
    "broker_ids": Pool((1,), (2, 0, -1)),
    "count": Pool((2, 3, 4), (1, 0, -1)),
    "resource_types": Pool((2, 4, 32), (16, 8, 0, 1, -1, 127)),
    "endpoint_type": Pool((1,), (0, 3, -1)),
    "response_partition_limit": Pool((2000, 3), (0, 1, -1, INT32_MAX)),
}
TYPES: Mapping[str, Pool] = {"bool": FLAGS, "string": WORDS, "uuid": Pool((ZERO_ID,))}

# How many elements an array has.
LENGTHS = Pool((1, 1, 1, 2, 3), (0, None))
LENGTHS_OF: Mapping[str, Pool] = {
    "JoinGroup.protocols": Pool((1,), (0,)),
    "forgotten_topics_data": Pool((0, 0, 0, 1, 2)),
    "CreateTopics.topics.assignments": Pool((0,), (1, 2)),
    "CreateTopics.topics.configs": Pool((0, 0, 1), (2, 3)),
    "CreatePartitions.topics.assignments": Pool((None,), (0, 1, 2)),
    "DescribeLogDirs.topics": Pool((1, 2, 3), (0,)),
    "states_filter": Pool((0, 1, 2)),
    "types_filter": Pool((0, 1, 2)),
    "resource_types": Pool((0, 1, 2, 3)),
}

# Kinds of resources that have configs, and what may stand for their names.
RESOURCES: Mapping[int, Pool] = {
    2: TOPICS,
    4: Pool(("1", ""), ("2", "x", "-1")),
    8: Pool(("1",), ("2", "", "x")),
    16: Pool(("~metrics",), ("",)),
    32: Pool(("~g", "~h"), ("",)),
}
RESOURCE_KINDS = Pool((2, 2, 2, 2, 4, 32), (4, 8, 16, 0, 1, 3, 127, -1))
CONFIG_KEYS: Mapping[int, Pool] = {
    2: Pool(TOPIC_KEYS, ("", "no.such.key", "log.retention.ms", "remote.storage.enable")),
    4: Pool(BROKER_KEYS, ("", "broker.heartbeat.interval.ms", "x", "ssl.keystore.type")),
    8: Pool(("root",), ("", "x")),
    16: Pool(("metrics", "interval.ms", "match"), ("", "x")),
    32: Pool(tuple(GROUP_TABLE), ("", "x")),
}
TABLES: Mapping[int, KeyTable] = {2: TABLE, 4: BROKER_TABLE, 32: GROUP_TABLE}
CONFIG_VALUES = Pool(
    ("0", "1", "100", "1048576", "7200000", "true", "false", "delete", "compact", "0.5"),
    (
        *(
            None,
            "",
            "-1",
            "-2",
            "x",
            " 7 ",
            "1.5",
            "1e3",
            "TRUE",
            "compact,delete",
            "delete,delete",
        ),
        *("9223372036854775807", "9223372036854775808", "2147483648", "-2147483649", "NaN"),
        *("CreateTime", "LogAppendTime", "producer", "uncompressed", "zstd", "INFO", "0:1", "*"),
        *(",", "compact,", " compact , delete ", "+5", "05", "0x10", "1_000", "٣"),
    ),
)
NUMBERS = Pool(
    ("0", "1", "3", "10", "100", "5000", "45000", "1048576", "7200000", "9223372036854775807")
)
VALUES_OF: Mapping[str, Pool] = {
    "boolean": Pool(("true", "false")),
    "double": Pool(("0", "0.5", "1")),
    "int": NUMBERS,
    "long": NUMBERS,
    "list": Pool(("delete", "compact", "compact,delete", "0:1", "*")),
    "string": Pool(("CreateTime", "LogAppendTime")),
}
OPERATIONS = Pool((0, 0, 0, 0, 1), (2, 3, 4, -1, 127))


class Draw:
    """Draws the fields of requests; `oddness` is the share of odd values in what is drawn now."""

    def __init__(self, source: random.Random, world: str) -> None:
        self.source = source
        self.oddness = 0.0
        self._world = world

    def one(self, pool: Pool) -> Any:
        """A value of the pool in the words of a `Case`."""
        odd = pool.odd and self.source.random() < self.oddness
        return self._resolved(self.source.choice(pool.odd if odd else pool.usual))

    def fields(self, fields: Sequence[Field], version: int, path: str) -> dict[str, Any]:
        """The fields of a message or struct in that version."""
        if any(each.name == "resource_type" for each in fields):
            return self._resource(fields)
        drawn = {}
        for each in fields:
            if version not in each.versions:
                continue
            # Tagged fields are left out unless something odd is wanted.
            if version in each.tagged and self.source.random() >= self.oddness:
                continue
            drawn[each.name] = self._field(each, version, f"{path}.{each.name}")
        return drawn

    def _field(self, field: Field, version: int, path: str) -> Any:
        if field.is_array:
            length = self._allowed(_pool(LENGTHS_OF, path, LENGTHS), field, version)
            if length is None:
                return None
            return [self._element(field, version, path) for _ in range(length)]
        return self._element(field, version, path)

    def _element(self, field: Field, version: int, path: str) -> Any:
        if field.name == "cursor":
            return self._cursor()
        if field.fields is not None:
            return self.fields(field.fields, version, path)
        pool = _pool(FIELDS, path, TYPES.get(field.kind, Pool((0,))))
        if path.endswith("configs.name"):
            pool = CONFIG_KEYS[2]
        if path.endswith("configs.value"):
            pool = CONFIG_VALUES
        return self._allowed(pool, field, version)

    def _cursor(self) -> dict[str, Any] | None:
        if self.source.random() < 0.7:
            return None
        return {"topic_name": self.one(TOPICS), "partition_index": self.one(PARTITIONS)}

    def _allowed(self, pool: Pool, field: Field, version: int) -> Any:
        """A value that is null only where the version has room for it."""
        while True:
            value = self.one(pool)
            if value is not None or version in field.nullable:
                return value
            if all(each is None for each in pool.usual):  # null is its usual value elsewhere
                return 0 if field.is_array else ""

    def _resource(self, fields: Sequence[Field]) -> dict[str, Any]:
        kind = self.one(RESOURCE_KINDS)
        keys = CONFIG_KEYS.get(kind, CONFIG_KEYS[2])
        drawn = {
            "resource_type": kind,
            "resource_name": self.one(RESOURCES.get(kind, TOPICS)),
        }
        count = self.one(LENGTHS)
        for each in fields:
            if each.name == "configuration_keys":
                # A broker's own configs differ on purpose: only some of them are asked for.
                count = max(count or 0, 1) if kind == 4 else count
                names = [self.one(keys) for _ in range(count or 0)]
                drawn[each.name] = None if count is None else names
            if each.name == "configs":
                table = TABLES.get(kind, TABLE)
                drawn[each.name] = [self._config(keys, table, each) for _ in range(count or 0)]
        return drawn

    def _config(self, keys: Pool, table: KeyTable, field: Field) -> dict[str, Any]:
        name = self.one(keys)
        kind = table[name].kind if name in table else ""
        fits = kind in VALUES_OF and self.source.random() >= self.oddness
        drawn = {
            "name": name,
            "value": self.one(VALUES_OF[kind] if fits else CONFIG_VALUES),
        }
        assert field.fields is not None
        if any(each.name == "config_operation" for each in field.fields):
            drawn["config_operation"] = self.one(OPERATIONS)
        return drawn

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, IdOf):
            return id_of(f"{self._world}-{value.topic}")
        if isinstance(value, str) and value.startswith("~"):
            return f"{self._world}-{value[1:]}"
        return value


def _pool(pools: Mapping[str, Pool], path: str, otherwise: Pool | None) -> Any:
    """The pool of the longest end of the path that has one."""
    names = path.split(".")
    for begin in range(len(names)):
        found = pools.get(".".join(names[begin:]))
        if found is not None:
            return found
    return otherwise
