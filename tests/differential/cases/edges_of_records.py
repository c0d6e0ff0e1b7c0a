"""Edges of records: numbers that mean nothing, and what comes twice or not at all.

Most of it no client asks in earnest. Each case stands for a question that was answered otherwise
once, or whose answer cannot be read off a neighbour's.
"""

from collections.abc import Sequence
from dataclasses import replace

from differential.script import (
    START_MS,
    T0,
    ZERO_ID,
    Batch,
    Case,
    Kept,
    appears,
    ask,
    create,
    fetch,
    id_of,
    list_offsets,
    produce,
)

ONE = Batch([b"one"])
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
UNKNOWN = "e-unknown"

OWN_CODEC = {"gzip": "gzip", "uncompressed": "plain", "zstd": "zstd"}
TIMES = {
    "before": {"message.timestamp.before.max.ms": "1000"},
    "after": {"message.timestamp.after.max.ms": "1000"},
}
HEADERS: dict[str, dict[str, int]] = {
    "a last delta of -1": {"last_offset_delta": -1},
    "no records and a last delta of -1": {"last_offset_delta": -1, "count": 0},
    "a largest time of -1": {"max_timestamp": -1},
    "a negative first time": {"base_timestamp": -5, "max_timestamp": -5},
    "a producer without an epoch": {"producer_id": 905},
    "a producer without a sequence": {"producer_id": 905, "producer_epoch": 0},
    "an epoch without a producer": {"producer_epoch": 3},
    "a sequence without a producer": {"base_sequence": 3},
    "a producer of -2": {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
    "the last epoch": {"producer_id": 907, "producer_epoch": 32767, "base_sequence": 0},
    "a delete horizon": {"attributes": 0x40},
    "a magic of -1": {"magic": -1},
    "a length of zero": {"length": 0},
    "a length of 49": {"length": 49},
    "a base offset of -1": {"base_offset": -1},
    "a leader epoch of -7": {"leader_epoch": -7},
    "the largest count": {"count": 2**31 - 1},
}


def topics_of(name: str, *topics: tuple[str, Sequence[int]]) -> Case:
    """Produce to partitions of topics."""
    data = [
        {"name": topic, "partition_data": [{"index": each, "records": [ONE]} for each in indexes]}
        for topic, indexes in topics
    ]
    return ask(f"produce {name}", "Produce", 9, acks=-1, timeout_ms=5000, topic_data=data)


def numbered(name: str, producer: tuple[int, int, int], *values: bytes, version: int = 9) -> Case:
    batch = Batch(values or [b"v"], producer=producer)
    return produce(f"produce in turn: {name}", "e-turn", batch, version=version)


PRODUCING = [
    create("create a topic for edges", "e-plain", partitions=3),
    create("create a topic for turns", "e-turn"),
    create("create a topic of large batches", "e-large", configs={"max.message.bytes": "3000000"}),
    create("create a topic of no batches", "e-none", configs={"max.message.bytes": "0"}),
    create("create a topic that wants two replicas", "e-two", configs={"min.insync.replicas": "2"}),
    create("create both policies", "e-both", configs={"cleanup.policy": "compact,delete"}),
    *[
        create(f"create a topic in {codec}", f"e-{codec}", configs={"compression.type": codec})
        for codec in OWN_CODEC
    ],
    *[create(f"create a topic bound {name}", f"e-{name}", configs=c) for name, c in TIMES.items()],
    appears("e-after"),
    *[
        produce(f"produce {codec} to a topic in {own}", f"e-{own}", Batch([b"a" * 50], codec=codec))
        for own in OWN_CODEC
        for codec in CODECS
    ],
    *[
        produce(
            f"produce a wrong largest time to a topic in {own}",
            f"e-{own}",
            Batch([b"a", b"b"], codec="gzip", header={"max_timestamp": T0 + 77}),
        )
        for own in OWN_CODEC
    ],
    *[
        fetch(f"fetch v{version} what is kept in {own}", f"e-{own}", 0, version=version)
        for own in OWN_CODEC
        for version in (4, 9, 12)
    ],
    *[
        replace(
            produce(f"produce {when} to a topic bound {name}", f"e-{name}", batch),
            without=("batch_index_error_message",),
        )
        for name in TIMES
        for when, batch in [
            ("an old time", Batch([b"a", b"b"], timestamp=START_MS - 900_000)),
            ("a time to come", Batch([b"a", b"b"], timestamp=START_MS + 900_000)),
            ("no time", Batch([b"a"], timestamp=-1)),
            ("old times in gzip", Batch([b"a", b"b"], codec="gzip", timestamp=0)),
        ]
    ],
    *[
        produce(f"produce {name}", "e-plain", replace(ONE, header=header))
        for name, header in HEADERS.items()
    ],
    *[
        produce(
            f"produce in gzip {name}",
            "e-plain",
            replace(ONE, codec="gzip", header=header),
            partition=1,
        )
        for name, header in HEADERS.items()
        if "attributes" not in header
    ],
    # What is no batch refuses the partitions beside it.
    *[
        ask(
            f"produce {name} beside a batch v{version}",
            "Produce",
            version,
            acks=1,
            timeout_ms=5000,
            topic_data=[
                {"name": "e-plain", "partition_data": [{"index": 2, "records": [ONE]}]},
                {"name": UNKNOWN, "partition_data": [{"index": 0, "records": records}]},
            ],
        )
        for name, records in [
            ("a length of 13", [replace(ONE, header={"length": 13})]),
            ("a magic of 3", [replace(ONE, header={"magic": 3})]),
            ("a cut batch", [replace(ONE, cut=1)]),
            ("two batches", [ONE, ONE]),
        ]
        for version in (3, 9)
    ],
    produce("produce two batches with acks 2", "e-plain", ONE, ONE, acks=2),
    produce("produce a batch and no batch", "e-plain", ONE, replace(ONE, header={"magic": 3})),
    fetch("fetch odd headers", "e-plain", 0),
    fetch("fetch odd headers in gzip", "e-plain", 0, partition=1),
    produce("produce more than a segment takes", "e-large", Batch([b"x" * 2_000_000])),
    produce("produce to a topic of no batches", "e-none", ONE),
    produce("produce to a topic that wants two replicas", "e-two", ONE),
    produce("produce no key under both policies", "e-both", ONE),
    produce("produce with acks 127", "e-plain", ONE, acks=127),
    produce("produce with acks 127 to an unknown topic", UNKNOWN, ONE, acks=127),
    produce("produce with a negative timeout", "e-plain", ONE, timeout_ms=-1),
    topics_of("to a topic twice", ("e-plain", [0]), ("e-plain", [1])),
    topics_of("to no partition", ("e-plain", [])),
    topics_of("to a partition of a topic named twice", ("e-two", [0]), ("e-two", [0])),
    numbered("the first", (900, 0, 0)),
    numbered("first in mid-sequence", (901, 0, 7)),
    numbered("first in epoch 5", (902, 5, 0)),
    numbered("first in epoch 5 and mid-sequence", (903, 5, 3)),
    numbered("a lower epoch", (902, 4, 0)),
    numbered("a higher epoch", (902, 6, 0)),
    numbered("a duplicate of the epoch before", (902, 5, 0)),
    numbered("three", (904, 0, 0), b"a", b"b", b"c"),
    numbered("three again", (904, 0, 0), b"a", b"b", b"c"),
    numbered("two of them and one more", (904, 0, 1), b"b", b"c", b"d"),
    numbered("one of them", (904, 0, 0)),
    numbered("a gap v3", (904, 0, 50), version=3),
    numbered("a gap v13", (904, 0, 50), version=13),
]


At = tuple[int, int]
"""Partition and offset, time or the like."""


def fetched(name: str, *topics: tuple[str, Sequence[At]], version: int = 12, **of: object) -> Case:
    """Fetch of partitions of topics."""
    asked = [
        {
            "topic": topic,
            "topic_id": id_of(topic) if version >= 13 and topic else ZERO_ID,
            "partitions": [
                {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                for index, offset in partitions
            ],
        }
        for topic, partitions in topics
    ]
    whole = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    session = {"session_id": 0, "session_epoch": -1}
    return Case(f"fetch {name}", "Fetch", version, {**whole, **session, "topics": asked, **of})


def in_session(name: str, epoch: int, *topics: tuple[str, Sequence[At]], **of: object) -> Case:
    session = {"session_id": Kept("session of edges", otherwise=0), "session_epoch": epoch}
    return fetched(f"in a session: {name}", *topics, **{**session, **of})


def times(name: str, *topics: tuple[str, Sequence[At]], version: int = 11) -> Case:
    asked = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": index, "timestamp": time, "current_leader_epoch": -1}
                for index, time in partitions
            ],
        }
        for topic, partitions in topics
    ]
    return ask(f"times of {name}", "ListOffsets", version, replica_id=-1, topics=asked)


