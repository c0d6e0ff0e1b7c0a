"""The examples of docs/SPARK.md run as they stand there, in their order."""

import re
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql import SparkSession

import kafkalite
import kafkalite.spark
from kafkalite import Broker
from spark.records import create
from spark.test_writing import values

pytestmark = pytest.mark.oracle

PAGE = Path(__file__).parents[2] / "docs" / "SPARK.md"
SERVERS, CHECKPOINTS = "127.0.0.1:9092", "checkpoints/"


def test_the_examples_of_the_page_run(
    spark: SparkSession,
    own_broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers = own_broker.bootstrap_servers
    create(servers, "orders", 2)
    kafkalite.write_arrow(pyarrow.table({"value": ["a", "b"]}), "orders", servers)
    # A JVM has one session, which is the suite's (`test_session.py` and `test_connect.py` have
    # those that are made here).
    monkeypatch.setattr(kafkalite.spark, "session", lambda *_, **__: spark)
    program: dict[str, Any] = {}
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 5
    for example in examples:
        if "remote(" in example:
            continue
        local = example.replace(SERVERS, servers).replace(CHECKPOINTS, f"{tmp_path}/")
        exec(local, program)  # noqa: S102
    assert "|" in capsys.readouterr().out, "nothing was shown"
    assert sorted(values(servers, "shouted")) == ["A", "B"]
    assert sorted(values(servers, "copied")) == ["a", "b"]
    assert sorted(values(servers, "orders")) == ["250", "a", "b"]
    assert program["written"].records_count == 1
