"""Records: produced, fetched, found by time, deleted."""

from dataclasses import replace

from differential.script import (
    NO_SUCH_ID,
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
    list_offsets,
    produce,
    versions,
)

ONE = Batch([b"one"])
# A message of magic 0, as producers before Kafka 0.10 made it.
OLD_MESSAGE = bytes.fromhex("0000000000000000000000111d6f3c4b0000ffffffff0000000376616c")


def many(*parts: tuple[str, list[tuple[int, object]]], acks: int = -1) -> dict[str, object]:
    """Fields of a Produce request with several topics and partitions."""
    return {
        "acks": acks,
        "timeout_ms": 5000,
        "topic_data": [
            {
                "name": topic,
                "partition_data": [
                    {"index": index, "records": [batch] if batch is not None else None}
                    for index, batch in partitions
                ],
            }
            for topic, partitions in parts
        ],
    }


def in_session(
    name: str, epoch: int, *, offset: int = 0, kept: str = "session", **options: object
) -> Case:
    """A Fetch that goes on with the session whose id was kept (KIP-227)."""
    session_id = Kept(kept, otherwise=0)
    return fetch(
        f"session: {name}", "d-read", offset, session_id=session_id, session_epoch=epoch, **options
    )


PRODUCING = [
    *[
        produce(f"produce v{v}", "d-plain", Batch([b"value %d" % v], keys=[b"key"]), version=v)
        for v in range(3, 14)
    ],
    *[
        produce(f"produce {codec}", "d-plain", Batch([b"a" * 100, None, b"c"], [b"k"], codec))
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ],
    produce("produce zstd v6", "d-plain", Batch([b"z"], codec="zstd"), version=6),
    produce("produce zstd v7", "d-plain", Batch([b"z"], codec="zstd"), version=7),
    produce("produce with acks 0", "d-plain", ONE, acks=0),
    produce("produce with acks 1", "d-plain", ONE, acks=1),
    produce("produce with acks 2", "d-plain", ONE, acks=2),
    produce("produce with acks -2", "d-plain", ONE, acks=-2, version=3),
    produce("produce to an unknown topic", "d-unknown", ONE),
    produce("produce to an unknown topic v3", "d-unknown", ONE, version=3),
    produce("produce to an illegal name", "d/x", ONE),
    produce("produce to an unknown partition", "d-plain", ONE, partition=9),
    produce("produce to a negative partition", "d-plain", ONE, partition=-1),
    produce("produce to an unknown id", "d-plain", ONE, version=13, topic_id=NO_SUCH_ID),
    produce("produce to the zero id", "d-plain", ONE, version=13, topic_id=ZERO_ID),
    replace(
        ask("produce null records", "Produce", 9, **many(("d-plain", [(0, None)]))), patience_s=1.0
    ),
    produce("produce no batch", "d-plain"),
    produce("produce two batches", "d-plain", ONE, Batch([b"two"])),
    produce("produce a wrong crc", "d-plain", replace(ONE, crc_is_wrong=True)),
    produce("produce a wrong crc v7", "d-plain", replace(ONE, crc_is_wrong=True), version=7),
    produce("produce half a batch", "d-plain", replace(ONE, cut=10)),
    produce("produce a header alone", "d-plain", replace(ONE, cut=11)),
    produce("produce five bytes", "d-plain", b"\0\0\0\0\0"),
    produce("produce bytes behind a batch", "d-plain", ONE, b"\0\0\0"),
    produce("produce magic 3", "d-plain", replace(ONE, header={"magic": 3})),
    produce("produce magic 1", "d-plain", replace(ONE, header={"magic": 1})),
    produce("produce magic 0", "d-plain", OLD_MESSAGE),
    produce("produce a negative length", "d-plain", replace(ONE, header={"length": -1})),
    produce("produce a short length", "d-plain", replace(ONE, header={"length": 20})),
    produce("produce a base offset", "d-plain", replace(ONE, header={"base_offset": 77})),
    produce("produce a leader epoch", "d-plain", replace(ONE, header={"leader_epoch": 77})),
    produce("produce a count too high", "d-plain", replace(ONE, header={"count": 2})),
    produce("produce a count too low", "d-plain", Batch([b"a", b"b"], header={"count": 1})),
    produce("produce a count of zero", "d-plain", replace(ONE, header={"count": 0})),
    produce("produce a negative count", "d-plain", replace(ONE, header={"count": -1})),
    produce("produce a wrong last delta", "d-plain", replace(ONE, header={"last_offset_delta": 5})),
    produce(
        "produce a wrong largest time", "d-plain", replace(ONE, header={"max_timestamp": T0 + 9})
    ),
    produce(
        "produce a control batch", "d-plain", Batch([b"\0\0\0\0\0\0"], [b"\0\0\0\1"], control=True)
    ),
    produce("produce a time of -1", "d-plain", replace(ONE, timestamp=-1)),
    produce("produce a time of -2", "d-plain", replace(ONE, timestamp=-2)),
    produce("produce a time of zero", "d-plain", replace(ONE, timestamp=0)),
    produce(
        "produce a time two hours ahead", "d-plain", replace(ONE, timestamp=START_MS + 7_200_000)
    ),
    produce(
        "produce a time two hours ahead v7",
        "d-plain",
        replace(ONE, timestamp=START_MS + 7_200_000),
        version=7,
    ),
    produce("produce append time", "d-append-time", Batch([b"a", b"b"])),
    produce("produce append time in lz4", "d-append-time", Batch([b"a", b"b"], codec="lz4")),
    produce("produce the append time bit", "d-plain", replace(ONE, header={"attributes": 8})),
    produce("produce unused attributes", "d-plain", replace(ONE, header={"attributes": 0x0100})),
    produce("produce a batch that fits", "d-small", Batch([b"x" * 200])),
    produce("produce a batch too large", "d-small", Batch([b"x" * 400])),
    produce(
        "produce a batch too large that inflates", "d-small", Batch([b"x" * 4000], codec="gzip")
    ),
    produce("produce a batch beyond the broker's bound", "d-plain", Batch([b"x" * 1_048_600])),
    produce("produce no key to a compacted topic", "d-compact", ONE),
    produce("produce no key to a compacted topic v7", "d-compact", ONE, version=7),
    produce("produce one key of two", "d-compact", Batch([b"a", b"b", b"c"], [b"k", None, b"k"])),
    produce("produce keys to a compacted topic", "d-compact", Batch([b"a", None], [b"k", b"k"])),
    produce("produce an unknown codec", "d-plain", replace(ONE, header={"attributes": 5})),
    produce("produce no gzip as gzip", "d-plain", replace(ONE, header={"attributes": 1})),
    ask(
        "produce to good and bad partitions",
        "Produce",
        9,
        **many(("d-plain", [(0, ONE), (9, ONE), (1, ONE)]), ("d-unknown", [(0, ONE)])),
    ),
    ask("produce to one partition twice", "Produce", 9, **many(("d-plain", [(2, ONE), (2, ONE)]))),
    ask("produce nothing", "Produce", 9, **many()),
    produce("produce to an internal topic", "__consumer_offsets", Batch([b"x"], [b"k"])),
    produce("produce to the metadata topic", "__cluster_metadata", Batch([b"x"], [b"k"])),
    produce("produce with a timeout of zero", "d-plain", ONE, timeout_ms=0),
    produce("produce with a transactional id", "d-good", ONE, transactional_id="d-tx"),
    produce(
        "produce a transactional batch without an id", "d-plain", replace(ONE, transactional=True)
    ),
]


