"""Writes `tests/golden/coordinator_records.txt`: records of groups as Kafka writes them.

`PYTHONPATH=tests python tools/make_golden_records.py` runs `GoldenCoordinatorRecords.java` there
on the jars that `tests/oracle` pins. A newer Kafka: pin it, run this, read the difference.
"""

import os
import subprocess
from pathlib import Path

from oracle.jars import kafka_jars

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"


def main() -> None:
    """Runs the Java program and keeps what it prints."""
    class_path = os.pathsep.join(str(jar) for jar in kafka_jars())
    program = str(GOLDEN / "GoldenCoordinatorRecords.java")
    command = ["java", "-Dstdout.encoding=UTF-8", "-cp", class_path, program]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    (GOLDEN / "coordinator_records.txt").write_text(printed, encoding="utf-8")


if __name__ == "__main__":
    main()
