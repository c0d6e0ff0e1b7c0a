"""Every command against Apache Kafka, and its words against those of Kafka's own tools."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.raw import Connection
from api.transactions import Transactor
from kafkalite._native import partition_for_key
from kafkalite.client import Consumer, Producer
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools, Record, ToolResult

pytestmark = pytest.mark.oracle

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"

# In the past, so that what is produced now is later.
START_MS = 1_700_000_000_000

Ours = Callable[..., subprocess.CompletedProcess[str]]
Theirs = Callable[..., ToolResult]


@pytest.fixture(scope="module")
def servers(kafka: KafkaBroker) -> str:
    return kafka.bootstrap_servers


@pytest.fixture(scope="module")
def ours(servers: str) -> Ours:
    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kafkalite", *arguments, "--bootstrap-server", servers]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def theirs(kafka_tools: KafkaTools, servers: str) -> Theirs:
    def run(tool: str, *arguments: str) -> ToolResult:
        return kafka_tools.run_tool(tool, [*arguments, "--bootstrap-server", servers])

    return run


@pytest.fixture(scope="module")
def filled(kafka_tools: KafkaTools, servers: str) -> Iterator[str]:
    """A topic of three partitions with 10, 20 and no records, a second apart, and the first 5 of
    each deleted."""
    name = "filled"
    # The records are old: retention must not take them.
    kafka_tools.create_topic(servers, name, partitions=3, config={"retention.ms": "-1"})
    for partition, count in ((0, 10), (1, 20)):
        records: list[Record | str] = [
            Record(
                name,
                f"{partition}-{number}".encode(),
                key=b"key",
                partition=partition,
                timestamp=START_MS + 1000 * number,
            )
            for number in range(count)
        ]
        kafka_tools.produce(servers, records)
        kafka_tools.delete_records(servers, name, 5, partition)
    yield name


# --- topics and configs ---------------------------------------------------------------------------


def test_topics_are_described_and_listed_in_kafkas_words(ours: Ours, theirs: Theirs) -> None:
    made = ours("topics", "create", "made", "--partitions", "2", "--config", "retention.ms=9000")
    assert (made.returncode, made.stdout) == (0, "Created topic made.\n")
    told = theirs(TOPICS, "--describe", "--topic", "made")
    assert ours("topics", "describe", "made").stdout == told.stdout
    assert ours("topics", "list").stdout == theirs(TOPICS, "--list").stdout
    again = ours("topics", "create", "made")
    assert again.returncode == 1
    assert "Topic 'made' already exists." in again.stderr
    assert ours("topics", "create", "made", "--if-not-exists").returncode == 0
    assert ours("topics", "alter", "made", "--partitions", "3").returncode == 0
    told = theirs(TOPICS, "--describe", "--topic", "made")
    assert "PartitionCount: 3" in told.stdout
    assert ours("topics", "--describe", "--topic", "made").stdout == told.stdout
    for each in ("--under-replicated-partitions", "--at-min-isr-partitions"):
        told = theirs(TOPICS, "--describe", "--topic", "made", each)
        assert ours("topics", "describe", "made", each).stdout == told.stdout
    described = json.loads(ours("topics", "describe", "made", "--json").stdout)
    assert described["partitionCount"] == 3
    assert described["configs"]["retention.ms"] == "9000"
    assert ours("topics", "delete", "made").returncode == 0
    gone = ours("topics", "describe", "made")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "Topic 'made' does not exist as expected" in gone.stderr


def test_records_are_deleted_in_kafkas_words(ours: Ours, theirs: Theirs, tmp_path: Path) -> None:
    assert ours("topics", "create", "shortened").returncode == 0
    assert ours("produce", "shortened", stdin="a\nb\nc\n").returncode == 0
    file = tmp_path / "offsets.json"
    file.write_text('{"partitions": [{"topic": "shortened", "partition": 0, "offset": 2}]}')
    told = theirs(DELETE_RECORDS, "--offset-json-file", str(file))
    assert "low_watermark: 2" in told.stdout
    assert ours("topics", "delete-records", "--offset-json-file", str(file)).stdout == told.stdout
    assert ours("topics", "delete-records", "shortened", "--before", "2").stdout == told.stdout


def test_configs_are_described_and_changed_in_kafkas_words(ours: Ours, theirs: Theirs) -> None:
    assert ours("topics", "create", "configured").returncode == 0
    entity = ("--entity-type", "topics", "--entity-name", "configured")
    added = ours(
        "configs", "alter", *entity, "--add-config", "cleanup.policy=[compact,delete],segment.ms=9"
    )
    assert added.stdout == "Completed updating config for topic configured.\n"
    told = theirs(CONFIGS, "--describe", *entity)
    assert "cleanup.policy=compact,delete" in told.stdout
    assert ours("configs", "describe", *entity).stdout == told.stdout
    everything = theirs(CONFIGS, "--describe", "--all", *entity)
    assert ours("configs", "describe", "--topic", "configured", "--all").stdout == everything.stdout
    assert ours("configs", "alter", *entity, "--delete-config", "segment.ms").returncode == 0
    assert "segment.ms" not in theirs(CONFIGS, "--describe", *entity).stdout
    refused = ours("configs", "alter", *entity, "--add-config", "segment.ms=soon")
    assert refused.returncode == 1
    assert "INVALID_CONFIG" in refused.stderr
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    told = theirs(CONFIGS, "--describe", "--all", *broker)
    assert ours("configs", "describe", "--broker", "1", "--all").stdout == told.stdout
    defaults = theirs(CONFIGS, "--describe", "--entity-type", "brokers")
    assert ours("configs", "describe", "--entity-type", "brokers").stdout == defaults.stdout


def test_the_default_of_all_brokers_is_described_and_changed_in_kafkas_words(
    ours: Ours, theirs: Theirs
) -> None:
    default = ("--entity-type", "brokers", "--entity-default")
    key = "log.message.timestamp.after.max.ms"

    def same(*arguments: str) -> str:
        told, mine = theirs(CONFIGS, *arguments), ours("configs", *arguments)
        assert (mine.returncode, mine.stdout) == (told.exit, told.stdout)
        return mine.stdout

    for arguments in (default, ("--broker-defaults",)):
        same("--alter", *arguments, "--add-config", f"{key}=3600001")
        wait_until(lambda: f"{key}=3600001 " in theirs(CONFIGS, "--describe", *default).stdout)
        for view in ((), ("--all",)):
            assert f"{key}=3600001 " in same("--describe", *arguments, *view)
        same("--alter", *arguments, "--delete-config", key)
        wait_until(lambda: key not in theirs(CONFIGS, "--describe", *default).stdout)
        # Kafka's tool has no word for a key that was not set.
        same("--alter", *arguments, "--delete-config", key)
    missing = ours("configs", "alter", *default, "--delete-config", f"{key},none")
    assert missing.stderr == f"kafkalite: not set, and so not deleted: {key}, none\n"
    same("--alter", *default, "--add-config", "node.id=7")
    same("--alter", *default, "--add-config", f"{key}=soon")
    for kind in ("topics", "groups", "broker-loggers"):
        for action in (("--describe",), ("--alter", "--add-config", "a=b")):
            arguments = (*action, "--entity-type", kind, "--entity-default")
            assert theirs(CONFIGS, *arguments).exit == 1
            told = ours("configs", *arguments)
            assert (told.returncode, told.stdout) == (2, "")


def wait_until(is_so: Callable[[], bool]) -> None:
    """Kafka's broker describes a change once it has read it from the metadata log."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # the pause of this poll


