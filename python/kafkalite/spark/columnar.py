"""A SparkSession that has the columnar engine, if this installation brings its jar.

    spark = kafkalite.spark.session("orders per minute")
    spark = kafkalite.spark.session(**{"spark.master": "local[4,4]", "spark.driver.memory": "4g"})
    spark-submit --jars "$(python -m kafkalite.spark)" job.py

Without the jar `format("kafkalite")` works as well: the Python Data Source reads.
"""

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.errors import KafkaliteError
from kafkalite.spark.home import home_without_archives

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NO_JAR", "jar_path", "java_wrong", "session"]

NO_JAR = (
    "this installation of kafkalite has no jar: release wheels bring it, `make jar` builds it "
    "before `pip install .`"
)


JAVA_VERSION_MIN = 17
"""Spark 4's."""

# The jar calls what Spark calls its own (`ArrowUtils`), which any next version may change: those it
# was seen to read with.
JAR_IS_FOR = ("4.2", "4.3")

# All cores, and as many attempts of a task as on a cluster: `local[*]` has one, so that a query
# would fail with the first connection that its broker closes, as one does that is restarted.
LOCAL_MASTER = "local[*,4]"

# Arrow checks bounds and nulls in every single get, which Spark has done before it asks: a fifth of
# what it costs to read all columns by the Python Data Source.
ARROW_JAVA_OPTIONS = (
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
)

# Spark's first choice for a checkpoint's files, Hadoop's FileContext, starts a process for each,
# `readlink` or `chmod`, on a local disk: half of what a small micro-batch costs. Both write a file
# under another name and rename it.
LOCAL_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    )
}


def jar_path() -> Path | None:
    """Where the jar of the columnar engine is; `None` if it was not packed."""
    path = Path(__file__).with_name("jars") / "kafkalite-spark.jar"
    return path if path.is_file() else None


def jar_for(spark_version: str) -> Path | None:
    """The jar, if it is for that Spark; a warning says that it is for another."""
    jar = jar_path()
    release = _release(spark_version)
    if [int(each) for each in release.split(".")] < [
        int(each) for each in JAR_IS_FOR[0].split(".")
    ]:
        warnings.warn(
            f"kafkalite needs PySpark {JAR_IS_FOR[0]} or newer, and this is {spark_version}: "
            "pip install 'kafkalite[spark]'",
            stacklevel=3,
        )
        return None
    if jar is None or release in JAR_IS_FOR:
        return jar
    known = " and ".join(JAR_IS_FOR)
    warnings.warn(
        f"the columnar engine is for Spark {known}, and this is {spark_version}: "
        "the Python Data Source reads instead",
        stacklevel=3,
    )
    return None


def _release(spark_version: str) -> str:
    return ".".join(spark_version.split(".")[:2])


def warn_of_another_python(spark: "SparkSession") -> None:
    """Says so where Spark's workers on this machine would be of a Python that nobody has chosen."""
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    workers = getattr(context, "pythonExec", "")
    if context is None or workers != "python3" or not context.master.startswith("local"):
        return
    found = shutil.which(workers)
    if found is None or Path(found).parent != Path(sys.executable).parent:
        warnings.warn(
            f"Spark's workers are of '{workers}' ({found or 'not found'}), which may not have "
            f"kafkalite: set PYSPARK_PYTHON={sys.executable} before the session is made, or make "
            "it with kafkalite.spark.session()",
            stacklevel=3,
        )


def session(app_name: str = "kafkalite", **conf: str) -> "SparkSession":
    """The running session, or a new one: local unless `spark.master` says another, with this
    Python for its workers. `conf` is Spark's and goes before everything chosen here.

    Raises KafkaliteError where there is no Java that Spark runs on."""
    try:
        import pyspark
    except ModuleNotFoundError as error:
        sentence = "pyspark is not installed: pip install 'kafkalite[spark]'"
        raise ModuleNotFoundError(sentence, name=error.name) from error
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    jar = jar_for(pyspark.__version__)
    jars = [conf.get("spark.jars", ""), str(jar or "")]
    master = conf.get("spark.master", LOCAL_MASTER)
    chosen = {
        "spark.master": master,
        "spark.pyspark.python": sys.executable,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.defaultJavaOptions": ARROW_JAVA_OPTIONS,
        "spark.executor.defaultJavaOptions": ARROW_JAVA_OPTIONS,
    }
    if master.startswith("local"):
        # Spark's 200 are for clusters: each is a task of every batch of a stateful stream.
        chosen["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1)
        if _release(pyspark.__version__) in JAR_IS_FOR:  # another may call the class otherwise
            chosen |= LOCAL_CHECKPOINTS
    chosen |= conf
    chosen["spark.jars"] = ",".join(each for each in jars if each)
    # Spark looks Python Data Sources up with the Python of the environment alone.
    os.environ.setdefault("PYSPARK_PYTHON", chosen["spark.pyspark.python"])
    builder = SparkSession.builder.appName(app_name)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    is_ours = master.startswith("local") and chosen["spark.pyspark.python"] == sys.executable
    with _quick_home(Path(pyspark.__file__).parent) if is_ours else nullcontext():
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:  # "Java gateway process exited"
            if wrong := java_wrong():
                raise KafkaliteError(wrong) from error
            raise


def java_wrong() -> str:
    """Says what is wrong with the Java that Spark would start; empty if nothing is."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, where there is none" if home else "there is none on PATH"
        return (
            f"Spark needs Java {JAVA_VERSION_MIN} or newer and {where} "
            "(Debian: openjdk-17-jdk-headless)"
        )
    told = ""
    with suppress(OSError):  # it is no program
        told = subprocess.run([java, "-version"], capture_output=True, text=True).stderr  # noqa: S603 - the user's own
    version = re.search(r'version "(\d+)', told)
    if version is not None and int(version[1]) >= JAVA_VERSION_MIN:
        return ""
    found = told.splitlines()[0] if told else f"{java} does not run"
    return f"Spark needs Java {JAVA_VERSION_MIN} or newer, not: {found}"


@contextmanager
def _quick_home(installed: Path) -> Iterator[None]:
    """The JVM that is started meanwhile has workers that import the PySpark that is installed."""
    cache = None if "SPARK_HOME" in os.environ else _cache()
    home = cache and home_without_archives(installed, cache / "kafkalite" / "spark-home")
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _cache() -> Path | None:
    """The user's; a user of a container may have no home."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return cache if cache.is_absolute() else None
