"""What a batch inflates to is held for as long as it is looked at."""

import gzip

import psutil

import kafkalite
from api.batches import batch
from api.raw import Connection

PARTITIONS = 32
INFLATED_BYTES = 16 << 20
GZIP = 1


def test_a_log_keeps_no_memory_of_what_it_has_inflated() -> None:
    """Each log kept the memory of its last compressed batch until the next one came: a request of
    half a megabyte held a gigabyte that nobody counted."""
    records = batch([bytes(INFLATED_BYTES)], attributes=GZIP, compress=gzip.compress)
    assert len(records) < 20_000
    with kafkalite.Broker() as broker, Connection(broker.bootstrap_servers) as connection:
        assert connection.create_topic("t", PARTITIONS).error_code == 0
        process = psutil.Process(broker.pid)
        before_bytes = process.memory_info().rss
        request = connection.produce_request("t", records)
        request.timeout_ms = 100_000
        data = request.topic_data[0]
        kind = type(data.partition_data[0])
        data.partition_data = [kind(index=at, records=records) for at in range(PARTITIONS)]
        answers = connection.ask("Produce", 9, request).responses[0].partition_responses
        assert [each.error_code for each in answers] == [0] * PARTITIONS
        grown_bytes = process.memory_info().rss - before_bytes
        assert grown_bytes < PARTITIONS * INFLATED_BYTES // 4
