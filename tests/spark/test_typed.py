"""Values that Rust has typed are those that Spark makes of the connector's bytes: `value.format`
against from_json, from_csv and CAST; `columns` against plain expressions."""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kafkalite import Broker
from oracle.tools import Record
from spark.reading import CONNECTOR, differences, read, rows
from spark.records import START_MS, create, send

pytestmark = pytest.mark.oracle

SEED = 3
COUNT = 300
JSON_SCHEMA = (
    "id LONG, city STRING, amount DOUBLE, good BOOLEAN, at TIMESTAMP, day DATE, "
    "tags ARRAY<STRING>, place STRUCT<x: INT, name: STRING>"
)
CSV_SCHEMA = "id LONG, city STRING, amount DOUBLE"
BROKEN_AT = 7
"""Every so many values one is cut in the middle, and the next one is null."""


def objects() -> Iterator[dict[str, Any]]:
    draw = random.Random(SEED)
    for number in range(COUNT):
        fields = {
            "id": draw.choice([number, -(2**63), 2**63 - 1]),
            "city": draw.choice(["Köln", "", 'a "quoted" name', "新潟", "a\\b\n"]),
            "amount": draw.choice([draw.uniform(-1e9, 1e9), 0.1, 1e-300]),
            "good": draw.choice([True, False]),
            "at": f"2024-02-{draw.randrange(1, 30):02}T12:34:56.{draw.randrange(1000):03}Z",
            "day": f"1999-12-{draw.randrange(1, 32):02}",
            "tags": draw.choice([[], ["a"], ["b", None, "c"]]),
            "place": draw.choice([{"x": number, "name": "n"}, {"x": -1}]),
            "more than the schema has": [1, {"deep": True}],
        }
        for name in draw.sample(sorted(fields), draw.randrange(3)):
            fields[name] = None
        for name in draw.sample(sorted(fields), draw.randrange(3)):
            del fields[name]
        yield fields


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    """A broker with the topics `typed-json` and `typed-csv`, two partitions each."""
    found = broker.bootstrap_servers
    for topic in ("typed-json", "typed-csv"):
        create(found, topic, 2)
    values: list[bytes | None] = []
    lines: list[bytes] = []
    for number, fields in enumerate(objects()):
        text = json.dumps(fields, ensure_ascii=bool(number % 2)).encode()
        broken = number % BROKEN_AT
        values.append(None if broken == 1 else text[: len(text) // 2] if broken == 0 else text)
        city = f'"{number}, quoted"' if number % 3 else f"plain {number}"
        lines.append(f"{number},{city},{number / 8}".encode())
    for topic, codec, all_values in (("typed-json", "zstd", values), ("typed-csv", "none", lines)):
        records = [
            Record(topic, value, key=b"%d" % number, partition=number % 2, timestamp=START_MS)
            for number, value in enumerate(all_values)
        ]
        send(found, records, codec)
    return found


def connector(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    return read(spark, CONNECTOR, servers, {"subscribe": topic})


PLACE = ("topic", "partition", "offset")
JSON_FIELDS = ("id", "city", "amount", "good", "at", "day", "tags", "place")


def test_json_is_what_from_json_makes_of_it(spark: SparkSession, servers: str, engine: str) -> None:
    schema = f"{JSON_SCHEMA}, _corrupt_record STRING"
    parsed = connector(spark, servers, "typed-json").selectExpr(
        *PLACE, f"from_json(CAST(value AS STRING), '{schema}') AS value"
    )
    options = {"subscribe": "typed-json", "value.format": "json", "value.schema": schema}
    # Several Arrow batches a task: Spark closes each, and a closed struct had lost its fields when
    # the columnar engine's next batch came.
    options["batch.rows"] = "40"
    typed = read(spark, engine, servers, options)
    fields = [f"value.{name}" for name in JSON_FIELDS]
    found = rows(typed.selectExpr(*PLACE, *fields, "_corrupt_record"))
    expected = rows(parsed.selectExpr(*PLACE, *fields, "value._corrupt_record"))
    broken = [row for row in expected if row[-1] is not None]
    assert len(broken) == -(-COUNT // BROKEN_AT)
    assert not differences(found, expected)


def test_json_that_is_cut_off_anywhere_is_what_from_json_makes_of_it(
    spark: SparkSession, broker: Broker, engine: str
) -> None:
    """No field of it is kept. But for one place: cut directly behind a key of a nested object,
    Spark keeps the fields before that object, which docs/TYPED_VALUES.md leaves to it."""
    servers, topic = broker.bootstrap_servers, f"cut-json-{engine}"
    create(servers, topic)
    good = (
        '{"id": 12, "city": "K\\u00f6ln", "no": {"a": [1]}, "amount": -1.5e3, "good": true, '
        '"tags": ["a", null], "place": {"x": 3, "name": "n"}, "day": "2024-02-29"}'
    )
    texts = [good[:at] for at in range(1, len(good) + 1)]
    texts += [good + more for more in (" ", "}", " rest", '{"id": 2}')]
    texts += [good.replace("12", '"twelve"'), good.replace("3,", "3 "), good.replace("}", ",}")]
    records = [Record(topic, each.encode(), timestamp=START_MS) for each in texts]
    send(servers, records)
    schema = f"{JSON_SCHEMA}, _corrupt_record STRING"
    parsed = read(spark, CONNECTOR, servers, {"subscribe": topic}).selectExpr(
        *PLACE, f"from_json(CAST(value AS STRING), '{schema}') AS value"
    )
    options = {"subscribe": topic, "value.format": "json", "value.schema": schema}
    fields = [f"value.{name}" for name in JSON_FIELDS]
    expected = rows(parsed.selectExpr(*PLACE, *fields, "value._corrupt_record"))
    assert len(good) <= sum(row[-1] is not None for row in expected) < len(expected)
    kept_by_spark = 0
    for number, row in enumerate(expected):
        if row[-1] is not None and re.search(r'"place": [{].*"(x|name)":? ?$', row[-1]):
            kept_by_spark += row[3] is not None
            expected[number] = (*row[:3], *(None,) * len(JSON_FIELDS), row[-1])
    assert kept_by_spark == 6
    typed = read(spark, engine, servers, options)
    assert not differences(rows(typed.selectExpr(*PLACE, *fields, "_corrupt_record")), expected)


def test_json_flattened_is_the_same_in_columns_of_its_own(
    spark: SparkSession, servers: str, engine: str
) -> None:
    options = {"subscribe": "typed-json", "value.format": "json", "value.schema": JSON_SCHEMA}
    options["batch.rows"] = "40"
    nested = read(spark, engine, servers, options)
    flat = read(spark, engine, servers, {**options, "value.flatten": "true"})
    fields = [f"value.{name}" for name in JSON_FIELDS]
    assert not differences(
        rows(flat.select(*PLACE, *JSON_FIELDS)), rows(nested.select(*PLACE, *fields))
    )


def test_a_value_that_does_not_parse_fails_fast_by_its_place(
    spark: SparkSession, servers: str, engine: str
) -> None:
    options = {
        "subscribe": "typed-json",
        "value.format": "json",
        "value.schema": JSON_SCHEMA,
        "mode": "FAILFAST",
    }
    with pytest.raises(Exception, match=r"typed-json-[01].* offset \d+"):
        read(spark, engine, servers, options).collect()


@pytest.fixture(scope="module")
def bad_keys(broker: Broker) -> str:
    """A topic of four records, of which the second has a key that does not parse."""
    create(broker.bootstrap_servers, "typed-keys")
    keys = [b'{"id":1}', b"no JSON", b'{"id":3}', b'{"id":4}']
    send(broker.bootstrap_servers, [Record("typed-keys", b"v", key=each) for each in keys])
    return "typed-keys"


@pytest.mark.parametrize("columns", [[], ["offset"]])
def test_a_key_that_does_not_parse_is_seen_where_a_query_leaves_keys_out(
    spark: SparkSession, servers: str, engine: str, bad_keys: str, columns: list[str]
) -> None:
    """The columnar engine did not decode keys that were not selected: a query in FAILFAST did not
    fail, DROPMALFORMED left nothing out, and _corrupt_record was null."""
    typed = {"key.format": "json", "key.schema": "id INT, _corrupt_record STRING"}
    modes = {
        mode: read(spark, engine, servers, {"subscribe": bad_keys, "mode": mode, **typed})
        for mode in ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
    }
    with pytest.raises(Exception, match=r"typed-keys-0.* offset 1"):
        modes["FAILFAST"].select(*columns).collect()
    assert len(modes["DROPMALFORMED"].select(*columns).collect()) == 3
    corrupt = modes["PERMISSIVE"].select(*columns, "_corrupt_record").collect()
    assert [row[-1] for row in corrupt] == [None, "no JSON", None, None]


@pytest.mark.parametrize(("name", "column"), [(" bad ", "bad"), ("", "_corrupt_record")])
def test_the_corrupt_column_has_one_name_for_whoever_reads_the_option(
    spark: SparkSession, servers: str, engine: str, bad_keys: str, name: str, column: str
) -> None:
    """The options trimmed the name, and took an empty one for the default; what decodes did not,
    and refused the schema, and the columnar engine left out the keys whose text is wanted."""
    options = {
        "subscribe": bad_keys,
        "columnNameOfCorruptRecord": name,
        "mode": " permissive ",
        "key.format": " JSON ",
        "key.schema": f"id INT, {column} STRING",
    }
    found = read(spark, engine, servers, options).select(column).collect()
    assert [row[0] for row in found] == [None, "no JSON", None, None]


def test_csv_is_what_from_csv_makes_of_it(spark: SparkSession, servers: str, engine: str) -> None:
    parsed = connector(spark, servers, "typed-csv").selectExpr(
        *PLACE, f"from_csv(CAST(value AS STRING), '{CSV_SCHEMA}') AS value"
    )
    options = {"subscribe": "typed-csv", "value.format": "csv", "value.schema": CSV_SCHEMA}
    fields = ("value.id", "value.city", "value.amount")
    found = rows(read(spark, engine, servers, options).select(*PLACE, *fields))
    assert len(found) == COUNT
    assert not differences(found, rows(parsed.select(*PLACE, *fields)))


def test_a_line_of_csv_has_the_columns_of_a_given_schema(
    spark: SparkSession, servers: str, engine: str
) -> None:
    """The columnar engine, which does not read the columns that a query leaves out, had taken the
    first column of the line for the first that is used."""
    options = {"subscribe": "typed-csv", "value.format": "csv"}
    whole = read(spark, engine, servers, {**options, "value.schema": CSV_SCHEMA})
    expected = rows(whole.select(*PLACE, "value.amount"))
    place = "topic STRING, partition INT, offset LONG"

    def given(schema: str, **more: str) -> DataFrame:
        named = {**options, **more, "kafka.bootstrap.servers": servers, "engine": engine}
        return spark.read.format("kafkalite").schema(f"{place}, {schema}").options(**named).load()

    nested = given(f"value STRUCT<{CSV_SCHEMA}>").select(*PLACE, "value.amount")
    assert not differences(rows(nested), expected)
    flat = given(f"{CSV_SCHEMA}, _corrupt_record STRING", **{"value.flatten": "true"})
    assert not differences(rows(flat.select(*PLACE, "amount")), expected)
    odd = given("value STRUCT<id LONG, city STRING, `amount, EUR` DOUBLE>")
    assert not differences(rows(odd.select(*PLACE, "value.`amount, EUR`")), expected)


def test_text_and_sizes_are_columns_of_their_own(
    spark: SparkSession, servers: str, engine: str
) -> None:
    columns = ("value_size", "offset", "value", "topic", "key_size", "key", "partition")
    options = {
        "subscribe": "typed-json",
        "value.format": "string",
        "key.format": "string",
        "columns": ",".join(columns),
    }
    frame = read(spark, engine, servers, options)
    assert tuple(frame.columns) == columns
    plain = connector(spark, servers, "typed-json").selectExpr(
        "length(value) AS value_size",
        "offset",
        "CAST(value AS STRING) AS value",
        "topic",
        "length(key) AS key_size",
        "CAST(key AS STRING) AS key",
        "partition",
    )
    assert not differences(rows(frame), rows(plain))
