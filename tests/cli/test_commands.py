"""Every command against kafkalite; `tests/oracle/test_commands.py` has them against Kafka."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kafkalite
from api.raw import Connection
from api.transactions import Transactor
from cli.commands import produce, rows_of, start
from cli.told import Run
from kafkalite import cli
from kafkalite.client import Consumer, Producer


def test_what_every_action_takes_may_stand_before_it(servers: str) -> None:
    command = [sys.executable, "-m", "kafkalite", "topics"]
    for words in (
        ["--bootstrap-server", servers, "--timeout=9000", "list", "none"],
        ["--json", "--timeout", "9000", "list", "none", "--bootstrap-server", servers],
        ["--bootstrap-server", servers, "--list", "--topic", "none"],
    ):
        told = subprocess.run([*command, *words], capture_output=True, text=True)
        assert (told.returncode, told.stderr) == (0, "")
    told = subprocess.run([*command, "--json", "lst"], capture_output=True, text=True)
    assert told.returncode == 2 and "did you mean 'list'?" in told.stderr


def test_topics_are_made_listed_described_changed_and_deleted(run: Run) -> None:
    made = run("topics", "create", "one", "--partitions", "2", "--config", "retention.ms=9000")
    assert made == (0, "Created topic one.\n", "")
    assert run("topics", "--create", "--topic", "two").exit == 0
    assert run("topics", "list").out.split() == ["one", "two"]
    assert run("topics", "list", "t.*").out == "two\n"
    head, *partitions = run("topics", "describe", "one").out.splitlines()
    assert "PartitionCount: 2\tReplicationFactor: 1\tConfigs: " in head
    assert "retention.ms=9000" in head
    assert [line.split("\t")[2] for line in partitions] == ["Partition: 0", "Partition: 1"]
    assert run("topics", "alter", "one", "--partitions", "3", "--delete-config", "retention.ms")[
        :2
    ] == (0, "")
    described = json.loads(run("topics", "describe", "one", "--json").out)
    assert (described["partitionCount"], described["configs"].get("retention.ms")) == (3, None)
    assert run("topics", "describe", "one", "--under-replicated-partitions").out == ""
    assert run("topics", "alter", "one", "--partitions", "2").exit == 1
    again = run("topics", "create", "one")
    assert again.exit == 1
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert run("topics", "create", "one", "--if-not-exists") == (0, "", "")
    assert run("topics", "delete", "one,two") == (0, "", "")
    assert run("topics", "list", "--exclude-internal").out == ""
    missing = run("topics", "delete", "one")
    assert missing.exit == 1
    assert "Topic 'one' does not exist as expected" in missing.err
    assert run("topics", "delete", "one", "--if-exists").exit == 0


def test_the_first_records_of_a_topic_are_deleted(run: Run, servers: str, tmp_path: Path) -> None:
    assert run("topics", "create", "shortened", "--partitions", "2").exit == 0
    for partition in ("0", "1"):
        sent = produce(servers, "a\nb\nc\n", "shortened", "--partition", partition)
        assert sent.exit == 0
    told = run("topics", "delete-records", "shortened", "--before", "2", "--partition", "1")
    done = (
        "Executing records delete operation\nRecords delete operation completed:\n"
        "partition: shortened-1\tlow_watermark: 2\n"
    )
    assert told == (0, done, "")
    assert run("offsets", "shortened", "--time", "earliest").out == "shortened:0:0\nshortened:1:2\n"
    file = tmp_path / "offsets.json"
    row = {"topic": "shortened", "partition": 0}
    file.write_text(json.dumps({"partitions": [{**row, "offset": 1}], "version": 1}))
    told = run("topics", "delete-records", "--offset-json-file", str(file), "--json")
    assert json.loads(told.out) == {**row, "lowWatermark": 1}
    beyond = run("topics", "delete-records", "shortened", "--before", "9")
    assert (beyond.exit, beyond.err.count("OFFSET_OUT_OF_RANGE")) == (1, 2)
    everything = run("topics", "delete-records", "shortened", "--before", "latest", "--json").out
    assert [json.loads(line)["lowWatermark"] for line in everything.splitlines()] == [3, 3]


@pytest.mark.parametrize(
    "wrong", ['"offset": 5.9', '"offset": "5"', '"offset": true', '"offset": -2']
)
def test_records_are_deleted_before_whole_offsets_alone(
    run: Run, tmp_path: Path, wrong: str
) -> None:
    """5.9 was taken for 5."""
    file = tmp_path / "offsets.json"
    file.write_text(f'{{"partitions": [{{"topic": "orders", "partition": 0, {wrong}}}]}}')
    told = run("topics", "delete-records", "--offset-json-file", str(file))
    assert told.exit == 2
    assert "is not of the form" in told.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["orders"], "name a topic and --before, or an --offset-json-file"),
        (["--before", "1"], "name a topic and --before, or an --offset-json-file"),
        (["orders", "--before", "soon"], "'soon' is neither an offset nor latest"),
        (["orders", "--offset-json-file", "{file}"], "names topics, partitions and offsets by"),
        (["--offset-json-file", "{file}"], "is not of the form"),
    ],
)
def test_deleting_records_needs_to_be_told_which(
    run: Run, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text('{"partitions": [{"topic": "orders"}]}')
    told = run("topics", "delete-records", *(each.format(file=file) for each in arguments))
    assert told.exit == 2
    assert sentence in told.err


def test_configs_are_set_and_taken_back(run: Run) -> None:
    assert run("topics", "create", "configured").exit == 0
    topic = ("--topic", "configured")
    changed = run("configs", "alter", *topic, "--add-config", "cleanup.policy=[compact,delete]")
    assert changed == (0, "Completed updating config for topic configured.\n", "")
    told = run("configs", "describe", *topic).out
    assert told.startswith("Dynamic configs for topic configured are:\n  cleanup.policy=compact,de")
    everything = json.loads(run("configs", "describe", *topic, "--all", "--json").out)["configs"]
    assert len(everything) > 25
    assert {row["name"] for row in everything if not row["isDefault"]} >= {"cleanup.policy"}
    assert run("configs", "alter", *topic, "--delete-config", "cleanup.policy").exit == 0
    assert run("configs", "describe", *topic).out.count("\n") == 1
    assert run("configs", "alter", *topic, "--add-config", "retention.ms=soon").exit == 1
    assert "num.partitions=" in run("configs", "describe", "--broker", "1", "--all").out
    assert run("configs", "describe", "--topic", "nowhere").exit == 1


def test_a_brokers_loggers_are_shown_and_set(run: Run) -> None:
    told = run("configs", "describe", "--broker-logger", "1")
    assert told.out == (
        "Dynamic configs for broker-logger 1 are:\n  root=INFO sensitive=false synonyms={}\n"
    )
    entity = ("--entity-type", "broker-loggers", "--entity-name", "1")
    changed = run("configs", "--alter", *entity, "--add-config", "root=WARN")
    assert changed == (0, "Completed updating config for broker-logger 1.\n", "")
    assert "root=WARN " in run("configs", "describe", "--entity-type", "broker-loggers").out
    assert run("configs", "alter", *entity, "--add-config", "root=INFO").exit == 0
    refused = run("configs", "alter", *entity, "--add-config", "kafka.x=INFO,root=WARN")
    assert refused == (1, "", "kafkalite: Invalid broker logger(s): kafka.x\n")
    assert run("configs", "alter", *entity, "--delete-config", "root").exit == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe",),
        ("describe", "--all"),
        ("alter", "--add-config", "a=b"),
        ("alter", "--delete-config", "a"),
    ],
)
def test_a_broker_that_the_cluster_has_not_is_refused_at_once(
    run: Run, arguments: tuple[str, ...]
) -> None:
    """It was waited for for a minute, as Kafka's tool does."""
    begun = time.monotonic()
    told = run("configs", arguments[0], "--broker", "9", *arguments[1:])
    assert told.err == (
        "kafkalite: configuration of '9': the cluster has no broker 9 at the moment, but 1 "
        "(BROKER_ID_NOT_REGISTERED)\n"
    )
    assert (told.exit, told.out) == (1, "")
    assert time.monotonic() - begun < 45


