"""What commands print with."""

import io
import os
import sys

import pytest

from kafkalite.cli.console import terminal


def test_a_table_is_as_wide_as_its_cells_on_the_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wide characters and long names pushed the columns behind them to the right."""
    rows = [("GROUP", "TOPIC", "LAG"), ("日本", "t" * 12, 5), ("e\u0301", None, 7)]
    terminal.print_table(rows, (6, 6))
    assert capsys.readouterr().out.splitlines() == [
        "GROUP  TOPIC        LAG",
        "日本   tttttttttttt 5",
        "e\u0301      -            7",
    ]


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_takes_one_line_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a long topic went on in the next line, and only that was taken away again."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(terminal, "PROGRESS_EVERY_S", 0.0)
    monkeypatch.setattr(terminal, "get_terminal_size", lambda: os.terminal_size((40, 24)))
    with terminal.Progress("a" * 100 + "-end") as progress:
        progress.count(2000, "record")
        progress.show(1 << 20, 1 << 21)
    shown = [line.removeprefix("\x1b[K") for line in screen.getvalue().split("\r")[1:-1]]
    assert [line.rpartition("-")[2] for line in shown] == [
        "end: 2,000 records",
        "end: 1.0 MiB of 2.0 MiB, 50 %",
    ]
    assert all(len(line) < 40 and line.startswith("…a") for line in shown)


def test_many_partitions_are_one_line_for_scripts_and_several_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A thousand elected partitions were one line, which a terminal broke within their names."""
    items = [f"orders-{number}" for number in range(9)]
    terminal.print_listed("Elected:", items, ", ")
    assert capsys.readouterr().out == f"Elected: {', '.join(items)}\n"
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(terminal, "get_terminal_size", lambda: os.terminal_size((40, 24)))
    terminal.print_listed("Elected:", items, ", ")
    lines = screen.getvalue().splitlines()
    assert [len(line) <= 40 for line in lines] == [True] * 3
    assert " ".join(line.strip() for line in lines) == f"Elected: {', '.join(items)}"
