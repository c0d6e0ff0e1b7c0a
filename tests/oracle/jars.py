"""Jars of the tests, fetched once into the user's cache and checked against a list each time.

A list has a line a jar: SHA-256, then group:artifact:version. `jars.txt` beside this file pins
Apache Kafka, `tests/clients/jars.txt` what Kafka Connect, MirrorMaker and Kafka Streams need beside
it, `tests/clients/old_client.txt` a Java client of long ago, `tests/spark/jars.txt` Spark's own
Kafka connector, `tests/spark/debezium.txt` Debezium's connector for PostgreSQL. `python -m
oracle.jars [LIST …]` (in tests/) fetches them all, or the lists that are named, and says where they
are. `MAVEN_CENTRAL` names a mirror. A jar that cannot be had, or is not the one that was pinned, is
an error, never a skip.
"""

import fcntl
import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jgo.maven import MavenContext

KAFKA = Path(__file__).with_name("jars.txt")
PROGRAMS = KAFKA.parents[1] / "clients" / "jars.txt"
OLD_CLIENT = PROGRAMS.with_name("old_client.txt")
SPARK_CONNECTOR = KAFKA.parents[1] / "spark" / "jars.txt"
DEBEZIUM = SPARK_CONNECTOR.with_name("debezium.txt")
LISTS = (KAFKA, PROGRAMS, OLD_CLIENT, SPARK_CONNECTOR, DEBEZIUM)
DOWNLOADS_AT_ONCE = 8


def kafka_version() -> str:
    """The version that is pinned, as in `4.3.1`."""
    return next(line for line in _lines(KAFKA) if ":kafka-tools:" in line).rsplit(":", 1)[1]


def cache_folder() -> Path:
    """Where downloads of the tests are kept: `$XDG_CACHE_HOME/kafkalite`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kafkalite"


def kafka_jars() -> list[Path]:
    """All jars of Kafka's runtime."""
    return pinned_jars(KAFKA)


def spark_connector_jars() -> list[Path]:
    """Spark's own Kafka connector, and what it needs beside the jars that PySpark brings."""
    return pinned_jars(SPARK_CONNECTOR)


def pinned_jars(pinned: Path) -> list[Path]:
    """The jars of a list, in its order. Safe to call from several processes at once."""
    from jgo.maven import MavenContext  # a Maven client; tests without jars do not need it

    repository = cache_folder() / "maven"
    repository.mkdir(parents=True, exist_ok=True)
    mirror = os.environ.get("MAVEN_CENTRAL")
    context = MavenContext(
        repo_cache=repository,
        remote_repos={"central": mirror} if mirror else None,
        timeout=60,
    )
    with (
        (repository / ".lock").open("w") as lock,
        ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        return list(pool.map(lambda line: _jar(context, pinned, *line.split()), _lines(pinned)))


def _lines(pinned: Path) -> list[str]:
    text = pinned.read_text().splitlines()
    return [line for line in text if line and not line.startswith("#")]


def _jar(context: "MavenContext", pinned: Path, sha256: str, coordinate: str) -> Path:
    group, name, version = coordinate.split(":")
    found = ""
    for _ in range(3):
        artifact = context.project(group, name).at_version(version).artifact()
        path = Path(artifact.resolve())
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found == sha256:
            return path
        path.unlink()  # cut short by an earlier kill, or not what was published
    raise RuntimeError(f"{coordinate} has SHA-256 {found}, not {sha256} as pinned in {pinned}")


if __name__ == "__main__":
    for each in map(Path, sys.argv[1:] or LISTS):
        try:
            count = len(pinned_jars(each))
        except OSError as error:  # what a Maven client of Python raises is one
            sys.exit(f"the jars of {each} cannot be fetched: {error}")
        sys.stdout.write(f"{count} jars of {each} in {cache_folder()}\n")
