"""OffsetFetch by frames. Answers are those of Apache Kafka 4.3.1 for the same requests."""

import pytest

from api.group_requests import commit, fetch_offsets, find_coordinator
from api.raw import Connection
from kafkalite.protocol import messages


@pytest.fixture(autouse=True)
def coordinator(connection: Connection) -> None:
    find_coordinator(connection, "any")


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_tells_what_was_committed_and_what_was_not(
    connection: Connection, version: int
) -> None:
    name = f"fetch-{version}"
    created = connection.create_topic(name, 2)
    commit(connection, name, name, (1, 9), metadata="m", leader_epoch=4)
    uuid = created.topic_id if version >= 10 else bytes(16)
    (answer,) = fetch_offsets(connection, name, name, 0, 1, 77, version=version, topic_id=uuid)
    found = [
        (each.partition_index, each.committed_offset, each.metadata, each.error_code)
        for each in answer.partitions
    ]
    assert found == [(0, -1, "", 0), (1, 9, "m", 0), (77, -1, "", 0)]
    assert answer.partitions[1].committed_leader_epoch == (4 if version >= 5 else -1)


@pytest.mark.parametrize("version", range(2, 11))
def test_null_asks_for_every_offset_of_the_group(connection: Connection, version: int) -> None:
    name = f"all-{version}"
    connection.create_topic(name, 3)
    commit(connection, name, name, (0, 1), (2, 3))
    (answer,) = fetch_offsets(connection, name, None, version=version)
    found = {each.partition_index: each.committed_offset for each in answer.partitions}
    assert found == {0: 1, 2: 3}
    assert fetch_offsets(connection, f"no {name}", None, version=version) == []


def test_an_unknown_topic_has_no_offset_and_an_unknown_id_is_refused(
    connection: Connection,
) -> None:
    (answer,) = fetch_offsets(connection, "g", "no-such-topic", 0)
    assert (answer.partitions[0].committed_offset, answer.partitions[0].error_code) == (-1, 0)
    (answer,) = fetch_offsets(connection, "g", "x", 0, version=10, topic_id=b"1" * 16)
    assert (answer.partitions[0].committed_offset, answer.partitions[0].error_code) == (-1, 100)


def test_several_groups_are_answered_in_order(connection: Connection, topic: str) -> None:
    for index in range(3):
        commit(connection, f"several-{index}", topic, (0, index))
    group_kind = messages.OffsetFetchRequest.OffsetFetchRequestGroup
    request = messages.OffsetFetchRequest(
        groups=[group_kind(group_id=f"several-{index}", topics=None) for index in range(3)]
    )
    groups = connection.ask("OffsetFetch", 8, request).groups
    assert [each.group_id for each in groups] == ["several-0", "several-1", "several-2"]
    assert [each.topics[0].partitions[0].committed_offset for each in groups] == [0, 1, 2]
    assert connection.ask("OffsetFetch", 8, messages.OffsetFetchRequest(groups=[])).groups == []
    # As often as it is named, also beside some partitions of it.
    request.groups += [group_kind(group_id="several-2", topics=[]), request.groups[2]]
    groups = connection.ask("OffsetFetch", 8, request).groups
    assert [len(each.topics) for each in groups] == [1, 1, 1, 0, 1]
    assert groups[4].topics == groups[2].topics


def test_an_offset_is_seen_at_the_latest_with_the_answer_and_never_goes_back(
    connection: Connection, topic: str
) -> None:
    kind = messages.OffsetCommitRequest
    topic_kind = kind.OffsetCommitRequestTopic
    for offset in range(50):
        partition = topic_kind.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset
        )
        request = kind(group_id="pipe", topics=[topic_kind(name=topic, partitions=[partition])])
        with Connection(":".join(map(str, connection.socket.getpeername()))) as other:
            sent = other.send(8, 9, request.encode(9))
            (beside,) = fetch_offsets(connection, "pipe", topic, 0, require_stable=True)
            other.receive(8, 9, sent)
            (after,) = fetch_offsets(connection, "pipe", topic, 0, require_stable=True)
        assert beside.partitions[0].committed_offset in (offset - 1, offset)
        assert after.partitions[0].committed_offset == offset
