"""A cluster of Spark's own: a standalone master and workers, processes of this machine, by the
programs that PySpark brings."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from kafkalite.spark.home import home_without_archives
from spark.session import JVM_FLAGS

START_S = 300
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
EXECUTOR = b"CoarseGrainedExecutorBackend"


class Cluster:
    """One that runs; `master` is its address for `spark-submit`."""

    def __init__(self, master: str, folder: Path, environment: dict[str, str]) -> None:
        self.master = master
        self._folder = folder
        self._environment = environment

    @contextmanager
    def submitted(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """`spark-submit` of a program, whose stdout may be read; killed at the end of the block."""
        spark_submit = Path(self._environment["SPARK_HOME"], "bin", "spark-submit")
        log = (self._folder / "submit.log").open("ab")
        with (
            log,
            subprocess.Popen(
                [spark_submit, "--master", self.master, *arguments],
                env=self._environment,
                cwd=self._folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def executors(self) -> list[int]:
        """The processes of all executors that run."""
        return [pid for pid in _processes() if EXECUTOR in _command(pid, self._folder)]


@contextmanager
def cluster(folder: Path, workers: int, cores: int) -> Iterator[Cluster]:
    """A master and `workers` of `cores` each, with executors of one core."""
    home = home_without_archives(Path(pyspark.__file__).parent, folder / "home")
    assert home is not None
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join([*JVM_FLAGS, f"-Dkafkalite.test={folder}"]),
    }
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> Path:
            log = folder / f"{name}.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [home / "bin" / "spark-class", *arguments],
                    env=environment,
                    cwd=folder,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            stack.callback(_end, process)
            return log

        log = start("master", MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = _told(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            place = folder / f"worker-{number}"
            log = start(
                f"worker-{number}",
                WORKER,
                # Two attempts at a task are never on one host.
                *("--host", f"127.0.0.{number + 1}", "--webui-port", "0"),
                *("--work-dir", str(place)),
                *("--cores", str(cores), "--memory", f"{cores}g", master),
            )
            _told(log, r"(Successfully registered) with master")
        yield Cluster(master, folder, environment)


def read_lines(process: "subprocess.Popen[str]", until: str) -> Sequence[str]:
    """What it says up to a line that begins so."""
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        found.append(line.strip())
        if line.startswith(until):
            return found
    raise AssertionError(f"it ended before '{until}': {found}")


def _told(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_S
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)  # between two polls of the log
    return found[1]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, by which a worker ends its executors too."""
    process.send_signal(signal.SIGTERM)
    process.wait()


def _processes() -> Iterator[int]:
    return (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())


def _command(pid: int, folder: Path) -> bytes:
    """The command of a process that works below the folder; empty of another."""
    try:
        if folder not in Path(f"/proc/{pid}/cwd").readlink().parents:
            return b""
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""
