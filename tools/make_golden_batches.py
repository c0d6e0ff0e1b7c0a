"""Writes `tests/golden/batches.txt`: what Apache Kafka's own classes build and accept.

`PYTHONPATH=tests python tools/make_golden_batches.py` runs `tests/golden/GoldenBatches.java` on
the jars that `tests/oracle` pins. A newer Kafka: pin it, run this, read the difference.
"""

import os
import subprocess
from pathlib import Path

from oracle.jars import kafka_jars

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"


def main() -> None:
    """Runs the Java program and keeps what it prints."""
    class_path = os.pathsep.join(str(jar) for jar in kafka_jars())
    command = ["java", "-cp", class_path, str(GOLDEN / "GoldenBatches.java")]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    (GOLDEN / "batches.txt").write_text(printed)


if __name__ == "__main__":
    main()
