"""What `make` says on a machine that lacks something, and of tests that had to be run again."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

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


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """tools/suites.py with reports of its own."""
    monkeypatch.syspath_prepend(MAKE.parent)
    module = importlib.import_module("suites")
    monkeypatch.setattr(module, "REPORTS", tmp_path)
    monkeypatch.setattr(module, "FLAKY", tmp_path / "flaky-tests.txt")
    return module


def test_every_folder_of_a_lane_is_there(suites: Any) -> None:
    """One that is not would run nothing, and its tests would run in no lane."""
    folders = [folder for lane in suites.LANES.values() for folder in lane]
    assert len(set(folders)) == len(folders)
    assert all((MAKE.parents[1] / folder).is_dir() for folder in folders)


def last_line(suites: Any, capsys: pytest.CaptureFixture[str], *flaky: str) -> str:
    """Of the report of a run of ten tests, with those that passed only when run again."""
    suites.report([suites.Suite("suite", passed=10, second_tries=list(flaky))])
    return capsys.readouterr().out.splitlines()[-1]


def test_the_last_line_names_what_passed_only_when_run_again(
    suites: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run was green to whoever read its last line."""
    assert last_line(suites, capsys) == "10 passed, 0 failed, 0 skipped"
    assert last_line(suites, capsys, "groups.test_a", "client.test_b") == (
        "10 passed, 0 failed, 0 skipped, 2 passed only when run again: groups.test_a, client.test_b"
    )


def test_what_passed_only_when_run_again_for_the_third_time_in_a_week_has_failed(
    suites: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    day_s = 86_400
    for day in (0, 6, 8):
        monkeypatch.setattr(suites.time, "time", lambda day=day: 1_800_000_000 + day * day_s)
        assert ", 0 failed" in last_line(suites, capsys, "groups.test_a"), "never three in a week"
    last_line(suites, capsys, "client.test_b")
    with pytest.raises(SystemExit) as stop:
        last_line(suites, capsys, "groups.test_a")
    assert stop.value.code == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("9 passed, 1 failed, 0 skipped, 1 ")
    assert "1 passed only" in last_line(suites, capsys, "client.test_b"), "that is its second"
