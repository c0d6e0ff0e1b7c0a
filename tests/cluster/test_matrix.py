"""What is promised is kept through kafkatest's matrix and what stands beside it there: clean and
hard stops of leaders and controllers, for a moment or until others have taken over; log directories
that fail; logs that are cut after a change of leaders. Leaders of both kinds are met, followers of
the other one are in sync; brokers that are all Apache Kafka's are the control.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import nemesis
from cluster.brokers import BACK_S, Cluster, Kind, Member, new_cluster
from cluster.play import keep_promises
from cluster.replicas import batches, check_replicas
from faults.mount import Mount
from faults.proxy import Mode
from faults.verify import Outcome
from faults.workload import PARTITIONS, Recorder
from oracle.tools import KafkaTools
from replication.nodes import wait_until
from replication.records import produce
from replication.test_transactions import committed_values

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(1800)]

KAFKA, OURS = Kind.KAFKA, Kind.KAFKALITE
Kinds = Sequence[Kind]
LED_BY = [
    pytest.param((OURS,) * 3, OURS, id="kafkalite"),
    pytest.param((OURS, KAFKA, KAFKA), OURS, id="kafkalite-leads-kafka"),
    pytest.param((KAFKA, OURS, OURS), KAFKA, id="kafka-leads-kafkalite"),
    pytest.param((KAFKA,) * 3, KAFKA, id="kafka"),
]
"""The kinds of the brokers, and of the leaders that faults meet."""
SHORT = [LED_BY[0], *(pytest.param(*e.values, id=e.id, marks=pytest.mark.long) for e in LED_BY[1:])]
BROKERS = (1, 2, 3)


def name_of(test: str, kinds: Kinds, leader_kind: Kind) -> str:
    """No two tests of one cluster have a topic in common."""
    return f"{test}-{leader_kind}-of-{'-'.join(kinds)}"


@pytest.mark.long
@pytest.mark.parametrize(("kinds", "leader_kind"), LED_BY)
def test_promises_are_kept_through_stops_and_bounces(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path, kinds: Kinds, leader_kind: Kind
) -> None:
    cluster.become(*kinds)
    faults = nemesis.MATRIX + nemesis.OF_FOLLOWERS
    topic = name_of("matrix", kinds, leader_kind)
    keep_promises(cluster, topic, faults, 0, tmp_path, kafka_tools, leader_kind)


@pytest.mark.parametrize(("kinds", "leader_kind"), SHORT)
def test_brokers_serve_on_while_all_controllers_are_away(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path, kinds: Kinds, leader_kind: Kind
) -> None:
    """For longer than the sessions of all; then one of them loads its metadata from a snapshot."""
    cluster.become(*kinds)
    faults = [nemesis.lose_controller, nemesis.lose_metadata]
    topic = name_of("alone", kinds, leader_kind)
    recorder = keep_promises(cluster, topic, faults, 0, tmp_path, kafka_tools, leader_kind)
    for partition in range(PARTITIONS):
        assert answered_during(recorder, "lose_controller", f"{topic}-{partition}") > 0


def answered_during(recorder: Recorder, fault: str, partition: str) -> int:
    """How many records were sent and acknowledged in the last half of a fault."""
    (met,) = (e for e in recorder.operations if e.name == "fault" and e.value == fault)
    since = (met.began + met.ended) / 2
    return sum(
        each.name == "produce"
        and each.outcome is Outcome.OK
        and each.partition == partition
        and since < each.began
        and each.ended < met.ended
        for each in recorder.operations
    )


@pytest.mark.parametrize(("kinds", "leader_kind"), SHORT)
def test_what_only_an_old_leader_had_is_cut_off_when_it_follows(
    cluster: Cluster, kinds: Kinds, leader_kind: Kind
) -> None:
    """What a leader answered before its followers had it (acks=1), and then it was gone."""
    cluster.become(*kinds)
    topic = name_of("cut-off", kinds, leader_kind)
    old = next(each for each in cluster.members.values() if each.kind is leader_kind)
    others = [each for each in cluster.members if each != old.id]
    with cluster.admin() as admin:
        admin.create_topic(topic, assignments=[[old.id, *others]])
    cluster.wait_for_isr(topic)
    assert cluster.leader(topic) is old
    produce(cluster.servers, topic, records("kept"))
    with old.link(Mode.RESET, cluster.members.values()):
        produce(cluster.servers, topic, records("lost"), acks="1")
        old.kill()
    assert b"lost-0" in contents(old, topic)
    wait_until(lambda: cluster.leader(topic) is not old, BACK_S)
    produce(cluster.servers, topic, records("later"))
    old.start()
    cluster.wait_until_unfenced()
    assert check_replicas(cluster, topic) == 2 * COUNT
    assert b"lost-0" not in contents(old, topic)
    found = committed_values(cluster.servers, topic, 2 * COUNT)
    assert found == [*records("kept"), *records("later")]
    with cluster.admin() as admin:
        admin.delete_topics(topic)


COUNT = 100


def records(word: str) -> list[str]:
    return [f"{word}-{each}" for each in range(COUNT)]


def contents(member: Member, topic: str) -> bytes:
    """All bytes of its replica."""
    return b"".join(each.content for each in batches(member.replica(f"{topic}-0")))


@contextmanager
def with_two_directories(
    tools: KafkaTools, folder: Path, kinds: Kinds
) -> Iterator[tuple[Cluster, Mapping[int, Mount]]]:
    """A cluster that runs, whose brokers have a second log directory that can fail."""
    mounts: dict[int, Mount] = {}
    try:
        for each in BROKERS:
            (folder / str(each)).mkdir()
            mounts[each] = Mount(folder / str(each), "second")
            (mounts[each].path / "lost+found").rmdir()
        with new_cluster(
            tools,
            folder,
            log_dirs=lambda each: [folder / str(each) / "first", mounts[each].path],
        ) as cluster:
            cluster.start(*kinds)
            yield cluster, mounts
    finally:
        for mount in mounts.values():
            mount.unmount()


@pytest.mark.long
@pytest.mark.parametrize(("kinds", "leader_kind"), LED_BY)
def test_a_log_directory_may_fail_at_a_leader_and_at_a_follower(
    kafka_tools: KafkaTools, tmp_path: Path, kinds: Kinds, leader_kind: Kind
) -> None:
    with with_two_directories(kafka_tools, tmp_path, kinds) as (cluster, mounts):
        faults = [nemesis.fail_directory(mounts, leads=each) for each in (True, False)]
        topic = name_of("directories", kinds, leader_kind)
        keep_promises(cluster, topic, faults, 0, tmp_path, kafka_tools, leader_kind)
