"""Replicas move between the log directories of a broker of a cluster, in whatever role, by Kafka's
own tools, and from a broker of the one kind to one of the other in the middle of a move."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from api.log_dirs import RATE, alter, has_moved, home_of, other_than, places, set_rate
from api.raw import Connection
from cluster.replicas import difference
from kafkalite.client import BROKER
from kafkalite.client.cluster_admin import ClusterAdmin
from kafkalite.metadata import reading
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import Node, new_kafka, wait_until
from replication.records import produce
from replication.test_join import directory_id

ISR_S = 120
KAFKA, OWN = 11, 13


class Pair:
    """Broker 11 of Kafka's, and broker 13 with two log directories, which is of the one kind or the
    other."""

    def __init__(self, kafka: KafkaBroker, other: KafkaBroker) -> None:
        self.kafka, self.other = kafka, other
        other.prepare()
        self.node = Node.over(other, OWN)
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    @property
    def paths(self) -> list[Path]:
        return self.other.log_dirs

    def make(self, topic: str, *replicas: int) -> Path:
        """Makes a topic of one partition; the directory of its replica on broker 13."""
        made = NewTopic(topic, num_partitions=1, replica_assignment=[list(replicas)])
        for future in self.admin.create_topics([made]).values():
            future.result(60)
        wait_until(lambda: self.in_sync(topic) == set(replicas), ISR_S)
        with Connection(self.node.address) as connection:
            wait_until(lambda: bool(places(connection, topic)))
            return home_of(connection, topic)

    def in_sync(self, topic: str) -> set[int]:
        found = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        return set(found[0].isrs) if found else set()

    def produce(self, topic: str, count: int) -> None:
        """With acks=all."""
        produce(self.kafka.bootstrap_servers, topic, (b"%d" % each * 100 for each in range(count)))

    def other_than(self, home: Path) -> Path:
        return other_than(self.paths, home)

    def wait_for_move(self, topic: str, to: Path) -> None:
        def is_there() -> bool:
            with Connection(self.node.address) as connection:
                return has_moved(connection, topic, to)()

        wait_until(is_there, ISR_S)


@pytest.fixture(scope="module")
def pair(
    kafka_controller: KafkaBroker,
    kafka_tools: KafkaTools,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    kafka = new_kafka(kafka_tools, folder / str(KAFKA), kafka_controller, KAFKA)
    quick = {"log.segment.delete.delay.ms": "1000", "log.segment.bytes": "1048576"}
    other = new_kafka(kafka_tools, folder / str(OWN), kafka_controller, OWN, **quick)
    other.log_dirs = [folder / "one", folder / "two"]
    with ExitStack() as stack:
        stack.enter_context(kafka)
        pair = Pair(kafka, other)
        stack.enter_context(pair.node)
        stack.callback(other.kill)
        yield pair


def told_directory(controller: KafkaBroker, topic: str) -> bytes:
    """The directory of broker 13's replica by the metadata."""
    (partition,) = reading.read(controller.log_dirs[0]).image.topics[topic].partitions
    return partition.directory_of(OWN)


@pytest.mark.parametrize("replicas", [(OWN,), (OWN, KAFKA), (KAFKA, OWN)])
def test_a_replica_moves_under_load_and_the_metadata_knows(
    pair: Pair, kafka_controller: KafkaBroker, replicas: tuple[int, ...]
) -> None:
    topic = "loaded-" + "-".join(map(str, replicas))
    home = pair.make(topic, *replicas)
    there = pair.other_than(home)
    pair.produce(topic, 5_000)
    with Connection(pair.node.address) as connection:
        assert alter(connection, there, (topic, 0)) == [0]
    pair.produce(topic, 5_000)
    pair.wait_for_move(topic, there)
    pair.produce(topic, 1_000)
    assert told_directory(kafka_controller, topic) == directory_id(there)
    assert not (home / f"{topic}-0").exists()
    assert pair.in_sync(topic) == set(replicas)
    if len(replicas) > 1:
        both = {OWN: there / f"{topic}-0", KAFKA: pair.kafka.log_dirs[0] / f"{topic}-0"}
        wait_until(lambda: difference(both, 11_000) is None, 60)


def test_kafkas_tools_move_a_replica_and_see_it_through(
    pair: Pair, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    home = pair.make("by-tool", OWN)
    there = pair.other_than(home)
    pair.produce("by-tool", 1_000)
    plan = tmp_path / "plan.json"
    part = {"topic": "by-tool", "partition": 0, "replicas": [OWN], "log_dirs": [str(there)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [part]}))
    at = ["--bootstrap-server", pair.node.address]
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    words = [*at, "--reassignment-json-file", str(plan)]
    begun = kafka_tools.run_tool(tool, [*words, "--execute"])
    assert f"Successfully started moving log directory to {there}" in begun.stdout, begun
    pair.wait_for_move("by-tool", there)
    seen = kafka_tools.run_tool(tool, [*words, "--verify"])
    assert "replica by-tool-0-13 completed successfully" in seen.stdout, seen
    asked = [*at, "--describe", "--broker-list", str(OWN), "--topic-list", "by-tool"]
    shown = kafka_tools.run_tool("org.apache.kafka.tools.LogDirsCommand", asked).stdout
    described = json.loads(shown.splitlines()[-1])["brokers"][0]["logDirs"]
    assert {each["logDir"] for each in described if each["partitions"]} == {str(there)}


