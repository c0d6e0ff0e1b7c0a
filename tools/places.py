"""Where the targets of make find things, and what their commands see: `.venv` and `target/` of this
folder, nowhere else."""

import os
import pwd
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"

# Go and npm keep what they fetch below HOME, which not every service sets.
HOME = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
# Tests run the wheel's profile. Incremental, so that a second build takes seconds.
ENVIRONMENT = os.environ | {
    "HOME": HOME,
    "CARGO_INCREMENTAL": "1",
    "SOURCE_DATE_EPOCH": "315532800",  # the same sources make the same wheel
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
