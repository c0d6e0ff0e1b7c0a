"""Clients go on while a broker is killed, paused, cut off and robbed of its disk; what they saw is
judged by verify.py. And the judge is tried itself: a broker with a planted bug is found out.

A run keeps its history in its temporary directory.
"""

import contextlib
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import kafkalite
from faults import nemesis
from faults.holdings import holdings, holdings_at_rest
from faults.mount import Mount
from faults.nemesis import Fault, World
from faults.proxy import Mode, Proxy
from faults.verify import FINAL, Holdings, Operation, Outcome, check, check_process
from faults.workload import (
    PARTITIONS,
    TOPIC,
    ClientDiedError,
    Recorder,
    Workload,
    name_of_value,
    read_everything,
)
from kafkalite.cli.log import verify as log_verify
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from ports import free_ports

HISTORY = "history.jsonl"
BACK_S = 90.0
"""Within this time after a fault records are acknowledged again."""
LIAR_BACK_S = 20.0
RECORDS_BETWEEN_FAULTS = 300
FAULTS_SHORT, FAULTS_LONG = 10, 40
KEPT_BY_KAFKA_MAX = Holdings(sockets=8, files=200, others=200, threads=60)
"""Its virtual machine opens and starts as it sees fit."""
CONFIG = {
    "num.partitions": str(PARTITIONS),
    "log.segment.bytes": str(1 << 20),
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
}


def kept_max(log_dirs: Sequence[Path]) -> Holdings:
    """What kafkalite opens for clients and keeps: their segments, each once, and threads that stand
    in for those which a hung directory held (`SPARE_THREADS_MAX`, and a gate of each kind)."""
    segments = sum(1 for log_dir in log_dirs for _ in log_dir.glob("*/*.log"))
    return Holdings(sockets=0, files=segments, others=0, threads=4 + 5 * len(log_dirs))


def kafkalite_behind(
    proxy: Proxy, log_dirs: Sequence[Path], config: Mapping[str, str] | None = None
) -> kafkalite.Broker:
    """A broker whose clients are told the proxy's address."""
    proxy.target = f"127.0.0.1:{free_ports(1)[0]}"
    listeners = {
        "listeners": f"PLAINTEXT://{proxy.target}",
        "advertised.listeners": f"PLAINTEXT://{proxy.address}",
        "log.dirs": ",".join(map(str, log_dirs)),
    }
    return kafkalite.Broker(listen=None, config={**CONFIG, **listeners, **(config or {})})


def run(
    world: World,
    seed: int,
    faults: Sequence[Fault],
    folder: Path,
    sockets_kept: int = 0,
) -> list[Operation]:
    """All clients through all faults, until everything has healed and been read; the history."""
    recorder = Recorder()
    try:
        first = note_holdings(world, recorder, "before it has clients")
        with Workload(world.proxy.address, recorder, seed) as workload:
            go_through(faults, world, recorder)
            workload.drain(BACK_S)
        last = holdings_at_rest(world.broker.pid, first.sockets + sockets_kept, BACK_S)
        recorder.add(holdings_operation(FINAL, last, "after its clients have gone"))
    finally:
        recorder.save(folder / HISTORY)
    return recorder.operations


def go_through(faults: Sequence[Fault], world: World, recorder: Recorder) -> None:
    """One fault after the other, once all clients have come back from the one before."""
    recorder.wait_until(lambda: recorder.commits > 0, BACK_S, "a first commit")
    wait_for_all(recorder, BACK_S, "after the start")
    note_holdings(world, recorder, "after the start")
    for fault in faults:
        recorder.meet(fault, world)
        wait_for_all(recorder, BACK_S, f"after {fault.__name__}")
        note_holdings(world, recorder, f"after {fault.__name__}")


def wait_for_all(recorder: Recorder, back_s: float, when: str) -> None:
    """Producers and observer; whether readers have read everything is seen in the end."""
    recorder.wait_for_more(RECORDS_BETWEEN_FAULTS, back_s, when)
    recorder.wait_for_looks(back_s, when)