def pid(epoch: int, sequence: int) -> tuple[Kept, int, int]:
    return Kept("producer", otherwise=0), epoch, sequence


def sent(name: str, epoch: int, sequence: int, count: int = 1, version: int = 9) -> Case:
    batch = Batch([b"v"] * count, producer=pid(epoch, sequence))
    return produce(f"idempotent: {name}", "d-idempotent", batch, version=version)


IDEMPOTENT = [
    create("create a topic for sequences", "d-idempotent"),
    appears("d-idempotent"),
    Case(
        "the producer id of the sequences",
        "InitProducerId",
        4,
        {"transactional_id": None, "transaction_timeout_ms": 60000},
        keep={"producer": "producer_id"},
        until={"error_code": 0},
    ),
    *[
        Case(
            f"a producer id v{v}",
            "InitProducerId",
            v,
            {"transactional_id": None, "transaction_timeout_ms": 60000},
        )
        for v in range(6)
    ],
    ask(
        "a producer id with a negative timeout",
        "InitProducerId",
        4,
        transactional_id=None,
        transaction_timeout_ms=-1,
    ),
    ask(
        "a producer id for one that is known",
        "InitProducerId",
        4,
        transactional_id=None,
        transaction_timeout_ms=1,
        producer_id=5,
        producer_epoch=3,
    ),
    ask(
        "a producer id for half of one",
        "InitProducerId",
        4,
        transactional_id=None,
        transaction_timeout_ms=1,
        producer_id=5,
        producer_epoch=-1,
    ),
    sent("the first", 0, 0),
    sent("the first again", 0, 0),
    sent("the second, of three records", 0, 1, 3),
    sent("the second again", 0, 1, 3),
    sent("a gap", 0, 9),
    sent("a gap v7", 0, 9, version=7),
    sent("half of a duplicate", 0, 2, 2),
    *[sent(f"number {n}", 0, n) for n in range(4, 9)],
    sent("a duplicate out of the window", 0, 0),
    sent("an epoch too low before there is a higher", -1, 9),
    sent("a new epoch that does not begin at zero", 1, 5),
    sent("a new epoch", 1, 0),
    sent("the old epoch", 0, 9),
    produce(
        "idempotent: an unknown producer in mid-sequence",
        "d-idempotent",
        Batch([b"v"], producer=(987_654, 0, 5)),
    ),
    produce(
        "idempotent: the sequence wraps",
        "d-plain",
        Batch([b"a", b"b", b"c"], producer=(Kept("producer", otherwise=0), 0, 2**31 - 2)),
    ),
    produce(
        "idempotent: on after the wrap",
        "d-plain",
        Batch([b"d"], producer=(Kept("producer", otherwise=0), 0, 1)),
    ),
    produce(
        "idempotent: a negative sequence",
        "d-idempotent",
        Batch([b"v"], producer=(Kept("producer", otherwise=0), 1, -1)),
    ),
    produce(
        "idempotent: two batches in one request",
        "d-idempotent",
        Batch([b"v"], producer=(Kept("producer", otherwise=0), 1, 1)),
        Batch([b"v"], producer=(Kept("producer", otherwise=0), 1, 2)),
    ),
    *[
        ask(
            f"producers of {name}",
            "DescribeProducers",
            0,
            topics=[{"name": topic, "partition_indexes": partitions}],
        )
        for name, topic, partitions in [
            ("a partition", "d-idempotent", [0]),
            ("a partition without any", "d-compact", [0]),
            ("unknown partitions", "d-idempotent", [7, -1]),
            ("an unknown topic", "d-unknown", [0]),
            ("an illegal name", "d/x", [0]),
        ]
    ],
]