def test_kafkalites_tool_says_of_moves_what_kafkas_does(
    pair: Pair, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """Both begin a move, slow it down, say how far it is, give it up and end its throttle."""
    home = pair.make("by-tools", OWN, KAFKA)
    there = pair.other_than(home)
    pair.produce("by-tools", 2_000)
    plan = tmp_path / "plan.json"
    part = {"topic": "by-tools", "partition": 0, "replicas": [OWN, KAFKA]}
    part["log_dirs"] = [str(there), "any"]
    plan.write_text(json.dumps({"version": 1, "partitions": [part]}))
    at = ("--bootstrap-server", pair.node.address)
    file = ("--reassignment-json-file", str(plan))
    rate = "--replica-alter-log-dirs-throttle"

    def ours(*words: str) -> str:
        command = [sys.executable, "-m", "kafkalite", "reassign", *words, *file, *at]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
        return done.stdout

    def theirs(action: str, *words: str) -> str:
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        done = kafka_tools.run_tool(tool, [*at, *file, f"--{action}", *words])
        assert done.exit == 0, done
        return done.stdout

    def throttles() -> list[str]:
        with ClusterAdmin(pair.node.address) as admin:
            configs = admin.describe_configs(BROKER, str(OWN))
        return [e.value for e in configs if e.name == RATE and e.source == "DYNAMIC_BROKER_CONFIG"]

    def same(action: str) -> str:
        told = theirs(action, "--preserve-throttles").split()
        assert ours(action, "--preserve-throttles").split() == told
        return " ".join(told)

    for begin, end in ((ours, theirs), (theirs, ours)):
        begun = begin("execute", rate, "1000")
        assert "The replica-alter-dir throttle limit was set to 1000 B/s" in begun
        assert f"started moving log directory to {there} for replica by-tools-0" in begun
        assert throttles() == ["1000"]
        assert "Reassignment of replica by-tools-0-13 is still in progress." in same("verify")
        given_up = end("cancel")
        assert f"started moving log directory to {home} for replica by-tools-0" in given_up
        assert "None of the specified partition moves are active." in same("cancel")
        assert "is not being moved from log dir" in same("verify")
        assert throttles() == []
    for begin, end, to in ((ours, theirs, there), (theirs, ours, home)):
        part["log_dirs"] = [str(to), "any"]
        plan.write_text(json.dumps({"version": 1, "partitions": [part]}))
        begin("execute", rate, "50000000")
        pair.wait_for_move("by-tools", to)
        assert "replica by-tools-0-13 completed successfully" in same("verify")
        assert throttles() == ["50000000"]
        assert "completed successfully" in end("verify")
        assert throttles() == []


def test_a_move_that_was_given_up_has_the_metadata_say_so(
    pair: Pair, kafka_controller: KafkaBroker
) -> None:
    home = pair.make("given-up", OWN)
    pair.produce("given-up", 2_000)
    with Connection(pair.node.address) as connection:
        set_rate(connection, "1000", OWN)
        try:
            assert alter(connection, pair.other_than(home), ("given-up", 0)) == [0]
            assert alter(connection, home, ("given-up", 0)) == [0]
            assert home_of(connection, "given-up") == home
        finally:
            set_rate(connection, None, OWN)
    pair.produce("given-up", 100)
    at_home = directory_id(home)
    wait_until(lambda: told_directory(kafka_controller, "given-up") == at_home, ISR_S)


def test_a_kill_in_the_middle_of_a_move_loses_nothing(pair: Pair) -> None:
    home = pair.make("killed", OWN)
    there = pair.other_than(home)
    pair.produce("killed", 5_000)
    with Connection(pair.node.address) as connection:
        set_rate(connection, "200000", OWN)
        assert alter(connection, there, ("killed", 0)) == [0]
    pair.node.kill()
    assert list(there.glob("killed-0.*-future"))
    pair.node.start()
    with Connection(pair.node.address) as connection:
        set_rate(connection, None, OWN)
        pair.wait_for_move("killed", there)
        assert connection.list_offsets("killed", -1).offset == 5_000
    pair.produce("killed", 10)


def test_each_kind_of_broker_goes_on_with_a_move_of_the_other(pair: Pair) -> None:
    home = pair.make("handed", OWN)
    there = pair.other_than(home)
    pair.produce("handed", 5_000)
    with Connection(pair.node.address) as connection:
        set_rate(connection, "1000", OWN)
        assert alter(connection, there, ("handed", 0)) == [0]
    assert pair.node.stop() == 0
    assert list(there.glob("handed-0.*-future"))
    with pair.other:
        pair.produce("handed", 10)
        with Connection(pair.other.bootstrap_servers) as connection:
            set_rate(connection, None, OWN)
        pair.wait_for_move("handed", there)
        # And back: Kafka begins, kafkalite ends.
        with Connection(pair.other.bootstrap_servers) as connection:
            set_rate(connection, "1000", OWN)
            assert alter(connection, home, ("handed", 0)) == [0]
            wait_until(lambda: bool(list(home.glob("handed-0.*-future"))))
        pair.other.stop()
    pair.node.start()
    with Connection(pair.node.address) as connection:
        set_rate(connection, None, OWN)
        pair.wait_for_move("handed", home)
        assert connection.list_offsets("handed", -1).offset == 5_010
    pair.produce("handed", 10)
