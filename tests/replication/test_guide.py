"""The files of docs/CLUSTER.md, with other ports and folders: brokers of both kinds start by them,
one after the other in one directory."""

import re
from pathlib import Path

import pytest

from kafkalite.config.properties import parse_properties
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from replication.nodes import SERVED_FEATURES, Node, cluster_id_of

pytestmark = pytest.mark.oracle

GUIDE = Path(__file__).parents[2] / "docs" / "CLUSTER.md"


def files() -> dict[str, dict[str, str]]:
    """The properties of each file by its name, which is its first line."""
    blocks = re.findall(r"```properties\n# (\S+)\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return {name: parse_properties(text) for name, text in blocks}


def test_kafkas_broker_starts_by_the_guides_file_behind_kafkalites(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """The guide named the controllers in a way with which Kafka's broker does not start: there was
    no way back, which was seen when one broker after the other was exchanged."""
    told = files()
    controller = told["controller.properties"] | {
        "listeners": "CONTROLLER://127.0.0.1:{port}",
        "controller.quorum.voters": "3000@127.0.0.1:{port}",
    }
    broker = told["broker-1.properties"] | {"listeners": "PLAINTEXT://127.0.0.1:{port}"}
    for properties in (controller, broker):
        del properties["log.dirs"]
    quorum = KafkaBroker(
        kafka_tools, tmp_path / "controller", properties=controller, features=SERVED_FEATURES
    )
    with quorum:
        address = quorum.bootstrap_servers
        named = {key: text.replace("127.0.0.1:9093", address) for key, text in broker.items()}
        assert named != broker
        kafka = KafkaBroker(
            kafka_tools,
            tmp_path / "broker",
            properties=named,
            cluster_id=cluster_id_of(quorum),
        )
        kafka.prepare()
        written = parse_properties((kafka.folder / "server.properties").read_text())
        assert written["controller.quorum.voters"] == f"3000@{address}"
        with Node.over(kafka, 1) as ours:
            assert "would not start with this file" not in ours.told()
            assert ours.stop() == 0
        with kafka:
            pass
