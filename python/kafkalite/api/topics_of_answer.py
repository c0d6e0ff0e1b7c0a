"""The topics of an answer about offsets, put together as Kafka's builders do it
(`OffsetCommitResponse.Builder`, `OffsetDeleteResponse.Builder`).

A topic without partitions is left out, unless nobody knows it. One that comes twice in a request
comes twice in the answer, but once as soon as a partition of any topic was refused.
"""

from collections.abc import Callable
from typing import Any


def put_together(
    answered: list[tuple[Any, bool]], has_refusal: bool, key_of: Callable[[Any], Any]
) -> list[Any]:
    """`answered`: each topic of the request, and whether it is known."""
    shown = [topic for topic, is_known in answered if topic.partitions or not is_known]
    if not has_refusal:
        return shown
    by_key: dict[Any, Any] = {}
    for topic in shown:
        first = by_key.setdefault(key_of(topic), topic)
        if first is not topic:
            first.partitions = first.partitions + topic.partitions
    return list(by_key.values())
