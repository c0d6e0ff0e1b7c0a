"""What the player of groups takes for a difference between two brokers, and what not."""

import pytest

import kafkalite
from differential.cases.groups import COORDINATORS
from differential.group_player import Player, first_difference
from differential.random_groups import KEYS, OTHERS, PATIENT_MS, Act, Client, Turn
from differential.runner import Runner

LATEST = {"JoinGroup": 9, "SyncGroup": 5, "Heartbeat": 4, "LeaveGroup": 5, "DescribeGroups": 5}
ONE = Client(
    "1", None, {key: LATEST.get(key, 2) for key in (*KEYS, *OTHERS)}, ("range",), PATIENT_MS, 5_000
)
CONFIG = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


class Late(Player):
    """Sees no answer at its first looks."""

    blind_looks = 0

    def _collect(self, patience_s: float) -> None:
        if self.blind_looks:
            self.blind_looks -= 1
        else:
            super()._collect(patience_s)


@pytest.mark.parametrize("blind_looks", [3, 5])
def test_a_refusal_that_comes_late_is_no_difference(blind_looks: int) -> None:
    """It was taken for a request that Kafka never answers, and then the answer was one too many:
    in its own turn, or in the next one."""
    turns = [Turn((Act("1", "JoinGroup", {"member_id": "nobody"}),)), Turn(())]
    with kafkalite.Broker(config=CONFIG) as broker:
        servers, clients = broker.bootstrap_servers, {ONE.name: ONE}
        Runner(servers).run(COORDINATORS[:1])
        with (
            Player(servers, clients, "g1", "t") as ours,
            Late(servers, clients, "g2", "t") as theirs,
        ):
            theirs.blind_looks = blind_looks
            assert first_difference(ours, theirs, turns) is None
            assert not theirs.blind_looks
