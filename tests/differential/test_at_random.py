"""Requests, groups and transactions at random, to kafkalite and to Apache Kafka: equal answers.

A few seeds in `make test`; the long tests go on from another one for a while:

    DIFFERENTIAL_SECONDS=600 DIFFERENTIAL_SEED=5000 pytest -m long tests/differential

A failure names its seed and the shortest part of the sequence that still differs, as far as it is
found in `SHORTENS_S`. A difference must show each time that it is looked for: both brokers do much
beside the requests, sessions end by time, and what does not come again is printed only.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest

import kafkalite
from api.raw import Connection
from differential import random_transactions
from differential.cases.groups import COORDINATORS
from differential.differences import DIFFERENCES
from differential.group_player import Difference, Found, Player, first_difference
from differential.random_groups import Turn, story
from differential.random_requests import Step, last, sequence, started_again
from differential.random_transactions import OWN_EPOCHS, STYLES, Act
from differential.runner import Runner, compare
from differential.script import Case, appears, create
from differential.shortest import shortest
from differential.transaction_player import TransactionPlayer, difference_of_transactions
from kafkalite.protocol import messages
from oracle.broker import DEFAULTS, KafkaBroker
from oracle.tools import KafkaTools

pytestmark = pytest.mark.oracle

CONTROLLER = ("process.roles", "controller.listener.names")
OURS = {key: value for key, value in DEFAULTS.items() if key not in CONTROLLER}
TOPIC = "at-random"
REQUESTS, TURNS, ACTS = 40, 25, 25
UPGRADE, SAFE_DOWNGRADE = 1, 2
OWN_EPOCHS_SINCE = 2
"""The `transaction.version`."""
RESTARTED = 8
START_OFFSETS_NOTED = (
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
)
SECONDS = int(os.environ.get("DIFFERENTIAL_SECONDS", "60"))
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "1000"))
SHORTENS_S = 150.0
PLAYS = 4
"""So often must a difference show, on a machine that may be busy."""
LONG = pytest.mark.timeout(SECONDS + SHORTENS_S + 120)


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


# The last: a member learned what had become of its JoinGroups in another order than at Kafka.
@pytest.mark.parametrize("seed", [*range(1, 9), 60_019])
def test_groups_at_random_go_as_in_kafka(brokers: Brokers, seed: int) -> None:
    check_groups(brokers, seed)


@pytest.mark.parametrize("seed", range(1, 61))
def test_transactions_at_random_go_as_in_kafka(brokers: Brokers, seed: int) -> None:
    check_transactions(brokers, seed)


@pytest.fixture(params=[0, 1])
def brokers_of_before(brokers: Brokers, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    """Both finalise an older `transaction.version` for a while."""
    both = brokers.ours, brokers.theirs
    for each in both:
        finalise(each, request.param)
    yield brokers
    for each in both:
        finalise(each, OWN_EPOCHS_SINCE)


@pytest.mark.parametrize("seed", range(101, 111))
def test_transactions_of_older_versions_go_as_in_kafka(
    brokers_of_before: Brokers, seed: int
) -> None:
    check_transactions(brokers_of_before, seed, [each for each in STYLES if each != OWN_EPOCHS])


@pytest.mark.long
@LONG
def test_many_transactions_at_random_go_as_in_kafka(brokers: Brokers) -> None:
    go_on(lambda seed: check_transactions(brokers, seed))


@pytest.mark.long
@LONG
def test_many_requests_at_random_are_answered_as_by_kafka(brokers: Brokers) -> None:
    go_on(lambda seed: check_requests(brokers, seed))


@pytest.mark.long
@LONG
def test_many_groups_at_random_go_as_in_kafka(brokers: Brokers) -> None:
    go_on(lambda seed: check_groups(brokers, seed))


@pytest.mark.long
@LONG
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_brokers_that_start_again_go_on_as_kafka_does(
    kafka_tools: KafkaTools, tmp_path: Path, how: str
) -> None:
    """Sequences to their middle, a new start of both brokers, the rest of the sequences."""
    noted = dict.fromkeys(START_OFFSETS_NOTED, "500")
    config = {**OURS, **noted, "kafkalite.acks.fsync": "none"}
    directories = tmp_path / "ours", tmp_path / "theirs"
    with (
        kafkalite.Broker(directories[0], config=config) as ours,
        KafkaBroker(kafka_tools, tmp_path, log_dirs=directories[1:], properties=noted) as theirs,
    ):
        brokers = Brokers(ours.bootstrap_servers, theirs.bootstrap_servers)
        halves = [Halves(brokers, seed) for seed in range(SEED, SEED + RESTARTED)]
        for each in halves:
            each.play_first()
        if how == "stopped":
            for broker in (ours, theirs):
                broker.stop()
                broker.start()
        else:
            for directory in directories:
                wait_until_start_offsets_are_noted(directory)
            # A kill costs Kafka's partitions two leader epochs, and kafkalite's one.
            for broker in (ours, ours, theirs):
                broker.kill()
                broker.start()
        for each in halves:
            each.play_second()
    assert not (found := [line for each in halves for line in each.found()]), "\n".join(found)


def wait_until_start_offsets_are_noted(directory: Path) -> None:
    """What DeleteRecords has done since is forgotten after a kill, in Kafka too."""
    file = directory / "log-start-offset-checkpoint"
    for _ in range(2):  # the first may have been begun before
        before = file.stat().st_mtime_ns
        deadline = time.monotonic() + 60
        while file.stat().st_mtime_ns == before:
            assert time.monotonic() < deadline, f"{file} is not written"
            time.sleep(0.02)  # polls the file


class Halves:
    """A sequence that is played in two parts."""

    def __init__(self, brokers: Brokers, seed: int) -> None:
        self._seed, self._world = seed, brokers.world()
        self._steps = sequence(seed, self._world, REQUESTS)
        self._runners = Runner(brokers.ours), Runner(brokers.theirs)
        self._answers: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        self._cases: list[Case] = []

    def play_first(self) -> None:
        """Up to the middle."""
        self._play(self._steps[: REQUESTS // 2])

    def play_second(self) -> None:
        """The rest, once the brokers are ready."""
        self._play([started_again(self._world), *self._steps[REQUESTS // 2 :]])

    def _play(self, steps: Sequence[Step]) -> None:
        cases = [case for step in steps for case in step]
        self._cases += cases
        for runner, answers in zip(self._runners, self._answers, strict=True):
            answers.update(runner.run(cases))

    def found(self) -> list[str]:
        """What differs, a line each."""
        found = [line for case in self._cases for line in differing(case, *self._answers)]
        return [f"seed {self._seed}: {line}" for line in lines_of(found)]


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

    def played(numbers: Sequence[int]) -> Difference | None:
        world = brokers.world()
        steps = sequence(seed, world, REQUESTS)
        return play_requests(brokers, world, [steps[0], *(steps[n] for n in numbers)])

    reduced = reduce(seed, range(1, REQUESTS + 1), played)
    if reduced:
        steps = sequence(seed, brokers.world(), REQUESTS)
        cases = [steps[number][0] for number in reduced[0]]
        shown = [(case.api, case.version, case.fields) for case in cases]
        pytest.fail(report(seed, shown, reduced[1]))


def check_groups(brokers: Brokers, seed: int) -> None:
    """Fails with the shortest part of the story that differs."""
    told = story(seed, TURNS)

    def played(turns: Sequence[Turn]) -> Difference | None:
        group = brokers.world()
        with (
            Player(brokers.ours, told.clients, group, TOPIC) as ours,
            Player(brokers.theirs, told.clients, group, TOPIC) as theirs,
        ):
            return first_difference(ours, theirs, turns)

    reduced = reduce(seed, told.turns, played)
    if reduced:
        shown = [*told.clients.values(), *reduced[0]]
        pytest.fail(report(seed, shown, reduced[1]))


def finalise(bootstrap_servers: str, level: int) -> None:
    """Moves `transaction.version`, from wherever it is; returns once the broker knows."""
    feature = "transaction.version"
    with Connection(bootstrap_servers) as connection:
        for upgrade_type in (UPGRADE, SAFE_DOWNGRADE):
            update = messages.UpdateFeaturesRequest.FeatureUpdateKey(
                feature=feature, max_version_level=level, upgrade_type=upgrade_type
            )
            request = messages.UpdateFeaturesRequest(timeout_ms=5000, feature_updates=[update])
            if not connection.ask("UpdateFeatures", 2, request).error_code:
                break
        software = messages.ApiVersionsRequest(
            client_software_name="t", client_software_version="1"
        )
        deadline = time.monotonic() + 30
        while True:
            answer = connection.ask("ApiVersions", 4, software)
            known = {each.name: each.max_version_level for each in answer.finalized_features}
            if known.get(feature, 0) == level:
                return
            assert time.monotonic() < deadline, known
            time.sleep(0.02)  # polls the broker


def check_transactions(brokers: Brokers, seed: int, styles: Sequence[str] = tuple(STYLES)) -> None:
    """Fails with the shortest part of the story that differs."""
    told = random_transactions.story(seed, ACTS, styles)

    def played(acts: Sequence[Act]) -> Difference | None:
        world = brokers.world()
        seen = [
            TransactionPlayer(each, told.clients, world).play(acts)
            for each in (brokers.ours, brokers.theirs)
        ]
        return difference_of_transactions(*seen)

    reduced = reduce(seed, told.acts, played)
    if reduced:
        pytest.fail(report(seed, [*told.clients.values(), *reduced[0]], reduced[1]))


def play_requests(brokers: Brokers, world: str, steps: Sequence[Step]) -> Difference | None:
    """What differs in the answers, and is not explained; the first step makes the world."""
    cases = {case.name: case for step in steps for case in step}
    ours = Runner(brokers.ours).run(list(cases.values()))
    theirs = Runner(brokers.theirs).run(list(cases.values()))
    for each in (brokers.ours, brokers.theirs):
        Runner(each).run(last(world))
    for number, step in enumerate(steps):
        found = [line for case in step for line in differing(case, ours, theirs)]
        if found:
            return Difference(max(number - 1, 0), found)
    return None


def differing(case: Case, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Found:
    """What is not explained of how the answers to the case differ."""
    return [
        (f"{case.name}: {path}", mine, its)
        for path, mine, its in compare(ours[case.name], theirs[case.name])
        if not any(each.explains(case.api, path, mine, its) for each in DIFFERENCES)
    ]


def reduce(
    seed: int, parts: Sequence[Any], played: Callable[[Sequence[Any]], Difference | None]
) -> tuple[Sequence[Any], Found] | None:
    """The shortest of the parts that differ and what differs, if it does so each time."""
    for _ in range(PLAYS):
        again = played(parts)
        if again is None:
            return None
        print(f"seed {seed}: part {again.turn} differs:", *lines_of(again.found), sep="\n")
    deadline = time.monotonic() + SHORTENS_S
    least = shortest(
        parts[: again.turn + 1],
        lambda rest: time.monotonic() < deadline and played(rest) is not None,
    )
    return least, (played(least) or again).found


def report(seed: int, parts: Sequence[Any], found: Found) -> str:
    """What a failure says."""
    return "\n".join([f"seed {seed}: this differs:", *map(pformat, parts), "", *lines_of(found)])


def lines_of(found: Found) -> list[str]:
    """A line for each difference."""
    return [f"{path}: {mine!r:.300} instead of {its!r:.300}" for path, mine, its in found]
