"""What a command says a user can do about its error."""

from pathlib import Path

import pytest

from cli.told import Run
from kafkalite import cli


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "x"],
        ["produce", "x"],
        ["perf", "consume", "--topic", "x", "--num-records", "1"],
        ["cluster"],
    ],
    ids=" ".join,
)
def test_every_command_says_how_a_broker_is_started(
    arguments: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = tmp_path / "line"
    line.write_text("a record\n", encoding="utf-8")
    servers = "127.0.0.1:1,127.0.0.1:2"
    with line.open(encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert cli.run([*arguments, "--bootstrap-server", servers, "--timeout", "3000"]) == 1
    assert "; 'kafkalite serve' starts one" in capfd.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "describe", "invoises"],
        ["topics", "delete-records", "invoises", "--before", "3"],
        ["configs", "alter", "--topic", "invoises", "--add-config", "retention.ms=1"],
        ["consume", "invoises", "--from-beginning"],
        ["offsets", "invoises"],
        ["groups", "reset-offsets", "g", "--topic", "invoises:0", "--to-earliest"],
        ["reassign", "generate", "invoises", "--broker-list", "1"],
    ],
    ids=" ".join,
)
def test_a_misspelt_topic_is_told_the_name_that_is_near(run: Run, arguments: list[str]) -> None:
    assert run("topics", "create", "invoices", "--if-not-exists").exit == 0
    told = run(*arguments)
    assert told.exit in (1, 2)
    assert told.err.endswith("; did you mean 'invoices'?\n"), told.err


def test_a_topic_that_is_near_to_none_has_no_hint(run: Run) -> None:
    told = run("topics", "delete-records", "zzzzzz", "--before", "3")
    assert told.err.endswith("there is no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION)\n")
