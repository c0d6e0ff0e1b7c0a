"""Topics, configs and producer ids of one directory, in turn under us and under Apache Kafka in
combined mode; each may have been killed.

    we (killed, stopped) ─► Kafka, SIGKILL ─► we, SIGKILL ─► Kafka, clean stop ─► we

Starts of Kafka are what these tests cost, so that most of them watch the same two.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkalite
from api.batches import batch
from api.raw import Connection
from kafkalite import _native
from kafkalite.metadata import reading, records, snapshots
from kafkalite.metadata.image import Image
from kafkalite.protocol import messages
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools, Record

pytestmark = pytest.mark.oracle

COMPLAINT = re.compile(r"stray|corrupt|ERROR|FATAL|Exception|truncat", re.IGNORECASE)
# A snapshot after nearly every change.
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "400"}


class Story(NamedTuple):
    """What each saw, in order."""

    ours_first: Image
    described_by_kafka: str
    kafkas_output: str
    consumed_by_kafka: list[bytes | None]
    kafkas_producer_id: int
    after_kafka: dict[str, int]
    ours_after_kafka: Image
    producer_ids: list[int]
    described_again: str
    at_end: Image
    at_end_topics: dict[str, int]
    dumps: list[str]


def connect(broker: kafkalite.Broker) -> Connection:
    return Connection(broker.bootstrap_servers)


def topics(connection: Connection) -> dict[str, int]:
    """Name -> number of partitions that have a leader."""
    found = connection.ask("Metadata", 9, messages.MetadataRequest(topics=None)).topics
    return {topic.name: sum(each.leader_id == 1 for each in topic.partitions) for topic in found}


def producer_id(connection: Connection) -> int:
    request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answer = connection.ask("InitProducerId", 4, request)
    assert answer.error_code == 0
    return int(answer.producer_id)


def describe(tools: KafkaTools, kafka: KafkaBroker) -> str:
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--describe"]
    described = tools.run_tool("org.apache.kafka.tools.TopicCommand", arguments)
    assert described.exit == 0
    return described.stdout


def facts(image: Image) -> Any:
    """What outlives a change of hands: no epochs, no leaders."""
    return (
        {
            topic.name: (topic.id, [each.directories for each in topic.partitions])
            for topic in image.topics.values()
        },
        image.configs,
        image.features,
    )


@pytest.fixture(scope="module")
def story(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("metadata")
    data = folder / "data"
    ours = kafkalite.Broker(data, config=SNAPSHOTS)
    ids = []
    with ours:
        with connect(ours) as connection:
            made = [
                connection.create_topic("orders", partitions=3, retention_ms="99999"),
                connection.create_topic("grown"),
                connection.create_topic("deleted", partitions=2, cleanup_policy="compact"),
            ]
            assert [each.error_code for each in made] == [0, 0, 0]
            ids.append(producer_id(connection))
            delete = messages.DeleteTopicsRequest(topic_names=["deleted"], timeout_ms=1000)
            connection.ask("DeleteTopics", 5, delete)
        ours.kill()
        ours.start()
        with connect(ours) as connection:
            kind = messages.CreatePartitionsRequest
            grown = kind.CreatePartitionsTopic(name="grown", count=2, assignments=None)
            connection.ask("CreatePartitions", 3, kind(topics=[grown], timeout_ms=1000))
            assert connection.produce("orders", batch([b"ours 1", b"ours 2"])).error_code == 0
            ids.append(producer_id(connection))
        ours.stop()
        ours_first = reading.read(data).image

        kafka = KafkaBroker(kafka_tools, folder / "kafka", log_dirs=[data])
        with kafka:
            described = describe(kafka_tools, kafka)
            consumed = [
                record.value for record in kafka_tools.consume(kafka.bootstrap_servers, "orders")
            ]
            servers = kafka.bootstrap_servers
            kafka_tools.create_topic(servers, "theirs", partitions=2, config={"segment.ms": "7777"})
            kafka_tools.alter_config(servers, "orders", {"retention.ms": "55555"})
            kafka_tools.produce(
                servers, [Record("orders", b"theirs")], config={"enable.idempotence": "true"}
            )
            producers = kafka_tools.describe_producers(servers, "orders")
            kafka.kill()
            output = kafka.output.read_text()

            ours.start()
            with connect(ours) as connection:
                after_kafka = topics(connection)
                ours_after_kafka = reading.read(data).image
                ids.append(producer_id(connection))
                assert connection.create_topic("last").error_code == 0
            ours.kill()

            kafka.start()
            described_again = describe(kafka_tools, kafka)
            kafka.stop()
        ours.start()
        with connect(ours) as connection:
            at_end_topics = topics(connection)
            ids.append(producer_id(connection))
        ours.stop()
    files = [
        *(data / snapshots.FOLDER).glob("*.log"),
        *(data / snapshots.FOLDER).glob("*.checkpoint"),
    ]
    dumps = [kafka_tools.dump_log(path, decoder="cluster-metadata") for path in files]
    assert not any(each.findings for each in dumps)
    yield Story(
        ours_first=ours_first,
        described_by_kafka=described,
        kafkas_output=output,
        consumed_by_kafka=consumed,
        kafkas_producer_id=max(producers),
        after_kafka=after_kafka,
        ours_after_kafka=ours_after_kafka,
        producer_ids=ids,
        described_again=described_again,
        at_end=reading.read(data).image,
        at_end_topics=at_end_topics,
        dumps=[each.text for each in dumps],
    )


def test_kafka_has_our_topics_with_ids_partitions_configs_and_records(story: Story) -> None:
    found = dict(re.findall(r"Topic: (\S+)\tTopicId: (\S+)", story.described_by_kafka))
    ids = {name: topic.id for name, topic in story.ours_first.topics.items()}
    assert {name: _uuid(text) for name, text in found.items()} == ids
    assert set(found) == {"orders", "grown"}
    assert "retention.ms=99999" in story.described_by_kafka
    assert story.described_by_kafka.count("Leader: 1") == 5
    assert story.consumed_by_kafka == [b"ours 1", b"ours 2"]


def test_kafka_finds_nothing_wrong_with_our_directory(story: Story) -> None:
    complaints = [line for line in story.kafkas_output.splitlines() if COMPLAINT.search(line)]
    # It says what is set by default about exceptions, and nothing else of the kind.
    assert [line for line in complaints if "INFO" not in line] == []


def test_we_have_what_kafka_made_and_changed_before_it_was_killed(story: Story) -> None:
    assert story.after_kafka == {"orders": 3, "grown": 2, "theirs": 2}
    configs = story.ours_after_kafka.configs
    assert configs[2, "orders"] == {"retention.ms": "55555"}
    assert configs[2, "theirs"] == {"segment.ms": "7777"}


def test_no_producer_id_is_given_twice(story: Story) -> None:
    given = [*story.producer_ids, story.kafkas_producer_id]
    assert len(set(given)) == len(given)
    assert sorted(story.producer_ids) == story.producer_ids
    assert story.producer_ids[1] < story.kafkas_producer_id < story.producer_ids[2]


def test_kafka_goes_on_after_our_kill_and_we_after_its_clean_stop(story: Story) -> None:
    assert "Topic: last\t" in story.described_again
    assert story.at_end_topics == {"orders": 3, "grown": 2, "theirs": 2, "last": 1}
    before, after = facts(story.ours_after_kafka), facts(story.at_end)
    assert {name: after[0][name] for name in before[0]} == before[0]
    assert after[1:] == before[1:]


def test_leader_epochs_grow_with_each_leadership(story: Story) -> None:
    first = story.ours_first.topics["orders"].partitions[0].leader_epoch
    later = story.ours_after_kafka.topics["orders"].partitions[0].leader_epoch
    last = story.at_end.topics["orders"].partitions[0].leader_epoch
    assert first < later < last


def test_kafkas_own_tool_reads_our_log_and_snapshots(story: Story) -> None:
    assert any("Snapshot end offset" in text for text in story.dumps)
    text = "".join(story.dumps)
    for name in ("TOPIC_RECORD", "LeaderChange", "PRODUCER_IDS_RECORD", "SnapshotFooter"):
        assert name in text


def test_a_directory_of_kafkas_default_format_keeps_features_and_a_dynamic_quorum(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """`kafka-storage format --standalone`, as Kafka's quick start has it, and a user beside it."""
    data = tmp_path / "data"
    data.mkdir()
    kafka = KafkaBroker(kafka_tools, tmp_path / "kafka", log_dirs=[data])
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:19093\nlog.dirs={data}\n"
    )
    cluster = ["--cluster-id=MkU3OEVBNTcwNTJENDM2Qk", "-c", properties, "--standalone"]
    alice = ["--add-scram", "SCRAM-SHA-256=[name=alice,password=secret]"]
    made = kafka_tools.run_tool("kafka.tools.StorageTool", ["format", *cluster, *alice])
    assert made.exit == 0
    with kafkalite.Broker(data) as ours:
        with connect(ours) as connection:
            assert connection.create_topic("ours").error_code == 0
        ours.stop()
    found = reading.read(data)
    assert found.image.features == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    assert found.quorum.kraft_version == 1
    assert [each[:2] for each in found.image.kept] == [("scram", "alice")]
    with kafka:
        assert "Topic: ours\t" in describe(kafka_tools, kafka)
        features = kafka_tools.run_tool(
            "org.apache.kafka.tools.FeatureCommand",
            ["--bootstrap-server", kafka.bootstrap_servers, "describe"],
        ).stdout
        assert re.search(r"kraft.version.*FinalizedVersionLevel: 1", features)


