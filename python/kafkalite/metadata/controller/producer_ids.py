"""Producer ids: the record that gives a broker the next block of them. A pure function.

Kafka: `ProducerIdControlManager`.
"""

from typing import Any, NamedTuple

from kafkalite.metadata.image import BrokerImage, Image
from kafkalite.protocol import messages

PRODUCER_IDS_PER_BLOCK = 1000


class Block(NamedTuple):
    """Ids that one broker may give out, once the record is written."""

    ids: range
    record: Any


def next_block(image: Image, broker: BrokerImage) -> Block:
    """The block that follows the last one that any broker got."""
    first = image.producer_ids.next_id if image.producer_ids else 0
    ids = range(first, first + PRODUCER_IDS_PER_BLOCK)
    record = messages.ProducerIdsRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, next_producer_id=ids.stop
    )
    return Block(ids, record)
