"""Transactions that were begun before partitions were added to `__transaction_state`."""

import time
from pathlib import Path

import kafkalite
from api.raw import Connection
from api.transactions import Transactor
from kafkalite.protocol import messages
from kafkalite.protocol.java_hash import java_hash

TIMEOUT_MS = 3_000


def test_a_transaction_is_ended_by_the_partition_that_knows_it(tmp_path: Path) -> None:
    """Its markers were written, and then that to which its id belongs by now was told so: the log
    never said that the transaction is over."""
    config = {
        "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    }
    name = next(each for each in "abc" if java_hash(each) % 2)
    with kafkalite.Broker(tmp_path / "data", config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("topic").error_code == 0
            client = Transactor(connection, name)
            assert client.init(timeout_ms=TIMEOUT_MS) == 0
            assert client.add(("topic", 0)) == {("topic", 0): 0}
            assert client.produce("topic", 0) == 0
            kind = messages.CreatePartitionsRequest
            added = kind.CreatePartitionsTopic(
                name="__transaction_state", count=2, assignments=None
            )
            request = kind(topics=[added], timeout_ms=30_000)
            assert connection.ask("CreatePartitions", 3, request).results[0].error_code == 0
        broker.kill()
        broker.start()
        state = ""
        deadline = time.monotonic() + 20
        with Connection(broker.bootstrap_servers) as connection:
            listing = messages.ListTransactionsRequest()
            while state != "CompleteAbort" and time.monotonic() < deadline:
                found = connection.ask("ListTransactions", 1, listing).transaction_states
                state = "".join(each.transaction_state for each in found)
            assert state == "CompleteAbort"
            assert client.producer_id == found[0].producer_id
            fetched = connection.fetch("topic", 0, isolation=1)
            assert fetched.last_stable_offset == fetched.high_watermark == 2