def test_an_offset_outside_the_log_is_said_to_be(run: Run, servers: str) -> None:
    """Nothing was printed, and nothing was said of it."""
    assert run("topics", "create", "short").exit == 0
    assert produce(servers, "a\nb\n", "short").exit == 0
    read = ("consume", "short", "--partition", "0", "--offset")
    assert run(*read, "2") == (0, "", "")
    sentence = "kafkalite: offset 3 is outside the log of short-0, which is 0 to 2: "
    assert run(*read, "3") == (0, "", f"{sentence}there is nothing to read\n")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(servers, *read, "3", "--follow", "--max-messages", "1", **pipes) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"{sentence}only what comes from now on is read\n"
        assert produce(servers, "c\n", "short").exit == 0
        assert process.communicate(timeout=60) == ("c\n", "")


def test_an_expression_beyond_all_bounds_is_refused(run: Run) -> None:
    assert run("topics", "create", "unbounded").exit == 0
    for action in ("list", "describe", "delete"):
        told = run("topics", action, "a{99999999999}")
        assert (told.exit, told.err.count("\n")) == (2, 1)


def test_a_broker_id_beyond_all_bounds_is_refused(run: Run) -> None:
    assert run("configs", "describe", "--broker", "9" * 5000).exit == 1


def test_groups_are_listed_described_reset_and_deleted(run: Run, servers: str) -> None:
    assert run("topics", "create", "grouped", "--partitions", "2").exit == 0
    for partition, count in ((0, 3), (1, 5)):
        lines = "x\n" * count
        assert produce(servers, lines, "grouped", "--partition", str(partition)).exit == 0
    read = ("consume", "grouped", "--group", "readers", "--from-beginning", "--max-messages", "8")
    assert run(*read).out == "x\n" * 8
    assert "readers" in run("groups", "list").out.split()
    assert ["readers", "Empty"] in rows_of(run("groups", "list", "--state").out)
    told = run("groups", "describe", "readers")
    assert "Consumer group 'readers' has no active members." in told.err
    assert [row[1:6] for row in rows_of(told.out)[1:]] == [
        ["grouped", "0", "3", "3", "0"],
        ["grouped", "1", "5", "5", "0"],
    ]
    forms = {
        ("--to-earliest",): ["0", "0"],
        ("--to-latest",): ["3", "5"],
        ("--to-offset", "4"): ["3", "4"],
        ("--shift-by", "-2"): ["1", "3"],
        ("--to-current",): ["3", "5"],
        ("--by-duration", "PT1H"): ["0", "0"],
        ("--to-datetime", "2040-01-01T00:00:00.000"): ["3", "5"],
    }
    for form, offsets in forms.items():
        dry = run("groups", "reset-offsets", "readers", "--topic", "grouped", *form)
        assert [row[3] for row in rows_of(dry.out)[1:]] == offsets, form
        assert "dry run" in dry.err
    done = run(
        "groups", "reset-offsets", "readers", "--all-topics", "--to-offset", "1", "--execute"
    )
    assert done.exit == 0
    described = json.loads(run("groups", "describe", "readers", "--json").out)
    lags = [row["lag"] for row in described["offsets"]]
    assert lags == [2, 4]
    with Consumer(servers, group="readers") as consumer:
        consumer.subscribe(["grouped"])
        assert consumer.poll(30_000)
        members = rows_of(run("groups", "describe", "readers", "--members", "--verbose").out)
        assert members[1][-2:] == ["2", "grouped(0,1)"]
        state = rows_of(run("groups", "describe", "readers", "--state").out)
        assert state[1][-3:] == ["range", "Stable", "1"]
        busy = run("groups", "reset-offsets", "readers", "--all-topics", "--to-earliest")
        assert busy.exit == 1
        assert "the current state is Stable" in busy.err
    gone = run("groups", "delete-offsets", "readers", "--topic", "grouped:1")
    assert rows_of(gone.out)[-1] == ["grouped", "1", "Successful"]
    assert run("groups", "delete", "readers").out == (
        "Deletion of requested consumer groups ('readers') was successful.\n"
    )
    missing = run("groups", "describe", "readers")
    assert (missing.exit, missing.out) == (1, "")
    assert "Consumer group 'readers' does not exist." in missing.err


