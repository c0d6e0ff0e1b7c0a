#!/usr/bin/env python3
"""Makes `tests/oracle/jars.txt`: every jar that Apache Kafka needs to run, with its SHA-256.

    python3 tools/pin_kafka_jars.py 4.3.1

Needs `mvn`, which resolves the dependencies as Kafka's own POMs say; the tests then need the list
only. Run it for a newer Kafka and read the difference.
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

LIST = Path(__file__).resolve().parent.parent / "tests" / "oracle" / "jars.txt"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>pin</groupId><artifactId>pin</artifactId>
<version>1</version><dependencies>{dependencies}</dependencies></project>"""
DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId>
<version>{}</version></dependency>"""


def main(kafka_version: str) -> None:
    kafka = [
        ("org.apache.kafka", "kafka_2.13", kafka_version),
        ("org.apache.kafka", "kafka-tools", kafka_version),
    ]
    with tempfile.TemporaryDirectory() as folder:
        jars = _resolve(Path(folder), kafka)
        # Kafka's jars name no logging back end; its distribution adds this one.
        log4j = next(version for _, name, version, _ in jars if name == "log4j-core")
        binding = ("org.apache.logging.log4j", "log4j-slf4j-impl", log4j)
        jars = _resolve(Path(folder), [*kafka, binding])
        lines = [
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {group}:{name}:{version}"
            for group, name, version, path in jars
        ]
    LIST.write_text(
        f"# The jars of Apache Kafka {kafka_version}, made by tools/pin_kafka_jars.py.\n"
        "# SHA-256, then group:artifact:version.\n"
        + "\n".join(sorted(lines, key=lambda x: x[66:]))
        + "\n"
    )
    print(f"{LIST}: {len(lines)} jars")


def _resolve(
    folder: Path, coordinates: list[tuple[str, str, str]]
) -> list[tuple[str, str, str, Path]]:
    """Group, artifact, version and file of the coordinates' whole runtime."""
    dependencies = "".join(DEPENDENCY.format(*parts) for parts in coordinates)
    (folder / "pom.xml").write_text(POM.format(dependencies=dependencies))
    subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime",
         "-Dmdep.useRepositoryLayout=true", "-DoutputDirectory=jars"],
        cwd=folder, check=True,
    )  # fmt: skip
    found = []
    for path in (folder / "jars").rglob("*.jar"):
        *group, name, version, _ = path.relative_to(folder / "jars").parts
        found.append((".".join(group), name, version, path))
    return found


if __name__ == "__main__":
    main(sys.argv[1])
