"""Tells in the log, and a service manager, how the loading of the logs goes, which are read again
after an unclean stop."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kafkalite._native import ClaimedDirectories
from kafkalite.stderr_log import Log
from kafkalite.supervisor import Supervisor

TOLD_EVERY_S = 5.0


@contextmanager
def loading_told(
    claimed: ClaimedDirectories,
    count: int,
    log: Log,
    supervisor: Supervisor,
    every_s: float = TOLD_EVERY_S,
) -> Iterator[None]:
    """The block loads `count` logs of `claimed`: says so before, every `every_s` seconds and after,
    and tells `supervisor` meanwhile. Of a node without logs there is nothing to tell."""
    if count == 0:
        yield
        return
    for path, _, was_clean, _ in claimed.directories:
        if not was_clean:
            log.info(f"{path} was not stopped cleanly: its logs are recovered")
    is_over = threading.Event()

    def progress() -> str:
        loaded, recovered_bytes = claimed.progress
        recovered = f", {recovered_bytes / 1e6:.1f} MB recovered" if recovered_bytes else ""
        return f"{loaded} of {count} logs are loaded{recovered}"

    def tell() -> None:
        while not is_over.wait(every_s):
            log.info(progress())
            supervisor.loading(progress())

    teller = threading.Thread(target=tell, name="loading")
    started = time.monotonic()
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()
    log.info(f"{progress()}; it took {time.monotonic() - started:.2f} s")
