"""Kafka's own TransactionalMessageCopier: it and the broker are killed while it copies a topic in
transactions, some of which it aborts, and a reader of what is committed finds the source, once.
"""

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import kafkalite
from oracle.tools import KafkaTools, java

pytestmark = pytest.mark.oracle

MAIN = "org.apache.kafka.tools.TransactionalMessageCopier"
PARTITIONS = 2
RECORDS_BETWEEN_KILLS = 400
"""In each partition."""
KILLS_SHORT, KILLS_LONG = 3, 40
PATIENCE_S = 180
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class Copiers:
    """One for each partition; each is started again when it has ended."""

    def __init__(self, classpath: str, servers: str, folder: Path, options: Sequence[str]) -> None:
        self._command = [*java(), "-cp", classpath, MAIN, "--broker-list", servers]
        self._command += ["--input-topic", "source", "--output-topic", "target"]
        self._command += ["--consumer-group", "copiers", "--transaction-size", "20"]
        self._command += ["--transaction-timeout", "10000", "--enable-random-aborts", *options]
        self._log = (folder / "copiers.log").open("wb")
        self._running = [self._start(each) for each in range(PARTITIONS)]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        own = ["--input-partition", str(number), "--transactional-id", f"copier-{number}"]
        return subprocess.Popen([*self._command, *own], stdout=self._log, stderr=self._log)

    def kill(self, number: int) -> None:
        """SIGKILL, and another one at once."""
        self._end(number)
        self._running[number] = self._start(number)

    def _end(self, number: int) -> None:
        self._running[number].kill()
        self._running[number].wait()

    def replace_dead(self) -> None:
        """One that was shut out comes again; one that has come to the end of its partition finds
        nothing left to do."""
        for number, process in enumerate(self._running):
            if process.poll() is not None and process.returncode != 0:
                self.kill(number)

    def close(self) -> None:
        for number in range(PARTITIONS):
            self._end(number)
        self._log.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("options", "kills"),
    [
        ([], KILLS_SHORT),
        pytest.param([], KILLS_LONG, marks=pytest.mark.long),
        pytest.param(["--group-mode", "--use-group-metadata"], KILLS_SHORT, marks=pytest.mark.long),
    ],
)
def test_each_record_is_copied_once_through_every_kill(
    kafka_tools: KafkaTools, tmp_path: Path, options: list[str], kills: int
) -> None:
    with (
        kafkalite.Broker(tmp_path / "data", config=CONFIG) as broker,
        contextlib.closing(reader(broker.bootstrap_servers)) as committed,
    ):
        servers = broker.bootstrap_servers
        records = RECORDS_BETWEEN_KILLS * (kills + 1)
        wanted = fill(servers, records)
        with contextlib.closing(
            Copiers(kafka_tools.classpath, servers, tmp_path, options)
        ) as copiers:
            found: list[list[str]] = [[] for _ in range(PARTITIONS)]
            for number in range(kills + 1):
                # The last part is what comes to the end.
                enough = PARTITIONS * RECORDS_BETWEEN_KILLS * (number + 1)
                deadline = time.monotonic() + PATIENCE_S
                while sum(map(len, found)) < enough:
                    assert time.monotonic() < deadline, f"{sum(map(len, found))} of {enough}"
                    for partition, value in values(committed):
                        found[partition].append(value)
                    copiers.replace_dead()
                if number < kills and number % 2 == 0:
                    broker.kill()
                    broker.start()
                elif number < kills:
                    copiers.kill(number // 2 % PARTITIONS)
        assert found == wanted
        # And nothing follows, nor does somebody else find more.
        with contextlib.closing(reader(servers)) as again:
            assert read_to_the_end(again) == wanted


def fill(servers: str, records: int) -> list[list[str]]:
    """Makes both topics; returns what is in the partitions of the first."""
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic(name, PARTITIONS, 1) for name in ("source", "target")]
    for made in admin.create_topics(topics).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    wanted = [[f"{at}:{number}" for number in range(records)] for at in range(PARTITIONS)]
    for partition, texts in enumerate(wanted):
        for text in texts:
            producer.produce("source", text.encode(), partition=partition)
        producer.flush(60)
    return wanted


def reader(servers: str) -> Consumer:
    """Reads what is committed, from the beginning of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("target", at, OFFSET_BEGINNING) for at in range(PARTITIONS)])
    return consumer


def values(consumer: Consumer) -> Iterator[tuple[int, str]]:
    """Of one poll."""
    for message in consumer.consume(1_000, 0.1):
        if message.error() is None:
            yield message.partition() or 0, (message.value() or b"").decode()


def read_to_the_end(consumer: Consumer) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    left = set(range(PARTITIONS))
    while left:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "no end of the partition"
        error, partition = message.error(), message.partition() or 0
        if error is None:
            found[partition].append((message.value() or b"").decode())
        elif error.code() == KafkaError._PARTITION_EOF:
            left.discard(partition)
    return found
