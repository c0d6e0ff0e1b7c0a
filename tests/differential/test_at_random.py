"""Requests and groups at random, to kafkalite and to Apache Kafka: equal answers.

A few seeds in `make test`; the long tests go on from another one for a while:

    DIFFERENTIAL_SECONDS=600 DIFFERENTIAL_SEED=5000 pytest -m long tests/differential

A failure names its seed and the shortest part of the sequence that still differs. A difference must
show twice: both brokers do much beside the requests, and what does not come again is printed only.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pprint import pformat
from typing import Any

import pytest

import kafkalite
from differential.cases.groups import COORDINATORS
from differential.differences import DIFFERENCES
from differential.group_player import Player, first_difference
from differential.random_groups import Turn, story
from differential.random_requests import Step, last, sequence
from differential.runner import Runner, compare
from differential.script import Case, appears, create
from differential.shortest import shortest
from oracle.broker import DEFAULTS, KafkaBroker

pytestmark = pytest.mark.oracle

CONTROLLER = ("process.roles", "controller.listener.names")
OURS = {key: value for key, value in DEFAULTS.items() if key not in CONTROLLER}
TOPIC = "at-random"
REQUESTS, TURNS = 40, 25
SECONDS = int(os.environ.get("DIFFERENTIAL_SECONDS", "60"))
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "1000"))
LONG = pytest.mark.timeout(SECONDS + 240)

Found = Sequence[tuple[str, Any, Any]]


class Brokers:
    """Both brokers, and worlds that nothing was played in yet."""

    def __init__(self, ours: str, theirs: str) -> None:
        self.ours, self.theirs = ours, theirs
        self._worlds = (f"r{os.getpid() % 10_000:04}{number:05}" for number in itertools.count())
        for each in (ours, theirs):
            ready = [create("a topic for groups", TOPIC), appears(TOPIC)]
            Runner(each).run([*ready, COORDINATORS[0], COORDINATORS[-1]])

    def world(self) -> str:
        """A prefix for names, always as long."""
        return next(self._worlds)


@pytest.fixture(scope="module")
def brokers(kafka: KafkaBroker) -> Iterator[Brokers]:
    with kafkalite.Broker(config=OURS) as broker:
        yield Brokers(broker.bootstrap_servers, kafka.bootstrap_servers)


@pytest.mark.parametrize("seed", range(1, 6))
def test_requests_at_random_are_answered_as_by_kafka(brokers: Brokers, seed: int) -> None:
    check_requests(brokers, seed)


@pytest.mark.parametrize("seed", range(1, 9))
def test_groups_at_random_go_as_in_kafka(brokers: Brokers, seed: int) -> None:
    check_groups(brokers, seed)


@pytest.mark.long
@LONG
def test_many_requests_at_random_are_answered_as_by_kafka(brokers: Brokers) -> None:
    go_on(lambda seed: check_requests(brokers, seed))


@pytest.mark.long
@LONG
def test_many_groups_at_random_go_as_in_kafka(brokers: Brokers) -> None:
    go_on(lambda seed: check_groups(brokers, seed))


def go_on(check: Callable[[int], None]) -> None:
    """One seed after the other until the time is over."""
    end = time.monotonic() + SECONDS
    for seed in itertools.count(SEED):
        check(seed)
        if time.monotonic() > end:
            print(f"seeds {SEED} to {seed}")
            return


def check_requests(brokers: Brokers, seed: int) -> None:
    """Fails with the shortest part of the sequence that differs."""

    def found(numbers: Sequence[int]) -> Found:
        world = brokers.world()
        steps = sequence(seed, world, REQUESTS)
        return play_requests(brokers, world, [steps[0], *(steps[n] for n in numbers)])

    reduced = reduce(seed, range(1, REQUESTS + 1), found)
    if reduced:
        steps = sequence(seed, brokers.world(), REQUESTS)
        cases = [steps[number][0] for number in reduced[0]]
        shown = [(case.api, case.version, case.fields) for case in cases]
        pytest.fail(report(seed, shown, reduced[1]))


def check_groups(brokers: Brokers, seed: int) -> None:
    """Fails with the shortest part of the story that differs."""
    told = story(seed, TURNS)

    def found(turns: Sequence[Turn]) -> Found:
        group = brokers.world()
        with (
            Player(brokers.ours, told.clients, group, TOPIC) as ours,
            Player(brokers.theirs, told.clients, group, TOPIC) as theirs,
        ):
            difference = first_difference(ours, theirs, turns)
        return difference.found if difference else ()

    reduced = reduce(seed, told.turns, found)
    if reduced:
        shown = [*told.clients.values(), *reduced[0]]
        pytest.fail(report(seed, shown, reduced[1]))


def play_requests(brokers: Brokers, world: str, steps: Sequence[Step]) -> Found:
    """What differs in the answers, and is not explained."""
    cases = {case.name: case for step in steps for case in step}
    ours = Runner(brokers.ours).run(list(cases.values()))
    theirs = Runner(brokers.theirs).run(list(cases.values()))
    for each in (brokers.ours, brokers.theirs):
        Runner(each).run(last(world))
    return differing(cases, ours, theirs)


def differing(
    cases: Mapping[str, Case], ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Found:
    """What is not explained of how the answers to the cases differ."""
    found = []
    for name, answer in theirs.items():
        if name not in cases:
            continue
        for path, mine, its in compare(ours[name], answer):
            api = cases[name].api
            if not any(each.explains(api, path, mine, its) for each in DIFFERENCES):
                found.append((f"{name}: {path}", mine, its))
    return found


def reduce(
    seed: int, parts: Sequence[Any], found: Callable[[Sequence[Any]], Found]
) -> tuple[Sequence[Any], Found] | None:
    """The shortest of the parts that differ and what differs, if it does so twice."""
    first = found(parts)
    if not first:
        return None
    again = found(parts)
    if not again:
        print(f"seed {seed}: differed once and not again: {pformat(first)}")
        return None
    least = shortest(parts, lambda rest: bool(found(rest)))
    return least, found(least) or again


def report(seed: int, parts: Sequence[Any], found: Found) -> str:
    """What a failure says."""
    lines = [f"seed {seed}: this differs:", *map(pformat, parts), "", *lines_of(found)]
    return "\n".join(lines)


def lines_of(found: Found) -> list[str]:
    """A line for each difference."""
    return [f"{path}: {mine!r:.300} instead of {its!r:.300}" for path, mine, its in found]
