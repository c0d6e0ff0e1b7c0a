"""CSV as columns, as pyarrow.csv reads the same lines."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow.typed import log_of, open_log
from kafkalite.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = pa.schema(
    [("id", pa.int64()), ("name", pa.utf8()), ("price", pa.float64()), ("ok", pa.bool_())]
)

# Univocity, which Spark reads CSV with, takes a backslash for an escape, pyarrow's does not.
text = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='\\"'), max_size=9)
rows = st.tuples(
    st.integers(-(2**63), 2**63 - 1) | st.none(),
    text,
    st.floats(allow_nan=False, allow_infinity=False) | st.none(),
    st.sampled_from(["true", "false", ""]),
)


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(st.lists(rows, min_size=1, max_size=20), st.sampled_from([",", ";", "|"]))
def test_rows_are_those_of_pyarrow(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[tuple[object, ...]], sep: str
) -> None:
    lines = []
    for row in given_rows:
        line = io.StringIO()
        csv.writer(line, delimiter=sep, lineterminator="").writerow(row)
        lines.append(line.getvalue().encode())
    log = log_of(tmp_path_factory.mktemp("csv"), [(None, line) for line in lines])
    formats = {"value.format": "csv", "value.flatten": "true", "sep": sep}
    found = pa.table(
        open_log(log, value_schema=FIELDS, columns=FIELDS.names, formats=formats)
    ).to_pylist()
    expected = pyarrow.csv.read_csv(
        io.BytesIO(b"\n".join(lines) + b"\n"),
        read_options=pyarrow.csv.ReadOptions(column_names=FIELDS.names),
        parse_options=pyarrow.csv.ParseOptions(delimiter=sep, ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=FIELDS, null_values=[""], strings_can_be_null=True
        ),
    ).to_pylist()
    assert found == expected


def test_a_list_in_json_has_names_with_commas_and_blanks(tmp_path: Path) -> None:
    log = log_of(tmp_path, [(None, b"1,one,1.5")])
    schema = pa.schema([(" price, EUR", pa.float64())])
    formats = {"value.format": "csv", "value.csv.columns": '["id", "name", " price, EUR"]'}
    table = pa.table(open_log(log, value_schema=schema, columns=["value"], formats=formats))
    assert table.to_pylist() == [{"value": {" price, EUR": 1.5}}]
    with pytest.raises(InvalidArgumentError, match=r"value.csv.columns begins with '\['"):
        open_log(log, value_schema=schema, formats=formats | {"value.csv.columns": "[id"})


def test_a_pruned_line_is_read_by_the_places_of_its_columns(tmp_path: Path) -> None:
    log = log_of(tmp_path, [(None, b"1,one,1.5"), (None, b"2,two"), (None, b"3,three,x")])
    schema = pa.schema([("price", pa.float64()), ("_corrupt_record", pa.utf8())])
    formats = {"value.format": "csv", "value.csv.columns": "id,name,price"}
    table = pa.table(
        open_log(log, value_schema=schema, columns=["value", "_corrupt_record"], formats=formats)
    )
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        ({"price": 1.5}, None),
        ({"price": None}, "2,two"),
        ({"price": None}, "3,three,x"),
    ]
