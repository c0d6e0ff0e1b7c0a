"""A broker under three controllers of Apache Kafka's, of which the active one is killed. Three
JVMs: only where the tests may take long."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from oracle.broker import KafkaBroker, new_cluster_id
from oracle.tools import KafkaTools
from ports import free_ports
from replication.nodes import SERVED_FEATURES, SESSION_MS, Node, wait_until

IDS = (3000, 3001, 3002)


@pytest.mark.long
def test_the_next_active_controller_is_found(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    cluster_id = new_cluster_id()
    places = [f"127.0.0.1:{port}" for port in free_ports(len(IDS))]
    voters = ",".join(f"{each}@{at}" for each, at in zip(IDS, places, strict=True))
    controllers = [
        KafkaBroker(
            kafka_tools,
            tmp_path / str(each),
            properties={
                "process.roles": "controller",
                "node.id": str(each),
                "listeners": f"CONTROLLER://{at}",
                "controller.quorum.voters": voters,
                "broker.session.timeout.ms": str(SESSION_MS),
                "broker.heartbeat.interval.ms": "500",
            },
            features=SERVED_FEATURES,
            cluster_id=cluster_id,
            port=int(at.partition(":")[2]),
        )
        for each, at in zip(IDS, places, strict=True)
    ]
    with ExitStack() as stack:
        with ThreadPoolExecutor() as pool:
            list(pool.map(stack.enter_context, controllers))
        bootstrap = {"controller.quorum.bootstrap.servers": ",".join(places)}
        node = Node(1, tmp_path / "node", controllers[0], **bootstrap)
        stack.enter_context(node)
        (active,) = re.findall(r"active controller is (\d+)", node.told())
        admin = AdminClient({"bootstrap.servers": node.address})
        controllers[IDS.index(int(active))].kill()
        admin.create_topics([NewTopic("after", 1, 1)], request_timeout=30)["after"].result()
        wait_until(lambda: "after" in admin.list_topics(timeout=10).topics)
        wait_until(lambda: set(admin.list_topics(timeout=10).brokers) == {1})
        assert node.stop() == 0
