"""What a case of the script is, and the words to write one with.

A case is one request and what is done with its answer. Its fields are written as the message's, in
nested dicts; a field that a version lacks is left out by the codec. `Kept("name")` stands for what
an earlier answer gave (a topic id, a member id), `Batch(...)` for records.
"""

import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from api.batches import crc32c
from kafkalite._native import BatchBuilder

# Timestamps of the script; what a broker stamps itself is later and is shown as `now`.
START_MS = int(time.time() * 1000)
T0 = START_MS - 3_600_000 + 120_000

ZERO_ID = bytes(16)
NO_SUCH_ID = bytes.fromhex("000000000000400080000000000000ff")


@dataclass(frozen=True)
class Kept:
    """What an earlier case kept under this name, `plus` a number; `otherwise` if it kept none."""

    name: str
    plus: int = 0
    otherwise: Any = ""


def id_of(topic: str) -> Kept:
    """The id of a topic that the script has made (a CreateTopics answer from version 7 on)."""
    return Kept(f"id of {topic}", otherwise=NO_SUCH_ID)


@dataclass(frozen=True)
class Case:
    """One request. Names of cases are unique: the list of differences names them."""

    name: str
    api: str
    version: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    on: str = "main"
    """The connection that it goes over."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Name -> path in the answer, as `coordinators.0.node_id`."""
    until: Mapping[str, Any] = field(default_factory=dict)
    """Path -> value: the request is sent again until the answer has it."""
    only: str = ""
    """Of elements with names, only those whose name starts so are compared, in every array."""
    behind: bytes = b""
    """Bytes that follow the message in the frame."""
    body: bytes | None = None
    """The body as bytes, where it is no message."""
    without: tuple[str, ...] = ()
    """Fields of the answer that no two brokers share: sizes of disks, times of starts."""
    patience_s: float = 20.0
    """How long an answer may take; after that there is none."""
    part: str = "both"
    """`send` and `receive` are the halves of a request that waits for another connection."""


def ask(name: str, api: str, version: int, **fields: Any) -> Case:
    """A request and its answer."""
    return Case(name, api, version, fields)


def versions(name: str, api: str, each: Iterable[int], **fields: Any) -> list[Case]:
    """The same request in several versions; `{v}` in a text is the version."""
    return [Case(f"{name} v{v}", api, v, _with_version(fields, v)) for v in each]


def _with_version(value: Any, version: int) -> Any:
    if isinstance(value, str):
        return value.replace("{v}", str(version))
    if isinstance(value, Mapping):
        return {name: _with_version(each, version) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_version(each, version) for each in value]
    if isinstance(value, Kept):
        return replace(value, name=value.name.replace("{v}", str(version)))
    return value


def started(case: Case) -> Case:
    """Only the request; `finished` takes the answer later."""
    return replace(case, part="send")


def finished(case: Case, **changes: Any) -> Case:
    """The answer to a request that was only started."""
    return replace(case, part="receive", **changes)


HEADER = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}


