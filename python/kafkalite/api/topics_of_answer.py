"""The topics of an answer about offsets, put together as Kafka's builders do it. Those are
`OffsetCommitResponse.Builder` and `OffsetDeleteResponse.Builder`.

A topic without partitions is left out, unless nobody knows it. One that comes twice in a request
comes twice in the answer, but once as soon as a partition of any topic was refused.
"""

from collections.abc import Iterator
from typing import Any

from kafkalite.protocol import codes

Row = tuple[int, int]
"""Index and code of a partition."""


Judged = tuple[Any, bool, list[Row]]
"""A topic of the request: its name or id, whether it is known, and the partitions with what they
are refused for; NONE leaves that to the coordinator."""


Shown = tuple[Any, list[Row], bool]
"""Key and partitions of a topic, and whether something of it was refused."""


def put_together(judged: list[Judged], results: list[int]) -> list[tuple[Any, list[Row]]]:
    """Key and partitions of each topic. `results` are the coordinator's codes, for the partitions
    that were left to it, in their order."""
    return merged(list(with_results(judged, results)))


def with_results(judged: list[Judged], results: list[int]) -> Iterator[Shown]:
    """The topics of the request one by one, for who has others go on between them."""
    left = iter(results)
    for key, is_known, partitions in judged:
        rows = []
        is_refused = not is_known
        for index, refusal in partitions:
            rows.append((index, refusal or next(left)))
            is_refused |= refusal != codes.NONE
        if rows or not is_known:
            yield key, rows, is_refused


def merged(shown: list[Shown]) -> list[tuple[Any, list[Row]]]:
    """Topics that come twice, as one where anything was refused."""
    if not any(is_refused for _, _, is_refused in shown):
        return [(key, rows) for key, rows, _ in shown]
    by_key: dict[Any, list[Row]] = {}
    for key, rows, _ in shown:
        by_key.setdefault(key, []).extend(rows)
    return list(by_key.items())
