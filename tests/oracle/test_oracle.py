"""The judge itself works: a real Kafka starts, takes and gives records, and dumps its files."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from oracle.broker import KafkaBroker
from oracle.jars import kafka_version
from oracle.tools import KafkaTools, Record
from oracle.topics import wait_until_led

pytestmark = pytest.mark.oracle


def test_kafkas_own_admin_tool_makes_a_topic(kafka: KafkaBroker, kafka_tools: KafkaTools) -> None:
    servers = ["--bootstrap-server", kafka.bootstrap_servers]
    made = kafka_tools.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        [*servers, "--create", "--topic", "made-by-tool", "--partitions", "2"],
    )
    assert (made.exit, made.stderr) == (0, "")
    wait_until_led(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), "made-by-tool", 2)
    listed = kafka_tools.run_tool("org.apache.kafka.tools.TopicCommand", [*servers, "--list"])
    assert "made-by-tool" in listed.stdout.splitlines()


def test_what_the_java_client_produces_it_consumes(
    kafka: KafkaBroker, kafka_tools: KafkaTools
) -> None:
    kafka_tools.create_topic(kafka.bootstrap_servers, "round-trip")
    sent = [
        Record("round-trip", b"plain", timestamp=1_700_000_000_000),
        Record("round-trip", None, key=b"tombstone", headers=(("a", b"1"), ("b", None))),
        Record("round-trip", "Käfer".encode(), key=b""),
    ]
    offsets = kafka_tools.produce(kafka.bootstrap_servers, sent)
    assert offsets == [0, 1, 2]
    read = kafka_tools.consume(kafka.bootstrap_servers, "round-trip")
    assert [(r.key, r.value, r.headers) for r in read] == [
        (r.key, r.value, r.headers) for r in sent
    ]
    assert read[0].timestamp == 1_700_000_000_000
    assert kafka_tools.end_offset(kafka.bootstrap_servers, "round-trip") == 3


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_dump_log_segments_reads_every_codec(
    kafka: KafkaBroker, kafka_tools: KafkaTools, codec: str
) -> None:
    topic = f"dumped-{codec}"
    kafka_tools.create_topic(kafka.bootstrap_servers, topic)
    kafka_tools.produce(
        kafka.bootstrap_servers,
        [
            Record(topic, b"first value", key=b"k1"),
            Record(topic, b"second"),
            "flush",
            Record(topic, b"x"),
        ],
        config={"compression.type": codec, "linger.ms": "1000"},
    )
    segment = kafka.partition(topic) / "00000000000000000000.log"
    dump = kafka_tools.dump_log(segment)
    assert [batch["baseOffset"] for batch in dump.batches] == ["0", "2"]
    assert {batch["compresscodec"] for batch in dump.batches} == {codec}
    assert [(record["offset"], record["payload"]) for record in dump.records] == [
        ("0", "first value"),
        ("1", "second"),
        ("2", "x"),
    ]
    assert dump.records[0]["key"] == "k1"


def test_a_transaction_may_be_committed_aborted_or_left_open(
    kafka: KafkaBroker, kafka_tools: KafkaTools
) -> None:
    topic, servers = "oracle-transactions", kafka.bootstrap_servers
    kafka_tools.create_topic(servers, topic)
    config = {"transactional.id": "oracle"}
    kafka_tools.produce(
        servers,
        ["begin", Record(topic, b"kept"), "commit", "begin", Record(topic, b"dropped"), "abort"],
        config=config,
        producer="oracle",
        close=False,
    )
    kafka_tools.produce(servers, ["begin", Record(topic, b"open")], producer="oracle", close=False)
    committed = {"isolation.level": "read_committed"}
    assert [r.value for r in kafka_tools.consume(servers, topic, config=committed)] == [b"kept"]
    assert len(kafka_tools.consume(servers, topic)) == 3
    kafka_tools.produce(servers, ["commit"], producer="oracle")
    read = kafka_tools.consume(servers, topic, config=committed)
    assert [r.value for r in read] == [b"kept", b"open"]


def test_a_killed_and_a_stopped_broker_come_back_with_their_records(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    with KafkaBroker(
        kafka_tools, tmp_path, log_dirs=directories, properties={"num.partitions": "1"}
    ) as broker:
        kafka_tools.create_topic(broker.bootstrap_servers, "kept")
        kafka_tools.produce(broker.bootstrap_servers, [Record("kept", b"one")])
        broker.kill()
        assert not any((directory / ".kafka_cleanshutdown").exists() for directory in directories)
        broker.start()
        kafka_tools.produce(broker.bootstrap_servers, [Record("kept", b"two")])
        broker.stop()
        assert all((directory / ".kafka_cleanshutdown").exists() for directory in directories)
        broker.start()
        read = kafka_tools.consume(broker.bootstrap_servers, "kept")
        assert [record.value for record in read] == [b"one", b"two"]


def test_a_wrong_property_is_told_with_the_brokers_own_words(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    broker = KafkaBroker(
        kafka_tools, tmp_path, properties={"log.retention.check.interval.ms": "never"}
    )
    with pytest.raises(RuntimeError, match=r"log\.retention\.check\.interval\.ms"):
        broker.start()


def test_the_oracle_is_the_version_that_the_readme_names() -> None:
    assert kafka_version() == "4.3.1"
