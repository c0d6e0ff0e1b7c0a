"""Command lines that nobody would type: every command and option with values of every odd kind.

`lines(seed, …)` draws them; `Play` runs each in a fork of this process, as `main` would be run by
the interpreter, and says what is wrong with its end. It is a process of its own, without threads:

    cd tests && python -m cli.random_lines FOLDER HOST:PORT FIRST_SEED COUNT
"""

import argparse
import io
import os
import random
import re
import resource
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn
from unittest import mock

from kafkalite.__main__ import main
from kafkalite.cli import COMMANDS
from kafkalite.cli.options import Parser
from kafkalite.config.keys import KeyTable

TOPIC = "of-random-lines"
LIMIT_S = 0.5
"""A command that goes on for longer is interrupted, as by Ctrl-C."""
HANGS_S = 60
MEMORY_BYTES = 2 << 30
EXIT_CODES = (0, 1, 2, 130, 143)
SERVES = [("serve",), ("arrow", "serve")]
IGNORED_INTERRUPT = re.compile(
    r"^Exception ignored .*\n(?:Traceback .*\n(?: +.*\n)*)?KeyboardInterrupt.*\n", re.MULTILINE
)

# None of these needs a name server.
HOSTS = [
    "127.0.0.1:1", "a..b:1", f"{'h' * 70}:1", ":1", "[::1", "[::1]:1", "]:[", "127.0.0.1:0",
    "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:²", "127.0.0.1:٣", f"127.0.0.1:{'9' * 5000}",
    "\udcff:1", "127.0.0.1:1\0", "", ",", "a..b:1,127.0.0.1:1", "x://127.0.0.1:1", "::1:1",
    "127.0.0.1 :1", "[a..b]:1", ".:1",
]  # fmt: skip
NUMBERS = [
    "0", "1", "2", "-1", "-2", "100", str(2**15), str(2**31 - 1), str(2**31), str(2**63 - 1),
    str(2**63), "1" + "0" * 30, "-1" + "0" * 30, "9" * 5000, "1e9", "nan", "inf", "-inf", "1.5",
    "1e400", "٣", "²", "1_000", " 7 ", "0x10",
]  # fmt: skip
TEXTS = [
    "", " ", "\0", "a\0b", "\udcff", "é", "日本", "\n", "\x1b[2J", "a" * 300, "a" * 70_000, "a=b",
    "=", "a=", "=b", "a=\udcff", ",", "a,b", ":", "t:0", f"{TOPIC}:0", f"{TOPIC}:0-1", "t:a-b",
    "t:99999999999999999999", f"{TOPIC}:²", "[", "(", "*", ".*", "a{99999999999}", "(?P<", "\\",
    "%", "%z", "\\x", "%t\\", "{}", "[1]", "null", "-", "--", "-x", "1:2,2:3", "1:1", "1:a", "1,",
    "stable,Empty", "topics", "__consumer_offsets", TOPIC, "g", "retention.ms=5", "acks=2",
    "compression.type=x", "linger.ms=-1", "compression.gzip.level=x", "batch.size=0",
    "client.id=\udcff", "buffer.memory=-1", "bootstrap.servers=a..b:1", "retention.ms=\0",
]  # fmt: skip
TIMES = [
    "2026-11-21T06:00:00.000", "9999-12-31T23:59:59.999", "0000-01-01T00:00:00",
    "0001-01-01T00:00:00+23:59", "2026-01-01T00:00:00+99:99", "2026-01-01T24:00:00", "2026",
    "٢٠٢٦-01-01T00:00:00", "P1D", "PT9999999999999999999H", "-P99999999D", "PT1.9S", "P",
    f"P{'9' * 5000}D", "earliest", "latest", "-5", "max-timestamp", "earliest-local", "-3", "-99",
]  # fmt: skip
INPUTS = {
    "nothing": b"",
    "lines": b"a:1\nb:2\n\n",
    "no text": b"\xff\xfe\0\n" * 3,
    "json": b'{"value": "x"}\n{"value": {"base64": 5}}\n',
    "more json": b'{"value": {"hex": 5}}\n',
    "headers": b'{"value": null, "headers": 5}\n',
    "odd headers": b'{"value": null, "headers": [5]}\n',
    "surrogate": b'{"value": "\\ud800", "headers": {"\\ud800": null}}\n',
    "deep": b'{"value": ' + b"[" * 100_000,
    "digits": b'{"value": 1, "partition": ' + b"9" * 5000 + b"}",
    "huge": b'{"value": 1, "partition": 1' + b"0" * 30 + b"}\n",
    "true": b'{"value": 1, "partition": true, "timestamp": true}\n',
    "csv": b"of-random-lines,0,0\n",
    "wrong csv": b"g,of-random-lines,\xc2\xb2,0\n",
    "huge csv": b"of-random-lines,0,1" + b"0" * 30 + b"\nof-random-lines,99999999999,--5\n",
    "properties": b"# no comment\nretention.ms = 7\nacks=\\u00zz\nlisteners\\\n",
}


