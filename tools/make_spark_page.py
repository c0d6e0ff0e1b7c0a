#!/usr/bin/env python3
"""Writes the table of options in docs/SPARK.md out of their rows in `kafkalite.spark.options.rows`:
`PYTHONPATH=python python tools/make_spark_page.py`. tests/spark_plan holds the two together."""

import re
from pathlib import Path

from kafkalite.spark.options.rows import table

PAGE = Path(__file__).resolve().parent.parent / "docs/SPARK.md"
TABLE = re.compile(r"^\| option \|.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)

if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(TABLE.sub(lambda _: table(), page, count=1).rstrip() + "\n")
