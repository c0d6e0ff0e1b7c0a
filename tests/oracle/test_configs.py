"""Every configuration key of Apache Kafka, with default, type and synonyms, against our rows."""

from typing import Any

import pytest

from api.raw import Connection
from kafkalite.config import Config
from kafkalite.config.describe import (
    Described,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from kafkalite.protocol import messages
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools

pytestmark = pytest.mark.oracle

# Ours on purpose; docs/DIFFERENCES.md has the reasons.
OTHER_DEFAULTS = {
    "controller.listener.names",
    "node.id",
    "process.roles",
    "log.dir",
    "listeners",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "offsets.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
}

STATIC = {
    "log.retention.hours": "3",
    "log.roll.ms": "86400000",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "num.partitions": "4",
    "a.stranger": "1",
}

Row = tuple[str | None, bool, int, bool, int, list[tuple[str, str | None, int]]]


def described_by_kafka(connection: Connection, kind: int, name: str) -> dict[str, Row]:
    request = messages.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    answer = connection.ask(
        "DescribeConfigs", 4, request(resources=[resource], include_synonyms=True)
    )
    assert answer.results[0].error_code == 0
    return {each.name: row_of_kafkas(each) for each in answer.results[0].configs}


def row_of_kafkas(each: Any) -> Row:
    synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms]
    return (
        each.value,
        each.read_only,
        each.config_source,
        each.is_sensitive,
        each.config_type,
        synonyms,
    )


def rows(described: list[Described]) -> dict[str, Row]:
    return {
        each.name: (
            each.value,
            each.is_read_only,
            each.source,
            each.is_sensitive,
            each.kind,
            [tuple(synonym) for synonym in each.synonyms],
        )
        for each in described
    }


def without_defaults(row: Row) -> Row:
    return (None, *row[1:5], [each for each in row[5] if each[2] != 5])


@pytest.fixture(scope="module")
def kafka_and_ours(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A running Kafka, and our configuration out of the same file."""
    folder = tmp_path_factory.mktemp("configs")
    with KafkaBroker(kafka_tools, folder, properties=STATIC) as kafka:
        lines = (folder / "server.properties").read_text().splitlines()
        given = dict(line.split("=", 1) for line in lines)
        config = Config(given)
        # What `kafka-storage format` writes down for a cluster that tracks eligible leaders.
        config.set_dynamic({"min.insync.replicas": "1"}, {})
        with Connection(kafka.bootstrap_servers) as connection:
            yield connection, config


def test_every_key_of_a_broker_is_described_as_kafka_does(kafka_and_ours: Any) -> None:
    connection, config = kafka_and_ours
    kafkas = described_by_kafka(connection, 4, "1")
    ours = {
        name: row
        for name, row in rows(describe_broker(config)).items()
        if not name.startswith("kafkalite.")
    }
    assert sorted(ours) == sorted(kafkas)
    for name, row in kafkas.items():
        if name in OTHER_DEFAULTS:
            assert without_defaults(ours[name]) == without_defaults(row), name
        else:
            assert ours[name] == row, name


def test_every_key_of_a_topic_a_group_and_client_metrics_is_described_as_kafka_does(
    kafka_and_ours: Any,
) -> None:
    connection, config = kafka_and_ours
    own = {"cleanup.policy": "compact, delete", "retention.ms": " 5 "}
    configs = {name.replace(".", "_"): text for name, text in own.items()}
    assert connection.create_topic("described", **configs).error_code == 0
    assert rows(describe_topic(config, own)) == described_by_kafka(connection, 2, "described")
    assert rows(describe_group(config, {})) == described_by_kafka(connection, 32, "some")
    assert rows(describe_client_metrics({})) == described_by_kafka(connection, 16, "some")


def test_a_new_topic_is_answered_with_the_configs_that_kafka_gives(kafka_and_ours: Any) -> None:
    connection, config = kafka_and_ours
    made = connection.create_topic("made", retention_bytes="77")
    kafkas = [(each.name, each.value, each.config_source) for each in made.configs]
    assert [tuple(each) for each in config.topic_configs({"retention.bytes": "77"})] == kafkas
