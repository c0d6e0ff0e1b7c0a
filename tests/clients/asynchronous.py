"""aiokafka, in an event loop on a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from clients.neutral import (
    AUTO_COMMIT_MS,
    HEARTBEAT_MS,
    SESSION_MS,
    Client,
    Consumer,
    ConsumerOptions,
    Partition,
    Producer,
    ProducerOptions,
    Record,
    Transactional,
)

T = TypeVar("T")


class AioKafka(Client):
    name = "aiokafka"
    lacks: ClassVar[Mapping[str, str]] = {
        "transaction-rebalance": "it commits offsets in a transaction by the group's name alone"
    }

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(90)

    def producer(self, servers: str, options: ProducerOptions) -> Producer:
        return _Producer(self, servers, options)

    def consumer(self, servers: str, options: ConsumerOptions) -> Consumer:
        return _Consumer(self, servers, options)

    def transactional(self, servers: str, options: ProducerOptions) -> Transactional:
        return _Transactional(self, servers, options)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Producer:
    def __init__(self, client: AioKafka, servers: str, options: ProducerOptions) -> None:
        self._client = client

        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=servers,
                acks="all",
                compression_type=None if options.codec == "none" else options.codec,
                enable_idempotence=options.idempotent,
                max_request_size=options.request_bytes_max,
                linger_ms=5,
                transactional_id=options.transactional_id,
                transaction_timeout_ms=options.transaction_timeout_ms,
            )
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            return producer

        self._producer = client.run(start())

    def send(self, records: Sequence[Record]) -> None:
        async def send() -> None:
            futures = [
                await self._producer.send(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    record.timestamp,
                    list(record.headers),
                )
                for record in records
            ]
            await asyncio.gather(*futures)

        self._client.run(send())

    def close(self) -> None:
        self._client.run(self._producer.stop())


class _Transactional(_Producer):
    def begin(self) -> None:
        self._client.run(self._producer.begin_transaction())

    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        given = {TopicPartition(*where): offset for where, offset in offsets.items()}
        self._client.run(self._producer.send_offsets_to_transaction(given, group))

    def commit(self) -> None:
        self._client.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._client.run(self._producer.abort_transaction())


class _Consumer:
    def __init__(self, client: AioKafka, servers: str, options: ConsumerOptions) -> None:
        self._client = client
        self._group = options.group

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=servers,
                group_id=options.group,
                enable_auto_commit=options.auto_commit,
                auto_commit_interval_ms=AUTO_COMMIT_MS,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=HEARTBEAT_MS,
                session_timeout_ms=SESSION_MS,
                fetch_max_wait_ms=100,
                isolation_level="read_committed" if options.committed_only else "read_uncommitted",
            )
            if options.assign:
                consumer.assign([TopicPartition(*each[:2]) for each in options.assign])
            elif options.pattern:
                consumer.subscribe(pattern=options.pattern)
            else:
                consumer.subscribe(list(options.topics))
            await consumer.start()
            for topic, partition, offset in options.assign:
                consumer.seek(TopicPartition(topic, partition), offset)
            return consumer

        self._consumer = client.run(start())

    def poll(self, timeout_s: float) -> list[Record]:
        polled = self._client.run(self._consumer.getmany(timeout_ms=round(timeout_s * 1000)))
        return [Record.of(each) for records in polled.values() for each in records]

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._client._loop.call_soon_threadsafe(
            self._consumer.seek, TopicPartition(topic, partition), offset
        )

    def commit(self, offsets: Mapping[Partition, int], *, wait: bool) -> None:
        given = {TopicPartition(*where): offset for where, offset in offsets.items()}
        commit = self._consumer.commit(given)
        if wait:
            self._client.run(commit)
        else:
            # A commit is a coroutine: not to wait for it is to make a task of it.
            asyncio.run_coroutine_threadsafe(commit, self._client._loop)

    def group(self) -> str | None:
        return self._group

    def close(self) -> None:
        self._client.run(self._consumer.stop())
