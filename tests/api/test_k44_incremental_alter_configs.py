"""IncrementalAlterConfigs by frames: the answers of Kafka, and that changes hold."""

from pathlib import Path

import pytest

import kafkalite
from api.batches import batch
from api.config_cases import BROKER, CASES, DELETE, LOGGER, SET, SET_AT_LAST, TOPIC
from api.configs import change, describe, own, set_topic
from api.raw import Connection


def test_each_change_is_answered_as_kafka_does() -> None:
    with (
        kafkalite.Broker() as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        made = connection.create_topic("altered", partitions=2, retention_ms="1234")
        assert made.error_code == 0
        for case in CASES:
            answer = change(connection, (*case.resource, case.operations))
            assert answer == [(case.code, case.sentence)], case
        for resource, configs in SET_AT_LAST.items():
            assert own(connection, *resource) == configs


@pytest.mark.parametrize("version", [0, 1])
def test_every_version_sets_and_deletes(connection: Connection, topic: str, version: int) -> None:
    change(connection, (TOPIC, topic, [("retention.ms", SET, "5")]), version=version)
    assert own(connection, TOPIC, topic) == {"retention.ms": "5"}
    change(connection, (TOPIC, topic, [("retention.ms", DELETE, None)]), version=version)
    assert own(connection, TOPIC, topic) == {}


def test_a_resource_that_comes_twice_is_refused_each_time(
    connection: Connection, topic: str
) -> None:
    operations = [("retention.ms", SET, "5")]
    refusal = (42, "Each resource must appear at most once.")
    answer = change(connection, (TOPIC, topic, operations), (TOPIC, topic, operations))
    assert answer == [refusal, refusal]
    assert own(connection, TOPIC, topic) == {}


def test_resources_succeed_and_fail_on_their_own(connection: Connection, topic: str) -> None:
    answer = change(
        connection,
        (TOPIC, "no-topic", [("retention.ms", SET, "5")]),
        (TOPIC, topic, [("retention.ms", SET, "6")]),
        (BROKER, "1", [("node.id", SET, "2")]),
    )
    assert [code for code, _ in answer] == [3, 0, 42]
    assert own(connection, TOPIC, topic) == {"retention.ms": "6"}


def test_validate_only_judges_and_changes_nothing(connection: Connection, topic: str) -> None:
    good = (TOPIC, topic, [("retention.ms", SET, "5")])
    bad = (TOPIC, topic, [("retention.ms", SET, "soon")])
    assert change(connection, good, validate_only=True) == [(0, None)]
    assert change(connection, bad, validate_only=True)[0][0] == 40
    assert own(connection, TOPIC, topic) == {}
    level = describe(connection, LOGGER, "1").configs[0].value
    change(connection, (LOGGER, "1", [("root", SET, "ERROR")]), validate_only=True)
    assert describe(connection, LOGGER, "1").configs[0].value == level


def test_a_topics_log_obeys_at_once(connection: Connection, topic: str) -> None:
    large = batch([b"x" * 200])
    assert connection.produce(topic, large).error_code == 0
    set_topic(connection, topic, max_message_bytes="150")
    assert connection.produce(topic, large).error_code == 10
    assert change(connection, (TOPIC, topic, [("max.message.bytes", DELETE, None)])) == [(0, None)]
    assert connection.produce(topic, large).error_code == 0


def test_topics_obey_what_is_set_for_this_broker_or_all_at_once(
    connection: Connection, topic: str
) -> None:
    large = batch([b"x" * 200])
    for name in ("", "1"):
        limit = (BROKER, name, [("message.max.bytes", SET, "150")])
        assert change(connection, limit) == [(0, None)]
        assert connection.produce(topic, large).error_code == 10
        no_limit = (BROKER, name, [("message.max.bytes", DELETE, None)])
        assert change(connection, no_limit) == [(0, None)]
        assert connection.produce(topic, large).error_code == 0


def test_what_cannot_take_effect_while_the_broker_runs_is_refused(connection: Connection) -> None:
    for name, text in [
        ("num.network.threads", "2"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT"),
        ("log.cleaner.dedupe.buffer.size", "99999999"),
        ("listener.name.plaintext.max.connections", "5"),
        ("metric.reporters", "com.example.Reporter"),
    ]:
        ((code, sentence),) = change(connection, (BROKER, "1", [(name, SET, text)]))
        assert code == 42
        assert sentence is not None
        assert name in sentence


def test_the_level_of_the_log_changes_at_once(tmp_path: Path) -> None:
    with (
        kafkalite.Broker(tmp_path / "data") as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        assert connection.create_topic("heard").error_code == 0
        assert "created topic heard" in broker.log_tail()
        assert change(connection, (LOGGER, "1", [("root", SET, "ERROR")])) == [(0, None)]
        assert describe(connection, LOGGER, "1").configs[0].value == "ERROR"
        assert connection.create_topic("unheard").error_code == 0
        assert "unheard" not in broker.log_tail()


def test_changes_survive_a_kill(tmp_path: Path) -> None:
    with kafkalite.Broker(tmp_path / "data") as broker:
        with Connection(broker.bootstrap_servers) as connection:
            connection.create_topic("kept", retention_ms="1")
            answer = change(
                connection,
                (
                    TOPIC,
                    "kept",
                    [("max.message.bytes", SET, "150"), ("retention.ms", DELETE, None)],
                ),
                (BROKER, "", [("log.retention.ms", SET, "7")]),
                (32, "some", [("consumer.session.timeout.ms", SET, "46000")]),
            )
            assert answer == [(0, None)] * 3
        broker.kill()
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            assert own(connection, TOPIC, "kept") == {"max.message.bytes": "150"}
            (retention,) = describe(connection, TOPIC, "kept", ["retention.ms"]).configs
            assert (retention.value, retention.config_source) == ("7", 3)
            assert own(connection, 32, "some") == {"consumer.session.timeout.ms": "46000"}
            assert connection.produce("kept", batch([b"x" * 200])).error_code == 10
