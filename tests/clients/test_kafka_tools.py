"""Kafka's own command-line tools, with every sub-command that a broker of this kind can answer.

Each expectation is what the tool prints against Apache Kafka 4.3.1.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clients.conftest import Cluster
from clients.drivers import Java
from clients.neutral import Client, ConsumerOptions, ProducerOptions, Record, settle
from oracle.tools import KafkaTools, ToolResult
from oracle.tools import Record as Send

pytestmark = pytest.mark.oracle

TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}

Run = Callable[..., ToolResult]


@pytest.fixture
def run(kafka_tools: KafkaTools, cluster: Cluster) -> Run:
    """Runs a tool against the broker; `fails=True` if it has to refuse."""

    def run(tool: str, *arguments: object, stdin: str = "", fails: bool = False) -> ToolResult:
        servers = ["--bootstrap-server", cluster.servers]
        given = [str(argument) for argument in arguments]
        result = kafka_tools.run_tool(TOOLS[tool], [*servers, *given], stdin=stdin)
        assert (result.exit != 0) == fails, result
        return result

    return run


@pytest.fixture(scope="module")
def java(kafka_tools: KafkaTools) -> Iterator[Client]:
    """The Java client, in the JVM of the tools."""
    with contextlib.closing(Java(lambda: kafka_tools)) as client:
        yield client


def fill(java: Client, cluster: Cluster, topic: str, count: int, partitions: int = 1) -> None:
    """Records with the timestamps 1000, 2000, 3000 … to the partitions in turn."""
    with contextlib.closing(java.producer(cluster.servers, ProducerOptions())) as producer:
        producer.send(
            [
                Record(topic, f"{n}".encode(), partition=n % partitions, timestamp=1_000 * (n + 1))
                for n in range(count)
            ]
        )


# topics


def test_topics_are_created_listed_and_deleted(run: Run, cluster: Cluster) -> None:
    name = cluster.topic(prefix="tool") + ".new"
    created = run("topics", "--create", "--topic", name, "--partitions", 3)
    assert f"Created topic {name}." in created.stdout
    assert name in run("topics", "--list").stdout.splitlines()
    again = run("topics", "--create", "--topic", name, fails=True)
    assert f"Topic '{name}' already exists." in again.stdout + again.stderr
    run("topics", "--create", "--topic", name, "--if-not-exists")
    run("topics", "--delete", "--topic", name)
    assert name not in run("topics", "--list").stdout.splitlines()
    gone = run("topics", "--delete", "--topic", name, fails=True)
    assert f"Topic '{name}' does not exist as expected" in gone.stdout + gone.stderr
    run("topics", "--delete", "--topic", name, "--if-exists")


def test_topics_are_described_with_their_configuration(run: Run, cluster: Cluster) -> None:
    topic = cluster.topic(2, cleanup_policy="compact", retention_ms="1000")
    lines = run("topics", "--describe", "--topic", topic).stdout.splitlines()
    head = re.fullmatch(
        rf"Topic: {topic}\tTopicId: (\S{{22}})\tPartitionCount: 2\tReplicationFactor: 1\t"
        r"Configs: (\S+)",
        lines[0].strip(),
    )
    assert head is not None, lines
    assert {"cleanup.policy=compact", "retention.ms=1000"} <= set(head[2].split(","))
    partitions = [
        [f"Topic: {topic}", f"Partition: {n}", "Leader: 1", "Replicas: 1", "Isr: 1"]
        for n in range(2)
    ]
    assert [line.split("\t")[1:6] for line in lines[1:]] == partitions
    by_id = run("topics", "--describe", "--topic-id", head[1]).stdout.splitlines()
    assert [line.split("\t")[1:6] for line in by_id[1:]] == partitions
    assert topic in run("topics", "--describe", "--topics-with-overrides").stdout


@pytest.mark.parametrize(
    "only",
    [
        "--under-replicated-partitions",
        "--under-min-isr-partitions",
        "--unavailable-partitions",
    ],
)
def test_no_partition_of_a_single_broker_is_in_trouble(
    run: Run, cluster: Cluster, only: str
) -> None:
    cluster.topic()
    assert run("topics", "--describe", only, "--exclude-internal").stdout.strip() == ""


def test_every_partition_is_at_its_least_in_sync_replicas(run: Run, cluster: Cluster) -> None:
    topic = cluster.topic()
    assert topic in run("topics", "--describe", "--at-min-isr-partitions").stdout


def test_topics_grow_and_never_shrink(run: Run, cluster: Cluster) -> None:
    topic = cluster.topic(2)
    run("topics", "--alter", "--topic", topic, "--partitions", 5)
    assert "PartitionCount: 5" in run("topics", "--describe", "--topic", topic).stdout
    fewer = run("topics", "--alter", "--topic", topic, "--partitions", 3, fails=True)
    assert "would not be an increase" in fewer.stdout + fewer.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--topic", "bad name"), "Topic name is invalid"),
        (("--topic", "t", "--partitions", "0"), "greater than 0"),
        (("--topic", "t", "--replication-factor", "3"), "replication factor"),
        (("--topic", "t", "--config", "retention.ms=soon"), "retention.ms"),
        (("--topic", "t", "--config", "no.such.key=1"), "no.such.key"),
    ],
)
def test_topics_that_cannot_be_are_refused(
    run: Run, arguments: tuple[str, ...], sentence: str
) -> None:
    refused = run("topics", "--create", *arguments, fails=True)
    assert sentence in refused.stdout + refused.stderr


# console producer and consumer, perf tests


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_console_consumer_prints_what_the_producer_was_told(
    run: Run, cluster: Cluster, codec: str
) -> None:
    topic = cluster.topic()
    reader = ["parse.key=true", "parse.headers=true", "key.separator=:", "null.marker=NULL"]
    run(
        "console-producer",
        *("--topic", topic, "--compression-codec", codec),
        *(word for each in reader for word in ("--reader-property", each)),
        stdin="h:1,i:2\tkey:value\nNULL\tKäfer:NULL\n",
    )
    formatter = [
        "print.key=true",
        "print.headers=true",
        "print.partition=true",
        "print.offset=true",
    ]
    read = run(
        "console-consumer",
        *("--topic", topic, "--from-beginning", "--max-messages", 2),
        *(word for each in formatter for word in ("--formatter-property", each)),
    )
    assert read.stdout.splitlines()[:2] == [
        "Partition:0\tOffset:0\th:1,i:2\tkey\tvalue",
        "Partition:0\tOffset:1\tNO_HEADERS\tKäfer\tnull",
    ]


def test_the_console_consumer_starts_where_it_is_told(
    run: Run, cluster: Cluster, java: Client
) -> None:
    topic = cluster.topic(2)
    fill(java, cluster, topic, 20, 2)
    options = ("--topic", topic, "--max-messages", 3)
    at = run("console-consumer", *options, "--partition", 1, "--offset", 4)
    assert at.stdout.splitlines()[:3] == ["9", "11", "13"]
    include = ("--include", f"{topic}|none", "--from-beginning", "--group", f"g-{topic}")
    got = run("console-consumer", *include, "--max-messages", 20)
    assert sorted(map(int, got.stdout.split()[:20])) == [*range(20)]


def test_the_perf_tests_count_what_they_moved(run: Run, cluster: Cluster) -> None:
    topic = cluster.topic(3)
    sent = run(
        "producer-perf-test",
        *("--topic", topic, "--num-records", 20_000, "--record-size", 100, "--throughput", -1),
        *("--command-property", "acks=all"),
    )
    assert "20000 records sent" in sent.stdout
    got = run("consumer-perf-test", "--topic", topic, "--num-records", 20_000)
    rows = [line.split(", ") for line in got.stdout.splitlines() if line.startswith("20")]
    assert int(rows[0][4]) == 20_000


# offsets, records, directories, versions


def test_get_offsets_knows_both_ends_and_every_time(
    run: Run, cluster: Cluster, java: Client
) -> None:
    topic = cluster.topic(2)
    fill(java, cluster, topic, 10, 2)

    def offsets(*arguments: object) -> list[str]:
        return run("get-offsets", "--topic", topic, *arguments).stdout.split()

    assert offsets() == [f"{topic}:0:5", f"{topic}:1:5"]
    assert offsets("--time", "earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("--time", "latest") == [f"{topic}:0:5", f"{topic}:1:5"]
    assert offsets("--time", "max-timestamp") == [f"{topic}:0:4", f"{topic}:1:4"]
    assert offsets("--time", "earliest-local") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("--time", 5_500) == [f"{topic}:0:3", f"{topic}:1:2"]
    assert offsets("--partitions", 1) == [f"{topic}:1:5"]
    by_pattern = run("get-offsets", "--topic-partitions", f"{topic}:0-1")
    assert by_pattern.stdout.split() == [f"{topic}:0:5"]


def test_delete_records_moves_the_start(
    run: Run, cluster: Cluster, java: Client, tmp_path: Path
) -> None:
    topic = cluster.topic()
    fill(java, cluster, topic, 10)
    file = tmp_path / "offsets.json"

    def ask(offset: int, *, fails: bool = False) -> str:
        partition = {"topic": topic, "partition": 0, "offset": offset}
        file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        result = run("delete-records", "--offset-json-file", file, fails=fails)
        return result.stdout + result.stderr

    assert f"partition: {topic}-0\tlow_watermark: 4" in ask(4)
    starts = run("get-offsets", "--topic", topic, "--time", "earliest").stdout.split()
    assert starts == [f"{topic}:0:4"]
    assert "low_watermark: 10" in ask(-1)
    assert "OffsetOutOfRange" in ask(11)


def test_log_dirs_say_where_partitions_lie(run: Run, cluster: Cluster, java: Client) -> None:
    topic = cluster.topic(2)
    fill(java, cluster, topic, 10, 2)
    told = run("log-dirs", "--describe", "--topic-list", topic).stdout
    (line,) = (line for line in told.splitlines() if line.startswith("{"))
    (broker,) = json.loads(line)["brokers"]
    (directory,) = broker["logDirs"]
    assert (broker["broker"], directory["error"]) == (1, None)
    assert Path(directory["logDir"]) == cluster.data
    found = {each["partition"]: each for each in directory["partitions"]}
    assert found.keys() == {f"{topic}-0", f"{topic}-1"}
    for name, each in found.items():
        assert each["size"] == (cluster.data / name / f"{0:020}.log").stat().st_size
        assert (each["offsetLag"], each["isFuture"]) == (0, False)


def test_broker_api_versions_lists_the_keys(run: Run) -> None:
    told = run("broker-api-versions").stdout
    assert "(id: 1 rack: null isFenced: false)" in told
    for key in ("Produce(0): 0 to 13", "Fetch(1): 4 to 18", "JoinGroup(11): 0 to 9"):
        assert key in told, told


def test_the_quorum_is_this_broker(run: Run) -> None:
    status = run("metadata-quorum", "describe", "--status").stdout
    assert re.search(r"^LeaderId:\s+1$", status, re.MULTILINE), status
    assert re.search(r"^MaxFollowerLag:\s+0$", status, re.MULTILINE), status
    replicas = run("metadata-quorum", "describe", "--replication").stdout.splitlines()
    assert [line.split()[0] for line in replicas] == ["NodeId", "1"]


def test_features_are_described(run: Run) -> None:
    told = run("features", "describe").stdout
    assert re.search(r"Feature: metadata.version\s+SupportedMinVersion: \S+\s", told), told
    assert "Feature: group.version" in told


# configs


def test_configs_of_a_topic_are_set_shown_and_deleted(run: Run, cluster: Cluster) -> None:
    topic = cluster.topic()
    entity = ("--entity-type", "topics", "--entity-name", topic)
    run("configs", "--alter", *entity, "--add-config", "retention.ms=1000,cleanup.policy=[compact]")
    told = run("configs", "--describe", *entity).stdout
    assert f"Dynamic configs for topic {topic} are:" in told
    assert "retention.ms=1000 sensitive=false" in told
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000" in told
    run("configs", "--alter", *entity, "--delete-config", "retention.ms")
    told = run("configs", "--describe", *entity).stdout
    assert "retention.ms" not in told
    assert "cleanup.policy=compact" in told
    everything = run("configs", "--describe", "--all", *entity).stdout
    assert "segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:" in everything
    # The broker's own, which the cluster fixture sets, is below the topic's that was deleted.
    assert "retention.ms=-1 sensitive=false synonyms={STATIC_BROKER_CONFIG:log.retention.ms=-1" in (
        everything
    )
    refused = run("configs", "--alter", *entity, "--add-config", "retention.ms=soon", fails=True)
    assert "retention.ms" in refused.stdout + refused.stderr


def test_configs_of_a_broker_are_set_shown_and_deleted(run: Run) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "1")
    run("configs", "--alter", *entity, "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2 sensitive=false" in run("configs", "--describe", *entity).stdout
    run("configs", "--alter", *entity, "--delete-config", "log.cleaner.threads")
    assert "log.cleaner.threads=2" not in run("configs", "--describe", *entity).stdout
    assert "log.cleaner.threads=1" in run("configs", "--describe", "--all", *entity).stdout
    static = run("configs", "--alter", *entity, "--add-config", "node.id=7", fails=True)
    assert "node.id" in static.stdout + static.stderr


# groups


def table(result: ToolResult) -> list[dict[str, str]]:
    """The rows of a tool's table by their heading."""
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    start = next(at for at, line in enumerate(lines) if line[0] == "GROUP")
    return [dict(zip(lines[start], line, strict=False)) for line in lines[start + 1 :]]


