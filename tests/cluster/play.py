"""Clients go on through faults of a cluster; then everything heals, all is read, what they saw is
judged, and the replicas are compared."""

from collections.abc import Sequence
from pathlib import Path

from cluster.brokers import BACK_S, Cluster, Kind
from cluster.nemesis import Fault, World
from cluster.replicas import check_replicas
from faults.verify import check
from faults.workload import Recorder, Workload
from oracle.tools import KafkaTools

REPLICAS = 3
FINDINGS_TOLD = 20
RECORDS_BETWEEN_FAULTS = 300
PRODUCER = {"debug": "broker,eos,metadata,msg"}
"""What producers say of themselves lies beside a history that is kept."""
PRODUCER_PAUSE_S = 0.02
"""Two processors have three brokers to carry, of which some are starting virtual machines."""


def play(
    cluster: Cluster,
    topic: str,
    faults: Sequence[Fault],
    seed: int,
    folder: Path,
    leader_kind: Kind | None = None,
) -> Recorder:
    """All clients through all faults on a topic of its own; what they have written down, which is
    kept in the folder too. Raises `AssertionError` if they do not come back."""
    recorder = Recorder(topic)
    world = World(cluster, topic, seed, leader_kind)
    try:
        load = Workload(
            cluster.servers,
            recorder,
            seed,
            replicas=REPLICAS,
            pause_s=PRODUCER_PAUSE_S,
            producer=PRODUCER,
        )
        with load as workload:
            recorder.wait_until(lambda: recorder.commits > 0, BACK_S, "a first commit")
            for fault in faults:
                recorder.meet(fault, world)
                when = f"after {fault.__name__}"
                recorder.wait_for_more(RECORDS_BETWEEN_FAULTS, BACK_S, when)
                recorder.wait_for_looks(BACK_S, when)
            workload.drain(BACK_S)
    finally:
        recorder.save(folder / f"{topic}.jsonl")
    return recorder


def keep_promises(
    cluster: Cluster,
    topic: str,
    faults: Sequence[Fault],
    seed: int,
    folder: Path,
    tools: KafkaTools,
    leader_kind: Kind | None = None,
) -> Recorder:
    """Plays, and holds what was seen, and the files, against what is promised; what was seen. The
    topic is gone afterwards."""
    recorder = play(cluster, topic, faults, seed, folder, leader_kind)
    found = check(recorder.operations)
    # pytest writes out what is compared in files of tests only.
    assert not found, "\n".join(map(str, found[:FINDINGS_TOLD]))
    assert check_replicas(cluster, topic) > 0
    for member in cluster.members.values():
        for log_dir in member.log_dirs:
            for segments in log_dir.glob(f"{topic}-[0-9]*"):
                assert not tools.dump_log(sorted(segments.glob("*.log"))).findings
    with cluster.admin() as admin:
        admin.delete_topics(topic)
    return recorder
