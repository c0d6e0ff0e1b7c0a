"""Transactions in a simulated world, seed by seed: no invariant is violated whatever clients, the
network and the power do, and each planted bug is found (`make sim` runs more)."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from kafkalite.transactions.states import STATE_NAMES
from sim.checker import ViolationError
from sim.faults import FAULTS
from sim.planted import PLANTED
from sim.run import first_failing_seed, run_seed, run_seeds, told_failure
from sim.trace import Trace

SEEDS = 500
SEEDS_LONG = 20_000
SEEDS_PLANTED = 500
"""Among so many seeds each planted bug is found."""
INVARIANTS = {"T1", "T2", "T3", "T4", "T5", "T6", "T7"}
USUAL = {
    *(f"record {each}" for each in (*STATE_NAMES, "marker", "tombstone")),
    *(f"death in {each}" for each in STATE_NAMES),
    *(f"fault {each}" for each in FAULTS),
    *(
        f"attempt that {each}"
        for each in ("is unknown", "was aborted", "was committed", "was left")
    ),
    "loss of what was not on disk",
    *(f"InitProducerId answered {code}" for code in (0, 14, 51, 90)),
    *(f"AddPartitionsToTxn answered {code}" for code in (0, 14, 51, 90)),
    *(f"AddOffsetsToTxn answered {code}" for code in (0, 14, 51, 90)),
    *(f"Produce answered {code}" for code in (0, 19, 45, 47, 48, 51, 120)),
    *(f"TxnOffsetCommit answered {code}" for code in (0, 14, 47, 51, 120)),
    *(f"EndTxn answered {code}" for code in (0, 14, 48, 49, 51, 90)),
}
"""Each of these happens, or the simulation has gone to sleep."""
TESTS = Path(__file__).resolve().parent.parent


def digest_of(seeds: range) -> str:
    """Stands for every step of the seeds."""
    digest = hashlib.sha256()
    for seed in seeds:
        trace = Trace(is_on=True)
        run_seed(seed, trace)
        digest.update("\n".join(trace.lines()).encode())
    return digest.hexdigest()


def hold_for(seeds: range) -> None:
    """Fails with the steps of the first seed that violates an invariant."""
    seen: Counter[str] = Counter()
    for failure in islice(run_seeds(seeds, seen=seen), 1):
        pytest.fail(failure.text, pytrace=False)
    assert not USUAL - seen.keys()


def test_every_invariant_holds() -> None:
    hold_for(range(SEEDS))


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_every_invariant_holds_for_many_seeds() -> None:
    hold_for(range(SEEDS, SEEDS_LONG))


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_is_found(name: str) -> None:
    """By an invariant: an exception that the bug leads to counts for nothing."""
    with PLANTED[name]():
        found = (run_seed(seed, Trace(is_on=False)) for seed in range(SEEDS_PLANTED))
        assert any(each is not None and each.invariant in INVARIANTS for each in found)


def test_a_failure_tells_its_steps_and_how_to_repeat_it() -> None:
    name = "same_epoch_marker"
    with PLANTED[name]():
        found = first_failing_seed(range(SEEDS_PLANTED))
        assert found is not None
        seed, violation = found
        failure = told_failure(seed, name)
    assert isinstance(violation, ViolationError)
    lines = failure.text.splitlines()
    assert lines[0] == f"seed {seed}"
    assert lines[-1] == f"again: make sim SEED={seed} PLANTED={name}"
    assert lines[-2] == str(violation) == str(failure.violation)
    assert any("marker" in line for line in lines[1:-2])


def test_a_seed_stands_for_the_same_steps_in_every_process() -> None:
    seeds = range(12)
    script = f"from sim.test_simulation import digest_of; print(digest_of({seeds!r}))"
    told = {digest_of(seeds)}
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        paths = [str(TESTS), *(each for each in sys.path if each)]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        ended = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
        told.add(ended.stdout.strip())
    assert len(told) == 1