def test_loggers_are_described_and_changed_in_kafkas_words(ours: Ours, theirs: Theirs) -> None:
    entity = ("--entity-type", "broker-loggers", "--entity-name", "1")

    def lines(told: str) -> tuple[str, list[str]]:
        """Its title, and its loggers, which Kafka shows in no order."""
        title, *loggers = told.splitlines()
        return title, sorted(loggers)

    told = theirs(CONFIGS, "--describe", *entity)
    assert lines(ours("configs", "describe", *entity).stdout) == lines(told.stdout)
    level = told.stdout.partition("  root=")[2].split()[0]
    changed = ours("configs", "alter", *entity, "--add-config", f"root={level}")
    again = theirs(CONFIGS, "--alter", *entity, "--add-config", f"root={level}")
    assert changed.stdout == again.stdout
    strange = ours("configs", "alter", *entity, "--add-config", "no.such.logger=INFO")
    refused = theirs(CONFIGS, "--alter", *entity, "--add-config", "no.such.logger=INFO")
    assert strange.stderr.strip().removeprefix("kafkalite: ") in refused.stderr + refused.stdout


# --- records --------------------------------------------------------------------------------------


def test_what_is_produced_is_consumed(ours: Ours) -> None:
    assert ours("topics", "create", "lines", "--partitions", "2").returncode == 0
    sent = ours("produce", "lines", "--key-separator", ":", "--codec", "zstd", stdin="a:1\nb:2\n")
    assert (sent.returncode, sent.stderr) == (0, "")
    line = '{"key":"k","value":{"hex":"00ff"},"headers":{"h":"v"},"partition":1,"timestamp":17}\n'
    assert ours("produce", "lines", "--format", "json", stdin=line).returncode == 0
    everything = ours("consume", "lines", "--from-beginning", "--format", "json").stdout
    rows = [json.loads(text) for text in everything.splitlines()]
    assert sorted((row["key"], str(row["value"])) for row in rows) == [
        ("a", "1"),
        ("b", "2"),
        ("k", "{'hex': '00ff'}"),
    ]
    odd = next(row for row in rows if row["key"] == "k")
    assert (odd["partition"], odd["timestamp"], odd["headers"]) == (1, 17, [["h", "v"]])
    one = ours(
        "consume", "lines", "--partition", "1", "--offset", "-1", "--template", r"%p %k=%S %h\n"
    )
    assert one.stdout == "1 k=2 h:v\n"
    assert ours("topics", "create", "copies", "--partitions", "2").returncode == 0
    assert ours("produce", "copies", "--format", "json", stdin=everything).returncode == 0
    again = ours("consume", "copies", "--from-beginning", "--format", "json").stdout
    assert sorted(again.replace("copies", "lines").splitlines()) == sorted(everything.splitlines())


