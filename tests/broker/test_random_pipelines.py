"""Random clients against a broker with two log directories and little memory (`pipelines.py`),
one of which may be frozen, or give nothing that is to be read, now and then."""

import random
import socket
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

import kafkalite
from broker.pipelines import BOUND_S, Client, Pipelines
from faults.held_reads import HeldReads
from faults.mount import Mount

SHORT_S, LONG_S = 2.0, 6.0
LONG_SEEDS = range(100, 116)


class Fault(NamedTuple):
    """What befalls the second directory."""

    begin: Callable[[], object]
    end: Callable[[], object]


NONE = Fault(lambda: None, lambda: None)


def let_loose(
    seed: int, directories: list[Path], seconds: float, fault: Fault | None = None
) -> None:
    """Without a fault the reads of the second directory are held."""
    choose = random.Random(seed)
    config = {
        "log.dirs": ",".join(map(str, directories)),
        "num.network.threads": choose.choice("12"),
        "kafkalite.acks.fsync": choose.choice(["none", "group"]),
        "queued.max.request.bytes": choose.choice(["300000", "4000000", "-1"]),
        "num.partitions": "2",
        "offsets.topic.num.partitions": "4",
    }
    count = choose.choice([3, 10, 20])
    idle_s = choose.choice([1.5, 600.0])
    config["connections.max.idle.ms"] = str(int(1000 * idle_s))
    with ExitStack() as stack:
        broker = stack.enter_context(kafkalite.Broker(config=config))
        Pipelines.prepare(broker.bootstrap_servers)
        if fault is None:
            assert broker.stop() == 0
            logs = [each for name in ("a-*", "b-*", "big-*") for each in directories[1].glob(name)]
            reads = stack.enter_context(HeldReads(*logs))
            broker.start()
            fault = Fault(reads.hold, reads.release)
        pipelines = Pipelines(broker.bootstrap_servers, seed, count, idle_s)
        stack.callback(pipelines.close)
        faults = now_and_then(fault, choose)
        try:
            pipelines.run(seconds, lambda: next(faults))
        finally:
            faults.close()
        pipelines.drain()
        assert pipelines.answers > 0
        assert broker.stop() == 0


def now_and_then(fault: Fault, choose: random.Random) -> Generator[None]:
    """Looks at the clock whenever it is asked for the next one; ends the fault in the end."""
    while True:
        until = time.monotonic() + choose.uniform(0.05, 1.0)
        while time.monotonic() < until:
            yield
        fault.begin()
        try:
            until = time.monotonic() + choose.choice([0.01, 0.03, 0.3, 1.0])
            while time.monotonic() < until:
                yield
        finally:
            fault.end()


def test_the_end_of_a_connection_is_something_that_has_come() -> None:
    """The last one ended late, and all others, which were owed nothing, looked stuck."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        pipelines = Pipelines(f"{address[0]}:{address[1]}", 0, 2)
        pipelines.clients = [Client(address, random.Random(0), number) for number in range(2)]
        last, other = pipelines.clients
        last.has_ended = True
        other.moved_at -= 2 * BOUND_S
        try:
            pipelines._closed(last)
            pipelines._look_for_stuck()
        finally:
            pipelines.close()


@pytest.mark.parametrize("seed", [1, 4])
def test_every_request_is_answered_once_and_in_order(seed: int, tmp_path: Path) -> None:
    """Found: a connection that hung when a refusal with acks 0 met a request that waited, and large
    frames that waited for each other's memory."""
    let_loose(seed, [tmp_path / "one", tmp_path / "two"], SHORT_S, NONE)


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
@pytest.mark.parametrize("kind", ["sound", "freezes", "reads hang"])
def test_so_it_is_for_long_and_with_a_directory_that_does_not_answer(
    seed: int, kind: str, tmp_path: Path
) -> None:
    if kind != "freezes":
        fault = NONE if kind == "sound" else None
        let_loose(seed, [tmp_path / "one", tmp_path / "two"], LONG_S, fault)
        return
    mount = Mount(tmp_path)
    try:
        let_loose(
            seed, [tmp_path / "one", mount.path / "logs"], LONG_S, Fault(mount.freeze, mount.thaw)
        )
    finally:
        mount.unmount()
