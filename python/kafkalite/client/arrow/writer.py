"""`write_arrow`: the rows of an Arrow table into topics.

    import kafkalite, polars
    kafkalite.write_arrow(polars.DataFrame(...), "orders", "broker:9092", compression_type="zstd")

Rust makes the batches of the rows (`rust/src/client/from_arrow.rs` has the columns), the producer
sends them: idempotent, in order, several brokers and requests at once. A batch leaves when it is
full, or when the rows are over.
"""

from contextlib import suppress
from typing import NamedTuple, SupportsIndex

from kafkalite._native import ArrowEncoder
from kafkalite.client.arguments import short_text, wrong_type
from kafkalite.client.network.cluster import RANDOM, Cluster
from kafkalite.client.network.connection import Closing
from kafkalite.client.network.servers import Servers
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.client.producer.partition_queue import Batch
from kafkalite.client.producer.settings import ProducerSettings
from kafkalite.client.producer.transactions import Transaction
from kafkalite.errors import KafkaliteError
from kafkalite.timers import wall_ms

__all__ = ["ArrowWriter", "Written", "WrittenPartition", "write_arrow"]


class WrittenPartition(NamedTuple):
    """The records written to one partition. Offsets are -1 if the broker was not asked for them
    (`acks=0`); records of others may lie between the first and the last."""

    topic: str
    partition: int
    records_count: int
    first_offset: int
    last_offset: int


class Written(NamedTuple):
    """The records written, by topic and partition, in order."""

    records_count: int
    partitions: tuple[WrittenPartition, ...]


def write_arrow(
    rows: object,
    topic: str | None = None,
    bootstrap_servers: Servers = "localhost:9092",
    **settings: str | int | bool,
) -> Written:
    """Writes a table, or a stream of batches, to a topic; returns when the brokers have it all.

    `rows` is anything with `__arrow_c_stream__` or `__arrow_c_array__`: of pyarrow, polars, DuckDB,
    pandas, or what `read_arrow` gives. Columns: `value`, and, where they are there, `key`, `topic`
    (unless `topic` says it), `partition`, `headers`, `timestamp` (UTC, if it has no time zone);
    others are not looked at.
    `settings` are those of Kafka's producer with underscores: `acks`, `compression_type`,
    `batch_size`, `max_request_size`, `delivery_timeout_ms`, …; with a `transactional_id` all rows
    are one transaction: either all of them are there for `read_committed` readers, or none.

    Raises `InvalidArgumentError` for a setting, a column, or a row that cannot be a record (rows
    before it may have been written), `BrokerError` for a topic that there is not and for what a
    broker refuses, `ConnectionFailedError`, `RequestTimedOutError`.
    """
    for name, each in settings.items():
        if not isinstance(each, str | SupportsIndex):
            raise wrong_type(name, each, "str, int or bool")
    checked = ProducerSettings.of({name.replace("_", "."): each for name, each in settings.items()})
    if checked.unknown:
        raise TypeError(f"write_arrow has no setting {checked.unknown[0].replace('.', '_')}")
    if topic is not None:
        short_text("topic", topic)
    with ArrowWriter(bootstrap_servers, topic, checked) as writer:
        try:
            writer.write(rows)
            written = writer.flush()
        except BaseException:
            with suppress(KafkaliteError):
                writer.end(commit=False)
            raise
        writer.end(commit=True)
        return written


