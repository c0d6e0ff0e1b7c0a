"""DescribeProducers (key 61), version 0: what partitions know of their producers (KIP-664).

Behaviour: for each partition its producers that are not forgotten, with the last sequence number
and timestamp, and the first offset of an open transaction, -1 if there is none. A log directory
that does not answer makes it REQUEST_TIMED_OUT.

Refusals, per partition: INVALID_TOPIC_EXCEPTION; TOPIC_AUTHORIZATION_FAILED;
UNKNOWN_TOPIC_OR_PARTITION; KAFKA_STORAGE_ERROR if its log directory has failed.
"""

from typing import Final

from kafkalite import _native
from kafkalite.access import DENIALS, READ, TOPIC
from kafkalite.api.log_answers import answer_of, in_time
from kafkalite.context import Context
from kafkalite.errors import KafkaliteError
from kafkalite.metadata.controller.topics import name_refusal
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Future

NAME = "DescribeProducers"

Row = messages.DescribeProducersResponse.TopicResponse.PartitionResponse

WAIT_MS: Final = 2_000
"""The request has no time of its own; a client's time is 30 s. A log that is well answers in
microseconds, one whose disk is slow once its append is through."""


async def handle(
    context: Context, request: _native.Request, message: messages.DescribeProducersRequest
) -> messages.DescribeProducersResponse:
    """Each partition that is named, as often as it is; its log is asked once."""
    kind = messages.DescribeProducersResponse
    response = kind()
    known: dict[tuple[str, int], Row] = {}
    describing: list[tuple[Row, Future[_native.ProducerEntries]]] = []
    sliced = context.tasks.sliced
    async for topic in sliced(message.topics):
        described = kind.TopicResponse(name=topic.name)
        response.topics.append(described)
        async for index in sliced(topic.partition_indexes):
            row = known.get((topic.name, index))
            if row is None:
                row = Row(partition_index=index)
                known[topic.name, index] = row
                _judge(context, request, topic.name, row)
                if row.error_code == codes.NONE:
                    describing.append((row, context.logs.describe_producers(topic.name, index)))
            described.partitions.append(row)
    await in_time(context, request, WAIT_MS, [asked for _, asked in describing])
    async for row, asked in sliced(describing):
        try:
            producers = answer_of(asked)
        except KafkaliteError as error:
            row.error_code, row.error_message = error.kafka_code, str(error)
        else:
            async for each in sliced(producers):
                row.active_producers.append(_state(each))
    return response


def _judge(context: Context, request: _native.Request, name: str, row: Row) -> None:
    """Refuses a partition whose log cannot be asked."""
    refusal = name_refusal(name)
    if refusal:
        row.error_code, row.error_message = codes.INVALID_TOPIC_EXCEPTION, refusal
        return
    if not context.may(request, READ, TOPIC, name):
        row.error_code, row.error_message = DENIALS[TOPIC]
        return
    row.error_code = context.replicas.refusal(name, row.partition_index)
    if row.error_code and name not in context.image.topics:
        row.error_message = "This server does not host this topic-partition."


def _state(entry: _native.ProducerEntry) -> Row.ProducerState:
    first_offset = entry.current_transaction_first_offset
    return Row.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=-1 if first_offset is None else first_offset,
    )
