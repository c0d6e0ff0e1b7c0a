"""`kafkalite format`: directories for a node, from its file."""

import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite import cli
from oracle.tools import KafkaTools

JOINS = """process.roles=broker
controller.quorum.bootstrap.servers=127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs={}
"""


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "code"),
    [("", "MkU3OEVBNTcwNTJENDM2Qk", 1), ("node.id=4", "any text", 0)],
    ids=["no-node-id", "any-cluster-id"],
)
def test_a_broker_needs_a_node_id_and_takes_any_cluster_id_as_for_kafka(
    node_id: str, cluster_id: str, code: int, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """Formatting made up the node id 1. Kafka 4 does not look at the form of a cluster id."""
    told = []
    for who in ("kafka", "ours"):
        file = tmp_path / f"{who}.properties"
        file.write_text(JOINS.format(tmp_path / who) + node_id)
        arguments = ["format", f"--cluster-id={cluster_id}", "--config", str(file)]
        if who == "kafka":
            told.append(kafka_tools.run_tool("kafka.tools.StorageTool", arguments).exit)
        else:
            told.append(cli.run(arguments))
        is_formatted = (tmp_path / who / "meta.properties").exists()
        assert is_formatted == (code == 0)
    assert told == [code, code]


def test_a_misspelt_key_is_told_since_it_may_name_the_directories(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    data = tmp_path / "data"
    file.write_text(f"log.dirs={data}\nnode.idd=2\n")
    command = [
        sys.executable,
        "-m",
        "kafkalite",
        "format",
        "--cluster-id",
        "MkU3OEVBNTcwNTJENDM2Qk",
    ]
    done = subprocess.run(
        [*command, "--config", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout == f"Formatting metadata directory {data}.\n"
    assert "unknown configuration key node.idd; did you mean node.id?" in done.stderr
    assert (data / "meta.properties").exists()