@dataclass(frozen=True)
class Batch:
    """A batch of magic 2: one record a value, a millisecond apart from `timestamp` on."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] = ()
    codec: str = "none"
    timestamp: int = T0
    step_ms: int = 1
    producer: tuple[Any, int, int] | None = None
    """Producer id, epoch, sequence."""
    transactional: bool = False
    control: bool = False
    header: Mapping[str, int] = field(default_factory=dict)
    """Fields of the header that are put over what the builder wrote; the CRC is made anew."""
    crc_is_wrong: bool = False
    cut: int = 0
    """Bytes that are missing at the end."""

    def encode(self, resolve: Any) -> bytes:
        """The bytes, once the producer id is known."""
        ids = {}
        if self.producer is not None:
            producer_id, producer_epoch, base_sequence = self.producer
            ids = {
                "producer_id": resolve(producer_id),
                "producer_epoch": producer_epoch,
                "base_sequence": base_sequence,
            }
        builder = BatchBuilder(
            self.codec, transactional=self.transactional, control=self.control, **ids
        )
        for index, value in enumerate(self.values):
            key = self.keys[index] if index < len(self.keys) else None
            builder.append(self.timestamp + index * self.step_ms, key, value, [])
        made = bytearray(builder.finish())
        for name, number in self.header.items():
            at, form = HEADER[name]
            struct.pack_into(form, made, at, number)
        crc = crc32c(bytes(made[21:])) if self.header else struct.unpack_from(">I", made, 17)[0]
        struct.pack_into(">I", made, 17, crc ^ self.crc_is_wrong)
        return bytes(made[: len(made) - self.cut])


def produce(name: str, topic: str, *batches: Any, version: int = 9, **options: Any) -> Case:
    """Produce to one partition; options are fields of the request or its partition."""
    data = {"index": options.get("partition", 0), "records": list(batches)}
    return ask(
        name,
        "Produce",
        version,
        acks=options.get("acks", -1),
        timeout_ms=options.get("timeout_ms", 10_000),
        transactional_id=options.get("transactional_id"),
        topic_data=[
            {
                "name": topic,
                "topic_id": options.get("topic_id", id_of(topic)) if version >= 13 else ZERO_ID,
                "partition_data": [data],
            }
        ],
    )


def fetch(name: str, topic: str, offset: int, *, version: int = 12, **options: Any) -> Case:
    """Fetch of one partition; options are fields of the request or of the partition."""
    partition = {
        "partition": options.pop("partition", 0),
        "fetch_offset": offset,
        "partition_max_bytes": options.pop("partition_max_bytes", 1 << 20),
        "current_leader_epoch": options.pop("current_leader_epoch", -1),
        "last_fetched_epoch": options.pop("last_fetched_epoch", -1),
        "log_start_offset": options.pop("log_start_offset", -1),
    }
    topic_id = options.pop("topic_id", id_of(topic)) if version >= 13 else ZERO_ID
    whole = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "topic_id": topic_id, "partitions": [partition]}],
    }
    return Case(name, "Fetch", version, {**whole, **options})


def list_offsets(
    name: str, topic: str, timestamp: int, *, version: int = 11, **options: Any
) -> Case:
    """ListOffsets of one partition."""
    partition = {
        "partition_index": options.pop("partition", 0),
        "timestamp": timestamp,
        "current_leader_epoch": options.pop("current_leader_epoch", -1),
    }
    whole = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [partition]}],
        "timeout_ms": 5_000,
    }
    return Case(name, "ListOffsets", version, {**whole, **options})


def describe_partitions(
    name: str, topics: Sequence[str], limit: int, cursor: tuple[str, int] | None
) -> Case:
    """DescribeTopicPartitions; `cursor` is a topic and a partition."""
    return ask(
        name,
        "DescribeTopicPartitions",
        0,
        topics=[{"name": topic} for topic in topics],
        response_partition_limit=limit,
        cursor=cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
    )


def create(name: str, topic: str, *, version: int = 7, **options: Any) -> Case:
    """CreateTopics of one topic. Options: partitions, replicas, assignments, configs, validate."""
    return ask(
        name,
        "CreateTopics",
        version,
        topics=[
            {
                "name": topic,
                "num_partitions": options.get("partitions", 1),
                "replication_factor": options.get("replicas", 1),
                "assignments": [
                    {"partition_index": index, "broker_ids": brokers}
                    for index, brokers in options.get("assignments", {}).items()
                ],
                "configs": [
                    {"name": key, "value": value}
                    for key, value in options.get("configs", {}).items()
                ],
            }
        ],
        timeout_ms=10_000,
        validate_only=options.get("validate", False),
    )


def appears(topic: str, partitions: int = 1) -> Case:
    """Waits until the broker leads the partitions of a topic that was just made: Kafka's tells of
    them in Metadata a moment before."""
    asked = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
    return Case(
        f"{topic} appears",
        "ListOffsets",
        7,
        {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]},
        until={f"topics.0.partitions.{index}.error_code": 0 for index in range(partitions)},
    )
