"""Faults of a cluster while its clients go on: each comes, stays a moment and heals. Whom it meets
and how long it stays is drawn from a seed."""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack

from cluster.brokers import Cluster, Member
from faults.proxy import Mode
from replication.nodes import SESSION_MS

BRIEF_S = 0.5
FENCED_S = 2 * SESSION_MS / 1000
"""After so long without a sign of life the controller has moved all that a broker led."""


class World:
    """A cluster, a topic of it, and a source of chance."""

    def __init__(self, cluster: Cluster, topic: str, seed: int) -> None:
        self.cluster = cluster
        self.topic = topic
        self.draw = random.Random(seed)

    def leader(self) -> Member:
        return self.cluster.leader(self.topic)

    def follower(self) -> Member:
        leader = self.leader()
        return self.draw.choice([e for e in self.cluster.members.values() if e is not leader])

    def stay(self, least_s: float, most_s: float) -> None:
        """Lets a fault last."""
        time.sleep(self.draw.uniform(least_s, most_s))  # the fault itself


Fault = Callable[[World], None]


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


MATRIX: tuple[Fault, ...] = (
    bounce_leader,
    kill_leader,
    lose_leader,
    bounce_controller,
    kill_controller,
    bounce_follower,
    kill_follower,
)
"""Clean and hard, a stop that others notice and one that is over before: kafkatest's matrix."""
PAUSES: tuple[Fault, ...] = (pause_leader, pause_follower)
NETWORK: tuple[Fault, ...] = (cut_followers_off, cut_one_off, slow_a_pair, break_connections)
EVERYTHING: tuple[Fault, ...] = MATRIX + PAUSES + NETWORK