# d-read: offsets 0-2, 3-5 and 6-8, a second between records, in three batches.
READ = [
    Batch([b"%d" % n for n in (at, at + 1, at + 2)], timestamp=T0 + at * 1000, step_ms=1000)
    for at in (0, 3, 6)
]

FETCHING = [
    create("create a topic to read", "d-read", partitions=2),
    appears("d-read", partitions=2),
    *[produce(f"fill batch {n}", "d-read", batch) for n, batch in enumerate(READ)],
    produce("fill zstd", "d-read", Batch([b"z"], codec="zstd"), partition=1),
    *[fetch(f"fetch v{v}", "d-read", 0, version=v) for v in range(4, 19)],
    *[fetch(f"fetch zstd v{v}", "d-read", 0, partition=1, version=v) for v in (9, 10)],
    fetch("fetch within a batch", "d-read", 4),
    fetch("fetch at the end", "d-read", 9),
    fetch("fetch beyond the end", "d-read", 10),
    fetch("fetch beyond the end v5", "d-read", 10, version=5),
    fetch("fetch a negative offset", "d-read", -1),
    fetch("fetch one byte of a partition", "d-read", 0, partition_max_bytes=1),
    fetch("fetch one byte in all", "d-read", 0, max_bytes=1),
    fetch("fetch zero bytes in all", "d-read", 0, max_bytes=0),
    fetch("fetch zero bytes of a partition", "d-read", 0, partition_max_bytes=0),
    fetch("fetch 150 bytes", "d-read", 0, partition_max_bytes=150),
    fetch("fetch from an unknown topic", "d-unknown", 0),
    fetch("fetch from an unknown topic v4", "d-unknown", 0, version=4),
    fetch("fetch from an illegal name", "d/x", 0),
    fetch("fetch from an unknown partition", "d-read", 0, partition=9),
    fetch("fetch from a negative partition", "d-read", 0, partition=-1),
    fetch("fetch from an unknown id", "d-read", 0, version=13, topic_id=NO_SUCH_ID),
    fetch("fetch from the zero id", "d-read", 0, version=13, topic_id=ZERO_ID),
    fetch("fetch with the leader's epoch", "d-read", 0, current_leader_epoch=0),
    fetch("fetch with an epoch to come", "d-read", 0, current_leader_epoch=7),
    fetch("fetch with an epoch to come v16", "d-read", 0, current_leader_epoch=7, version=16),
    fetch("fetch with the last epoch", "d-read", 3, last_fetched_epoch=0),
    fetch("fetch with a last epoch to come", "d-read", 3, last_fetched_epoch=5),
    fetch("fetch committed records", "d-read", 0, isolation_level=1),
    fetch("fetch with an isolation of 2", "d-read", 0, isolation_level=2),
    fetch("fetch with a rack", "d-read", 8, rack_id="r1"),
    fetch("fetch as a follower", "d-read", 0, replica_id=5),
    fetch(
        "fetch as a follower v15",
        "d-read",
        0,
        version=15,
        replica_state={"replica_id": 5, "replica_epoch": 1},
    ),
    fetch("fetch as a debugger", "d-read", 0, replica_id=-2),
    fetch("fetch more than there is", "d-read", 8, max_wait_ms=50, min_bytes=100_000),
    fetch("fetch nothing", "d-read", 0, topics=[]),
    fetch("fetch append times", "d-append-time", 0),
    fetch("fetch compacted", "d-compact", 0),
    fetch("fetch what was produced", "d-plain", 0),
    fetch("fetch what was produced to partition 1", "d-plain", 0, partition=1),
    fetch("fetch sequences", "d-idempotent", 0),
    fetch("fetch from the metadata topic", "__cluster_metadata", 0),
    # Fetch sessions (KIP-227).
    replace(fetch("session: opened", "d-read", 8, session_epoch=0), keep={"session": "session_id"}),
    in_session("nothing new", 1, topics=[]),
    in_session("an offset moves", 2, offset=6),
    in_session("a partition is added", 3, partition=1),
    fetch(
        "session: an unknown topic is added",
        "d-unknown",
        0,
        session_id=Kept("session", otherwise=0),
        session_epoch=4,
    ),
    in_session(
        "forgets a partition",
        5,
        topics=[],
        forgotten_topics_data=[
            {"topic": "d-unknown", "partitions": [0]},
            {"topic": "d-read", "partitions": [0]},
        ],
    ),
    in_session("a wrong epoch", 9, topics=[]),
    in_session("ids in a session of names", 6, version=13),
    in_session("opened anew", 0),
    in_session("an id that is gone", 6, topics=[]),
    fetch("session: an unknown id", "d-read", 0, session_id=12345, session_epoch=1),
    fetch("session: no id but an epoch", "d-read", 0, session_epoch=3),
    replace(
        fetch("session: opened by id", "d-read", 9, version=13, session_epoch=0),
        keep={"session 13": "session_id"},
    ),
    produce("session: records come", "d-read", Batch([b"9"], timestamp=T0 + 9000)),
    in_session("new records", 1, kept="session 13", version=13, topics=[]),
    fetch(
        "session: closed",
        "d-read",
        0,
        version=13,
        session_id=Kept("session 13", otherwise=0),
        topics=[],
    ),
    in_session("after it was closed", 2, kept="session 13", version=13, topics=[]),
    fetch("session: an empty one", "d-read", 0, session_epoch=0, topics=[]),
]

