"""Faults of a cluster while its clients go on: each comes, stays a moment and heals. Whom it meets
and how long it stays is drawn from a seed."""

import random
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from cluster.brokers import BACK_S, Cluster, Kind, Member
from faults.mount import Mount
from faults.nemesis import lose_unflushed
from faults.proxy import Mode
from kafkalite.client.cluster_admin import PREFERRED
from kafkalite.protocol.codes import ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE
from replication.nodes import SESSION_MS, wait_until

METADATA_FOLDER = "__cluster_metadata-0"
NOT_NOW = (ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE)
BRIEF_S = 0.5
FENCED_S = 2 * SESSION_MS / 1000
"""After so long without a sign of life the controller has moved all that a broker led."""


class World:
    """A cluster, a topic of it, and a source of chance."""

    def __init__(
        self, cluster: Cluster, topic: str, seed: int, leader_kind: Kind | None = None
    ) -> None:
        """Leaders that faults meet are of `leader_kind`, if it is given."""
        self.cluster = cluster
        self.topic = topic
        self.draw = random.Random(seed)
        self.leader_kind = leader_kind

    def leader(self) -> Member:
        """A broker that leads a partition of the topic."""
        if self.leader_kind is None:
            return self.cluster.leader(self.topic)
        found: list[Member] = []

        def leads_one() -> bool:
            members = self.cluster.members
            leaders = [row.leader for row in self.cluster.partitions(self.topic)]
            found[:] = [members[e] for e in leaders if e in members]
            found[:] = [each for each in found if each.kind is self.leader_kind]
            if not found:
                self.elect_preferred()
            return bool(found)

        wait_until(leads_one, BACK_S)
        return found[0]

    def elect_preferred(self) -> None:
        """Has the first replica of each partition lead again, where it may."""
        with self.cluster.admin() as admin:
            rows = self.cluster.partitions(self.topic)
            refusals = admin.elect_leaders(PREFERRED, [(self.topic, e.partition) for e in rows])
        for refusal in refusals.values():
            assert refusal is None or refusal.code in NOT_NOW, refusal

    def follower(self) -> Member:
        leader = self.leader()
        return self.draw.choice([e for e in self.cluster.members.values() if e is not leader])

    def stay(self, least_s: float, most_s: float) -> None:
        """Lets a fault last."""
        time.sleep(self.draw.uniform(least_s, most_s))  # the fault itself


Fault = Callable[[World], None]


def stop_leader(world: World) -> None:
    """A clean stop of a leader, which is away for longer than its session."""
    leader = world.leader()
    leader.stop()
    world.stay(FENCED_S, FENCED_S + BRIEF_S)
    leader.start()


def bounce_leader(world: World) -> None:
    """A clean stop of a leader, and a start."""
    leader = world.leader()
    leader.stop()
    leader.start()


def kill_leader(world: World) -> None:
    """SIGKILL of a leader, which is back at once: before it is fenced, or after."""
    leader = world.leader()
    leader.kill()
    world.stay(0, BRIEF_S)
    leader.start()


def lose_leader(world: World) -> None:
    """SIGKILL of a leader, which is back once others lead for it."""
    leader = world.leader()
    leader.kill()
    world.stay(FENCED_S, FENCED_S + BRIEF_S)
    leader.start()


def kill_follower(world: World) -> None:
    """SIGKILL of a follower."""
    follower = world.follower()
    follower.kill()
    world.stay(0, FENCED_S)
    follower.start()


def bounce_follower(world: World) -> None:
    """A clean stop of a follower, and a start."""
    follower = world.follower()
    follower.stop()
    follower.start()


def pause_leader(world: World) -> None:
    """SIGSTOP of a leader, for longer than it takes to be fenced: it wakes up as none."""
    with world.leader().paused():
        world.stay(FENCED_S, FENCED_S + BRIEF_S)


def pause_follower(world: World) -> None:
    """SIGSTOP of a follower."""
    with world.follower().paused():
        world.stay(BRIEF_S, FENCED_S)


def bounce_controller(world: World) -> None:
    """The whole quorum stops cleanly, and comes back."""
    world.cluster.controller.stop()
    world.stay(0, BRIEF_S)
    world.cluster.controller.start()


