"""Sequences of requests at random: one client, topics and groups of its own, every key.

The same seed, world and length give the same sequence. A world is a prefix of names: played again
in another world, a sequence finds the brokers as it found them the first time.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from differential.cases.groups import join, sync
from differential.random_fields import (
    MADE,
    MEMBER,
    NEW,
    PARTITIONS,
    SESSION_MS,
    TOPICS,
    Draw,
    Pool,
)
from differential.runner import TABLE
from differential.script import ZERO_ID, Batch, Case, Kept, ask, fetch, id_of

Step = tuple[Case, ...]
"""A request, and where it changes metadata the waiting until the change has come to the broker."""

# How often a key comes. Those are left out of which the two brokers differ on purpose: ApiVersions,
# UpdateFeatures, DescribeQuorum.
WEIGHTS: Mapping[str, int] = {
    "Produce": 10,
    "Fetch": 8,
    "ListOffsets": 4,
    "OffsetForLeaderEpoch": 2,
    "DeleteRecords": 3,
    "InitProducerId": 2,
    "DescribeProducers": 2,
    "DescribeLogDirs": 2,
    "Metadata": 3,
    "DescribeTopicPartitions": 2,
    "DescribeCluster": 1,
    "CreateTopics": 3,
    "CreatePartitions": 2,
    "DeleteTopics": 2,
    "DescribeConfigs": 3,
    "AlterConfigs": 2,
    "IncrementalAlterConfigs": 4,
    "ListConfigResources": 1,
    "FindCoordinator": 1,
    "OffsetCommit": 4,
    "OffsetFetch": 3,
    "OffsetDelete": 1,
    "JoinGroup": 2,
    "SyncGroup": 2,
    "Heartbeat": 1,
    "LeaveGroup": 1,
    "DescribeGroups": 1,
    "ListGroups": 1,
    "DeleteGroups": 1,
}
CHANGES = (
    "CreateTopics",
    "CreatePartitions",
    "DeleteTopics",
    "AlterConfigs",
    "IncrementalAlterConfigs",
)
# What answers with all that there is, other worlds' too: always, or where no topic is named.
ALWAYS_ALL = ("ListGroups", "ListConfigResources")
ALL_IF_NONE = ("Metadata", "DescribeLogDirs", "DescribeTopicPartitions")
PATIENCE_S = 5.0
TOPIC_LENGTH_MAX = 249
"""kafkalite has no fetch session of a longer name (docs/DIFFERENCES.md)."""
OWN = ("log_dir", "total_bytes", "usable_bytes", "documentation")
ODDNESS = Pool((0.0, 0.0, 0.0, 0.1, 0.1, 0.3))

PRODUCERS = "pq"

DAMAGE: Sequence[Mapping[str, Any]] = (
    {"crc_is_wrong": True},
    {"cut": 1},
    {"cut": 40},
    {"header": {"magic": 1}},
    {"header": {"magic": 3}},
    {"header": {"length": 10}},
    {"header": {"length": -1}},
    {"header": {"base_offset": 7}},
    {"header": {"leader_epoch": 9}},
    {"header": {"count": 0}},
    {"header": {"count": 9}},
    {"header": {"count": -1}},
    {"header": {"last_offset_delta": 9}},
    {"header": {"last_offset_delta": -1}},
    {"header": {"max_timestamp": 5}},
    {"header": {"base_timestamp": -1}},
    {"header": {"attributes": 8}},
    {"header": {"attributes": 64}},
    {"header": {"base_sequence": 0}},
    {"header": {"producer_epoch": 0}},
    {"control": True},
    {"timestamp": 0},
    {"timestamp": 2**62},
)
CODECS = ("none", "none", "none", "gzip", "snappy", "lz4", "zstd")


def sequence(seed: int, world: str, length: int) -> list[Step]:
    """The steps of a sequence; the first one makes its world."""
    return _Sequence(seed, world).steps(length)


def last(world: str) -> Step:
    """Takes the world's topics away; the answer is not worth comparing."""
    names = [f"{world}-{topic}" for topic in (*MADE, *NEW, "fence")]
    return (ask("the end", "DeleteTopics", 5, topic_names=names, timeout_ms=10_000),)


def settled(world: str, what: str, number: int) -> Step:
    """Waits until the broker has all changes up to here, by a change that is seen.

    Kafka's broker publishes batches of metadata one after the other. The first change may be seen
    while the batch with the request's own change is being published; the second one lies in a later
    batch, so when it is seen, the one before is published whole. `number` is another each time.
    """
    fence = {"resource_type": 2, "resource_name": f"{world}-fence"}
    steps: list[Case] = []
    for turn in (1, 2):
        value = str(1_000_000 * turn + number)
        config = {"name": "retention.ms", "config_operation": 0, "value": value}
        steps += [
            ask(
                f"{what} fence {turn}",
                "IncrementalAlterConfigs",
                1,
                resources=[{**fence, "configs": [config]}],
            ),
            Case(
                f"{what} settles {turn}",
                "DescribeConfigs",
                4,
                {"resources": [{**fence, "configuration_keys": ["retention.ms"]}]},
                until={"results.0.configs.0.value": value},
            ),
        ]
    return tuple(steps)


