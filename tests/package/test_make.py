"""What `make` says on a machine that lacks something."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

MAKE = Path(__file__).parents[2] / "tools" / "make.py"


@pytest.mark.parametrize(
    ("programs", "sentence"),
    [
        ({}, "cargo is missing: install Rust "),
        (
            {"cargo": "cargo 1.63.0 (x 2022-07-16)"},
            "cargo 1.63.0 (x 2022-07-16) is too old: install ",
        ),
        ({"cargo": "cargo 1.88.0"}, "a C compiler is missing"),
    ],
)
def test_what_is_missing_is_one_sentence(
    tmp_path: Path, programs: dict[str, str], sentence: str
) -> None:
    """An old cargo failed on Cargo.lock, four times, as a download that may come the next time."""
    for name, told in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{told}'\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [sys.executable, MAKE, "build"], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"make: {sentence}")
    assert done.stdout == ""


def test_help_lists_every_target_of_the_makefile() -> None:
    done = subprocess.run([sys.executable, MAKE, "help"], capture_output=True, text=True)
    assert done.returncode == 0
    makefile = (MAKE.parents[1] / "Makefile").read_text()
    (line,) = [each for each in makefile.splitlines() if each.startswith("TARGETS := ")]
    told = set(re.findall(r"[a-z-]+", done.stdout))
    assert set(line.removeprefix("TARGETS := ").split()) <= told
