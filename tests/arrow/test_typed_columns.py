"""What a row looks like: any subset of the columns in any order, with the exact types that Spark
compares, keys and values as text, and their sizes without their bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow.typed import log_of, open_log
from kafkalite._native import FetchRead, LogRead
from kafkalite.errors import InvalidArgumentError

SPARK = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.utf8()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field(
            "headers",
            pa.list_(pa.field("element", pa.struct([("key", pa.utf8()), ("value", pa.binary())]))),
        ),
        pa.field("key_size", pa.int32()),
        pa.field("value_size", pa.int32()),
    ]
)
RECORDS: list[tuple[bytes | None, bytes | None]] = [
    (b"k", b"one"),
    (None, "zwölf".encode()),
    (b"", None),
    (b"k\xff", b"a\xff\xffb"),
]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log_of(tmp_path_factory.mktemp("typed"), RECORDS)


@settings(deadline=None)
@given(st.lists(st.sampled_from(SPARK.names), unique=True, min_size=1))
def test_any_subset_of_the_columns_in_any_order_has_exactly_the_schema_asked_for(
    log: Path, names: list[str]
) -> None:
    schema = pa.schema([SPARK.field(name) for name in names])
    table = pa.table(open_log(log, schema=schema))
    assert table.schema.equals(schema, check_metadata=True)
    whole = pa.table(open_log(log, schema=SPARK))
    assert table.equals(whole.select(names))


def test_sizes_are_those_of_the_bytes_and_null_for_null(log: Path) -> None:
    table = pa.table(open_log(log, columns=["key_size", "value_size"]))
    assert table.column("key_size").to_pylist() == [1, None, 0, 2]
    assert table.column("value_size").to_pylist() == [3, 6, None, 4]


def test_text_has_the_replacement_character_where_bytes_are_no_utf8(log: Path) -> None:
    formats = {"key.format": "string", "value.format": "string"}
    table = pa.table(open_log(log, columns=["value", "key"], formats=formats))
    assert table.schema.types == [pa.utf8(), pa.utf8()]
    assert table.column("key").to_pylist() == ["k", None, "", "k\ufffd"]
    assert table.column("value").to_pylist() == ["one", "zwölf", None, "a\ufffd\ufffdb"]


def test_a_list_of_headers_may_call_its_items_as_it_likes(log: Path) -> None:
    items = pa.struct([("key", pa.utf8()), ("value", pa.binary())])
    schema = pa.schema([("headers", pa.list_(pa.field("item", items)))])
    assert pa.table(open_log(log, schema=schema)).schema.equals(schema)


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (
            pa.field("value", pa.large_binary()),
            "column 'value' is Binary, but the schema",
        ),
        (
            pa.field("topic", pa.large_utf8()),
            "column 'topic' is Utf8, but the schema",
        ),
        (pa.field("timestamp", pa.timestamp("ms", "UTC")), "column 'timestamp' is Timestamp"),
        (pa.field("timestamp", pa.timestamp("us", "CET")), "column 'timestamp' is Timestamp"),
        (
            pa.field("partition", pa.int64()),
            "column 'partition' is Int32, but the schema",
        ),
        (
            pa.field("offset", pa.int64(), nullable=False),
            "column 'offset' of the schema must",
        ),
        (pa.field("city", pa.utf8()), "unknown column 'city': the columns are key, value,"),
    ],
)
def test_a_schema_that_rows_cannot_have_is_refused_by_the_column(
    log: Path, field: pa.Field, sentence: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        open_log(log, schema=pa.schema([field]))
    with pytest.raises(InvalidArgumentError, match=sentence):
        FetchRead(
            lambda: None,
            ranges=[],
            columns=None,
            batch_rows=10,
            batch_bytes=1000,
            schema=pa.schema([field]),
        )


@pytest.mark.parametrize(
    ("formats", "sentence"),
    [
        (
            {"value.format": "xml"},
            "value.format=xml is unknown: it is binary, string, json, avro or csv",
        ),
        ({"value.fromat": "string"}, "formats has no option value.fromat"),
    ],
)
def test_an_option_that_there_is_not_is_refused_by_its_name(
    log: Path, formats: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        open_log(log, formats=formats)


def test_columns_are_chosen_from_the_schema(log: Path) -> None:
    read: LogRead = open_log(log, schema=SPARK, columns=["value_size", "offset"])
    assert [name for name, _ in read.columns] == ["value_size", "offset"]
    with pytest.raises(InvalidArgumentError, match="unknown column 'key': the columns are offset"):
        open_log(log, schema=pa.schema([SPARK.field("offset")]), columns=["key"])
