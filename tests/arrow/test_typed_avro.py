"""Avro as columns, written by fastavro: the writer's schema, wanted fields only, and the header of
Confluent's Schema Registry."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import struct
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow.typed import log_of, open_log
from kafkalite.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "unwanted", "type": {"type": "map", "values": ["null", "Order"]}},
        {"name": "price", "type": "double"},
        {
            "name": "cost",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 3}},
        {"name": "tags", "type": {"type": "array", "items": ["string", "null"]}},
        {
            "name": "point",
            "type": {
                "type": "record",
                "name": "Point",
                "fields": [{"name": "y", "type": "float"}, {"name": "x", "type": "int"}],
            },
        },
        {"name": "sizes", "type": {"type": "map", "values": "Point"}},
    ],
}
POINT = pa.struct([("x", pa.int64()), ("y", pa.float64())])
FIELDS = pa.schema(
    [
        ("id", pa.int64()),
        ("count", pa.int64()),
        ("name", pa.utf8()),
        ("price", pa.float64()),
        ("cost", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("kind", pa.utf8()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.field("element", pa.utf8()))),
        ("point", POINT),
        ("sizes", pa.map_(pa.utf8(), POINT)),
        ("absent", pa.utf8()),
    ]
)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
points = st.fixed_dictionaries(
    {"x": st.integers(-(2**31), 2**31 - 1), "y": st.floats(width=32, allow_nan=False)}
)
orders = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "count": st.integers(-(2**31), 2**31 - 1),
        "name": text | st.none(),
        "unwanted": st.just({}),
        "price": st.floats(allow_nan=False),
        "cost": st.integers(-(10**12) + 1, 10**12 - 1).map(
            lambda cents: decimal.Decimal(cents).scaleb(-2)
        ),
        "at": st.integers(-(10**12), 10**13).map(
            lambda ms: EPOCH + datetime.timedelta(milliseconds=ms)
        ),
        "day": st.dates() | st.none(),
        "kind": st.sampled_from("ab"),
        "raw": st.binary(min_size=3, max_size=3),
        "tags": st.lists(text | st.none(), max_size=4),
        "point": points,
        "sizes": st.dictionaries(text, points, max_size=3),
    }
)


def encode(order: dict[str, Any], schema: dict[str, Any] = SCHEMA) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), order)
    return out.getvalue()


def read(log: Path, schema: pa.Schema, **formats: str) -> list[Any]:
    options = {"value.format": "avro", **formats}
    table = pa.table(open_log(log, value_schema=schema, columns=["value"], formats=options))
    values: list[Any] = table.column("value").to_pylist()
    return values


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(st.lists(orders, min_size=1, max_size=8))
def test_rows_are_what_fastavro_wrote(
    tmp_path_factory: pytest.TempPathFactory, given_orders: list[dict[str, Any]]
) -> None:
    for order in given_orders[1:]:
        order["unwanted"] = {"next": given_orders[0], "none": None}
    records = [(None, encode(order)) for order in given_orders]
    log = log_of(tmp_path_factory.mktemp("avro"), records)
    found = read(log, FIELDS, **{"value.avro.schema": json.dumps(SCHEMA)})
    for row, order in zip(found, given_orders, strict=True):
        assert row.pop("absent") is None
        sizes = dict(row.pop("sizes"))
        assert sizes == order["sizes"]
        assert row == {name: order[name] for name in row}


def test_the_header_of_the_registry_chooses_the_schema(tmp_path: Path) -> None:
    def schema(name: str) -> dict[str, Any]:
        fields = [{"name": name, "type": "int"}]
        return {"type": "record", "name": "R", "fields": fields}

    def value(number: int, name: str) -> bytes:
        return struct.pack(">bI", 0, number) + encode({name: number}, schema(name))

    log = log_of(
        tmp_path,
        [(None, value(1, "a")), (None, value(2, "b")), (None, value(3, "a")), (None, b"\x00\x00")],
    )
    wanted = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    registry = json.dumps({"1": schema("a"), "2": json.dumps(schema("b"))})
    formats = {"value.avro.header": "confluent", "value.avro.registry": registry}
    assert read(log, wanted, **formats) == [
        {"a": 1, "b": None},
        {"a": None, "b": 2},
        {"a": None, "b": None},
        {"a": None, "b": None},
    ]
    with pytest.raises(pa.ArrowInvalid, match=r"typed-0 at offset 2 .* none of the registry"):
        read(log, wanted, mode="FAILFAST", **formats)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ('"int"', "value.avro.schema: the schema is not that of a record"),
        ("{", "value.avro.schema: EOF"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"S"}]}', "type 'S' is not def"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}',
            "field 'a' of the writer cannot become Int32",
        ),
    ],
)
def test_a_schema_that_does_not_go_together_is_refused(
    tmp_path: Path, schema: str, sentence: str
) -> None:
    log = log_of(tmp_path, [(None, b"")])
    with pytest.raises(InvalidArgumentError, match=sentence):
        read(log, pa.schema([("a", pa.int32())]), **{"value.avro.schema": schema})
