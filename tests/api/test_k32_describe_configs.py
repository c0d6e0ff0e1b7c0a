"""DescribeConfigs by frames. That every row is Kafka's own is in tests/oracle/test_configs.py."""

import pytest

from api.configs import describe, set_topic
from api.raw import Connection


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_describes_a_topic(connection: Connection, topic: str, version: int) -> None:
    set_topic(connection, topic, retention_ms="5")
    result = describe(connection, 2, topic, version=version, documentation=True)
    assert (result.error_code, result.resource_type, result.resource_name) == (0, 2, topic)
    assert len(result.configs) == 33
    retention = next(each for each in result.configs if each.name == "retention.ms")
    assert (retention.value, retention.config_source, retention.read_only) == ("5", 1, False)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "5", 1)
    ]
    if version >= 3:
        assert retention.config_type == 5
        assert retention.documentation == "Age at which segments go; -1 never."


def test_only_the_named_keys_are_described_and_none_named_are_all(
    connection: Connection, topic: str
) -> None:
    result = describe(connection, 2, topic, ["segment.ms", "no.such", "retention.ms"])
    assert sorted(each.name for each in result.configs) == ["retention.ms", "segment.ms"]
    assert len(describe(connection, 2, topic, []).configs) == 33


def test_synonyms_and_documentation_come_when_they_are_asked_for(
    connection: Connection, topic: str
) -> None:
    (config,) = describe(connection, 2, topic, ["segment.bytes"], synonyms=False).configs
    assert (config.synonyms, config.documentation) == ([], None)


def test_a_broker_is_described_with_its_own_keys(connection: Connection) -> None:
    configs = {each.name: each for each in describe(connection, 4, "1").configs}
    assert configs["node.id"].value == "1"
    assert configs["kafkalite.acks.fsync"].value == "group"
    assert configs["kafkalite.acks.fsync"].config_source == 4
    secret = configs["ssl.keystore.password"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert "internal.segment.bytes" not in configs
    assert "producer.id.expiration.check.interval.ms" not in configs


def test_groups_client_metrics_and_the_log_are_described(connection: Connection) -> None:
    assert len(describe(connection, 32, "any-group").configs) == 17
    assert len(describe(connection, 16, "any").configs) == 3
    (root,) = describe(connection, 8, "1").configs
    assert (root.name, root.value, root.config_source) == ("root", "INFO", 6)


@pytest.mark.parametrize(
    ("kind", "name", "code", "sentence"),
    [
        (2, "no-topic", 3, ""),
        (2, "", 17, "Topic name is invalid: the empty string is not allowed"),
        (4, "2", 42, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (4, "x", 42, "Broker id must be an integer, but it is: x"),
        (8, "", 42, "Broker id must not be empty"),
        (8, "x", 42, "Broker id must be an integer, but it is: x"),
        (16, "", 42, "Client metrics subscription name must not be empty"),
        (32, "", 42, "Group name must not be empty"),
        (0, "", 42, "Unknown resource type 0"),
    ],
)
def test_refusals_are_kafkas(
    connection: Connection, kind: int, name: str, code: int, sentence: str
) -> None:
    result = describe(connection, kind, name)
    assert (result.error_code, result.error_message, result.configs) == (code, sentence, [])
