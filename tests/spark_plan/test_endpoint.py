"""Which Arrow endpoint a plan names: that of the one broker on this machine, or none."""

import time
from pathlib import Path

import pytest

import kafkalite
from kafkalite.access import CLUSTER, CLUSTER_ACTION
from kafkalite.client import Admin, Producer
from kafkalite.client.admin import BROKER
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.network.metadata import Node
from kafkalite.errors import BrokerError
from kafkalite.protocol import messages
from kafkalite.spark.options.read import ReadOptions
from kafkalite.spark.plan import topic_source
from kafkalite.spark.plan.answers import TopicSources, answer
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools

ACLS_SECONDS_MAX = 60


def test_an_endpoint_that_is_not_this_clusters_is_not_read_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a broker elsewhere, or one that is gone, tasks asked whoever had the port here."""
    asked: list[tuple[str, str]] = []
    listener = {"kafkalite.arrow.listener": "127.0.0.1:0"}
    with kafkalite.Broker(config=listener) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("here", partitions=1)
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "here"}
        for is_here in (True, False):

            def serves(address: str, cluster_id: str, *, is_here: bool = is_here) -> bool:
                asked.append((address, cluster_id))
                return is_here

            monkeypatch.setattr(topic_source, "serves_cluster", serves)
            with TopicSources() as sources:
                plans = [answer({"op": "batch", "options": servers}, sources) for _ in range(2)]
            address, cluster_id = asked[-1]
            wanted = (address, cluster_id) if is_here else (None, None)
            assert [(each["endpoint"], each["read"].get("cluster.id")) for each in plans] == [
                wanted,
                wanted,
            ]


@pytest.mark.oracle
def test_who_may_not_see_the_brokers_configurations_is_given_no_endpoint(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """A cluster of one broker is asked where it serves Arrow. With ACLs that let a job read its
    topic and no more, each of its queries failed with CLUSTER_AUTHORIZATION_FAILED."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KafkaBroker(kafka_tools, tmp_path, properties=properties) as kafka:
        servers = kafka.bootstrap_servers
        with Admin(servers) as admin, Producer(servers) as producer:
            admin.create_topic("guarded", partitions=1)
            producer.send("guarded", b"one", partition=0)
            producer.flush()
            creation = messages.CreateAclsRequest.AclCreation(
                resource_type=CLUSTER,
                resource_name="kafka-cluster",
                resource_pattern_type=3,  # a literal name
                principal="User:*",
                host="*",
                operation=CLUSTER_ACTION,  # as the broker itself needs it
                permission_type=3,  # allowed
            )
            (made,) = admin.cluster.ask(messages.CreateAclsRequest(creations=[creation])).results
            assert made.error_code == 0, made.error_message
            deadline = time.monotonic() + ACLS_SECONDS_MAX
            with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
                while time.monotonic() < deadline:  # the broker applies what the controller has
                    admin.describe_configs(BROKER, str(*admin.cluster.nodes))
        options = {"kafka.bootstrap.servers": servers, "subscribe": "guarded"}
        with TopicSources() as sources:
            found = answer({"op": "batch", "options": options}, sources)
    assert (found["ranges"], found["endpoint"]) == ([["guarded", 0, 0, 1]], None)


def test_an_endpoint_is_looked_for_again_and_left_when_brokers_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A planner lives as long as its session: the broker may have been away when it first asked,
    and a cluster that grows moves partitions to brokers that the endpoint is not of."""
    is_there = False
    monkeypatch.setattr(topic_source, "serves_cluster", lambda *_: is_there)
    monkeypatch.setattr(topic_source, "ENDPOINT_PAUSE_S", 0.0)
    listener = {"kafkalite.arrow.listener": "127.0.0.1:0"}
    with kafkalite.Broker(config=listener) as broker:
        options = ReadOptions.of(
            {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "any"},
            streaming=True,
        )
        with topic_source.BrokerSource(options.client) as source:
            assert source.endpoint() is None
            is_there = True
            assert source.endpoint() is not None
            more = {9: Node(9, "127.0.0.1", 9, None), **source._cluster.nodes}
            monkeypatch.setattr(Cluster, "nodes", more)
            assert source.endpoint() is None
