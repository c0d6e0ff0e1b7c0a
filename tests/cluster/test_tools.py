"""The commands beside Kafka's own tools, at a cluster of three brokers of Kafka's."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.brokers import Cluster, Kind
from oracle.tools import KafkaTools, ToolResult
from replication.nodes import wait_until

pytestmark = pytest.mark.oracle

TOPICS = "org.apache.kafka.tools.TopicCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
CONFIGS = "kafka.admin.ConfigCommand"

Ours = Callable[..., subprocess.CompletedProcess[str]]
Theirs = Callable[..., ToolResult]


@pytest.fixture(scope="module")
def of_kafka(cluster: Cluster) -> Cluster:
    """The cluster, with brokers of Kafka's alone."""
    cluster.become(*[Kind.KAFKA] * 3)
    return cluster


@pytest.fixture(scope="module")
def ours(of_kafka: Cluster) -> Ours:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kafkalite", *words]
        command += ["--bootstrap-server", of_kafka.servers]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def theirs(kafka_tools: KafkaTools, of_kafka: Cluster) -> Theirs:
    def run(tool: str, *words: str) -> ToolResult:
        # Behind the action, where its parser wants it.
        at = 1 if tool in (QUORUM, CLUSTER) and not words[0].startswith("-") else 0
        server = ["--bootstrap-server", of_kafka.servers]
        if tool == QUORUM:
            return kafka_tools.run_tool(tool, [*server, *words])
        return kafka_tools.run_tool(tool, [*words[:at], *server, *words[at:]])

    return run


def test_partitions_are_described_as_kafka_describes_them_while_a_broker_is_away(
    of_kafka: Cluster, ours: Ours, theirs: Theirs
) -> None:
    made = ("--partitions", "3", "--replication-factor", "3", "--config", "min.insync.replicas=2")
    assert ours("topics", "create", "described", *made).returncode == 0
    assigned = ours("topics", "create", "assigned", "--replica-assignment", "1:2,2:3,3")
    assert "another number of replicas" in assigned.stderr
    assert ours("topics", "create", "assigned", "--replica-assignment", "1:2,2:3").returncode == 0
    assert ours("topics", "create", "single", "--replica-assignment", "3").returncode == 0
    names = ("described", "assigned", "single")
    for name in names:
        of_kafka.wait_for_isr(name)

    def same(*words: str) -> str:
        told = theirs(TOPICS, "--describe", *words).stdout
        assert ours("topics", "describe", *words).stdout == told
        return told

    filters = [f"--{each}-partitions" for each in ("under-replicated", "unavailable")]
    filters += [f"--{each}-isr-partitions" for each in ("under-min", "at-min")]
    lost = of_kafka.members[3]
    lost.kill()
    try:
        of_kafka.wait_until_unfenced()
        # Who is told of the change and who is asked are not the same brokers.
        wait_until(lambda: "Isr: 1,2\tElr: \t" in same("--topic", "described"))
        wait_until(lambda: same("--topic", "single", "--unavailable-partitions") != "")
        told = [same("--topic", name, each) for name in names for each in ((), *filters) if each]
        assert sum(text != "" for text in told) >= 4
    finally:
        lost.start()
    of_kafka.wait_until_unfenced()
    for name in names:
        of_kafka.wait_for_isr(name)
        assert same("--topic", name, "--under-replicated-partitions") == ""