def started_again(world: str) -> Step:
    """Waits until a broker that was started again leads the partitions and knows the groups."""
    group = Case(
        "the group is loaded",
        "DescribeGroups",
        5,
        {"groups": [f"{world}-g"]},
        until={"groups.0.error_code": 0},
    )
    producer = Case(
        "producer ids are there",
        "InitProducerId",
        2,
        {"transactional_id": None, "transaction_timeout_ms": 60_000},
        until={"error_code": 0},
    )
    looks = looks_at(world)
    return (*settled(world, "started again", 500_000), group, producer, *looks)


def looks_at(world: str) -> Step:
    """Shows what a world holds: records, offsets, producers, configs, groups."""
    topics = [f"{world}-{topic}" for topic in (*MADE, *NEW)]
    indexes = list(range(5))
    groups = [f"{world}-{group}" for group in "gh"]
    return (
        *(
            ask(f"all offsets of {group}", "OffsetFetch", 7, group_id=group, topics=None)
            for group in groups
        ),
        ask("both groups", "DescribeGroups", 5, groups=groups),
        ask(
            "all topics",
            "Metadata",
            12,
            topics=[{"topic_id": ZERO_ID, "name": topic} for topic in topics],
        ),
        ask(
            "all configs",
            "DescribeConfigs",
            4,
            resources=[
                {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
                for topic in topics
            ],
        ),
        *(
            ask(
                f"all offsets of time {time}",
                "ListOffsets",
                8,
                replica_id=-1,
                topics=[
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": index,
                                "current_leader_epoch": -1,
                                "timestamp": time,
                            }
                            for index in indexes
                        ],
                    }
                    for topic in topics
                ],
            )
            for time in (-1, -2)
        ),
        ask(
            "all producers",
            "DescribeProducers",
            0,
            topics=[{"name": topic, "partition_indexes": indexes} for topic in topics],
        ),
        *(
            fetch(f"all of {topic}-{index}", topic, 0, version=11, partition=index)
            for topic in topics
            for index in indexes
        ),
    )


