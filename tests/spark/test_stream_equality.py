"""Streams against Spark's own Kafka connector: the same micro-batches with the same rows, and the
same offsets in the checkpoint."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.reading import CONNECTOR, Streamed, differences, stream_what_is_there
from spark.records import START_MS

pytestmark = pytest.mark.oracle

# Name: the broker, the options, and how many micro-batches it takes to show anything.
CASES: dict[str, tuple[str, Mapping[str, Any], int]] = {
    "a limit a trigger, on kafkalite": (
        "kafkalite",
        {
            "subscribe": "mixed,trimmed,compacted",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 1300,
            "includeHeaders": "true",
        },
        3,
    ),
    "a limit a trigger, on kafka": (
        "kafka",
        {
            "subscribe": "appended,trimmed,compacted",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 250,
        },
        3,
    ),
    "from a timestamp, cut into tasks, on kafkalite": (
        "kafkalite",
        {
            "subscribePattern": "mix.d",
            "startingTimestamp": START_MS + 900_000,
            "startingOffsetsByTimestampStrategy": "latest",
            "minPartitions": 7,
        },
        1,
    ),
    "timestamps of partitions, on kafka": (
        "kafka",
        {
            "assign": json.dumps({"mixed": [0, 2]}),
            "startingOffsetsByTimestamp": json.dumps(
                {"mixed": {"0": START_MS, "2": START_MS + 990_000}}
            ),
            "maxRecordsPerPartition": 300,
        },
        1,
    ),
    "from offsets, on kafka": (
        "kafka",
        {
            "assign": json.dumps({"mixed": [1, 3], "compacted": [0]}),
            "startingOffsets": json.dumps({"mixed": {"1": 950, "3": -2}, "compacted": {"0": 61}}),
        },
        1,
    ),
    "from latest, where nothing is to be read, on kafka": (
        "kafka",
        {"subscribe": "mixed", "startingOffsets": "latest"},
        0,
    ),
    "committed transactions, a limit a trigger, on kafka": (
        "kafka",
        {
            "subscribe": "transactions",
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
            "maxOffsetsPerTrigger": 45,
        },
        2,
    ),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Streamed]:
    """What the connector answers, asked once a case."""
    return {}


@pytest.mark.parametrize("name", CASES)
def test_micro_batches_are_the_connectors(
    spark: SparkSession,
    topics: dict[str, str],
    answers: dict[str, Streamed],
    engine: str,
    name: str,
    tmp_path: Path,
) -> None:
    side, options, batches_min = CASES[name]
    if name not in answers:
        answers[name] = stream_what_is_there(
            spark, CONNECTOR, topics[side], options, tmp_path / "connector"
        )
    expected = answers[name]
    assert len([batch for batch in expected.batches if batch]) >= batches_min
    found = stream_what_is_there(spark, engine, topics[side], options, tmp_path / "kafkalite")
    assert found.ends == expected.ends
    assert len(found.batches) == len(expected.batches)
    for mine, theirs in zip(found.batches, expected.batches, strict=True):
        assert not differences(mine, theirs)
