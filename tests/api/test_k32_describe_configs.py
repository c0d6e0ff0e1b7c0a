"""DescribeConfigs by frames. That every row is Kafka's own is in tests/oracle/test_configs.py."""

from types import SimpleNamespace
from typing import Any

import pytest

from api.config_cases import BROKER, TOPIC
from api.configs import describe, set_topic
from api.raw import Connection
from kafkalite.api import k32_describe_configs
from kafkalite.config import Config
from kafkalite.config import describe as descriptions
from kafkalite.config.keys import KeyTable
from kafkalite.protocol import messages
from kafkalite.tasks import Tasks
from kafkalite.timers import Timers


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
        assert retention.documentation == KeyTable("topic.txt")["retention.ms"].doc


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


def test_each_resource_of_a_request_has_its_own_values(connection: Connection) -> None:
    """Resources are alike, and described once, only with the same configs and keys."""
    for name, retention_ms in (("own-1", "11"), ("own-2", "22"), ("own-3", "11")):
        assert connection.create_topic(name, retention_ms=retention_ms).error_code == 0
    assert connection.create_topic("own-4").error_code == 0
    kind = messages.DescribeConfigsRequest
    asked = [
        *((TOPIC, name, ["retention.ms"]) for name in ("own-1", "own-2", "own-3", "own-4")),
        (TOPIC, "own-1", ["flush.ms", "retention.ms"]),
        (BROKER, "1", ["log.retention.ms", "node.id"]),
        (BROKER, "", ["log.retention.ms", "node.id"]),
        (TOPIC, "own-none", ["retention.ms"]),
    ]
    resources = [
        kind.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=keys
        )
        for resource_type, name, keys in asked
    ]
    results = connection.ask("DescribeConfigs", 4, kind(resources=resources)).results
    assert [(each.resource_type, each.resource_name) for each in results] == [
        each[:2] for each in asked
    ]
    values = [{each.name: each.value for each in result.configs} for result in results]
    assert values[:4] == [{"retention.ms": each} for each in ("11", "22", "11", "604800000")]
    assert values[4]["retention.ms"] == "11"
    assert set(values[4]) == {"flush.ms", "retention.ms"}
    assert values[5]["node.id"] == "1"
    assert "node.id" not in values[6]
    assert (results[7].error_code, values[7]) == (3, {})


def test_topics_with_the_same_configs_are_described_once_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each was described anew: 2,000 topics held the control thread for a second."""
    calls = []
    describe_topic = descriptions.describe_topic

    def counted(config: Config, own: Any) -> Any:
        calls.append(dict(own))
        return describe_topic(config, own)

    monkeypatch.setattr(descriptions, "describe_topic", counted)
    names = [f"alike-{number}" for number in range(100)]
    image = SimpleNamespace(
        topics=dict.fromkeys(names), configs={(TOPIC, "alike-7"): {"flush.ms": "7"}}
    )
    kind = messages.DescribeConfigsRequest
    asked = kind(
        resources=[
            kind.DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in names
        ]
    )
    tasks = Tasks(Timers(), [].append, lambda: 0)
    context: Any = SimpleNamespace(config=Config({}), image=image, may=lambda *_: True, tasks=tasks)
    handle: Any = k32_describe_configs.handle
    results = tasks.start(handle(context, None, asked)).result().results
    assert {len(each.configs) for each in results} == {33}
    assert calls == [{}, {"flush.ms": "7"}]