def test_keys_go_to_the_partitions_of_the_java_client(
    kafka_tools: KafkaTools, servers: str
) -> None:
    kafka_tools.create_topic(servers, "keyed", partitions=7)
    keys = [f"key-{number}".encode() for number in range(60)] + [b"", "ключ".encode(), b"x" * 300]
    any_partition: int = None  # type: ignore[assignment]
    kafka_tools.produce(
        servers, [Record("keyed", b"theirs", key=key, partition=any_partition) for key in keys]
    )
    with Producer(servers) as producer:
        for key in keys:
            producer.send("keyed", b"ours", key)
    placed: dict[bytes | None, set[int]] = {}
    read_count = 0
    with Consumer(servers) as consumer:
        consumer.assign([("keyed", partition) for partition in range(7)])
        while read_count < 2 * len(keys):
            for record in consumer.poll(5000):
                placed.setdefault(record.key, set()).add(record.partition)
                read_count += 1
    assert placed == {key: {partition_for_key(key, 7)} for key in keys}


def test_aborted_records_are_left_out_when_asked(
    ours: Ours, kafka_tools: KafkaTools, servers: str
) -> None:
    kafka_tools.create_topic(servers, "half-aborted")
    steps: list[Record | str] = []
    for number, end in enumerate(("commit", "abort", "commit")):
        steps += ["begin", Record("half-aborted", f"{number}".encode()), end]
    kafka_tools.produce(servers, steps, config={"transactional.id": "commands"})
    read = ("consume", "half-aborted", "--from-beginning")
    assert ours(*read).stdout == "0\n1\n2\n"
    assert ours(*read, "--isolation-level", "read_committed").stdout == "0\n2\n"


def test_a_missing_topic_is_one_sentence(ours: Ours) -> None:
    """`produce` says before that the broker is asked to create it, which this one does not."""
    refused = "kafkalite: topic 'nowhere': there is no such topic or partition "
    for arguments, lines in (
        (("consume", "nowhere", "--from-beginning"), 1),
        (("produce", "nowhere"), 2),
    ):
        told = ours(*arguments, stdin="x\n")
        assert told.returncode == 1
        assert told.stderr.count("\n") == lines
        assert told.stderr.splitlines()[-1] == f"{refused}(UNKNOWN_TOPIC_OR_PARTITION)"


