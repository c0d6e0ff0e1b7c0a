"""Avro values through Spark as fastavro, which wrote them, reads them: with the schema given, and
with the header of Confluent's Schema Registry."""

import datetime
import decimal
import io
import json
import random
import struct
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from kafkalite import Broker
from oracle.tools import Record
from spark.reading import read
from spark.records import START_MS, create, send

pytestmark = pytest.mark.oracle

COUNT = 300
SEED = 7
POINT = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "y", "type": "float"}, {"name": "x", "type": "int"}],
}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
WRITTEN: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "unwanted", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": "double"},
        {"name": "cost", "type": DECIMAL},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 3}},
        {"name": "tags", "type": {"type": "array", "items": ["string", "null"]}},
        {"name": "point", "type": POINT},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
    ],
}
# Another order, wider numbers, a field that the writer does not have.
WANTED = (
    "name STRING, id LONG, count LONG, price DOUBLE, cost DECIMAL(12,2), at TIMESTAMP, day DATE, "
    "kind STRING, raw BINARY, tags ARRAY<STRING>, point STRUCT<x: LONG, y: DOUBLE>, "
    "sizes MAP<STRING, INT>, absent STRING"
)
FIELDS = "name id count price cost at day kind raw tags point sizes absent".split()  # noqa: SIM905
# What a registry has beside: an older writer.
OLDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}],
}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def orders() -> list[dict[str, Any]]:
    draw = random.Random(SEED)
    return [
        {
            "id": draw.choice([number, -(2**63), 2**63 - 1]),
            "count": draw.randrange(-(2**31), 2**31),
            "unwanted": draw.choice([[], [None, "x" * number]]),
            "name": draw.choice([None, "", "Köln", "新潟"]),
            "price": draw.uniform(-1e9, 1e9),
            "cost": decimal.Decimal(draw.randrange(-(10**11), 10**11)).scaleb(-2),
            "at": EPOCH + datetime.timedelta(milliseconds=draw.randrange(10**12)),
            "day": draw.choice([None, datetime.date(1900, 1, 1), datetime.date(2024, 2, 29)]),
            "kind": draw.choice("ab"),
            "raw": draw.randbytes(3),
            "tags": draw.choice([[], ["a", None], ["b"]]),
            "point": {"x": number, "y": draw.randrange(1000) / 8},
            "sizes": {f"k{at}": at for at in range(draw.randrange(3))},
        }
        for number in range(COUNT)
    ]


def encode(order: dict[str, Any], schema: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), order)
    return out.getvalue()


def decode(value: bytes, schema: dict[str, Any]) -> dict[str, Any]:
    """The wanted fields, as fastavro reads them."""
    found: Any = fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(schema), None)
    return {name: found.get(name) for name in FIELDS}


def values(spark: SparkSession, engine: str, servers: str, **options: str) -> list[Any]:
    """By the offset; maps as dictionaries."""
    frame = read(spark, engine, servers, {"value.format": "avro", **options})
    table = frame.select("offset", "value").toArrow().sort_by("offset")
    found = table.column("value").to_pylist()
    for each in found:
        if each is not None and each["sizes"] is not None:
            each["sizes"] = dict(each["sizes"])
    return found


def topic_of(servers: str, name: str, engine: str, payloads: list[bytes]) -> str:
    topic = f"avro-{name}-{engine}"
    create(servers, topic)
    send(servers, [Record(topic, each, timestamp=START_MS) for each in payloads], "zstd")
    return topic


def test_values_are_what_fastavro_reads(spark: SparkSession, broker: Broker, engine: str) -> None:
    servers = broker.bootstrap_servers
    payloads = [encode(order, WRITTEN) for order in orders()]
    found = values(
        spark,
        engine,
        servers,
        **{
            "subscribe": topic_of(servers, "plain", engine, payloads),
            "value.schema": WANTED,
            "value.avro.schema": json.dumps(WRITTEN),
            "batch.rows": "70",
        },
    )
    assert found == [decode(each, WRITTEN) for each in payloads]


def test_the_header_of_the_registry_chooses_the_schema(
    spark: SparkSession, broker: Broker, engine: str
) -> None:
    servers = broker.bootstrap_servers
    payloads, expected = [], []
    for number, order in enumerate(orders()):
        schema_id = 12 if number % 3 else 7
        schema = WRITTEN if number % 3 else OLDER
        body = encode(order if number % 3 else {"id": number, "name": f"{number}"}, schema)
        payloads.append(struct.pack(">bI", 0, schema_id) + body)
        expected.append(decode(body, schema))
    # An id that the registry does not have, and a value without a header.
    payloads += [struct.pack(">bI", 0, 99) + payloads[1][5:], b""]
    options = {
        "subscribe": topic_of(servers, "registry", engine, payloads),
        "value.schema": WANTED,
        "value.avro.header": "confluent",
        "value.avro.registry": json.dumps({"7": OLDER, "12": WRITTEN}),
    }
    bad = dict.fromkeys(expected[0])
    assert values(spark, engine, servers, **options) == [*expected, bad, bad]
    with pytest.raises(Exception, match=rf"{options['subscribe']}-0 at offset {COUNT}"):
        values(spark, engine, servers, **options, mode="FAILFAST")


def test_a_registry_may_be_longer_than_a_mebibyte(
    spark: SparkSession, broker: Broker, engine: str
) -> None:
    """All options are one request to the columnar engine, which took no more than that."""
    servers = broker.bootstrap_servers
    body = encode({"id": 1, "name": "1"}, OLDER)
    documented = {**OLDER, "doc": "why it is as it is; " * 70_000}
    options = {
        "subscribe": topic_of(servers, "long", engine, [struct.pack(">bI", 0, 7) + body]),
        "value.schema": WANTED,
        "value.avro.header": "confluent",
        "value.avro.registry": json.dumps({"7": documented}),
    }
    assert values(spark, engine, servers, **options) == [decode(body, OLDER)]
