"""Where the targets of make find things, and what their commands see: `.venv` and `target/` of this
folder, nowhere else."""

import os
import pwd
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"

# Go and npm keep what they fetch below HOME, which not every service sets.
HOME = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
CARGO_CONFIG = (ROOT / ".cargo" / "config.toml").read_text()
ENVIRONMENT = os.environ | {
    "HOME": HOME,
    # Cargo has it from there, and maturin, which dates the files of a wheel by it, from here.
    **dict(re.findall(r'^(SOURCE_DATE_EPOCH) = "(\d+)"', CARGO_CONFIG, re.MULTILINE)),
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "VIRTUAL_ENV": str(VENV),
    "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
}


class StopError(Exception):
    """One sentence for the user; the target ends with exit code 1."""


def call(
    command: list[str | Path], cwd: Path = ROOT, environment: dict[str, str] | None = None
) -> None:
    """Runs a step that must work."""
    env = ENVIRONMENT | (environment or {})
    if subprocess.run(command, env=env, cwd=cwd).returncode != 0:
        raise StopError(f"failed: {' '.join(map(str, command))}")
