"""A fake coordinator of a group, and a consumer that is to come to something."""

import time
from collections.abc import Callable
from typing import Any

from client.fake import FakeBroker
from client.logs import Logs
from kafkalite.client import Consumer

WAIT_S = 30


GROUP_AUTHORIZATION_FAILED = 30


QUICK = {"heartbeat_interval_ms": 10}


NEVER = {"heartbeat_interval_ms": 3_600_000, "session_timeout_ms": 7_200_000}


class Group(Logs):
    """Two partitions; requests of the kinds in `silent` are not answered."""

    def __init__(self) -> None:
        super().__init__({0: 1, 1: 1})
        self.silent: tuple[str, ...] = ()

    def __call__(self, name: str, request: Any) -> Any:
        return None if name in self.silent else super().__call__(name, request)


def broker_of(group: Logs, handler: Any = None, partitions: int = 2) -> FakeBroker:
    broker = FakeBroker(handler or group, partitions=partitions)
    group.address = (broker.host, broker.port)
    return broker


def until(reached: Callable[[], object], consumer: Consumer | None = None) -> None:
    """Polls, or waits, until something is so."""
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline
        if consumer is None:
            time.sleep(0.005)  # the pause of the poll
        else:
            consumer.poll(10)
