"""JSON as columns: what Python's own JSON makes of the same texts, bad records kept, left out or
refused, and only what is wanted decoded."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalite
from arrow.typed import log_of, open_log
from kafkalite.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path

POINT = pa.struct([("x", pa.int64()), ("label", pa.utf8())])
FIELDS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.utf8()),
        ("price", pa.float64()),
        ("ok", pa.bool_()),
        ("point", POINT),
        ("tags", pa.list_(pa.field("element", pa.utf8()))),
        ("path", pa.list_(pa.field("element", POINT))),
    ]
)
CORRUPT = pa.field("_corrupt_record", pa.utf8())

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
integers = st.integers(-(2**63), 2**63 - 1)
points = st.fixed_dictionaries({}, optional={"x": integers | st.none(), "label": text | st.none()})
rows = st.fixed_dictionaries(
    {},
    optional={
        "id": integers | st.none(),
        "name": text | st.none(),
        "price": st.floats(allow_nan=False, allow_infinity=False) | st.none(),
        "ok": st.booleans() | st.none(),
        "point": points | st.none(),
        "tags": st.lists(text | st.none(), max_size=4) | st.none(),
        "path": st.lists(points, max_size=3) | st.none(),
        "unwanted": st.recursive(text | st.none() | integers, st.lists, max_leaves=5),
    },
)


def typed(log: Path, schema: pa.Schema, columns: list[str], **formats: str) -> pa.Table:
    options = {"value.format": "json", **formats}
    return pa.table(open_log(log, value_schema=schema, columns=columns, formats=options))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=settings.default.max_examples // 2,
    deadline=None,
)
@given(st.lists(rows, min_size=1, max_size=20), st.booleans())
def test_rows_are_those_of_pyarrow(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[dict[str, Any]], ascii_only: bool
) -> None:
    texts = [json.dumps(row, ensure_ascii=ascii_only).encode() for row in given_rows]
    log = log_of(tmp_path_factory.mktemp("json"), [(None, each) for each in texts])
    found = typed(log, FIELDS, ["value"]).column("value").to_pylist()
    options = pyarrow.json.ParseOptions(
        explicit_schema=FIELDS, unexpected_field_behavior="ignore", newlines_in_values=False
    )
    expected = pyarrow.json.read_json(io.BytesIO(b"\n".join(texts)), parse_options=options)
    assert found == expected.select(FIELDS.names).to_pylist()


RECORDS: list[tuple[bytes | None, bytes | None]] = [
    (b"k", b'{"id":1,"name":"one"}'),
    (b"k", b'{"id":"two","name":"two"}'),
    (b"k", None),
    (b"k", b"no json"),
    (b"k", b'{"name":"five","id":5,"id":6}'),
]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log_of(tmp_path_factory.mktemp("json"), RECORDS)


SMALL = pa.schema([("id", pa.int32()), ("name", pa.utf8()), CORRUPT])


def test_permissive_keeps_the_text_of_a_bad_record_and_the_fields_that_are_good(log: Path) -> None:
    table = typed(log, SMALL, ["offset", "value", "_corrupt_record"])
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (0, {"id": 1, "name": "one"}, None),
        (1, {"id": None, "name": "two"}, '{"id":"two","name":"two"}'),
        (2, None, None),
        (3, {"id": None, "name": None}, "no json"),
        (4, {"id": 6, "name": "five"}, None),
    ]


def test_flattened_fields_stand_beside_kafkas_columns_in_the_order_asked_for(log: Path) -> None:
    table = typed(log, SMALL, ["name", "offset", "value_size", "id"], **{"value.flatten": "true"})
    assert table.schema.names == ["name", "offset", "value_size", "id"]
    assert table.to_pylist()[4] == {"name": "five", "offset": 4, "value_size": 29, "id": 6}
    assert table.column("id").to_pylist() == [1, None, None, None, 6]


@pytest.mark.parametrize("rows_a_batch", [1, 2, 1000])
def test_dropmalformed_leaves_bad_records_out(log: Path, rows_a_batch: int) -> None:
    read = open_log(
        log,
        value_schema=SMALL,
        columns=["offset", "value"],
        formats={"value.format": "json", "mode": "dropMalformed"},
        batch_rows=rows_a_batch,
    )
    batches = list(pa.RecordBatchReader.from_stream(read))
    assert all(batch.num_rows > 0 for batch in batches)
    assert [row for batch in batches for row in batch.column("offset").to_pylist()] == [0, 2, 4]


def test_failfast_names_partition_offset_and_field(log: Path) -> None:
    sentence = "the value of typed-0 at offset 1 is not the json .* field 'id' is no Int32"
    with pytest.raises(pa.ArrowInvalid, match=sentence):
        typed(log, SMALL, ["value"], mode="FAILFAST")


def test_options_say_what_an_argument_could(log: Path) -> None:
    """`mode` and formats among `format_options` were taken without a word, and had no effect."""
    options = {"value.format": "json", "mode": "FAILFAST"}
    with pytest.raises(pa.ArrowInvalid, match="the value of typed-0 at offset 1 is not the json"):
        pa.table(kafkalite.read_log(log, value_schema=SMALL, format_options=options))
    with pytest.raises(InvalidArgumentError, match=r"^mode=X, and format_options has mode=FAILFAS"):
        kafkalite.read_log(log, value_schema=SMALL, mode="X", format_options=options)


def test_what_is_not_decoded_cannot_be_bad(log: Path) -> None:
    names = pa.schema([("name", pa.utf8())])
    table = typed(log, names, ["offset", "value"], mode="DROPMALFORMED")
    assert table.column("offset").to_pylist() == [0, 1, 2, 4]
    assert typed(log, SMALL, ["offset"], mode="FAILFAST").num_rows == len(RECORDS)


def test_a_key_can_be_typed_too(tmp_path: Path) -> None:
    log = log_of(tmp_path, [(b'{"id":1}', b"a"), (b"?", b"b")])
    table = pa.table(
        kafkalite.read_log(
            log,
            columns=["key", "value", "_corrupt_record"],
            key_format="json",
            value_format="string",
            key_schema=pa.schema([("id", pa.int32()), CORRUPT]),
        )
    )
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        ({"id": 1}, "a", None),
        ({"id": None}, "b", "?"),
    ]


@pytest.mark.parametrize(
    ("fields", "formats", "sentence"),
    [
        ([], {"value.format": "json"}, "value.format=json needs a schema"),
        (
            [("offset", pa.int32())],
            {"value.format": "json", "value.flatten": "true"},
            "field 'offset' of the value has the name of another column",
        ),
        (
            [("id", pa.date64())],
            {"value.format": "json"},
            "field 'id' of the value cannot be Date64",
        ),
        (
            [pa.field("id", pa.int32(), nullable=False)],
            {"value.format": "json"},
            "field 'id' of the value, and all within it, must be nullable",
        ),
        ([("id", pa.int32())], {}, "value_schema is given, but value.format=binary has no fields"),
        ([("id", pa.int32())], {"value.format": "json", "mode": "LAX"}, "mode=LAX is unknown"),
        (
            [CORRUPT],
            {"value.format": "json"},
            "the schema has '_corrupt_record' but no field",
        ),
        (
            [("id", pa.list_(pa.field("element", pa.int32())))],
            {"value.format": "csv"},
            "field 'id' of the value cannot be List",
        ),
        (
            [("id", pa.int32())],
            {"value.format": "csv", "value.csv.columns": "a,b"},
            "field 'id' is none of value.csv.columns=a,b",
        ),
        (
            [("id", pa.int32())],
            {"value.format": "avro"},
            "value.format=avro needs value.avro.schema",
        ),
    ],
)
def test_what_cannot_be_typed_is_refused_in_a_sentence(
    log: Path, fields: list[Any], formats: dict[str, str], sentence: str
) -> None:
    schema = pa.schema(fields) if fields else None
    with pytest.raises(InvalidArgumentError, match=sentence):
        open_log(log, value_schema=schema, formats=formats)
