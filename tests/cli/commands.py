"""A command as a process of its own, and what its lines say."""

import subprocess
import sys

from cli.told import Told


def start(servers: str, *arguments: str, **options: object) -> "subprocess.Popen[str]":
    """Starts a command as a user does."""
    command = [sys.executable, "-m", "kafkalite", *arguments, "--bootstrap-server", servers]
    return subprocess.Popen(command, text=True, **options)  # type: ignore[call-overload,no-any-return]


def produce(servers: str, lines: str, *arguments: str) -> Told:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(servers, "produce", *arguments, **pipes) as process:
        out, err = process.communicate(lines, timeout=60)
    assert "Traceback" not in err, err
    return Told(process.returncode, out, err)


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]
