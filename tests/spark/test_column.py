"""Columns of the columnar engine whose buffers do not fit together, as a socket may bring them.
They were read where they pointed, outside of the column and perhaps of the process's memory."""

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

ROWS = 3


def column(spark: SparkSession, vector: Any, rows: int = ROWS) -> Any:
    """As the engine makes it."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    kind = jvm.org.apache.spark.util.Utils.classForName("kafkalite.spark.Column", True, False)
    (of,) = (each for each in kind.getDeclaredMethods() if each.getName() == "of")
    of.setAccessible(True)
    arguments = gateway.new_array(jvm.java.lang.Object, 2)
    arguments[0], arguments[1] = vector, jvm.java.lang.Integer(rows)
    return of.invoke(None, arguments)


def texts(spark: SparkSession) -> Any:
    """Three texts of four bytes."""
    arrow = spark._jvm.org.apache.arrow
    vector = arrow.vector.VarCharVector("texts", arrow.memory.RootAllocator())
    vector.allocateNew()
    for row in range(ROWS):
        vector.setSafe(row, b"text")
    vector.setValueCount(ROWS)
    return vector


def lists(spark: SparkSession) -> Any:
    """Three lists of one number each."""
    arrow = spark._jvm.org.apache.arrow
    vector = arrow.vector.complex.ListVector.empty("lists", arrow.memory.RootAllocator())
    writer = vector.getWriter()
    for row in range(ROWS):
        writer.setPosition(row)
        writer.startList()
        writer.integer().writeInt(row)
        writer.endList()
    vector.setValueCount(ROWS)
    return vector


@pytest.mark.parametrize("vector_of", [texts, lists])
@pytest.mark.parametrize(
    ("place", "offset", "reason"),
    [
        (0, -1, "offsets that do not ascend"),
        (1, 1 << 30, "offsets that do not ascend"),
        (2, -(1 << 30), "offsets that do not ascend"),
        (2, 0, "offsets that do not ascend"),
        (3, 1 << 30, "where 1073741824 are due"),
    ],
)
def test_a_column_with_offsets_outside_of_it_is_refused(
    spark: SparkSession, vector_of: Any, place: int, offset: int, reason: str
) -> None:
    vector = vector_of(spark)
    assert column(spark, vector) is not None
    vector.getOffsetBuffer().setInt(4 * place, offset)
    with pytest.raises(Py4JJavaError, match=reason):
        column(spark, vector)


def test_a_column_with_fewer_rows_than_its_batch_is_refused(spark: SparkSession) -> None:
    with pytest.raises(Py4JJavaError, match="a column has 3 rows where 4 are due"):
        column(spark, texts(spark), ROWS + 1)
