"""Ports for brokers of tests that start again, or that must know theirs before they listen."""

import contextlib
import random
import socket
from pathlib import Path

LOWEST, HIGHEST = 10_000, 60_000


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now.

    None that the system gives to whoever connects (`ip_local_port_range`), as port 0 would be:
    while a broker is away its port may go to any connection on the machine, even to that of a
    client that tries to reach the broker and then is connected to itself.
    """
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    # Not every sandbox tells; those that do not give what Linux gives.
    first, last = map(int, given.read_text().split() if given.exists() else ("32768", "60999"))
    ports = [port for port in range(LOWEST, HIGHEST) if not first <= port <= last]
    ports = ports or [*range(LOWEST, HIGHEST)]
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in random.Random().sample(ports, len(ports)):
            if len(found) == count:
                return found
            probe = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    raise RuntimeError(f"{count} ports are not free")
