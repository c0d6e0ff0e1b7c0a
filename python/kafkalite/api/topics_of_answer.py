"""The topics of an answer about offsets, put together as Kafka's builders do it
(`OffsetCommitResponse.Builder`, `OffsetDeleteResponse.Builder`).

A topic without partitions is left out, unless nobody knows it. One that comes twice in a request
comes twice in the answer, but once as soon as a partition of any topic was refused.
"""

from typing import Any

from kafkalite.protocol import codes

Row = tuple[int, int]
"""Index and code of a partition."""


Judged = tuple[Any, bool, list[Row]]
"""A topic of the request: its name or id, whether it is known, and the partitions with what they
are refused for; NONE leaves that to the coordinator."""


def put_together(judged: list[Judged], results: list[int]) -> list[tuple[Any, list[Row]]]:
    """Key and partitions of each topic. `results` are the coordinator's codes, for the partitions
    that were left to it, in their order."""
    left = iter(results)
    shown = []
    has_refusal = False
    for key, is_known, partitions in judged:
        rows = []
        for index, refusal in partitions:
            rows.append((index, refusal or next(left)))
            has_refusal |= refusal != codes.NONE
        has_refusal |= not is_known
        if rows or not is_known:
            shown.append((key, rows))
    if not has_refusal:
        return shown
    by_key: dict[Any, list[Row]] = {}
    for key, rows in shown:
        by_key.setdefault(key, []).extend(rows)
    return list(by_key.items())
