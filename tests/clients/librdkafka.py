"""confluent-kafka: librdkafka behind Python."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as LibrdkafkaProducer

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

TRY_S = 10
PATIENCE_S = 60


class Confluent(Client):
    name = "confluent-kafka"

    def producer(self, servers: str, options: ProducerOptions) -> Producer:
        return _Producer(servers, options)

    def consumer(self, servers: str, options: ConsumerOptions) -> Consumer:
        return _Consumer(servers, options)

    def transactional(self, servers: str, options: ProducerOptions) -> Transactional:
        return _Transactional(servers, options)


def producer_config(servers: str, options: ProducerOptions) -> dict[str, str | int | bool]:
    """librdkafka's settings, for kcat as well."""
    return {
        "bootstrap.servers": servers,
        "acks": "all",
        "compression.type": options.codec,
        "enable.idempotence": options.idempotent,
        "message.max.bytes": options.request_bytes_max,
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "log_level": 0,
        "reconnect.backoff.max.ms": 500,
    }


def consumer_config(servers: str, options: ConsumerOptions) -> dict[str, str | int | bool]:
    """librdkafka's settings, for kcat as well."""
    return {
        "bootstrap.servers": servers,
        "group.id": options.group or "no group",
        "enable.auto.commit": options.auto_commit,
        "auto.commit.interval.ms": AUTO_COMMIT_MS,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "session.timeout.ms": SESSION_MS,
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 500,
        "isolation.level": "read_committed" if options.committed_only else "read_uncommitted",
        "check.crcs": True,
        "log_level": 0,
    }


class _Producer:
    def __init__(self, servers: str, options: ProducerOptions, **config: Any) -> None:
        self._producer = LibrdkafkaProducer({**producer_config(servers, options), **config})

    def send(self, records: Sequence[Record]) -> None:
        failed: list[KafkaError] = []

        def report(error: KafkaError | None, message: Message) -> None:  # noqa: ARG001
            if error is not None:
                failed.append(error)

        for record in records:
            given = {"partition": record.partition, "timestamp": record.timestamp}
            self._producer.produce(
                record.topic,
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=report,
                **{name: value for name, value in given.items() if value is not None},
            )
        left = self._producer.flush(60)
        if left or failed:
            raise RuntimeError(f"{left} records without an answer, {failed[:3]}")

    def close(self) -> None:
        self._producer.flush(10)


class _Transactional(_Producer):
    def __init__(self, servers: str, options: ProducerOptions) -> None:
        timeout_ms = options.transaction_timeout_ms
        super().__init__(
            servers,
            replace(options, idempotent=True),
            **{
                "transactional.id": options.transactional_id or "",
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
            },
        )
        self._patiently(lambda: self._producer.init_transactions(TRY_S))

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send_offsets(self, group: Any, offsets: Mapping[Partition, int]) -> None:
        given = [TopicPartition(*where, offset) for where, offset in offsets.items()]
        self._patiently(lambda: self._producer.send_offsets_to_transaction(given, group, TRY_S))

    def commit(self) -> None:
        self._patiently(lambda: self._producer.commit_transaction(TRY_S))

    def abort(self) -> None:
        self._patiently(lambda: self._producer.abort_transaction(TRY_S))

    def close(self) -> None:
        with contextlib.suppress(KafkaException):  # of one that was shut out
            super().close()

    def _patiently(self, ask: Callable[[], None]) -> None:
        """As librdkafka's applications do: what may be tried again is."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask()
            except KafkaException as failure:
                if not failure.args[0].retriable() or time.monotonic() > deadline:
                    raise


class _Consumer:
    def __init__(self, servers: str, options: ConsumerOptions) -> None:
        self._consumer = LibrdkafkaConsumer(consumer_config(servers, options))
        if options.assign:
            self._consumer.assign([TopicPartition(*each) for each in options.assign])
        else:
            self._consumer.subscribe([options.pattern] if options.pattern else [*options.topics])

    def poll(self, timeout_s: float) -> list[Record]:
        # A first message is waited for, what else is there is taken along.
        first = self._consumer.poll(timeout_s)
        messages = [first, *self._consumer.consume(10_000, 0.001)] if first is not None else []
        records = []
        for message in messages:
            if message.error() is None:
                records.append(_record(message))
            elif not message.error().retriable() and not _is_passing(message.error()):
                raise KafkaException(message.error())
        return records

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(topic, partition, offset))

    def commit(self, offsets: Mapping[Partition, int], *, wait: bool) -> None:
        given = [TopicPartition(*where, offset) for where, offset in offsets.items()]
        self._consumer.commit(offsets=given, asynchronous=not wait)

    def group(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        self._consumer.close()


def _is_passing(error: KafkaError) -> bool:
    """Whether librdkafka tells this only for information and goes on by itself."""
    return error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def _record(message: Message) -> Record:
    return Record(
        message.topic(),
        message.value(),
        message.key(),
        message.partition(),
        message.timestamp()[1],
        tuple((name, value) for name, value in message.headers() or []),
        message.offset(),
    )
