"""Parts of every command line: parsers with examples in their help, kinds of arguments, and
what is read and printed."""

import argparse
import json
import re
import signal
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from kafkalite.cli import sentence
from kafkalite.cli.console.terminal import size_text
from kafkalite.client.network.servers import parse_servers
from kafkalite.config.properties import parse_properties
from kafkalite.errors import InvalidArgumentError, KafkaliteError

INT_MAX = 2**31 - 1
SHORT_MAX = 2**15 - 1
LONG_MAX = 2**63 - 1
RECORD_BYTES_MAX = 100 << 20
"""Size of a record, the line or the file it is in: what a broker takes as one request
(`socket.request.max.bytes`)."""
FILE_BYTES_MAX = 1 << 30
"""Size of a file that a command reads as a whole."""
HELP_WIDTH = 79
USAGE_INDENT = " " * 7
"""Behind `usage: `, where argparse has options of a command with a long name begin."""


class UsageError(KafkaliteError):
    """The command line contradicts itself, or lacks something."""

    exit_code = 2


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Breaks lines between words alone, for `YYYY-MM-DD` is one, and choices between two of them,
    which argparse keeps in one line however many they are."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        words = " ".join(text.split())
        return textwrap.wrap(words, width, break_on_hyphens=False)

    def _format_usage(self, *arguments: Any, **named: Any) -> str:
        usage = super()._format_usage(*arguments, **named)
        if all(len(line) <= self._width for line in usage.splitlines()):
            return usage
        # The names of options begin at the brackets, those of positionals behind them.
        parts = re.findall(r"\(.*?\)(?=\s|$)|\[.*?\]+(?=\s|$)|\S+", " ".join(usage.split()))
        lines: list[str] = []
        for part in parts:
            words = part.replace(" | ", "\0| ").split("\0")
            room = len(part)  # choices begin in a line of their own, if they do not fit this one
            for word in words:
                if lines and len(lines[-1]) + 1 + room <= self._width:
                    lines[-1] += f" {word}"
                else:
                    lines.append(f"{USAGE_INDENT if lines else ''}{word}")
                room = len(word)
        return "\n".join(lines) + "\n\n"


class Parser(argparse.ArgumentParser):
    """Refuses in the words of the other commands, with what was meant or the way to the help."""

    _given: Sequence[str] = ()

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, but the parser of the action says which words it does not know: it knows
        those that are near."""
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            getattr(options, "parser", self).error(f"unrecognized arguments: {' '.join(rest)}")
        return options

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse; remembers what was given, for `error`."""
        self._given = sys.argv[1:] if args is None else args
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Ends with exit code 2. A flag that is required is missing also if it is misspelt."""
        remedy = self._misspelt() or f"see '{self.prog} --help'"
        told = message if message.endswith("?") else f"{message}; {remedy}"
        sys.stderr.write(f"{self.prog}: {told}\n")
        raise SystemExit(2)

    def _misspelt(self) -> str:
        options = self._option_string_actions
        words = [f"--{each}" for action in self._actions for each in self._names_in(action)]
        for given in self._given:
            flag = given.partition("=")[0]
            is_known = any(each.startswith(flag) for each in options)  # or is short for it
            if flag.startswith("--") and not is_known:
                found = nearest(flag, [*options, *words])
                if found:
                    return f"did you mean '{found}'?"
        return ""

    @staticmethod
    def _names_in(action: argparse.Action) -> Iterable[str]:
        """The actions of a command, which are flags, too, as in Kafka's tools."""
        return action.choices if isinstance(action, argparse._SubParsersAction) else ()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            if found := nearest(str(value), map(str, action.choices or ())):
                error.message = f"'{value}' is not one of the choices; did you mean '{found}'?"
            raise

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """As argparse, whose Python 3.11 makes an empty list of `--key-separator=--`."""
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The word that was meant by one that is misspelt, if one of these is near."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(known), n=1)
    return found[0] if found else None


def examples_text(lines: Sequence[str]) -> str | None:
    """The end of a help: an example a line, which goes on in the next where it is too long."""
    if not lines:
        return None
    wrapped = ["examples:"]
    for line in lines:
        rest = f"  {line}"
        while len(rest) > HELP_WIDTH and (at := rest.rfind(" --", 0, HELP_WIDTH - 2)) > 0:
            wrapped.append(f"{rest[:at]} \\")
            rest = f"      {rest[at + 1 :]}"
        wrapped.append(rest)
    return "\n".join(wrapped)