class Line(NamedTuple):
    """A command line, and what its standard streams are."""

    words: list[str]
    stdin: str
    stdout: str

    def __str__(self) -> str:
        words = [word if len(word) < 200 else f"{word[:40]}…×{len(word)}" for word in self.words]
        return f"kafkalite {shlex.join(words)!r} <{self.stdin} >{self.stdout}"


def make_files(folder: Path) -> None:
    """What paths in the lines name, and their standard input."""
    for name, content in INPUTS.items():
        (folder / name).write_bytes(content)
    (folder / "directory").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "unreadable").touch(mode=0)
    os.mkfifo(folder / "pipe")
    log = folder / "log" / "t-0"
    log.mkdir(parents=True)
    for suffix in ("log", "index", "timeindex", "snapshot", "txnindex"):
        (log / f"{'0' * 20}.{suffix}").write_bytes(random.Random(suffix).randbytes(100))
    (log / "leader-epoch-checkpoint").write_bytes(b"0\n1\n\xff\n")


PATHS = [
    *INPUTS, "missing", "directory", "loop", "unreadable", "pipe", "nothing/below", "log",
    "log/t-0", f"log/t-0/{'0' * 20}.log", "log/t-0/leader-epoch-checkpoint", "/dev/full",
    "/dev/null", "/proc/self/mem", ".", "", "~nobody-at-all/x", "\0", "\udcff", "a" * 300,
    "a/" * 3000, "\n",
]  # fmt: skip


class Described(Exception):  # noqa: N818 - ends a command that was only to show its parser
    """Carries the parser of a command."""