def note_holdings(world: World, recorder: Recorder, when: str) -> Holdings:
    found = holdings(world.broker.pid)
    recorder.add(holdings_operation("nemesis", found, when))
    return found


def holdings_operation(process: str, found: Holdings, when: str) -> Operation:
    now = time.monotonic()
    return Operation(process, "holdings", Outcome.OK, now, now, "", value=when, holdings=found)


def check_files(
    history: list[Operation], log_dirs: Sequence[Path], kafka_tools: KafkaTools
) -> None:
    """The files of a stopped broker have what the last reader was given, by three other readers."""
    assert log_verify.run([str(each) for each in log_dirs]) == 0
    partitions = [each for log_dir in log_dirs for each in log_dir.glob(f"{TOPIC}-*")]
    assert len(partitions) == PARTITIONS
    for partition in partitions:
        served = {
            each.offset: each.value
            for each in history
            if (each.process, each.name, each.partition) == (FINAL, "read", partition.name)
        }
        rows = kafkalite.read_log(partition, columns=["offset", "value"]).to_pyarrow().to_pylist()
        assert {row["offset"]: name_of_value(row["value"]) for row in rows} == served
        dump = kafka_tools.dump_log(sorted(partition.glob("*.log")), deep_iteration=True)
        assert not dump.findings
        assert len(dump.records) == len(served)


def one_of(seed: int, faults: Sequence[Fault], count: int) -> list[Fault]:
    """Each once in a drawn order, then drawn ones."""
    draw = random.Random(seed)
    first = draw.sample(faults, len(faults))
    return [*first, *draw.choices(faults, k=max(0, count - len(first)))]


SEEDS = [pytest.param(0), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 11))]


@pytest.mark.oracle
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept_through_every_fault(
    seed: int, tmp_path: Path, mounts: list[Mount], kafka_tools: KafkaTools
) -> None:
    nemesis.need_strace()
    log_dirs = [each.path / "logs" for each in mounts]
    everything = nemesis.ANYWHERE + nemesis.WITH_STRACE + nemesis.WITH_MOUNTS
    faults = one_of(seed, everything, FAULTS_LONG if seed else FAULTS_SHORT)
    with Proxy(seed) as proxy, kafkalite_behind(proxy, log_dirs) as broker:
        world = World(broker, proxy, log_dirs, mounts, seed)
        history = run(world, seed, faults, tmp_path)
        assert check(history) + check_process(history, kept_max(log_dirs)) == []
        assert broker.stop() == 0
        check_files(history, log_dirs, kafka_tools)


def test_promises_are_kept_where_nothing_may_be_mounted_or_traced(tmp_path: Path) -> None:
    log_dirs = [tmp_path / "first", tmp_path / "second"]
    with Proxy(0) as proxy, kafkalite_behind(proxy, log_dirs) as broker:
        world = World(broker, proxy, log_dirs, [], 0)
        history = run(world, 0, one_of(0, nemesis.ANYWHERE, 3), tmp_path)
        assert check(history) + check_process(history, kept_max(log_dirs)) == []


