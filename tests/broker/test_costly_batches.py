"""Batches that take long to be judged hold up nobody but their own producers."""

import gzip
import time
from typing import Any

import kafkalite
from api.batches import batch, varint
from api.raw import Connection
from kafkalite.protocol import messages

HEADERS = 48 << 20
GZIP = 1
PARTITIONS = 10
PRODUCE = 0
VERSION = 9


def costly_batch() -> bytes:
    """A batch of 0.1 MB whose only record has many empty headers, each of which is looked at."""
    content = b"\0" + varint(0) + varint(0) + varint(-1) + varint(0)
    content += varint(HEADERS) + bytes(2 * HEADERS)
    record = gzip.compress(varint(len(content)) + content)
    return batch([b""], attributes=GZIP, compress=lambda _: record)


def send(connection: Connection, request: Any) -> int:
    return connection.send(PRODUCE, VERSION, request.encode(VERSION))


def partitions_of(connection: Connection, correlation_id: int) -> Any:
    answer = connection.receive(PRODUCE, VERSION, correlation_id)
    return answer.responses[0].partition_responses


def records_are_there(connection: Connection, topic: str) -> bool:
    """Says whether any partition of the topic holds a record."""
    kind = messages.ListOffsetsRequest
    partitions = [
        kind.ListOffsetsTopic.ListOffsetsPartition(partition_index=at, timestamp=-1)
        for at in range(PARTITIONS)
    ]
    topics = [kind.ListOffsetsTopic(name=topic, partitions=partitions)]
    answer = connection.ask("ListOffsets", 7, kind(replica_id=-1, topics=topics))
    return any(each.offset > 0 for each in answer.topics[0].partitions)


def test_one_producers_costly_batches_do_not_stop_others() -> None:
    """A request of a few megabytes that inflated to many gigabytes was judged as a whole while all
    producers of the log directory waited, until their requests timed out."""
    records = costly_batch()
    with (
        kafkalite.Broker() as broker,
        Connection(broker.bootstrap_servers) as costly,
        Connection(broker.bootstrap_servers) as other,
    ):
        assert costly.create_topic("costly", PARTITIONS).error_code == 0
        assert other.create_topic("other", 1).error_code == 0
        request = costly.produce_request("costly", records)
        request.timeout_ms = 300_000
        data = request.topic_data[0]
        kind = type(data.partition_data[0])
        data.partition_data = [kind(index=at, records=records) for at in range(PARTITIONS)]
        begun = time.monotonic()
        number = send(costly, request)
        while not records_are_there(other, "costly"):
            assert time.monotonic() < begun + 300
        # Now the others are being judged.
        for _ in range(5):
            assert other.produce("other", batch([b"value"])).error_code == 0
        others_seconds = time.monotonic() - begun
        assert [each.error_code for each in partitions_of(costly, number)] == [0] * PARTITIONS
        assert others_seconds < (time.monotonic() - begun) / 2


def test_records_behind_costly_ones_of_their_partition_do_not_overtake_them() -> None:
    records = costly_batch()
    with kafkalite.Broker() as broker, Connection(broker.bootstrap_servers) as connection:
        assert connection.create_topic("t", 2).error_code == 0
        numbers = []
        for round_ in range(12):
            small = batch([b"small"]) if round_ % 3 else records
            request = connection.produce_request("t", small)
            request.timeout_ms = 300_000
            numbers.append(send(connection, request))
        answers = [partitions_of(connection, number)[0] for number in numbers]
        assert [each.error_code for each in answers] == [0] * 12
        assert [each.base_offset for each in answers] == list(range(12))
