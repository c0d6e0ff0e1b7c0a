"""Every option of reading, row by row against Spark's own Kafka connector: both sources on both
brokers, on the same topics."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.reading import CONNECTOR, Row, differences, read, rows
from spark.records import START_MS

pytestmark = pytest.mark.oracle

BOTH = ("kafkalite", "kafka")
TRANSACTIONAL = ("kafka",)

# A timestamp that the empty partition of `mixed` has nothing at or after.
LATE_MS = START_MS + 995_000
NEVER_MS = START_MS + 10_000_000


@dataclass(frozen=True)
class Case:
    """Options, and the brokers that hold what they ask for."""

    options: Mapping[str, Any]
    sides: tuple[str, ...] = BOTH
    columns: tuple[str, ...] = ("*",)
    rows_min: int = 1
    """A case that finds less has lost what it is to show."""
    task_rows_max: int | None = None
    """Set where our tasks are not the connector's: its batches look at `maxRecordsPerPartition`
    only beside a `minPartitions` that is larger than the number of partitions."""


@dataclass
class Judge:
    """What the connector answers, asked once a case and broker."""

    spark: SparkSession
    topics: Mapping[str, str]
    answers: dict[tuple[str, str], tuple[list[Row], list[Row]]] = field(default_factory=dict)

    def answer(self, side: str, name: str) -> tuple[list[Row], list[Row]]:
        if (side, name) not in self.answers:
            self.answers[side, name] = ask(self.spark, CONNECTOR, self.topics[side], CASES[name])
        return self.answers[side, name]


CASES = {
    "all shapes": Case(
        {"subscribe": "mixed,appended,trimmed,compacted", "includeHeaders": "true"}, rows_min=3000
    ),
    "no headers": Case({"subscribe": "mixed"}, rows_min=3000),
    "values of 10 MB": Case({"subscribe": "large"}, rows_min=10),
    "pattern": Case({"subscribePattern": "m.x.*|trimmed|no-such-topic"}, rows_min=3000),
    "a pattern for a part of names": Case({"subscribePattern": "rimme|^compacte"}, rows_min=100),
    "assign, from and to offsets": Case(
        {
            "assign": json.dumps({"mixed": [0, 3], "appended": [1], "compacted": [0]}),
            "startingOffsets": json.dumps(
                {
                    "mixed": {"0": 100, "3": -2},
                    "appended": {"1": -2},
                    "compacted": {"0": 77},
                }
            ),
            "endingOffsets": json.dumps(
                {
                    "mixed": {"0": 901, "3": -1},
                    "appended": {"1": -1},
                    "compacted": {"0": 150},
                }
            ),
        },
        rows_min=801,
    ),
    "earliest to latest": Case(
        {"subscribe": "trimmed", "startingOffsets": "earliest", "endingOffsets": "latest"}
    ),
    "from timestamp to timestamp": Case(
        {
            "subscribe": "mixed",
            "startingTimestamp": START_MS + 300_000,
            "endingTimestamp": LATE_MS,
            "startingOffsetsByTimestampStrategy": "latest",
        }
    ),
    "timestamps of partitions": Case(
        {
            "assign": json.dumps({"mixed": [0, 2]}),
            "startingOffsetsByTimestamp": json.dumps({"mixed": {"0": START_MS, "2": LATE_MS}}),
            "endingOffsetsByTimestamp": json.dumps({"mixed": {"0": LATE_MS, "2": NEVER_MS}}),
        }
    ),
    "a timestamp that nothing follows, taken as latest": Case(
        {
            "subscribe": "mixed",
            "startingTimestamp": NEVER_MS,
            "startingOffsetsByTimestampStrategy": "latest",
        },
        rows_min=0,
    ),
    "a timestamp before timestamps and offsets": Case(
        {
            "assign": json.dumps({"mixed": [1]}),
            "startingTimestamp": LATE_MS,
            "startingOffsetsByTimestamp": json.dumps({"mixed": {"1": NEVER_MS}}),
            "startingOffsets": json.dumps({"mixed": {"1": 3}}),
            "endingOffsetsByTimestamp": json.dumps({"mixed": {"1": NEVER_MS}}),
            "endingOffsets": json.dumps({"mixed": {"1": 4}}),
        }
    ),
    "minPartitions": Case({"subscribe": "mixed,trimmed", "minPartitions": 11}),
    "maxRecordsPerPartition": Case(
        {"subscribe": "mixed,trimmed", "maxRecordsPerPartition": 151}, task_rows_max=151
    ),
    "minPartitions and maxRecordsPerPartition": Case(
        {"subscribe": "mixed,trimmed", "minPartitions": 9, "maxRecordsPerPartition": 270}
    ),
    "records that are gone, skipped": Case(
        {
            "subscribe": "trimmed",
            "startingOffsets": json.dumps({"trimmed": {"0": 0, "1": 0}}),
            "failOnDataLoss": "false",
        },
    ),
    "all of transactions": Case({"subscribe": "transactions"}, TRANSACTIONAL, rows_min=85),
    "committed transactions": Case(
        {"subscribe": "transactions", "kafka.isolation.level": "read_committed"},
        TRANSACTIONAL,
        rows_min=50,
    ),
    "committed transactions, from and to offsets within aborted ones": Case(
        {
            "subscribe": "transactions",
            "startingOffsets": json.dumps({"transactions": {"0": 9, "1": 1}}),
            "endingOffsets": json.dumps({"transactions": {"0": 31, "1": 30}}),
            "kafka.isolation.level": "read_committed",
        },
        TRANSACTIONAL,
    ),
    "committed transactions, cut into tasks": Case(
        {
            "subscribe": "transactions",
            "kafka.isolation.level": "read_committed",
            "maxRecordsPerPartition": 3,
        },
        TRANSACTIONAL,
        task_rows_max=3,
    ),
}


def ask(spark: SparkSession, source: str, servers: str, case: Case) -> tuple[list[Row], list[Row]]:
    """All rows, and which offsets each task has read (first, last), in the order of the log."""
    frame = read(spark, source, servers, case.options).selectExpr(
        *case.columns, "spark_partition_id() AS task"
    )
    found = rows(frame)
    names = frame.columns
    topic, partition, offset = (names.index(name) for name in ("topic", "partition", "offset"))
    tasks: dict[tuple[int, str, int], tuple[int, int]] = {}
    for row in found:
        key = (row[-1], row[topic], row[partition])
        tasks[key] = (tasks.get(key, (row[offset], 0))[0], row[offset])
    return [row[:-1] for row in found], sorted((*key[1:], *span) for key, span in tasks.items())


@pytest.fixture(scope="module")
def judge(spark: SparkSession, topics: dict[str, str]) -> Judge:
    return Judge(spark, topics)


SIDES_AND_CASES = [
    pytest.param(side, name, id=f"{name}, on {side}")
    for name, case in CASES.items()
    for side in case.sides
]


@pytest.mark.parametrize(("side", "name"), SIDES_AND_CASES)
def test_rows_and_tasks_are_the_connectors(
    spark: SparkSession, judge: Judge, engine: str, side: str, name: str
) -> None:
    expected, expected_tasks = judge.answer(side, name)
    assert len(expected) >= CASES[name].rows_min
    found, found_tasks = ask(spark, engine, judge.topics[side], CASES[name])
    assert not differences(found, expected)
    task_rows_max = CASES[name].task_rows_max
    if task_rows_max is None:
        assert found_tasks == expected_tasks
    else:
        assert all(last - first < task_rows_max for _, _, first, last in found_tasks)
        assert len(found_tasks) > len(expected_tasks)
