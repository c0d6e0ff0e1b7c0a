"""Orders of a topic as a table, revenue by city as another, and revenue by minute as a topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
SERVERS = spark.conf.get("orders.servers")


@dp.table
def orders() -> DataFrame:
    """A streaming table: each run appends the new records of the topic."""
    return (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("columns", "value,partition,offset,timestamp")
        .option("value.format", "json")
        .option("value.schema", "id BIGINT, city STRING, cents BIGINT")
        .option("mode", "FAILFAST")
        .load()
        .select("value.*", "timestamp", "partition", "offset")
    )


@dp.materialized_view
def revenue() -> DataFrame:
    """Revenue by city, computed again by each run."""
    return spark.sql("SELECT city, count(*) orders, sum(cents) cents FROM orders GROUP BY city")


dp.create_sink(
    "minutes",
    "kafkalite",
    {"kafka.bootstrap.servers": SERVERS, "topic": "revenue-by-minute", "transactional": "true"},
)


@dp.append_flow(target="minutes")
def revenue_by_minute() -> DataFrame:
    """Each minute is written once, when an order is ten seconds past it. It is SQL since a pipeline
    resolves tables late, and `withWatermark` needs them at once."""
    return spark.sql("""
        SELECT to_json(struct(unix_millis(window.start) AS start_ms, orders, cents)) AS value
        FROM (
            SELECT window(timestamp, '1 minute') AS window, count(*) AS orders, sum(cents) AS cents
            FROM STREAM orders WATERMARK timestamp DELAY OF INTERVAL 10 SECONDS
            GROUP BY window(timestamp, '1 minute')
        )
    """)
