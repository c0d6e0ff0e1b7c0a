"""Copies a topic to another one in transactions, its group's offsets in them: a program, so that it
can be killed. One transaction in eight is aborted.

    python -m faults.copier SERVERS RUN NAME FILE SEED

RUN has topics and a group of its own (`Names`). FILE takes a line for each record, once it is
certain what became of its transaction.
"""

import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self, TextIO

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from faults.verify import Operation, Outcome
from faults.workload import CLIENT, CONSUMER

HEADER = "transaction"
ABORTED_OF = 8
BATCH_MAX = 60
ASK_S = 5.0


class Names(NamedTuple):
    """What a run copies from and to, and as whom. Two runs on one cluster share none of it, for
    committed offsets may outlive a topic that is deleted when all brokers stop at once."""

    source: str
    target: str
    group: str

    @classmethod
    def of(cls, run: str) -> Self:
        return cls(f"source-{run}", f"target-{run}", f"copiers-{run}")


class Copier:
    """One worker, until it is killed or shut out."""

    def __init__(self, servers: str, names: Names, name: str, told: TextIO, seed: int) -> None:
        self._names = names
        self._name = name
        self._told = told
        self._draw = random.Random(f"{seed} {name}")
        self._consumer = Consumer(
            {
                **CONSUMER,
                "bootstrap.servers": servers,
                "group.id": names.group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 1_500,
            }
        )
        self._producer = Producer(
            {
                **CLIENT,
                "bootstrap.servers": servers,
                "transactional.id": name.rpartition("-")[0],
                "transaction.timeout.ms": 20_000,
                "linger.ms": 0,
                # By default librdkafka 2.16 lets go of a broker that was away, waits for ever
                # where it was about to send offsets to it, and does not come to its end.
                "metadata.recovery.strategy": "none",
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
            }
        )

    def run(self) -> None:
        patiently(lambda: self._producer.init_transactions(ASK_S))
        self._consumer.subscribe([self._names.source])
        number = 0
        while True:
            messages = [
                each
                for each in self._consumer.consume(self._draw.randrange(1, BATCH_MAX), 0.2)
                if each.error() is None
            ]
            if messages:
                number += 1
                self._copy(f"{self._name}-{number}", messages)

    def _copy(self, transaction: str, messages: list[Message]) -> None:
        self._producer.begin_transaction()
        offsets: dict[int, int] = {}
        for each in messages:
            partition, offset = each.partition(), each.offset()
            assert partition is not None
            assert offset is not None
            offsets[partition] = offset + 1
            self._producer.produce(
                self._names.target,
                each.value(),
                partition=partition,
                headers=[(HEADER, transaction.encode())],
            )
        if self._draw.randrange(ABORTED_OF) == 0:
            # Some of it is on its way, or there. It is not known to be aborted, but never will
            # anybody commit it.
            self._producer.poll(self._draw.choice((0.0, 0.05)))
            self._tell(transaction, messages, Outcome.FAIL)
            self._abort()
            return
        places = [TopicPartition(self._names.source, *each) for each in offsets.items()]
        try:
            group = self._consumer.consumer_group_metadata()
            patiently(lambda: self._producer.send_offsets_to_transaction(places, group, ASK_S))
            patiently(lambda: self._producer.commit_transaction(ASK_S))
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self._abort()
            return
        self._tell(transaction, messages, Outcome.OK)

    def _abort(self) -> None:
        """Goes back to what is committed."""
        patiently(lambda: self._producer.abort_transaction(ASK_S))
        assigned = self._consumer.assignment()
        if assigned:
            for each in patiently(lambda: self._consumer.committed(assigned, ASK_S)):
                self._consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))

    def _tell(self, transaction: str, messages: list[Message], outcome: Outcome) -> None:
        now = time.monotonic()
        for each in messages:
            value = (each.value() or b"").decode()
            place = f"{self._names.target}-{each.partition()}"
            copy = Operation(
                self._name, "copy", outcome, now, now, place, value, transaction=transaction
            )
            self._told.write(f"{copy.to_line()}\n")
        self._told.flush()


def patiently(ask: Callable[[], Any]) -> Any:
    """Asks again while the broker is away."""
    while True:
        try:
            return ask()
        except KafkaException as failure:
            error = failure.args[0]
            if error.fatal() or error.txn_requires_abort() or not error.retriable():
                raise


if __name__ == "__main__":
    servers, run, name, path, seed = sys.argv[1:]
    with Path(path).open("w") as file:
        try:
            Copier(servers, Names.of(run), name, file, int(seed)).run()
        except KafkaException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)  # the end of a producer may not return
