"""The state of the quorum that writes the metadata: who led last, in which epoch, the voters.

It is told by the control records of the log and by the file `quorum-state`, JSON whose form depends
on kraft.version.

Kafka: `FileQuorumStateStore`, `QuorumState`, `KRaftControlRecordStateMachine`.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kafkalite.errors import LogDirRefusedError

QUORUM_STATE_FILE = "quorum-state"


class Quorum(NamedTuple):
    """The words of the control records and of `quorum-state`."""

    leader_epoch: int = 0
    kraft_version: int = 0
    voters: Any = None
    """The VotersRecord of kraft.version 1, which a snapshot must repeat."""
    voter_ids: tuple[int, ...] = ()


def with_quorum_state(folder: Path, quorum: Quorum, epoch: int) -> Quorum:
    """`quorum`, which the control records say, with what the file says; `epoch` is that of the last
    batch. The file's may be newer than the log's: it was voted for, and nothing was written in
    it. Raises LogDirRefusedError where the file cannot be understood."""
    quorum = quorum._replace(leader_epoch=epoch)
    try:
        text = (folder / QUORUM_STATE_FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return quorum
    found = re.search(r'"leaderEpoch"\s*:\s*(\d+)', text)
    if not found or not re.search(r'"data_version"\s*:\s*[01]\b', text):
        raise LogDirRefusedError(f"{folder / QUORUM_STATE_FILE} cannot be read")
    ids = tuple(int(digits) for digits in re.findall(r'"voterId"\s*:\s*(\d+)', text))
    return quorum._replace(
        leader_epoch=max(quorum.leader_epoch, int(found[1])),
        voter_ids=quorum.voter_ids or ids,
    )


def quorum_state_text(
    kraft_version: int, leader_id: int, leader_epoch: int, voter_ids: Sequence[int]
) -> str:
    """The content of `quorum-state` where this node has voted for nobody; leader -1 is not
    known."""
    if kraft_version:
        return (
            f'{{"leaderId":{leader_id},"leaderEpoch":{leader_epoch},"votedId":-1,'
            f'"votedDirectoryId":"{"A" * 22}","data_version":1}}'
        )
    voters = ",".join(f'{{"voterId":{each}}}' for each in voter_ids)
    return (
        f'{{"clusterId":"","leaderId":{leader_id},"leaderEpoch":{leader_epoch},'
        f'"votedId":-1,"appliedOffset":0,"currentVoters":[{voters}],'
        '"data_version":0}'
    )