OFFSETS = [
    *[list_offsets(f"latest v{v}", "d-read", -1, version=v) for v in range(1, 12)],
    *[list_offsets(f"earliest v{v}", "d-read", -2, version=v) for v in (1, 6, 11)],
    *[list_offsets(f"largest time v{v}", "d-read", -3, version=v) for v in (6, 7, 11)],
    *[list_offsets(f"earliest local v{v}", "d-read", -4, version=v) for v in (7, 8, 11)],
    *[list_offsets(f"latest tiered v{v}", "d-read", -5, version=v) for v in (8, 9, 11)],
    *[list_offsets(f"earliest pending upload v{v}", "d-read", -6, version=v) for v in (10, 11)],
    list_offsets("a special time of -7", "d-read", -7),
    list_offsets("the time of a record", "d-read", T0 + 4000),
    list_offsets("a time between records", "d-read", T0 + 4001),
    list_offsets("a time before all", "d-read", 0),
    list_offsets("a time behind all", "d-read", T0 + 10_000),
    list_offsets("a time v1", "d-read", T0 + 4000, version=1),
    list_offsets("latest committed", "d-read", -1, isolation_level=1),
    list_offsets("a time among committed", "d-read", T0 + 4000, isolation_level=1),
    list_offsets("latest of an empty partition", "d-assigned", -1),
    list_offsets("largest time of an empty partition", "d-assigned", -3),
    list_offsets("a time in an empty partition", "d-assigned", T0),
    list_offsets("latest of an unknown topic", "d-unknown", -1),
    list_offsets("latest of an illegal name", "d/x", -1),
    list_offsets("latest of an unknown partition", "d-read", -1, partition=9),
    list_offsets("latest with the leader's epoch", "d-read", -1, current_leader_epoch=0),
    list_offsets("latest with an epoch to come", "d-read", -1, current_leader_epoch=7),
    list_offsets("latest as a follower", "d-read", -1, replica_id=5),
    list_offsets("latest as a debugger", "d-read", -1, replica_id=-2),
    ask(
        "latest twice in one request",
        "ListOffsets",
        11,
        replica_id=-1,
        topics=[
            {
                "name": "d-read",
                "partitions": [{"partition_index": 0, "timestamp": t} for t in (-1, -2)],
            }
        ],
    ),
    *[
        ask(
            f"end of epoch: {name}",
            "OffsetForLeaderEpoch",
            version,
            replica_id=replica,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": partition,
                            "current_leader_epoch": current,
                            "leader_epoch": epoch,
                        }
                    ],
                }
            ],
        )
        for name, version, topic, partition, current, epoch, replica in [
            ("the current v2", 2, "d-read", 0, -1, 0, -1),
            ("the current v3", 3, "d-read", 0, -1, 0, -1),
            ("the current v4", 4, "d-read", 0, -1, 0, -1),
            ("one to come", 4, "d-read", 0, -1, 5, -1),
            ("none", 4, "d-read", 0, -1, -1, -1),
            ("of an empty partition", 4, "d-assigned", 1, -1, 0, -1),
            ("the leader's epoch", 4, "d-read", 0, 0, 0, -1),
            ("a leader's epoch to come", 4, "d-read", 0, 7, 0, -1),
            ("an unknown partition", 4, "d-read", 9, -1, 0, -1),
            ("an unknown topic", 4, "d-unknown", 0, -1, 0, -1),
            ("a debugger", 4, "d-read", 0, -1, 0, -2),
            ("a follower", 4, "d-read", 0, -1, 0, 5),
        ]
    ],
]


