"""A broker from the command line, and one that does not start."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kafkalite.child import READY_PREFIX

SERVE = [sys.executable, "-m", "kafkalite", "serve"]


TIMEOUT_S = 60


def _heed_the_terminal() -> None:
    """As a shell starts a command, whatever the tests themselves were started to ignore."""
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)


class Serving:
    """A broker from the command line, which has said that it is ready."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, command: Sequence[str] = SERVE
    ) -> None:
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            preexec_fn=_heed_the_terminal,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        assert self.line.startswith(READY_PREFIX), self.process.communicate()
        self.bootstrap_servers = self.line.removeprefix(READY_PREFIX).split()[0]

    def end(self, by: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and log."""
        self.process.send_signal(by)
        _, log = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, log


def refusal(*arguments: str) -> str:
    """The log of a broker that does not start."""
    done = subprocess.run(
        [*SERVE, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def ends(pid: int) -> bool:
    """Waits for the end of a process, which may have ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], TIMEOUT_S)[0])
    finally:
        os.close(descriptor)
