"""`kafkalite produce` and `consume` against kafkalite: lines, files, terminals, ends."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.commands import produce, rows_of, start
from cli.told import Run
from kafkalite.client import Consumer


def test_lines_become_records_and_records_lines(run: Run, servers: str) -> None:
    assert run("topics", "create", "lines").exit == 0
    keyed = produce(servers, "a:1\nb:2\n", "lines", "--key-separator", ":", "--header", "from=cli")
    assert keyed == (0, "", "")
    read = ("consume", "lines", "--from-beginning")
    assert run(*read).out == "1\n2\n"
    assert run(*read, "--format", "key-value").out == "a\t1\nb\t2\n"
    assert run(*read, "--template", r"%t-%p@%o %k=%s %h\n", "--max-messages", "1").out == (
        "lines-0@0 a=1 from:cli\n"
    )
    assert run(*read, "--max-messages", "-1").out == "1\n2\n"  # as for Kafka's tool
    assert run("consume", "lines", "--partition", "0", "--offset", "1", "--format", "hex").out == (
        "32\n"
    )
    null = produce(
        servers, "c:-\n", "lines", "--key-separator", ":", "--null-marker", "-", "--codec", "gzip"
    )
    assert null.exit == 0
    rows = [json.loads(line) for line in run(*read, "--json").out.splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [("a", "1"), ("b", "2"), ("c", None)]
    assert rows[0]["headers"] == [["from", "cli"]]
    assert run("topics", "create", "copy").exit == 0
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    copied = produce(servers, lines, "copy", "--format", "json", "--json")
    assert json.loads(copied.out)["records"] == 3
    copied_rows = run("consume", "copy", "--offset", "earliest", "--partition", "0", "--json").out
    copies = [json.loads(line) for line in copied_rows.splitlines()]
    assert [{**row, "topic": "lines"} for row in copies] == rows


def test_a_topic_is_not_made_for_no_records(run: Run, servers: str) -> None:
    """As Kafka's console producer makes none: it asks for a topic when the first record comes."""
    assert produce(servers, "", "never-sent-to") == (0, "", "")
    assert "never-sent-to" not in run("topics", "list").out.split()
    told = "kafkalite: topic 'sent-to' does not exist; the broker is asked to create it\n"
    assert produce(servers, "1\n", "sent-to") == (0, "", told)
    assert "sent-to" in run("topics", "list").out.split()


def test_arguments_of_bytes_that_are_no_text_are_sent_as_they_are(run: Run, servers: str) -> None:
    assert run("topics", "create", "bytes").exit == 0
    arguments = ("--key", "\udcff", "--header", "from=\udcfe", "--null-marker", "\udcfd")
    assert produce(servers, "1\n", "bytes", *arguments) == (0, "", "")
    told = run("consume", "bytes", "--from-beginning", "--json")
    row = json.loads(told.out)
    assert (row["key"], row["headers"]) == ({"hex": "ff"}, [["from", {"hex": "fe"}]])
    told = run("topics", "create", "\udcff")
    assert told == (2, "", "kafkalite: '\\udcff' is not UTF-8 text\n")


def test_the_value_of_a_header_may_be_anything(run: Run, servers: str) -> None:
    """A comma with an equals sign behind it began another header, spaces were taken away, and the
    second of two headers of one name took the place of the first."""
    assert run("topics", "create", "headers").exit == 0
    texts = ["from=a=b, c=d ,e", "[x]=[1]", "empty=", "nothing", "from=2"]
    arguments = [word for text in texts for word in ("--header", text)]
    assert produce(servers, "1\n", "headers", *arguments) == (0, "", "")
    told = run("consume", "headers", "--from-beginning", "--json")
    assert json.loads(told.out)["headers"] == [
        ["from", "a=b, c=d ,e"],
        ["[x]", "[1]"],
        ["empty", ""],
        ["nothing", None],
        ["from", "2"],
    ]
    nameless = produce(servers, "1\n", "headers", "--header", "=1")
    assert nameless == (2, "", "kafkalite: --header =1 has no name before the =\n")


LONGEST = 100 << 20


@pytest.mark.parametrize("lines", [0, 2])
def test_a_line_without_an_end_is_refused_in_time(run: Run, servers: str, lines: int) -> None:
    """Each 64 KiB that was read copied what there was of the line: four minutes until it was too
    long."""
    assert run("topics", "create", "endless", "--if-not-exists").exit == 0
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(servers, "produce", "endless", **pipes) as process:
        assert process.stdin is not None
        process.stdin.write("x\n" * lines)
        with contextlib.suppress(BrokenPipeError):
            for _ in range(5 * LONGEST >> 20):
                process.stdin.write("x" * (1 << 20))
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        assert process.stderr is not None
        told = process.stderr.read()
    sentence = (
        f"line {lines + 1} has more than 100.0 MiB, and no broker takes a record of that size"
    )
    assert (process.returncode, told) == (2, f"kafkalite: {sentence}\n")


def test_a_file_without_an_end_is_refused(run: Run) -> None:
    """`--file /dev/zero` took all memory."""
    assert run("topics", "create", "endless", "--if-not-exists").exit == 0
    told = run("produce", "endless", "--file", "/dev/zero")
    assert told == (2, "", "kafkalite: /dev/zero has more than 100.0 MiB\n")


def test_a_file_is_one_record(run: Run, servers: str, tmp_path: Path) -> None:
    assert run("topics", "create", "files").exit == 0
    file = tmp_path / "blob"
    file.write_bytes(bytes(range(256)))
    assert produce(servers, "", "files", "--file", str(file), "--key", "blob").exit == 0
    told = run("consume", "files", "--from-beginning", "--format", "hex")
    assert told.out.strip() == bytes(range(256)).hex()


def test_two_dashes_are_a_value_like_another(run: Run, servers: str) -> None:
    """argparse of Python 3.11 made an empty list of them: a traceback."""
    assert run("topics", "create", "dashes").exit == 0
    assert produce(servers, "a--b\n", "dashes", "--key-separator=--") == (0, "", "")
    told = run("consume", "dashes", "--from-beginning", "--format", "key-value")
    assert told.out == "a\tb\n"
    assert run("offsets", "--topic=--").exit == 2


@pytest.mark.parametrize(
    ("line", "arguments", "words"),
    [
        ("no separator\n", ["--key-separator", ":"], "line 1: no key separator ':' in it"),
        ("{}\n", ["--format", "json"], "line 1: no JSON object with a field 'value'"),
        ("{\n", ["--format", "json"], "line 1: "),
        (
            '{"value": "", "timestamp": -5}\n',
            ["--format", "json"],
            "line 1: 'timestamp' -5 is not a time",
        ),
        (
            '{"value": "", "timestamp": 1e19}\n',
            ["--format", "json"],
            "'timestamp' is not an integer",
        ),
        (f'{{"value": "", "timestamp": {2**63}}}\n', ["--format", "json"], "is not a time in"),
        ("xyz\n", ["--format", "hex"], "line 1: "),
    ],
)
def test_a_line_that_cannot_be_read_is_named(
    run: Run, servers: str, line: str, arguments: Sequence[str], words: str
) -> None:
    run("topics", "create", "unread", "--if-not-exists")
    told = produce(servers, line, "unread", *arguments)
    assert told.exit == 2
    assert words in told.err
    assert told.err.count("\n") == 1


def test_a_typed_line_is_sent_before_the_next_one(run: Run, servers: str) -> None:
    assert run("topics", "create", "typed").exit == 0
    with start(servers, "produce", "typed", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write("first\n")
        process.stdin.flush()
        with Consumer(servers) as consumer:
            consumer.assign([("typed", 0)])
            records = consumer.poll(30_000)
        assert [record.value for record in records] == [b"first"]
        process.stdin.close()
        assert process.wait(60) == 0


def test_following_prints_what_comes_and_ends_quietly(run: Run, servers: str) -> None:
    assert run("topics", "create", "followed").exit == 0
    assert produce(servers, "before\n", "followed").exit == 0
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    arguments = ("consume", "followed", "--from-beginning", "--follow")
    with start(servers, *arguments, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "before\n"
        assert produce(servers, "after\n", "followed").exit == 0
        assert process.stdout.readline() == "after\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read().strip() == ""


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(run: Run, servers: str) -> None:
    assert run("topics", "create", "piped").exit == 0
    lines = "".join(f"{number:0100}\n" for number in range(20_000))
    assert produce(servers, lines, "piped").exit == 0
    consume = f"{sys.executable} -m kafkalite consume piped --from-beginning"
    command = f"{consume} --bootstrap-server {servers} | head -2"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout.count("\n"), done.stderr) == (2, "")


def test_what_could_not_be_written_is_not_committed(
    run: Run, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that wrote to a full disk went on behind the records that nobody had."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what is written waits for more
    assert run("topics", "create", "no-room").exit == 0
    assert produce(servers, "a\nb\n", "no-room").exit == 0
    arguments = ("consume", "no-room", "--group", "writes", "--from-beginning")
    with Path("/dev/full").open("w") as full:
        pipes = {"stdout": full, "stderr": subprocess.PIPE}
        with start(servers, *arguments, "--max-messages", "2", **pipes) as process:
            _, err = process.communicate(timeout=60)
    assert (process.returncode, err.count("\n")) == (1, 1)
    with Consumer(servers, group="writes") as consumer:
        assert consumer.committed([("no-room", 0)]).get(("no-room", 0), 0) == 0


@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_member_leaves_its_group_without_a_word(
    run: Run, servers: str, by: signal.Signals, code: int
) -> None:
    """Ctrl-C while the group was asked for: leaving it then found the answer still to come, and the
    command ended with a traceback."""
    group = f"interrupted-{code}"
    arguments = ("perf", "consume", "--topic", "interrupted", "--num-records", "1")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    assert run("topics", "create", "interrupted", "--if-not-exists").exit == 0
    with start(servers, *arguments, "--group", group, **pipes) as process:
        # The first JoinGroup of a group waits three seconds for other members.
        while group not in run("groups", "list").out:
            assert process.poll() is None
        process.send_signal(by)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, "\n")
    members = rows_of(run("groups", "describe", group, "--state").out)[-1][-1]
    assert members == "0"