def cut(name: str, topic: str, offset: int, version: int = 2, partition: int = 0) -> Case:
    partitions = [{"partition_index": partition, "offset": offset}]
    return ask(
        f"delete records: {name}",
        "DeleteRecords",
        version,
        topics=[{"name": topic, "partitions": partitions}],
        timeout_ms=5000,
    )


CUTTING = [
    cut("none v0", "d-read", 0, 0),
    cut("two v1", "d-read", 2, 1),
    cut("four v2", "d-read", 4),
    cut("fewer than before", "d-read", 1),
    cut("beyond the end", "d-read", 11),
    cut("a negative offset", "d-read", -2),
    list_offsets("earliest after records were deleted", "d-read", -2),
    fetch("fetch deleted records", "d-read", 0),
    fetch("fetch behind deleted records", "d-read", 4),
    list_offsets("a time of deleted records", "d-read", T0),
    cut("all", "d-read", -1),
    cut("of a compacted topic", "d-compact", 1),
    cut("of an unknown topic", "d-unknown", 1),
    cut("of an unknown partition", "d-read", 1, partition=9),
    cut("of an internal topic", "__consumer_offsets", 1),
    ask("delete records: of nothing", "DeleteRecords", 2, topics=[], timeout_ms=5000),
    *versions(
        "log directories",
        "DescribeLogDirs",
        (1, 2, 3, 4, 5),
        topics=[
            {"topic": "d-assigned", "partitions": [0, 0, 9]},
            {"topic": "d-unknown", "partitions": [0]},
            {"topic": "d-assigned", "partitions": [1]},
        ],
    ),
    ask("log directories of nothing", "DescribeLogDirs", 4, topics=[]),
]
CUTTING = [
    replace(case, without=("log_dir", "total_bytes", "usable_bytes"))
    if case.api == "DescribeLogDirs"
    else case
    for case in CUTTING
]
