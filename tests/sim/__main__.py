"""Runs simulations: `python -m sim --seed 7`, or `python -m sim --seeds 20000` (`make sim`).

A seed that violates an invariant is run once more, with its trace, which ends in the violation and
the command that repeats it. The exit code is 1 then.
"""

import argparse
import sys
import time
from collections import Counter
from contextlib import nullcontext

from sim.planted import PLANTED
from sim.run import Failure, run_seed, run_seeds
from sim.trace import Trace


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed, with all its steps")
    parser.add_argument("--seeds", type=int, default=500, help="so many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--planted", choices=sorted(PLANTED), help="with a bug")
    arguments = parser.parse_args()
    planted = PLANTED[arguments.planted]() if arguments.planted else nullcontext()
    started = time.process_time()
    with planted:
        if arguments.seed is not None:
            violation = run_seed(arguments.seed, Trace(is_on=True, prints=True))
            print(f"\n{violation or 'every invariant holds'}")
            return int(violation is not None)
        failures: list[Failure] = []
        seen: Counter[str] = Counter()
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        for failure in run_seeds(seeds, arguments.planted or "", seen):
            failures.append(failure)
            print(f"{failure.text}\n", flush=True)
    print("; ".join(f"{what}: {count}" for what, count in sorted(seen.items())))
    seconds = time.process_time() - started
    print(f"{arguments.seeds} seeds, {len(failures)} failed, {seconds:.0f} s of CPU")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
