"""AlterConfigs by frames."""

import pytest

from api.configs import own, replace, set_topic
from api.raw import Connection


@pytest.mark.parametrize("version", range(3))
def test_what_is_set_is_replaced(connection: Connection, topic: str, version: int) -> None:
    set_topic(connection, topic, retention_ms="5", max_message_bytes="100")
    answer = replace(connection, (2, topic, [("retention.bytes", "99")]), version=version)
    assert answer == [(0, None)]
    assert own(connection, 2, topic) == {"retention.bytes": "99"}
    assert replace(connection, (2, topic, []), version=version) == [(0, None)]
    assert own(connection, 2, topic) == {}


@pytest.mark.parametrize(
    ("resource", "configs", "answer"),
    [
        ("own", [("retention.bytes", None)], "Null value not supported for : retention.bytes"),
        ("own", [("no.such", "1")], "Unknown topic config name: no.such"),
        ("own", [("a", "1"), ("a", "2")], "Error due to duplicate config keys"),
        ((2, "no-topic"), [], "The topic 'no-topic' does not exist."),
        ((4, "1"), [("num.partitions", "9")], "Cannot update these configs dynamically: "),
        ((4, "2"), [], "Unexpected broker id, expected 1, but received 2"),
        ((4, ""), [], "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
        ((8, "1"), [("root", "WARN")], "Unknown resource type 8"),
        ((99, "x"), [], "Unknown resource type 99"),
    ],
)
def test_refusals_are_kafkas(
    connection: Connection,
    topic: str,
    resource: str | tuple[int, str],
    configs: list[tuple[str, str | None]],
    answer: str,
) -> None:
    kind, name = (2, topic) if isinstance(resource, str) else resource
    ((code, sentence),) = replace(connection, (kind, name, configs))
    assert code != 0
    assert sentence is not None
    assert sentence.startswith(answer)


def test_validate_only_changes_nothing(connection: Connection, topic: str) -> None:
    set_topic(connection, topic, retention_ms="5")
    assert replace(connection, (2, topic, []), validate_only=True) == [(0, None)]
    assert own(connection, 2, topic) == {"retention.ms": "5"}


def test_a_resource_that_comes_twice_is_refused_each_time(
    connection: Connection, topic: str
) -> None:
    answer = replace(connection, (2, topic, []), (2, topic, []))
    assert [code for code, _ in answer] == [42, 42]