def kill_controller(world: World) -> None:
    """SIGKILL of the whole quorum: nobody is fenced or elected until it is back."""
    world.cluster.controller.kill()
    world.stay(0, BRIEF_S)
    world.cluster.controller.start()


def stop_controller(world: World) -> None:
    """The whole quorum stops cleanly, and is away for longer than the sessions of all brokers."""
    world.cluster.controller.stop()
    world.stay(FENCED_S, FENCED_S + BRIEF_S)
    world.cluster.controller.start()


def lose_controller(world: World) -> None:
    """SIGKILL of the whole quorum, which is away for longer than the sessions of all brokers."""
    world.cluster.controller.kill()
    world.stay(FENCED_S, FENCED_S + BRIEF_S)
    world.cluster.controller.start()


def lose_metadata(world: World) -> None:
    """A follower comes back without its copy of the metadata log, and loads a snapshot of the
    controller's."""
    follower = world.follower()
    follower.stop()
    shutil.rmtree(follower.log_dirs[0] / METADATA_FOLDER)
    follower.start()


def cut_followers_off(world: World) -> None:
    """What followers ask a leader does not arrive, or what it answers."""
    leader = world.leader()
    with leader.link(world.draw.choice((Mode.MUTE, Mode.DEAF)), world.cluster.members.values()):
        world.stay(BRIEF_S, FENCED_S)


def cut_one_off(world: World) -> None:
    """One follower does not reach its leaders any more, who know nothing of that."""
    follower = world.follower()
    with ExitStack() as links:
        for each in world.cluster.members.values():
            links.enter_context(each.link(Mode.STALL, [follower]))
        world.stay(BRIEF_S, FENCED_S)


def slow_a_pair(world: World) -> None:
    """Bytes between two brokers come late or in small pieces."""
    mode = world.draw.choice((Mode.DELAY, Mode.SLICE))
    with world.leader().link(mode, [world.follower()]):
        world.stay(BRIEF_S, FENCED_S)


def break_connections(world: World) -> None:
    """Connections of followers end amid an answer."""
    with world.leader().link(Mode.CUT, world.cluster.members.values()):
        world.stay(BRIEF_S, BRIEF_S)


def fail_directory(mounts: Mapping[int, Mount], *, leads: bool) -> Fault:
    """The second log directory of a broker refuses everything, be it that of a leader or of a
    follower; the broker goes on with the first one until it comes back with both."""

    def fault(world: World) -> None:
        found: list[int] = []

        def has_some() -> bool:
            found[:] = [
                each
                for row in world.cluster.partitions(world.topic)
                for each in row.replicas
                if (each == row.leader) is leads
                and (mounts[each].path / f"{world.topic}-{row.partition}").is_dir()
            ]
            return bool(found)

        wait_until(has_some, BACK_S)
        member = world.cluster.members[world.draw.choice(found)]
        mount = mounts[member.id]
        lose_unflushed(mount)
        world.stay(FENCED_S, FENCED_S + BRIEF_S)
        member.stop()
        mount.unmount()
        mount.mount()
        member.start()

    fault.__name__ = f"fail_directory_of_a_{'leader' if leads else 'follower'}"
    return fault


OF_LEADERS: tuple[Fault, ...] = (stop_leader, lose_leader, bounce_leader, kill_leader)
OF_CONTROLLERS: tuple[Fault, ...] = (
    stop_controller,
    lose_controller,
    bounce_controller,
    kill_controller,
)
MATRIX: tuple[Fault, ...] = (*OF_LEADERS, *OF_CONTROLLERS)
"""Clean and hard, a stop that others notice and one that is over before: kafkatest's matrix."""
OF_FOLLOWERS: tuple[Fault, ...] = (bounce_follower, kill_follower, lose_metadata)
PAUSES: tuple[Fault, ...] = (pause_leader, pause_follower)
NETWORK: tuple[Fault, ...] = (cut_followers_off, cut_one_off, slow_a_pair, break_connections)
EVERYTHING: tuple[Fault, ...] = MATRIX + OF_FOLLOWERS + PAUSES + NETWORK
