"""The commands. One file a command, each with `run(arguments) -> exit code` and `command_line()`,
its parser; this one finds them.

Exit codes: 0 done; 1 the command worked and has bad news (a finding, a refusal); 2 a wrong
command line; 130 interrupted; 143 ended by SIGTERM. An error of kafkalite is one sentence on
stderr, never a traceback.
"""

import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TextIO

from kafkalite._native import __version__

# The words of a command -> its module and one line of help. A row is all that a new command adds.
COMMANDS: dict[tuple[str, ...], tuple[str, str]] = {
    ("serve",): ("kafkalite.cli.serve", "run a broker"),
    ("format",): ("kafkalite.cli.format", "format the log directories of a node"),
    ("topics",): (
        "kafkalite.cli.topics.command",
        "create, list, describe, alter and delete topics",
    ),
    ("configs",): ("kafkalite.cli.configs", "describe and alter configurations"),
    ("groups",): (
        "kafkalite.cli.groups.command",
        "list consumer groups, show their lag, reset their offsets",
    ),
    ("transactions",): (
        "kafkalite.cli.transactions",
        "list and describe transactions, abort hanging ones",
    ),
    ("produce",): ("kafkalite.cli.produce", "send lines from standard input as records"),
    ("consume",): ("kafkalite.cli.consume", "print records"),
    ("offsets",): ("kafkalite.cli.offsets", "show offsets of partitions"),
    ("cluster",): ("kafkalite.cli.cluster", "show the brokers and controllers of a cluster"),
    ("reassign",): (
        "kafkalite.cli.replicas.reassign",
        "move replicas to other brokers and log directories",
    ),
    ("elect",): ("kafkalite.cli.replicas.elect", "elect leaders of partitions"),
    ("perf", "produce"): (
        "kafkalite.cli.perf.produce",
        "measure the throughput and latency of producing",
    ),
    ("perf", "consume"): ("kafkalite.cli.perf.consume", "measure the throughput of consuming"),
    ("arrow", "serve"): ("kafkalite.cli.arrow_serve", "serve records as Arrow streams"),
    ("log", "dump"): ("kafkalite.cli.log.dump", "print the contents of log files"),
    ("log", "verify"): ("kafkalite.cli.log.verify", "check the files of a log directory"),
    ("completion",): ("kafkalite.cli.completion", "print a shell completion script"),
}

# What a write to the standard output fails with; whatever else is written has a name, or errors of
# kafkalite's own.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


FIRST_STEPS = """
  --version  print the version
  --help     print this help

examples:
  kafkalite serve --data data     # a broker on 127.0.0.1:9092, until Ctrl-C
  echo hello | kafkalite produce orders
  kafkalite consume orders --from-beginning
"""


def run(arguments: Sequence[str]) -> int:
    """Runs the command that `arguments` starts with; returns the exit code."""
    _make_streams_usable()
    try:
        return _told(arguments)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                # It has no room or no reader, and would fail again at exit, with exit code 120.
                _leave(stream)


def _told(arguments: Sequence[str]) -> int:
    """Runs a command; what goes wrong is a sentence on stderr."""
    from kafkalite.errors import KafkaliteError

    try:
        code = _run(arguments)
        # Now rather than at exit, so that a closed pipe or a full disk shows here.
        sys.stdout.flush()
    except KafkaliteError as error:
        sys.stderr.write(f"kafkalite: {sentence(error)}\n")
        return getattr(error, "exit_code", 1)
    except KeyboardInterrupt as interrupt:
        sys.stderr.write("\n")
        return getattr(interrupt, "exit_code", 130)
    except BrokenPipeError:
        # The reader (head, less) has seen enough.
        _leave(sys.stdout)
        return 0
    except UnicodeEncodeError as error:
        sys.stderr.write(f"kafkalite: {error.object!r} is not UTF-8 text\n")
        return 2
    except OSError as error:
        if error.errno not in FULL or error.filename is not None:
            raise
        _leave(sys.stdout)
        sys.stderr.write(f"kafkalite: the output cannot be written: {error.strerror}\n")
        return 1
    return code


def sentence(error: BaseException) -> str:
    """Gives the sentence of an error, and the remedies that were noted on it."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


def _run(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == "help" and len(arguments) > 1:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        sys.stdout.write(f"kafkalite {__version__}\n")
        return 0
    for words, (module, _) in COMMANDS.items():
        if tuple(arguments[: len(words)]) == words:
            code: int = import_module(module).run(list(arguments[len(words) :]))
            return code
    inner = [words for words in COMMANDS if words[0] == arguments[0]]
    if inner and set(arguments[1:2]) & {"-h", "--help", "help"}:
        sys.stdout.write(_overview(inner))
        return 0
    named = " ".join(arguments[: 2 if inner else 1])
    found = _nearest(arguments[1:2] if inner else arguments[:1], inner)
    if found:
        remedy = f"did you mean '{found}'?"
    elif inner:
        remedy = f"there are {' and '.join(' '.join(words) for words in inner)}"
    else:
        remedy = "see 'kafkalite --help'"
    sys.stderr.write(f"kafkalite: '{named}' is not a command; {remedy}\n")
    return 2


def _nearest(given: Sequence[str], inner: Sequence[tuple[str, ...]]) -> str | None:
    """Guesses the command that was meant: one of `inner`, if there are any, by its second word;
    else any, by its first word, or the second alone (`verify` for `log verify`)."""
    from difflib import get_close_matches

    meant = {words[1]: " ".join(words) for words in inner or COMMANDS if len(words) > 1}
    if not inner:
        meant |= {words[0]: words[0] for words in COMMANDS}
    found = get_close_matches(" ".join(given), meant, n=1)
    return meant[found[0]] if found else None


def _make_streams_usable() -> None:
    """In place of standard streams that are closed, the null device, so that no file or socket gets
    their numbers; and an output whose encoding lacks a character has it escaped."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115 - as long as the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and (
        sys.stdout.errors == "strict" or sys.stdout.encoding.lower() not in ("utf-8", "utf8")
    ):
        sys.stdout.reconfigure(errors="backslashreplace")


def _leave(stream: TextIO) -> None:
    """Closes a standard stream, so that what is left in it does not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _overview(some: Sequence[tuple[str, ...]] = ()) -> str:
    """The commands, or some of them, a line each."""
    rows = [(" ".join(words), COMMANDS[words][1]) for words in some or COMMANDS]
    width = max((len(name) for name, _ in rows), default=0)
    usage = f"kafkalite {some[0][0]} COMMAND" if some else "kafkalite COMMAND"
    return (
        f"usage: {usage} [options]   (--help after a command describes it)\n\n"
        + "".join(f"  {name:<{width}}  {summary}\n" for name, summary in rows)
        + ("" if some else FIRST_STEPS)
    )
