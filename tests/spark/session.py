"""A SparkSession with Spark's own Kafka connector, and kafkalite's jar where it has been built.

One JVM has one session: the suite shares the fixture `spark`; a program that a test kills builds
its own by the same function.
"""

from pathlib import Path

from pyspark.sql import SparkSession

import kafkalite.spark
from oracle.jars import spark_connector_jars

HERE = Path(__file__).parent

# Quick to start on two cores: the quick compiler, one collector thread.
JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1200m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.task.maxFailures": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def build_session(folder: Path, **more: str) -> SparkSession:
    """The session; `folder` takes the warehouse, scratch files and `spark.log`, and `more` goes
    before the settings above."""
    folder.mkdir(parents=True, exist_ok=True)
    log = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
    flags = [*JVM_FLAGS, log, f"-Dkafkalite.test.log={folder / 'spark.log'}"]
    settings = SETTINGS | {
        "spark.jars": ",".join(map(str, spark_connector_jars())),
        "spark.driver.extraJavaOptions": " ".join(flags),
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **more,
    }
    return kafkalite.spark.session("kafkalite tests", **settings)
