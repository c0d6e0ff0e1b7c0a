"""CreateTopics by frames."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.batches import batch
from api.raw import Connection
from kafkalite.protocol import messages


def topic_of(name: str, **fields: Any) -> Any:
    given = {"num_partitions": 1, "replication_factor": 1, **fields}
    return messages.CreateTopicsRequest.CreatableTopic(name=name, **given)


def create(connection: Connection, *topics: Any, version: int = 7, **fields: Any) -> Any:
    request = messages.CreateTopicsRequest(topics=list(topics), **fields)
    return connection.ask("CreateTopics", version, request).topics


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_makes_a_topic(connection: Connection, version: int) -> None:
    result = create(connection, topic_of(f"made-{version}", num_partitions=3), version=version)[0]
    assert (result.name, result.error_code, result.error_message) == (f"made-{version}", 0, None)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {each.name: each.value for each in result.configs}
        assert configs["retention.ms"] == "604800000"
    if version >= 7:
        assert result.topic_id != bytes(16)


def test_minus_one_takes_the_defaults(connection: Connection) -> None:
    topic = topic_of("defaults", num_partitions=-1, replication_factor=-1)
    assert create(connection, topic)[0].num_partitions == 1


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (topic_of("a b"), 17),
        (topic_of(""), 17),
        (topic_of("x" * 250), 17),
        (topic_of("zero", num_partitions=0), 37),
        (topic_of("factor", replication_factor=3), 38),
        (topic_of("zero-factor", replication_factor=0), 38),
    ],
)
def test_what_cannot_be_is_refused_by_its_code(
    connection: Connection, topic: Any, code: int
) -> None:
    result = create(connection, topic)[0]
    assert result.error_code == code
    assert result.error_message


def test_a_request_for_more_than_10_000_partitions_is_refused_as_a_whole(
    connection: Connection,
) -> None:
    wide = [topic_of("wide-1", num_partitions=5_001), topic_of("wide-2", num_partitions=5_000)]
    asked = [*wide, topic_of("a/b"), topic_of("w-twice"), topic_of("w-twice"), topic_of("w-narrow")]
    refusal = (44, "Excessively large number of partitions per request.")
    answers = create(connection, *asked)
    assert [(each.error_code, each.error_message) for each in answers] == [refusal] * 6
    assert create(connection, topic_of("w-narrow"))[0].error_code == 0


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_request_that_takes_more_than_10_000_records_is_refused_as_a_whole(
    connection: Connection, *, validate_only: bool
) -> None:
    """Each topic was judged by itself, so that a request could take any number of records."""
    keys = ("retention.ms", "segment.ms", "flush.ms", "flush.messages", "retention.bytes")
    config = messages.CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
    configs = [config(name=key, value="2000") for key in keys]
    # 1 for the topic, 5 for its configs, 94 for its partitions.
    many = [topic_of(f"many-{n}", num_partitions=94, configs=configs) for n in range(100)]
    one_more = topic_of(f"one-more-{validate_only}")
    asked = [*many, one_more, topic_of("a/b"), topic_of("m-twice"), topic_of("m-twice")]
    refusal = (44, "Unable to perform excessively large batch operation.")
    answers = create(connection, *asked, validate_only=validate_only)
    assert [each.name for each in answers] == [each.name for each in asked]
    assert {(each.error_code, each.error_message) for each in answers} == {refusal}
    assert create(connection, one_more)[0].error_code == 0
    assert {each.error_code for each in create(connection, *many, validate_only=True)} == {0}


def test_names_that_are_taken_collide_or_come_twice_are_refused(connection: Connection) -> None:
    assert create(connection, topic_of("taken.name"))[0].error_code == 0
    assert create(connection, topic_of("taken.name"))[0].error_code == 36
    assert create(connection, topic_of("taken_name"))[0].error_code == 17
    assert [each.error_code for each in create(connection, topic_of("two"), topic_of("two"))] == [
        42
    ]


def test_a_manual_assignment_must_name_this_broker(connection: Connection) -> None:
    kind = messages.CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment

    def assigned(name: str, *brokers: list[int]) -> Any:
        assignments = [
            kind(partition_index=index, broker_ids=each) for index, each in enumerate(brokers)
        ]
        return topic_of(name, num_partitions=-1, replication_factor=-1, assignments=assignments)

    assert create(connection, assigned("by-hand", [1], [1]))[0].num_partitions == 2
    assert create(connection, assigned("elsewhere", [2]))[0].error_code == 39


def test_validate_only_makes_nothing(connection: Connection) -> None:
    assert create(connection, topic_of("only-judged"), validate_only=True)[0].error_code == 0
    assert create(connection, topic_of("only-judged"))[0].error_code == 0


def test_without_a_positive_time_out_nothing_is_made(connection: Connection) -> None:
    asked = [topic_of("late"), topic_of("a/b"), topic_of("late-twice"), topic_of("late-twice")]
    answers = create(connection, *asked, timeout_ms=0)
    assert [(each.error_code, each.error_message) for each in answers] == [(7, None)] * 4
    assert [each.error_code for each in create(connection, *asked[2:], timeout_ms=-1)] == [42]
    assert [each.error_code for each in create(connection, asked[0])] == [0]


def test_a_config_that_is_not_known_is_refused_by_its_name(connection: Connection) -> None:
    result = connection.create_topic("strange", no_such_key="1")
    assert result.error_code == 40
    assert "no.such.key" in result.error_message
    assert connection.create_topic("strange", retention_ms="soon").error_code == 40
    assert connection.create_topic("strange").error_code == 0


def test_a_creation_that_was_cut_off_is_completed_at_the_next_start(tmp_path: Path) -> None:
    """A kill between two partitions of an automatic creation left a topic with one of its two."""
    data = tmp_path / "data"
    broker = kafkalite.Broker(data)
    with broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("half", partitions=3).error_code == 0
        broker.kill()
        for index in (1, 2):
            shutil.rmtree(data / f"half-{index}")
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            found = connection.ask("Metadata", 9, messages.MetadataRequest(topics=None))
            assert [len(topic.partitions) for topic in found.topics] == [3]


def test_a_topics_configs_hold_and_survive_a_restart(tmp_path: Path) -> None:
    def too_large(broker: kafkalite.Broker) -> int:
        with Connection(broker.bootstrap_servers) as connection:
            code: int = connection.produce("small", batch([b"x" * 200])).error_code
            return code

    broker = kafkalite.Broker(tmp_path / "data")
    with broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("small", max_message_bytes="150").error_code == 0
            assert connection.produce("small", batch([b"x"])).error_code == 0
        assert too_large(broker) == 10
        broker.kill()
        broker.start()
        assert too_large(broker) == 10


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        (
            {"min_compaction_lag_ms": "50", "max_compaction_lag_ms": "10"},
            "conflict topic config setting min.compaction.lag.ms (50) > max.compaction.lag.ms (10)",
        ),
        (
            {"remote_storage_enable": "true"},
            "Tiered Storage functionality is disabled in the broker.",
        ),
    ],
)
def test_configs_that_contradict_are_refused_together(
    connection: Connection, configs: dict[str, str], sentence: str
) -> None:
    result = connection.create_topic("contradicting", **configs)
    assert result.error_code == 40
    assert result.error_message.startswith(sentence)