def test_a_client_that_dies_ends_the_run_and_is_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told after the last reader, or not at all where something else was missed before."""

    def die(_: Workload) -> None:
        raise ValueError("of this")

    monkeypatch.setattr(Workload, "_read", die)
    with Proxy(0) as proxy, kafkalite_behind(proxy, [tmp_path / "logs"]) as broker:
        world = World(broker, proxy, [tmp_path / "logs"], [], 0)
        with pytest.raises(ClientDiedError, match=r"reader died: ValueError\('of this'\)"):
            run(world, 0, [lambda _: pytest.fail("the run went on")], tmp_path)


@pytest.mark.long
@pytest.mark.oracle
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_apache_kafka_keeps_the_same_promises(
    seed: int, tmp_path: Path, kafka_tools: KafkaTools
) -> None:
    """The control: what is asked of kafkalite holds for Kafka. Without power cuts, since Kafka
    acknowledges what is in the page cache."""
    with Proxy(seed) as proxy:
        properties = {**CONFIG, "advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        with KafkaBroker(kafka_tools, tmp_path, properties=properties) as broker:
            proxy.target = broker.bootstrap_servers
            world = World(broker, proxy, broker.log_dirs, [], seed)
            faults = one_of(seed, nemesis.ANYWHERE, 12)
            history = run(world, seed, faults, tmp_path, KEPT_BY_KAFKA_MAX.sockets)
            assert check(history) + check_process(history, KEPT_BY_KAFKA_MAX) == []


# A planted bug is what a broker that lies would do to its clients, played from outside.


def forget_what_was_not_flushed(world: World) -> None:
    """With `kafkalite.acks.fsync=none`: an answer before the disk has the bytes."""
    nemesis.cut_the_power(world)


def let_the_end_go_back(world: World) -> None:
    """After a crash the last batches of a partition are not there."""
    world.broker.kill()
    last = max(segments(world), key=lambda path: path.stat().st_mtime_ns)
    os.truncate(last, last.stat().st_size // 2)
    world.broker.start()


def serve_a_flipped_bit(world: World) -> None:
    """No look at a checksum: a clean stop, so that nothing is read again, and a bit in a value."""
    assert isinstance(world.broker, kafkalite.Broker)
    world.broker.stop()
    first = min(segments(world), key=lambda path: path.name)
    with first.open("r+b") as file:
        file.seek(100)
        byte = file.read(1)[0]
        file.seek(100)
        file.write(bytes([byte ^ 1]))
    world.broker.start()


def forget_the_commits(world: World) -> None:
    """After a crash the records of the groups are not there."""
    world.broker.kill()
    for home in world.log_dirs:
        for segment in home.glob("__consumer_offsets-*/*.log"):
            os.truncate(segment, 0)
    world.broker.start()


def write_again_what_was_not_answered(world: World) -> None:
    """No look at sequence numbers: answers are lost, and producers send again."""
    for _ in range(3):
        world.proxy.set(Mode.CUT)
        world.stay(1.0)
        world.proxy.set(Mode.ON)
        world.stay(1.0)


PLANTED: dict[Fault, str] = {
    forget_what_was_not_flushed: "was acknowledged at offset",
    let_the_end_go_back: "was acknowledged at offset",
    serve_a_flipped_bit: "the last reader came to offset 0, and not to the end",
    forget_the_commits: "had committed",
    write_again_what_was_not_answered: "is at the offsets",
}


def segments(world: World) -> list[Path]:
    return [each for home in world.log_dirs for each in home.glob(f"{TOPIC}-*/*.log")]


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, marks=() if bug is forget_what_was_not_flushed else pytest.mark.long)
        for bug in PLANTED
    ],
    ids=lambda bug: bug.__name__,
)
def test_a_planted_bug_is_found(bug: Fault, tmp_path: Path, mounts: list[Mount]) -> None:
    log_dirs = [each.path / "logs" for each in mounts]
    lies = {"kafkalite.acks.fsync": "none"} if bug is forget_what_was_not_flushed else {}
    is_idempotent = bug is not write_again_what_was_not_answered
    recorder = Recorder()
    with Proxy(0) as proxy, kafkalite_behind(proxy, log_dirs, lies) as broker:
        world = World(broker, proxy, log_dirs, mounts, 0)
        with Workload(proxy.address, recorder, 0, [is_idempotent] * 3):
            go_through([], world, recorder)
            recorder.meet(bug, world)
            # A client that is told what cannot be may die of it, or ask for ever.
            with contextlib.suppress(AssertionError):
                wait_for_all(recorder, LIAR_BACK_S, "after a lie")
        is_unreadable = bug is serve_a_flipped_bit
        read_everything(proxy.address, recorder, LIAR_BACK_S if is_unreadable else BACK_S)
    recorder.save(tmp_path / HISTORY)
    findings = check([replace(each, is_idempotent=True) for each in recorder.operations])
    assert PLANTED[bug] in "\n".join(findings)
    # It is not found because nobody has looked.
    unread = [each for each in findings if "the last reader" in each]
    assert len(unread) == is_unreadable, unread
