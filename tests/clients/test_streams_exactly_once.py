"""Kafka Streams with `exactly_once_v2`: a store, a window and a join (`streams/Exactly.java`). The
application is killed in the midst, as is its broker. A `read_committed` reader finds what is
computed here, once each.
"""

import contextlib
import time
from collections import defaultdict
from pathlib import Path

import pytest

from clients import provision
from clients.conftest import Cluster
from clients.programs import Program, running
from oracle.tools import KafkaTools, Record

pytestmark = pytest.mark.oracle

KEYS, PARTITIONS = 5, 2
ROUNDS_SHORT, ROUNDS_LONG, PER_ROUND = 2, 20, 100
WINDOW_MS, APART_MS = 10_000, 5_000
ORDER_EVERY_MS, PAYMENT_EVERY_MS = 700, 900
OUTPUTS = ("totals", "windows", "joined")
Said = dict[str, list[tuple[str, str]]]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "rounds", [ROUNDS_SHORT, pytest.param(ROUNDS_LONG, marks=pytest.mark.long)]
)
def test_each_order_counts_once_whatever_is_killed(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path, rounds: int
) -> None:
    application = f"exactly-{rounds}"
    properties = {
        "application.id": application,
        "bootstrap.servers": cluster.servers,
        "processing.guarantee": "exactly_once_v2",
        "state.dir": "state",
        # Without RocksDB's 70 MB.
        "dsl.store.suppliers.class": "org.apache.kafka.streams.state."
        "BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers",
        "statestore.cache.max.bytes": 0,
        "num.stream.threads": 2,
        "commit.interval.ms": 200,
        # What a killed instance has open is aborted after so long. Its members come back under
        # their names at once; where they had not joined yet, they are waited for.
        "producer.transaction.timeout.ms": 5000,
        "group.instance.id": "instance",
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 1000,
        "auto.offset.reset": "earliest",
        "reconnect.backoff.max.ms": 500,
        "default.key.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
        "default.value.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
    }
    servers, prefix = cluster.servers, f"{application}-"
    for name in ("orders", "payments", *OUTPUTS):
        kafka_tools.create_topic(servers, prefix + name, partitions=PARTITIONS)
    began = round(time.time() * 1000) // WINDOW_MS * WINDOW_MS - 3_600_000
    orders = make_input(f"{prefix}orders", ORDER_EVERY_MS, began, rounds)
    payments = make_input(f"{prefix}payments", PAYMENT_EVERY_MS, began, rounds)
    wanted = expected(orders, payments)
    classes = [provision.streams_application()]
    with contextlib.ExitStack() as instances:

        def start(number: int) -> Program:
            folder = tmp_path / f"instance-{number}"
            return instances.enter_context(running("Exactly", properties, folder, classes))

        instance = start(0)
        for turn in range(rounds):
            before = len(said(kafka_tools, servers, prefix)["totals"])
            part = slice(turn * PER_ROUND, (turn + 1) * PER_ROUND)
            kafka_tools.produce(servers, [*orders[part], *payments[part]])
            instance.wait_until(
                lambda before=before: len(said(kafka_tools, servers, prefix)["totals"]) > before  # type: ignore[misc]
            )
            if turn % 2 == 0:
                instance.kill()
                instance = start(turn + 1)
            else:
                cluster.broker.kill()
                cluster.broker.start()
        instance.wait_until(lambda: count(said(kafka_tools, servers, prefix)) >= count(wanted))
        instance.stop()
    assert said(kafka_tools, servers, prefix) == wanted


def make_input(topic: str, every_ms: int, began: int, rounds: int) -> list[Record]:
    return [
        Record(
            topic,
            str(number).encode(),
            key=f"k{number % KEYS}".encode(),
            partition=number % KEYS % PARTITIONS,
            timestamp=began + number * every_ms,
        )
        for number in range(rounds * PER_ROUND)
    ]


def expected(orders: list[Record], payments: list[Record]) -> Said:
    """All that the application has to say, sorted."""
    found: Said = {name: [] for name in OUTPUTS}
    totals: dict[str, int] = defaultdict(int)
    windows: dict[str, int] = defaultdict(int)
    for order in orders:
        key, value, at = facts(order)
        totals[key] += int(value)
        found["totals"].append((key, str(totals[key])))
        window = f"{key}@{at // WINDOW_MS * WINDOW_MS}"
        windows[window] += 1
        found["windows"].append((window, str(windows[window])))
        for payment in payments:
            payer, paid, paid_at = facts(payment)
            if payer == key and abs(paid_at - at) <= APART_MS:
                found["joined"].append((key, f"{value}+{paid}"))
    return {name: sorted(each) for name, each in found.items()}


def facts(record: Record) -> tuple[str, str, int]:
    assert record.key is not None
    assert record.value is not None
    assert record.timestamp is not None
    return record.key.decode(), record.value.decode(), record.timestamp


def said(tools: KafkaTools, servers: str, prefix: str) -> Said:
    """All that is committed, sorted."""
    config = {"isolation.level": "read_committed"}
    return {
        name: sorted(
            facts(record)[:2]
            for partition in range(PARTITIONS)
            for record in tools.consume(servers, prefix + name, partition, config=config)
        )
        for name in OUTPUTS
    }


def count(told: Said) -> int:
    return sum(map(len, told.values()))
