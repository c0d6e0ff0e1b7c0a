"""DeleteTopics by frames. Codes and sentences are those of Kafka 4.3.1 to the same requests."""

from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.batches import batch, values_of
from api.raw import KEYS, Connection
from kafkalite.protocol import messages

NO_ID = bytes(16)
STATE = messages.DeleteTopicsRequest.DeleteTopicState


def delete(connection: Connection, *names: str, version: int = 5) -> Any:
    request = messages.DeleteTopicsRequest(topic_names=list(names), timeout_ms=5000)
    return connection.ask("DeleteTopics", version, request).responses


def delete_states(connection: Connection, *states: Any) -> dict[Any, tuple[int, str | None]]:
    request = messages.DeleteTopicsRequest(topics=list(states), timeout_ms=5000)
    answers = connection.ask("DeleteTopics", 6, request).responses
    return {(each.name, each.topic_id): (each.error_code, each.error_message) for each in answers}


def topics(connection: Connection) -> set[str]:
    found = connection.ask("Metadata", 9, messages.MetadataRequest(topics=None)).topics
    return {topic.name for topic in found}


@pytest.mark.parametrize("version", range(1, 6))
def test_every_version_deletes_by_name(connection: Connection, version: int) -> None:
    name = f"deleted-{version}"
    assert connection.create_topic(name).error_code == 0
    assert [each.error_code for each in delete(connection, name, version=version)] == [0]
    assert name not in topics(connection)


def test_version_6_deletes_by_name_and_by_id_and_answers_with_both(connection: Connection) -> None:
    one = connection.create_topic("six-one").topic_id
    two = connection.create_topic("six-two").topic_id
    answers = delete_states(connection, STATE(name="six-one"), STATE(name=None, topic_id=two))
    assert answers == {("six-one", one): (0, None), ("six-two", two): (0, None)}
    assert not topics(connection) & {"six-one", "six-two"}


def test_what_is_not_there_is_refused(connection: Connection) -> None:
    sentence = "This server does not host this topic-partition."
    for name in ("never-made", "a/b", "", "__cluster_metadata"):
        assert delete_states(connection, STATE(name=name)) == {(name, NO_ID): (3, sentence)}
    strange = b"x" * 16
    assert delete_states(connection, STATE(name=None, topic_id=strange)) == {
        (None, strange): (100, "This server does not host this topic ID.")
    }


def test_neither_both_and_twice_are_refused_and_delete_nothing(connection: Connection) -> None:
    topic_id = connection.create_topic("asked-badly").topic_id
    assert delete_states(connection, STATE(name=None)) == {
        (None, NO_ID): (42, "Neither topic name nor id were specified.")
    }
    assert delete_states(connection, STATE(name="asked-badly", topic_id=topic_id)) == {
        ("asked-badly", topic_id): (42, "You may not specify both topic name and topic id.")
    }
    assert delete_states(connection, STATE(name="asked-badly"), STATE(name="asked-badly")) == {
        ("asked-badly", NO_ID): (42, "Duplicate topic name.")
    }
    by_both = delete_states(
        connection, STATE(name="asked-badly"), STATE(name=None, topic_id=topic_id)
    )
    assert by_both == {
        ("asked-badly", topic_id): (
            42,
            "The provided topic name maps to an ID that was already supplied.",
        )
    }
    assert "asked-badly" in topics(connection)


def test_a_topic_of_the_same_name_starts_empty_under_another_id(connection: Connection) -> None:
    first = connection.create_topic("again").topic_id
    assert connection.produce("again", batch([b"old"])).error_code == 0
    delete(connection, "again")
    second = connection.create_topic("again").topic_id
    assert second != first
    assert connection.produce("again", batch([b"new"])).base_offset == 0


