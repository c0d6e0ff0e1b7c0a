"""Which Spark the jar of the columnar engine is given to."""

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafkalite.spark import columnar


def test_the_jar_is_left_out_with_a_warning_beside_a_spark_that_it_is_not_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark 4.3 changed a method of `ArrowUtils` that the jar called: every query failed with a
    `NoSuchMethodError`."""
    jar = Path("kafkalite-spark.jar")
    monkeypatch.setattr(columnar, "jar_path", lambda: jar)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert columnar.jar_for("4.2.0") == jar
        assert columnar.jar_for("4.3.1") == jar
    with pytest.warns(UserWarning, match=r"is for Spark 4\.2 and 4\.3, and this is 4\.4\.0"):
        assert columnar.jar_for("4.4.0") is None


def test_a_session_sets_arrows_options_for_its_jvm(spark: SparkSession) -> None:
    options = spark.conf.get("spark.driver.defaultJavaOptions")
    assert options == columnar.ARROW_JAVA_OPTIONS
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    for each in options.split():
        name, value = each.removeprefix("-D").split("=")
        assert jvm.System.getProperty(name) == value


@pytest.mark.parametrize(
    ("workers", "master", "is_warned"),
    [
        ("python3", "local[2]", True),
        (sys.executable, "local[2]", False),  # chosen by PYSPARK_PYTHON
        ("python3", "spark://elsewhere:7077", False),  # other machines, of which nothing is known
    ],
)
def test_registering_warns_of_workers_of_another_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workers: str, master: str, is_warned: bool
) -> None:
    """A program of a virtual environment that is not activated: Spark's workers were those of the
    system's `python3`, and the query failed with a traceback about pickles."""
    stranger = tmp_path / "python3"
    stranger.symlink_to("/bin/false")
    monkeypatch.setenv("PATH", str(tmp_path))
    context = SimpleNamespace(pythonExec=workers, master=master)
    session: Any = SimpleNamespace(_sc=context)
    if is_warned:
        with pytest.warns(UserWarning, match=f"({stranger}).*set PYSPARK_PYTHON={sys.executable}"):
            columnar.warn_of_another_python(session)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            columnar.warn_of_another_python(session)
