"""Three brokers of kafkalite join a controller of Apache Kafka's."""

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from api.raw import Connection
from kafkalite import _native
from kafkalite.metadata import reading
from kafkalite.metadata.image import PartitionImage
from kafkalite.protocol import messages
from kafkalite.replication.waiting import LEAVE_WAIT_S
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools, ToolResult
from replication.nodes import SESSION_MS, Node, new_controller, new_kafka, wait_until

Tool = Callable[..., ToolResult]
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(scope="session")
def tool(kafka_tools: KafkaTools) -> Tool:
    def run(name: str, node: Node, *words: str) -> ToolResult:
        result = kafka_tools.run_tool(name, ["--bootstrap-server", node.address, *words])
        assert result.exit == 0, result
        return result

    return run


def alive(node: Node) -> set[int]:
    return set(AdminClient({"bootstrap.servers": node.address}).list_topics(timeout=10).brokers)


def leaders(node: Node, topic: str) -> list[int]:
    found = AdminClient({"bootstrap.servers": node.address}).list_topics(topic, timeout=10)
    partitions = found.topics[topic].partitions
    return [partitions[each].leader for each in sorted(partitions)]


def make(tool: Tool, nodes: Sequence[Node], topic: str, partitions: int = 6) -> None:
    words = ("--partitions", str(partitions), "--replication-factor", "1")
    tool(TOPICS, nodes[0], "--create", "--topic", topic, *words)
    wait_until(lambda: all(has(node, topic, partitions) for node in nodes))


def has(node: Node, topic: str, count: int) -> bool:
    found = AdminClient({"bootstrap.servers": node.address}).list_topics(timeout=10).topics
    return topic in found and len(found[topic].partitions) == count


def produce(
    node: Node, topic: str, partition: int, values: Sequence[str], *, is_idempotent: bool = True
) -> list[int]:
    """The offsets of the records, acks=all."""
    offsets: list[int] = []
    settings = {"bootstrap.servers": node.address, "enable.idempotence": is_idempotent}
    producer = Producer({**settings, "acks": "all"})

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())  # type: ignore[attr-defined]

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert producer.flush(30) == 0
    return offsets