def test_requests_that_wait_at_a_deleted_topic_are_answered(broker: kafkalite.Broker) -> None:
    """They would wait for records that cannot come any more."""
    with (
        Connection(broker.bootstrap_servers) as waiting,
        Connection(broker.bootstrap_servers) as other,
    ):
        assert other.create_topic("waited-for").error_code == 0
        request = waiting.fetch_request("waited-for", 0, max_wait_ms=60_000)
        correlation_id = waiting.send(KEYS["Fetch"], 11, request.encode(11))
        # Time for it to be parked; were it not, it would be refused when it comes.
        topics(other)
        topics(other)
        assert delete(other, "waited-for")[0].error_code == 0
        answer = waiting.receive(KEYS["Fetch"], 11, correlation_id)
        assert answer.responses[0].partitions[0].error_code == 3


def test_produce_and_fetch_know_a_deleted_topic_no_more(connection: Connection) -> None:
    topic_id = connection.create_topic("gone").topic_id
    delete(connection, "gone")
    assert connection.produce("gone", batch([b"x"])).error_code == 3
    by_id = connection.produce("", batch([b"x"]), version=13, topic_id=topic_id)
    assert by_id.error_code == 100


def test_its_files_go_and_neither_restart_nor_kill_brings_it_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = kafkalite.Broker(data, config={"log.segment.delete.delay.ms": "60000"})
    with broker:
        with Connection(broker.bootstrap_servers) as connection:
            for name in ("stays", "goes"):
                assert connection.create_topic(name, partitions=2).error_code == 0
            delete(connection, "goes")
        folders = [path.name for path in data.iterdir() if path.name.startswith("goes")]
        assert len(folders) == 2
        assert all(name.endswith("-delete") for name in folders)
        for end in (broker.kill, broker.stop):
            end()
            broker.start()
            with Connection(broker.bootstrap_servers) as connection:
                assert topics(connection) == {"stays"}
        assert not [path for path in data.iterdir() if path.name.startswith("goes")]


def test_deletion_may_be_forbidden(tmp_path: Path) -> None:
    given = {"delete.topic.enable": "false"}
    with (
        kafkalite.Broker(tmp_path / "data", config=given) as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        assert connection.create_topic("kept").error_code == 0
        assert delete(connection, "kept")[0].error_code == 73
        assert delete(connection, "kept", version=2)[0].error_code == 42
        assert "kept" in topics(connection)


def test_a_deleted_topic_is_not_brought_back_by_a_kill_right_after_the_answer(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    broker = kafkalite.Broker(data)
    with broker:
        for number in range(3):
            with Connection(broker.bootstrap_servers) as connection:
                assert connection.create_topic(f"brief-{number}").error_code == 0
                assert delete(connection, f"brief-{number}")[0].error_code == 0
            broker.kill()
            broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            assert topics(connection) == set()


def test_a_topic_of_a_deleted_ones_name_begins_at_zero_also_after_a_kill(tmp_path: Path) -> None:
    """DeleteRecords had moved the start of the old one, which stood in the checkpoint file still:
    after a kill the new one began there, and acknowledged records were gone."""
    kind = messages.DeleteRecordsRequest
    partition = kind.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=0, offset=4)
    move = kind.DeleteRecordsTopic(name="same-name", partitions=[partition])
    with kafkalite.Broker(tmp_path / "data") as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("same-name").error_code == 0
            for _ in range(6):
                assert connection.produce("same-name", batch([b"old"])).error_code == 0
            moved = connection.ask("DeleteRecords", 2, kind(topics=[move], timeout_ms=5_000))
            assert moved.topics[0].partitions[0].low_watermark == 4
        # A clean stop writes the checkpoint files.
        assert broker.stop() == 0
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            assert delete(connection, "same-name")[0].error_code == 0
            assert connection.create_topic("same-name").error_code == 0
            for number in range(5):
                assert connection.produce("same-name", batch([b"new"])).base_offset == number
        broker.kill()
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.list_offsets("same-name", -2).offset == 0
            records = connection.fetch("same-name", 0).records
            assert values_of(records) == [(number, b"new") for number in range(5)]
