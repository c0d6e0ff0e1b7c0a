"""The pipelines in `spark/`, at small sizes, by what they leave behind."""

import argparse
import importlib
import importlib.util
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pyarrow
import pyspark
import pytest
from pyspark.errors import PySparkRuntimeError, StreamingQueryException
from pyspark.sql import SparkSession

import kafkalite
import kafkalite.spark
from kafkalite import Broker
from kafkalite.spark.home import home_without_archives
from spark.programs import FOLDER, pipeline
from spark.session import JVM_FLAGS

NAMES = (
    "windowed_counts",
    "json_to_parquet",
    "enrich_from_jdbc",
    "declarative_tables",
    "payments_to_postgres",
    "payments_to_delta",
    "changes_to_delta",
    "windows_to_table",
    "orders_to_postgres",
)


def flags(module: ModuleType, *given: str) -> argparse.Namespace:
    """What its command line makes of flags."""
    parsed: argparse.Namespace = module.command_line().parse_args(given)
    parsed.seed = 1
    return parsed


def test_windowed_counts_have_what_is_late_and_not_what_the_watermark_has_passed(
    spark: SparkSession, own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = pipeline("windowed_counts", monkeypatch)
    monkeypatch.setattr(counts, "BATCHES", 8)
    plot = tmp_path / "counts.png"
    options = flags(counts, "--events", "4000", "--plot", str(plot))

    windows = counts.run(spark, own_broker, tmp_path, options)

    # A micro-batch has 500 events; Spark drops by the watermark of the micro-batch before, which
    # comes of all events before that one (SPARK-40925).
    expected: Counter[int] = Counter()
    arriving = counts.events(options.events, options.seed)
    for start in range(0, len(arriving), 500):
        known = [event.made_ms for event in arriving[: max(0, start - 500)]]
        watermark_ms = max(known, default=0) - counts.WATERMARK_MS
        batch = arriving[start : start + 500]
        taken = [e for e in batch if e.window_ms + counts.WINDOW_MS > watermark_ms]
        expected.update(event.window_ms for event in taken)
    assert {window.start_ms: window.counted for window in windows} == expected
    assert sum(window.counted for window in windows) > sum(w.sent_in_time for w in windows)
    assert sum(window.dropped for window in windows) > 20
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_windows_are_a_table_in_a_compacted_topic(
    spark: SparkSession, own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = pipeline("windows_to_table", monkeypatch)
    monkeypatch.setattr(windows, "BATCHES", 3)

    found = windows.run(spark, own_broker, tmp_path, flags(windows, "--events", "3000"))

    assert sum(found.values()) == 3000
    written = kafkalite.read_arrow(windows.TABLE, own_broker.bootstrap_servers, columns=["key"])
    assert pyarrow.table(written).num_rows > len(found), "no window was counted twice"


def test_parquet_holds_each_json_record_once_over_a_restart(
    spark: SparkSession, own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_parquet = pipeline("json_to_parquet", monkeypatch)
    out = tmp_path / "orders"

    found = to_parquet.run(
        spark, own_broker, tmp_path, flags(to_parquet, "--orders", "6000", "--out", str(out))
    )

    assert found.is_exact
    assert found.broken > 0
    assert min(found.batches) >= 2
    files = spark.read.parquet(str(out))
    types = {field.name: field.dataType.simpleString() for field in files.schema}
    assert types == {
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "id": "bigint",
        "city": "string",
        "amount": "double",
        "items": "int",
        "_corrupt_record": "string",
    }
    assert files.where("id is not null").select("id").distinct().count() == 6000 - found.broken


def test_payments_are_enriched_as_sql_would_join_them(
    spark: SparkSession, own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enrich = pipeline("enrich_from_jdbc", monkeypatch)

    totals = enrich.run(spark, own_broker, tmp_path, flags(enrich, "--payments", "3000"))

    assert sum(total.payments for total in totals) == 3000
    assert {total.country for total in totals} == {*enrich.COUNTRIES, None}
    written = kafkalite.read_arrow(enrich.ENRICHED, own_broker.bootstrap_servers, columns=["key"])
    keys = Counter(pyarrow.table(written).column("key").to_pylist())
    named = {total.country and total.country.encode(): total.payments for total in totals}
    assert keys == named


def test_declarative_tables_have_each_order_once_after_each_run(
    spark: SparkSession, own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = pipeline("declarative_tables", monkeypatch)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", " ".join(JVM_FLAGS))
    home = home_without_archives(Path(pyspark.__file__).parent, tmp_path / "home")
    monkeypatch.setenv("SPARK_HOME", str(home))

    first, second = tables.run(spark, own_broker, tmp_path, flags(tables, "--orders", "2000"))

    assert [len(found.orders) for found in (first, second)] == [1000, 2000]
    assert second.minutes[: len(first.minutes)] == first.minutes
    assert len(second.minutes) > len(first.minutes) > 0
    checkpoint = tmp_path / "project" / "storage" / "_checkpoints" / "spark_catalog" / "default"
    (commits,) = checkpoint.glob("orders/orders/*/commits")
    assert {"0", "1"} <= {each.name for each in commits.iterdir()}, "the second run began anew"


def test_payments_become_rows_balances_and_dead_letters(
    spark: SparkSession, own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = pipeline("payments_to_postgres", monkeypatch)

    made = sink.run(spark, own_broker, tmp_path, flags(sink, "--payments", "3000"))

    payments = sink.payments

    broken = [each for each in made if each.broken]
    assert len(broken) > 5
    letters = kafkalite.read_arrow(
        payments.DEAD_LETTERS, own_broker.bootstrap_servers, columns=["headers"]
    )
    headers = [
        {header["key"]: header["value"].decode() for header in row}
        for row in pyarrow.table(letters).column("headers").to_pylist()
    ]
    offsets = [header.pop("__connect.errors.offset") for header in headers]
    partitions = [header.pop("__connect.errors.partition") for header in headers]
    places = zip(map(int, partitions), map(int, offsets), strict=True)
    counts = Counter(each.account % payments.PARTITIONS for each in made)
    assert all(offset < counts[partition] for partition, offset in places)
    assert len(set(zip(partitions, offsets, strict=True))) == len(broken)
    assert headers == [
        {
            "__connect.errors.topic": "payments",
            "__connect.errors.exception.class.name": (
                "org.apache.kafka.connect.errors.DataException"
            ),
            "__connect.errors.exception.message": (
                "the value does not fit payment BIGINT, account INT, cents BIGINT"
            ),
        }
    ] * len(broken)


def test_a_table_of_orders_follows_both_of_its_topics(
    spark: SparkSession, own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = pipeline("orders_to_postgres", monkeypatch)
    monkeypatch.setattr(orders, "BATCHES", 3)

    found = orders.run(spark, own_broker, tmp_path, flags(orders, "--orders", "3000"))

    # The program has held the table against the join of what it sent: which must be worth that.
    assert 2000 < len(found) < 3000, "no order was changed or cancelled"
    assert any(name is None for *_, name, _ in found), "every customer was known"
    assert len({city for *_, city in found}) > 2


def test_declarative_tables_that_are_interrupted_leave_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the shell that had started Spark's JVM was killed."""
    tables = pipeline("declarative_tables", monkeypatch)
    command = tmp_path / "bin" / "spark-pipelines"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\nsleep 1000 &\necho $! > child.new\nmv child.new child\nwait\n")
    command.chmod(0o755)
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "__init__.py"))
    child = tmp_path / "child"

    def interrupt() -> None:
        await_holds(child.exists)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        tables.run_pipeline(tmp_path)
    thread.join()
    number = int(child.read_text())
    await_holds(lambda: not is_running(number))


def await_holds(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)  # between two polls


def is_running(number: int) -> bool:
    """A child of nobody may stay as a zombie where nobody collects them."""
    try:
        stat = Path(f"/proc/{number}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_declarative_tables_name_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = pipeline("declarative_tables", monkeypatch)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "yaml" else name)
    with pytest.raises(
        tables.pipeline.StopError, match=r"^yaml is missing: .*pyspark\[pipelines\]"
    ):
        tables.need_pipelines()


def command(name: str, *given: str, python: tuple[str, ...] = (), **environment: str) -> list[str]:
    """Runs a pipeline as a user does; returns exit code, stdout and stderr."""
    ended = subprocess.run(
        [sys.executable, *python, FOLDER / f"{name}.py", *given],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    return [str(ended.returncode), ended.stdout, ended.stderr]


@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        (
            StreamingQueryException(
                "[STREAM_FAILED] Query [id = 1] terminated with exception: orders-0 is gone "
                "SQLSTATE: XXKST\n=== Streaming Query ==="
            ),
            "orders-0 is gone",
        ),
        (
            PySparkRuntimeError("Java gateway process exited"),
            "Spark did not start: it did not get org.nobody:nothing:1 from Maven (see above)",
        ),
    ],
)
def test_a_pipeline_whose_spark_fails_says_so_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, sentence: str
) -> None:
    """It was a traceback of a hundred lines, below Spark's own."""
    programs = pipeline("pipeline", monkeypatch)
    session = MagicMock()

    def start(*_: object, **__: object) -> MagicMock:
        if isinstance(raised, PySparkRuntimeError):
            raise raised
        return session

    def run(*_: object) -> None:
        raise raised

    monkeypatch.setattr(kafkalite.spark, "session", start)
    monkeypatch.setattr(sys, "argv", ["orders.py"])
    packages = {"spark.jars.packages": "org.nobody:nothing:1"}
    with pytest.raises(SystemExit) as ended:
        programs.main("orders", argparse.ArgumentParser(), run, packages)
    assert ended.value.code == f"orders.py: {sentence}"
    assert session.stop.called or isinstance(raised, PySparkRuntimeError)


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_explains_its_flags(name: str) -> None:
    code, out, _ = command(name, "--help")
    assert code == "0"
    assert "--cores" in out


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_without_java_says_so_in_a_sentence(name: str, tmp_path: Path) -> None:
    code, out, told = command(name, JAVA_HOME=str(tmp_path))
    assert (code, out) == ("1", "")
    assert told == (
        f"{name}.py: Spark needs Java 17 or newer and JAVA_HOME is {tmp_path}, where there is "
        "none (Debian: openjdk-17-jdk-headless)\n"
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_without_its_packages_says_so_in_a_sentence(name: str) -> None:
    code, out, told = command(name, python=("-S", "-E"))
    assert (code, out) == ("1", "")
    assert told == f"{name}.py: kafkalite is missing: pip install 'kafkalite[spark]'\n"


@pytest.mark.long
def test_a_pipeline_runs_by_one_command(tmp_path: Path) -> None:
    plot = tmp_path / "counts.png"
    code, out, told = command("windowed_counts", "--events", "20000", "--plot", str(plot))
    assert code == "0", told
    assert f"plot: {plot}" in out
    assert plot.exists()


def test_the_progress_of_each_query_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plots = pipeline("progress_plot", monkeypatch)
    source = {"endOffset": '{"orders":{"0":4}}', "latestOffset": '{"orders":{"0":10}}'}
    report = {
        "id": "first",
        "runId": "a run",
        "timestamp": "2026-01-01T00:00:01.000Z",
        "batchDuration": 500,
        "numInputRows": 4,
        "sources": [source],
    }
    batch = plots.Batch.of(report)
    repeated = plots.Batch.of(
        report | {"id": "second", "sources": [source | {"latestOffset": None}]}
    )
    assert batch == ("first", "a run", 1_767_225_601, 4, 0.5, 6)
    plots.draw([batch, repeated, batch], "orders", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_no_line_is_drawn_where_a_query_paused_or_was_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restart looked as if the query had gone on, ever slower."""
    plots = pipeline("progress_plot", monkeypatch)
    runs = [("first", 0.0), ("first", 2.1), ("first", 9.0), ("second", 11.0)]
    batches = [plots.Batch("orders", run, began_s, 1, 2.0, 0) for run, began_s in runs]
    times_s, heights = plots.line(batches, [1, 2, 3, 4])
    assert times_s == [0, 2, 2.1, 4.1, 4.1, 9, 11, 11, 11, 13]
    assert str(heights) == "[1, 1, 2, 2, nan, 3, 3, nan, 4, 4]"


def test_delta_is_refused_in_one_sentence_by_another_spark_than_it_runs_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`pip install kafkalite[spark]` takes the newest PySpark, and Delta of an older one failed in
    its second micro-batch, with `NoSuchMethodError`."""
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("payments_to_delta", "changes_to_delta"):
        monkeypatch.setattr(sys, "argv", [f"{name}.py"])
        with pytest.raises(SystemExit) as refused:
            runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        assert refused.value.code == (
            f"{name}.py: Delta 4.4.0 needs Spark 4.2, and PySpark is 4.3.0: "
            "pip install 'pyspark==4.2.*'"
        )
    assert capfd.readouterr().out == "", "a broker and Spark were started first"
