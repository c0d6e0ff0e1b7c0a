#!/usr/bin/env python3
"""Compiles spark/jvm/*.java into python/kafkalite/spark/jars/kafkalite-spark.jar.

`make jar` runs it. It needs a JDK of 17 or newer and `jgo`, which fetches what is compiled against
(spark/jvm/jars.txt) from Maven Central once. The same sources and JDK make the same jar.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "spark" / "jvm"
JAR = ROOT / "python" / "kafkalite" / "spark" / "jars" / "kafkalite-spark.jar"
SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
DATE = "1980-02-01T00:00:00Z"
# Of the annotations of other projects' classes, which are not on the class path.
QUIET = "-Xlint:all,-classfile,-path,-processing,-serial,-try"


def is_fresh() -> bool:
    """Whether the jar is younger than everything that it is made of."""
    inputs = [*SOURCES.iterdir(), Path(__file__)]
    return JAR.exists() and JAR.stat().st_mtime > max(each.stat().st_mtime for each in inputs)


def make_jar() -> None:
    """Raises `subprocess.CalledProcessError` where the compiler has complained."""
    sys.path.insert(0, str(ROOT / "tests"))
    from oracle.jars import pinned_jars

    class_path = ":".join(map(str, pinned_jars(SOURCES / "jars.txt")))
    JAR.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        service = Path(folder, SERVICE)
        service.parent.mkdir(parents=True)
        service.write_text("kafkalite.spark.KafkaliteSource\n")
        compiler = ["javac", "--release", "17", QUIET, "-Werror", "-cp", class_path, "-d", folder]
        subprocess.run([*compiler, *sorted(map(str, SOURCES.glob("*.java")))], check=True)
        subprocess.run(
            ["jar", "--create", "--file", str(JAR), "--date", DATE, "-C", folder, "."], check=True
        )


if __name__ == "__main__":
    try:
        if not is_fresh():
            make_jar()
    except subprocess.CalledProcessError as error:
        sys.exit(f"the jar cannot be made: {error.cmd[0]} ended with code {error.returncode}")
    except OSError as error:
        sys.exit(f"the jar cannot be made: {error}")
    sys.stdout.write(f"{JAR.relative_to(ROOT)}: {JAR.stat().st_size} bytes\n")
