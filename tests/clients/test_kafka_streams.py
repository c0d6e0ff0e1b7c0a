"""Kafka Streams: its own word count, killed in between.

It makes two topics: `…-repartition`, whose records it deletes (DeleteRecords) once they are
counted, and `…-changelog`, compacted, out of which a new instance has the counts. What it commits
are offsets with metadata; its group is one of consumers with a protocol of its own, `stream`.
"""

import struct
import uuid
from pathlib import Path

import pytest

from clients.conftest import Cluster
from clients.programs import running
from oracle.tools import KafkaTools, Record

pytestmark = pytest.mark.oracle

MAIN = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"


def test_word_count_goes_on_counting_where_it_was_killed(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    application = f"words-{uuid.uuid4().hex[:8]}"
    properties = {
        "application.id": application,
        "bootstrap.servers": cluster.servers,
        "state.dir": "state",
        # Without RocksDB's 70 MB.
        "dsl.store.suppliers.class": "org.apache.kafka.streams.state."
        "BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers",
        "num.stream.threads": 2,
        "commit.interval.ms": 100,
        "repartition.purge.interval.ms": 100,
        # The second instance waits so long for the first; a JVM may stand still for some of it.
        "session.timeout.ms": 15000,
        "heartbeat.interval.ms": 1000,
        "default.key.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
        "default.value.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
    }
    servers = cluster.servers
    for name in (INPUT, OUTPUT):
        kafka_tools.create_topic(servers, name, partitions=2)
    repartition, changelog = (
        f"{application}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-{use}"
        for use in ("repartition", "changelog")
    )

    def say(partition: int, *lines: str) -> None:
        records = [Record(INPUT, line.encode(), partition=partition) for line in lines]
        kafka_tools.produce(servers, records)

    def counts() -> dict[str, int]:
        found = {}
        for partition in range(2):
            for record in kafka_tools.consume(servers, OUTPUT, partition=partition):
                assert record.key is not None and record.value is not None
                found[record.key.decode()] = struct.unpack(">q", record.value)[0]
        return found

    say(0, "all streams lead to Kafka", "hello Kafka streams")
    with running(MAIN, properties, tmp_path / "first") as first:
        expected = {"all": 1, "streams": 2, "lead": 1, "to": 1, "kafka": 2, "hello": 1}
        first.wait_until(lambda: counts() == expected)
        ends = [kafka_tools.end_offset(servers, repartition, n) for n in range(2)]
        assert sum(ends) == 8
        # Whatever was counted is deleted.
        first.wait_until(
            lambda: (
                [kafka_tools.list_offset(servers, repartition, -2, n)[1] for n in range(2)] == ends
            )
        )
        # Else what was counted is read again.
        cluster.wait_for_commit(application, {(INPUT, 0): 2})
        first.kill()
    say(1, "Kafka once more", "to be")
    with running(MAIN, properties, tmp_path / "second") as second:
        expected |= {"kafka": 3, "once": 1, "more": 1, "to": 2, "be": 1}
        second.wait_until(lambda: counts() == expected)
        second.stop()
    described = kafka_tools.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        ["--bootstrap-server", servers, "--describe", "--topic", changelog],
    )
    assert "cleanup.policy=compact" in described.stdout
