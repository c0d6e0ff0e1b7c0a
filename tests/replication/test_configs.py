"""Changes of configurations at a broker of other controllers: what it judges itself, as Kafka's
broker does beside it, and what its controller does."""

from collections.abc import Iterator

import pytest

from api.configs import Operation, change, describe, own, replace
from api.raw import Connection
from kafkalite.config.changes import APPEND, DELETE, SET
from kafkalite.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import Node, new_kafka, wait_until

pytestmark = pytest.mark.oracle

LOGGER = 8
OTHER = "3000"
Resource = tuple[int, str, list[Operation]]


@pytest.fixture(scope="module")
def kafka(
    kafka_tools: KafkaTools,
    kafka_controller: KafkaBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KafkaBroker]:
    """Broker 8, Kafka's."""
    folder = tmp_path_factory.mktemp("kafka")
    with new_kafka(kafka_tools, folder, kafka_controller, 8) as broker:
        yield broker


def resources(own_id: str, topic: str) -> list[Resource]:
    """Of each kind, some that can be and some that cannot."""
    return [
        (TOPIC, topic, [("retention.ms", SET, "77000")]),
        (TOPIC, "not-there", [("retention.ms", SET, "5")]),
        (TOPIC, f"{topic}-null", [("retention.ms", SET, None)]),
        (BROKER, own_id, [("log.cleaner.threads", SET, "2")]),
        (BROKER, OTHER, [("log.cleaner.threads", SET, "2")]),
        (BROKER, "", [("log.retention.ms", SET, "88000")]),
        (LOGGER, own_id, [("root", SET, "INFO")]),
        (LOGGER, OTHER, [("root", SET, "INFO")]),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")]),
        (CLIENT_METRICS, "m", [("interval.ms", SET, "1000")]),
        (99, "x", [("a", SET, "b")]),
        (TOPIC, "twice", [("retention.ms", SET, "5")]),
        (TOPIC, "twice", [("retention.ms", SET, "5")]),
    ]


def of_broker(own_id: str) -> list[Resource]:
    """What a controller would take, and no broker could obey."""
    return [
        (BROKER, own_id, [("log.cleaner.threads", SET, "many")]),
        (BROKER, own_id, [("node.id", SET, "4")]),
        (BROKER, own_id, [("log.cleaner.threads", APPEND, "2")]),
        (BROKER, own_id, [("log.cleaner.threads", 9, "2")]),
        (BROKER, "one", [("log.cleaner.threads", SET, "2")]),
        (BROKER, "", [("listener.name.plaintext.max.connections", SET, "-7")]),
    ]


def holds(connection: Connection, kind: int, name: str, wanted: dict[str, str]) -> bool:
    """Just this is set, as far as the broker has heard, which may not know of a new topic yet."""
    is_known = describe(connection, kind, name).error_code == 0
    return is_known and own(connection, kind, name) == wanted


def change_all_kinds(address: str, own_id: str, version: int) -> list[int]:
    """The codes, once what was taken holds and what was not does not."""
    topic = f"all-kinds-{version}-{own_id}"
    with Connection(address) as connection:
        assert connection.create_topic(topic).error_code == 0
        told = change(connection, *resources(own_id, topic), version=version)
        wait_until(lambda: holds(connection, TOPIC, topic, {"retention.ms": "77000"}))
        wait_until(lambda: holds(connection, BROKER, own_id, {"log.cleaner.threads": "2"}))
        wait_until(lambda: own(connection, BROKER, "").get("log.retention.ms") == "88000")
        undo: Resource = (BROKER, own_id, [("log.cleaner.threads", DELETE, None)])
        assert change(connection, undo) == [(0, None)]
        wait_until(lambda: holds(connection, BROKER, own_id, {}))
    return [code for code, _ in told]


@pytest.mark.parametrize("version", [0, 1])
def test_a_request_of_all_kinds_is_answered_as_kafkas_broker_does(
    version: int, three_nodes: list[Node], kafka: KafkaBroker
) -> None:
    """One with a logger in it had all others refused by NOT_CONTROLLER."""
    told = change_all_kinds(three_nodes[0].address, "1", version)
    assert told == change_all_kinds(kafka.bootstrap_servers, "8", version)
    assert told[:8] == [0, 3, 42, 0, 42, 0, 0, 42]


def test_what_no_broker_could_obey_does_not_reach_the_metadata(
    three_nodes: list[Node], kafka: KafkaBroker
) -> None:
    """The controller takes any key and any value of a broker: it was in the metadata, for good,
    that one was to have `log.cleaner.threads=many`."""
    answers = {}
    for address, own_id in ((three_nodes[0].address, "1"), (kafka.bootstrap_servers, "8")):
        with Connection(address) as connection:
            told = [change(connection, each)[0] for each in of_broker(own_id)]
            answers[own_id] = [code for code, _ in told]
            assert own(connection, BROKER, own_id) == {}, (own_id, told)
    assert answers["1"] == answers["8"]
    assert 0 not in answers["1"]


def test_what_is_only_looked_at_changes_nothing(three_nodes: list[Node]) -> None:
    with Connection(three_nodes[1].address) as connection:
        assert connection.create_topic("looked-at").error_code == 0
        wanted: list[Resource] = [
            (TOPIC, "looked-at", [("retention.ms", SET, "5")]),
            (LOGGER, "2", [("root", SET, "DEBUG")]),
        ]
        wait_until(lambda: holds(connection, TOPIC, "looked-at", {}))
        assert change(connection, *wanted, validate_only=True) == [(0, None), (0, None)]
        assert holds(connection, TOPIC, "looked-at", {})


def replace_all_kinds(address: str, own_id: str, version: int) -> list[int]:
    """As `change_all_kinds`, by AlterConfigs."""
    topic = f"older-{version}-{own_id}"
    with Connection(address) as connection:
        assert connection.create_topic(topic).error_code == 0
        told = replace(
            connection,
            (TOPIC, topic, [("retention.ms", "6")]),
            (BROKER, own_id, [("log.cleaner.threads", "many")]),
            (BROKER, OTHER, [("log.cleaner.threads", "2")]),
            (LOGGER, own_id, [("root", "INFO")]),
            version=version,
        )
        wait_until(lambda: holds(connection, TOPIC, topic, {"retention.ms": "6"}))
    return [code for code, _ in told]


@pytest.mark.parametrize("version", [1, 2])
def test_the_older_request_is_split_too(
    version: int, three_nodes: list[Node], kafka: KafkaBroker
) -> None:
    told = replace_all_kinds(three_nodes[2].address, "3", version)
    assert told == replace_all_kinds(kafka.bootstrap_servers, "8", version) == [0, 42, 42, 42]
