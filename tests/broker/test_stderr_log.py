"""Lines of the broker's log, whatever is told in them."""

import json
import re
import sys

import pytest

from kafkalite.service.stderr_log import SENTENCE_CHARACTERS_MAX, Log

FORGED = "evil\n2026-11-23 17:00:00,000 ERROR forged\r\x1b[2J\x85\u2028\x00end"


def test_no_client_writes_lines_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    """A client id, a group id or a reason with a line feed was a line of the log like any other."""
    Log("info").info(f"group {FORGED} is gone")
    (line,) = capfd.readouterr().err.split("\n")[:-1]
    assert line.endswith(
        r"INFO group evil\n2026-11-23 17:00:00,000 ERROR forged\r\x1b[2J\x85\u2028\x00end is gone"
    )


def test_a_traceback_keeps_its_lines_below_what_has_failed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Log("info").error("a task failed:", f"Traceback:\n  File\nValueError: {FORGED}\n")
    first, *others = capfd.readouterr().err.splitlines()
    assert first.endswith(" ERROR a task failed:")
    assert others == [
        "    Traceback:",
        "      File",
        "    ValueError: evil",
        r"    2026-11-23 17:00:00,000 ERROR forged\r\x1b[2J\x85\u2028\x00end",
    ]


def test_json_has_sentence_and_traceback_as_they_are(capfd: pytest.CaptureFixture[str]) -> None:
    Log("info", "json").error(FORGED, "Traceback:\n  File\n")
    assert json.loads(capfd.readouterr().err)["message"] == f"{FORGED}\nTraceback:\n  File\n"


def test_a_long_sentence_is_cut_with_a_count(capfd: pytest.CaptureFixture[str]) -> None:
    """One of 30 MB was written by pieces of 4 KiB, each of which copied all that was left, while
    every other thread waited for the lock."""
    Log("info").info("x" * (SENTENCE_CHARACTERS_MAX + 30_000_000))
    line = capfd.readouterr().err
    assert re.search(" INFO x{10000}(…|.u2026) .30000000 more characters.\n$", line), sys.stderr
