"""What kafkalite has no use for is there when Kafka comes back: quotas, ACLs, credentials, client
metrics in the metadata, groups of newer types among ours in `__consumer_offsets`.

    Kafka, SIGKILL ─► we write snapshots of the metadata, and compact the groups' topic ─► Kafka
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalite
from api.configs import change
from api.raw import Connection
from kafkalite.metadata import snapshots
from kafkalite.metadata.image import OFFSETS_TOPIC, TOPIC
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools, Record

pytestmark = pytest.mark.oracle

CONFIGS = "kafka.admin.ConfigCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
PATIENCE_S = 180

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
# A snapshot after nearly every change, and the cleaner at work all the time.
OURS = {
    "metadata.log.max.record.bytes.between.snapshots": "400",
    "log.cleaner.backoff.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
}
COMPACTED_SOON = {"min.cleanable.dirty.ratio": "0", "segment.ms": "1", "max.compaction.lag.ms": "1"}
MADE = [
    (
        CONFIGS,
        *("--alter", "--entity-type", "clients", "--entity-name", "slow"),
        *("--add-config", "producer_byte_rate=1234567"),
    ),
    (
        CONFIGS,
        *("--alter", "--entity-type", "users", "--entity-name", "alice"),
        *("--add-config", "SCRAM-SHA-256=[password=secret]"),
    ),
    (
        ACLS,
        *("--add", "--allow-principal", "User:bob", "--operation", "Read"),
        *("--topic", "ord", "--resource-pattern-type", "prefixed"),
    ),
    (METRICS, "--alter", "--name", "all", "--metrics", "*", "--interval", "30000"),
    (
        CONFIGS,
        *("--alter", "--entity-type", "groups", "--entity-name", "shared"),
        *("--add-config", "share.auto.offset.reset=earliest"),
    ),
]
ASKED = [
    (CONFIGS, "--describe", "--entity-type", "clients"),
    (CONFIGS, "--describe", "--entity-type", "users"),
    (ACLS, "--list"),
    (METRICS, "--describe"),
    (CONFIGS, "--describe", "--entity-type", "groups", "--entity-name", "shared"),
    (GROUPS, "--describe", "--group", "modern"),
    (GROUPS, "--describe", "--group", "modern", "--state"),
    (SHARE_GROUPS, "--describe", "--group", "shared"),
]

Run = Callable[..., str]


def runner(tools: KafkaTools, servers: str) -> Run:
    """Runs a tool, which must not fail; what it prints."""

    def run(main: str, *arguments: str) -> str:
        result = tools.run_tool(main, ["--bootstrap-server", servers, *arguments])
        assert result.exit == 0, result
        return result.stdout

    return run


def consume(run: Run, group: str, *more: str) -> None:
    asked = ("--topic", "orders", "--group", group, "--max-messages", "3")
    run(CONSUMER, *asked, "--from-beginning", *more)


def compact(ours: kafkalite.Broker, tools: KafkaTools, data: Path) -> None:
    """Groups write until the cleaner has been through what Kafka had written."""
    folder = data / f"{OFFSETS_TOPIC}-0"
    kafkas = (folder / f"{0:020}.log").stat().st_ino
    run = runner(tools, ours.bootstrap_servers)
    with Connection(ours.bootstrap_servers) as connection:
        operations = [(key, 0, value) for key, value in COMPACTED_SOON.items()]
        assert change(connection, (TOPIC, OFFSETS_TOPIC, operations)) == [(0, None)]
    consume(run, "classic")
    deadline = time.monotonic() + PATIENCE_S
    while (folder / f"{0:020}.log").stat().st_ino == kafkas:
        assert time.monotonic() < deadline, ours.log_tail()
        consume(run, "classic-again")


def test_quotas_acls_users_and_newer_groups_outlive_our_snapshots_and_our_compaction(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    kafka = KafkaBroker(kafka_tools, tmp_path / "kafka", log_dirs=[data], properties=AUTHORIZER)
    with kafka:
        run = runner(kafka_tools, kafka.bootstrap_servers)
        kafka_tools.create_topic(kafka.bootstrap_servers, "orders")
        records = [Record("orders", b"%d" % number) for number in range(3)]
        kafka_tools.produce(kafka.bootstrap_servers, records)
        for made in MADE:
            run(*made)
        consume(run, "modern", "--command-property", "group.protocol=consumer")
        run(SHARE_CONSUMER, "--topic", "orders", "--group", "shared", "--max-messages", "3")
        before = [run(*asked) for asked in ASKED]
        kafka.kill()
    with kafkalite.Broker(data, config=OURS) as ours:
        compact(ours, kafka_tools, data)
        ours.stop()
    assert list((data / snapshots.FOLDER).glob("*.checkpoint"))
    with kafka:
        run = runner(kafka_tools, kafka.bootstrap_servers)
        assert [run(*asked) for asked in ASKED] == before
        assert "classic" in run(GROUPS, "--list")