def test_an_active_group_is_described_and_not_changed(
    run: Run, cluster: Cluster, java: Client
) -> None:
    topic = cluster.topic(2)
    fill(java, cluster, topic, 10, 2)
    group = f"g-{topic}"
    options = ConsumerOptions(topics=(topic,), group=group)
    with contextlib.closing(java.consumer(cluster.servers, options)) as member:
        settle([member], {(topic, 0), (topic, 1)})
        member.commit({(topic, 0): 3}, wait=True)
        assert group in run("groups", "--list").stdout.split()
        states = run("groups", "--list", "--state").stdout
        assert re.search(rf"^{group}\s+Stable", states, re.MULTILINE), states
        rows = {
            row["PARTITION"]: row for row in table(run("groups", "--describe", "--group", group))
        }
        assert [rows["0"][name] for name in ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")] == [
            *("3", "5", "2")
        ]
        assert rows["1"]["CURRENT-OFFSET"] == "-"
        (row,) = table(run("groups", "--describe", "--group", group, "--members", "--verbose"))
        assert (row["#PARTITIONS"], row["HOST"]) == ("2", "/127.0.0.1")
        (row,) = table(run("groups", "--describe", "--group", group, "--state"))
        assert "Stable" in row.values()
        assert "range" in row.values()
        target = ("--group", group, "--topic", topic)
        refused = run("groups", "--reset-offsets", *target, "--to-earliest", "--execute")
        assert "is inactive, but the current state is Stable" in refused.stdout
        refused = run("groups", "--delete", "--group", group)
        assert "GroupNotEmptyException" in refused.stdout
        cluster.wait_for_commit(group, {(topic, 0): 3})


