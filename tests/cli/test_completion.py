"""What shells complete commands by."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from clients import provision
from kafkalite.cli import COMMANDS
from kafkalite.cli.completion import SCRIPTS, candidates

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_every_command_is_offered_word_by_word_and_then_its_options() -> None:
    for words in COMMANDS:
        for length, word in enumerate(words):
            assert word in candidates(words[:length])
        assert "--help" in candidates(words)


def test_actions_and_values_to_choose_from_are_offered() -> None:
    assert {"create", "delete"} <= set(candidates(["topics"]))
    assert "--if-not-exists" in candidates(["topics", "--timeout", "5", "create", "orders"])
    assert candidates(["produce", "orders", "--codec"])[1:3] == ["gzip", "snappy"]
    assert candidates(["consume", "orders", "--offset"]) == []
    assert candidates(["no-such"]) == []


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_can_read_its_script(kafkalite: Run, shell: str) -> None:
    try:
        provision.debian(shell)
    except provision.ForbiddenError as reason:
        pytest.skip(str(reason))
    script = kafkalite("completion", shell).stdout
    read = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True)
    assert (read.returncode, read.stderr) == (0, "")


def test_bash_completes(kafkalite: Run) -> None:
    command = f'kafkalite() {{ {sys.executable} -m kafkalite "$@"; }}'
    steps = "COMP_WORDS=({}); COMP_CWORD={}; _kafkalite; echo ${{COMPREPLY[@]}}"
    asked = [("kafkalite per", 1), ("kafkalite perf ''", 2), ("kafkalite log dump --j x", 3)]
    lines = [command, kafkalite("completion", "bash").stdout]
    lines += [steps.format(*each) for each in asked]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("perf\nproduce consume\n--json\n", "")