def parsers() -> dict[tuple[str, ...], argparse.ArgumentParser]:
    """The parser of every command, and of every action of one."""

    def describe(parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        raise Described(parser)

    found = {}
    for words, (module, _) in COMMANDS.items():
        with mock.patch.object(Parser, "parse_args", describe):
            try:
                import_module(module).run(["--help"])
            except Described as described:
                (parser,) = described.args
        found[words] = parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                found |= {(*words, name): each for name, each in action.choices.items()}
    return found


class Lines:
    """Draws command lines."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._parsers = parsers()
        self._keys = [*KeyTable("broker.txt"), *KeyTable("topic.txt")]

    def line(self, seed: int) -> Line:
        """The line of a seed."""
        draw = random.Random(seed)
        command = draw.choice(list(self._parsers))
        words = list(command)
        parser = self._parsers[command]
        for action in _chosen(draw, parser):
            if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
                continue
            flag = draw.choice(action.option_strings or [""])
            values = [self._value(draw, action) for _ in range(_count(draw, action))]
            if flag and len(values) == 1 and draw.random() < 0.3:
                words.append(f"{flag}={values[0]}")
            else:
                words += [*([flag] if flag else []), *values]
        if any("--bootstrap-server" in each.option_strings for each in parser._actions):
            # Most lines reach a broker: what is drawn otherwise stands before it.
            servers = self._servers if draw.random() < 0.9 else draw.choice(HOSTS)
            words += [f"--bootstrap-server={servers}"]
            if "--timeout" not in words:
                words += ["--timeout", "2000"]
        if draw.random() < 0.05:
            words.insert(draw.randrange(len(words) + 1), draw.choice(TEXTS + PATHS))
        stdin = draw.choice([*INPUTS, "/dev/null", "/dev/zero", "closed"])
        stdout = draw.choice(["output"] * 6 + ["/dev/full", "closed", "reader gone"])
        return Line(words, stdin, stdout)

    def _value(self, draw: random.Random, action: argparse.Action) -> str:
        name = " ".join([*action.option_strings, action.dest])
        if action.choices and draw.random() < 0.7:
            return str(draw.choice(list(action.choices)))
        if "server" in name or "listen" in name:
            return draw.choice([*HOSTS, self._servers])
        if "config" in name and draw.random() < 0.7:
            value = draw.choice([*NUMBERS, *TEXTS, *PATHS, *TIMES, *("x://" + h for h in HOSTS)])
            return f"{draw.choice(self._keys)}={value}"
        if (action.metavar == "TOPIC" or "topic" in name) and draw.random() < 0.6:
            return TOPIC
        kind = draw.choice([NUMBERS, TEXTS, TIMES, PATHS])
        if action.type is not None and draw.random() < 0.8:
            kind = draw.choice([NUMBERS, ["1", "7", "1000"]])
        if draw.random() < 0.7:
            kind = _kind_of(action) or kind
        return draw.choice(kind)


def _chosen(draw: random.Random, parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """What a line has of a parser: mostly no more of what excludes each other than one."""
    chosen = [each for each in parser._actions if each.required or draw.random() < 0.25]
    if draw.random() < 0.9:
        for group in parser._mutually_exclusive_groups:
            members = group._group_actions
            wanted = [each for each in members if each in chosen] or members * group.required
            chosen = [each for each in chosen if each not in members]
            chosen += [draw.choice(wanted)] if wanted else []
    draw.shuffle(chosen)
    return chosen


def _kind_of(action: argparse.Action) -> list[str] | None:
    words = f"{action.metavar} {action.dest} {action.help}".lower()
    if "file" in words or "path" in words or "dir" in words or "csv" in words:
        return PATHS
    if "time" in words or "pndt" in words or "offset" in words or "when" in words:
        return TIMES
    if action.metavar in ("N", "MS", "BYTES"):
        return NUMBERS
    return None


def _count(draw: random.Random, action: argparse.Action) -> int:
    """How many values follow."""
    if action.nargs == 0:
        return 0
    if action.nargs in ("*", "?"):
        return draw.randrange(2 if action.nargs == "?" else 3)
    return draw.choice([1, 1, 2]) if action.nargs == "+" else 1


class Play:
    """Runs lines, each in a folder of its own beside the files that they name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_files(folder)

    def complaint(self, line: Line) -> str | None:
        """What is wrong with how the line ends; None if nothing is."""
        with tempfile.TemporaryFile() as err:
            pid = os.fork()
            if pid == 0:
                self._run(line, err.fileno())
            _, status = os.waitpid(pid, 0)
            err.seek(0)
            told = err.read().decode(errors="replace")
        code = os.waitstatus_to_exitcode(status)
        # Ctrl-C in a callback: Python can but name it there, with the lines that led to it.
        told = IGNORED_INTERRUPT.sub("", told)
        unexpected = ("Traceback", "panicked", "Exception ignored")
        if code not in EXIT_CODES or any(word in told for word in unexpected):
            return f"exit code {code}:\n{told}"
        if code == 2 and not told:
            return "exit code 2 without a word"
        return None

    def _run(self, line: Line, err: int) -> NoReturn:
        code = 99
        try:
            self._take_streams(line, err)
            signal.signal(signal.SIGALRM, _interrupt)
            signal.setitimer(signal.ITIMER_REAL, LIMIT_S, HANGS_S)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if tuple(line.words[:2]) in SERVES or tuple(line.words[:1]) in SERVES:
                # Whatever starts to serve is told to stop at once.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
                os.kill(os.getpid(), signal.SIGTERM)
            sys.argv = ["kafkalite", *line.words]
            try:
                code = main()
            except SystemExit as told:  # of argparse
                code = told.code if isinstance(told.code, int) else 1 if told.code else 0
            sys.stdout.flush()  # as the interpreter does at the end
        except KeyboardInterrupt:
            code = 130  # it came before `main` had begun or behind its end
        except BaseException:  # noqa: BLE001 - told, and the parent goes on
            import traceback

            traceback.print_exc()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os._exit(code)

    def _take_streams(self, line: Line, err: int) -> None:
        os.dup2(err, 2)
        sys.stderr = io.TextIOWrapper(
            io.FileIO(2, "w"), errors="backslashreplace", write_through=True
        )
        os.chdir(self._folder)
        if line.stdin == "closed":
            os.close(0)
            sys.stdin = None  # type: ignore[assignment]
        else:
            os.dup2(os.open(line.stdin, os.O_RDONLY), 0)
            sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
        if line.stdout == "closed":
            os.close(1)
            sys.stdout = None  # type: ignore[assignment]
            return
        if line.stdout == "reader gone":
            reader, out = os.pipe()
            os.close(reader)
        else:
            out = os.open(line.stdout, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8"
        )


def _interrupt(*_: object) -> None:
    """The first time as Ctrl-C; a command that goes on all the same is killed."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise KeyboardInterrupt


def complaints(folder: Path, servers: str, seeds: range) -> Iterator[str]:
    """What is wrong with how the lines of some seeds end."""
    draw, play = Lines(servers), Play(folder)
    for seed in seeds:
        line = draw.line(seed)
        told = play.complaint(line)
        if told is not None:
            yield f"seed {seed}: {line}\n{told}"


if __name__ == "__main__":
    place, bootstrap, first, count = sys.argv[1:]
    for each in complaints(Path(place), bootstrap, range(int(first), int(first) + int(count))):
        print(each, flush=True)
