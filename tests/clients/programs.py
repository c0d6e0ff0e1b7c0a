"""Java programs that are no client library: Kafka Connect's workers, MirrorMaker, applications of
Kafka Streams.

Each runs in a JVM of its own, over the jars of Kafka and those of `jars.txt` beside this file.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from oracle.jars import PROGRAMS, kafka_jars, pinned_jars
from oracle.tools import java

STOP_S = 180
PATIENCE_S = 180
TAIL_LINES = 40
ENDED_BY_SIGTERM = (0, 128 + 15)
"""As a program of Java's does that has seen to it, or leaves it to the JVM."""


class Program:
    """One that runs. `output` takes what it prints."""

    def __init__(
        self,
        main: str,
        properties: Mapping[str, object],
        folder: Path,
        classes: Sequence[Path] = (),
    ) -> None:
        """Runs the `main` of a class with a file of properties as its argument. `folder` is made,
        takes files, and is where the program runs. `classes` lie beside those of Kafka."""
        folder.mkdir(parents=True)
        told = folder / "program.properties"
        told.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self.output = folder / "program.log"
        jars = [*classes, *pinned_jars(PROGRAMS), *kafka_jars()]
        with self.output.open("wb") as log:
            self._process = subprocess.Popen(
                [*java(), "-cp", os.pathsep.join(map(str, jars)), main, str(told)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """SIGKILL; nothing if it has ended."""
        self._process.kill()
        self._process.wait(STOP_S)

    def stop(self) -> None:
        """SIGTERM, upon which it says goodbye; fails if it does not end by that."""
        self._process.terminate()
        assert self._process.wait(STOP_S) in ENDED_BY_SIGTERM

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Returns once `holds()`; fails with the end of the output if the program ends before, or
        it takes too long."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            is_over = self._process.poll() is not None or time.monotonic() > deadline
            assert not is_over, "\n".join(self.output.read_text().splitlines()[-TAIL_LINES:])
            time.sleep(0.05)  # between two polls of what is waited for


@contextlib.contextmanager
def running(
    main: str, properties: Mapping[str, object], folder: Path, classes: Sequence[Path] = ()
) -> Iterator[Program]:
    """A program that is killed at the end, if it runs still."""
    program = Program(main, properties, folder, classes)
    try:
        yield program
    finally:
        program.kill()
