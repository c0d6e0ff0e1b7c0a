"""What a writing query says of itself, checked before a task starts."""

from typing import Any

import pytest
from pyspark.sql.types import StructType

from kafkalite.errors import InvalidArgumentError
from kafkalite.spark.options.write import WriteOptions

SERVERS = {"kafka.bootstrap.servers": "here:9092"}


def schema(**columns: str) -> StructType:
    kinds: dict[str, Any] = {
        "headers": {
            "type": "array",
            "containsNull": True,
            "elementType": {
                "type": "struct",
                "fields": [
                    {"name": "key", "type": "string", "nullable": True, "metadata": {}},
                    {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
                ],
            },
        }
    }
    fields = [
        {"name": name, "type": kinds.get(kind, kind), "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


EVERYTHING = schema(
    key="binary",
    value="string",
    topic="string",
    partition="integer",
    headers="headers",
    timestamp="timestamp",
    offset="long",
)


def test_every_column_is_taken_and_others_are_not_looked_at() -> None:
    options = WriteOptions.of(SERVERS, EVERYTHING)
    assert (options.bootstrap_servers, options.topic) == ("here:9092", None)
    assert options.transactional_id_prefix is None
    assert options.warnings == ()


def test_names_of_options_have_no_case() -> None:
    given = {"KAFKA.Bootstrap.Servers": "here:9092", "Topic": "t", "kafka.Batch.Size": "7"}
    options = WriteOptions.of(given, schema(value="binary"))
    assert (options.topic, options.settings.batch_bytes) == ("t", 7)


def test_space_around_a_topic_is_none_of_its_name() -> None:
    """The connector trims it; here the broker refused the name."""
    assert WriteOptions.of({**SERVERS, "topic": " t\n"}, schema(value="binary")).topic == "t"


def test_a_prefix_turns_transactions_on() -> None:
    both = [
        WriteOptions.of({**SERVERS, "topic": "t", **more}, schema(value="binary"))
        for more in ({"kafka.transactional.id": "etl"}, {"transactional": "TRUE"})
    ]
    assert [each.transactional_id_prefix for each in both] == ["etl", "kafkalite-spark"]


def test_options_of_readers_and_unknown_settings_are_named_in_a_warning() -> None:
    given = {**SERVERS, "topic": "t", "subscribe": "u", "kafka.some.thing": "1"}
    assert WriteOptions.of(given, schema(value="string")).warnings == (
        "subscribe is ignored when writing",
        "kafka.some.thing is not known, and ignored",
    )


def test_what_spark_adds_to_a_stream_is_no_option_of_ours() -> None:
    given = {**SERVERS, "topic": "t", "checkpointLocation": "c", "queryName": "q"}
    assert WriteOptions.of(given, schema(value="string")).warnings == ()


@pytest.mark.parametrize(
    ("given", "columns", "told"),
    [
        ({}, {"value": "string"}, "Option 'kafka.bootstrap.servers' must be specified"),
        (SERVERS, {"value": "string"}, "topic option required when no 'topic' attribute"),
        ({**SERVERS, "topic": " "}, {"value": "string"}, "topic is empty"),
        ({**SERVERS, "topic": "t"}, {"key": "string"}, "Required attribute 'value' not found"),
        (
            {**SERVERS, "topic": "t"},
            {"value": "string", "timestamp": "long"},
            "timestamp attribute unsupported type bigint. timestamp must be a(n) timestamp",
        ),
        (
            {**SERVERS, "topic": "t", "path": "/data"},
            {"value": "string"},
            "path is for reading",
        ),
        (
            {**SERVERS, "topic": "t", "transactional": "false", "kafka.transactional.id": "x"},
            {"value": "string"},
            "transactional is false, but kafka.transactional.id names a transactional id",
        ),
        (
            {**SERVERS, "topic": "t", "transactional": "true", "kafka.enable.idempotence": "false"},
            {"value": "string"},
            "transactional=true needs kafka.acks=all and kafka.enable.idempotence=true",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(
    given: dict[str, str], columns: dict[str, str], told: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        WriteOptions.of(given, schema(**columns))
    assert told in str(caught.value)
