"""What the pipelines beside this file share: their command line, Spark, a broker, and progress.

Each pipeline has a `run(spark, broker, folder, options)` that returns what it found, so that tests
call it with a session of their own; `main` here is the command around it.
"""

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kafkalite import Broker


ATTEMPTS_MAX = 4
"""Of a task, as on a cluster. Spark's local master has one unless it is told."""


class StopError(Exception):
    """One sentence for the user; the command ends with exit code 1."""


class Record(NamedTuple):
    """One to be sent. `value` None: its key's row goes. `partition` None: where its key belongs, or
    any."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    partition: int | None = None


Run = Callable[["SparkSession", "Broker", Path, argparse.Namespace], Any]


def main(
    name: str,
    parser: argparse.ArgumentParser,
    run: Run,
    settings: Mapping[str, str] | None = None,
    need_more: Callable[[], None] = lambda: None,
) -> None:
    """The command: Spark and a broker for as long as `run` takes; exits with 1 and one sentence if
    something is missing. `settings` are Spark's, beside those of all pipelines; `need_more` raises
    `StopError` where something is missing for this one."""
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="of Spark (2)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the data (1)")
    plot = Path(f"{Path(sys.argv[0]).stem}-progress.png")
    parser.add_argument(
        "--progress",
        type=Path,
        default=plot,
        metavar="PNG",
        help=f"the plot of rate, latency and lag ({plot})",
    )
    options = parser.parse_args()
    try:
        need_spark()
        need_more()
        _run(name, run, options, settings or {})
    except StopError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _run(name: str, run: Run, options: argparse.Namespace, settings: Mapping[str, str]) -> None:
    from progress_plot import Progress, draw
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    import kafkalite.spark

    started = time.monotonic()
    step("starting a broker and Spark")
    with tempfile.TemporaryDirectory(prefix="kafkalite-pipeline-") as folder:
        conf = {
            "spark.master": f"local[{options.cores},{ATTEMPTS_MAX}]",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log_settings(folder)}",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": f"{folder}/scratch",
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            **settings,
        }
        with kafkalite.Broker() as broker:
            spark = _session(name, conf)
            progress = Progress()
            spark.streams.addListener(progress)
            try:
                run(spark, broker, Path(folder), options)
                progress.await_end()
            except (PySparkException, Py4JJavaError) as error:
                raise StopError(kafkalite.spark.reason(error)) from error
            finally:
                spark.stop()
    if progress.batches and importlib.util.find_spec("matplotlib") is not None:
        draw(progress.batches, name, options.progress)
        step(f"rate, latency and lag: {options.progress}")
    step(f"done in {time.monotonic() - started:.0f} s")


def _session(name: str, conf: Mapping[str, str]) -> "SparkSession":
    """Raises `StopError` where Spark does not start: then most likely what Maven says, which Spark
    has printed."""
    from pyspark.errors import PySparkRuntimeError

    import kafkalite.spark

    try:
        return kafkalite.spark.session(name, **conf)
    except PySparkRuntimeError as error:
        packages = conf.get("spark.jars.packages")
        why = f"it did not get {packages} from Maven (see above)" if packages else f"{error}"
        raise StopError(f"Spark did not start: {why}") from error


def _log_settings(folder: str) -> Path:
    """A file of settings that has Spark say nothing: what fails a query is raised, and told in a
    sentence by `main`. PySpark's logger has a level of its own there, since PySpark says at its
    start what it is if it differs from the others."""
    file = Path(folder, "log4j2.properties")
    file.write_text(
        "rootLogger.level = fatal\n"
        "rootLogger.appenderRef.console.ref = console\n"
        "logger.pyspark.name = org.apache.spark.api.python.PythonGatewayServer\n"
        "logger.pyspark.level = fatal\n"
        "appender.console.type = Console\n"
        "appender.console.name = console\n"
        "appender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %p %c{1}: %m%n\n"
    )
    return file


def need_spark() -> None:
    """Raises `StopError` where PySpark, pyarrow, kafkalite or a Java for them is missing."""
    for module, package in (
        ("kafkalite", "kafkalite[spark]"),
        ("pyspark", "kafkalite[spark]"),
        ("pyarrow", "kafkalite[spark]"),
    ):
        if importlib.util.find_spec(module) is None:
            raise StopError(f"{module} is missing: pip install '{package}'")
    from kafkalite.spark.columnar import java_wrong

    if wrong := java_wrong():
        raise StopError(wrong)


def need(module: str, package: str = "") -> None:
    """Raises `StopError` if a module that only this pipeline needs is missing. `package` is what
    has it, unless that is of the same name."""
    if importlib.util.find_spec(module) is None:
        raise StopError(f"{module} is missing: pip install {package or module}")


def step(text: str) -> None:
    """A line of progress."""
    print(f"== {text}", flush=True)


def create_topic(broker: "Broker", topic: str, partitions: int, **configs: str) -> None:
    """A new topic, in which old timestamps are no reason to delete. `configs` are the topic's, with
    underscores."""
    from kafkalite.client import Admin

    told = {name.replace("_", "."): value for name, value in configs.items()}
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, partitions=partitions, configs={"retention.ms": "-1", **told})


def send(broker: "Broker", topic: str, records: Iterable[Record]) -> int:
    """Sends records in their order; returns their number when the broker has them."""
    from kafkalite.client import Producer

    with Producer(broker.bootstrap_servers, codec="zstd") as producer:
        for record in records:
            producer.send(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
        producer.flush()
        return producer.sent_count


def follow(query: "StreamingQuery", until_batch: int | None = None) -> list[dict[str, Any]]:
    """Shows each micro-batch as it ends; returns their progress when the query has ended, or when
    batch `until_batch` has. Raises what the query failed with."""
    shown: list[dict[str, Any]] = []
    has_ended = False
    while not has_ended:
        has_ended = bool(query.awaitTermination(0.2))
        for progress in query.recentProgress:
            if progress["batchId"] > (shown[-1]["batchId"] if shown else -1):
                shown.append(progress)
                _show(progress)
        if until_batch is not None and shown and shown[-1]["batchId"] >= until_batch:
            break
    return shown


def _show(progress: Any) -> None:
    seconds = progress["batchDuration"] / 1000
    watermark = progress["eventTime"].get("watermark", "")
    told = (
        f"   batch {progress['batchId']:>3}: {progress['numInputRows']:>9,} rows in {seconds:.1f} s"
    )
    print(told + (f", watermark {watermark}" if watermark else ""), flush=True)