def test_offsets_and_the_cluster_are_shown(run: Run, servers: str) -> None:
    assert run("topics", "create", "counted", "--partitions", "2").exit == 0
    assert produce(servers, "x\ny\n", "counted", "--partition", "1").exit == 0
    assert run("offsets", "counted").out == "counted:0:0\ncounted:1:2\n"
    assert run("offsets", "counted", "--partitions", "1", "--time", "earliest").out == (
        "counted:1:0\n"
    )
    assert run("offsets", "nothing-like-it").exit == 2
    cluster = json.loads(run("cluster", "--json").out)
    assert [f"{row['host']}:{row['port']}" for row in cluster["brokers"]] == [servers]


def test_perf_measures_both_ways(run: Run) -> None:
    assert run("topics", "create", "load", "--partitions", "2").exit == 0
    common = ("--topic", "load", "--num-records", "5000")
    sent = run("perf", "produce", *common, "--record-size", "100", "--throughput", "-1")
    assert sent.exit == 0
    assert sent.out.startswith("5000 records sent, ")
    got = run("perf", "consume", *common, "--json")
    assert json.loads(got.out)["records"] == 5000


@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_measurement_that_is_interrupted_tells_what_there_was(
    run: Run, servers: str, by: signal.Signals, code: int
) -> None:
    """Ctrl-C threw away all that had been measured."""
    assert run("topics", "create", "cut", "--partitions", "1", "--if-not-exists").exit == 0
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    common = ("--topic", "cut", "--num-records", "100000000")
    slowly = ("--record-size", "10", "--throughput", "100", "--reporting-interval", "1")
    with start(servers, "perf", "produce", *common, *slowly, **pipes) as process:
        assert process.stdout is not None and "records sent" in process.stdout.readline()
        process.send_signal(by)
        rest, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, "\n")
    assert "99.9th." in rest.splitlines()[-1]
    group = ("--group", f"cut-{code}")
    with start(servers, "perf", "consume", *common, *group, "--json", **pipes) as process:
        while group[1] not in run("groups", "list").out:
            assert process.poll() is None
        process.send_signal(by)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert "records" in json.loads(out)


