"""kafka-python."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaConnectionError
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata

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


class KafkaPython(Client):
    name = "kafka-python"
    lacks: ClassVar[Mapping[str, str]] = {
        "null-headers": "its producer accepts only bytes as the value of a header"
    }

    def producer(self, servers: str, options: ProducerOptions) -> Producer:
        return _Producer(servers, options)

    def consumer(self, servers: str, options: ConsumerOptions) -> Consumer:
        return _Consumer(servers, options)

    def transactional(self, servers: str, options: ProducerOptions) -> Transactional:
        return _Transactional(servers, options)


class _Producer:
    def __init__(self, servers: str, options: ProducerOptions, **config: str | int | None) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=servers,
            acks="all",
            compression_type=None if options.codec == "none" else options.codec,
            enable_idempotence=options.idempotent,
            max_request_size=options.request_bytes_max,
            linger_ms=5,
            reconnect_backoff_max_ms=500,
            **config,
        )

    def send(self, records: Sequence[Record]) -> None:
        futures = [
            self._producer.send(
                record.topic,
                record.value,
                record.key,
                list(record.headers),
                record.partition,
                record.timestamp,
            )
            for record in records
        ]
        for future in futures:
            future.get(60)

    def close(self) -> None:
        self._producer.close()


class _Transactional(_Producer):
    def __init__(self, servers: str, options: ProducerOptions) -> None:
        super().__init__(
            servers,
            replace(options, idempotent=True),
            transactional_id=options.transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send_offsets(self, group: ConsumerGroupMetadata, offsets: Mapping[Partition, int]) -> None:
        self._producer.send_offsets_to_transaction(_given(offsets), group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()


class _Consumer:
    def __init__(self, servers: str, options: ConsumerOptions) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=options.group,
            enable_auto_commit=options.auto_commit,
            auto_commit_interval_ms=AUTO_COMMIT_MS,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
            fetch_max_wait_ms=100,
            isolation_level="read_committed" if options.committed_only else "read_uncommitted",
            reconnect_backoff_max_ms=500,
        )
        # Waits for its first metadata: kafka-python 3.0.12 forgets what it is told to subscribe to
        # while the answer to that is under way.
        self._consumer.topics()
        if options.assign:
            self._consumer.assign([TopicPartition(*each[:2]) for each in options.assign])
            for each in options.assign:
                self.seek(*each)
        elif options.pattern:
            self._consumer.subscribe(pattern=options.pattern)
        else:
            self._consumer.subscribe([*options.topics])

    def poll(self, timeout_s: float) -> list[Record]:
        try:
            polled = self._consumer.poll(round(timeout_s * 1000), max_records=10_000)
        except KafkaConnectionError:
            return []  # told to the application, which polls again
        return [Record.of(each) for records in polled.values() for each in records]

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(topic, partition), offset)

    def commit(self, offsets: Mapping[Partition, int], *, wait: bool) -> None:
        if wait:
            self._consumer.commit(_given(offsets))
        else:
            self._consumer.commit_async(_given(offsets))

    def group(self) -> ConsumerGroupMetadata:
        return self._consumer.group_metadata()

    def close(self) -> None:
        self._consumer.close()


def _given(offsets: Mapping[Partition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(*where): OffsetAndMetadata(offset, "", -1)
        for where, offset in offsets.items()
    }
