"""Commands with actions, in words or as Kafka's tools have them: `topics create orders`, and
`topics --create --topic orders`."""

import argparse
from collections.abc import Callable, Sequence

from kafkalite.cli.client_config import ADMIN, add_server, parse
from kafkalite.cli.options import HelpFormatter, examples_text, new_parser, require_text

OF_EVERY_ACTION = {
    "--bootstrap-server": True,
    "--timeout": True,
    "--command-config": True,
    "--json": False,
}
"""Options of `add_server`, and whether a value follows."""


class Actions:
    """A command with actions, each of which has a parser of its own."""

    def __init__(self, prog: str, description: str, examples: str, default: str = "") -> None:
        """`default` names the action that is meant where none is."""
        self.parser = new_parser(prog, description, examples)
        self.parser.set_defaults(run=None, properties=ADMIN)
        self.parser.set_defaults(command_config=None, command_property=[])
        self._actions = self.parser.add_subparsers(title="actions", metavar="ACTION")
        self._prog = prog
        self._default = default
        self._examples = [line.strip() for line in examples.strip().splitlines()]
        self._names: list[str] = []

    def add(
        self,
        name: str,
        run: Callable[[argparse.Namespace], int],
        help_line: str,
        examples: str = "",
    ) -> argparse.ArgumentParser:
        """An action, with the options of every command in it already. Its help ends with the
        examples, or with those of the command that are its own."""
        own = f"{self._prog} {name}"
        lines = [line.strip() for line in examples.strip().splitlines()] or [
            line for line in self._examples if f"{line} ".startswith(f"{own} ")
        ]
        parser = self._actions.add_parser(
            name,
            prog=own,
            help=help_line,
            description=help_line[0].upper() + help_line[1:] + ".",
            epilog=examples_text(lines),
            formatter_class=HelpFormatter,
        )
        parser.set_defaults(run=run)
        add_server(parser)
        self._names.append(name)
        return parser

    def run(self, arguments: Sequence[str]) -> int:
        """Runs the action that the arguments name; help without one."""
        require_text(*arguments)
        words = _action_first(arguments, self._names)
        is_named = words[:1] and words[0] in (*self._names, "-h", "--help")
        if self._default and not is_named and (not words or words[0].startswith("-")):
            words = [self._default, *words]
        options = parse(self.parser, words)
        if options.run is None:
            self.parser.print_help()
            return 0
        code: int = options.run(options)
        return code


def _action_first(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """`--bootstrap-server HOST:PORT list` as `list --bootstrap-server HOST:PORT`, and, if no word
    is an action, `--topic orders --create` as `create --topic orders`."""
    rest = list(arguments)
    at = 0
    while at < len(rest) and (word := rest[at].partition("=")[0]) in OF_EVERY_ACTION:
        at += 1 + (OF_EVERY_ACTION[word] and "=" not in rest[at])
    if at < len(rest) and not rest[at].startswith("-"):
        return [rest.pop(at), *rest]
    for name in names:
        if f"--{name}" in rest:
            rest.remove(f"--{name}")
            return [name, *rest]
    return rest