def test_perf_produce_makes_the_topic_as_any_producer_does(run: Run) -> None:
    sent = run("perf", "produce", "--topic", "made-by-perf", "--num-records", "10",
               "--record-size", "10", "--throughput", "-1")  # fmt: skip
    assert sent.out.startswith("10 records sent, ")
    assert run("topics", "describe", "made-by-perf").exit == 0


def test_a_cluster_without_topics_has_nothing_to_show(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """`offsets` said that no partition matches, though nothing had been asked for by name."""
    with kafkalite.Broker() as broker:
        for words in (
            ["topics", "list"],
            ["topics", "describe"],
            ["groups", "list"],
            ["groups", "describe", "--all-groups"],
            ["offsets"],
            ["configs", "describe", "--entity-type", "topics"],
        ):
            capfd.readouterr()
            assert cli.run([*words, "--bootstrap-server", broker.bootstrap_servers]) == 0, words
            assert capfd.readouterr() == ("", "")


def test_arrow_comes_over_the_wire(run: Run, servers: str) -> None:
    pytest.importorskip("pyarrow")
    assert run("topics", "create", "columns").exit == 0
    assert produce(servers, "a\nb\nc\n", "columns", "--codec", "lz4").exit == 0
    table = kafkalite.read_arrow("columns", servers, columns=["offset", "value"]).to_pyarrow()
    assert table.to_pydict() == {"offset": [0, 1, 2], "value": [b"a", b"b", b"c"]}


def test_progress_shows_on_a_terminal_only(run: Run, servers: str) -> None:
    assert run("topics", "create", "watched").exit == 0
    master, slave = pty.openpty()
    with start(servers, "produce", "watched", stdin=subprocess.PIPE, stderr=slave) as process:
        os.close(slave)
        assert process.stdin is not None
        while not select.select([master], [], [], 0)[0]:
            process.stdin.write("x\n" * 100)
            process.stdin.flush()
        process.stdin.close()
        process.wait(60)
    shown = b""
    while select.select([master], [], [], 0)[0]:
        try:
            shown += os.read(master, 1 << 16)
        except OSError:
            break
    os.close(master)
    assert b"watched: " in shown
    assert b" records in " in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics"],
        ["configs"],
        ["groups"],
        ["produce"],
        ["consume"],
        ["perf", "produce"],
        ["perf", "consume"],
    ],
)
def test_a_bare_command_prints_its_help(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 0
    told = capfd.readouterr().out
    assert told.startswith(f"usage: kafkalite {' '.join(arguments)}")
    assert "examples:" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "create"],
        ["topics", "destroy", "x"],
        ["topics", "alter", "x"],
        ["configs", "alter", "--topic", "x"],
        ["configs", "describe"],
        ["groups", "describe"],
        ["groups", "reset-offsets", "g", "--topic", "t"],
        ["groups", "reset-offsets", "g", "--to-earliest"],
        ["consume", "--from-beginning"],
        ["consume", "t", "--group", "g", "--partition", "0"],
        ["consume", "t", "--from-beginning", "--template", "%z"],
        ["consume", "--include", "[", "--group", "g"],
        ["offsets", "--topic-partitions", "[:0"],
        ["perf", "produce", "--topic", "t"],
        ["perf", "consume", "--include", "[", "--num-records", "1"],
        [
            *[
                "perf",
                "produce",
                "--topic",
                "t",
                "--num-records",
                "1",
                "--throughput",
                "1",
                "--record-size",
            ],
            "200000000",
        ],
        ["topics", "list", "--bootstrap-server", "nowhere:port"],
        ["topics", "list", "--timeout", "-5"],
        ["topics", "create", "x", "--partitions", "2147483648"],
        ["topics", "create", "x", "--partitions", "many"],
        ["topics", "create", "x", "--replication-factor", "32768"],
        ["topics", "alter", "x", "--partitions", "2147483648"],
        ["produce", "x", "--level", "2147483648"],
        ["topics", "list", "--timeout", "0"],
        ["topics", "list", "--bootstrap-server", "127.0.0.1:" + "9" * 5000],
        ["serve", "--listen", "127.0.0.1:" + "9" * 5000],
        ["offsets", "x", "--time", str(2**63)],
        ["offsets", "x", "--partitions", "9" * 5000],
        ["configs", "alter", "--topic", "x", "--add-config-file", "\0"],
        ["consume", "--include", "a{99999999999}", "--group", "g"],
        [
            "perf",
            "produce",
            "--topic",
            "t",
            "--num-records",
            "1",
            "--record-size",
            "-1",
            "--thr",
            "1",
        ],
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        code = cli.run(arguments)
    except SystemExit as told:
        code = int(told.code or 0)
    assert code == 2
    assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("host", ["a..b", "h" * 70, "[a..b]"])
