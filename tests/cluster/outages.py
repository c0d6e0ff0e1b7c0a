"""Brokers are killed and paused, one after the other, under a producer that waits for all in-sync
replicas: how long it has no answer, and whether what was answered is there, once.

Three brokers have the replicas of a topic, a trio; several trios of one cluster are disturbed at
the same time. The next fault comes when all replicas are in sync again, by the controller's log.
"""

import json
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from cluster.brokers import BACK_S, Cluster, Member
from cluster.nemesis import World
from cluster.replicas import check_replicas
from faults.verify import Operation, Outcome, check
from faults.workload import PARTITIONS, Recorder, Workload
from kafkalite.errors import KafkaliteError
from kafkalite.metadata import reading
from kafkalite.metadata.image import PartitionImage
from replication.nodes import wait_until

TRIO = 3
FAULTS_PER_TOPIC = 25
FOLLOWERS_OF = 5
"""One of so many faults meets a follower."""
PRODUCER_PAUSE_S = 0.02
# What a paused leader was sent is sent to the next one after this time: it closes no connection.
PRODUCER = {"socket.timeout.ms": 1_000, "topic.metadata.refresh.interval.ms": 500}


class Gap(NamedTuple):
    """The longest time in which a partition had no answer, until all replicas were in sync."""

    fault: str
    seconds: float


class Endured(NamedTuple):
    """What a number of faults has come to."""

    gaps: list[Gap]
    acknowledged: int
    findings: list[str]
    """Promises that were broken: records that were lost, doubled or answered by a broker that did
    not lead any more."""

    def with_more(self, more: "Endured") -> "Endured":
        """Both."""
        return Endured(
            [*self.gaps, *more.gaps],
            self.acknowledged + more.acknowledged,
            [*self.findings, *more.findings],
        )

    def told(self, name: str) -> str:
        """A line a kind of fault."""
        seconds = defaultdict(list)
        for each in self.gaps:
            seconds[each.fault].append(each.seconds)
        lines = [
            f"{name:<10} {fault:<15} {len(found):>5}  gap p50 {quantile(found, 0.5):.2f} s"
            f"  p99 {quantile(found, 0.99):.2f} s  max {max(found):.2f} s"
            for fault, found in sorted(seconds.items())
        ]
        acknowledged = f"{self.acknowledged} acknowledged, {len(self.findings)} findings"
        return "\n".join([*lines, f"{name:<10} {acknowledged}"])


def quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(int(part * len(values)), len(values) - 1)]


def endure(cluster: Cluster, kills: int, pauses: int, seed: int, folder: Path) -> Endured:
    """So many of both, divided among the trios of a cluster that runs. Histories are kept in the
    folder, and a line for each gap. Raises `AssertionError` if clients do not come back, or
    replicas are not the same in the end."""
    members = list(cluster.members.values())
    trios = [
        Cluster(cluster.controller, members[at : at + TRIO])
        for at in range(0, len(members) - TRIO + 1, TRIO)
    ]
    plan = ["kill"] * kills + ["pause"] * pauses
    plans = [plan[at :: len(trios)] for at in range(len(trios))]
    with ThreadPoolExecutor(len(trios)) as pool:
        places = [folder / f"trio-{number}-{seed}" for number in range(len(trios))]
        found = list(
            pool.map(endure_all, trios, plans, [seed * 100 + n for n in range(len(trios))], places)
        )
    return reduce(Endured.with_more, found)


def endure_all(trio: Cluster, plan: Sequence[str], seed: int, folder: Path) -> Endured:
    """A topic after the other, so that no history grows without bound."""
    folder.mkdir(parents=True)
    endured = Endured([], 0, [])
    order = World(trio, "", seed).draw.sample(plan, len(plan))
    for number, at in enumerate(range(0, len(order), FAULTS_PER_TOPIC)):
        topic = f"outages-{min(trio.members)}-{seed}-{number}"
        part = endure_some(trio, topic, order[at : at + FAULTS_PER_TOPIC], seed + number, folder)
        endured = endured.with_more(part)
        with (folder / "gaps.jsonl").open("a") as lines:
            lines.writelines(f"{json.dumps(each._asdict())}\n" for each in part.gaps)
            told = {"acknowledged": part.acknowledged, "findings": part.findings}
            lines.write(f"{json.dumps(told)}\n")
    return endured


