"""The front door of the commands."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalite as package
from kafkalite import cli
from kafkalite.cli import COMMANDS
from kafkalite.cli.completion import candidates

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_the_bare_command_prints_help(kafkalite: Run) -> None:
    bare = kafkalite()
    assert bare.returncode == 0
    assert bare.stdout == kafkalite("--help").stdout
    assert "log dump" in bare.stdout
    assert "log verify" in bare.stdout


def test_the_version_is_that_of_the_package(kafkalite: Run) -> None:
    told = kafkalite("--version")
    assert (told.returncode, told.stdout) == (0, f"kafkalite {package.__version__}\n")


def test_an_unknown_command_is_one_sentence(kafkalite: Run) -> None:
    told = kafkalite("brew", "coffee")
    assert told.returncode == 2
    assert told.stderr == "kafkalite: 'brew' is not a command; see 'kafkalite --help'\n"


def test_a_command_that_is_nearly_one_is_told_its_name(kafkalite: Run) -> None:
    told = kafkalite("topic", "list")
    sentence = "kafkalite: 'topic' is not a command; did you mean 'topics'?\n"
    assert (told.returncode, told.stderr) == (2, sentence)
    assert "did you mean 'log verify'?" in kafkalite("verify", "data").stderr
    assert "did you mean 'perf produce'?" in kafkalite("perf", "prodce").stderr


def test_half_a_command_names_the_other_half(kafkalite: Run) -> None:
    told = kafkalite("log", "destroy")
    assert told.returncode == 2
    assert "there are log dump and log verify" in told.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["topics", "create", "x", "--partitons", "3"], "--partitions"),
        (["topics", "create", "x", "--partitons=3"], "--partitions"),
        (["perf", "produce", "--topc", "x"], "--topic"),  # required, and so it is missing
        (["serve", "--lisen", "127.0.0.1:0"], "--listen"),
        (["topics", "lst"], "list"),
        (["topics", "--creat", "--topic", "x"], "--create"),
        (["produce", "x", "--codec", "snapy"], "snappy"),
    ],
)
def test_a_misspelt_word_of_a_command_is_told_what_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.run(words)
    told = capsys.readouterr().err
    assert told.endswith(f"; did you mean '{meant}'?\n") and told.count("\n") == 1


def test_a_flag_that_is_near_to_none_is_told_the_way_to_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.run(["topics", "delete", "x", "--force"])
    told = capsys.readouterr().err
    sentence = "unrecognized arguments: --force; see 'kafkalite topics delete --help'\n"
    assert told == f"kafkalite topics delete: {sentence}"


def test_half_a_command_with_help_lists_the_other_halves(kafkalite: Run) -> None:
    told = kafkalite("log", "--help")
    assert told.returncode == 0
    listed = [line.split("  ")[1] for line in told.stdout.splitlines()[2:]]
    assert listed == ["log dump", "log verify"]


def test_every_command_has_help(kafkalite: Run) -> None:
    for words in COMMANDS:
        command = list(words)
        told = kafkalite(*command, "--help")
        assert told.returncode == 0
        assert told.stdout.startswith(f"usage: kafkalite {' '.join(command)}")


WITH_ACTIONS = [(each,) for each in ("topics", "configs", "groups", "transactions", "cluster")]
WITH_ACTIONS.append(("reassign",))


@pytest.mark.parametrize(
    "words",
    [
        *COMMANDS,
        *(
            (*words, action)
            for words in WITH_ACTIONS
            for action in candidates(words)
            if not action.startswith("--")
        ),
    ],
    ids=" ".join,
)
def test_the_help_describes_commands_in_80_columns_and_has_examples(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`groups delete-offsets` had none, `consume` broke a line within YYYY-MM-DD, and the choices
    of `topics describe` were one line of 170 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.run([*words, "--help"])
    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if len(line) > 80] == []
    described, _, examples = told.partition("\n\n")[2].partition("examples:")
    assert re.search(r"\w-$", described, re.MULTILINE) is None
    assert re.search(rf"kafkalite {' '.join(words)}\s", examples)


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    index = tmp_path / "00000000000000000000.timeindex"
    index.write_bytes(b"".join((n + 1).to_bytes(8) + n.to_bytes(4) for n in range(50_000)))
    command = f"{sys.executable} -m kafkalite log dump {index} | head -3"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "time index, 50,000 rows" in done.stdout


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `kafkalite …` in a shell, with its redirections."""
    return subprocess.run(
        ["sh", "-c", command.replace("kafkalite", f"{sys.executable} -m kafkalite")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_an_output_without_room_is_one_sentence() -> None:
    for command in ("kafkalite", "kafkalite --version", "kafkalite log --help"):
        told = shell(f"{command} >/dev/full")
        sentence = "kafkalite: the output cannot be written: No space left on device\n"
        assert (told.returncode, told.stderr) == (1, sentence)


def test_closed_standard_streams_are_no_error(tmp_path: Path) -> None:
    index = tmp_path / "00000000000000000000.timeindex"
    index.write_bytes(bytes(12))
    told = shell(f"kafkalite log dump {index} >&- <&-")
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    told = shell(f"kafkalite log dump {index}.gone 2>&-")
    assert (told.returncode, told.stdout, told.stderr) == (1, "", "")


@pytest.mark.parametrize("encoding", ["ascii", "ascii:surrogateescape"])  # as LC_ALL=C may have it
def test_help_is_printed_in_any_encoding(encoding: str) -> None:
    told = shell("kafkalite log dump --help", PYTHONIOENCODING=encoding)
    assert (told.returncode, told.stderr) == (0, "")
    assert "--files PATH,\\u2026" in told.stdout


def test_help_takes_the_name_of_a_command(kafkalite: Run) -> None:
    assert kafkalite("help", "log", "dump").stdout == kafkalite("log", "dump", "--help").stdout
    assert kafkalite("help", "log").stdout == kafkalite("log", "--help").stdout


def test_a_path_that_is_not_there_is_told_apart_from_one_that_is_no_log(
    kafkalite: Run, tmp_path: Path
) -> None:
    told = kafkalite("log", "dump", tmp_path / "gone")
    assert told.stderr == f"kafkalite: {tmp_path}/gone: there is no such file or directory\n"


@pytest.mark.parametrize("module", ["kafkalite.cli", "kafkalite.errors", "kafkalite.cli.topics"])
def test_an_interrupt_while_a_module_is_imported_is_no_traceback(module: str) -> None:
    script = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from kafkalite.__main__ import main\n"
        "sys.argv = ['kafkalite', 'topics', 'list']\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\n")
