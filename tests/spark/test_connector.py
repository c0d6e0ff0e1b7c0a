"""Spark's own Kafka connector on kafkalite: the judge of the other files here, judged first."""

import datetime

import pytest
from pyspark.sql import SparkSession

from oracle.tools import Record
from spark.reading import CONNECTOR, Row, differences, read, rows
from spark.records import CODECS, COMPACTED_KEYS, LARGE_BYTES, ROUNDS, SEED, TRIMMED_BELOW, mixed

pytestmark = pytest.mark.oracle


def written(partitions: tuple[int, ...], per_codec: int) -> list[Row]:
    """What the topic `mixed` holds, as rows of the connector."""
    partition_ends = dict.fromkeys(partitions, 0)
    found = []
    for number, _ in enumerate(CODECS):
        for record in mixed("mixed", partitions, per_codec, SEED + number):
            found.append(as_row(record, partition_ends[record.partition]))
            partition_ends[record.partition] += 1
    return sorted(found, key=lambda row: (row[3], row[4]))


def as_row(record: Record, offset: int) -> Row:
    assert record.timestamp is not None
    timestamp = datetime.datetime.fromtimestamp(record.timestamp / 1000, datetime.UTC)
    headers = [{"key": key, "value": value} for key, value in record.headers] or None
    fields = (record.key, record.value, record.topic, record.partition, offset, timestamp, 0)
    return (*fields, headers)


@pytest.mark.parametrize("side", ["kafkalite", "kafka"])
def test_the_connector_reads_what_was_written(
    spark: SparkSession, topics: dict[str, str], side: str
) -> None:
    options = {"subscribe": "mixed", "includeHeaders": "true"}
    found = rows(read(spark, CONNECTOR, topics[side], options))
    assert not differences(found, written((0, 1, 2), 600))


def test_the_connector_finds_gaps_and_large_values_on_both_brokers(
    spark: SparkSession, topics: dict[str, str]
) -> None:
    for servers in topics.values():
        options = {"subscribe": "compacted,trimmed,large"}
        frame = read(spark, CONNECTOR, servers, options)
        found = frame.selectExpr("topic", "partition", "offset", "length(value) AS size")
        by_topic: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for topic, partition, offset, size in rows(found):
            by_topic.setdefault((topic, partition), []).append((offset, size))
        assert by_topic["trimmed", 0][0][0] == TRIMMED_BELOW
        assert by_topic["trimmed", 1][0][0] == 0
        assert max(size for _, size in by_topic["large", 0]) == LARGE_BYTES
        compacted = by_topic["compacted", 0]
        assert compacted[-1][0] == ROUNDS * (COMPACTED_KEYS // 2) - 1
        assert len(compacted) < compacted[-1][0]
