"""A SparkSession with Spark's own Kafka connector, and kafkalite's jar where it has been built.

One JVM has one session: the suite shares the fixture `spark`; a program that a test kills builds
its own by the same function.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from kafkalite.spark import jar_path
from oracle.jars import spark_connector_jars

HERE = Path(__file__).parent

# Quick to start on two cores: the quick compiler, one collector thread.
JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

SETTINGS = {
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


def own_jar() -> Path | None:
    """kafkalite's columnar engine, in the package that is imported; `None` if it was not built."""
    return jar_path()


def build_session(folder: Path, *, with_own_jar: bool = True) -> SparkSession:
    """The session; `folder` takes the warehouse, scratch files and `spark.log`."""
    folder.mkdir(parents=True, exist_ok=True)
    # Where Spark looks for it; `spark.pyspark.python` is heeded by spark-submit only.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = spark_connector_jars()
    own = own_jar() if with_own_jar else None
    if own is not None:
        jars.append(own)
    log = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
    flags = [*JVM_FLAGS, log, f"-Dkafkalite.test.log={folder / 'spark.log'}"]
    builder = SparkSession.builder.master("local[2]").appName("kafkalite tests")
    settings = SETTINGS | {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.extraJavaOptions": f"{' '.join(flags)} -Dderby.system.home={folder}",
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
