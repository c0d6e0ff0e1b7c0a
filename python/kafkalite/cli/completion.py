"""`kafkalite completion`: what a shell needs to complete commands, actions and options.

The script that it prints asks the command itself at each Tab, so that it is never out of date.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from kafkalite.cli.options import new_parser

DESCRIPTION = """Print a script with which a shell completes the commands, actions and options of
kafkalite. Put the example for your shell into ~/.bashrc, ~/.zshrc (after compinit) or
~/.config/fish/config.fish."""

EXAMPLES = """
eval "$(kafkalite completion bash)"
eval "$(kafkalite completion zsh)"
kafkalite completion fish | source
"""

# A file is completed where there is nothing to choose from.
SCRIPTS = {
    "bash": """\
_kafkalite() {
    local given=("${COMP_WORDS[@]:1:COMP_CWORD-1}") IFS=$'\\n'
    COMPREPLY=($(compgen -W "$(kafkalite completion words -- "${given[@]}" 2>/dev/null)" \\
        -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _kafkalite kafkalite
""",
    "zsh": """\
_kafkalite() {
    local -a found
    found=(${(f)"$(kafkalite completion words -- "${(@)words[2,CURRENT-1]}" 2>/dev/null)"})
    compadd -- $found || _files
}
compdef _kafkalite kafkalite
""",
    "fish": """\
complete -c kafkalite -a '(kafkalite completion words -- (commandline -opc)[2..] 2>/dev/null)'
""",
}


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    if arguments[:2] == ["words", "--"]:
        sys.stdout.writelines(f"{word}\n" for word in candidates(arguments[2:]))
        return 0
    parser = command_line()
    if not arguments:
        parser.print_help()
        return 0
    sys.stdout.write(SCRIPTS[parser.parse_args(arguments).shell])
    return 0


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    parser = new_parser("kafkalite completion", DESCRIPTION, EXAMPLES)
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")
    return parser


def candidates(given: Sequence[str]) -> list[str]:
    """The words that may follow those that have been given; none where it may be anything."""
    from kafkalite.cli import COMMANDS

    for words, (module, _) in COMMANDS.items():
        if tuple(given[: len(words)]) == words:
            return _of_parser(import_module(module).command_line(), given[len(words) :])
    begun = len(given)
    following = [words[begun] for words in COMMANDS if words[:begun] == tuple(given) != words]
    return list(dict.fromkeys(following + ([] if given else ["help", "--help", "--version"])))


def _of_parser(parser: argparse.ArgumentParser, given: Sequence[str]) -> list[str]:
    """The values of the option that stands last, if it takes one; else actions and options."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for at, word in enumerate(given):
                if word in action.choices:
                    return _of_parser(action.choices[word], given[at + 1 :])
    found: list[str] = []
    for action in parser._actions:
        if given and given[-1] in action.option_strings and action.nargs != 0:
            return [str(each) for each in action.choices or ()]
        if not action.option_strings:
            found += [str(each) for each in action.choices or ()]
        elif action.help != argparse.SUPPRESS:
            found += [name for name in action.option_strings if name.startswith("--")]
    return found
