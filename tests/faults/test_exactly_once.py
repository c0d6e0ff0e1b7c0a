"""Consume, transform, produce: workers and their broker are killed again and again, and what a
`read_committed` reader finds is the source, once each record, in its order.

A run keeps its history in its temporary directory.
"""

from pathlib import Path

import pytest

from faults import nemesis
from faults.copier import SOURCE, TARGET
from faults.copying import WORKERS, Copying
from faults.nemesis import World
from faults.proxy import Proxy
from faults.test_histories import BACK_S, CONFIG, HISTORY, kafkalite_behind, meet
from faults.verify import Outcome, check_copies
from faults.workload import Recorder

COPIES_BETWEEN_KILLS = 40
KILLS_SHORT, KILLS_LONG = 20, 200
LONG_S = 2_400


@pytest.mark.parametrize(
    ("seed", "kills"),
    [(0, KILLS_SHORT), pytest.param(1, KILLS_LONG, marks=pytest.mark.long)],
)
@pytest.mark.timeout(LONG_S)
def test_every_record_is_copied_once_through_every_kill(
    seed: int, kills: int, tmp_path: Path
) -> None:
    config = {
        **CONFIG,
        "transaction.state.log.num.partitions": "4",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    recorder = Recorder()
    with Proxy(seed) as proxy, kafkalite_behind(proxy, [tmp_path / "logs"], config) as broker:
        world = World(broker, proxy, [tmp_path / "logs"], [], seed)
        try:
            with Copying(proxy.address, recorder, seed, tmp_path) as copying:
                for kill in range(kills):
                    copying.wait_for_copies(COPIES_BETWEEN_KILLS, BACK_S, f"before kill {kill}")
                    world.stay(0.4)
                    if world.draw.randrange(4) == 0:
                        copying.kill_worker(world.draw.randrange(WORKERS))
                        world.stay(0.2)
                    meet(nemesis.kill, world, recorder)
                copying.drain(BACK_S)
        finally:
            recorder.save(tmp_path / HISTORY)
    assert check_copies(recorder.operations, SOURCE, TARGET) == []
    outcomes = {each.outcome for each in recorder.operations if each.name == "copy"}
    assert outcomes == {Outcome.OK, Outcome.FAIL}
