"""Writes `coordinator_records.txt` and `transaction_records.txt` in `tests/golden`: records of
groups and of transactions as Kafka writes them.

`PYTHONPATH=tests python tools/make_golden_records.py` runs the Java programs there on the jars that
`tests/oracle` pins. A newer Kafka: pin it, run this, read the difference.
"""

import os
import subprocess
from pathlib import Path

from oracle.jars import kafka_jars

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"


PROGRAMS = {
    "GoldenCoordinatorRecords.java": "coordinator_records.txt",
    "GoldenTransactionRecords.java": "transaction_records.txt",
}


def main() -> None:
    """Runs the Java programs and keeps what they print."""
    class_path = os.pathsep.join(str(jar) for jar in kafka_jars())
    for program, name in PROGRAMS.items():
        command = ["java", "-Dstdout.encoding=UTF-8", "-cp", class_path, str(GOLDEN / program)]
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8")
        (GOLDEN / name).write_text(ran.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