def test_kafka_reads_our_transactions_also_one_that_a_kill_left_open(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """Topics that do not fit in one batch were in Kafka only as far as a kill had let us write."""
    data = tmp_path / "data"
    # 32 KB a topic, as much as a config can be, so that the request takes more than 1 MiB.
    throttled = ",".join(["0:1"] * 8000)
    wide = {f"wide-{number}": 2 for number in range(36)}
    log_file = data / snapshots.FOLDER / f"{0:020}.log"
    kind = messages.CreateTopicsRequest
    config = kind.CreatableTopic.CreatableTopicConfig(
        name="leader.replication.throttled.replicas", value=throttled
    )
    wanted = [
        kind.CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=[config])
        for name in wide
    ]
    with kafkalite.Broker(data) as ours:
        with connect(ours) as connection:
            answer = connection.ask("CreateTopics", 7, kind(topics=wanted, timeout_ms=5000))
            assert {each.error_code for each in answer.topics} == {0}
        ours.kill()
        found = reading.read(data)
        half = _native.BatchBuilder(
            base_offset=found.end_offset, leader_epoch=found.quorum.leader_epoch
        )
        begin = messages.BeginTransactionRecord(name="half of a topic")
        for message in (begin, messages.TopicRecord(name="half", topic_id=bytes([7] * 16))):
            half.append(found.image.last_timestamp, None, records.encode(message))
        with log_file.open("ab") as file:
            file.write(half.finish())
        ours.start()
        with connect(ours) as connection:
            assert connection.create_topic("after").error_code == 0
            assert topics(connection) == {**wide, "after": 1}
        ours.stop()
    dump = kafka_tools.dump_log(log_file, decoder="cluster-metadata")
    assert not dump.findings
    for name in ("BEGIN", "END", "ABORT"):
        assert dump.text.count(f'"{name}_TRANSACTION_RECORD"') == 1 + (name == "BEGIN")
    with KafkaBroker(kafka_tools, tmp_path / "kafka", log_dirs=[data]) as kafka:
        described = describe(kafka_tools, kafka)
        kafka.stop()
        complaints = [
            line
            for line in kafka.output.read_text().splitlines()
            if COMPLAINT.search(line) and "INFO" not in line
        ]
    found_by_kafka = re.findall(r"Topic: (\S+)\tTopicId: \S+\tPartitionCount: (\d+)", described)
    assert {name: int(count) for name, count in found_by_kafka} == {**wide, "after": 1}
    assert described.count("Leader: 1") == 73
    assert complaints == []


def _uuid(text: str) -> bytes:
    import base64

    return base64.urlsafe_b64decode(text + "==")
