"""Plots what a pipeline's streaming queries did: rows a second, how long each micro-batch
took, and how much it left to read.

Rate and latency say whether a query keeps up; lag says whether it has.
"""

import datetime
import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql.streaming import StreamingQueryListener

import kafkalite.spark

AWAIT_S = 30


class Batch(NamedTuple):
    """A micro-batch that is done."""

    query: str
    ended_s: float
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
        took_s = progress["batchDuration"] / 1000
        return Batch(
            str(progress["id"]),
            began.timestamp() + took_s,
            progress["numInputRows"],
            took_s,
            math.nan if lag is None else lag,
        )


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


def draw(batches: Sequence[Batch], title: str, path: Path) -> None:
    """Draws all queries over one time axis, which begins with the first micro-batch."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    panels = (
        ("rows a second", [each.rows / max(each.took_s, 0.001) for each in batches]),
        ("seconds a micro-batch", [each.took_s for each in batches]),
        ("offsets left to read", [each.lag for each in batches]),
    )
    start_s = min(each.ended_s - each.took_s for each in batches)
    queries = list(dict.fromkeys(each.query for each in batches))
    figure, rows = pyplot.subplots(
        len(panels), sharex=True, figsize=(9, 7), layout="constrained", squeeze=False
    )
    for (what, values), (axes,) in zip(panels, rows, strict=True):
        for number, query in enumerate(queries, 1):
            points = [
                (each.ended_s - start_s, value)
                for each, value in zip(batches, values, strict=True)
                if each.query == query
            ]
            axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=f"query {number}")
        axes.set_ylabel(what)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    rows[0][0].set_title(title)
    if len(queries) > 1:
        rows[0][0].legend(frameon=False)
    rows[-1][0].set_xlabel("seconds since the first micro-batch began")
    rows[-1][0].set_xlim(left=0)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
