"""What `kafkalite.spark.session` makes of a session, and which Spark its jar is given to."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from kafkalite.spark import columnar
from kafkalite.spark.home import home_without_archives


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
    with pytest.warns(UserWarning, match=r"needs PySpark 4\.2 or newer, and this is 3\.5\.1: pip"):
        assert columnar.jar_for("3.5.1") is None


def test_a_session_sets_arrows_options_for_its_jvm(spark: SparkSession) -> None:
    options = spark.conf.get("spark.driver.defaultJavaOptions")
    assert options == columnar.ARROW_JAVA_OPTIONS
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    for each in options.split():
        name, value = each.removeprefix("-D").split("=")
        assert jvm.System.getProperty(name) == value


def test_checkpoints_of_a_local_session_start_no_process_a_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Half of what a micro-batch of a few rows cost: 166 ms of CPU, of which 80 stay."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    made = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.create(
        jvm.org.apache.hadoop.fs.Path(str(tmp_path)),
        spark._jsparkSession.sessionState().newHadoopConf(),
    )
    assert made.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (
            None,
            "Spark needs Java 17 or newer and JAVA_HOME is {home}, where there is none (Debian: ",
        ),
        ("11.0.2", 'Spark needs Java 17 or newer, not: openjdk version "11.0.2"'),
    ],
)
def test_a_session_without_a_java_for_it_is_refused_in_a_sentence(
    tmp_path: Path, version: str | None, sentence: str
) -> None:
    """PySpark says that its gateway process exited."""
    if version is not None:
        (tmp_path / "bin").mkdir()
        java = tmp_path / "bin" / "java"
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit 1\n")
        java.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", "import kafkalite.spark; kafkalite.spark.session()"],
        env=os.environ | {"JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    wanted = f"kafkalite.errors.KafkaliteError: {sentence.format(home=tmp_path)}"
    assert done.stderr.splitlines()[-1].startswith(wanted)


def test_a_java_that_is_no_program_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert columnar.java_wrong() == f"Spark needs Java 17 or newer, not: {java} does not run"


@pytest.mark.skipif("SPARK_HOME" in os.environ, reason="SPARK_HOME names another Spark")
def test_workers_import_the_pyspark_that_is_installed(spark: SparkSession) -> None:
    """Each compiled all of PySpark out of an archive: 1.4 s of CPU for every stream that began."""
    imported = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__)
    assert imported.collect() == [pyspark.__file__]


def test_a_home_without_archives_has_all_else_that_pyspark_brings(tmp_path: Path) -> None:
    installed = Path(pyspark.__file__).parent
    for _ in ("made", "found"):
        home = home_without_archives(installed, tmp_path)
        assert home is not None
        names = {each.name for each in home.iterdir()}
        assert names == {each.name for each in installed.iterdir()} - {"python"}
        assert (home / "jars").samefile(installed / "jars")


def test_there_is_no_home_where_it_would_not_do(tmp_path: Path) -> None:
    elsewhere = tmp_path / "pyspark"
    (elsewhere / "bin").mkdir(parents=True)
    (elsewhere / "bin" / "spark-submit").touch()
    assert home_without_archives(elsewhere, tmp_path) is None
    (tmp_path / "file").touch()
    assert home_without_archives(Path(pyspark.__file__).parent, tmp_path / "file") is None


def test_a_user_without_a_home_has_sparks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of a container that nobody knows by name."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("SPARK_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    with columnar._quick_home(Path(pyspark.__file__).parent):
        assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    with columnar._quick_home(Path(pyspark.__file__).parent):
        assert "SPARK_HOME" not in os.environ


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
