"""Members of groups by three unmodified clients, with one face."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

TIMEOUT_S = 120.0


class GroupMember(Protocol):
    def poll(self) -> list[tuple[int, int]]:
        """Partition and offset of what has come; returns after a moment."""

    def partitions(self) -> set[int]: ...
    def commit(self) -> None:
        """Commits what has come, unless a rebalance is in the way."""

    def leave(self) -> None: ...


class Confluent:
    """confluent-kafka, which is librdkafka."""

    def __init__(self, servers: str, group: str, topic: str, **options: Any) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": options.pop("session_ms", 6000),
                "heartbeat.interval.ms": 300,
                **options,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[tuple[int, int]]:
        messages = self._consumer.consume(500, timeout=0.1)
        assert not any(each.error() for each in messages), [each.error() for each in messages]
        return [(each.partition(), each.offset()) for each in messages]

    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):
            self._consumer.commit(asynchronous=False)

    def leave(self) -> None:
        self._consumer.close()


class PurePython:
    """kafka-python."""

    def __init__(self, servers: str, group: str, topic: str, **options: Any) -> None:
        from kafka import KafkaConsumer

        instance = options.get("group.instance.id")
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=options.get("session_ms", 6000),
            heartbeat_interval_ms=300,
        )

    def poll(self) -> list[tuple[int, int]]:
        found = self._consumer.poll(timeout_ms=100, max_records=500)
        return [(each.partition, each.offset) for batch in found.values() for each in batch]

    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        from kafka.errors import CommitFailedError, RebalanceInProgressError

        # Another member may have begun a rebalance; the next poll takes part in it.
        with contextlib.suppress(CommitFailedError, RebalanceInProgressError):
            self._consumer.commit()

    def leave(self) -> None:
        self._consumer.close()


class Asynchronous:
    """aiokafka."""

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, servers: str, group: str, topic: str, **options: Any) -> None:
        from aiokafka import AIOKafkaConsumer

        if Asynchronous._loop is None:
            Asynchronous._loop = asyncio.new_event_loop()

        async def start() -> Any:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=servers,
                group_id=group,
                group_instance_id=options.get("group.instance.id"),
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=options.get("session_ms", 6000),
                heartbeat_interval_ms=300,
            )
            await consumer.start()
            return consumer

        self._consumer = self._run(start())

    def _run(self, what: Any) -> Any:
        assert self._loop is not None
        return self._loop.run_until_complete(asyncio.wait_for(what, TIMEOUT_S))

    def poll(self) -> list[tuple[int, int]]:
        found = self._run(self._consumer.getmany(timeout_ms=100, max_records=500))
        return [(each.partition, each.offset) for batch in found.values() for each in batch]

    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        from aiokafka.errors import CommitFailedError

        with contextlib.suppress(CommitFailedError):
            self._run(self._consumer.commit())

    def leave(self) -> None:
        self._run(self._consumer.stop())


CLIENTS: dict[str, Callable[..., GroupMember]] = {
    "confluent-kafka": Confluent,
    "kafka-python": PurePython,
    "aiokafka": Asynchronous,
}


def poll_all(members: list[GroupMember]) -> list[tuple[int, int]]:
    """Polls every member once. Those of kafka-python at the same time: one that is not polled while
    others join gives up and joins again, and so they keep each other from it for ever."""
    found: list[tuple[int, int]] = []
    with ThreadPoolExecutor(max_workers=8) as pool:
        polls = [pool.submit(each.poll) for each in members if isinstance(each, PurePython)]
        for member in members:
            if not isinstance(member, PurePython):
                found += member.poll()
        for each in polls:
            found += each.result()
    return found


def drive(members: list[GroupMember], until: Callable[[], bool]) -> list[tuple[int, int]]:
    """Polls all members until `until`; what has come meanwhile."""
    found: list[tuple[int, int]] = []
    end = time.monotonic() + TIMEOUT_S
    while not until():
        assert time.monotonic() < end, [each.partitions() for each in members]
        found += poll_all(members)
    return found


def share(members: list[GroupMember], count: int) -> bool:
    """Whether all partitions are assigned, each once, and everybody has one."""
    shares = [each.partitions() for each in members]
    return sum(map(len, shares)) == count == len(set().union(*shares)) and all(shares)


@contextlib.contextmanager
def leaving(members: list[GroupMember]) -> Iterator[None]:
    """Has whoever is left in `members` leave at the end."""
    try:
        yield
    finally:
        for member in members:
            with contextlib.suppress(Exception):
                member.leave()
