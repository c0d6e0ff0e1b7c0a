"""Records of `__consumer_offsets`, held against the codec and against bytes that Kafka wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinator.record_serde import CoordinatorRecord
from kafkalite.groups import records
from kafkalite.groups.events import GroupRecord, MemberRecord
from kafkalite.groups.offsets import CommittedOffset
from kafkalite.protocol import messages
from kafkalite.protocol.java_hash import hash_map_order, java_hash

TOPIC_ID = bytes.fromhex("917cee62633f46a1a120efd36cf9c6d9")

# Key, value and meaning, out of a segment that Apache Kafka 4.3.1 has written.
KAFKAS_OFFSET = (
    b"\x00\x01\x00\x06simple\x00\x01t\x00\x00\x00\x01",
    bytes.fromhex("0004 000000000000000a 00000000 04")
    + b"m10"
    + bytes.fromhex("000001a1fcb3cc53 01 0010")
    + TOPIC_ID,
    ("simple", "t", 1, CommittedOffset(10, 0, "m10", 1795241004115, -1, TOPIC_ID)),
)
KAFKAS_OFFSET_WITH_EXPIRY = (
    b"\x00\x01\x00\x06simple\x00\x01t\x00\x00\x00\x00",
    bytes.fromhex("0001 0000000000000003 0002")
    + b"m3"
    + bytes.fromhex("000001a1fcb3cc1c 000001a1fcb552bc"),
    ("simple", "t", 0, CommittedOffset(3, -1, "m3", 1795241004060, 1795241104060)),
)
KAFKAS_EMPTY_GROUP = (
    b"\x00\x02\x00\x01j",
    bytes.fromhex("0003 0008")
    + b"consumer"
    + bytes.fromhex("00000002 ffff ffff 000001a1fcb3cde0 00000000"),
    GroupRecord("consumer", 2, None, None, 1795241004512, ()),
)


def offset_of(
    key: bytes, value: bytes | None, record_offset: int
) -> tuple[str, str, int, CommittedOffset]:
    """What the record of an offset says."""
    record = records.SERDE.read(key, value)
    assert isinstance(record, CoordinatorRecord)
    assert record.kind == 1
    committed = records.committed_offset(record.value, record_offset)
    return record.key.group, record.key.topic, record.key.partition, committed


def group_of(key: bytes, value: bytes | None) -> tuple[str, GroupRecord]:
    """What the record of a group says."""
    record = records.SERDE.read(key, value)
    assert isinstance(record, CoordinatorRecord)
    assert record.kind == 2
    return record.key.group, records.group_state(record.value)


names = st.text(st.characters(codec="utf-8"), max_size=200)
int64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("written", [KAFKAS_OFFSET, KAFKAS_OFFSET_WITH_EXPIRY])
def test_offsets_are_written_as_kafka_writes_them(
    written: tuple[bytes, bytes, tuple[str, str, int, CommittedOffset]],
) -> None:
    key, value, meaning = written
    assert records.offset_record(*meaning) == (key, value)
    assert offset_of(key, value, -1) == meaning


def test_groups_are_written_as_kafka_writes_them() -> None:
    key, value, meaning = KAFKAS_EMPTY_GROUP
    assert records.group_record("j", meaning) == (key, value)
    assert group_of(key, value) == ("j", meaning)


@given(names, names, st.integers(-(2**31), 2**31 - 1), int64, names, int64, st.booleans())
def test_the_offset_record_is_what_the_codec_makes(
    group: str, topic: str, partition: int, offset: int, metadata: str, time_ms: int, has_id: bool
) -> None:
    committed = CommittedOffset(
        offset, partition, metadata, time_ms, -1, TOPIC_ID if has_id else bytes(16)
    )
    key = messages.OffsetCommitKey(group=group, topic=topic, partition=partition)
    value = messages.OffsetCommitValue(
        offset=offset,
        leader_epoch=partition,
        metadata=metadata,
        commit_timestamp=time_ms,
        topic_id=TOPIC_ID if has_id else bytes(16),
    )
    made = records.offset_record(group, topic, partition, committed)
    assert made == (b"\0\1" + key.encode(0), b"\0\4" + value.encode(4))
    assert offset_of(*made, -1) == (group, topic, partition, committed)


def test_every_older_version_of_an_offset_is_read() -> None:
    key, _ = records.offset_record("g", "t", 3, None)
    for version in range(5):
        value = messages.OffsetCommitValue(offset=9, metadata="m", commit_timestamp=5)
        *_, read = offset_of(key, version.to_bytes(2, "big") + value.encode(version), 1)
        assert (read.offset, read.metadata, read.leader_epoch) == (9, "m", -1)


@given(
    st.lists(
        st.tuples(names, names, st.binary(max_size=50)), max_size=3, unique_by=lambda each: each[0]
    )
)
def test_groups_come_back_as_they_were_written(members: list[tuple[str, str, bytes]]) -> None:
    record = GroupRecord(
        "consumer",
        7,
        "range",
        "leader",
        99,
        tuple(
            MemberRecord(member_id, None, client, "/h", 1, 2, data, data)
            for member_id, client, data in members
        ),
    )
    assert group_of(*records.group_record("g", record)) == ("g", record)


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("g", 103),
        ("console-consumer-12345", 158_455_506),
        ("my-group", 1_906_497_762),
        ("gruppe-ä-日本-😀", 1_790_726_578),
        ("polygenelubricants", 0),
    ],
)
def test_groups_are_hashed_as_java_hashes_strings(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


@pytest.mark.parametrize(
    "ordered",
    [
        ["own", "sticky", "range"],
        ["", "max.message.bytes", "preallocate", "internal.segment.bytes"],
        ["Aa", "BB"],
        ["k0", "k1", "k2", "k3", "k4", "k11", "k5", "k10", "k6", "k7", "k12", "k8", "k9"],
    ],
)
def test_keys_come_out_of_a_hash_map_in_the_order_of_java(ordered: list[str]) -> None:
    """The orders are those of OpenJDK 17. The last map has grown; the one before is one bucket."""
    assert hash_map_order(sorted(ordered)) == ordered