def endure_some(trio: Cluster, topic: str, plan: Sequence[str], seed: int, folder: Path) -> Endured:
    """The faults of one topic, which is gone afterwards unless a promise was broken."""
    recorder = Recorder(topic)
    world = World(trio, topic, seed)
    with trio.admin() as admin:
        admin.create_topic(topic, assignments=[list(trio.members)] * PARTITIONS)
    outages: list[Outage] = []
    try:
        load = Workload(
            trio.servers,
            recorder,
            seed,
            idempotence=[True],
            replicas=TRIO,
            pause_s=PRODUCER_PAUSE_S,
            has_group=False,
            producer=PRODUCER,
        )
        with load as workload:
            settle(world, recorder, "at first")
            outages += [meet(each, world, recorder) for each in plan]
            workload.drain(BACK_S)
    finally:
        recorder.save(folder / f"{topic}.jsonl")
    findings = check(each for each in recorder.operations if each.name != "fault")
    assert check_replicas(trio, topic) > 0
    if not findings:
        with trio.admin() as admin:
            admin.delete_topics(topic)
        (folder / f"{topic}.jsonl").unlink()
    gaps = [each.gap(recorder.operations) for each in outages]
    return Endured(gaps, recorder.acknowledged, findings)


class Outage(NamedTuple):
    """A fault that has come and gone."""

    fault: str
    began: float
    ended: float
    partitions: frozenset[str]
    """That were to be served by others."""

    def gap(self, operations: Iterable[Operation]) -> Gap:
        """The longest pause between two answers of a partition."""
        answers = defaultdict(list)
        for each in operations:
            if each.name == "produce" and each.outcome is Outcome.OK:
                answers[each.partition].append(each.ended)
        longest = 0.0
        for partition in self.partitions:
            found = sorted(answers[partition])
            first = max(bisect_left(found, self.began) - 1, 0)
            last = bisect_right(found, self.ended) + 1
            pauses = (after - before for before, after in pairwise(found[first:last]))
            longest = max(longest, *pauses)
        return Gap(self.fault, longest)


def meet(how: str, world: World, recorder: Recorder) -> Outage:
    """A kill or a pause, of a leader or at times of a follower, until others have taken over what
    it did; then it comes back and catches up."""
    rows = partitions(world.cluster, world.topic)
    leader = rows[0].leader
    is_follower = world.draw.randrange(FOLLOWERS_OF) == 0
    others = sorted(each for each in world.cluster.members if each != leader)
    member = world.cluster.members[world.draw.choice(others) if is_follower else leader]
    met = frozenset(
        f"{world.topic}-{row.index}" for row in rows if (row.leader == member.id) != is_follower
    )
    fault = f"{how}_{'follower' if is_follower else 'leader'}"
    began = time.monotonic()
    with AWAY[how](member):
        wait_for_answers(recorder, began, f"after {fault} {member.id}")
    ended = settle(world, recorder, f"after {fault} {member.id} has come back")
    recorder.add(Operation("nemesis", "fault", Outcome.OK, began, ended, "", value=fault))
    return Outage(fault, began, ended, met)


@contextmanager
def killed(member: Member) -> Iterator[None]:
    member.kill()
    yield
    member.start()


AWAY: dict[str, Callable[[Member], AbstractContextManager[None]]] = {
    "kill": killed,
    "pause": Member.paused,
}


def wait_for_answers(recorder: Recorder, since: float, when: str) -> None:
    """Until of each partition a record that was sent later has been acknowledged."""
    names = [f"{recorder.topic}-{each}" for each in range(PARTITIONS)]
    answered = recorder.answered_since
    recorder.wait_until(
        lambda: all(answered.get(each, 0.0) > since for each in names), BACK_S, f"answers {when}"
    )


def settle(world: World, recorder: Recorder, when: str) -> float:
    """Until all replicas are in sync and records are answered; since when they are in sync."""

    def is_whole() -> bool:
        rows = partitions(world.cluster, world.topic)
        return len(rows) == PARTITIONS and all(len(row.isr) == TRIO for row in rows)

    wait_until(is_whole, BACK_S)
    since = time.monotonic()
    wait_for_answers(recorder, since, when)
    return since


def partitions(cluster: Cluster, topic: str) -> Sequence[PartitionImage]:
    """As the controller has written them: brokers may be behind."""
    try:
        image = reading.read(cluster.controller.log_dirs[0]).image
    except KafkaliteError:
        return ()  # a snapshot has just taken the place of another
    return image.topics[topic].partitions if topic in image.topics else ()
