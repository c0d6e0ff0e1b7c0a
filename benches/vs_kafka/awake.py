"""Keeps the processors from halting, for both sides alike (`--awake`).

A virtual machine's processor that has nothing to do halts, and whoever wakes it, by an answer or by
giving work to another thread, is charged for its leaving that state: tens of microseconds, which
say more of the host than of a broker. Loops of idle priority (SCHED_IDLE) keep the processors
running and give way to everybody at once.
"""

import os
import subprocess
import sys
from types import TracebackType
from typing import Self

LOOP = """
import os, sys
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


class Awake:
    """A loop for each processor, until the end of the `with` block. None if `wanted` is false."""

    def __init__(self, wanted: bool) -> None:
        self._count = len(os.sched_getaffinity(0)) if wanted else 0
        self._loops: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        command = [sys.executable, "-c", LOOP, str(os.getpid())]
        self._loops = [subprocess.Popen(command) for _ in range(self._count)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for loop in self._loops:
            loop.kill()
            loop.wait()
