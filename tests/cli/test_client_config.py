"""`--command-config` and `--command-property`: Kafka's client properties for the commands."""

import argparse
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.cli import produce
from kafkalite.cli.client_config import (
    ADMIN,
    CONSUME,
    PERF_CONSUME,
    PERF_PRODUCE,
    PRODUCE,
    Properties,
    add_server,
    consumer_settings,
    parse,
)
from kafkalite.cli.options import UsageError, new_parser
from kafkalite.client import GroupOptions, Producer

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of properties."""

    def write(*lines: str) -> Path:
        path = tmp_path / "client.properties"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    return write


def parsed(properties: Properties, *arguments: str | Path) -> argparse.Namespace:
    parser = new_parser("kafkalite test", "Nothing.")
    add_server(parser, properties)
    return parse(parser, [str(each) for each in arguments])


def test_the_command_line_wins_over_a_property_and_that_over_the_file(
    file: Callable[..., Path],
) -> None:
    lines = ("bootstrap.servers = file:1", "client.id: from-file", "delivery.timeout.ms=1")
    given = ("--command-config", file(*lines), "--command-property", "client.id=from-property")
    options = parsed(PRODUCE, *given)
    told = (options.bootstrap_server, options.timeout, options.client)
    assert told == ("file:1", 1, {"client_id": "from-property"})
    options = parsed(PRODUCE, *given, "--bootstrap-server", "line:2", "--timeout", "3")
    assert (options.bootstrap_server, options.timeout) == ("line:2", 3)


def test_a_file_is_read_as_java_reads_it(file: Callable[..., Path]) -> None:
    """`configs --add-config-file` and `perf produce` knew neither `:` nor lines that go on."""
    path = file("! no comment", "  client.id \\", "   a\\tb\fc", "request.timeout.ms:7")
    told = parsed(ADMIN, "--command-config", path).client
    assert told == {"client_id": "a\tb\fc", "request_timeout_ms": 7}


def test_a_group_is_made_of_its_properties(file: Callable[..., Path]) -> None:
    lines = ("group.id=g", "group.instance.id=i", "session.timeout.ms=9000", "fetch.min.bytes=5")
    more = ("enable.auto.commit=false", "isolation.level=read_committed")
    options = parsed(PERF_CONSUME, "--consumer.config", file(*lines, *more))
    assert consumer_settings(options, options.group) == {
        "isolation": "read_committed",
        "fetch_bytes_min": 5,
        "auto_commit_interval_ms": None,
        "group": GroupOptions("g", "i", session_timeout_ms=9000),
    }


def test_perf_produce_takes_several_behind_one_flag() -> None:
    options = parsed(PERF_PRODUCE, "--producer-props", "acks=1", "linger.ms=7")
    assert options.client == {"acks": "1", "linger_ms": 7}
    level = ("compression.gzip.level=1", "compression.zstd.level=9", "compression.type=zstd")
    assert parsed(PERF_PRODUCE, "--command-property", *level).client == {
        "level": 9,
        "codec": "zstd",
    }


@pytest.mark.parametrize(
    ("lines", "words", "told"),
    [
        (["compression.type=zstd", "compression.zstd.level=19"], [], ("zstd", 19)),
        (["compression.type=zstd", "compression.zstd.level=19"], ["--codec=gzip"], ("gzip", None)),
        (["compression.type=zstd", "compression.zstd.level=19"], ["--codec=none"], ("none", None)),
        (["compression.zstd.level=19"], ["--codec=zstd"], ("zstd", 19)),
        (["compression.zstd.level=19"], [], ("none", None)),
        (
            ["compression.zstd.level=19", "compression.gzip.level=-1"],
            ["--codec=gzip"],
            ("gzip", -1),
        ),
        (["compression.zstd.level=19"], ["--codec=zstd", "--level=3"], ("zstd", 3)),
    ],
)
def test_the_level_is_that_of_the_codec_that_is_used(
    lines: list[str], words: list[str], told: tuple[str, int | None], file: Callable[..., Path]
) -> None:
    """It was that of the file's codec: gzip got a level of zstd, which failed each batch, and a
    codec of the command line got none."""
    config = ["--command-config", str(file(*lines))]
    options = parse(produce.command_line(), ["t", *config, *words])
    assert (options.codec, options.level) == told
    if not words:
        client = parsed(PERF_PRODUCE, *config).client
        assert (client.get("codec", "none"), client.get("level")) == told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--codec=gzip", "--level=19"], "compression.gzip.level is 19, it must be 1 to 9"),
        (["--codec=gzip", "--level=0"], "compression.gzip.level is 0, it must be 1 to 9"),
        (["--codec=lz4", "--level=18"], "compression.lz4.level is 18, it must be 1 to 17"),
        (["--codec=snappy", "--level=1"], "--level: the codec snappy has no levels"),
        (["--level=1"], "--level: the codec none has no levels"),
        (
            ["--command-property=compression.zstd.level=23"],
            "compression.zstd.level is 23, it must be -131072 to 22",
        ),
        (
            ["--command-property=compression.zstd.level=x"],
            "compression.zstd.level is 'x', it must be a whole number",
        ),
    ],
)
def test_a_level_that_the_codec_does_not_have_is_refused_before_anything_is_sent(
    words: list[str], sentence: str
) -> None:
    """Each batch failed of it."""
    with pytest.raises(UsageError, match=f"^{re.escape(sentence)}$"):
        parse(produce.command_line(), ["t", *words])


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("security.protocol=SASL_SSL", "kafkalite supports PLAINTEXT only"),
        ("ssl.truststore.location=/x", "kafkalite supports PLAINTEXT only"),
        ("request.timeout.ms=soon", "request.timeout.ms=soon: 'soon' is not a number"),
        ("enable.auto.commit=yes", "'yes' is neither true nor false"),
        ("auto.offset.reset=none", "'none' is neither earliest nor latest"),
        ("bootstrap.servers=a..b:1", "'a..b:1' is not HOST:PORT"),
        ("fetch.min.bytes=-1", "fetch.min.bytes=-1: "),
        ("group.id=", "it is empty"),
    ],
)
def test_what_cannot_be_obeyed_is_refused(
    line: str, sentence: str, file: Callable[..., Path]
) -> None:
    with pytest.raises(UsageError, match=sentence.replace(".", r"\.")):
        parsed(CONSUME, "--command-config", file(line))


def test_a_property_that_nobody_knows_is_told_and_one_of_javas_is_not(
    capsys: pytest.CaptureFixture[str], file: Callable[..., Path]
) -> None:
    quiet = ("security.protocol=plaintext", "retries=3", "key.deserializer=x.Y")
    parsed(CONSUME, "--command-config", file(*quiet, "fetch.min.byte=5"))
    told = "kafkalite: the property fetch.min.byte is not supported and is ignored\n"
    assert capsys.readouterr().err == told


def test_commands_go_where_the_file_says(
    kafkalite: Run, servers: str, file: Callable[..., Path]
) -> None:
    config = file(f"bootstrap.servers={servers}", "group.id=of-the-file", "client.id=teller")
    with Producer(servers) as producer:
        producer.send("orders", b"one")
        producer.flush()
    assert "orders\n" in kafkalite("topics", "--command-config", config, "--list").stdout
    properties = ("--command-config", config, "--command-property", "auto.offset.reset=earliest")
    assert kafkalite("consume", "orders", *properties, "--max-messages", "1").stdout == "one\n"
    told = kafkalite("groups", "list", "--command-config", config)
    assert (told.returncode, told.stdout) == (0, "of-the-file\n")


def test_a_file_that_is_not_there_is_one_line(kafkalite: Run, tmp_path: Path) -> None:
    told = kafkalite("cluster", "--command-config", tmp_path / "none")
    sentence = f"kafkalite: {tmp_path}/none: No such file or directory\n"
    assert (told.returncode, told.stderr) == (2, sentence)
