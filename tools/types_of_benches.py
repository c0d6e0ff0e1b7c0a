#!/usr/bin/env python3
"""Checks the types of the benches, which no test runs: finds calls of what the product has no more.
Each folder is a program of its own, which finds its modules beside it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("benches", "benches/spark", "benches/vs_kafka")


def main() -> int:
    """Runs mypy on each folder; returns 1 if it finds anything."""
    codes = []
    for folder in FOLDERS:
        paths = ["python", "tests", "benches/vs_kafka", folder]
        command = [sys.executable, "-m", "mypy"]
        command += ["--follow-imports=silent", "--ignore-missing-imports"]
        command += [str(each) for each in sorted((ROOT / folder).glob("*.py"))]
        environment = os.environ | {"MYPYPATH": os.pathsep.join(paths)}
        codes.append(subprocess.run(command, cwd=ROOT, env=environment).returncode)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
