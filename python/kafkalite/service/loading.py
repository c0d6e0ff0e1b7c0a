"""Tells in the log, and a service manager, how the loading of the logs goes. After an unclean stop
they are read again. A signal ends the loading."""

import os
import queue
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kafkalite._native import ClaimedDirectories
from kafkalite.errors import LoadStoppedError
from kafkalite.service.listed import listed
from kafkalite.service.stderr_log import Log
from kafkalite.service.supervisor import Supervisor

TOLD_EVERY_S = 5.0
WAKE_SIGNAL = signal.SIGUSR1
"""Sent to the thread that waits for signals, by its own process: the loading is over."""


def missing_sentences(directories: Iterable[Path], expected: Iterable[str]) -> list[str]:
    """Gives a sentence about the logs of `expected` that lie in none of the directories, if there
    are any: the loading makes them, without a record. To be called before it."""
    found: set[str] = set()
    for path in directories:
        # One that cannot be read goes offline, and has a sentence of its own.
        with suppress(OSError):
            found.update(each.name for each in path.iterdir())
    missing = sorted(name for name in expected if name not in found)
    if not missing:
        return []
    names = listed(missing)
    if len(missing) == 1:
        return [f"1 log is not in the log directories and is created again, empty: {names}"]
    return [
        f"{len(missing)} logs are not in the log directories and are created again, empty: {names}"
    ]


@contextmanager
def report_loading(
    claimed: ClaimedDirectories,
    count: int,
    log: Log,
    supervisor: Supervisor,
    stop_signals: frozenset[signal.Signals] = frozenset(),
    every_s: float = TOLD_EVERY_S,
) -> Iterator[None]:
    """The block loads `count` logs of `claimed`: says so before, every `every_s` seconds and after,
    and tells `supervisor` meanwhile. Of a node without logs there is nothing to tell.

    One of `stop_signals`, which are blocked, has the loading given up: LoadStoppedError comes out
    of the block then, also if all logs were loaded by that time."""
    if count == 0:
        yield
        return
    for path, _, was_clean, _ in claimed.directories:
        if not was_clean:
            log.info(f"{path} was not stopped cleanly: its logs are recovered")
    is_stopped = threading.Event()
    told_ident: queue.SimpleQueue[int] = queue.SimpleQueue()

    def progress() -> str:
        loaded, recovered_bytes = claimed.progress
        recovered = f", {recovered_bytes / 1e6:.1f} MB recovered" if recovered_bytes else ""
        return f"{loaded} of {count} logs are loaded{recovered}"

    def tell() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {WAKE_SIGNAL})
        told_ident.put(threading.get_ident())
        while True:
            came = signal.sigtimedwait({*stop_signals, WAKE_SIGNAL}, every_s)
            if came is None:
                log.info(progress())
                supervisor.loading(progress())
            elif came.si_signo in stop_signals:
                is_stopped.set()
                claimed.stop_loading()
            elif came.si_pid == os.getpid():
                return

    teller = threading.Thread(target=tell, name="loading")
    started = time.monotonic()
    teller.start()
    teller_ident = told_ident.get()
    try:
        yield
    finally:
        # It ends by this signal only, and so is there to get it.
        signal.pthread_kill(teller_ident, WAKE_SIGNAL)
        teller.join()
    if is_stopped.is_set():
        raise LoadStoppedError("the broker was stopped while its logs were loaded")
    log.info(f"{progress()}; it took {time.monotonic() - started:.2f} s")
