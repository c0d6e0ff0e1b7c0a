"""The judges of these tests are judged: what they are to find is planted, and found."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.brokers import BACK_S, Cluster, Kind
from cluster.nemesis import World
from cluster.play import REPLICAS
from cluster.replicas import CHECKPOINT, HEADER, PREFIX_BYTES, batches, difference, leader_epochs
from faults.proxy import Mode, Proxy
from faults.verify import check
from faults.workload import Recorder, Workload, read_everything
from replication.nodes import wait_until

# --- the comparison of replicas -------------------------------------------------------------------


def batch(base_offset: int, epoch: int, payload: bytes = b"records") -> bytes:
    length = HEADER.size - PREFIX_BYTES + len(payload)
    return HEADER.pack(base_offset, length, epoch, 2, 0xABCD) + payload


def replica(folder: Path, segments: Sequence[bytes], epochs: Sequence[tuple[int, int]]) -> Path:
    folder.mkdir(parents=True)
    at = 0
    for each in segments:
        (folder / f"{at:020}.log").write_bytes(each)
        at += 1000
    rows = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
    (folder / CHECKPOINT).write_text(f"0\n{len(epochs)}\n{rows}")
    return folder


EPOCHS = [(0, 0), (3, 7)]
BATCHES = [batch(0, 0), batch(5, 0, b"more"), batch(7, 3), batch(1000, 3)]
WHOLE = [b"".join(BATCHES[:3]), BATCHES[3]]


def test_equal_replicas_are_equal_however_they_are_cut_into_segments(tmp_path: Path) -> None:
    ours = replica(tmp_path / "1", WHOLE, EPOCHS)
    theirs = replica(tmp_path / "2", [b"".join(BATCHES)], EPOCHS)
    assert [each.base_offset for each in batches(ours)] == [0, 5, 7, 1000]
    assert difference({1: ours, 2: theirs}, 1001) is None


@pytest.mark.parametrize(
    ("segments", "epochs", "finding"),
    [
        (
            [batch(0, 0, b"Records") + BATCHES[1] + BATCHES[2], BATCHES[3]],
            EPOCHS,
            "broker 1 has batch 0 (epoch 0, CRC 0000abcd, 28 bytes), broker 2 0 (epoch 0",
        ),
        ([BATCHES[0] + BATCHES[2], BATCHES[3]], EPOCHS, "broker 1 has batch 5"),
        ([WHOLE[0]], EPOCHS, "broker 2 None"),
        ([WHOLE[0], batch(1000, 4)], EPOCHS, "broker 2 1000 (epoch 4"),
        ([WHOLE[0], BATCHES[3][:-1]], EPOCHS, "broker 2 None"),
        (WHOLE, [(0, 0), (3, 5)], "leader epochs: broker 1 has [(0, 0), (3, 7)], broker 2 [(0"),
        (WHOLE, [(0, 0)], "leader epochs"),
    ],
)
def test_what_differs_below_the_high_watermark_is_named(
    segments: list[bytes], epochs: list[tuple[int, int]], finding: str, tmp_path: Path
) -> None:
    ours = replica(tmp_path / "1", WHOLE, EPOCHS)
    theirs = replica(tmp_path / "2", segments, epochs)
    assert finding in (difference({1: ours, 2: theirs}, 1001) or "")


def test_what_lies_above_the_high_watermark_may_differ(tmp_path: Path) -> None:
    ours = replica(tmp_path / "1", WHOLE, [*EPOCHS, (4, 1001)])
    theirs = replica(tmp_path / "2", [WHOLE[0]], EPOCHS)
    assert difference({1: ours, 2: theirs}, 1000) is None
    assert leader_epochs(ours, 1000) == EPOCHS
    nothing = replica(tmp_path / "3", [b""], [])
    assert difference({1: nothing, 2: nothing}, 5) == "no batch below the high watermark 5"


# --- the network ----------------------------------------------------------------------------------


@contextmanager
def echo() -> Iterator[str]:
    """A server that sends back what it gets."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionResetError):  # the proxy ends so
            while data := connection.recv(65_536):
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def request(client_id: str) -> bytes:
    name = client_id.encode()
    body = struct.pack(">hhih", 18, 3, 1, len(name)) + name
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("mode", [Mode.STALL, Mode.MUTE, Mode.DEAF])
def test_one_peer_is_cut_off_and_the_others_are_not(mode: Mode) -> None:
    ours, theirs = request("broker-1-fetcher-0"), request("broker-12-fetcher-0")
    with echo() as target, Proxy(0) as proxy:
        proxy.target = target
        host, port = proxy.address.split(":")
        with (
            socket.create_connection((host, int(port)), timeout=20) as cut,
            socket.create_connection((host, int(port)), timeout=20) as whole,
        ):
            proxy.set(mode, "broker-1-")
            cut.sendall(ours)
            whole.sendall(theirs)
            assert whole.recv(1000) == theirs
            cut.settimeout(0.5)
            with pytest.raises(TimeoutError):
                cut.recv(1000)
            proxy.set(Mode.ON, "broker-1-")
            cut.settimeout(20)
            assert cut.recv(1000) == ours


# --- what was seen --------------------------------------------------------------------------------


def lose_what_followers_lack(world: World) -> None:
    """A leader that answers before its followers have a record, and then is no more."""
    leader = world.leader()
    with leader.link(Mode.STALL, world.cluster.members.values()):
        world.stay(1.0, 1.0)
        leader.kill()
    wait_until(lambda: world.leader() is not leader, BACK_S)
    leader.start()


@pytest.mark.oracle
def test_answers_before_the_followers_have_a_record_are_found_out(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.become(*[Kind.KAFKA] * 3)
    recorder = Recorder("of-a-liar")
    world = World(cluster, recorder.topic, 0)
    load = {"idempotence": [False] * 2, "replicas": REPLICAS, "acks": "1"}
    with Workload(cluster.servers, recorder, 0, **load):  # type: ignore[arg-type]
        recorder.wait_until(lambda: recorder.commits > 0, BACK_S, "a first commit")
        cluster.wait_for_isr(recorder.topic)
        recorder.meet(lose_what_followers_lack, world)
        recorder.wait_for_more(100, BACK_S, "after a lie")
    read_everything(cluster.servers, recorder, BACK_S)
    recorder.save(tmp_path / "history.jsonl")
    findings = check([replace(each, is_idempotent=False) for each in recorder.operations])
    assert "was acknowledged at offset" in "\n".join(findings)
    with cluster.admin() as admin:
        admin.delete_topics(recorder.topic)