class _Sequence:
    def __init__(self, seed: int, world: str) -> None:
        self._source = random.Random(seed)
        self._world = world
        self._draw = Draw(self._source, world)
        self._made = [f"{world}-{topic}" for topic in MADE]
        self._count = 0
        self._session_epoch = 0
        # Producer, topic, partition -> the sequence number that is due if all went well.
        self._due: dict[tuple[str, str, int], int] = {}

    def steps(self, length: int) -> list[Step]:
        drawn = [self._first()]
        for self._count in range(1, length + 1):
            api = self._source.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            self._draw.oddness = self._draw.one(ODDNESS)
            drawn.append(self._step(api))
        return drawn

    def _first(self) -> Step:
        configs = {
            "compact": {"cleanup.policy": "compact"},
            "stamped": {"message.timestamp.type": "LogAppendTime"},
        }
        topics = [
            {
                "name": f"{self._world}-{topic}",
                "num_partitions": 3 if topic == "three" else 2,
                "replication_factor": 1,
                "configs": [
                    {"name": key, "value": value} for key, value in configs.get(topic, {}).items()
                ],
            }
            for topic in (*MADE, "fence")
        ]
        made = ask("the world", "CreateTopics", 7, topics=topics, timeout_ms=10_000)
        # Until there is one, since Kafka has to ask its controller for the first.
        producers = [
            Case(
                f"producer {name}",
                "InitProducerId",
                2,
                {"transactional_id": None, "transaction_timeout_ms": 60_000},
                keep={name: "producer_id"},
                until={"error_code": 0},
            )
            for name in PRODUCERS
        ]
        coordinator = Case(
            "the coordinator",
            "FindCoordinator",
            4,
            {"key_type": 0, "coordinator_keys": [f"{self._world}-g"]},
            until={"coordinators.0.error_code": 0},
        )
        group = f"{self._world}-g"
        joined = join("g", group, version=3, session_timeout_ms=SESSION_MS)
        joined = replace(joined, keep={"member": "member_id"})
        synced = sync("g", group, MEMBER, 1, MEMBER, version=3)
        return (made, *self._settled("world"), *producers, coordinator, joined, synced)

    def _step(self, api: str) -> Step:
        schema = TABLE[f"{api}Request"]
        version = self._source.randint(schema.versions.first, schema.versions.last)
        name = f"{self._count:02} {api} v{version}"
        fields = self._draw.fields(schema.fields, version, api)
        case = Case(name, api, version, fields, without=OWN, patience_s=PATIENCE_S)
        if api in ALWAYS_ALL or (api in ALL_IF_NONE and not fields["topics"]):
            case = replace(case, only=f"{self._world}-")
        if api == "Produce":
            case = self._produce(case)
        if api == "Fetch":
            case = self._fetch(case)
        if api == "AlterConfigs":  # naming a resource twice is never answered by Kafka
            named = {each["resource_name"]: each for each in fields["resources"] or ()}
            fields["resources"] = list(named.values())
        if api == "DeleteTopics" and version >= 6:
            for topic in fields["topics"] or ():
                self._name_or_id(topic)
        if api == "Metadata" and version >= 12:
            for topic in fields["topics"] or ():
                self._name_or_id(topic)
        if api not in CHANGES:
            return (case,)
        if any(each.get("resource_type") in (4, 8) for each in fields.get("resources", ())):
            fields["validate_only"] = True  # the brokers are not this sequence's alone
        return (case, *self._settled(f"{self._count:02}"))

    def _name_or_id(self, topic: dict[str, Any]) -> None:
        if self._source.random() < 0.5:
            topic["topic_id"] = ZERO_ID
        elif self._source.random() >= self._draw.oddness:
            topic["name"] = None

    def _settled(self, what: str) -> Step:
        return settled(self._world, what, self._count)

    def _fetch(self, case: Case) -> Case:
        """Of a session: opened, gone on with, closed; or of none."""
        fields = dict(case.fields)
        keep = {}
        session: Any = Kept("session", otherwise=0)
        turn = self._source.random()
        named = [each.get("topic") or "" for each in fields["topics"] or ()]
        if turn < 0.4 or max(map(len, named), default=0) > TOPIC_LENGTH_MAX:
            pair: tuple[Any, Any] = (0, -1)
        elif turn < 0.6:
            pair, keep = (0, 0), {"session": "session_id"}
            self._session_epoch = 1
        elif turn < 0.9:
            pair = (session, self._session_epoch)
            self._session_epoch += 1
        elif turn < 0.95:
            pair = (session, -1)
        else:
            pair = self._source.choice([(session, 0), (session, 9), (0, 5), (77, 1), (77, -1)])
        fields["session_id"], fields["session_epoch"] = pair
        if pair[1] not in (0, -1) and self._source.random() < 0.5:
            fields["topics"] = []
        return replace(case, fields=fields, keep=keep)

    # --- records ----------------------------------------------------------------------------------

    def _produce(self, case: Case) -> Case:
        """Up to three partitions, each of them once: topics that are not there share an id."""
        wanted: dict[str, set[int]] = {}
        for _ in range(self._source.choice((1, 1, 1, 2, 3))):
            topic = self._draw.one(TOPICS)
            if case.version < 13 or wanted.keys() <= {topic} or topic in self._made:
                wanted.setdefault(topic, set()).add(self._draw.one(PARTITIONS))
        data = [
            {
                "name": topic,
                "topic_id": id_of(topic) if case.version >= 13 else ZERO_ID,
                "partition_data": [
                    {"index": partition, "records": self._records(topic, partition)}
                    for partition in sorted(partitions)
                ],
            }
            for topic, partitions in wanted.items()
        ]
        return replace(case, fields={**case.fields, "topic_data": data})

    def _records(self, topic: str, partition: int) -> list[Batch | bytes]:
        batches = [self._batch(topic, partition)]
        if self._source.random() < self._draw.oddness:
            batches.append(self._batch(topic, partition))
        if self._source.random() < self._draw.oddness / 3:
            return self._source.choice(([], [b"\0" * 5], [*batches, b"\0\0\0"]))
        return list(batches)

    def _batch(self, topic: str, partition: int) -> Batch:
        count = self._source.choice((1, 1, 2, 3))
        values = [self._source.choice((b"value", b"", None, b"v" * 200)) for _ in range(count)]
        keyless = "compact" in topic and self._source.random() < self._draw.oddness
        keys = [] if keyless else [self._source.choice((b"k", b"l", b"")) for _ in range(count)]
        batch = Batch(values, keys, self._source.choice(CODECS))
        if self._source.random() < 0.4:
            batch = replace(batch, producer=self._sequenced(topic, partition, count))
        if self._source.random() < self._draw.oddness:
            batch = replace(batch, **self._source.choice(DAMAGE))
        return batch

    def _sequenced(self, topic: str, partition: int, count: int) -> tuple[Any, int, int]:
        who = self._source.choice(PRODUCERS)
        due = self._due.get((who, topic, partition), 0)
        if self._source.random() < 2 * self._draw.oddness:
            other = self._source.choice((0, due - 1, due - 3, due + 1, due + 5, 2**31 - 1))
            epoch = self._source.choice((0, 0, 0, 1, -1, 32767))
            return Kept(who), epoch, max(other, -1)
        self._due[who, topic, partition] = due + count
        return Kept(who), 0, due