def test_replicas_are_moved_throttled_and_verified_as_kafkas_tool_does(
    of_kafka: Cluster, ours: Ours, theirs: Theirs, tmp_path: Path
) -> None:
    assert ours("topics", "create", "moved", "--replica-assignment", "1,1").returncode == 0
    load = ("--topic", "moved", "--num-records", "3000", "--record-size", "1000")
    assert ours("perf", "produce", *load, "--throughput", "-1").returncode == 0
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "moved"}]}')
    words = ("--topics-to-move-json-file", str(topics), "--broker-list", "2,3")
    mine, told = ours("reassign", "--generate", *words), theirs(REASSIGN, "--generate", *words)
    assert mine.stdout.splitlines()[:4] == told.stdout.splitlines()[:4]
    (_, proposed), (_, other) = (
        [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        for text in (mine.stdout, told.stdout)
    )
    assert proposed.keys() == other.keys()
    assert sorted(row["replicas"] for row in proposed["partitions"]) == [[2], [3]]
    assert sorted(row["replicas"] for row in other["partitions"]) == [[2], [3]]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(proposed))
    plan = ("--reassignment-json-file", str(file))
    begun = ours("reassign", "execute", str(file), "--throttle", "1000")
    assert begun.returncode == 0, begun
    now = begun.stdout
    listed = theirs(REASSIGN, "--list").stdout
    assert "moved-0: replicas: " in listed and ours("reassign", "list").stdout == listed
    for each in ((), ("--under-replicated-partitions",)):
        described = theirs(TOPICS, "--describe", "--topic", "moved", *each).stdout
        assert ours("topics", "describe", "moved", *each).stdout == described
        assert ("\tAdding Replicas: 2\tRemoving Replicas: 1\t" in described) == (each == ())
    again = ours("reassign", "execute", *plan)
    assert again.returncode == 1 == theirs(REASSIGN, "--execute", *plan).exit
    assert "--additional" in again.stderr
    verified = theirs(REASSIGN, "--verify", *plan).stdout
    assert "partition moved-0 is still in progress." in verified
    assert ours("reassign", "verify", *plan).stdout.strip() == verified.strip()
    # The throttles are those that Kafka's tool sets for the same.
    keys = ("--describe", "--topic", "moved")
    throttled = ours("configs", *keys).stdout
    faster = theirs(REASSIGN, "--execute", "--additional", *plan, "--throttle", "2000")
    assert faster.exit == 0, faster
    # Meanwhile a replica more is there.
    assert [
        line.replace("1000 B/s", "2000 B/s") for line in now.splitlines() if line[:1] != "{"
    ] == [line for line in faster.stdout.splitlines() if line[:1] != "{"]
    plans = [json.loads(line) for line in (now + faster.stdout).splitlines() if line[:1] == "{"]
    at_first, later = (plan["partitions"][0] for plan in plans)
    assert at_first["replicas"] == [1] and at_first["log_dirs"][0] in later["log_dirs"]
    assert ours("configs", *keys).stdout == throttled
    assert "follower.replication.throttled.replicas=" in throttled
    cancelled = ours("reassign", "cancel", *plan)
    assert cancelled.stdout.startswith(
        "Successfully cancelled partition reassignments for: moved-0,moved-1\n"
    )
    assert ours("configs", *keys).stdout == theirs(CONFIGS, *keys).stdout != throttled
    nothing = theirs(REASSIGN, "--cancel", *plan).stdout
    assert nothing.startswith("None of the specified partition reassignments are active.\n")
    assert (
        ours("reassign", "cancel", *plan).stdout.split()
        == nothing.replace("active.Clearing", "active.\nClearing").split()
    )
    assert ours("reassign", "execute", *plan).returncode == 0
    assert ours("reassign", "verify", *plan, "--wait", "--preserve-throttles").returncode == 0
    wait_until(lambda: theirs(REASSIGN, "--list").stdout == ours("reassign", "list").stdout)
    verified = theirs(REASSIGN, "--verify", *plan).stdout
    assert ours("reassign", "verify", *plan).stdout.split() == verified.split()
    of_kafka.wait_for_isr("moved")
    assert sorted(row.leader for row in of_kafka.partitions("moved")) == [2, 3]


