"""A thousand kills and a thousand pauses of brokers, or as many as asked for: nothing that was
acknowledged is lost or there twice, and clients go on when the controller has moved the leaders.

    KAFKALITE_TEST_OUTAGES=1000 KAFKALITE_TEST_TRIOS=4 pytest -m long -s tests/cluster -k thousand

prints the gaps, beside those of Apache Kafka's brokers in the same run. The histories of broken
promises, and all gaps, are kept in the temporary directory.
"""

import contextlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from cluster.brokers import BACK_S, Cluster, Kind, new_cluster
from cluster.outages import TRIO, Endured, endure
from oracle.tools import KafkaTools
from replication.nodes import wait_until

pytestmark = pytest.mark.oracle

SLICE = 20
SLICE_TRIOS = 5
SLICE_GAP_S = 20.0
OUTAGES = int(os.environ.get("KAFKALITE_TEST_OUTAGES", "1000"))
TRIOS = int(os.environ.get("KAFKALITE_TEST_TRIOS", "4"))
ROUNDS = 10
KAFKAS_PART = 20
"""Of so many outages one is Apache Kafka's, whose brokers take ten times as long to start."""
LONG_S = 6 * 3600


@contextmanager
def running(tools: KafkaTools, folder: Path, kind: Kind, trios: int) -> Iterator[Cluster]:
    """Brokers of one kind."""
    count = TRIO * trios
    with new_cluster(tools, folder, count, is_proxied=False) as cluster:
        cluster.start(*[kind] * count)
        make_offsets_topic(cluster)
        yield cluster


def make_offsets_topic(cluster: Cluster) -> None:
    """Consumers would have it made amid the first faults; a broker that is killed while it hears of
    a topic is another test's."""
    with cluster.admin() as admin:
        admin.create_topic("before", assignments=[[each] for each in cluster.members])
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": "none"})

    def is_there() -> bool:
        with contextlib.suppress(KafkaException):
            consumer.committed([TopicPartition("before", 0)], timeout=5)
        try:
            rows = cluster.partitions("__consumer_offsets")
            for row in rows:
                for each in row.replicas:
                    cluster.members[each].replica(f"__consumer_offsets-{row.partition}")
        except FileNotFoundError:
            return False
        return True

    wait_until(is_there, BACK_S)
    consumer.close()


def test_nothing_is_lost_or_doubled_by_kills_and_pauses(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    with running(kafka_tools, tmp_path / "ours", Kind.KAFKALITE, SLICE_TRIOS) as cluster:
        endured = endure(cluster, SLICE, SLICE, 0, tmp_path / "history")
    assert endured.findings == []
    assert len(endured.gaps) == 2 * SLICE
    assert max(each.seconds for each in endured.gaps) < SLICE_GAP_S, endured.told("kafkalite")


@pytest.mark.long
@pytest.mark.timeout(LONG_S)
def test_nothing_is_lost_or_doubled_by_a_thousand_kills_and_pauses(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    kinds = {Kind.KAFKALITE: (TRIOS, OUTAGES), Kind.KAFKA: (1, OUTAGES // KAFKAS_PART)}
    endured = {each: Endured([], 0, []) for each in kinds}
    with ExitStack() as stack:
        clusters = {
            kind: stack.enter_context(running(kafka_tools, tmp_path / kind, kind, trios))
            for kind, (trios, _) in kinds.items()
        }
        for number in range(ROUNDS):
            for kind, (_, outages) in kinds.items():
                count = len(range(number, outages, ROUNDS))
                folder = tmp_path / "history" / kind
                more = endure(clusters[kind], count, count, number, folder)
                endured[kind] = endured[kind].with_more(more)
                print(endured[kind].told(kind), flush=True)
    assert [each.findings for each in endured.values()] == [[], []]
    assert len(endured[Kind.KAFKALITE].gaps) == 2 * OUTAGES
