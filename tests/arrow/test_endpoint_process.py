"""`kafkalite arrow serve`: the Arrow endpoint in a process of its own, over brokers or files."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

import kafkalite
from api.raw import Connection
from arrow import slow_reader
from arrow.endpoint import connect, frame, read, schema_text
from arrow.test_endpoint_broker import produce, refusal
from arrow.test_read_log_isolation import a_history

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READY = "kafkalite arrow ready endpoint="
SECRET = "00f1e2d3c4b5a697"  # noqa: S105 - of the child of a test


@contextlib.contextmanager
def served(
    *arguments: str, secret: str | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server until the end of the block, which it must leave with exit code 0. It is told the
    secret by its standard input."""
    command = [sys.executable, "-m", "kafkalite", "arrow", "serve", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if secret is not None:
            process.stdin.write(f"{secret}\n")
            process.stdin.flush()
        line = process.stdout.readline()
        assert line.startswith(READY), line
        assert line.endswith(f" pid={process.pid}\n")
        try:
            yield line.removeprefix(READY).split()[0], process
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(20)
    assert code == 0


@pytest.fixture(scope="module")
def broker() -> Iterator[kafkalite.Broker]:
    # The records are old: retention must not take them.
    with kafkalite.Broker(config={"log.retention.ms": "-1"}) as running:
        with Connection(running.bootstrap_servers) as connection:
            produce(connection, "rows", 15)
        yield running


@pytest.fixture(scope="module")
def endpoint(broker: kafkalite.Broker) -> Iterator[str]:
    with served("--bootstrap-server", broker.bootstrap_servers) as (found, _):
        yield found


def ask(endpoint: str, request: Any) -> dict[str, Any]:
    """The answer to a request that is no read."""
    with connect(endpoint) as client, client.makefile("rb") as answers:
        client.sendall(frame(request))
        found: dict[str, Any] = json.loads(answers.read(int.from_bytes(answers.read(4), "big")))
    return found


def test_rows_fetched_from_a_broker_are_those_of_read_arrow(
    broker: kafkalite.Broker, endpoint: str
) -> None:
    expected = kafkalite.read_arrow("rows", broker.bootstrap_servers).to_pyarrow()
    for more in ({}, {"bootstrap.servers": broker.bootstrap_servers}):
        found = read(endpoint, topic="rows", partition=0, **more)
        assert found.equals(expected)
    for start, stop in [(0, 1), (7, 19), (299, 300), (300, 300)]:
        part = read(endpoint, topic="rows", partition=0, start=start, stop=stop)
        assert part.equals(expected.slice(start, stop - start)), (start, stop)
    part = read(endpoint, topic="rows", partition=0, start=290)
    assert part.equals(expected.slice(290))


def test_a_schema_chooses_columns_and_types(endpoint: str) -> None:
    wanted = pyarrow.schema([("value_size", pyarrow.int32()), ("value", pyarrow.string())])
    found = read(
        endpoint,
        topic="rows",
        partition=0,
        schema=schema_text(wanted),
        formats={"value.format": "string"},
    )
    assert found.schema == wanted
    assert found.num_rows == 300


def test_a_schema_without_columns_counts(endpoint: str) -> None:
    with connect(endpoint) as client, client.makefile("rb") as answer:
        empty = schema_text(pyarrow.schema([]))
        client.sendall(frame({"op": "read", "topic": "rows", "partition": 0, "schema": empty}))
        stream = pyarrow.ipc.open_stream(answer)
        assert sum(batch.num_rows for batch in stream) == 300


def test_what_cannot_be_fetched_is_told_in_a_sentence(endpoint: str) -> None:
    place = {"topic": "rows", "partition": 0}
    for request, sentence in [
        ({**place, "partition": 7}, "there is no partition rows-7"),
        ({**place, "start": 400, "stop": 500}, "rows-0"),
        (
            {**place, "start": 400},
            "rows-0: offset 400 is not there, the log ends at 300 (failOnDataLoss=false goes on ",
        ),
        (
            {**place, "start": 400, "isolation": "read_committed"},
            "rows-0: offset 400 is not there, the log ends at 300 (failOnDataLoss=false goes on ",
        ),
        ({**place, "client": {"x": "y"}}, "client has no setting x"),
        ({**place, "client": {"fetch.max.bytes": "y"}}, "fetch.max.bytes=y is not a whole number"),
        ({**place, "path": "/proc"}, "rows-0 in path /proc: No such file or directory"),
        (
            {**place, "path": "/proc", "bootstrap.servers": "b:1"},
            "a read names bootstrap.servers or a path, not both",
        ),
    ]:
        told = refusal(endpoint, **request)
        assert sentence in told, told
    lost = {**place, "start": 400, "fail.on.data.loss": False}
    assert read(endpoint, **lost).num_rows == 0


def test_plans_are_answered_as_the_planner_answers(broker: kafkalite.Broker, endpoint: str) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "rows"}
    for _ in range(2):
        plan = ask(endpoint, {"op": "batch", "options": options})
        assert plan["ranges"] == [["rows", 0, 0, 300]]
        assert plan["endpoint"] is None
    topic, partition, start, stop = plan["ranges"][0]
    found = read(endpoint, topic=topic, partition=partition, start=start, stop=stop, **plan["read"])
    assert found.num_rows == 300
    assert "unknown op" in ask(endpoint, {"op": "what", "options": options})["error"]
    assert "path" in ask(endpoint, {"op": "batch", "options": {"PATH": "/"}})["error"]


