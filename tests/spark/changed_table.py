"""Runs `spark/changes_to_delta.py` with the jars that the tests have pinned: PostgreSQL's changes,
by Debezium on Kafka Connect, into a Delta table. Run by `test_changes.py`, since Delta's part of a
session is there from its start or not at all:

    python -m spark.changed_table FOLDER CHANGES
"""

import argparse
import sys
from pathlib import Path

import changes_to_delta
import connect

from kafkalite import Broker
from oracle.jars import DEBEZIUM, kafka_jars, pinned_jars
from spark.session import build_session


def main(folder: Path, changes: str) -> None:
    """Changes, merges, compares: ends with an exception if the tables differ."""
    connect.jars = lambda: [*kafka_jars(), *pinned_jars(DEBEZIUM)]
    settings = changes_to_delta.SETTINGS | {"spark.jars.packages": ""}
    spark = build_session(folder / "session", **settings)
    with Broker() as broker:
        options = argparse.Namespace(changes=int(changes), seed=1)
        rows = changes_to_delta.run(spark, broker, folder, options)
    sys.stdout.write(f"{len(rows)} rows\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
