"""Frames that passed between Apache Kafka and its own tools and clients: each is read by our codec,
header and body, and written back to the same bytes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from api.raw import NAMES, header_is_tagged
from kafkalite.protocol import messages
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools, Record

sys.path.append(str(Path(__file__).parents[2] / "tools"))
from record_frames import Frame, Recorder

pytestmark = pytest.mark.oracle

TOOL = "org.apache.kafka.tools."
GROUPS = TOOL + "consumer.group.ConsumerGroupCommand"
# What the tools below must have used, lest a tool that fails prove nothing.
KEYS_SPOKEN = {
    *(0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 24, 25, 26, 28),
    *(29, 32, 35, 37, 42, 44, 46, 47, 48, 50, 55, 57, 60, 61, 64, 65, 66, 68, 69, 74, 75),
}


@pytest.fixture(scope="module")
def frames(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Frame]]:
    recorder = Recorder()
    folder = tmp_path_factory.mktemp("recorded")
    address = f"127.0.0.1:{recorder.port}"
    properties = {"advertised.listeners": f"PLAINTEXT://{address}"}
    with KafkaBroker(kafka_tools, folder, properties=properties) as broker:
        host, port = broker.bootstrap_servers.split(":")
        recorder.target = (host, int(port))
        use_tools(kafka_tools, address, folder)
        use_clients(kafka_tools, address)
        use_librdkafka(address)
    recorder.close()
    yield recorder.frames


def use_tools(tools: KafkaTools, address: str, folder: Path) -> None:
    """Most of Kafka's commands, each once or twice."""
    steps = folder / "delete.json"
    steps.write_text('{"version":1,"partitions":[{"topic":"orders","partition":0,"offset":1}]}')
    topic = ["--topic", "orders"]
    entity = ["--entity-type", "topics", "--entity-name", "orders"]
    tools.create_topic(address, "orders", 2)
    tools.produce(address, [Record("orders", b"v", b"k") for _ in range(5)])
    tools.consume(address, "orders", config={"group.id": "readers"})
    for name, *arguments in [
        ("TopicCommand", "--list"),
        ("TopicCommand", "--describe", *topic),
        ("TopicCommand", "--create", "--topic", "payments", "--config", "retention.ms=1000"),
        ("TopicCommand", "--alter", "--topic", "payments", "--partitions", "4"),
        ("TopicCommand", "--delete", "--topic", "payments"),
        ("GetOffsetShell", *topic),
        ("GetOffsetShell", *topic, "--time", "-3"),
        ("DeleteRecordsCommand", "--offset-json-file", steps),
        ("LogDirsCommand", "--describe"),
        ("BrokerApiVersionsCommand",),
        ("FeatureCommand", "describe"),
        ("FeatureCommand", "upgrade", "--feature", "group.version=1"),
        ("MetadataQuorumCommand", "describe", "--status"),
        ("TransactionsCommand", "list"),
        ("TransactionsCommand", "describe-producers", *topic, "--partition", "0"),
        ("TransactionsCommand", "describe", "--transactional-id", "tx"),
        ("reassign.ReassignPartitionsCommand", "--list"),
        ("GroupsCommand", "--list"),
        ("ClientMetricsCommand", "--list"),
    ]:
        tools.run_tool(TOOL + name, ["--bootstrap-server", address, *arguments])
    for words in [("cluster-id",), ("list-endpoints",), ("unregister", "--id", "99")]:
        tools.run_tool(TOOL + "ClusterTool", [*words, "--bootstrap-server", address])
    for arguments in [
        (*entity, "--describe", "--all"),
        (*entity, "--alter", "--add-config", "retention.ms=60000"),
        ("--entity-type", "brokers", "--entity-name", "1", "--describe"),
        ("--entity-type", "clients", "--describe"),
        ("--entity-type", "users", "--describe"),
    ]:
        tools.run_tool("kafka.admin.ConfigCommand", ["--bootstrap-server", address, *arguments])
    tools.run_tool("org.apache.kafka.tools.AclCommand", ["--bootstrap-server", address, "--list"])


def use_clients(tools: KafkaTools, address: str) -> None:
    """The Java client: transactions, both group protocols, and what groups leave behind."""
    tools.produce(
        address,
        ["begin", Record("orders", b"t"), "commit", "begin", Record("orders", b"a"), "abort"],
        config={"transactional.id": "tx"},
    )
    tools.run_tool(TOOL + "TransactionsCommand", ["--bootstrap-server", address, "list"])
    for protocol in ("classic", "consumer"):
        tools.run_tool(
            TOOL + "consumer.ConsoleConsumer",
            [
                *("--bootstrap-server", address, "--topic", "orders", "--from-beginning"),
                *("--group", protocol, "--max-messages", "1", "--timeout-ms", "20000"),
                *("--command-property", f"group.protocol={protocol}"),
            ],
        )
    classic = ("--group", "classic", "--topic", "orders")
    for arguments in [
        ("--list", "--state"),
        ("--describe", "--all-groups", "--members", "--verbose"),
        ("--describe", "--all-groups"),
        ("--reset-offsets", *classic, "--to-earliest", "--execute"),
        ("--delete-offsets", *classic),
        ("--delete", "--group", "classic"),
    ]:
        tools.run_tool(GROUPS, ["--bootstrap-server", address, *arguments])


def use_librdkafka(address: str) -> None:
    """Another client speaks other versions."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "other"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"value", b"key", headers={"a": b"1"})
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "others",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["orders"])
    assert consumer.poll(30) is not None
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    consumer.commit(asynchronous=False)
    consumer.close()


def name_of(frame: Frame) -> str:
    way = "Response" if frame.is_response else "Request"
    return f"{NAMES[frame.key]}{way}"


def test_the_tools_spoke_every_key(frames: list[Frame]) -> None:
    spoken = {frame.key for frame in frames}
    assert sorted(KEYS_SPOKEN - spoken) == []
    assert len({(frame.key, frame.version) for frame in frames}) > 50


def test_every_header_is_read_and_written_to_the_same_bytes(frames: list[Frame]) -> None:
    for frame in frames:
        tagged = header_is_tagged(frame.key, frame.version, frame.is_response)
        version = tagged if frame.is_response else 1 + tagged
        kind = messages.ResponseHeader if frame.is_response else messages.RequestHeader
        header = kind.decode(frame.content, version)
        written = header.encode(version)
        assert frame.content.startswith(written), name_of(frame)


def test_every_body_is_read_and_written_to_the_same_bytes(frames: list[Frame]) -> None:
    for frame in frames:
        tagged = header_is_tagged(frame.key, frame.version, frame.is_response)
        if frame.is_response:
            kind, version = messages.ResponseHeader, int(tagged)
        else:
            kind, version = messages.RequestHeader, 1 + tagged
        body = frame.content[len(kind.decode(frame.content, version).encode(version)) :]
        message = getattr(messages, name_of(frame)).decode(body, frame.version)
        assert message.encode(frame.version) == body, f"{name_of(frame)} v{frame.version}"
