"""A driver that a test kills.

    python -m spark.killed_driver FOLDER SERVERS DATABASE SOURCE OFFSETS_PER_TRIGGER SINK,…

Runs the queries of these sinks of `all_sinks.py`, and waits at the end of the topic.
"""

import sys
import time
from pathlib import Path

import payments_to_delta

from spark.all_sinks import DELTA, Place, start
from spark.session import build_session

POLL_S = 1


def main(
    folder: Path, servers: str, database: str, source: str, per_trigger: str, sinks: str
) -> None:
    """Runs until it is killed. What a query fails with ends it, since nothing else is killed."""
    settings = payments_to_delta.SETTINGS | {"spark.jars.packages": ""} | DELTA
    session = build_session(folder / "session", **settings)
    place = Place(folder, servers, database)
    queries = start(session, source, place, int(per_trigger), sinks.split(","))
    while True:
        for query in queries.values():
            query.awaitTermination(POLL_S)
        time.sleep(POLL_S)  # between two polls of queries that are all done


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