def new_parser(prog: str, description: str, examples: str = "") -> Parser:
    """A parser whose help ends with the examples, a line each. Empty lines part the paragraphs of
    the description."""
    paragraphs = [
        textwrap.fill(" ".join(each.split()), 79, break_long_words=False, break_on_hyphens=False)
        for each in description.split("\n\n")
    ]
    return Parser(
        prog=prog,
        description="\n\n".join(paragraphs),
        epilog=examples_text([line.strip() for line in examples.strip().splitlines()]),
        formatter_class=HelpFormatter,
    )


def servers_argument(text: str) -> str:
    """Bootstrap servers, for argparse."""
    try:
        parse_servers(text)
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def milliseconds_argument(text: str) -> int:
    """A time to wait, for argparse."""
    number = decimal(text)
    if not number or number > INT_MAX:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of milliseconds above 0")
    return number


def int_argument(text: str) -> int:
    """A whole number that Kafka's protocol has room for, for argparse."""
    return _whole_number(text, INT_MAX)


def short_argument(text: str) -> int:
    """A smaller one, such as a replication factor."""
    return _whole_number(text, SHORT_MAX)


def decimal(text: str) -> int | None:
    """A number of digits alone; None for anything else, and for one that Kafka's protocol has no
    room for."""
    is_number = text.isdecimal() and len(text) < 30  # Python takes no more than 4,300
    number = int(text) if is_number else None
    return None if number is None or number > LONG_MAX else number


def long_argument(text: str) -> int:
    """An offset, or another number of 64 bits, for argparse."""
    return _whole_number(text, LONG_MAX)


def _whole_number(text: str, largest: int) -> int:
    try:
        number = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from error
    if abs(number) > largest:
        raise argparse.ArgumentTypeError(f"{text} is too large")
    return number


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a member of a group as Ctrl-C does: it commits and leaves."""

    exit_code = 143


@contextmanager
def terminable() -> Iterator[None]:
    """In the block SIGTERM raises `Terminated`."""

    def end(*_: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def require_text(*texts: str) -> None:
    """Raises UnicodeEncodeError for what cannot be a name, since its bytes were no UTF-8."""
    for text in texts:
        text.encode()


def regular_expression(text: str) -> re.Pattern[str]:
    """Raises `UsageError` for what is none."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"'{text}' is not a regular expression: {error}") from error


def names_of(positional: Sequence[str], flagged: Sequence[str] | None) -> list[str]:
    """Names given as words and by a flag of Kafka's."""
    return [*positional, *(flagged or ())]


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """`a=1`, `b=[x,y]` and, as kafka-configs takes it, `a=1,b=2`. Raises `UsageError`."""
    settings = {}
    for text in texts:
        for part in _split_settings(text):
            key, equals, value = part.partition("=")
            if not equals or not key.strip():
                raise UsageError(f"'{part}' is not KEY=VALUE")
            value = value.strip()
            if value.startswith("[") and value.endswith("]"):
                value = value[1:-1]
            settings[key.strip()] = value
    return settings


def tool_properties(texts: Sequence[str], path: str | None) -> dict[str, str]:
    """`key.separator==` as the console tools of Kafka take it: all behind the first `=` belongs to
    the value. They win over those of a file. Raises `UsageError`."""
    found = parse_properties(read_text(path)) if path else {}
    for text in texts:
        key, _, value = text.partition("=")
        found[key] = value
    return found


def _split_settings(text: str) -> list[str]:
    """At commas that are not within brackets and have a key behind them."""
    parts: list[str] = []
    depth = 0
    start = 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        following = text[at + 1 :].partition(",")[0]
        if letter == "," and depth <= 0 and "=" in following:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def read_text(path: str) -> str:
    """A whole file in UTF-8. Raises `UsageError`."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text, at byte {error.start}") from error


def read_json(path: str) -> Any:
    """Reads a file of JSON. Raises `UsageError`; ValueError for what is none."""
    try:
        return json.loads(read_text(path))
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply") from error


def read_bytes(path: str, size_max: int = FILE_BYTES_MAX) -> bytes:
    """A whole file. Raises `UsageError`, also for one that is larger, as those of devices are."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slower to import
            content = file.read(size_max + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # a NUL in the path
        raise UsageError(f"{path!r}: {error}") from error
    if len(content) > size_max:
        raise UsageError(f"{path} has more than {size_text(size_max)}")
    return content


def print_json(fields: Mapping[str, Any]) -> None:
    """One object, one line."""
    sys.stdout.write(json.dumps(fields, ensure_ascii=False) + "\n")


def print_error(error: KafkaliteError | str) -> None:
    """One sentence on stderr, with the remedies that were noted for an error."""
    told = error if isinstance(error, str) else sentence(error)
    sys.stderr.write(f"kafkalite: {told}\n")
