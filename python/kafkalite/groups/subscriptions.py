"""Topics that a consumer group reads, out of the metadata that its members have joined with. A
client chooses how many names that are, and they are decoded on the control thread, at each
rebalance and each load of the group: so they are bounded, and alike ones are decoded once.

    metadata   version (2 bytes) | count (4) | names | user data, and what newer versions add
"""

from collections.abc import Iterable
from typing import Final

from kafkalite.errors import KafkaliteError
from kafkalite.protocol import messages

SUBSCRIBED_NAMES_MAX: Final = 10_000
"""Names in the subscriptions of one group that are unlike each other: some milliseconds. Of a
group with more it cannot be told what it reads."""
NAME_BYTES: Final = 150
"""The memory of a name."""
KINDS_MAX: Final = 10
"""Subscriptions that are remembered to recognize the next that is alike."""

_NAMES_AT: Final = 2
_COUNT_BYTES: Final = 4
_NO_USER_DATA_BYTES: Final = 4


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics in all of them; None where that cannot be told. Every version of the consumer
    protocol's subscription begins as version 0 does."""
    topics: set[str] = set()
    left = SUBSCRIBED_NAMES_MAX
    known: tuple[bytes, ...] = ()
    for data in subscriptions:
        if data.startswith(known, _NAMES_AT):
            continue
        left -= int.from_bytes(data[_NAMES_AT : _NAMES_AT + _COUNT_BYTES], "big")
        if left < 0:
            return None
        try:
            names = messages.ConsumerProtocolSubscription.decode(data[_NAMES_AT:], 0).topics
        except KafkaliteError:
            return None
        topics.update(names)
        encoded = messages.ConsumerProtocolSubscription(topics=names).encode(0)
        known = (encoded[:-_NO_USER_DATA_BYTES], *known[: KINDS_MAX - 1])
    return frozenset(topics)
