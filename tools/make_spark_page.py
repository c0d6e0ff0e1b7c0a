#!/usr/bin/env python3
"""Writes the tables of options in docs/SPARK.md out of their rows in
`kafkalite.spark.options.rows`: `PYTHONPATH=python python tools/make_spark_page.py`.
tests/spark_plan holds the two together."""

import re
from pathlib import Path

from kafkalite.spark.options.rows import tables

PAGE = Path(__file__).resolve().parent.parent / "docs/SPARK.md"
TABLE = re.compile(r"^\| option \|.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)

if __name__ == "__main__":
    rows = iter(tables())
    page = TABLE.sub(lambda _: next(rows), PAGE.read_text())
    assert next(rows, None) is None, "a table has no place in the page"
    PAGE.write_text(page.rstrip() + "\n")
