"""The options of format("kafkalite"): what they come to, and what is refused in which words."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import InvalidArgumentError
from kafkalite.spark.offsets import Bound
from kafkalite.spark.options.read import ReadOptions
from kafkalite.spark.options.rows import OPTIONS, tables
from kafkalite.spark.schema import ddl

SERVERS = {"kafka.bootstrap.servers": "a:1"}
ORDERS = {**SERVERS, "subscribe": "orders"}


def batch(**options: str) -> ReadOptions:
    return ReadOptions.of(ORDERS | named(options), streaming=False)


def stream(**options: str) -> ReadOptions:
    return ReadOptions.of(ORDERS | named(options), streaming=True)


def named(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in options.items()}


def refusal(options: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        ReadOptions.of(options, streaming=streaming)
    return str(caught.value)


def test_names_are_known_in_any_case() -> None:
    options = ReadOptions.of(
        {"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBE": "B,  c,B", "MINpartitions": " 7 "},
        streaming=False,
    )
    assert options.topics.names == ("B", "c")
    assert options.partitions_min == 7
    assert options.client.bootstrap_servers == "a:1"


def test_a_table_of_the_catalog_is_refused_where_its_options_would_not_arrive() -> None:
    given = SERVERS | {"subscribe": "a", "provider": "kafkalite", "owner": "me"}
    assert "a table of Spark's catalog needs the columnar engine" in refusal(given)


def test_exactly_one_way_to_say_what_is_read() -> None:
    assert "One of the following options must be specified" in refusal(SERVERS)
    several = SERVERS | {"subscribe": "a", "assign": '{"a":[0]}'}
    assert "Only one of the following options can be specified" in refusal(several)
    assert "subscribe, assign" in refusal(several)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": " , "}, "no topics to subscribe to"),
        ({"subscribePattern": "  "}, "subscribePattern is empty"),
        ({"subscribePattern": "a("}, "subscribePattern is 'a(', which is not a regular expression"),
        ({"assign": "orders"}, 'assign must be as in {"topicA":[0,1],"topicB":[0,1]}, got orders'),
        ({"assign": '{"a":["0"]}'}, "assign must be as in"),
        ({"assign": "{}"}, "no partitions to assign"),
        ({"path": ""}, "path is empty"),
        ({"paths": "/a"}, "paths must be a JSON list"),
    ],
)
def test_what_is_read_is_checked(options: dict[str, str], words: str) -> None:
    assert words in refusal(SERVERS | options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets for t-0 can't be earliest"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets for t-0 is -3, it must be"),
        ({"endingOffsets": '{"t":{"0":-9}}'}, "endingOffsets for t-0 is -9, it must be an offset"),
        ({"startingOffsets": "erliest"}, "startingOffsets must be as in earliest, latest or {"),
        ({"startingOffsets": '{"t":{"a":1}}'}, "startingOffsets must be as in"),
        ({"startingOffsetsByTimestamp": '{"t":1}'}, "startingOffsetsByTimestamp must be as in"),
        ({"startingTimestamp": "soon"}, "startingTimestamp is 'soon', it must be a whole number"),
        # What Java and the protocol have no room for was an OverflowError of who sends it.
        ({"startingTimestamp": str(1 << 63)}, "startingTimestamp is 9223372036854775808, it must"),
        ({"startingOffsetsByTimestamp": f'{{"t":{{"0":{1 << 63}}}}}'}, "must be as in"),
        ({"kafka.fetch.max.bytes": str(1 << 31)}, "kafka.fetch.max.bytes is 2147483648, it must"),
        (
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'},
            "t-0: startingOffsets 5 is greater than endingOffsets 4",
        ),
        (
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"u":{"0":9}}'},
            "startingOffsets and endingOffsets name different partitions",
        ),
        ({"startingOffsetsByTimestampStrategy": "x"}, "it must be error or latest"),
        ({"minPartitions": "0"}, "minPartitions is 0, it must be positive"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition is -1, it must be positive"),
        ({"includeHeaders": "yes"}, "includeHeaders is 'yes', it must be true or false"),
        ({"failOnDataLoss": "1"}, "failOnDataLoss is '1', it must be true or false"),
        ({"columns": " , "}, "columns names no column"),
        ({"columns": "key,key"}, "columns names a column twice"),
        ({"engine": "spark"}, "engine is 'spark', it must be auto, jvm or python"),
        ({"value.format": "xml"}, "value.format is 'xml', it must be binary, string, json"),
        ({"key.format": "xml"}, "key.format is 'xml', it must be binary, string, json"),
        ({"value.format": "csv", "value.schema": "a"}, "value.schema is 'a', it must be DDL"),
        ({"value.format": "csv", "value.schema": "a ARRAY<INT"}, "'>' is missing"),
        ({"value.schema": "a INT"}, "value.schema has no meaning with value.format=binary"),
        ({"value.format": "json", "mode": "strict"}, "mode is 'strict'"),
        ({"batch.rows": "0"}, "batch.rows is 0, it must be positive"),
    ],
)
def test_a_wrong_value_is_refused_by_the_option_s_name(options: dict[str, str], words: str) -> None:
    assert words in refusal(ORDERS | options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": "{}"}, "ending timestamp not valid in streaming queries"),
        ({"endingTimestamp": "1"}, "ending timestamp not valid in streaming queries"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger (9) is higher than maxOffsetsPerTrigger (8)",
        ),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon', it must be a duration"),
    ],
)
def test_a_stream_refuses_what_it_cannot_do(options: dict[str, str], words: str) -> None:
    assert words in refusal(ORDERS | options, streaming=True)


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
        "security.protocol",
        "sasl.mechanism",
        "ssl.truststore.location",
    ],
)
def test_a_client_setting_that_cannot_be_heeded_is_refused_by_name(name: str) -> None:
    assert f"Kafka option 'kafka.{name}' is not supported" in refusal(
        ORDERS | {f"kafka.{name}": "x"}
    )


def test_servers_are_needed_but_not_for_files() -> None:
    words = "Option 'kafka.bootstrap.servers' must be specified"
    assert words in refusal({"subscribe": "orders"})
    options = ReadOptions.of({"path": "/logs/orders-0"}, streaming=False)
    assert options.topics == ("path", ("/logs/orders-0",), ())
    both = {"path": "file:///a", "paths": '["/b"]'}
    assert ReadOptions.of(both, streaming=False).topics.names == ("/a", "/b")


def test_an_unknown_option_is_refused_and_the_nearest_one_named() -> None:
    words = refusal(ORDERS | {"startingOfsets": "earliest"})
    assert words == "unknown option 'startingofsets', did you mean startingOffsets?"
    assert refusal(ORDERS | {"x": "red"}) == "unknown option 'x'"


def test_what_has_no_effect_is_told() -> None:
    assert batch(maxOffsetsPerTrigger="5", topic="x", kafka__no__such="1").warnings == (
        "maxOffsetsPerTrigger is ignored in batch queries",
        "topic is ignored when reading",
        "kafka.no.such is not known, and ignored",
    )
    assert stream(pushdown="true").warnings == ("pushdown is ignored in streaming queries",)
    quiet = {"kafka__group__id": "g", "kafka__max__poll__records": "9", "groupIdPrefix": "p"}
    assert batch(**quiet).warnings == ()


def test_bounds_go_by_the_connector_s_order() -> None:
    given = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"t":{"0":7}}',
        "startingTimestamp": "9",
    }
    assert batch(**given).start == Bound("timestamp", "startingTimestamp", {}, 9)
    del given["startingTimestamp"]
    assert batch(**given).start.by_partition == {("t", 0): 7}
    assert batch().start.kind == "earliest"
    assert stream().start.kind == "latest"
    assert batch().stop.kind == "latest"
    assert batch(endingOffsets=json.dumps({"t": {"0": -1}})).stop.by_partition == {("t", 0): -1}


@pytest.mark.parametrize(
    ("text", "delay_ms"), [("15m", 900_000), ("90", 90), ("2 s", 2_000), ("1h", 3_600_000)]
)
def test_a_delay_is_a_duration_of_spark(text: str, delay_ms: int) -> None:
    assert stream(maxTriggerDelay=text).delay_ms_max == delay_ms


def test_client_settings_keep_their_kafka_names() -> None:
    options = batch(
        kafka__isolation__level="READ_COMMITTED",
        kafka__max__partition__fetch__bytes="1000",
        kafka__client__id="me",
    )
    assert options.client.fetch.isolation == "read_committed"
    assert options.client.fetch.partition_bytes_max == 1000
    assert options.client.fetch.client_id == "me"


def test_how_long_planning_asks_and_how_long_a_task_waits_are_two_settings() -> None:
    for options, api_ms, poll_ms in (
        (batch(), 60_000, 120_000),
        (batch(kafka__default__api__timeout__ms="7"), 7, 120_000),
        (batch(kafkaConsumer__pollTimeoutMs="7"), 60_000, 7),
    ):
        assert options.client.api_timeout_ms == api_ms
        assert options.client.fetch.poll_timeout_ms == poll_ms
    (warning,) = batch(kafka__poll__timeout__ms="7").warnings
    assert "kafka.poll.timeout.ms is not known" in warning


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        (
            {},
            (
                "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
                "timestamp TIMESTAMP, timestampType INT"
            ),
        ),
        ({"columns": "offset, value_size"}, "offset BIGINT, value_size INT"),
        ({"columns": "headers"}, "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"),
        (
            {"columns": "value,key", "value__format": "string", "key__format": "string"},
            "value STRING, key STRING",
        ),
        (
            {"columns": "value", "value__format": "json", "value__schema": "a INT, b STRING"},
            "value STRUCT<a INT, b STRING>",
        ),
        (
            {
                "columns": "offset,value",
                "value__format": "json",
                "value__schema": "a INT, b STRING",
                "value__flatten": "true",
            },
            "offset BIGINT, a INT, b STRING",
        ),
    ],
)
def test_the_schema_is_the_connector_s_cut_and_typed(options: dict[str, Any], columns: str) -> None:
    assert ddl(batch(**options)) == columns


def test_a_corrupt_column_in_the_schema_is_a_column_of_its_own() -> None:
    typed = {"value__format": "json", "value__schema": "a INT, _corrupt_record STRING"}
    assert ddl(batch(**typed)).endswith("timestampType INT, `_corrupt_record` STRING")
    assert "value STRUCT<a INT>," in ddl(batch(**typed))
    columns = {"columns": "_corrupt_record,offset"}
    assert ddl(batch(**typed, **columns)) == "`_corrupt_record` STRING, offset BIGINT"


def test_a_line_of_csv_has_the_columns_of_its_schema() -> None:
    given = {
        "value__format": "csv",
        "value__schema": "a INT, `b``c` ARRAY<STRUCT<x: INT, y: STRING>>, d: DECIMAL(10, 2)",
        "sep": "\t",
        "columns": "value",
    }
    options = batch(**given)
    assert options.formats["value.csv.columns"] == '["a", "b`c", "d"]'
    assert options.formats["sep"] == "\t"
    assert ddl(options) == f"value STRUCT<{given['value__schema']}>"


def test_headers_come_last_if_they_are_wanted() -> None:
    assert ddl(batch(includeHeaders="true")).endswith(
        "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )


@pytest.mark.parametrize("columns", [{}, {"columns": "value"}, {"columns": "value,partition"}])
def test_a_flattened_field_with_the_name_of_a_column_is_refused(columns: dict[str, str]) -> None:
    """Where the column itself was not among them, its content came in place of the field's."""
    typed = {"value__format": "json", "value__schema": "id LONG, offset LONG"}
    assert "offset LONG>" in ddl(batch(**typed, **columns))
    with pytest.raises(InvalidArgumentError, match="field 'offset' of the value has the name of"):
        ddl(batch(**typed, **columns, value__flatten="true"))


