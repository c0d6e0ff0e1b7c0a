"""OffsetCommit by frames. Codes are those of Apache Kafka 4.3.1 for the same requests."""

import pytest

from api.group_requests import commit, committed, fetch_offsets, find_coordinator, join
from api.group_requests import stable_member as stable
from api.raw import Connection
from kafkalite.protocol import messages


@pytest.fixture(autouse=True)
def coordinator(connection: Connection) -> None:
    find_coordinator(connection, "any")


def topic_id(connection: Connection, name: str) -> bytes:
    created = connection.create_topic(name)
    assert created.error_code == 0
    found: bytes = created.topic_id
    return found


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_commits(connection: Connection, version: int) -> None:
    name = f"commit-{version}"
    uuid = topic_id(connection, name)
    given = uuid if version >= 10 else bytes(16)
    codes = commit(
        connection, name, name, (0, 40 + version), version=version, metadata="m", topic_id=given
    )
    assert codes == [0]
    (answer,) = fetch_offsets(connection, name, name, 0)
    partition = answer.partitions[0]
    assert (partition.committed_offset, partition.metadata) == (40 + version, "m")


def test_metadata_and_leader_epoch_come_back(connection: Connection, topic: str) -> None:
    text = "ä" * 2000 + "😀"
    assert commit(connection, "meta", topic, (0, 7), metadata=text, leader_epoch=3) == [0]
    (answer,) = fetch_offsets(connection, "meta", topic, 0)
    partition = answer.partitions[0]
    assert (partition.metadata, partition.committed_leader_epoch) == (text, 3)


def test_what_does_not_exist_is_refused_partition_by_partition(
    connection: Connection, topic: str
) -> None:
    assert commit(connection, "g", topic, (0, 1), (77, 1), (-1, 1)) == [0, 3, 3]
    assert commit(connection, "g", "no-such-topic", (0, 1)) == [3]
    assert commit(connection, "g", "", (0, 1), version=10, topic_id=b"1" * 16) == [100]


def test_metadata_that_is_too_long_refuses_its_partition_alone(
    connection: Connection, topic: str
) -> None:
    assert commit(connection, "long", topic, (0, 1), metadata="x" * 4097) == [12]
    assert committed(connection, "long", topic) == -1
    assert commit(connection, "long", topic, (0, 1), metadata="x" * 4096) == [0]
    # Java's characters are counted, of which an emoji has two.
    assert commit(connection, "long", topic, (0, 1), metadata="😀" * 2049) == [12]
    assert commit(connection, "long", topic, (0, 1), metadata="😀" * 2048) == [0]


def test_the_empty_group_id_is_a_group(connection: Connection, topic: str) -> None:
    assert commit(connection, "", topic, (0, 12)) == [0]
    assert committed(connection, "", topic) == 12


@pytest.mark.parametrize(("version", "code"), [(8, 22), (9, 69)])
def test_a_member_of_no_group_hears_so_in_the_words_of_its_version(
    connection: Connection, topic: str, version: int, code: int
) -> None:
    codes = commit(
        connection, "none", topic, (0, 1), version=version, generation_id=3, member_id="x"
    )
    assert codes == [code]


def test_a_group_with_members_takes_commits_of_its_generation_only(
    connection: Connection, topic: str
) -> None:
    member_id = stable(connection, "living")

    def ask(member_id: str, generation_id: int) -> int:
        return commit(
            connection,
            "living",
            topic,
            (0, 5),
            member_id=member_id,
            generation_id=generation_id,
        )[0]

    assert ask(member_id, 1) == 0
    assert ask(member_id, 2) == 22
    assert ask(member_id, -1) == 22
    assert ask("stranger", 1) == 25
    assert ask("", -1) == 25


def test_a_group_that_waits_for_its_assignment_takes_no_commit(
    connection: Connection, topic: str
) -> None:
    member_id = join(connection, "waiting", version=3).member_id
    codes = commit(connection, "waiting", topic, (0, 5), member_id=member_id, generation_id=1)
    assert codes == [27]


def test_a_request_without_topics_is_answered(connection: Connection) -> None:
    request = messages.OffsetCommitRequest(group_id="g")
    assert connection.ask("OffsetCommit", 9, request).topics == []


def test_a_topic_that_is_deleted_and_made_again_has_no_offsets(connection: Connection) -> None:
    assert connection.create_topic("comes-again").error_code == 0
    assert commit(connection, "reader", "comes-again", (0, 9)) == [0]
    kind = messages.DeleteTopicsRequest
    request = kind(topics=[kind.DeleteTopicState(name="comes-again")], timeout_ms=5000)
    assert connection.ask("DeleteTopics", 6, request).responses[0].error_code == 0
    assert connection.create_topic("comes-again").error_code == 0
    while committed(connection, "reader", "comes-again") != -1:
        pass


def test_an_offset_may_be_kept_to_the_end_of_time(connection: Connection, topic: str) -> None:
    """The sum of now and the retention time was once more than the record holds, and the handler
    failed."""
    kind = messages.OffsetCommitRequest
    partition = kind.OffsetCommitRequestTopic.OffsetCommitRequestPartition(committed_offset=5)
    topics = [kind.OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    request = kind(group_id="for-ever", retention_time_ms=2**63 - 1, topics=topics)
    answer = connection.ask("OffsetCommit", 3, request)
    assert answer.topics[0].partitions[0].error_code == 0
    assert committed(connection, "for-ever", topic) == 5
