"""Measures the group coordinator: commits a second, heartbeats beside them, memory a member.

    python benches/group_coordinator.py                        # starts a broker of its own
    python benches/group_coordinator.py --members 1000 --seconds 10
    python benches/group_coordinator.py --fsync none --members 0   # commits only, in the page cache

Members are connections of this process that send prepared frames and wait for each answer; on two
cores this process takes one of them. Judge by the broker's CPU per request, which is printed too.
"""

import argparse
import selectors
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from processes import cpu_s, status_kib

import kafkalite
from api.group_requests import find_coordinator, join_request
from api.raw import Connection
from kafkalite.protocol import messages


def frame(key: int, version: int, flexible: bool, body: bytes) -> bytes:
    header = struct.pack(">hhih4s", key, version, 1, 4, b"test") + (b"\0" if flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


def drive(address: tuple[str, int], frames: list[bytes], seconds: float) -> list[float]:
    """One connection a frame, sent again whenever it is answered; the latencies in seconds."""
    selector = selectors.DefaultSelector()
    for content in frames:
        opened = socket.create_connection(address)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(opened, selectors.EVENT_READ, [opened, content, 0.0])
    latencies: list[float] = []
    for key in list(selector.get_map().values()):
        key.data[2] = time.perf_counter()
        key.data[0].sendall(key.data[1])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for key, _ in selector.select(0.1):
            assert key.data[0].recv(4096)
            now = time.perf_counter()
            latencies.append(now - key.data[2])
            key.data[2] = now
            key.data[0].sendall(key.data[1])
    for key in list(selector.get_map().values()):
        key.data[0].close()
    return latencies


def paced(
    address: tuple[str, int], frames: list[bytes], seconds: float, every_s: float
) -> list[float]:
    """Each frame once every `every_s`, spread evenly over 16 connections."""
    selector = selectors.DefaultSelector()
    opened = [socket.create_connection(address) for _ in range(16)]
    for each in opened:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(each, selectors.EVENT_READ, (each, []))
    latencies: list[float] = []
    begin = time.perf_counter()
    sent = 0
    while (now := time.perf_counter()) < begin + seconds:
        while begin + sent * every_s / len(frames) <= now:
            target = opened[sent % 16]
            selector.get_key(target).data[1].append(now)
            target.sendall(frames[sent % len(frames)])
            sent += 1
        due = begin + sent * every_s / len(frames)
        for key, _ in selector.select(max(0.0, due - time.perf_counter())):
            connection, sent_at = key.data
            content = connection.recv(65536)
            for _ in range(len(content) // 14):
                latencies.append(time.perf_counter() - sent_at.pop(0))
    for each in opened:
        each.close()
    return latencies


def told(name: str, latencies: list[float], seconds: float, spent_s: float) -> None:
    latencies.sort()
    count = len(latencies)
    p50, p99 = latencies[count // 2], latencies[count * 99 // 100]
    print(
        f"{name}: {count / seconds:,.0f}/s, p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms, "
        f"{spent_s / count * 1e6:.1f} µs of the broker's CPU each"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--fsync", choices=["none", "group"], default="group")
    given = parser.parse_args()
    config = {
        "group.initial.rebalance.delay.ms": "3000",
        "kafkalite.acks.fsync": given.fsync,
    }
    with (
        tempfile.TemporaryDirectory(dir=".") as folder,
        kafkalite.Broker(folder, config=config) as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        host, port = broker.bootstrap_servers.split(":")
        address = (host, int(port))
        find_coordinator(connection, "bench")
        connection.create_topic("bench", 50)
        kind = messages.OffsetCommitRequest
        topic_kind = kind.OffsetCommitRequestTopic
        commits = []
        for index in range(50):
            partition = topic_kind.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=index, committed_metadata=""
            )
            request = kind(
                group_id="bench", topics=[topic_kind(name="bench", partitions=[partition])]
            )
            commits.append(frame(8, 9, True, request.encode(9)))
        before = cpu_s(broker.pid)
        latencies = drive(address, commits, given.seconds)
        told("50 members commit", latencies, given.seconds, cpu_s(broker.pid) - before)

        if not given.members:
            return
        begun = status_kib(broker.pid, "VmRSS")
        tokens = []
        joiners = [Connection(broker.bootstrap_servers) for _ in range(given.members)]
        subscription = b"\0\3" + messages.ConsumerProtocolSubscription(topics=["bench"]).encode(3)

        body = join_request(
            "many", protocols=(("range", subscription),), session_ms=600_000
        ).encode(3)
        began = time.perf_counter()
        for each in joiners:
            tokens.append(each.send(11, 3, body))
        answers = [each.receive(11, 3, token) for each, token in zip(joiners, tokens, strict=True)]
        joined_s = time.perf_counter() - began
        print(f"{given.members} members join: {joined_s:.2f} s, twice 3 s of it delay")
        after = status_kib(broker.pid, "VmRSS")
        print(f"memory: {(after - begun) / given.members:.2f} KiB a member and its connection")
        beats = [
            frame(
                12,
                3,
                False,
                messages.HeartbeatRequest(
                    group_id="many", generation_id=1, member_id=answer.member_id
                ).encode(3),
            )
            for answer in answers
        ]
        before = cpu_s(broker.pid)
        latencies = paced(address, beats, given.seconds, 1.0)
        name = f"{given.members} members, a heartbeat each a second"
        told(name, latencies, given.seconds, cpu_s(broker.pid) - before)
        for each in joiners:
            each.socket.close()


if __name__ == "__main__":
    main()
