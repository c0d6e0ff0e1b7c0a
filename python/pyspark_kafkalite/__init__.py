"""Where PySpark looks for `format("kafkalite")`: it imports every package named `pyspark_…` and
registers the class `DefaultSource` in it."""

from kafkalite.spark.source import KafkaliteDataSource as DefaultSource

__all__ = ["DefaultSource"]