def test_files_are_read_below_the_paths_that_are_served(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    log = a_history(logs / "t-0", 3, ends=False)
    (logs / "meta.properties").write_text("version=1\n")
    a_history(tmp_path / "other" / "t-0", 4, ends=True)
    (tmp_path / "other" / "way").symlink_to(tmp_path / "other" / "t-0")
    committed = [row["offset"] for row in slow_reader.read(log.directory, committed=True)]
    with served(str(logs)) as (endpoint, _):
        place: dict[str, Any] = {"topic": "t", "partition": 0, "columns": ["offset"]}
        for more in ({}, {"path": str(logs)}, {"path": str(logs / "t-0")}):
            found = read(endpoint, **place, isolation="read_committed", **more)
            assert found["offset"].to_pylist() == committed
        past = {"stop": log.end + 5}
        assert f"t-0: offset {log.end + 5} is not there" in refusal(endpoint, **place, **past)
        lossy = {"fail.on.data.loss": False}
        everything = read(endpoint, **place)
        assert read(endpoint, **place, **past, **lossy).equals(everything)
        for path in (tmp_path / "other", tmp_path / "other" / "way", logs / ".." / "other"):
            assert "is not below the paths" in refusal(endpoint, **place, path=str(path))
        assert "is no name of a topic" in refusal(endpoint, topic="../other/t", partition=0)
        assert refusal(endpoint, topic="t", partition=1).endswith(
            "none of the paths that are served"
        )
    with served("--any-path") as (endpoint, _):
        found = read(endpoint, **place, path=str(tmp_path / "other"))
        assert found.num_rows == len(slow_reader.read(tmp_path / "other" / "t-0"))
        assert "neither bootstrap.servers nor a path" in refusal(endpoint, **place)


def test_a_partition_whose_files_are_gone_has_no_rows_where_losses_are_taken(
    tmp_path: Path,
) -> None:
    """A query of the columnar engine failed over files that went after it had been planned, also
    with failOnDataLoss=false."""
    log = a_history(tmp_path / "t-0", 3, ends=True)
    place: dict[str, Any] = {"topic": "t", "partition": 0, "path": str(log.directory)}
    wanted = {"start": 1, "stop": log.end, "fail.on.data.loss": False}
    with served("--any-path") as (endpoint, _):
        full = read(endpoint, **place, **wanted)
        assert full.num_rows > 0
        assert full.schema.metadata is None
        shutil.rmtree(log.directory)
        for _ in ("no directory", "an empty directory"):
            left = read(endpoint, **place, **wanted)
            assert (left.num_rows, left.schema) == (0, full.schema)
            (told,) = json.loads(left.schema.metadata[b"losses"])
            assert told.startswith("the partition t-0 is gone: ") and str(log.directory) in told
            assert str(log.directory) in refusal(endpoint, **place)
            log.directory.mkdir(exist_ok=True)


def test_it_ends_when_its_standard_input_does() -> None:
    with served("--exit-with-stdin", secret=SECRET) as (_, process):
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0


def test_a_child_serves_nobody_but_its_parent(broker: kafkalite.Broker, tmp_path: Path) -> None:
    """Any user of the machine could connect to the child of a Spark executor and read, with the
    executor's rights, log files and brokers, and commit offsets through it."""
    log = a_history(tmp_path / "t-0", 3, ends=True)
    files: dict[str, Any] = {"topic": "t", "partition": 0, "path": str(log.directory)}
    topic: dict[str, Any] = {
        "topic": "rows",
        "partition": 0,
        "bootstrap.servers": broker.bootstrap_servers,
    }
    with served("--exit-with-stdin", secret=SECRET) as (endpoint, _):
        for wanted in (files, topic):
            assert read(endpoint, **wanted, secret=SECRET).num_rows > 0
            for secret in (None, "", SECRET[:-1], SECRET + "0"):
                assert "serves the process that started it" in refusal(
                    endpoint, **wanted, secret=secret
                )
        plan = {"op": "schema", "options": {"subscribe": "rows"}, "streaming": True}
        with connect(endpoint) as stranger:
            stranger.sendall(frame(plan))
            with stranger.makefile("rb") as answer:
                assert b"serves the process that started it" in answer.read()


def test_a_child_that_is_told_no_secret_does_not_serve() -> None:
    command = [sys.executable, "-m", "kafkalite", "arrow", "serve", "--exit-with-stdin"]
    for told in ("", "\n", "short\n", SECRET, SECRET * 100 + "\n"):
        ended = subprocess.run(
            command, input=told, capture_output=True, text=True, check=False, timeout=60
        )
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "is a secret of 16 to 1023 characters" in ended.stderr


def test_it_ends_though_a_broker_does_not_answer() -> None:
    import socket

    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        served("--bootstrap-server", f"127.0.0.1:{silent.getsockname()[1]}") as (endpoint, _),
        connect(endpoint) as client,
    ):
        client.sendall(frame({"op": "read", "topic": "t", "partition": 0}))
        # Its thread waits for an answer of the broker now, and will for half a minute.
        asked, _ = silent.accept()
        with asked:
            asked.recv(1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--listen", "0.0.0.0:0"], "is open to other machines"),
        (["--listen", "here"], "here is not of the form HOST:PORT"),
        (["--bootstrap-server", "b:x"], "b:x"),
        (["/no/such/directory"], "/no/such/directory is not a directory"),
    ],
)
def test_a_command_line_that_cannot_be_is_refused(arguments: list[str], sentence: str) -> None:
    command = [sys.executable, "-m", "kafkalite", "arrow", "serve", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode in (1, 2)
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr
