"""The flags of Kafka's tools where they meet ours.

`tests/oracle/test_console_tools.py` has what they print beside Kafka's own tools.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite import cli
from kafkalite.client import Admin, Producer
from kafkalite.client.group_admin import GroupAdmin

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(servers: str) -> Run:
    def run_it(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kafkalite", *arguments, "--bootstrap-server", servers]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=60
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run_it


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["consume", "t", "--formatter", "my.Formatter"], "--formatter my.Formatter: there is"),
        (["consume", "t", "--value-deserializer", "my.D"], "value.deserializer=my.D: classes of"),
        (
            ["consume", "t", "--property=print.key=true", "--json"],
            "--formatter-property excludes --format, --json and --template",
        ),
        (
            ["consume", "t", "--property=print.key=true", "--template=%k"],
            "--formatter-property excludes --format, --json and --template",
        ),
        (["consume", "--include", "t", "--partition", "0"], "has its own partitions and offsets"),
        (["consume", "t", "--group", "g", "--since", "2026-01-01"], "has its own partitions"),
        (["produce", "t", "--line-reader", "my.Reader"], "--line-reader my.Reader: there is"),
        (
            ["produce", "t", "--property=parse.key=true", "--key-separator=:"],
            "--key-separator and --reader-property exclude each other",
        ),
        (
            ["produce", "t", "--property=parse.key=true", "--format=json"],
            "--format json and --reader-property exclude each other",
        ),
        (["produce", "t", "--property=headers.separator=["], "'[' is not a regular expression"),
        (["produce", "t", "--property=null.marker=,"], "null.marker and headers.separator may not"),
        (["produce", "t", "--compression-codec", "brotli"], "invalid choice: 'brotli'"),
        (["produce", "t", "--request-required-acks", "2"], "invalid choice: '2'"),
        (["produce", "t", "--max-block-ms", "0"], "'0' is not a number of milliseconds"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_in_one_line(
    arguments: list[str], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        code = cli.run(arguments)
    except SystemExit as told:  # of argparse
        code = int(told.code or 0)
    told = capfd.readouterr().err
    assert (code, told.count("\n")) == (2, 1)
    assert sentence in told


def test_a_property_that_nobody_knows_is_told(run: Run, servers: str) -> None:
    with Producer(servers) as producer:
        producer.send("told", b"value")
    told = run("consume", "told", "--from-beginning", "--property", "print.kye=true")
    sentence = "kafkalite: the formatter property print.kye is not supported and is ignored\n"
    assert (told.stdout, told.stderr) == ("value\n", sentence)
    told = run("produce", "told", "--property", "parse.kye=true", stdin="a\n")
    sentence = "kafkalite: the reader property parse.kye is not supported and is ignored\n"
    assert (told.returncode, told.stderr) == (0, sentence)


CREATES = "kafkalite: topic '{}' does not exist; the broker is asked to create it\n"


def test_properties_of_a_file_give_way_to_the_command_line(run: Run, tmp_path: Path) -> None:
    reader, printer = tmp_path / "reader", tmp_path / "formatter"
    reader.write_text("parse.key=true\nkey.separator=,\n")
    printer.write_text("print.key=true\nkey.separator=-\n")
    flags = ("--reader-config", str(reader), "--property", "key.separator=:")
    sent = run("produce", "filed", *flags, stdin="k:v\n")
    assert (sent.returncode, sent.stderr) == (0, CREATES.format("filed"))
    read = ("consume", "filed", "--from-beginning", "--formatter-config", str(printer))
    assert run(*read).stdout == "k-v\n"
    assert run(*read, "--formatter-property", "key.separator=+").stdout == "k+v\n"


def test_a_group_commits_up_to_the_record_that_cannot_be_printed(run: Run, servers: str) -> None:
    number = (1).to_bytes(8, "big")
    with Producer(servers) as producer:
        for value in (number, number, b"odd", number):
            producer.send("odd", value, partition=0)
    read = ("consume", "odd", "--group", "readers", "--from-beginning", "--max-messages", "4")
    told = run(*read, "--value-deserializer", "LongDeserializer")
    assert (told.returncode, told.stdout) == (1, "1\n1\n")
    assert told.stderr == (
        "kafkalite: offset 2 of odd-0: the value cannot be read: "
        "3 bytes are not the 8 of LongDeserializer\n"
    )
    with GroupAdmin(servers) as admin:
        committed = admin.committed("readers")
    assert {place: each.offset for place, each in committed.items()} == {("odd", 0): 2}


def test_a_negative_timeout_is_none(run: Run, servers: str) -> None:
    """`--timeout-ms -1`, which is Kafka's way to say for ever, ended at once with exit code 1."""
    with Admin(servers) as admin:
        admin.create_topic("patient", partitions=1)
    read = ("consume", "patient", "--offset", "earliest", "--partition", "0", "--timeout-ms", "-1")
    with Producer(servers) as producer:
        producer.send("patient", b"value")
    assert run(*read, "--follow", "--max-messages", "1").stdout == "value\n"


def test_a_broker_that_does_not_answer_blocks_for_no_longer_than_it_may() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        flags = ["--bootstrap-server", f"{host}:{port}", "--max-block-ms", "300"]
        begun = time.monotonic()
        told = subprocess.run(
            [sys.executable, "-m", "kafkalite", "produce", "t", *flags],
            input=b"x\n",
            capture_output=True,
            check=False,
        )
        assert time.monotonic() - begun < 20
    assert (told.returncode, told.stderr.count(b"\n")) == (1, 1)


def test_the_default_of_all_brokers_is_set_and_taken_back(run: Run) -> None:
    """What was not set could not be deleted, which kafka-configs lets pass."""
    default = ("--entity-type", "brokers", "--entity-default")
    done = "Completed updating default config for brokers in the cluster.\n"
    title = "Default configs for brokers in the cluster are:\n"
    assert run("configs", "--alter", *default, "--add-config", "max.connections=77").stdout == done
    told = run("configs", "--describe", *default).stdout
    assert told.startswith(
        f"{title}  max.connections=77 sensitive=false synonyms={{DYNAMIC_DEFAULT"
    )
    assert "max.connections=77 " in run("configs", "describe", "--broker", "1", "--all").stdout
    assert run("configs", "alter", *default, "--delete-config", "max.connections").stdout == done
    assert "max.connections" not in run("configs", "describe", "--broker-defaults").stdout
    again = run("configs", "alter", *default, "--delete-config", "max.connections")
    assert (again.returncode, again.stdout) == (0, done)
    assert again.stderr == "kafkalite: not set, and so not deleted: max.connections\n"
    refused = run("configs", "alter", *default, "--add-config", "node.id=7")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("kafkalite: default configuration of the brokers: Cannot upd")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--entity-default"], "--entity-name and --entity-default belong to an --entity-type"),
        (["--broker", "1", "--entity-default"], "belong to an --entity-type"),
        (["--topic", "t", "--entity-name", "u"], "belong to an --entity-type"),
        (
            ["--entity-type", "brokers", "--entity-name", "1", "--entity-default"],
            "--entity-name and --entity-default exclude each other",
        ),
        (
            ["--entity-type", "topics", "--entity-default"],
            "there is no default of topics, but one of brokers",
        ),
    ],
)
@pytest.mark.parametrize("action", [["describe"], ["alter", "--add-config", "a=b"]])
def test_a_default_is_that_of_brokers_and_of_nothing_else(
    action: list[str], words: list[str], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """`--broker 1 --entity-default` changed broker 1, without a word."""
    assert cli.run(["configs", *action, *words]) == 2
    assert sentence in capfd.readouterr().err
