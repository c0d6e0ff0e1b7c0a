"""Measures the end of connections that do nothing: the broker's CPU for each.

    ulimit -n 200000; python benches/idle_connections.py --connections 90000

In the first row they have been idle for `connections.max.idle.ms`, one after the other as they were
opened. In the second `max.connections` is lowered while they are there, and those go that have been
used least recently. Each is a descriptor in this process and one in the broker.
"""

import argparse
import select
import socket
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from processes import cpu_s

import kafkalite
from api.configs import change
from api.raw import Connection

BROKERS, SET = 4, 0


def opened(broker: kafkalite.Broker, count: int, seconds: float) -> list[socket.socket]:
    """So many connections, opened evenly over so long."""
    host, port = broker.bootstrap_servers.split(":")
    began = time.monotonic()
    connections = []
    for number in range(count):
        connections.append(socket.create_connection((host, int(port))))
        ahead_s = began + number * seconds / count - time.monotonic()
        if ahead_s > 0:
            time.sleep(ahead_s)
    return connections


def closed(connections: list[socket.socket], count: int) -> None:
    """Waits until the broker has closed so many."""
    poll = select.epoll()
    for each in connections:
        poll.register(each, select.EPOLLRDHUP | select.EPOLLONESHOT)
    left = count
    while left > 0:
        left -= len(poll.poll(60))
    poll.close()
    for each in connections:
        each.close()


def told(name: str, count: int, spent_s: float, took_s: float) -> None:
    each_us = spent_s / count * 1e6
    print(f"{name}: {each_us:.1f} µs of the broker's CPU each, {count} in {took_s:.1f} s")


def become_idle(count: int, seconds: float, data: Path) -> None:
    config = {"connections.max.idle.ms": str(int(seconds * 1000) + 2000)}
    with kafkalite.Broker(data, config=config) as broker:
        connections = opened(broker, count, seconds)
        before, began = cpu_s(broker.pid), time.monotonic()
        closed(connections, count)
        told("idle for too long", count, cpu_s(broker.pid) - before, time.monotonic() - began)


def are_too_many(count: int, data: Path) -> None:
    with kafkalite.Broker(data) as broker:
        connections = opened(broker, count, 0.0)
        gone = count - 100
        with Connection(broker.bootstrap_servers) as connection:
            before, began = cpu_s(broker.pid), time.monotonic()
            change(connection, (BROKERS, "", [("max.connections", SET, "101")]))
            closed(connections, gone)
            told("more than allowed", gone, cpu_s(broker.pid) - before, time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=15_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        become_idle(given.connections, given.seconds, Path(folder) / "idle")
        are_too_many(given.connections, Path(folder) / "many")


if __name__ == "__main__":
    main()
