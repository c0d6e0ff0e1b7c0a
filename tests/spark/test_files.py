"""`path` reads the files of a log without a broker: the rows are those that the connector gets from
the broker that has written them."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from oracle.broker import KafkaBroker
from spark.reading import CONNECTOR, differences, read, rows, stream_what_is_there

pytestmark = pytest.mark.oracle


def files(
    spark: SparkSession, engine: str, paths: list[Path], options: dict[str, Any]
) -> DataFrame:
    reader = spark.read.format("kafkalite").options(engine=engine, **options)
    return reader.load([str(path) for path in paths])


@pytest.mark.parametrize(
    ("topic", "partitions", "options"),
    [
        ("mixed", 4, {"includeHeaders": "true"}),
        ("compacted", 1, {}),
        ("transactions", 2, {"kafka.isolation.level": "read_committed"}),
        (
            "trimmed",
            2,
            {
                "startingOffsets": json.dumps({"trimmed": {"0": 40, "1": -2}}),
                "endingOffsets": json.dumps({"trimmed": {"0": -1, "1": 99}}),
                "maxRecordsPerPartition": 30,
            },
        ),
    ],
)
def test_files_of_kafka_hold_what_the_connector_gets_from_it(
    spark: SparkSession,
    kafka: KafkaBroker,
    topics: dict[str, str],
    engine: str,
    topic: str,
    partitions: int,
    options: dict[str, Any],
) -> None:
    expected = rows(read(spark, CONNECTOR, topics["kafka"], {"subscribe": topic, **options}))
    paths = [kafka.partition(topic, number) for number in range(partitions)]
    found = rows(files(spark, engine, paths, options))
    assert expected
    assert not differences(found, expected)


def test_files_are_a_stream_too(
    spark: SparkSession, kafka: KafkaBroker, topics: dict[str, str], engine: str, tmp_path: Path
) -> None:
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 70}
    one = {"subscribe": "appended", **limits}
    expected = stream_what_is_there(spark, CONNECTOR, topics["kafka"], one, tmp_path / "connector")
    paths = json.dumps([str(kafka.partition("appended", number)) for number in (0, 1)])
    found = stream_what_is_there(
        spark, engine, "", {"paths": paths, **limits}, tmp_path / "kafkalite"
    )
    assert found.ends == expected.ends
    assert len(found.batches) > 2
    for mine, theirs in zip(found.batches, expected.batches, strict=True):
        assert not differences(mine, theirs)
