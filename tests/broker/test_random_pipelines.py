"""Random clients against a broker with two log directories and little memory (`pipelines.py`)."""

import random
import time
from collections.abc import Generator
from pathlib import Path

import pytest

import kafkalite
from broker.pipelines import Pipelines
from faults.mount import Mount

SHORT_S, LONG_S = 2.0, 6.0
LONG_SEEDS = range(100, 116)


def let_loose(
    seed: int, directories: list[Path], seconds: float, mount: Mount | None = None
) -> None:
    choose = random.Random(seed)
    config = {
        "log.dirs": ",".join(map(str, directories)),
        "num.network.threads": choose.choice("12"),
        "kafkalite.acks.fsync": choose.choice(["none", "group"]),
        "queued.max.request.bytes": choose.choice(["300000", "4000000", "-1"]),
        "num.partitions": "2",
        "offsets.topic.num.partitions": "4",
    }
    with kafkalite.Broker(config=config) as broker:
        Pipelines.prepare(broker.bootstrap_servers)
        pipelines = Pipelines(broker.bootstrap_servers, seed, choose.choice([3, 10, 20]))
        freezes = None if mount is None else freeze_now_and_then(mount, choose)
        try:
            pipelines.run(seconds, lambda: next(freezes) if freezes else None)
        finally:
            if freezes is not None:
                freezes.close()
        pipelines.drain()
        assert pipelines.answers > 0
        assert broker.stop() == 0


def freeze_now_and_then(mount: Mount, choose: random.Random) -> Generator[None]:
    """Looks at the clock whenever it is asked for the next one; thaws in the end."""
    while True:
        until = time.monotonic() + choose.uniform(0.05, 1.0)
        while time.monotonic() < until:
            yield
        mount.freeze()
        try:
            until = time.monotonic() + choose.choice([0.01, 0.03, 0.3, 1.0])
            while time.monotonic() < until:
                yield
        finally:
            mount.thaw()


@pytest.mark.parametrize("seed", [1, 4])
def test_every_request_is_answered_once_and_in_order(seed: int, tmp_path: Path) -> None:
    """Found: a connection that hung when a refusal with acks 0 met a request that waited, and large
    frames that waited for each other's memory."""
    let_loose(seed, [tmp_path / "one", tmp_path / "two"], SHORT_S)


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
@pytest.mark.parametrize("freezes", [False, True])
def test_so_it_is_for_long_and_with_a_directory_that_freezes(
    seed: int, freezes: bool, tmp_path: Path
) -> None:
    if not freezes:
        let_loose(seed, [tmp_path / "one", tmp_path / "two"], LONG_S)
        return
    mount = Mount(tmp_path)
    try:
        let_loose(seed, [tmp_path / "one", mount.path / "logs"], LONG_S, mount)
    finally:
        mount.unmount()