def test_a_schema_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="columns names 'vlaue', it may name key"):
        ddl(batch(columns="vlaue"))
    with pytest.raises(InvalidArgumentError, match=r"value.format=json needs value.schema"):
        ddl(batch(value__format="json"))


def test_every_option_has_a_row_once() -> None:
    names = [row.name.lower() for row in OPTIONS]
    assert len(names) == len(set(names))
    assert all(row.doc.endswith(".") for row in OPTIONS)


def test_the_page_has_the_tables_of_the_options() -> None:
    page = (Path(__file__).parents[2] / "docs" / "SPARK.md").read_text()
    assert all(table in page for table in tables()), "run tools/make_spark_page.py"


def test_fields_that_no_writer_of_avro_has_are_warned_of() -> None:
    """A misspelt one was null in every row without a word."""

    def record(*names: str) -> dict[str, Any]:
        fields = [{"name": name, "type": "long"} for name in names]
        return {"type": "record", "name": "Order", "fields": fields}

    def warnings(schema: str, **options: str) -> tuple[str, ...]:
        return batch(value__format="avro", value__schema=schema, **options).warnings

    older, newer = record("id"), record("id", "cents")
    one = {"value__avro__schema": json.dumps(newer)}
    several = {
        "value__avro__header": "confluent",
        "value__avro__registry": json.dumps({"7": older, "12": json.dumps(newer)}),
    }
    for written in (one, several, {"value__avro__schema": json.dumps({"type": newer})}):
        assert warnings("id LONG, cents LONG, _corrupt_record STRING", **written) == ()
        (warning,) = warnings("id LONG, cent LONG, at DATE", **written)
        assert warning == (
            "value.schema: no record has cent, at, by the schemas that they were written with: "
            "null in every row"
        )
    for bad in (
        "{",
        "[]",
        "7",
        '"string"',
        '{"type": "record"}',
        '{"type": "record", "fields": 7}',
    ):
        assert warnings("id LONG", value__avro__schema=bad) == ()
        assert warnings("id LONG", value__avro__registry=bad) == ()