def ends(name: str, *topics: tuple[str, Sequence[tuple[int, int, int]]]) -> Case:
    """OffsetForLeaderEpoch: partition, the leader's epoch, the epoch that is asked for."""
    asked = [
        {
            "topic": topic,
            "partitions": [
                {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
                for index, current, epoch in partitions
            ],
        }
        for topic, partitions in topics
    ]
    return ask(f"ends of epochs: {name}", "OffsetForLeaderEpoch", 4, replica_id=-1, topics=asked)


def cut(name: str, *topics: tuple[str, Sequence[At]]) -> Case:
    asked = [
        {
            "name": topic,
            "partitions": [{"partition_index": index, "offset": to} for index, to in partitions],
        }
        for topic, partitions in topics
    ]
    return ask(f"cut {name}", "DeleteRecords", 2, topics=asked, timeout_ms=5000)


READING = [
    create("create a topic of times", "e-times"),
    create("create a topic without times", "e-timeless"),
    create("create a topic to cut", "e-cut"),
    create("create an empty topic", "e-empty"),
    create("create a topic that goes", "e-goes"),
    appears("e-goes"),
    produce("fill equal times", "e-times", Batch([b"a", b"b", b"c"], timestamp=T0 + 50, step_ms=0)),
    produce("fill falling times", "e-times", Batch([b"a", b"b"], timestamp=T0 + 100, step_ms=-10)),
    produce(
        "fill falling times in gzip",
        "e-times",
        Batch([b"a", b"b", b"c"], codec="gzip", timestamp=T0 + 100, step_ms=-10),
    ),
    produce("fill an older time", "e-times", Batch([b"o"], timestamp=T0 - 1000)),
    produce("fill no time", "e-times", Batch([b"o"], timestamp=-1)),
    *[
        list_offsets(f"a time of {T0 - time if time > 1 else time}", "e-times", time)
        for time in (-3, T0 + 100, T0 + 95, T0 + 90, T0 + 51, T0 - 1000, T0 - 999, T0 + 101, 1)
    ],
    produce("fill times of -1", "e-timeless", Batch([b"a", b"b"], timestamp=-1, step_ms=0)),
    list_offsets("largest time where there is none", "e-timeless", -3),
    list_offsets("a time where there is none", "e-timeless", 0),
    *[
        list_offsets(f"time {time} v{version}", "e-times", time, version=version)
        for time in (-(2**63), -8, -6, -5, -4, -3, 2**63 - 1)
        for version in (1, 7, 9, 10, 11)
    ],
    list_offsets("latest with an isolation of 2", "e-times", -1, isolation_level=2),
    list_offsets("latest with an epoch of -5", "e-times", -1, current_leader_epoch=-5),
    list_offsets("latest with a timeout of -1", "e-times", -1, timeout_ms=-1),
    list_offsets("latest of the empty name", "", -1),
    times("nothing"),
    times("no partition", ("e-times", [])),
    times("a topic twice", ("e-plain", [(0, -1)]), ("e-times", [(0, -1)]), ("e-plain", [(1, -2)])),
    times("a partition twice", ("e-plain", [(0, -1), (0, -2), (1, -1)])),
    times("a partition of a topic twice", ("e-plain", [(0, -1)]), ("e-plain", [(0, -2)])),
    times("an unknown partition twice", (UNKNOWN, [(0, -1), (0, -2)]), version=1),
    ends("nothing"),
    ends("no partition", ("e-times", [])),
    ends("epochs of -2 and below", ("e-plain", [(0, -1, -2), (1, -1, -(2**31)), (2, -2, 0)])),
    ends("a partition twice", ("e-plain", [(0, -1, 0), (0, -1, 0)]), ("e-plain", [(1, -1, 0)])),
    ends("an empty partition", ("e-empty", [(0, -1, 0), (-1, -1, 0)]), ("d/x", [(0, -1, 0)])),
    *[
        produce(f"fill what is cut {n}", "e-cut", Batch([b"%d" % n] * 3, timestamp=T0 + n * 1000))
        for n in range(4)
    ],
    produce("fill what is cut in gzip", "e-cut", Batch([b"g"] * 4, codec="gzip", timestamp=T0)),
    cut("within a batch", ("e-cut", [(0, 4)])),
    *[list_offsets(f"a cut topic at {n}", "e-cut", n) for n in (-2, -3, -4, 0, T0, T0 + 1001)],
    *[
        fetch(f"fetch a cut topic at {offset} after epoch {epoch}", "e-cut", offset, **of)
        for offset, epoch in [(3, 0), (4, 0), (16, 0), (17, 0), (30, 0), (3, 5), (5, -2), (-5, 0)]
        for of in [{"last_fetched_epoch": epoch}]
    ],
    cut("within a batch in gzip", ("e-cut", [(0, 14)])),
    fetch("fetch from within a cut batch", "e-cut", 14),
    cut("a partition twice", ("e-cut", [(0, 15), (0, 14)])),
    cut("a topic twice", ("e-cut", [(0, 15)]), ("e-cut", [(1, 1)]), (UNKNOWN, [(0, 1)])),
    cut("no partition", ("e-cut", []), (UNKNOWN, [])),
    cut("all of it", ("e-cut", [(0, 16)])),
    list_offsets("largest time where all is cut", "e-cut", -3),
    list_offsets("a time where all is cut", "e-cut", T0),
    cut("odd partitions", ("e-cut", [(-1, 0)]), ("", [(0, 0)]), ("d/x", [(0, 0)])),
    cut("odd offsets", ("e-cut", [(0, -(2**63))]), ("e-empty", [(0, -1)])),
    fetch("fetch with an epoch of -2", "e-plain", 0, current_leader_epoch=-2),
    fetch("fetch with an epoch of -3 v16", "e-plain", 0, current_leader_epoch=-3, version=16),
    fetch("fetch with a wait of -1", "e-empty", 0, max_wait_ms=-1),
    fetch("fetch with a minimum of -1", "e-empty", 0, min_bytes=-1, max_wait_ms=5000),
    fetch("fetch with a size of -1", "e-plain", 0, max_bytes=-1),
    fetch("fetch with a partition's size of -1", "e-plain", 0, partition_max_bytes=-1),
    fetch("fetch at the largest offset", "e-plain", 2**63 - 1),
    fetch("fetch beyond the end with an epoch to come", "e-plain", 99, current_leader_epoch=9),
    fetch("fetch as this broker", "e-plain", 0, replica_id=1),
    fetched("a partition twice", ("e-times", [(0, 0), (0, 6)])),
    fetched("a topic twice", ("e-plain", [(0, 0)]), ("e-plain", [(2, 0)])),
    fetched("no partition", ("e-plain", [])),
    fetched("an unknown id", ("e-plain", [(0, 0), (9, 0)]), (UNKNOWN, [(0, 0)]), version=13),
    fetched("the zero id", ("e-plain", [(9, 0)]), ("", [(0, 0)]), version=13),
    fetched(
        "in the order of the request",
        ("e-plain", [(2, 0), (9, 0), (0, 0), (1, 0)]),
        (UNKNOWN, [(0, 0)]),
        ("e-times", [(0, 0)]),
        max_bytes=300,
    ),
    fetched("a refused partition and wait", ("e-empty", [(9, 0), (0, 0)]), max_wait_ms=50),
    fetched("what is out of range and wait", ("e-empty", [(0, 9)]), max_wait_ms=5000),
    replace(
        in_session("opened", 0, ("e-empty", [(0, 0)]), (UNKNOWN, [(0, 0)]), session_id=0),
        keep={"session of edges": "session_id"},
    ),
    in_session("nothing new but what is refused", 1),
    in_session("the epoch before", 1),
    in_session(
        "added and forgotten at once",
        2,
        ("e-cut", [(0, 16)]),
        forgotten_topics_data=[
            {"topic": "e-cut", "partitions": [0]},
            {"topic": "e-plain", "partitions": [0, 7]},
        ],
    ),
    in_session("an epoch of -2", -2),
    in_session("added to be cut", 3, ("e-turn", [(0, 6)])),
    cut("what is in a session", ("e-turn", [(0, 1)])),
    in_session("after a cut", 4),
    in_session(
        "all forgotten",
        5,
        forgotten_topics_data=[
            {"topic": "e-empty", "partitions": [0]},
            {"topic": "e-turn", "partitions": [0]},
            {"topic": UNKNOWN, "partitions": [0]},
        ],
    ),
    in_session("after all was forgotten", 6),
    fetched("without a session that is not there", ("e-plain", [(2, 0)]), session_id=999),
    fetched("with an epoch of -7", ("e-plain", [(2, 0)]), session_epoch=-7),
    replace(
        fetched("by id, in a session", ("e-goes", [(0, 0)]), version=13, session_epoch=0),
        keep={"session of edges": "session_id"},
    ),
    ask("delete what is in a session", "DeleteTopics", 5, topic_names=["e-goes"], timeout_ms=5000),
    Case(
        "e-goes has gone",
        "Metadata",
        9,
        {"topics": [{"name": "e-goes"}], "allow_auto_topic_creation": False},
        until={"topics.0.error_code": 3},
    ),
    in_session("of a deleted topic", 1, version=13),
    create("create anew what is in a session", "e-goes"),
    replace(appears("e-goes"), name="e-goes appears again"),
    in_session("of a topic made anew", 2, version=13),
]