def test_offsets_are_kafkas(ours: Ours, theirs: Theirs, filled: str) -> None:
    for arguments in (
        ("--topic", filled),
        ("--topic", filled, "--time", "earliest"),
        ("--topic", filled, "--time", "max-timestamp"),
        ("--topic", filled, "--time", str(START_MS + 7_000)),
        ("--topic-partitions", f"{filled}:0-2"),
        ("--topic", filled, "--partitions", "1"),
    ):
        assert ours("offsets", *arguments).stdout == theirs(OFFSETS, *arguments).stdout, arguments


def test_cluster_shows_the_broker(ours: Ours, servers: str) -> None:
    told = json.loads(ours("cluster", "--json").stdout)
    assert [f"{row['host']}:{row['port']}" for row in told["brokers"]] == [servers]
    assert told["features"]["metadata.version"] >= 25
    assert "Broker: 1" in ours("cluster").stdout


def test_perf_counts_what_it_sends_and_gets(ours: Ours) -> None:
    assert ours("topics", "create", "load", "--partitions", "2").returncode == 0
    common = ("--topic", "load", "--num-records", "20000")
    sent = ours(
        "perf", "produce", *common, "--record-size", "100", "--throughput", "-1",
        "--producer-props", "compression.type=lz4", "linger.ms=0",
    )  # fmt: skip
    assert sent.returncode == 0
    assert sent.stdout.startswith("20000 records sent, ")
    assert sent.stdout.endswith("99.9th.\n")
    got = ours("perf", "consume", *common)
    titles, line = got.stdout.splitlines()
    assert titles.startswith("start.time, end.time, data.consumed.in.MB, MB.sec")
    assert line.split(", ")[4] == "20000"
    assert len(line.split(", ")) == len(titles.split(", "))
    held = ours(
        "perf", "produce", "--topic", "load", "--num-records", "300", "--payload-monotonic",
        "--throughput", "300", "--json",
    )  # fmt: skip
    assert json.loads(held.stdout)["seconds"] > 0.9


# --- groups ---------------------------------------------------------------------------------------