def test_a_replication_factor_is_changed_unless_that_is_disallowed(
    of_kafka: Cluster, ours: Ours, tmp_path: Path
) -> None:
    assert ours("topics", "create", "grown", "--replica-assignment", "1").returncode == 0
    file = tmp_path / "plan.json"
    row = {"topic": "grown", "partition": 0, "replicas": [2, 1, 3]}
    file.write_text(json.dumps({"version": 1, "partitions": [row]}))
    refused = ours("reassign", "execute", str(file), "--disallow-replication-factor-change")
    assert refused.returncode == 1 and "grown-0" in refused.stderr, refused
    assert ours("reassign", "execute", str(file)).returncode == 0
    wait_until(lambda: of_kafka.partitions("grown")[0].isr.__len__() == 3)


def test_leaders_are_elected_as_kafkas_tool_does(
    of_kafka: Cluster, ours: Ours, theirs: Theirs, tmp_path: Path
) -> None:
    assert ours("topics", "create", "elected", "--replica-assignment", "2:3,3:2").returncode == 0
    of_kafka.wait_for_isr("elected")
    two = of_kafka.members[2]
    two.stop()
    wait_until(lambda: of_kafka.partitions("elected")[0].leader == 3)
    two.start()
    of_kafka.wait_until_unfenced()
    of_kafka.wait_for_isr("elected")
    file = tmp_path / "partitions.json"
    rows = [{"topic": "elected", "partition": 0}, {"topic": "elected", "partition": 7}]
    file.write_text(json.dumps({"partitions": rows}))
    elected = ours("elect", "--election-type", "preferred", "--path-to-json-file", str(file))
    assert elected.returncode == 1
    done = "Successfully completed leader election (PREFERRED) for partitions elected-0"
    lines = elected.stdout.splitlines()
    assert lines[0] == done
    assert lines[1].startswith(
        "Error completing leader election (PREFERRED) for partition: elected-7: "
    )
    wait_until(lambda: of_kafka.partitions("elected")[0].leader == 2)
    words = ("--election-type", "PREFERRED", "--topic", "elected", "--partition", "0")
    wait_until(lambda: ours("elect", *words).stdout == theirs(ELECT, *words).stdout)
    assert (
        ours("elect", *words).stdout == "Valid replica already elected for partitions elected-0\n"
    )
    everywhere = ("--election-type", "unclean", "--all-topic-partitions")
    assert ours("elect", *everywhere).stdout == theirs(ELECT, *everywhere).stdout == ""


def test_the_cluster_shows_fenced_brokers_and_the_quorum_as_kafkas_tools_do(
    of_kafka: Cluster, ours: Ours, theirs: Theirs
) -> None:
    told = theirs(QUORUM, "describe", "--status").stdout
    status = {key: text.strip() for key, _, text in (x.partition(":") for x in told.splitlines())}
    quorum = json.loads(ours("cluster", "--json").stdout)["quorum"]
    assert str(quorum["leaderId"]) == status["LeaderId"]
    assert str(quorum["leaderEpoch"]) == status["LeaderEpoch"]
    assert quorum["highWatermark"] >= int(status["HighWatermark"])
    (voter,) = json.loads(status["CurrentVoters"])
    (shown,) = quorum["voters"]
    # A static voter has no directory id.
    assert (shown["id"], shown["directoryId"]) == (voter["id"], voter.get("directoryId"))
    endpoints = [f"{e['name']}://{e['host']}:{e['port']}" for e in shown["endpoints"]]
    assert endpoints == voter.get("endpoints", [])
    assert {each["id"] for each in quorum["observers"]} == {1, 2, 3}
    identified = theirs(CLUSTER, "cluster-id").stdout
    assert ours("cluster", "cluster-id").stdout == identified
    three = of_kafka.members[3]
    three.kill()
    try:
        wait_until(lambda: "Broker: 3" in _fenced(ours))
        assert ours("cluster").stdout.startswith(identified)
        refused = ours("cluster", "unregister", "--id", "77")
        assert refused.returncode == 1
    finally:
        three.start()
    of_kafka.wait_until_unfenced()
    wait_until(lambda: _fenced(ours) == "")


def _fenced(ours: Ours) -> str:
    return "".join(x for x in ours("cluster").stdout.splitlines() if "State: fenced" in x)
