"""DescribeProducers (key 61), version 0: what partitions know of their producers (KIP-664).

Behaviour: for each partition its producers that are not forgotten, with the last sequence number
and timestamp, and the first offset of an open transaction, -1 if there is none.

Refusals, per partition: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION.
"""

from typing import Any

from kafkalite.context import Context
from kafkalite.metadata.controller import name_refusal
from kafkalite.protocol import codes, messages

NAME = "DescribeProducers"


def handle(context: Context, _request: Any, message: Any) -> Any:
    """Each partition that is named."""
    kind = messages.DescribeProducersResponse
    return kind(
        topics=[
            kind.TopicResponse(
                name=topic.name,
                partitions=[
                    _partition(context, topic.name, index) for index in topic.partition_indexes
                ],
            )
            for topic in message.topics
        ]
    )


def _partition(context: Context, name: str, index: int) -> Any:
    kind = messages.DescribeProducersResponse.TopicResponse.PartitionResponse
    described = kind(partition_index=index)
    refusal = name_refusal(name)
    if refusal:
        described.error_code, described.error_message = codes.INVALID_TOPIC_EXCEPTION, refusal
        return described
    log = context.plane.log(name, index)
    if log is None:
        described.error_code = codes.UNKNOWN_TOPIC_OR_PARTITION
        if name not in context.image.topics:
            described.error_message = "This server does not host this topic-partition."
        return described
    described.active_producers = [
        kind.ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.last_timestamp,
            coordinator_epoch=each.coordinator_epoch,
            current_txn_start_offset=(
                -1
                if each.current_transaction_first_offset is None
                else each.current_transaction_first_offset
            ),
        )
        for each in log.producers()
    ]
    return described
