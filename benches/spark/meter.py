"""CPU seconds of whole process trees: driver JVM, Python workers, brokers.

A process that ends takes its CPU out of /proc, and not every parent collects it (PySpark's daemon
ignores SIGCHLD), so the trees are sampled while they live. What is lost is what a process did
between the last sample and its end: `SAMPLE_S` at most.
"""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
SAMPLE_S = 0.02
SEARCH_EVERY = 5
"""Samples between two searches for processes that are new."""
CHILDREN = "children"
"""What the roots have started: Python workers, planners, `kafkalite arrow serve`."""

Process = tuple[int, str]
"""Its id and when it began, so that an id that comes again is another process."""


class Meter:
    """`with Meter({"jvm": 123, "broker": 124}) as meter` counts what happens in the block."""

    def __init__(self, roots: dict[str, int], children: Mapping[str, str] | None = None) -> None:
        """`children` names what a root has started, where it is not to count as `CHILDREN`."""
        self._roots = {pid: name for name, pid in roots.items()}
        self._children = dict(children or {})
        self._seen: dict[Process, tuple[str, float]] = {}
        self._first: dict[Process, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._search()
        self._first = {process: seconds for process, (_, seconds) in self._seen.items()}
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._search()

    def seconds(self) -> dict[str, float]:
        """CPU seconds since the beginning, by the name of the root; children apart."""
        names = [*self._roots.values(), CHILDREN, *self._children.values()]
        spent = dict.fromkeys(names, 0.0)
        for process, (name, seconds) in self._seen.items():
            spent[name] += seconds - self._first.get(process, 0.0)
        return spent

    def _run(self) -> None:
        count = 0
        while not self._stop.wait(SAMPLE_S):
            count += 1
            if count % SEARCH_EVERY == 0:
                self._search()
            else:
                for process, (name, _) in list(self._seen.items()):
                    self._look(process[0], name, began=process[1])

    def _search(self) -> None:
        """All that live, those that are new too."""
        parents = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
                parents[int(entry.name)] = int(fields[1])
        for pid in parents:
            above, root = pid, self._roots.get(pid)
            while root is None and above in parents:
                above = parents[above]
                root = self._roots.get(above)
            if root is not None:
                theirs = self._children.get(root, CHILDREN)
                self._look(pid, root if above == pid else theirs)

    def _look(self, pid: int, name: str, began: str | None = None) -> None:
        fields = _stat(pid)
        if fields is None or (began is not None and fields[19] != began):
            return
        seconds = (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND
        self._seen[pid, fields[19]] = (name, seconds)


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat after the name, from the state on; none if it has ended."""
    try:
        with Path(f"/proc/{pid}/stat").open() as file:
            return file.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
