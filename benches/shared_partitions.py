"""Measures many consumers of the same partitions: the broker's CPU for a record, and for polls.

    python benches/shared_partitions.py
    python benches/shared_partitions.py --consumers 100 --partitions 200 --records 20

Consumers are connections of this process. Each has a fetch session (KIP-227) over all partitions
and waits in an incremental Fetch. In the first row a record in one partition wakes all of them, and
they are answered; in the second they poll, and wait until their time is over.
"""

import argparse
import selectors
import socket
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from group_coordinator import frame
from processes import cpu_s

import kafkalite
from api.batches import batch
from api.raw import KEYS, Connection
from kafkalite.protocol import messages

FETCH = KEYS["Fetch"]
VERSION = 12


def opening(topic: str, partitions: int) -> bytes:
    """A Fetch of all partitions that opens a session."""
    kind = messages.FetchRequest
    named = [
        kind.FetchTopic.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    message = kind(
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=0,
        topics=[kind.FetchTopic(topic=topic, partitions=named)],
    )
    return frame(FETCH, VERSION, True, message.encode(VERSION))


class Consumer:
    """One connection with a fetch session over all partitions."""

    def __init__(self, address: tuple[str, int], topic: str, partitions: int) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._topic = topic
        self.socket.sendall(opening(topic, partitions))
        self.session_id = struct.unpack(">i", self.receive()[11:15])[0]
        self.epoch = 1

    def receive(self) -> bytes:
        """A whole answer."""
        content = b""
        while len(content) < 4 or len(content) < 4 + int.from_bytes(content[:4]):
            content += self.socket.recv(1 << 20)
        return content[4:]

    def poll(self, wait_ms: int, moved: int | None = None) -> None:
        """Sends the next Fetch; `moved` is the offset to go on with in the first partition."""
        kind = messages.FetchRequest
        topics = []
        if moved is not None:
            partition = kind.FetchTopic.FetchPartition(
                partition=0, fetch_offset=moved, partition_max_bytes=1 << 20
            )
            topics = [kind.FetchTopic(topic=self._topic, partitions=[partition])]
        message = kind(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=topics,
        )
        self.epoch += 1
        self.socket.sendall(frame(FETCH, VERSION, True, message.encode(VERSION)))


def answered(consumers: list[Consumer]) -> None:
    """Takes one answer of each."""
    selector = selectors.DefaultSelector()
    for each in consumers:
        selector.register(each.socket, selectors.EVENT_READ, each)
    while selector.get_map():
        for key, _ in selector.select(60):
            key.data.receive()
            selector.unregister(key.fileobj)
    selector.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consumers", type=int, default=400)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--records", type=int, default=10)
    parser.add_argument("--polls", type=int, default=5)
    given = parser.parse_args()
    config = {"num.partitions": str(given.partitions)}
    with (
        tempfile.TemporaryDirectory(dir=".") as folder,
        kafkalite.Broker(Path(folder) / "data", config=config) as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        host, port = broker.bootstrap_servers.split(":")
        address = (host, int(port))
        connection.create_topic("shared", partitions=given.partitions)

        count = range(given.consumers)
        consumers = [Consumer(address, "shared", given.partitions) for _ in count]
        spent, took = [], []
        moved = None
        for number in range(given.records + 1):
            for each in consumers:
                each.poll(600_000, moved)
            wait_until_idle(broker.pid)
            before, began = cpu_s(broker.pid), time.perf_counter()
            connection.produce("shared", batch([b"x"]))
            answered(consumers)
            took.append(time.perf_counter() - began)
            wait_until_idle(broker.pid)
            spent.append(cpu_s(broker.pid) - before)
            moved = number + 1
        told("a record, until all have it", spent[1:])
        print(f"    answered after {statistics.median(took[1:]) * 1e3:.0f} ms")
        spent = []
        for _ in range(given.polls):
            before = cpu_s(broker.pid)
            for each in consumers:
                each.poll(500, moved)
            answered(consumers)
            moved = None
            spent.append(cpu_s(broker.pid) - before)
        told("a poll of all without records", spent)


def wait_until_idle(pid: int) -> None:
    """Polls the broker's CPU until it spends none."""
    before = -1.0
    while (now := cpu_s(pid)) != before:
        before = now
        time.sleep(0.1)


def told(name: str, spent: list[float]) -> None:
    print(f"{name}: {statistics.median(spent):.3f} s of the broker's CPU (least {min(spent):.3f})")


if __name__ == "__main__":
    main()
