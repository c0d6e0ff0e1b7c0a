"""Plots what a pipeline's streaming queries did: rows per second, how long each micro-batch
took, and how much it left to read.

Rate and latency say whether a query keeps up; lag says whether it has. Each micro-batch is a level
line, as long as it took; nothing is drawn where there was none, as between two runs of a query.
"""

import datetime
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql.streaming import StreamingQueryListener

import kafkalite.spark

AWAIT_S = 30
PAUSE_S = 0.5
"""Spark takes less between two micro-batches, if there is something to read."""


class Batch(NamedTuple):
    """A micro-batch that is done."""

    query: str
    run: str
    """Another one each time that the query is started."""
    began_s: float
    """Seconds since 1970."""
    rows: int
    took_s: float
    lag: float
    """Offsets that were there when it was planned and are left for the next ones; not a number of
    one that was repeated."""

    @staticmethod
    def of(progress: Mapping[str, Any]) -> "Batch":
        """As Spark reports it."""
        lag = kafkalite.spark.lag(progress)
        began = datetime.datetime.fromisoformat(progress["timestamp"])
        return Batch(
            str(progress["id"]),
            str(progress["runId"]),
            began.timestamp(),
            progress["numInputRows"],
            progress["batchDuration"] / 1000,
            math.nan if lag is None else lag,
        )

    @property
    def ended_s(self) -> float:
        """Seconds since 1970."""
        return self.began_s + self.took_s


class Progress(StreamingQueryListener):
    """Hears of every micro-batch of a session's queries."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._running = 0
        self._has_ended = threading.Condition()

    def await_end(self) -> None:
        """Returns when all queries that have started are known to have ended: Spark tells a little
        later."""
        with self._has_ended:
            self._has_ended.wait_for(lambda: self._running == 0, AWAIT_S)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802, ARG002
        """One more to wait for."""
        with self._has_ended:
            self._running += 1

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Keeps those that read something."""
        if event.progress["numInputRows"]:
            self.batches.append(Batch.of(event.progress))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802, ARG002
        """One less."""
        with self._has_ended:
            self._running -= 1
            self._has_ended.notify_all()


def line(batches: Sequence[Batch], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Times and values of the micro-batches of one query, with a gap wherever it paused or was
    started again."""
    times_s: list[float] = []
    heights: list[float] = []
    last: Batch | None = None
    for batch, value in zip(batches, values, strict=True):
        if last and (last.run != batch.run or batch.began_s - last.ended_s > PAUSE_S):
            times_s.append(last.ended_s)
            heights.append(math.nan)
        times_s += (batch.began_s, batch.ended_s)
        heights += (value, value)
        last = batch
    return times_s, heights


def draw(batches: Sequence[Batch], title: str, path: Path) -> None:
    """Draws all queries over one time axis, which begins with the first micro-batch."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    panels: dict[str, Callable[[Batch], float]] = {
        "rate (rows per second)": lambda each: each.rows / max(each.took_s, 0.001),
        "micro-batch duration (s)": lambda each: each.took_s,
        "lag (offsets left to read)": lambda each: each.lag,
    }
    start_s = min(each.began_s for each in batches)
    queries = list(dict.fromkeys(each.query for each in batches))
    figure, rows = pyplot.subplots(
        len(panels), sharex=True, figsize=(9, 7), layout="constrained", squeeze=False
    )
    for (what, measure), (axes,) in zip(panels.items(), rows, strict=True):
        for number, query in enumerate(queries, 1):
            its = [each for each in batches if each.query == query]
            times_s, heights = line(its, [measure(each) for each in its])
            axes.plot([each - start_s for each in times_s], heights, label=f"query {number}")
        axes.set_ylabel(what)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    rows[0][0].set_title(title)
    if len(queries) > 1:
        rows[0][0].legend(frameon=False)
    rows[-1][0].set_xlabel("time since the first micro-batch began (s)")
    rows[-1][0].set_xlim(left=0)
    figure.align_ylabels()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
