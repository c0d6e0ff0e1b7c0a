"""The records of `__transaction_state`, as Apache Kafka writes them (`TransactionLog`): kind 0,
TransactionLogKey and TransactionLogValue. Version 1 of the value is written where the cluster's
`transaction.version` is 1 or more; version 0 knows nothing of epochs for each transaction.
"""

from typing import Any, Final

from kafkalite.coordinator.record_serde import Record, RecordSerde
from kafkalite.errors import MalformedRequestError
from kafkalite.protocol import messages
from kafkalite.transactions.states import EMPTY, STATE_NAMES, Transaction

KIND: Final = 0
SERDE: Final = RecordSerde({KIND: ("TransactionLogKey", "TransactionLogValue")})


def transaction_record(
    transactional_id: str, transaction: Transaction | None, value_version: int
) -> Record:
    """A transactional id, or its tombstone."""
    if transaction is None:
        return SERDE.record(KIND, (transactional_id,), None)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    kind = messages.TransactionLogValue
    value = kind(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None
        if transaction.state == EMPTY
        else [kind.PartitionsSchema(topic=name, partition_ids=ids) for name, ids in topics.items()],
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if value_version >= 1:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return SERDE.record(KIND, (transactional_id,), value, value_version)


def transaction_of(value: Any) -> Transaction:
    """A `TransactionLogValue`. Raises MalformedRequestError for a state that is not known."""
    if not 0 <= value.transaction_status < len(STATE_NAMES):
        raise MalformedRequestError(f"a transaction in state {value.transaction_status}")
    return Transaction(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=value.transaction_status,
        partitions=frozenset(
            (each.topic, partition)
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
