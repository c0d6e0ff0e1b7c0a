"""Consume, transform, produce: workers and their broker are killed again and again, also by power
cuts, and what a `read_committed` reader finds is the source, once each record, in its order.

A run keeps its history in its temporary directory.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from faults import nemesis
from faults.copying import WORKERS, Copying
from faults.mount import Mount
from faults.nemesis import Fault, World
from faults.proxy import Proxy
from faults.test_histories import BACK_S, CONFIG, HISTORY, kafkalite_behind
from faults.verify import Outcome, check_copies
from faults.workload import Recorder

COPIES_BETWEEN_KILLS = 40
KILLS_SHORT, KILLS_LONG = 20, 200
CUTS_SHORT, CUTS_LONG = 2, 40
LONG_S = 2_400
TRANSACTIONS = {
    **CONFIG,
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@pytest.mark.parametrize(
    ("seed", "kills"),
    [(0, KILLS_SHORT), pytest.param(1, KILLS_LONG, marks=pytest.mark.long)],
)
@pytest.mark.timeout(LONG_S)
def test_every_record_is_copied_once_through_every_kill(
    seed: int, kills: int, tmp_path: Path
) -> None:
    copy_through(nemesis.kill, kills, seed, tmp_path, [tmp_path / "logs"])


@pytest.mark.parametrize(
    ("seed", "cuts"), [(2, CUTS_SHORT), pytest.param(3, CUTS_LONG, marks=pytest.mark.long)]
)
@pytest.mark.timeout(LONG_S)
def test_every_record_is_copied_once_through_power_cuts(
    seed: int, cuts: int, tmp_path: Path, mounts: list[Mount]
) -> None:
    """Coordinators, markers and records lie on two file systems, which lose what was not flushed
    of either."""
    log_dirs = [each.path / "logs" for each in mounts]
    copy_through(nemesis.cut_the_power, cuts, seed, tmp_path, log_dirs, mounts)


def copy_through(
    fault: Fault,
    count: int,
    seed: int,
    folder: Path,
    log_dirs: Sequence[Path],
    mounts: Sequence[Mount] = (),
) -> None:
    recorder = Recorder()
    with Proxy(seed) as proxy, kafkalite_behind(proxy, log_dirs, TRANSACTIONS) as broker:
        world = World(broker, proxy, log_dirs, mounts, seed)
        try:
            with Copying(proxy.address, recorder, seed, folder, "alone") as copying:
                for number in range(count):
                    copying.wait_for_copies(
                        COPIES_BETWEEN_KILLS, BACK_S, f"before {fault.__name__} {number}"
                    )
                    world.stay(0.4)
                    if world.draw.randrange(4) == 0:
                        copying.kill_worker(world.draw.randrange(WORKERS))
                        world.stay(0.2)
                    recorder.meet(fault, world)
                copying.drain(BACK_S)
        finally:
            recorder.save(folder / HISTORY)
    assert check_copies(recorder.operations, copying.names.source, copying.names.target) == []
    outcomes = {each.outcome for each in recorder.operations if each.name == "copy"}
    assert outcomes == {Outcome.OK, Outcome.FAIL}
