"""A producer of transactions by frames, which sends what no well-behaved client would."""

import itertools
from typing import Any

from api.raw import Connection
from kafkalite import _native
from kafkalite.protocol import messages

_numbers = itertools.count()


class Transactor:
    """One producer of a transactional id, at the versions of its requests."""

    def __init__(self, connection: Connection, name: str | None = None) -> None:
        self.connection = connection
        self.name = name or f"txn-{next(_numbers)}"
        self.producer_id = self.epoch = -1
        self.find()

    def find(self) -> None:
        """Waits for the coordinator."""
        request = messages.FindCoordinatorRequest(key_type=1, coordinator_keys=[self.name])
        while self.connection.ask("FindCoordinator", 4, request).coordinators[0].error_code:
            pass

    def init(self, version: int = 4, timeout_ms: int = 60_000, **fields: Any) -> int:
        request = messages.InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=timeout_ms, **fields
        )
        answer = self.until_ready("InitProducerId", version, request)
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def until_ready(self, name: str, version: int, request: Any) -> Any:
        """Asks again while the coordinator is busy, or not there yet."""
        while True:
            answer = self.connection.ask(name, version, request)
            if answer.error_code not in (14, 15, 16, 51):
                return answer

    def add(self, *places: tuple[str, int], version: int = 3) -> dict[tuple[str, int], int]:
        topic = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        topics = [topic(name=name, partitions=[index]) for name, index in places]
        request = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        while True:
            answer = self.connection.ask("AddPartitionsToTxn", version, request)
            found = {
                (each.name, row.partition_index): row.partition_error_code
                for each in answer.results_by_topic_v3_and_below
                for row in each.results_by_partition
            }
            if 51 not in found.values():
                return found

    def end(self, commit: bool, version: int = 4, epoch: int | None = None) -> int:
        request = messages.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )
        answer = self.until_ready("EndTxn", version, request)
        if version >= 5 and answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def batch(self, sequence: int, epoch: int | None = None) -> bytes:
        builder = _native.BatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            transactional=True,
        )
        builder.append(1, None, b"x")
        return builder.finish()

    def produce(self, topic: str, sequence: int, version: int = 9, epoch: int | None = None) -> int:
        request = self.connection.produce_request(topic, self.batch(sequence, epoch))
        request.transactional_id = self.name
        response = self.connection.ask("Produce", version, request)
        return int(response.responses[0].partition_responses[0].error_code)

    def stable_end(self, topic: str) -> int:
        """The last stable offset of partition 0."""
        return int(self.connection.fetch(topic, 0, isolation=1).last_stable_offset)


def transactor(connection: Connection) -> Transactor:
    """One that has its producer id."""
    made = Transactor(connection)
    assert made.init() == 0
    return made


def add_offsets(client: Transactor, group: str, version: int = 3) -> int:
    """AddOffsetsToTxn, asked again while the last transaction ends."""
    request = messages.AddOffsetsToTxnRequest(
        transactional_id=client.name,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        group_id=group,
    )
    return int(client.until_ready("AddOffsetsToTxn", version, request).error_code)
