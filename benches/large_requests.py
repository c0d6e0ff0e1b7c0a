"""How long one client's large request keeps others waiting, and what it takes in memory.

    python benches/large_requests.py                              # every key, 1 to 95 MB
    python benches/large_requests.py --keys "Metadata;OffsetCommit, known" --sizes 40

Frames are full of the smallest elements that a key has: partitions or topics that there are none
of, each another one; of ApiVersions, whose request has no list, tagged fields. Those of the keys
that Python answers are in `tests/api/large_messages.py`. The broker is a process of its own for
each measurement. Four other connections send a small request each every 5 ms, from another process,
which says how long one waited at most: ApiVersions, and beside a key of Python's ListGroups, which
Python answers too. Memory is the broker's peak (VmHWM) above what was resident before.
"""

import argparse
import itertools
import multiprocessing
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


from processes import cpu_s, status_kib

import kafkalite
from api import large_messages
from api.raw import KEYS, request_frame

MIB = 1 << 20
PROBE_S = 0.005
NAMES = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-_"


def uvarint(value: int) -> bytes:
    """As lengths and counts are written in flexible versions."""
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(parts) + bytes([value])


def counted(elements: Iterator[bytes], element_bytes: int, body_bytes: int) -> bytes:
    """A compact array of as many elements as make up a body of that size."""
    count = body_bytes // element_bytes
    return uvarint(count + 1) + b"".join(itertools.islice(elements, count))


def produce(size: int, transactional_id: bytes = b"\0") -> bytes:
    partitions = (struct.pack(">iBB", index, 0, 0) for index in itertools.count())
    head = transactional_id + struct.pack(">hi", 1, 1000) + uvarint(2) + b"\x02x"
    return head + counted(partitions, 6, size) + b"\0\0"


def produce_in_transaction(size: int) -> bytes:
    return produce(size, b"\x02x")


def fetch(size: int) -> bytes:
    packed = struct.Struct(">iiqiqiB").pack
    partitions = (packed(index, -1, 0, -1, -1, 1, 0) for index in itertools.count())
    head = struct.pack(">iiiibii", -1, 0, 0, 1 << 20, 0, 0, 0) + uvarint(2) + b"\x02x"
    return head + counted(partitions, 33, size) + b"\0" + uvarint(1) + b"\x01\0"


def list_offsets(size: int) -> bytes:
    packed = struct.Struct(">iiqB").pack
    partitions = (packed(index, -1, -1, 0) for index in itertools.count())
    head = struct.pack(">ib", -1, 0) + uvarint(2) + b"\x02x"
    return head + counted(partitions, 17, size) + b"\0\0"


def names() -> Iterator[bytes]:
    return (f"\x05{''.join(name)}\0".encode() for name in itertools.product(NAMES, repeat=4))


def metadata(size: int, creates: bytes = b"\0") -> bytes:
    return counted(names(), 6, size) + creates + b"\0\0\0"


def metadata_with_creation(size: int) -> bytes:
    return metadata(size, b"\1")


def tags(size: int) -> bytes:
    # They go up, as they have to.
    fields = (b"%b\0" % uvarint(tag) for tag in itertools.count(1 << 21))
    count = size // 5
    return uvarint(count) + b"".join(itertools.islice(fields, count))


def api_versions(size: int) -> bytes:
    return b"\x02x\x02x" + tags(size)


def add_offsets(size: int) -> bytes:
    return b"\x02x" + struct.pack(">qh", 1, 1) + b"\x06group" + tags(size)


def find_coordinator(size: int) -> bytes:
    return b"\0\x02\x06group" + tags(size)


