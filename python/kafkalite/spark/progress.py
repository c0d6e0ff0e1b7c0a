"""How far a streaming query is behind its topics, out of what Spark reports of each micro-batch.

    class Watch(StreamingQueryListener):
        def onQueryProgress(self, event):
            print(event.progress.numInputRows, kafkalite.spark.lag(event.progress))

The columnar engine reports `minOffsetsBehindLatest` and so on as metrics, as Spark's connector
does; Spark asks a Python Data Source for none, but shows where each partition ends.
"""

from collections.abc import Mapping
from typing import Any

from kafkalite.spark.offsets import Offsets, offsets_from_text

__all__ = ["lag"]


def lag(progress: Mapping[str, Any]) -> int | None:
    """The offsets that were there when a micro-batch was planned and are not in it, over all
    partitions of all sources that are topics: what is left to read. None where nobody has asked:
    a micro-batch that is repeated after a restart is not planned again.

    `progress` is what a listener gets, or one of `query.recentProgress`; that of Spark's own Kafka
    connector does as well. Transactions and compaction leave fewer records than offsets.
    """
    left = 0
    for source in progress["sources"]:
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        if end is not None and latest is None:
            return None
        if end is not None and latest is not None:
            left += sum(offset - end.get(place, offset) for place, offset in latest.items())
    return left


def _offsets(text: str | None) -> Offsets | None:
    """By partition; None of a source that is no topic, and where there are none."""
    try:
        return offsets_from_text(text or "null")
    except ValueError:
        return None
