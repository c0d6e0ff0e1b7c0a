"""What Spark keeps state for, with kafkalite as the source: windows, joins, deduplication and
`transformWithState`, all in one session at once, in RocksDB, give what plain Python says."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, Row, SparkSession, functions
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType

from kafkalite import Broker
from oracle.tools import Record
from spark.reading import read_stream
from spark.records import START_MS, create, send

pytestmark = pytest.mark.oracle

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
USERS = ("ada", "bob", "cyd")
GAP_MS, WITHIN_MS = 3_000, 2_000
DELAY = "20 seconds"
LATER_S = 10_000
"""One record so much later closes all windows before it."""


class Event(NamedTuple):
    at_ms: int
    user: str
    number: int
    """Every third comes twice."""


def made(seed: int, count: int) -> list[Event]:
    draw = random.Random(seed)
    times = sorted(draw.sample(range(60_000), count))
    return [
        Event(START_MS + at_ms, draw.choice(USERS), number - (number % 3 == 2))
        for number, at_ms in enumerate(times)
    ]


def records(topic: str, events: Iterable[Event]) -> Iterator[Record]:
    last = Event(START_MS + 1000 * LATER_S, "end", -1)
    for number, event in enumerate([*events, last]):
        value = json.dumps({"user": event.user, "number": event.number}).encode()
        yield Record(topic, value, partition=number % 2, timestamp=event.at_ms)


def starts(at_ms: int) -> list[int]:
    """Of the sliding windows that have an event."""
    last = at_ms - at_ms % 5_000
    return [last, last - 5_000]


def sessions(events: Iterable[Event]) -> Counter[tuple[str, int, int]]:
    """User, start and count of each."""
    found: list[list[int]] = []
    users: list[str] = []
    for user in USERS:
        ended_ms = 0
        for event in events:
            if event.user != user:
                continue
            if event.at_ms > ended_ms:
                found.append([event.at_ms, 0])
                users.append(user)
            found[-1][1] += 1
            ended_ms = event.at_ms + GAP_MS
    return Counter((user, *each) for user, each in zip(users, found, strict=True))


def totals(frame: DataFrame) -> DataFrame:
    """Each record with the sum of its user's numbers so far. The class is the workers' too, which
    do not have this file."""

    class Total(StatefulProcessor):
        def init(self, handle: Any) -> None:
            schema = StructType([StructField("total", LongType())])
            self._total = handle.getValueState("total", schema)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
            total = self._total.get()[0] if self._total.exists() else 0
            for row in rows:
                total += row.number
            self._total.update((total,))
            yield Row(user=key[0], total=total)

        def close(self) -> None:
            pass

    return frame.groupBy("user").transformWithState(
        Total(), "user STRING, total BIGINT", outputMode="Update", timeMode="None"
    )


def sliding(frame: DataFrame) -> DataFrame:
    window = functions.window("timestamp", "10 seconds", "5 seconds")
    counted = frame.groupBy(window.alias("window")).count()
    return counted.select(functions.unix_millis("window.start"), "count")


def in_sessions(frame: DataFrame) -> DataFrame:
    window = functions.session_window("timestamp", f"{GAP_MS} milliseconds")
    counted = frame.groupBy(window.alias("window"), "user").count()
    return counted.select("user", functions.unix_millis("window.start"), "count")


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    """What the same user did on both sides, within two seconds."""
    is_near = functions.expr(
        "user = user2 AND timestamp2 BETWEEN "
        "timestamp - INTERVAL 2 SECONDS AND timestamp + INTERVAL 2 SECONDS"
    )
    renamed = right.toDF("timestamp2", "user2", "number2")
    return left.join(renamed, is_near).select("user", "number", "number2")


@pytest.fixture
def in_rocksdb(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(PROVIDER, ROCKSDB)
    yield spark
    spark.conf.unset(PROVIDER)


def test_queries_with_state_give_what_python_says_all_at_once(
    in_rocksdb: SparkSession, broker: Broker, engine: str, tmp_path: Path
) -> None:
    spark, servers = in_rocksdb, broker.bootstrap_servers
    sides = {f"clicks-{engine}": made(1, 60), f"buys-{engine}": made(2, 40)}
    frames = []
    for topic, events in sides.items():
        create(servers, topic, 2)
        send(servers, records(topic, events))
        options = {
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "32",
            "value.format": "json",
            "value.schema": "user STRING, number BIGINT",
        }
        frame = read_stream(spark, engine, servers, options).select("timestamp", "value.*")
        frames.append(frame.withWatermark("timestamp", DELAY))
    clicks, buys = frames
    cities = spark.createDataFrame([("ada", "Oslo"), ("bob", "Rome")], "user STRING, city STRING")
    queries = {
        "sliding": sliding(clicks),
        "sessions": in_sessions(clicks),
        "once": clicks.dropDuplicatesWithinWatermark(["number"]).select("number"),
        "both": joined(clicks, buys),
        "cities": clicks.join(cities, "user", "left").select("number", "city"),
        "totals": totals(clicks.select("user", "number")),
    }
    running = {
        name: frame.writeStream.format("memory")
        .queryName(name)
        .outputMode("update" if name == "totals" else "append")
        .option("checkpointLocation", str(tmp_path / name))
        .trigger(availableNow=True)
        .start()
        for name, frame in queries.items()
    }
    found = {}
    try:
        for name, query in running.items():
            query.awaitTermination()
            found[name] = [tuple(row) for row in spark.table(name).collect()]
    finally:
        for name, query in running.items():
            query.stop()
            spark.catalog.dropTempView(name)

    clicked, bought = sides.values()
    counts = Counter(start for each in clicked for start in starts(each.at_ms))
    assert dict(found["sliding"]) == counts
    assert Counter(found["sessions"]) == sessions(clicked)
    assert sorted(found["once"]) == [(each,) for each in sorted({-1, *(e.number for e in clicked)})]
    assert Counter(found["both"]) == Counter(
        (click.user, click.number, buy.number)
        for click in clicked
        for buy in bought
        if click.user == buy.user and abs(click.at_ms - buy.at_ms) <= WITHIN_MS
    ) + Counter({("end", -1, -1): 1})
    homes = {"ada": "Oslo", "bob": "Rome"}
    assert Counter(found["cities"]) == Counter(
        [(-1, None), *((each.number, homes.get(each.user)) for each in clicked)]
    )
    numbers = Counter({"end": -1})
    for each in clicked:
        numbers[each.user] += each.number
    assert {user: max(t for u, t in found["totals"] if u == user) for user in numbers} == numbers
    for name, query in running.items():
        states = [
            state for progress in query.recentProgress for state in progress["stateOperators"]
        ]
        assert all("rocksdbGetCount" in state["customMetrics"] for state in states), name
        assert bool(states) == (name != "cities")