def consume(node: Node, topic: str, count: int, group: str) -> list[str]:
    settings = {
        "bootstrap.servers": node.address,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    values: list[str] = []
    due = time.monotonic() + 60
    while len(values) < count:
        assert time.monotonic() < due, f"{len(values)} of {count} records"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
    consumer.close()
    return values


def test_kafkas_tools_work_at_any_broker(tool: Tool, three_nodes: list[Node]) -> None:
    one, two, three = three_nodes
    make(tool, three_nodes, "tools")
    described = tool(TOPICS, three, "--describe", "--topic", "tools").stdout
    assert sorted(leaders(two, "tools")) == [1, 1, 2, 2, 3, 3]
    assert described.count("Leader: ") == 6
    tool(TOPICS, two, "--alter", "--topic", "tools", "--partitions", "9")
    wait_until(lambda: has(three, "tools", 9))
    entity = ("--entity-type", "topics", "--entity-name", "tools")
    configs = "kafka.admin.ConfigCommand"
    tool(configs, one, "--alter", *entity, "--add-config", "retention.ms=4321000")
    wait_until(lambda: "retention.ms=4321000" in tool(configs, three, "--describe", *entity).stdout)
    quorum = "org.apache.kafka.tools.MetadataQuorumCommand"
    assert "LeaderId:               3000" in tool(quorum, two, "describe", "--status").stdout
    tool(TOPICS, three, "--delete", "--topic", "tools")
    wait_until(lambda: not any(has(node, "tools", 9) for node in three_nodes))


def test_records_go_to_the_brokers_that_lead(tool: Tool, three_nodes: list[Node]) -> None:
    make(tool, three_nodes, "spread")
    sent = {f"{index}-{number}" for index in range(6) for number in range(100)}
    for index in range(6):
        values = [f"{index}-{number}" for number in range(100)]
        assert produce(three_nodes[index % 3], "spread", index, values) == list(range(100))
    assert set(consume(three_nodes[1], "spread", 600, "readers")) == sent
    # What was committed there is known to whoever coordinates the group.
    assert consume(three_nodes[2], "spread", 0, "readers") == []


def test_a_killed_broker_is_fenced_and_comes_back(tool: Tool, three_nodes: list[Node]) -> None:
    one, two, three = three_nodes
    make(tool, three_nodes, "killed")
    lost = leaders(one, "killed").index(2)
    assert produce(one, "killed", lost, ["before"]) == [0]
    two.kill()
    began = time.monotonic()
    wait_until(lambda: alive(one) == {1, 3} == alive(three))
    assert time.monotonic() - began < 4 * SESSION_MS / 1000
    assert -1 in leaders(three, "killed")
    two.start()
    wait_until(lambda: alive(one) == {1, 2, 3} and leaders(one, "killed")[lost] == 2)
    assert produce(one, "killed", lost, ["after"]) == [1]


def test_clients_of_a_broker_that_starts_are_told_of_it_from_the_first_answer_on(
    tmp_path: Path, kafka_tools: KafkaTools
) -> None:
    """A broker served with the metadata of the moment in which its logs were loaded: it was fenced
    then, and told of no broker at all. librdkafka 2.16 forgot all brokers by that, its bootstrap
    servers as well, and never came back: a power cut of all brokers ended one client of some
    hundreds."""
    told: list[list[int]] = []
    everything = messages.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    with new_controller(kafka_tools, tmp_path / "controller") as controller:
        node = Node(1, tmp_path / "1", controller)
        is_over = threading.Event()

        def ask() -> None:
            while not is_over.is_set():
                with (
                    contextlib.suppress(OSError, AssertionError),
                    Connection(node.address) as connection,
                ):
                    while not is_over.is_set():
                        answer = connection.ask("Metadata", 12, everything)
                        told.append([each.node_id for each in answer.brokers])

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for _ in range(3):
                node.start()
                seen = len(told)
                wait_until(lambda seen=seen: len(told) > seen + 20)
                node.kill()
        finally:
            is_over.set()
            node.kill()
            asking.join()
    assert told and all(each == [1] for each in told)


def test_a_paused_broker_is_fenced_and_goes_on_in_its_epoch(
    tool: Tool, three_nodes: list[Node]
) -> None:
    one, two, _ = three_nodes
    make(tool, three_nodes, "paused")
    mine = leaders(one, "paused").index(2)
    registered = two.told().count("registered as broker 2")
    two.pause()
    try:
        wait_until(lambda: alive(one) == {1, 3})
    finally:
        two.resume()
    wait_until(lambda: alive(one) == {1, 2, 3} and leaders(one, "paused")[mine] == 2)
    assert produce(one, "paused", mine, ["after"]) == [0]
    assert two.told().count("registered as broker 2") == registered


def test_a_topic_is_made_for_who_produces_to_it(three_nodes: list[Node]) -> None:
    assert produce(three_nodes[1], "made-by-itself", 0, ["x"]) == [0]
    assert has(three_nodes[2], "made-by-itself", 1)


def test_a_clean_stop_is_a_controlled_shutdown(tool: Tool, three_nodes: list[Node]) -> None:
    one, _, three = three_nodes
    make(tool, three_nodes, "stopped")
    mine = leaders(one, "stopped").index(3)
    assert produce(one, "stopped", mine, ["before"]) == [0]
    began = time.monotonic()
    assert three.stop() == 0
    assert time.monotonic() - began < 5
    wait_until(lambda: alive(one) == {1, 2})
    assert '"brokerEpoch":' in (three.data / ".kafka_cleanshutdown").read_text()
    three.start()
    wait_until(lambda: leaders(one, "stopped")[mine] == 3)
    assert produce(one, "stopped", mine, ["after"]) == [1]


def test_a_stop_is_not_announced_where_the_properties_say_so(
    kafka_controller: KafkaBroker, three_nodes: list[Node], tmp_path: Path
) -> None:
    one = three_nodes[0]
    node = Node(4, tmp_path / "four", kafka_controller, **{"controlled.shutdown.enable": "false"})
    node.start()
    wait_until(lambda: 4 in alive(one))
    began = time.monotonic()
    assert node.stop() == 0
    wait_until(lambda: 4 not in alive(one))
    # Its session has to end first; a broker that says so is gone at once.
    assert time.monotonic() - began > SESSION_MS / 1000 - 0.6


def test_a_second_signal_stops_a_broker_whose_controllers_do_not_answer(
    kafka_controller: KafkaBroker, three_nodes: list[Node], tmp_path: Path
) -> None:
    """It was silent for 60 seconds, and signals changed nothing."""
    one = three_nodes[0]
    node = Node(5, tmp_path / "five", kafka_controller).start()
    kafka_controller.kill()
    try:
        # Both at once are one stop, as where Ctrl-C is passed on to who has got it as well.
        os.kill(node.pid, signal.SIGTERM)
        os.kill(node.pid, signal.SIGINT)
        wait_until(lambda: "waits for the controllers to have its partitions led" in node.told())
        assert "60 s at most" in node.told()
        wait_until(lambda: "still waits for the controllers, 5 s" in node.told())
        began = time.monotonic()
        os.kill(node.pid, signal.SIGINT)
        assert node.exit_code() == 0
        assert time.monotonic() - began < LEAVE_WAIT_S / 2
        assert "a second signal: stops without the controllers" in node.told()
        assert "stops all the same" not in node.told()
        # The mark is about the logs: these were closed.
        assert '"brokerEpoch":' in (node.data / ".kafka_cleanshutdown").read_text()
    finally:
        node.kill()
        kafka_controller.start()
    with node:
        wait_until(lambda: 5 in alive(one))


def test_brokers_serve_while_the_controller_is_away(
    tool: Tool, kafka_controller: KafkaBroker, three_nodes: list[Node]
) -> None:
    one, two, _ = three_nodes
    make(tool, three_nodes, "headless")
    kafka_controller.kill()
    try:
        wait_until(lambda: "no controller has answered for" in two.told())
        # Not an idempotent one, since a block of producer ids is the controller's to give.
        assert produce(two, "headless", 0, ["without"], is_idempotent=False) == [0]
    finally:
        kafka_controller.start()
    wait_until(lambda: alive(one) == {1, 2, 3})
    wait_until(lambda: "a controller answers again, after" in two.told())
    make(tool, three_nodes, "after-it")
    assert produce(two, "after-it", 0, ["with"]) == [0]


def test_the_metadata_of_a_start_comes_from_a_snapshot(
    tool: Tool, kafka_controller: KafkaBroker, three_nodes: list[Node]
) -> None:
    for number in range(4):
        make(tool, three_nodes, f"snapshot-{number}", 12)
    folder = kafka_controller.log_dirs[0] / "__cluster_metadata-0"
    wait_until(lambda: any(folder.glob("*.checkpoint")))
    assert three_nodes[0].stop() == 0
    three_nodes[0].start()
    wait_until(lambda: has(three_nodes[0], "snapshot-3", 12))
    described = tool(TOPICS, three_nodes[0], "--describe").stdout
    assert described == tool(TOPICS, three_nodes[1], "--describe").stdout


IS_HERE = re.compile(r"the metadata up to offset (\d+) is in ")


def batches_of(folder: Path) -> Iterator[_native.RecordBatch]:
    """All that segments hold, also before a snapshot, after which nothing may have come yet."""
    for segment in sorted(folder.glob("*.log")):
        yield from _native.read_batches(segment.read_bytes(), stop_at_corrupt=True)


def test_a_start_goes_on_with_the_metadata_of_its_disk(
    tool: Tool, kafka_controller: KafkaBroker, three_nodes: list[Node]
) -> None:
    one = three_nodes[0]
    folder = one.data / "__cluster_metadata-0"
    make(tool, three_nodes, "kept-on-disk", 3)
    before = reading.read_observed(one.data).end_offset
    one.kill()
    one.start()
    assert int(IS_HERE.findall(one.told())[-1]) >= before
    assert "is dropped" not in one.told()
    wait_until(lambda: sorted(leaders(one, "kept-on-disk")) == [1, 2, 3])
    assert one.stop() == 0
    # What the controller has is what is here, byte for byte, as far as both have it.
    ours, theirs = (
        {each.base_offset: each for each in batches_of(path / folder.name)}
        for path in (one.data, kafka_controller.log_dirs[0])
    )
    both = sorted(ours.keys() & theirs.keys())
    assert both
    assert all(ours[each].records == theirs[each].records for each in both)
    (folder / "quorum-state").write_text("{}")
    one.start()
    assert f"{folder} cannot be used and is dropped" in one.told()
    wait_until(lambda: has(one, "kept-on-disk", 3))
    wait_until(lambda: sorted(leaders(one, "kept-on-disk")) == [1, 2, 3])


def partition_of(controller: KafkaBroker, topic: str, index: int) -> PartitionImage:
    """A partition as the controller has it on its disk."""
    return reading.read(controller.log_dirs[0]).image.topics[topic].partitions[index]


def test_a_kill_takes_nothing_and_needs_no_unclean_election(
    tool: Tool, kafka_controller: KafkaBroker, three_nodes: list[Node]
) -> None:
    one, two, _ = three_nodes
    make(tool, three_nodes, "durable")
    mine = leaders(one, "durable").index(2)
    assert produce(one, "durable", mine, ["before"]) == [0]
    two.kill()
    assert (two.data / "kafkalite-broker-epoch").exists()
    two.start()
    wait_until(lambda: leaders(one, "durable")[mine] == 2)
    known = partition_of(kafka_controller, "durable", mine)
    assert (known.leader, known.isr, known.recovery_state) == (2, (2,), 0)
    assert produce(one, "durable", mine, ["after"]) == [1]


def test_a_log_that_lacks_records_is_not_vouched_for(
    tool: Tool, kafka_controller: KafkaBroker, three_nodes: list[Node]
) -> None:
    one, two, _ = three_nodes
    make(tool, three_nodes, "cut")
    mine = leaders(one, "cut").index(2)
    assert produce(one, "cut", mine, [str(number) for number in range(9)]) == [*range(9)]
    checkpoint = two.data / "replication-offset-checkpoint"
    wait_until(lambda: checkpoint.exists() and f"cut {mine} " in checkpoint.read_text())
    two.kill()
    log = two.data / f"cut-{mine}"
    shutil.rmtree(log)
    assert two.launch().exit_code() == 1
    assert f"cut-{mine} lack records that were on disk before: the broker stops" in two.told()
    assert not (two.data / "kafkalite-broker-epoch").exists()
    two.start()
    wait_until(lambda: leaders(one, "cut")[mine] == 2)
    # The controller has elected the last leader, and knows that it may lack records.
    assert partition_of(kafka_controller, "cut", mine).recovery_state == 1
    tool(TOPICS, one, "--delete", "--topic", "cut")
    wait_until(lambda: not any(has(node, "cut", 6) for node in three_nodes))


def test_a_log_that_was_not_made_before_a_kill_is_made_after_it(
    tool: Tool, three_nodes: list[Node]
) -> None:
    """A broker that was killed in the moment in which a topic came had a log for none of its
    partitions, and refused to start: it took them for lost."""
    one, two, _ = three_nodes
    two.pause()
    try:
        assignment = ("--replica-assignment", "2")
        tool(TOPICS, one, "--create", "--topic", "unheard", *assignment)
    finally:
        two.kill()
    assert not (two.data / "unheard-0").exists()
    two.start()
    wait_until(lambda: (two.data / "unheard-0").exists())
    assert produce(two, "unheard", 0, ["heard"]) == [0]


def test_a_directory_without_a_cluster_is_refused(
    kafka_controller: KafkaBroker, tmp_path: Path
) -> None:
    node = Node(9, tmp_path / "node", kafka_controller)
    (node.data / "meta.properties").unlink()
    assert node.launch().exit_code() == 1
    assert "is not formatted: run kafkalite format" in node.told()


def test_a_broker_of_another_cluster_is_refused(
    kafka_controller: KafkaBroker, tmp_path: Path
) -> None:
    node = Node(9, tmp_path / "node", kafka_controller)
    meta = node.data / "meta.properties"
    lines = [line for line in meta.read_text().splitlines() if "cluster.id" not in line]
    meta.write_text("\n".join([*lines, "cluster.id=AAAAAAAAAAAAAAAAAAAAAQ", ""]))
    assert node.launch().exit_code() == 1
    assert "are of another cluster: cluster.id in this broker" in node.told()


def test_replicas_go_to_one_of_several_directories(
    tool: Tool,
    kafka_tools: KafkaTools,
    kafka_controller: KafkaBroker,
    three_nodes: list[Node],
    tmp_path: Path,
) -> None:
    two_dirs = f"{tmp_path}/a,{tmp_path}/b"
    with Node(4, tmp_path / "node", kafka_controller, **{"log.dirs": two_dirs}) as four:
        wait_until(lambda: alive(three_nodes[0]) == {1, 2, 3, 4})
        words = ("--create", "--topic", "placed", "--replica-assignment", "4,4,4,4")
        tool(TOPICS, three_nodes[0], *words)
        wait_until(lambda: has(four, "placed", 4))
        for index in range(4):
            assert produce(four, "placed", index, ["one"]) == [0]
        assert [len([*(tmp_path / each).glob("placed-*")]) for each in "ab"] == [2, 2]
        own = {directory_id(tmp_path / each) for each in "ab"}
        log_dir = kafka_controller.log_dirs[0]

        def told() -> set[bytes]:
            topic = reading.read(log_dir).image.topics["placed"]
            return {each.directories[0] for each in topic.partitions}

        wait_until(lambda: told() == own)
        assert four.stop() == 0
        four.start()
        wait_until(lambda: leaders(three_nodes[0], "placed") == [4, 4, 4, 4])
        assert produce(four, "placed", 3, ["two"]) == [1]
        tool(TOPICS, three_nodes[0], "--delete", "--topic", "placed")
        assert four.stop() == 0
    wait_until(lambda: alive(three_nodes[0]) == {1, 2, 3})
    at = ["--bootstrap-server", three_nodes[0].address]
    gone = kafka_tools.run_tool(
        "org.apache.kafka.tools.ClusterTool", ["unregister", *at, "--id", "4"]
    )
    assert gone.stdout.strip() == "Broker 4 is no longer registered."
    wait_until(lambda: 4 not in reading.read(log_dir).image.brokers)


def directory_id(path: Path) -> bytes:
    lines = (path / "meta.properties").read_text().splitlines()
    text = dict(line.split("=", 1) for line in lines if "=" in line)["directory.id"]
    return base64.urlsafe_b64decode(text + "==")


def test_groups_are_coordinated_by_whoever_leads_their_partition(
    tool: Tool, three_nodes: list[Node]
) -> None:
    make(tool, three_nodes, "read", 1)
    assert produce(three_nodes[0], "read", 0, ["a", "b"]) == [0, 1]
    groups = [f"group-{number}" for number in range(5)]
    for group in groups:
        assert consume(three_nodes[1], "read", 2, group) == ["a", "b"]
    tools = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    listed = tool(tools, three_nodes[2], "--list").stdout.split()
    assert set(groups) <= set(listed)
    for node in three_nodes:
        assert node.stop() == 0
        node.start()
    wait_until(lambda: alive(three_nodes[0]) == {1, 2, 3})
    wait_until(lambda: leaders(three_nodes[0], "read")[0] > 0)
    assert produce(three_nodes[0], "read", 0, ["c"]) == [2]
    for group in groups:
        assert consume(three_nodes[1], "read", 1, group) == ["c"]


def test_what_a_broker_does_not_lead_it_refuses(tool: Tool, three_nodes: list[Node]) -> None:
    make(tool, three_nodes, "elsewhere", 3)
    assert produce(three_nodes[0], "elsewhere", 0, ["x"]) == [0]
    tools = "org.apache.kafka.tools.DeleteRecordsCommand"
    wanted = {"topic": "elsewhere", "partition": 0, "offset": 1}
    file = three_nodes[0].data.parent / "delete.json"
    file.write_text(json.dumps({"partitions": [wanted], "version": 1}))
    told = tool(tools, three_nodes[1], "--offset-json-file", str(file)).stdout
    assert "low_watermark: 1" in told


def test_a_cluster_of_features_that_are_not_served_is_refused(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    with new_controller(kafka_tools, tmp_path / "default", features={}) as controller:
        node = Node(9, tmp_path / "node", controller)
        assert node.launch().exit_code() == 1
    assert "the cluster has group.version at level 1 (served are 0 to 0), share" in node.told()
    of_all = (f"--feature {name}.version=0" for name in ("group", "share", "streams"))
    assert f"HOST:PORT downgrade {' '.join(of_all)}" in node.told()


def test_a_broker_of_kafkas_changes_hands_in_place_and_back(
    tool: Tool,
    kafka_tools: KafkaTools,
    kafka_controller: KafkaBroker,
    three_nodes: list[Node],
    tmp_path: Path,
) -> None:
    one = three_nodes[0]
    with new_kafka(kafka_tools, tmp_path / "kafka", kafka_controller, 5) as kafka:
        wait_until(lambda: alive(one) == {1, 2, 3, 5})
        tool(TOPICS, one, "--create", "--topic", "handed", "--replica-assignment", "5,1")
        wait_until(lambda: has(one, "handed", 2) and leaders(one, "handed") == [5, 1])
        assert produce(one, "handed", 0, ["kafka", "wrote"]) == [0, 1]
        kafka.stop()
        kept = reading.read_observed(kafka.log_dirs[0]).end_offset
        with Node.over(kafka, 5) as ours:
            assert f"the metadata up to offset {kept} is in " in ours.told()
            wait_until(lambda: leaders(one, "handed") == [5, 1])
            assert "stray" not in ours.told()
            assert produce(one, "handed", 0, ["kafkalite", "wrote"]) == [2, 3]
            assert ours.stop() == 0
        before = metadata_files(kafka)
        kafka.start()
        wait_until(lambda: leaders(one, "handed") == [5, 1])
        # Kafka goes on with the log of the metadata, too.
        assert before.items() <= metadata_files(kafka).items()
        assert produce(one, "handed", 0, ["kafka"]) == [4]
        words = ["kafka", "wrote", "kafkalite", "wrote", "kafka"]
        assert consume(one, "handed", 5, "handed") == words
        tool(TOPICS, one, "--delete", "--topic", "handed")
        kafka.stop()
    wait_until(lambda: alive(one) == {1, 2, 3})


def metadata_files(kafka: KafkaBroker) -> dict[str, int]:
    """Logs and snapshots of the metadata, with the number of the file: the same one has it."""
    folder = kafka.log_dirs[0] / "__cluster_metadata-0"
    found = (*folder.glob("*.log"), *folder.glob("*.checkpoint"))
    return {each.name: each.stat().st_ino for each in found}