def test_what_is_no_name_of_a_host_is_one_line(
    host: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python's refusal to encode the name was a traceback."""
    with pytest.raises(SystemExit, match="2"):
        cli.run(["topics", "list", "--bootstrap-server", f"{host}:1"])
    told = capfd.readouterr().err
    assert told.count("\n") == 1 and f": '{host}:1' is not HOST:PORT; " in told


def test_a_broker_that_is_not_there_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["topics", "list", "--bootstrap-server", "127.0.0.1:1"]) == 1
    told = capfd.readouterr().err
    assert told == (
        "kafkalite: no broker answers at 127.0.0.1:1: Connection refused; 'kafkalite serve' starts "
        "one, --bootstrap-server names another\n"
    )


def test_transactions_of_our_broker_are_described_and_ended(run: Run, servers: str) -> None:
    assert run("topics", "create", "in-transactions").exit == 0
    place = ("--topic", "in-transactions", "--partition", "0")
    with Connection(servers) as connection:
        client = Transactor(connection, "left-open")
        assert client.init() == 0
        assert client.add(("in-transactions", 0)) == {("in-transactions", 0): 0}
        assert client.produce("in-transactions", 0) == 0
    found = json.loads(run("transactions", "describe", "left-open", "--json").out)
    assert (found["transactionState"], found["topicPartitions"]) == (
        "Ongoing",
        [{"topic": "in-transactions", "partition": 0}],
    )
    (producer,) = run("transactions", "describe-producers", *place, "--json").out.splitlines()
    assert json.loads(producer)["currentTransactionStartOffset"] == 0
    assert run("transactions", "abort", *place).exit == 2
    assert run("transactions", "abort", *place, "--start-offset", "1").exit == 1
    # It would be torn: its coordinator knows it.
    refused = run("transactions", "abort", *place, "--start-offset", "0")
    assert (refused.exit, "does not hang" in refused.err) == (1, True)
    with Producer(servers, transactional_id="young") as young:
        young.begin_transaction()
        young.send("in-transactions", b"1")
        young.flush()
        left_out = run("transactions", "find-hanging", *place)
    assert (left_out.exit, "1 open transactions have a record" in left_out.err) == (0, True)
    assert run("transactions", "force-terminate", "nobody").exit == 1
    assert run("transactions", "describe", "nobody").exit == 1
    assert run("transactions", "force-terminate", "left-open").exit == 0
    deadline = time.monotonic() + 30
    is_open = True
    while is_open and time.monotonic() < deadline:
        told = run("transactions", "describe-producers", *place, "--json").out
        is_open = '"currentTransactionStartOffset": null' not in told.splitlines()[0]
    assert not is_open
    # A producer without an open transaction begins at -1.
    assert run("transactions", "abort", *place, "--start-offset", "-1").exit == 1
    found = json.loads(run("transactions", "describe", "left-open", "--json").out)
    assert found["transactionState"] == "Empty"
    for wrong in (
        ["describe"],
        ["find-hanging"],
        ["find-hanging", "--partition", "0"],
        ["find-hanging", "--broker-id", "9"],
        ["find-hanging", *place, "--max-transaction-timeout", "-5"],
    ):
        assert run("transactions", *wrong).exit == 2
