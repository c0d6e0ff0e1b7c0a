"""What a batch inflates to is never in memory as a whole."""

import gzip
import re
from pathlib import Path

import pytest

import kafkalite
from api.batches import batch
from api.raw import Connection

INFLATED_BYTES = 96 << 20
GROWN_BYTES_MAX = 32 << 20
GZIP = 1


def peak_bytes(pid: int) -> int:
    """The most resident memory that a process has had."""
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found) * 1024


@pytest.mark.parametrize("count", [1, 256])
def test_a_batch_is_judged_and_searched_without_being_inflated_as_a_whole(count: int) -> None:
    """A batch of 0.3 MB that inflated to a gigabyte took a gigabyte, and a broker with half of that
    to spare aborted. Nor may a log keep what its last batch inflated to."""
    now_ms = 1_700_000_000_000
    values = [bytes(INFLATED_BYTES // count)] * count
    times = [now_ms + number for number in range(count)]
    records = batch(values, timestamps=times, attributes=GZIP, compress=gzip.compress)
    assert len(records) < 300_000
    del values
    with kafkalite.Broker() as broker, Connection(broker.bootstrap_servers) as connection:
        assert connection.create_topic("t", 2).error_code == 0
        before_bytes = peak_bytes(broker.pid)
        request = connection.produce_request("t", records)
        request.timeout_ms = 100_000
        data = request.topic_data[0]
        kind = type(data.partition_data[0])
        data.partition_data = [kind(index=at, records=records) for at in range(2)]
        answers = connection.ask("Produce", 9, request).responses[0].partition_responses
        assert [each.error_code for each in answers] == [0, 0]
        assert connection.list_offsets("t", times[-1]).offset == count - 1
        assert peak_bytes(broker.pid) - before_bytes < GROWN_BYTES_MAX


@pytest.mark.parametrize("codec", ["producer", "zstd", "lz4"])
def test_a_large_record_is_not_in_memory_as_a_whole_when_its_batch_is_built_again(
    codec: str,
) -> None:
    """An offset out of line, or another codec than the topic's, has the broker build a batch again:
    a record of 96 MiB in 0.1 MB then took 0.25 GB, in each network thread."""
    value = bytes(INFLATED_BYTES)
    first_delta = 1 if codec == "producer" else 0
    records = batch([value], attributes=GZIP, compress=gzip.compress, first_delta=first_delta)
    with kafkalite.Broker() as broker, Connection(broker.bootstrap_servers) as connection:
        assert connection.create_topic("t", 1, compression_type=codec).error_code == 0
        before_bytes = peak_bytes(broker.pid)
        request = connection.produce_request("t", records)
        request.timeout_ms = 100_000
        answers = connection.ask("Produce", 9, request).responses[0].partition_responses
        assert [each.error_code for each in answers] == [0]
        assert peak_bytes(broker.pid) - before_bytes < GROWN_BYTES_MAX
