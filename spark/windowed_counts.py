#!/usr/bin/env python3
"""Counts events in windows of time while some of them come late.

    python spark/windowed_counts.py [--events 300000] [--plot windowed_counts.png]

Sensors send readings, and a record's `timestamp` is when the reading was made. Most arrive at once,
some half a minute later (a tunnel), a few minutes later (an empty battery). Spark counts them in
windows of ten seconds and waits for late ones as long as the watermark says. What is counted and
what came too late is held against what was sent, window by window, and plotted.
"""

import argparse
import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalite import Broker

TOPIC = "readings"
PARTITIONS = 2
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
SPAN_MS = 600_000
WINDOW_MS = 10_000
WATERMARK_MS = 30_000
BATCHES = 15


class Event(NamedTuple):
    """A reading: when it was made, and when it arrives."""

    made_ms: int
    arrives_ms: int

    @property
    def window_ms(self) -> int:
        """Where its window starts."""
        return self.made_ms - self.made_ms % WINDOW_MS

    @property
    def is_late(self) -> bool:
        """Whether its window was over when it arrived."""
        return self.arrives_ms >= self.window_ms + WINDOW_MS


class Window(NamedTuple):
    """What became of the events of one window."""

    start_ms: int
    sent_in_time: int
    sent_late: int
    counted: int

    @property
    def dropped(self) -> int:
        """Events that came when the watermark had passed their window."""
        return self.sent_in_time + self.sent_late - self.counted


def events(count: int, seed: int) -> list[Event]:
    """In the order in which they arrive; busier in the middle than at both ends."""
    draw = random.Random(seed)
    made = []
    while len(made) < count:
        at_ms = draw.randrange(SPAN_MS)
        if draw.random() < 0.2 + 0.8 * math.sin(math.pi * at_ms / SPAN_MS) ** 2:
            delay_ms = draw.expovariate(1 / 200)
            luck = draw.random()
            if luck < 0.10:
                delay_ms += draw.uniform(2_000, 25_000)
            elif luck < 0.13:
                delay_ms += draw.uniform(60_000, 180_000)
            made.append(Event(START_MS + at_ms, int(START_MS + at_ms + delay_ms)))
    return sorted(made, key=lambda event: event.arrives_ms)


def records(arriving: list[Event]) -> Iterator[pipeline.Record]:
    """As they go into the topic, in turns over the partitions."""
    for number, event in enumerate(arriving):
        yield pipeline.Record(
            b"sensor-%d" % (number % 50), timestamp_ms=event.made_ms, partition=number % PARTITIONS
        )


def run(
    spark: "SparkSession", broker: "Broker", folder: Path, options: argparse.Namespace
) -> list[Window]:
    """Sends, counts, compares. Returns the windows in their order."""
    if options.plot:
        pipeline.need("matplotlib")
    arriving = events(options.events, options.seed)
    pipeline.create_topic(broker, TOPIC, PARTITIONS)
    pipeline.send(broker, TOPIC, records(arriving))
    late = sum(event.is_late for event in arriving)
    pipeline.step(f"{len(arriving):,} readings sent, {late:,} of them after their window's end")

    counted = count(spark, broker, folder, len(arriving))
    windows = compare(arriving, counted)
    dropped = sum(window.dropped for window in windows)
    pipeline.step(
        f"{sum(counted.values()):,} counted in {len(windows)} windows, {late - dropped:,} of them "
        f"late; {dropped:,} came after the watermark and were dropped"
    )
    if options.plot:
        plot(windows, options.plot)
        pipeline.step(f"plot: {options.plot}")
    return windows


def count(spark: "SparkSession", broker: "Broker", folder: Path, total: int) -> dict[int, int]:
    """The streaming query: from the start of a window (ms) to its count."""
    from pyspark.sql import functions

    readings = (
        spark.readStream.format("kafkalite")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("columns", "timestamp")
        .option("maxOffsetsPerTrigger", str(-(-total // BATCHES)))
        .load()
    )
    counts = (
        readings.withWatermark("timestamp", f"{WATERMARK_MS} milliseconds")
        .groupBy(functions.window("timestamp", f"{WINDOW_MS} milliseconds"))
        .count()
        .select(functions.unix_millis("window.start").alias("start_ms"), "count")
    )
    counted: dict[int, int] = {}

    def keep(changed: "DataFrame", _: int) -> None:
        counted.update({row["start_ms"]: row["count"] for row in changed.collect()})

    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(keep)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    pipeline.follow(query)
    return counted


def compare(arriving: list[Event], counted: dict[int, int]) -> list[Window]:
    """What was sent beside what Spark counted."""
    in_time = Counter(event.window_ms for event in arriving if not event.is_late)
    late = Counter(event.window_ms for event in arriving if event.is_late)
    starts = sorted({*in_time, *late, *counted})
    return [Window(each, in_time[each], late[each], counted.get(each, 0)) for each in starts]


def plot(windows: list[Window], path: Path) -> None:
    """A bar a window: in time, late and counted, too late."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    minutes = [(window.start_ms - START_MS) / 60_000 for window in windows]
    in_time = [window.sent_in_time for window in windows]
    late = [window.sent_late - window.dropped for window in windows]
    dropped = [window.dropped for window in windows]
    figure, axes = pyplot.subplots(figsize=(10, 4.5), layout="constrained")
    width = 0.9 * WINDOW_MS / 60_000
    floor = [0] * len(windows)
    for values, colour, label in (
        (in_time, "#3b6ea5", "in time"),
        (late, "#8fb8de", "late, within the watermark: counted"),
        (dropped, "#c2571a", "later than that: dropped"),
    ):
        axes.bar(minutes, values, width, floor, align="edge", color=colour, label=label)
        floor = [under + value for under, value in zip(floor, values, strict=True)]
    axes.set_xlabel("event time (minutes)")
    axes.set_ylabel(f"readings in {WINDOW_MS // 1000} s")
    axes.set_title(f"Windowed counts with a watermark of {WATERMARK_MS // 1000} s", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def command_line() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description="Windowed counts with late data.")
    parser.add_argument(
        "--events", type=int, default=300_000, metavar="N", help="readings to send (300000)"
    )
    parser.add_argument(
        "--plot",
        type=Path,
        default=Path("windowed_counts.png"),
        metavar="FILE",
        help="(windowed_counts.png)",
    )
    return parser


if __name__ == "__main__":
    pipeline.main("windowed counts", command_line(), run)
