"""Measures starts and stops of a broker that has many partitions with a record in each.

    python benches/many_partitions.py                           # 10,000 partitions, three rounds
    python benches/many_partitions.py --partitions 1000
    python benches/many_partitions.py --rounds 1 --calls        # and system calls, by strace

A round appends a record to each partition, kills the broker by SIGKILL, and then times a start, a
clean stop and the start after it. Wall time is that from `exec`, or SIGTERM, to the line that says
ready, or the end of the process; CPU is the broker's. The page cache is warm. A start is timed up
to ready, so that what the broker does behind it is in the figures of the stop.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from processes import cpu_s

from kafkalite.client import Admin, Producer

TOPIC_PARTITIONS_MAX = 1000
SYNCS = ("fdatasync", "fsync", "syncfs")
CALLS = (*SYNCS, "openat", "statx", "getdents64", "rename", "unlink", "pwrite64", "pread64")


class Spent(NamedTuple):
    """The cost of one step: seconds of the clock, and of the broker's processors."""

    wall_s: float
    cpu_s: float


class Served:
    """A `kafkalite serve` on a directory, ready when this is made."""

    def __init__(self, data: Path, trace: Path | None = None) -> None:
        command = [sys.executable, "-m", "kafkalite", "serve", "--data", str(data)]
        command += ["--listen", "127.0.0.1:0", "--log-level", "error"]
        if trace is not None:
            command = ["strace", "-f", "-c", "-o", str(trace), *command]
        started = time.perf_counter()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        wall_s = time.perf_counter() - started
        found = re.search(r"bootstrap\.servers=(\S+) pid=(\d+)", line)
        if found is None:
            raise RuntimeError(f"kafkalite did not start on {data}: {line!r}")
        self.address, self._pid = found[1], int(found[2])
        self.start = Spent(wall_s, cpu_s(self._pid))

    def end(self, how: signal.Signals) -> Spent:
        """Ends it by a signal."""
        before_s = os.times()
        started = time.perf_counter()
        os.kill(self._pid, how)
        self._process.wait()
        wall_s = time.perf_counter() - started
        after_s = os.times()
        of_child = after_s.children_user + after_s.children_system
        of_child -= before_s.children_user + before_s.children_system
        return Spent(wall_s, of_child - self.start.cpu_s)


def create(address: str, partitions: int) -> list[tuple[str, int]]:
    """Makes topics with so many partitions in all; returns these."""
    made: list[tuple[str, int]] = []
    with Admin(address) as admin:
        while len(made) < partitions:
            count = min(TOPIC_PARTITIONS_MAX, partitions - len(made))
            name = f"many-{len(made) // TOPIC_PARTITIONS_MAX}"
            admin.create_topic(name, partitions=count)
            made += [(name, index) for index in range(count)]
    return made


def append(address: str, partitions: list[tuple[str, int]]) -> None:
    """Returns when a record of each is acknowledged."""
    with Producer(address) as producer:
        for topic, partition in partitions:
            producer.send(topic, b"one record", partition=partition)
        producer.flush()


def calls(trace: Path, partitions: int) -> str:
    """System calls a partition, from a table of strace's."""
    counts = {}
    for line in trace.read_text().splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[3].isdigit():
            counts[fields[-1]] = int(fields[3])
    told = [f"{name} {counts.get(name, 0) / partitions:.2f}" for name in CALLS]
    return f"{', '.join(told)}; {sum(counts.get(name, 0) for name in SYNCS)} syncs in all"


def timed(data: Path, partitions: list[tuple[str, int]]) -> tuple[Spent, Spent, Spent]:
    """A round, of which the broker that appends is killed."""
    served = Served(data)
    append(served.address, partitions)
    served.end(signal.SIGKILL)
    served = Served(data)
    after_kill = served.start
    stop = served.end(signal.SIGTERM)
    served = Served(data)
    after_stop = served.start
    served.end(signal.SIGKILL)
    return after_kill, stop, after_stop


def traced(data: Path, partitions: list[tuple[str, int]], folder: Path) -> None:
    """A round under strace, which tells of a start, and of a stop with the start before it."""
    served = Served(data)
    append(served.address, partitions)
    served.end(signal.SIGKILL)
    trace = folder / "trace"
    for name, how in [
        ("start after SIGKILL", signal.SIGKILL),
        ("the same and a clean stop", signal.SIGTERM),
        ("start after a clean stop", signal.SIGKILL),
    ]:
        Served(data, trace).end(how)
        print(f"{name}, calls a partition: {calls(trace, len(partitions))}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as temporary:
        folder = Path(temporary)
        data = folder / "data"
        served = Served(data)
        partitions = create(served.address, given.partitions)
        served.end(signal.SIGTERM)
        rounds = []
        for _ in range(given.rounds):
            rounds.append(timed(data, partitions))
            told = [f"{each.wall_s:.2f} s ({each.cpu_s:.2f} s of CPU)" for each in rounds[-1]]
            print(f"ready after SIGKILL {told[0]}, clean stop {told[1]}, ready after it {told[2]}")
            sys.stdout.flush()
        names = ("ready after SIGKILL", "clean stop", "ready after a clean stop")
        for name, each in zip(names, zip(*rounds, strict=True), strict=True):
            least = min(spent.wall_s for spent in each)
            print(f"{name}, best of {given.rounds}: {least:.2f} s")
        if given.calls:
            traced(data, partitions, folder)


if __name__ == "__main__":
    main()
