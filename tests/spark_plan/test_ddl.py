"""Schemas as DDL: the fields at the top, and what Spark would not take."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.errors import InvalidArgumentError
from kafkalite.spark.options.ddl import read_fields


@pytest.mark.parametrize(
    ("ddl", "fields"),
    [
        ("id LONG", {"id": "id LONG"}),
        ("  id long ,city:string ", {"id": "id long", "city": "city:string"}),
        ("`a``b, c` INT NOT NULL, 2d DATE", {"a`b, c": "`a``b, c` INT NOT NULL", "2d": "2d DATE"}),
        (
            "a STRUCT<x: INT, y: STRUCT<>> COMMENT 'one, two', b ARRAY<STRUCT<z DOUBLE>>",
            {
                "a": "a STRUCT<x: INT, y: STRUCT<>> COMMENT 'one, two'",
                "b": "b ARRAY<STRUCT<z DOUBLE>>",
            },
        ),
        ("m MAP<STRING, DECIMAL(38,18)>", {"m": "m MAP<STRING, DECIMAL(38,18)>"}),
    ],
)
def test_fields_are_told_apart(ddl: str, fields: dict[str, str]) -> None:
    assert {each.name: each.text for each in read_fields("value.schema", ddl)} == fields


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("", "a name is missing"),
        ("id", "id has no type"),
        ("id LONGISH", "'LONGISH' is no type"),
        ("id LONG,", "a name is missing"),
        ("id LONG city STRING", "'city' is not expected"),
        ("id ARRAY<LONG", "'>' is missing"),
        ("id ARRAY LONG", "'<' is missing before 'LONG'"),
        ("id MAP<STRING>", "',' is missing before '>'"),
        ("id DECIMAL(10", "')' is missing"),
        ("<", "a name is missing before '<'"),
        ("`id LONG", "a name is missing before '`'"),
    ],
)
def test_what_spark_would_not_take_is_refused_by_the_option(ddl: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_fields("value.schema", ddl)
    assert str(caught.value).startswith("value.schema is '")
    assert words in str(caught.value)


@given(st.text(alphabet="ab1 `',:<>()INTARRAYSTRUCT\n", max_size=40))
def test_any_text_is_read_or_refused(ddl: str) -> None:
    with contextlib.suppress(InvalidArgumentError):
        assert read_fields("value.schema", ddl)
