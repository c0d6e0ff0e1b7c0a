"""All brokers end at the same moment, none of them cleanly: nothing that was acknowledged is lost,
and no election is an unclean one.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster.brokers import Cluster, Kind, Member
from kafkalite.metadata import reading
from replication.records import produce
from replication.test_transactions import committed_values

pytestmark = pytest.mark.oracle

TOPIC = "all-at-once"
PARTITIONS, ROUNDS = 6, 3


@pytest.mark.timeout(600)
def test_a_kill_of_all_brokers_needs_no_unclean_election(cluster: Cluster) -> None:
    cluster.become(*(Kind.KAFKALITE,) * 3)
    members = list(cluster.members.values())
    with cluster.admin() as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
    cluster.wait_for_isr(TOPIC)
    values: list[str] = []
    for number in range(ROUNDS):
        new = [f"{number}-{each}" for each in range(120)]
        produce(cluster.servers, TOPIC, new, partitions=PARTITIONS)
        values += new
        for each in members:
            each.kill()
        with ThreadPoolExecutor(len(members)) as pool:
            list(pool.map(Member.start, members))
        cluster.wait_until_unfenced()
        cluster.wait_for_isr(TOPIC)
        image = reading.read(cluster.controller.log_dirs[0]).image
        assert {each.recovery_state for each in image.topics[TOPIC].partitions} == {0}
    assert sorted(committed_values(cluster.servers, TOPIC, len(values))) == sorted(values)
    with cluster.admin() as admin:
        admin.delete_topics([TOPIC])
