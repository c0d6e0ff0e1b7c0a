"""Runs of the load generator, `load/`, each a process of its own."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LOAD = Path(__file__).resolve().parents[2] / "target" / "release" / "examples" / "load"
LOAD_S_MAX = 120


def start_load(mode: str, *, bound: Sequence[str] = (), **arguments: Any) -> subprocess.Popen[str]:
    """The load generator, beside; `bound` is a command that runs the one behind it."""
    words = [f"{name}={value}" for name, value in arguments.items()]
    return subprocess.Popen(
        [*bound, LOAD, mode, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish_load(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Its line. Raises CalledProcessError with what it complained of, or if it does not end."""
    try:
        out, errors = process.communicate(timeout=LOAD_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        errors += f"no end within {LOAD_S_MAX} s"
    if process.returncode != 0:
        print(errors, file=sys.stderr)
        raise subprocess.CalledProcessError(process.returncode, process.args, out, errors)
    result: dict[str, Any] = json.loads(out)
    return result


def load(mode: str, *, bound: Sequence[str] = (), **arguments: Any) -> dict[str, Any]:
    """One run of the load generator."""
    return finish_load(start_load(mode, bound=bound, **arguments))