REQUESTS: dict[str, tuple[int, int, Callable[[int], bytes]]] = {
    "Produce": (KEYS["Produce"], 9, produce),
    "Produce, transactional": (KEYS["Produce"], 9, produce_in_transaction),
    "Fetch": (KEYS["Fetch"], 12, fetch),
    "ListOffsets": (KEYS["ListOffsets"], 6, list_offsets),
    "Metadata": (KEYS["Metadata"], 9, metadata),
    "Metadata, creates": (KEYS["Metadata"], 9, metadata_with_creation),
    "ApiVersions": (KEYS["ApiVersions"], 3, api_versions),
    "AddOffsetsToTxn, tags": (KEYS["AddOffsetsToTxn"], 3, add_offsets),
    "FindCoordinator, tags": (KEYS["FindCoordinator"], 4, find_coordinator),
}
OF_PYTHON = {*large_messages.CASES, "AddOffsetsToTxn, tags", "FindCoordinator, tags"}


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    opened = socket.create_connection((host, int(port)))
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def receive(connection: socket.socket) -> int:
    """Bytes of the next answer, read to its end; -1 where the connection is closed instead."""
    try:
        field = connection.recv(4, socket.MSG_WAITALL)
        if len(field) < 4:
            return -1
        size: int = struct.unpack(">i", field)[0]
        left = size
        buffer = bytearray(MIB)
        while left:
            received = connection.recv_into(buffer, min(left, MIB))
            if not received:
                return -1
            left -= received
        return size
    except ConnectionError:
        return -1


def probe(addresses: list[str], key: str, pipe: Pipe) -> None:
    """Asks for the versions, or the groups, every 5 ms, on a few connections, lest one be alone on
    another thread, until told to end; then says how long an answer took at most."""
    frame = request_frame(KEYS[key], 0, b"")
    connections = [connect(address) for address in addresses]
    longest = 0.0
    pipe.send("ready")
    while not pipe.poll(PROBE_S):
        for connection in connections:
            begun = time.perf_counter()
            connection.sendall(frame)
            receive(connection)
            longest = max(longest, time.perf_counter() - begun)
    pipe.send(longest)


def measure(name: str, frame: bytes, threads: int) -> tuple[float, float, float, int, float]:
    """Seconds that others waited at most, MiB above what was resident, seconds to the answer, its
    bytes (-1: closed), and the broker's CPU seconds."""
    config = {"num.network.threads": str(threads)} if threads else {}
    asked = "ListGroups" if name in OF_PYTHON else "ApiVersions"
    with tempfile.TemporaryDirectory() as folder, kafkalite.Broker(folder, config=config) as broker:
        if name in OF_PYTHON:
            large_messages.prepare(broker.bootstrap_servers)
        ours, theirs = multiprocessing.Pipe()
        addresses = [broker.bootstrap_servers] * 4
        prober = multiprocessing.Process(target=probe, args=(addresses, asked, theirs))
        prober.start()
        ours.recv()
        time.sleep(0.3)
        before_kib = status_kib(broker.pid, "VmRSS")
        Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
        used = cpu_s(broker.pid)
        with connect(broker.bootstrap_servers) as connection:
            begun = time.perf_counter()
            try:
                connection.sendall(frame)
                size = receive(connection)
            except ConnectionError:
                size = -1
            took = time.perf_counter() - begun
        peak_kib = status_kib(broker.pid, "VmHWM")
        used = cpu_s(broker.pid) - used
        ours.send("end")
        longest = ours.recv()
        prober.join()
    return longest, (peak_kib - before_kib) / 1024, took, size, used


def large_frame(name: str, size: int) -> bytes:
    if name in REQUESTS:
        key, version, build = REQUESTS[name]
        return request_frame(key, version, build(size))
    return request_frame(*large_messages.body(name, size))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = ";".join([*REQUESTS, *large_messages.CASES])
    parser.add_argument("--keys", default=every, help="names, with ; between them")
    parser.add_argument("--sizes", default="1,10,40,95", help="of frames, in MB")
    parser.add_argument("--threads", type=int, default=1, help="num.network.threads; 0: default")
    options = parser.parse_args()
    print(
        "| Key | MB | others wait, ms | peak, MiB | bound, MiB | answer, MB | after, s | CPU, s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in options.keys.split(";"):
        for megabytes in options.sizes.split(","):
            frame = large_frame(name, int(megabytes) * 1_000_000)
            longest, peak, took, size, used = measure(name, frame, options.threads)
            bound = 3 * len(frame) / MIB + 64
            answer = f"{size / 1e6:.1f}" if size >= 0 else "closed"
            print(
                f"| {name} | {megabytes} | {longest * 1000:.1f} | {peak:.0f} | {bound:.0f} "
                f"| {answer} | {took:.2f} | {used:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
