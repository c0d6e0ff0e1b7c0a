"""Runs seeds, and says what a failing one did."""

import gc
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sim.broker import thaw
from sim.checker import ViolationError
from sim.trace import Trace
from sim.world import World

SEEDS_A_COLLECTION = 50
"""What was frozen and thawed again does not count as new, so that no full collection would come
by itself: 20 MB a second of worlds that are over."""


class Failure(NamedTuple):
    """A seed that violates an invariant."""

    seed: int
    violation: ViolationError
    text: str
    """The steps that led there, the violation, and the command that repeats it."""


def run_seed(seed: int, trace: Trace, seen: Counter[str] | None = None) -> ViolationError | None:
    """One simulation; the violation that ends it, if one does. `seen` counts what happened."""
    world = World(seed, trace)
    try:
        world.run()
    except ViolationError as violation:
        return violation
    except Exception:  # noqa: BLE001 - of the product or of the model, it ends the seed
        return ViolationError("no exception", traceback.format_exc())
    finally:
        thaw()
        if seen is not None:
            seen.update(world.seen)
    return None


def run_seeds(
    seeds: Iterable[int], planted: str = "", seen: Counter[str] | None = None
) -> Iterator[Failure]:
    """The failures among simulations. `planted` names a bug that is in place."""
    for count, seed in enumerate(seeds, 1):
        if run_seed(seed, Trace(is_on=False), seen) is not None:
            yield told_failure(seed, planted)
        if count % SEEDS_A_COLLECTION == 0:
            gc.collect()


def told_failure(seed: int, planted: str = "") -> Failure:
    """Runs a seed that fails once more, for its trace."""
    trace = Trace(is_on=True)
    violation = run_seed(seed, trace)
    if violation is None:
        raise AssertionError(f"seed {seed} does not fail again: something in it is not determined")
    bug = f" PLANTED={planted}" if planted else ""
    lines = [
        f"seed {seed}",
        *trace.trimmed(violation.subject),
        f"{violation}",
        f"again: make sim SEED={seed}{bug}",
    ]
    return Failure(seed, violation, "\n".join(lines))


def first_failing_seed(seeds: Iterable[int]) -> tuple[int, ViolationError] | None:
    """The first of the seeds that violates an invariant."""
    for seed in seeds:
        violation = run_seed(seed, Trace(is_on=False))
        if violation is not None:
            return seed, violation
    return None
