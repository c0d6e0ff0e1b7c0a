"""DescribeProducers (key 61), version 0: what partitions know of their producers (KIP-664).

Behaviour: for each partition its producers that are not forgotten, with the last sequence number
and timestamp, and the first offset of an open transaction, -1 if there is none. A log directory
that does not answer makes it REQUEST_TIMED_OUT.

Refusals, per partition: INVALID_TOPIC_EXCEPTION; UNKNOWN_TOPIC_OR_PARTITION; KAFKA_STORAGE_ERROR if
its log directory has failed.
"""

from functools import partial
from typing import Any, Final

from kafkalite import _native
from kafkalite.api.log_answers import LogAnswers
from kafkalite.context import Context
from kafkalite.metadata.controller import name_refusal
from kafkalite.protocol import codes, messages

NAME = "DescribeProducers"

WAIT_MS: Final = 2_000
"""The request has no time of its own; a client's time is 30 s. A log that is well answers in
microseconds, one whose disk is slow once its append is through."""


def handle(context: Context, request: Any, message: Any) -> None:
    """Each partition that is named, as often as it is; its log is asked once."""
    kind = messages.DescribeProducersResponse
    response = kind()
    answers = LogAnswers(context, request, response)
    known: dict[tuple[str, int], Any] = {}
    for topic in message.topics:
        described = kind.TopicResponse(name=topic.name)
        response.topics.append(described)
        for index in topic.partition_indexes:
            row = known.get((topic.name, index))
            if row is None:
                row = kind.TopicResponse.PartitionResponse(partition_index=index)
                known[topic.name, index] = row
                _describe(context, answers, topic.name, row)
            described.partitions.append(row)
    answers.answer_within(WAIT_MS)


def _describe(context: Context, answers: LogAnswers, name: str, row: Any) -> None:
    refusal = name_refusal(name)
    if refusal:
        row.error_code, row.error_message = codes.INVALID_TOPIC_EXCEPTION, refusal
        return
    index = row.partition_index
    row.error_code = context.log_refusal(name, index)
    if row.error_code:
        if name not in context.image.topics:
            row.error_message = "This server does not host this topic-partition."
        return

    def take(producers: list[_native.ProducerEntry]) -> None:
        row.active_producers = [_state(each) for each in producers]

    def refuse(code: int, reason: str) -> None:
        row.error_code, row.error_message = code, reason

    answers.ask(name, index, partial(context.describe_producers, name, index), take, refuse)


def _state(entry: _native.ProducerEntry) -> Any:
    first_offset = entry.current_transaction_first_offset
    return messages.DescribeProducersResponse.TopicResponse.PartitionResponse.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=-1 if first_offset is None else first_offset,
    )
