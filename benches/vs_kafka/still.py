"""Has the brokers that are not measured stand still, for both sides alike.

A JVM without work still runs its timers, its collector and its compilers, some per cent of a
processor in pieces of up to milliseconds. On two processors these are the p99 of whoever is
measured beside it.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

SETTLE_S = 0.3
"""After a stand-still, for what was due meanwhile: it is the idle side's, and not measured."""


@contextmanager
def still(pids: Sequence[int]) -> Iterator[None]:
    """These processes do not run until the end of the `with` block.

    A few seconds are nothing to Kafka, whose controller misses its broker after nine.
    """
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        time.sleep(SETTLE_S)
