"""`kafkalite.read_arrow`: what a Java producer wrote, over the wire into columns."""

import subprocess
import sys
from collections.abc import Iterator

import polars
import pyarrow
import pytest

import kafkalite
from kafkalite.errors import BrokerError, InvalidArgumentError
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools, Record

pytestmark = pytest.mark.oracle

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def servers(kafka: KafkaBroker) -> str:
    return kafka.bootstrap_servers


@pytest.fixture(scope="module")
def topic(kafka_tools: KafkaTools, servers: str) -> Iterator[str]:
    """Two partitions: 0 with 100 records of each codec, 1 with committed and aborted ones."""
    name = "arrow-over-the-wire"
    kafka_tools.create_topic(servers, name, partitions=2, config={"retention.ms": "-1"})
    number = 0
    for codec in CODECS:
        records: list[Record | str] = []
        for _ in range(100):
            headers = (("n", b"%d" % number), ("null", None)) if number % 3 == 0 else ()
            value = None if number % 7 == 0 else b"value %d " % number * 20
            key = None if number % 5 == 0 else b"key %d" % number
            timestamp = START_MS + number
            records.append(Record(name, value, key=key, headers=headers, timestamp=timestamp))
            number += 1
        kafka_tools.produce(servers, records, config={"compression.type": codec})
    steps: list[Record | str] = []
    for transaction in range(6):
        steps.append("begin")
        steps += [Record(name, b"%d" % transaction, partition=1) for _ in range(4)]
        steps.append("commit" if transaction % 2 else "abort")
    kafka_tools.produce(servers, steps, config={"transactional.id": "arrow"})
    yield name


def as_records(table: pyarrow.Table) -> list[Record]:
    return [
        Record(
            row["topic"],
            row["value"],
            key=row["key"],
            partition=row["partition"],
            timestamp=int(row["timestamp"].timestamp() * 1000 + 0.5),
            headers=tuple((each["key"], each["value"]) for each in row["headers"] or ()),
            offset=row["offset"],
            timestamp_type=row["timestampType"],
            leader_epoch=0,
        )
        for row in table.to_pylist()
    ]


def test_columns_hold_what_a_java_consumer_gets(
    kafka_tools: KafkaTools, servers: str, topic: str
) -> None:
    found = as_records(kafkalite.read_arrow(topic, servers).to_pyarrow())
    assert [each for each in found if each.partition == 0] == kafka_tools.consume(servers, topic, 0)
    assert [each for each in found if each.partition == 1] == kafka_tools.consume(servers, topic, 1)


def test_aborted_rows_are_left_out_when_asked(
    kafka_tools: KafkaTools, servers: str, topic: str
) -> None:
    committed = kafkalite.read_arrow(topic, servers, isolation="read_committed").to_pyarrow()
    wanted = kafka_tools.consume(servers, topic, 1, config={"isolation.level": "read_committed"})
    assert [each for each in as_records(committed) if each.partition == 1] == wanted
    assert len(wanted) == 12


def test_rows_are_those_between_start_and_stop(servers: str, topic: str) -> None:
    read = kafkalite.read_arrow(
        topic, servers, start={0: 90}, stop={"0": 310, f"{topic}-1": 3}, columns=["offset"]
    )
    assert read.ranges == [(topic, 0, 90, 310), (topic, 1, 0, 3)]
    assert read.schema == {"offset": "Int64"}
    assert read.to_pyarrow()["offset"].to_pylist() == [*range(90, 310), 0, 1, 2]
    # Again, and as another library's frame.
    assert read.to_polars()["offset"].to_list() == [*range(90, 310), 0, 1, 2]


def test_batches_are_bounded_and_of_one_partition(servers: str, topic: str) -> None:
    read = kafkalite.read_arrow(topic, servers, columns=["partition", "offset"], batch_rows=64)
    batches = list(pyarrow.RecordBatchReader.from_stream(read))
    assert max(len(batch) for batch in batches) == 64
    assert all(len(set(batch["partition"].to_pylist())) == 1 for batch in batches)
    assert sum(len(batch) for batch in batches) == 500 + 24


def test_files_and_wire_give_the_same_table(kafka: KafkaBroker, servers: str, topic: str) -> None:
    over_the_wire = kafkalite.read_arrow(topic, servers, stop={0: 500, 1: 0}).to_pyarrow()
    from_files = kafkalite.read_log(kafka.partition(topic, 0), stop=500).to_pyarrow()
    assert over_the_wire.equals(from_files)


def test_nothing_but_a_count_of_rows_is_needed(servers: str, topic: str) -> None:
    read = kafkalite.read_arrow(topic, servers, columns=["topic"])
    assert polars.DataFrame(read).height == 524


def test_what_cannot_be_read_is_refused(servers: str, topic: str) -> None:
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        kafkalite.read_arrow("no-such-topic", servers)
    with pytest.raises(InvalidArgumentError, match="start 9000 is outside"):
        kafkalite.read_arrow(topic, servers, start={0: 9000})
    with pytest.raises(InvalidArgumentError, match="partition 7, which is not read"):
        kafkalite.read_arrow(topic, servers, stop={7: 1})
    with pytest.raises(InvalidArgumentError, match="unknown column 'size'"):
        kafkalite.read_arrow(topic, servers, columns=["size"])
    with pytest.raises(InvalidArgumentError, match="lies before its start"):
        kafkalite.read_arrow(topic, servers, start={0: 10}, stop={0: 5})
    with pytest.raises(InvalidArgumentError, match="isolation"):
        kafkalite.read_arrow(topic, servers, isolation="none")


def test_what_is_deleted_meanwhile_is_an_error_and_not_an_end(
    kafka_tools: KafkaTools, servers: str
) -> None:
    name = "arrow-shrinks"
    kafka_tools.create_topic(servers, name)
    kafka_tools.produce(servers, [Record(name, b"x") for _ in range(10)])
    read = kafkalite.read_arrow(name, servers)
    kafka_tools.delete_records(servers, name, 5)
    with pytest.raises(Exception, match="arrow-shrinks-0: offset 0 is no longer there"):
        read.to_pyarrow()


def test_a_stream_that_is_dropped_half_read_ends_cleanly(servers: str, topic: str) -> None:
    program = (
        "import kafkalite, pyarrow, sys\n"
        f"read = kafkalite.read_arrow({topic!r}, {servers!r}, batch_rows=10)\n"
        "reader = pyarrow.RecordBatchReader.from_stream(read)\n"
        "print(len(reader.read_next_batch()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("10\n", "", 0)
