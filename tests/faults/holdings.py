"""What a process holds of the system, by kind: what a leak makes more of."""

import time
from collections import Counter
from pathlib import Path

from faults.verify import Holdings

POLL_S = 0.05


def holdings(pid: int) -> Holdings:
    """Now, while the process goes on."""
    counts: Counter[str] = Counter()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            counts[_kind(str(descriptor.readlink()))] += 1
        except FileNotFoundError:
            continue  # it has been closed since
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    return Holdings(counts["socket"], counts["file"], counts["other"], threads)


def holdings_at_rest(pid: int, sockets_max: int, timeout_s: float) -> Holdings:
    """Once it has no more sockets than that; as it is if that does not come."""
    given_up = time.monotonic() + timeout_s
    while True:
        found = holdings(pid)
        if found.sockets <= sockets_max or time.monotonic() >= given_up:
            return found
        time.sleep(POLL_S)  # between polls of the system


def _kind(link: str) -> str:
    """Of what a descriptor links to: `socket:[7]`, a path, one that is deleted, `pipe:[7]` …"""
    if link.startswith("socket:"):
        return "socket"
    return "file" if link.startswith("/") and not link.endswith(" (deleted)") else "other"