class ArrowWriter(Closing):
    """Writes Arrow rows of any number of calls. One thread; after an error, only to be closed."""

    def __init__(
        self,
        bootstrap_servers: Servers | Cluster,
        topic: str | None,
        settings: ProducerSettings,
    ) -> None:
        """`topic` goes before the column of that name. With a `transactional_id` in the settings
        all rows are one transaction, which `end` ends, or whoever gets its handle; raises
        `BrokerError` if there can be none. Otherwise connects to nobody yet."""
        self._owns = not isinstance(bootstrap_servers, Cluster)
        self.cluster = (
            bootstrap_servers
            if isinstance(bootstrap_servers, Cluster)
            else Cluster(
                bootstrap_servers,
                client_id=settings.client_id,
                timeout_ms=min(60_000, settings.delivery_timeout_ms),
                request_timeout_ms=settings.request_timeout_ms,
            )
        )
        self.transaction = (
            None
            if settings.transactional_id is None
            else self._begin(settings.transactional_id, settings.transaction_timeout_ms)
        )
        in_transaction = self.transaction is not None
        self._producer = DrivenProducer(
            self.cluster,
            acks=settings.acks,
            batch_bytes=settings.batch_bytes,
            request_bytes_max=settings.request_bytes_max,
            buffer_bytes=settings.buffer_bytes,
            max_in_flight=settings.max_in_flight,
            idempotent=True if in_transaction else settings.idempotent,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            request_timeout_ms=settings.request_timeout_ms,
            transaction=self.transaction,
        )
        self._encoder = ArrowEncoder(
            topic,
            codec=settings.codec,
            level=settings.level,
            batch_bytes=min(settings.batch_bytes, settings.request_bytes_max),
            record_bytes_max=settings.request_bytes_max,
            open_bytes_max=settings.buffer_bytes,
            transactional=in_transaction,
            seed=RANDOM.getrandbits(63),
        )
        self._buffer_bytes = settings.buffer_bytes
        self._written: dict[tuple[str, int], WrittenPartition] = {}

    def close(self) -> None:
        """Closes the connections. What was not flushed is given up; a transaction stays open, or
        ended: nothing more is sent of it."""
        with suppress(KafkaliteError):  # who did not flush has another error to tell
            self._producer.fail_transaction()
            self._producer.close(0)
        if self._owns:
            self.cluster.close()

    def write(self, rows: object) -> None:
        """Takes all rows; waits while `buffer.memory` bytes are under way. Raises as `write_arrow`
        does."""
        encoder = self._encoder
        encoder.open(rows)
        while (unknown := encoder.load()) is not None:
            for topic in unknown:
                self._describe(topic)
            has_more = True
            while has_more:
                made, has_more = encoder.encode(wall_ms())
                self._send(made)

    def flush(self) -> Written:
        """Returns once everything is on its brokers: what was written since the start."""
        self._send(self._encoder.finish())
        self._producer.flush()
        parts = tuple(self._written[place] for place in sorted(self._written))
        return Written(sum(part.records_count for part in parts), parts)

    def end(self, *, commit: bool) -> None:
        """Ends the transaction, after `flush` if it is to be committed. To abort it gives up what
        is not on its way, and waits for the answers to the rest: a batch that comes behind the end
        is of a transaction that nobody ends."""
        if self.transaction is None:
            return
        if not commit:
            self._producer.fail_transaction()
            with suppress(KafkaliteError):  # of records that are of no matter any more
                self._producer.flush()
        self.transaction.end(commit=commit)

    def _begin(self, transactional_id: str, timeout_ms: int) -> Transaction:
        transaction = Transaction(self.cluster, transactional_id, timeout_ms)
        try:
            transaction.begin()
        except BaseException:
            if self._owns:
                self.cluster.close()
            raise
        return transaction

    def _describe(self, name: str) -> None:
        found = self._producer.topic(name)
        led = [row.partition for row in found.partitions.values() if row.leader >= 0]
        self._encoder.set_topic(name, len(found.partitions), led)

    def _send(self, made: list[tuple[str, int, bytes, int]]) -> None:
        producer, done = self._producer, self._note
        for topic, partition, records, count in made:
            producer.send_batch(topic, partition, records, count, done)
            while producer.pending_bytes > self._buffer_bytes and producer.first_error is None:
                producer.poll(100)
            if producer.first_error is not None:
                raise producer.first_error.with_traceback(None)
        producer.start()  # the next rows may be long in coming

    def _note(self, batch: Batch, error: KafkaliteError | None, base_offset: int) -> None:
        if error is not None:
            return
        place = (batch.topic, batch.partition)
        known = self._written.get(place)
        count, first, last = batch.count, base_offset, base_offset
        if base_offset >= 0:
            last += count - 1
        if known is not None:
            count += known.records_count
            first = min((each for each in (first, known.first_offset) if each >= 0), default=-1)
            last = max(last, known.last_offset)
        self._written[place] = WrittenPartition(*place, count, first, last)