def test_offsets_are_reset_in_every_form(
    run: Run, cluster: Cluster, java: Client, tmp_path: Path
) -> None:
    topic = cluster.topic(2)
    fill(java, cluster, topic, 20, 2)
    group = f"g-{topic}"

    def reset(*arguments: object, apply: bool = True) -> dict[str, str]:
        """What is printed as the new offset of each partition."""
        options = ("--reset-offsets", "--group", group, "--execute" if apply else "--dry-run")
        rows = table(run("groups", *options, *arguments))
        return {row["PARTITION"]: row["NEW-OFFSET"] for row in rows}

    of_topic = ("--topic", topic)
    assert reset(*of_topic, "--to-latest") == {"0": "10", "1": "10"}
    cluster.wait_for_commit(group, {(topic, 0): 10, (topic, 1): 10})
    assert reset(*of_topic, "--to-earliest", apply=False) == {"0": "0", "1": "0"}
    cluster.wait_for_commit(group, {(topic, 0): 10, (topic, 1): 10})
    assert reset(*of_topic, "--to-earliest") == {"0": "0", "1": "0"}
    assert reset(*of_topic, "--to-offset", 4) == {"0": "4", "1": "4"}
    assert reset(*of_topic, "--to-offset", 99) == {"0": "10", "1": "10"}
    assert reset(*of_topic, "--shift-by", -3) == {"0": "7", "1": "7"}
    assert reset(*of_topic, "--to-current") == {"0": "7", "1": "7"}
    assert reset("--topic", f"{topic}:1", "--shift-by", 2) == {"1": "9"}
    moment = "1970-01-01T00:00:10.500"
    assert reset(*of_topic, "--to-datetime", moment) == {"0": "5", "1": "5"}
    assert reset(*of_topic, "--by-duration", "PT1H") == {"0": "10", "1": "10"}
    assert reset("--all-topics", "--to-earliest") == {"0": "0", "1": "0"}
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,2\n{topic},1,3\n")
    assert reset("--from-file", file) == {"0": "2", "1": "3"}
    cluster.wait_for_commit(group, {(topic, 0): 2, (topic, 1): 3})
    exported = run(
        *("groups", "--reset-offsets", "--group", group, *of_topic, "--to-current", "--export"),
        "--dry-run",
    )
    assert sorted(exported.stdout.split()) == [
        f'"{group}",{topic},{n},{n + 2}' for n in range(2)
    ] or (sorted(exported.stdout.split()) == [f"{topic},{n},{n + 2}" for n in range(2)])


