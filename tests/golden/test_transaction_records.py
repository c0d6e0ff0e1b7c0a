"""Records of `__transaction_state` in every state, as Kafka's own classes write them
(`tools/make_golden_records.py`): read, and written again byte for byte."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalite.coordinator.record_serde import CoordinatorRecord, Unread
from kafkalite.transactions.records import KIND, SERDE, transaction_of, transaction_record
from kafkalite.transactions.states import STATE_NAMES

ROWS = [
    line.split("\t")
    for line in Path(__file__)
    .with_name("transaction_records.txt")
    .read_text(encoding="utf-8")
    .splitlines()
]


def test_every_state_is_there_in_both_versions() -> None:
    found = {(int(row[0]), json.loads(row[3])["transactionStatus"]) for row in ROWS}
    assert found == {(version, state) for version in (0, 1) for state in range(len(STATE_NAMES))}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"v{row[0]}-{row[2][20:48]}")
def test_a_record_is_read_as_kafka_meant_it_and_written_again(row: list[str]) -> None:
    version, key, value = int(row[0]), bytes.fromhex(row[1]), bytes.fromhex(row[2])
    fields: dict[str, Any] = json.loads(row[3])
    read = SERDE.read(key, value)
    assert isinstance(read, CoordinatorRecord)
    assert (read.kind, read.key.transactional_id) == (KIND, "ä-1")
    transaction = transaction_of(read.value)
    assert transaction.producer_id == fields["producerId"]
    assert transaction.producer_epoch == fields["producerEpoch"]
    assert transaction.state == fields["transactionStatus"]
    assert transaction.previous_producer_id == fields.get("previousProducerId", -1)
    assert transaction.next_producer_id == fields.get("nextProducerId", -1)
    assert transaction.client_version == fields.get("clientTransactionVersion", 0)
    assert transaction.start_ms == fields["transactionStartTimestampMs"]
    assert transaction.update_ms == fields["transactionLastUpdateTimestampMs"]
    assert transaction.partitions == {
        (each["topic"], index)
        for each in fields["transactionPartitions"] or ()
        for index in each["partitionIds"]
    }
    assert transaction_record("ä-1", transaction, version) == (key, value)
    assert transaction_record("ä-1", None, version) == (key, None)


def test_a_value_of_a_later_version_is_not_read() -> None:
    key, value = (bytes.fromhex(each) for each in ROWS[0][1:3])
    read = SERDE.read(key, b"\0\2" + value[2:])
    assert isinstance(read, CoordinatorRecord)
    assert isinstance(read.value, Unread)
