"""`format("kafkalite")` as PySpark knows it: schema and readers by the options.

Spark makes the object in a Python process of the driver, hands it on by pickle and asks it for what
a query needs; nothing here connects to anybody.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from kafkalite.errors import InvalidArgumentError, KafkaliteError
from kafkalite.spark.batch import BatchReader, PushingReader
from kafkalite.spark.options.read import ReadOptions
from kafkalite.spark.options.write import WriteOptions
from kafkalite.spark.schema import ddl
from kafkalite.spark.sentence import without_traceback
from kafkalite.spark.stream import RefusedStream, StreamReader
from kafkalite.spark.workers import freeze_imports

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        DataSourceWriter,
    )

__all__ = ["KafkaliteDataSource"]


class KafkaliteDataSource(DataSource):
    """Topics of any Kafka cluster, or its files, as rows."""

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return "kafkalite"

    @without_traceback
    def schema(self) -> str:
        """The schema of Spark's Kafka connector, cut and typed by the options, as DDL."""
        freeze_imports()
        return ddl(ReadOptions.of(self.options, streaming=None))

    @without_traceback
    def reader(self, schema: StructType) -> "DataSourceReader":
        """Gives the reader of a batch query; `schema` may be any choice of the columns, in any
        order."""
        freeze_imports()
        options = self._options(streaming=False)
        return (PushingReader if options.pushdown else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":  # noqa: N802
        """Gives the reader of a streaming query."""
        try:
            options = self._options(streaming=True)
        except KafkaliteError as refusal:
            return RefusedStream(refusal)
        return StreamReader(options, schema)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        """Gives the writer of a batch query. Topics are only appended to."""
        from kafkalite.spark.sink import BatchWriter

        freeze_imports()
        if overwrite:
            raise InvalidArgumentError(
                "Save mode Overwrite not allowed for kafkalite. The allowed save mode is Append."
            )
        return BatchWriter(WriteOptions.of(self.options, schema))

    @without_traceback
    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - complete mode writes all rows each time, as the connector
    ) -> "DataSourceStreamArrowWriter":
        """Gives the writer of a streaming query; rows are appended in append and in complete mode.
        Update mode, which the connector has, Spark refuses for Python sinks."""
        from kafkalite.spark.sink import StreamWriter

        return StreamWriter(WriteOptions.of(self.options, schema))

    def _options(self, *, streaming: bool) -> ReadOptions:
        """With the jar on its class path Spark does not come here but for `engine=python`."""
        options = ReadOptions.of(self.options, streaming=streaming)
        if options.engine == "jvm":
            raise InvalidArgumentError(
                "engine is 'jvm', and its jar is not on Spark's class path: make the session with "
                "kafkalite.spark.session(), or pass --jars $(python -m kafkalite.spark)"
            )
        return options