def test_offsets_and_groups_are_deleted(run: Run, cluster: Cluster, java: Client) -> None:
    topic = cluster.topic(2)
    fill(java, cluster, topic, 4, 2)
    group = f"g-{topic}"
    target = ("--group", group, "--topic", topic)
    run("groups", "--reset-offsets", *target, "--to-latest", "--execute")
    run("groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    rows = table(run("groups", "--describe", "--group", group))
    assert [row["PARTITION"] for row in rows] == ["1"]
    run("groups", "--delete", "--group", group)
    assert group not in run("groups", "--list").stdout.split()
    gone = run("groups", "--delete", "--group", group)
    assert "GroupIdNotFoundException" in gone.stdout


# transactions


def test_transactions_are_listed_described_and_aborted(
    run: Run, cluster: Cluster, kafka_tools: KafkaTools
) -> None:
    topic = cluster.topic(prefix="tool")
    begun: list[Send | str] = ["begin", Send(topic, b"1"), "flush"]
    config = {"transactional.id": topic}
    kafka_tools.produce(cluster.servers, begun, config=config, producer=topic, close=False)
    pattern = ("--transactional-id-pattern", f"{topic[:-1]}.")
    (row,) = (
        line.split() for line in run("transactions", "list", *pattern).stdout.splitlines()[1:]
    )
    assert (row[0], row[3]) == (topic, "Ongoing")
    assert len(run("transactions", "list", "--duration-filter", 1 << 50).stdout.split()) == 4
    described = run("transactions", "describe", "--transactional-id", topic).stdout
    assert f"{topic}-0" in described
    place = ("--topic", topic, "--partition", 0)
    (producer,) = run("transactions", "describe-producers", *place).stdout.splitlines()[1:]
    assert producer.split()[0] == row[2]
    assert len(run("transactions", "find-hanging", "--broker-id", 1).stdout.splitlines()) == 1
    run("transactions", "abort", *place, "--start-offset", 0)
    run("transactions", "forceTerminateTransaction", "--transactionalId", topic)
