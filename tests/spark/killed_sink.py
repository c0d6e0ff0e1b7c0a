"""A pipeline of `spark/` that kills itself about the second commit of its sink. Run by
`test_sinks.py`.

    python -m spark.killed_sink FOLDER SERVERS OFFSETS_PER_TRIGGER postgres DATABASE (before|after)
"""

import os
import signal
import sys
from pathlib import Path

import payments_to_postgres
import psycopg

from spark.session import build_session

BATCHES_COMMITTED = 1


def main(folder: Path, servers: str, per_trigger: str, _: str, database: str, moment: str) -> None:
    """Runs until it is dead."""
    commit = psycopg.Connection.commit
    committed = 0

    def commit_or_die(connection: "psycopg.Connection[object]") -> None:
        nonlocal committed
        is_last = committed == BATCHES_COMMITTED
        if is_last and moment == "before":
            os.killpg(0, signal.SIGKILL)
        commit(connection)
        if is_last:
            os.killpg(0, signal.SIGKILL)
        committed += 1

    spark = build_session(folder / moment)
    psycopg.Connection.commit = commit_or_die
    arrived = payments_to_postgres.read(spark, servers, int(per_trigger))
    payments_to_postgres.store(arrived, database, folder / "payments").awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