def commit(servers: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    with Consumer(servers, group=group) as consumer:
        consumer.assign(offsets)
        consumer.commit(offsets)


def rows_of(text: str) -> list[list[str]]:
    return sorted(line.split() for line in text.splitlines() if line.strip())


def test_groups_are_listed_and_described_in_kafkas_words(
    ours: Ours, theirs: Theirs, servers: str, filled: str
) -> None:
    commit(servers, "readers", {(filled, 0): 7, (filled, 1): 12})
    for view in ((), ("--state",), ("--members",)):
        told = theirs(GROUPS, "--describe", "--group", "readers", *view)
        mine = ours("groups", "describe", "readers", *view)
        assert rows_of(mine.stdout) == rows_of(told.stdout), view
        assert "Consumer group 'readers' has no active members." in mine.stderr
    assert "readers" in ours("groups", "list").stdout.split()
    # Of this group: members of other tests may be missed between the two looks.
    mine, told = (
        [row for row in rows_of(printed) if row[0] in ("GROUP", "readers")]
        for printed in (
            ours("groups", "list", "--state", "Empty").stdout,
            theirs(GROUPS, "--list", "--state", "Empty").stdout,
        )
    )
    assert mine == told
    assert len(mine) == 2
    with Consumer(servers, group="readers") as consumer:
        consumer.subscribe([filled])
        while not consumer.assignment:
            consumer.poll(1000)
        for view in ((), ("--state",), ("--members",)):
            told = theirs(GROUPS, "--describe", "--group", "readers", *view)
            mine = ours("groups", "describe", "readers", *view)
            assert rows_of(mine.stdout) == rows_of(told.stdout), view
        busy = ours("groups", "reset-offsets", "readers", "--all-topics", "--to-earliest")
        assert busy.returncode == 1
        assert "the current state is Stable" in busy.stderr
        assert ours("groups", "delete", "readers").returncode == 1
    gone = ours("groups", "delete-offsets", "readers", "--topic", f"{filled}:0")
    assert gone.returncode == 0
    assert [filled, "0", "Successful"] in rows_of(gone.stdout)
    assert ours("groups", "delete", "readers").returncode == 0
    missing = ours("groups", "describe", "readers")
    assert missing.returncode == 1
    assert "does not exist" in missing.stderr


def test_every_form_of_reset_gives_kafkas_offsets(
    ours: Ours, theirs: Theirs, servers: str, filled: str, tmp_path: Path
) -> None:
    commit(servers, "resets", {(filled, 0): 7, (filled, 1): 12})
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{filled},0,8\n{filled},1,99\n")
    old = int((time.time() * 1000 - START_MS) / 1000)
    forms = [
        ("--to-earliest",),
        ("--to-latest",),
        ("--to-current",),
        ("--to-offset", "9"),
        ("--to-offset", "1"),
        ("--to-offset", "1000"),
        ("--to-datetime", "2023-11-14T22:13:26.500"),
        ("--to-datetime", "2023-11-15T00:13:27.000+02:00"),
        ("--to-datetime", "2040-01-01T00:00:00.000"),
        ("--by-duration", "PT1M"),
    ]
    scopes = (("--topic", filled), ("--topic", f"{filled}:1,2"), ("--all-topics",))
    for form in forms:
        for scope in scopes:
            same(ours, theirs, form, scope)
    # The instant that a duration names goes on with the clock, from one command to the next.
    for scope in scopes:
        form = ("--by-duration", f"PT{old - 8}S")
        before = reset_rows(ours("groups", *reset_arguments(form, scope)).stdout)
        told = reset_rows(theirs(GROUPS, *reset_arguments(form, scope)).stdout)
        after = reset_rows(ours("groups", *reset_arguments(form, scope)).stdout)
        assert [row[:3] for row in before] == [row[:3] for row in told], scope
        for early, kafkas, late in zip(before, told, after, strict=True):
            assert int(early[3]) <= int(kafkas[3]) <= int(late[3]), scope
    for form in (("--shift-by", "2"), ("--shift-by", "-100"), ("--shift-by", "100")):
        for scope in (("--topic", f"{filled}:0,1"), ("--all-topics",)):
            same(ours, theirs, form, scope)
    same(ours, theirs, ("--from-file", str(plan)), ())
    no_offset = ours("groups", "reset-offsets", "resets", "--topic", filled, "--shift-by", "1")
    assert no_offset.returncode == 2
    assert "no current committed offset" in no_offset.stderr

    arguments = ("--reset-offsets", "--group", "resets", "--all-topics", "--to-offset", "6")
    exported = ours("groups", *arguments, "--export", "--dry-run").stdout
    assert sorted(exported.splitlines()) == sorted(
        theirs(GROUPS, *arguments, "--export", "--dry-run").stdout.split()
    )
    assert ours("groups", *arguments, "--execute").returncode == 0
    told = theirs(GROUPS, "--describe", "--group", "resets").stdout
    assert {(row[2], row[3]) for row in rows_of(told) if row[0] == "resets"} == {
        ("0", "6"),
        ("1", "6"),
    }
    plan.write_text(exported.replace(",6", ",10"))
    done = ours(
        "groups", "reset-offsets", "resets", "--from-file", str(plan), "--execute", "--json"
    )
    assert [json.loads(line)["newOffset"] for line in done.stdout.splitlines()] == [10, 10]


def same(ours: Ours, theirs: Theirs, form: tuple[str, ...], scope: tuple[str, ...]) -> None:
    arguments = reset_arguments(form, scope)
    told = reset_rows(theirs(GROUPS, *arguments).stdout)
    mine = reset_rows(ours("groups", *arguments).stdout)
    assert told
    assert mine == told, (form, scope)


def reset_arguments(form: tuple[str, ...], scope: tuple[str, ...]) -> tuple[str, ...]:
    return ("--reset-offsets", "--group", "resets", *scope, *form, "--dry-run")


def reset_rows(printed: str) -> list[list[str]]:
    """Group, topic, partition, new offset."""
    return [row for row in rows_of(printed) if row[0] == "resets"]


# --- transactions ---------------------------------------------------------------------------------


def without_duration(text: str) -> list[list[str]]:
    """The cells of a table, but for the duration of `describe`, which the clock tells."""
    rows = [line.split("\t") for line in text.splitlines()]
    shown = [at for at, title in enumerate(rows[0]) if title.strip() != "TransactionDurationMs"]
    return [[row[at].strip() for at in shown] for row in rows]


def test_transactions_are_shown_and_ended_in_kafkas_words(
    ours: Ours, kafka_tools: KafkaTools, servers: str
) -> None:
    topic, name = "in-transactions", "left-open"
    assert ours("topics", "create", topic).returncode == 0
    config = {"transactional.id": name}
    steps: list[Record | str] = ["begin", Record(topic, b"1", timestamp=START_MS), "flush"]
    kafka_tools.produce(servers, steps, config=config, producer=name, close=False)

    def both(*arguments: str) -> str:
        told = kafka_tools.run_tool(TRANSACTIONS, ["--bootstrap-server", servers, *arguments])
        mine = ours("transactions", *arguments)
        assert mine.returncode == told.exit == 0, (mine, told)
        if arguments[0] == "describe":
            assert without_duration(mine.stdout) == without_duration(told.stdout)
        else:
            assert sorted(mine.stdout.splitlines()) == sorted(told.stdout.splitlines())
        return mine.stdout

    place = ("--topic", topic, "--partition", "0")
    assert name in both("list")
    assert name in both("list", "--transactional-id-pattern", "left-.*")
    assert name not in both("list", "--transactional-id-pattern", "right-.*")
    assert name not in both("list", "--duration-filter", "99999999")
    assert f"{topic}-0" in both("describe", "--transactional-id", name)
    both("describe-producers", *place)
    # It is old enough, but its coordinator knows it.
    assert len(both("find-hanging", *place).splitlines()) == 1
    unknown = ours("transactions", "describe", "nobody")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in unknown.stderr
    missing = ours("transactions", "abort", *place, "--start-offset", "77")
    assert missing.returncode == 1
    assert f"Could not find any open transactions starting at offset 77 on partition {topic}-0" in (
        missing.stderr
    )
    assert ours("transactions", "force-terminate", name).returncode == 0
    assert "Ongoing" not in ours("transactions", "describe", name).stdout


def test_a_transaction_that_hangs_is_found_and_aborted(
    ours: Ours, theirs: Theirs, kafka_tools: KafkaTools, servers: str
) -> None:
    """A record in a transaction that its coordinator has never heard of."""
    topic = "hanging"
    assert ours("topics", "create", topic).returncode == 0
    place = ("--topic", topic, "--partition", "0")
    config = "transaction.partition.verification.enable"
    brokers = ("--entity-type", "brokers", "--entity-default", "--alter")
    assert theirs(CONFIGS, *brokers, "--add-config", f"{config}=false").exit == 0
    try:
        with Connection(servers) as connection:
            client = Transactor(connection, topic)
            assert client.init() == 0
            while (code := client.produce(topic, 0)) == 48:
                pass  # the configuration is not yet in force
            assert code == 0
            assert client.stable_end(topic) == 0
            found = ours("transactions", "find-hanging", *place).stdout
            command = ["--bootstrap-server", servers, "find-hanging", *place]
            told = kafka_tools.run_tool(TRANSACTIONS, command).stdout
            # But for the last column, the duration by the clock.
            rows = [text.rsplit("\t", 2)[0].rsplit("\t", 1)[0] for text in (found, told)]
            assert rows[0] == rows[1]
            assert len(found.splitlines()) == 2
            done = ours("transactions", "abort", *place, "--start-offset", "0")
            assert (done.returncode, done.stderr) == (0, "")
            assert client.stable_end(topic) == 2
            assert len(ours("transactions", "find-hanging", *place).stdout.splitlines()) == 1
    finally:
        theirs(CONFIGS, *brokers, "--delete-config", config)
