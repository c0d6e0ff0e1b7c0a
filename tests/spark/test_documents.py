"""The examples of docs/SPARK.md and docs/PIPELINES.md run as they stand there, in their order."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql import SparkSession

import kafkalite
import kafkalite.spark
from kafkalite import Broker
from spark.programs import pipeline
from spark.records import create
from spark.session import JVM_FLAGS
from spark.test_writing import values

pytestmark = pytest.mark.oracle

PAGES = Path(__file__).parents[2] / "docs"
SERVERS, CHECKPOINTS = "127.0.0.1:9092", "checkpoints/"


def examples(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


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
    found = examples("SPARK.md")
    assert len(found) == 5
    for example in found:
        if "remote(" in example:
            continue
        local = example.replace(SERVERS, servers).replace(CHECKPOINTS, f"{tmp_path}/")
        exec(local, program)  # noqa: S102
    assert "|" in capsys.readouterr().out, "nothing was shown"
    assert sorted(values(servers, "shouted")) == ["A", "B"]
    assert sorted(values(servers, "copied")) == ["a", "b"]
    assert sorted(values(servers, "orders")) == ["250", "a", "b"]
    assert program["written"].records_count == 1


def test_the_sinks_of_the_page_store_each_record_once(
    spark: SparkSession, own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A micro-batch that is repeated, since Spark had not recorded it as done, changes nothing."""
    servers = own_broker.bootstrap_servers
    create(servers, "orders", 2)
    values = ['{"id": 1, "city": "Oslo", "cents": 250}', '{"id": 2, "city": "Lima", "cents": 990}']
    kafkalite.write_arrow(pyarrow.table({"value": values}), "orders", servers)
    monkeypatch.setattr(kafkalite.spark, "session", lambda *_, **__: spark)
    # Delta's settings are those of the start of a session, and this one is the whole suite's.
    spark.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
    programs = examples("PIPELINES.md")
    assert len(programs) == 2
    with pipeline("postgres", monkeypatch).server() as database:
        for is_repeated in (False, True):
            told: dict[str, Any] = {}
            for example in programs:
                local = example.replace("localhost:9092", servers).replace("dbname=shop", database)
                local = local.replace("checkpoints/", f"{tmp_path}/checkpoints/")
                local = local.replace("tables/orders", f"{tmp_path}/tables/orders")
                exec(local, told)  # noqa: S102
            for sink in ("delta", "postgres"):
                done = tmp_path / "checkpoints" / sink / "commits"
                assert {each.name for each in done.glob("[0-9]*")} == {"0"}
                if not is_repeated:
                    (done / "0").unlink()
                    (done / ".0.crc").unlink(missing_ok=True)
            with told["psycopg"].connect(database) as connection:
                stored = connection.execute("SELECT * FROM orders ORDER BY id").fetchall()
            table = spark.read.format("delta").load(str(tmp_path / "tables" / "orders"))
            expected = [(1, "Oslo", 250), (2, "Lima", 990)]
            assert stored == sorted(map(tuple, table.collect())) == expected


@pytest.mark.long
def test_the_quick_start_of_the_page_keeps_a_table_up_to_date(
    own_broker: Broker, tmp_path: Path
) -> None:
    """Its commands as they are, but for the installation, and the broker's start and port."""
    first, second, *_ = examples("PIPELINES.md", "sh")
    lines = [
        line
        for line in (first + second).splitlines()
        if not line.startswith(("pip install", "kafkalite serve"))
    ]
    script = "\n".join(["set -e", *lines]).replace("localhost:9092", own_broker.bootstrap_servers)
    for command in ("kafkalite topics create orders", "kafkalite produce orders"):
        assert command in script
        flag = f"--bootstrap-server {own_broker.bootstrap_servers}"
        script = script.replace(command, f"{command} {flag}")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "JDK_JAVA_OPTIONS": " ".join(JVM_FLAGS)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    rows = [line.split("|")[1:-1] for line in ran.stdout.splitlines() if line.startswith("|")]
    cells = sorted([cell.strip() for cell in row] for row in rows[1:])
    assert cells == [["1", "Oslo", "250"], ["2", "Lima", "990"]]
