"""Spark Connect: a program without a JVM of its own reads and writes topics by a server that has
one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafkalite import Broker
from spark.records import create, send
from spark.test_streams import texts
from spark.test_writing import values

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def remote(spark: SparkSession) -> Iterator[str]:
    """The address of a server in the suite's JVM."""
    jvm: Any = spark.sparkContext._jvm
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
    conf.set("spark.connect.grpc.binding.port", "0")
    name = "org.apache.spark.sql.connect.service.SparkConnectService$"
    service = jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)
    service.start(spark.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    nothing = jvm.scala.Option.empty()
    service.stop(nothing, nothing)


def test_a_program_of_spark_connect_copies_a_topic(
    remote: str, broker: Broker, engine: str, tmp_path: Path
) -> None:
    servers, source, target = broker.bootstrap_servers, f"said-{engine}", f"shouted-{engine}"
    for topic in (source, target):
        create(servers, topic, 2)
    send(servers, [*texts(source, 0, "a", "b"), *texts(source, 1, "c")])
    places = [servers, engine, source, target, str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, "-m", "spark.connected", remote, *places],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "3 rows\n"
    assert sorted(values(servers, target)) == ["A", "B", "C"]
