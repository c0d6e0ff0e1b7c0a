"""Streams of the same rows that ask no broker: what Spark takes, whatever a source does.

`FLOOR` is a source of Spark's own, `PYTHON_FLOOR` the least that a Python Data Source can do: its
tasks hand on batches of Arrow files, which are mapped into memory.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

MAPPED = "mapped"
BATCH_ROWS = 32_768
"""The default of `batch.rows`."""
POLL_S = 0.01


class Mapped(DataSource):
    """The rows of the files `0.arrow`, `1.arrow`, … of a folder, one a task, in `micro.batches`
    micro-batches."""

    @classmethod
    def name(cls) -> str:
        return MAPPED

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return MappedReader(self.options["path"], int(self.options["micro.batches"]))


class MappedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are counts of micro-batches."""

    def __init__(self, folder: str, micro_batches: int) -> None:
        self._folder = folder
        self._micro_batches = micro_batches

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(1)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing: the files do not grow."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        return {"at": min(start["at"] + 1, self._micro_batches)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        files = sorted(Path(self._folder).glob("*.arrow"))
        return [InputPartition((str(each), start["at"], end["at"])) for each in files]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        path, start, end = partition.value
        with pyarrow.memory_map(path) as mapped:
            file = pyarrow.ipc.open_file(mapped)
            count = file.num_record_batches
            first, last = (count * at // self._micro_batches for at in (start, end))
            for number in range(first, last):
                yield file.get_batch(number)


def register(spark: SparkSession) -> None:
    """Makes `MAPPED` a format of the session, whose workers have none of these modules."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    spark.dataSource.register(Mapped)


def write_arrow(frame: DataFrame, partitions: int, columns: tuple[str, ...], folder: Path) -> None:
    """Writes what `MAPPED` maps: the rows of each partition, a file each."""
    folder.mkdir(parents=True)
    for number in range(partitions):
        table = frame.where(f"partition = {number}").select(*columns).toArrow()
        with pyarrow.ipc.new_file(folder / f"{number}.arrow", table.schema) as out:
            out.write_table(table.combine_chunks(), max_chunksize=BATCH_ROWS)


def mapped(spark: SparkSession, folder: str, schema: str, micro_batches: int) -> DataFrame:
    """The rows of `write_arrow` as a stream."""
    reader = spark.readStream.format(MAPPED).schema(schema)
    return reader.option("micro.batches", str(micro_batches)).load(folder)


def rated(spark: SparkSession, partitions: int, micro_batch_rows: int, value: bytes) -> DataFrame:
    """Rows that Spark makes up, with the columns of its Kafka connector."""
    told = {"rowsPerBatch": str(micro_batch_rows), "numPartitions": str(partitions)}
    rows = spark.readStream.format("rate-micro-batch").options(**told).load()
    return rows.select(
        functions.lit(None).cast("binary").alias("key"),
        functions.lit(value).alias("value"),
        functions.lit("made-up").alias("topic"),
        functions.spark_partition_id().alias("partition"),
        functions.col("value").alias("offset"),
        "timestamp",
        functions.lit(0).alias("timestampType"),
    )


def ended_after(query: StreamingQuery, micro_batches: int) -> int:
    """Stops a query that would never end after so many; gives its rows."""
    while len(query.recentProgress) < micro_batches:
        time.sleep(POLL_S)
    query.stop()
    return sum(each["numInputRows"] for each in query.recentProgress[:micro_batches])
