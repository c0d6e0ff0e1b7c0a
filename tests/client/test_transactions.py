"""Transactions against a coordinator that is busy, that forgets, that refuses."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
import pytest

import kafkalite
from client.fake import Close, FakeBroker
from client.fake_partition import Log, produce_response
from kafkalite._native import read_batches
from kafkalite.client import Cluster
from kafkalite.client.arrow.writer import ArrowWriter
from kafkalite.client.network.wakeup import poller
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.client.producer.settings import ProducerSettings
from kafkalite.client.producer.transactions import (
    Fate,
    OpenTransaction,
    Transaction,
    end,
    fates,
    open_ids,
)
from kafkalite.errors import (
    BrokerError,
    InvalidArgumentError,
    KafkaliteError,
    RequestTimedOutError,
)
from kafkalite.protocol import messages
from kafkalite.protocol.codes import OPERATION_NOT_ATTEMPTED

TOPIC_AUTHORIZATION_FAILED = 29
CONCURRENT_TRANSACTIONS = 51
PRODUCER_FENCED = 90
OPEN = OpenTransaction("etl-0", 7, 3)


class Coordinator:
    """Answers as a coordinator does that has nothing else to do. `codes` has, by request, the codes
    of the first answers; None closes the connection in place of an answer."""

    def __init__(self, broker: Callable[[], FakeBroker], **codes: list[int | None]) -> None:
        self._broker = broker
        self._codes = codes
        self.logs = [Log(), Log()]
        self.transactional: list[bool] = []

    def __call__(self, name: str, request: Any) -> Any:
        codes = self._codes.get(name)
        code = codes.pop(0) if codes else 0
        if code is None:
            return Close()
        if name == "FindCoordinator":
            return self._find(request, code)
        if name == "InitProducerId":
            return messages.InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=3)
        if name == "AddPartitionsToTxn":
            return self._add(request, code)
        if name == "EndTxn":
            return messages.EndTxnResponse(error_code=code)
        if name != "Produce":
            return ...
        (topic,) = request.message.topic_data
        partitions = iter([row.index for row in topic.partition_data])
        return produce_response(request, lambda records: self._take(next(partitions), records))

    def _take(self, partition: int, records: bytes) -> tuple[int, int]:
        self.transactional += [batch.is_transactional for batch in read_batches(records)]
        return self.logs[partition].take(records)

    def _find(self, request: Any, code: int) -> Any:
        kind = messages.FindCoordinatorResponse
        broker = self._broker()
        return kind(
            coordinators=[
                kind.Coordinator(
                    key=key, node_id=1, host=broker.host, port=broker.port, error_code=code
                )
                for key in request.message.coordinator_keys
            ]
        )

    def _add(self, request: Any, code: int) -> Any:
        kind = messages.AddPartitionsToTxnResponse
        topic = kind.AddPartitionsToTxnTopicResult
        return kind(
            results_by_topic_v3_and_below=[
                topic(
                    name=each.name,
                    results_by_partition=[
                        topic.AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=code
                        )
                        for index in each.partitions
                    ],
                )
                for each in request.message.v3_and_below_topics
            ]
        )


def broker_with(**codes: list[int | None]) -> tuple[FakeBroker, Coordinator]:
    coordinator = Coordinator(lambda: broker, **codes)
    broker = FakeBroker(coordinator, partitions=2)
    return broker, coordinator


def test_a_table_is_one_transaction_of_batches_that_say_so() -> None:
    broker, coordinator = broker_with()
    rows = pyarrow.table({"value": ["a", "b", "c"], "partition": [0, 1, 0]})
    with broker:
        kafkalite.write_arrow(rows, "orders", broker.servers, transactional_id="etl-0")
    assert [log.values for log in coordinator.logs] == [[b"a", b"c"], [b"b"]]
    assert all(coordinator.transactional)
    assert [log.stamps for log in coordinator.logs] == [[(7, 3, 0)], [(7, 3, 0)]]
    assert [each.transactional_id for each in broker.of("Produce")] == ["etl-0"] * len(
        broker.of("Produce")
    )
    (ended,) = broker.of("EndTxn")
    assert (ended.transactional_id, ended.producer_id, ended.producer_epoch) == OPEN
    assert ended.committed
    added = [
        (row.name, index)
        for each in broker.of("AddPartitionsToTxn")
        for row in each.v3_and_below_topics
        for index in row.partitions
    ]
    assert sorted(added) == [("orders", 0), ("orders", 1)]


def test_a_table_that_cannot_be_written_is_aborted() -> None:
    broker, coordinator = broker_with()
    coordinator.logs[0].refuse = {1: 10}
    rows = pyarrow.table({"value": ["a"], "partition": [0]})
    with broker, pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        kafkalite.write_arrow(rows, "orders", broker.servers, transactional_id="etl-0")
    assert [each.committed for each in broker.of("EndTxn")] == [False]


class BadSourceError(Exception):
    """Comes out of the rows, not of a broker."""


def test_rows_that_fail_are_aborted_once_what_is_on_its_way_has_been_answered() -> None:
    """The transaction was ended beside batches in flight, and the next ones were sent behind that,
    which began another under the next epoch: nobody ended it before transaction.timeout.ms."""
    broker, coordinator = broker_with()
    is_ending = threading.Event()
    order: list[str] = []

    def handler(name: str, request: Any) -> Any:
        if name == "EndTxn":
            is_ending.set()
        if name == "Produce":
            # Nothing may come meanwhile: whoever does not wait for the answer comes at once.
            is_ending.wait(0.5)
        answer = coordinator(name, request)
        order.append(name)
        return answer

    def rows() -> Iterator[pyarrow.RecordBatch]:
        yield pyarrow.record_batch({"value": list("abcdef"), "partition": [0, 1, 0, 1, 0, 1]})
        raise BadSourceError

    broker._handler = handler
    schema = pyarrow.schema({"value": pyarrow.string(), "partition": pyarrow.int64()})
    reader = pyarrow.RecordBatchReader.from_batches(schema, rows())
    with broker, pytest.raises(InvalidArgumentError, match="BadSourceError"):
        kafkalite.write_arrow(
            reader, "orders", broker.servers, transactional_id="etl-0", batch_size=0
        )
    assert [each.committed for each in broker.of("EndTxn")] == [False]
    ended_at = order.index("EndTxn")
    assert "Produce" in order[:ended_at]
    assert not {"Produce", "AddPartitionsToTxn"} & set(order[ended_at:])


def test_a_writer_that_is_closed_sends_nothing_more_of_its_transaction() -> None:
    """Whoever aborts the transaction that it leaves open would be overtaken by that."""
    broker, coordinator = broker_with()
    is_written = threading.Event()

    def handler(name: str, request: Any) -> Any:
        if name == "Produce":
            assert is_written.wait(60)
        return coordinator(name, request)

    broker._handler = handler
    rows = pyarrow.table({"value": list("abc"), "partition": [0, 0, 0]})
    settings = ProducerSettings.of({"transactional.id": "etl-0", "batch.size": 0})
    with broker, ArrowWriter(broker.servers, "orders", settings) as writer:
        writer.write(rows)
        is_written.set()
        # The answer is there, after which the next batch would go.
        assert poller(writer._producer.fileno_list()).poll(60_000)
        assert writer._producer.pending_count > 1
        writer.close()
        assert writer._producer.pending_count == 0
    assert len(broker.of("Produce")) == 1


def test_a_coordinator_that_is_busy_or_gone_is_asked_again() -> None:
    broker, _ = broker_with(
        InitProducerId=[CONCURRENT_TRANSACTIONS],
        AddPartitionsToTxn=[CONCURRENT_TRANSACTIONS],
        EndTxn=[CONCURRENT_TRANSACTIONS, None],
    )
    with broker, Cluster(broker.servers) as cluster:
        transaction = Transaction(cluster, "etl-0", 60_000)
        transaction.begin()
        transaction.add([("orders", 0)])
        transaction.add([("orders", 0)])
        transaction.end(commit=True)
    assert transaction.handle == OPEN
    assert len(broker.of("InitProducerId")) == 2
    assert len(broker.of("AddPartitionsToTxn")) == 2
    assert [each.committed for each in broker.of("EndTxn")] == [True] * 3


def test_the_partition_that_is_refused_is_told_not_those_that_were_not_tried() -> None:
    """It was the first in the answer: OPERATION_NOT_ATTEMPTED, which says nothing, and is not tried
    again where the reason may pass."""
    broker, coordinator = broker_with()

    def handler(name: str, request: Any) -> Any:
        answer = coordinator(name, request)
        if name == "AddPartitionsToTxn":
            (topic,) = answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition:
                is_refused = row.partition_index == 1
                code = TOPIC_AUTHORIZATION_FAILED if is_refused else OPERATION_NOT_ATTEMPTED
                row.partition_error_code = code
        return answer

    broker._handler = handler
    with broker, Cluster(broker.servers) as cluster:
        transaction = Transaction(cluster, "etl-0", 60_000)
        transaction.begin()
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            transaction.add([("orders", 0), ("orders", 1)])


def test_nothing_more_is_sent_of_a_transaction_that_lacks_a_record() -> None:
    """What was sent after an error had been told was refused for its sequence number, and sent
    again at once, some thousand times a second until the delivery time-out."""
    broker, coordinator = broker_with()
    coordinator.logs[0].refuse = {1: 10}
    with broker, Cluster(broker.servers) as cluster:
        transaction = Transaction(cluster, "etl-0", 60_000)
        transaction.begin()
        with DrivenProducer(
            cluster, idempotent=True, transaction=transaction, delivery_timeout_ms=5_000
        ) as producer:
            producer.send("orders", b"too large", partition=0)
            with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
                producer.flush()
            for partition in (0, 1):
                producer.send("orders", b"too late", partition=partition)
                with pytest.raises(BrokerError, match=r"can only be aborted: .*MESSAGE_TOO_LARGE"):
                    producer.flush()
            assert (producer.sent_count, producer.failed_count) == (0, 3)
            assert len(broker.of("Produce")) == 1


def test_nothing_is_sent_of_a_transaction_of_which_another_partition_is_given_up() -> None:
    """What came before that partition in the same turn was, and what was given up behind it was
    told the sentence of that one as if it were its own."""
    broker, _ = broker_with()
    told: dict[int, str] = {}
    with broker, Cluster(broker.servers) as cluster:
        transaction = Transaction(cluster, "etl-0", 60_000)
        transaction.begin()
        with DrivenProducer(
            cluster, idempotent=True, transaction=transaction, linger_ms=3_600_000
        ) as producer:

            def note(error: KafkaliteError | None, partition: int) -> None:
                told[partition] = str(error)

            for partition in (0, 1):
                producer.send(
                    "orders",
                    b"x",
                    partition=partition,
                    on_delivery=lambda error, *_, to=partition: note(error, to),
                )
            producer._close_batches(producer._accumulator.opened())
            queue = producer._sender.queues["orders", 1]
            queue.trouble = RequestTimedOutError("no answer")
            queue.ready[0].deadline = 0.0  # its time is over
            with pytest.raises(RequestTimedOutError, match=r"^1 record for partition orders-1"):
                producer.flush()
    assert broker.of("Produce") == []
    first = "1 record for partition orders-1 was not acknowledged within 120 s: no answer"
    unsent = f"not sent, since the transaction can only be aborted: {first}"
    assert told == {0: unsent, 1: first}


def test_a_transaction_without_partitions_is_not_ended() -> None:
    broker, _ = broker_with()
    with broker, Cluster(broker.servers) as cluster:
        transaction = Transaction(cluster, "etl-0", 60_000)
        transaction.begin()
        transaction.end(commit=True)
    assert broker.of("EndTxn") == []


def test_a_fenced_producer_is_told_that_its_transaction_is_over() -> None:
    broker, _ = broker_with(EndTxn=[PRODUCER_FENCED])
    told = r"'etl-0': its transaction was aborted, because transaction\.timeout\.ms was over or"
    with broker, Cluster(broker.servers) as cluster, pytest.raises(BrokerError, match=told):
        end(cluster, OPEN, commit=True)


@pytest.mark.parametrize(
    ("state", "producer_id", "epoch", "expected"),
    [
        ("Ongoing", 7, 3, Fate.OPEN),
        ("Ongoing", 7, 4, Fate.ABORTED),
        ("Ongoing", 8, 3, Fate.ABORTED),
        ("PrepareCommit", 7, 3, Fate.COMMITTED),
        ("CompleteCommit", 7, 3, Fate.COMMITTED),
        ("CompleteCommit", 7, 4, Fate.ABORTED),
        ("CompleteAbort", 7, 3, Fate.ABORTED),
        ("PrepareEpochFence", 7, 3, Fate.ABORTED),
    ],
)
def test_only_a_transaction_of_the_same_producer_that_goes_on_is_open(
    state: str, producer_id: int, epoch: int, expected: Fate
) -> None:
    broker, coordinator = broker_with()
    kind = messages.DescribeTransactionsResponse

    def handler(name: str, request: Any) -> Any:
        if name != "DescribeTransactions":
            return coordinator(name, request)
        row = kind.TransactionState(
            transactional_id="etl-0",
            transaction_state=state,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return kind(transaction_states=[row])

    broker._handler = handler
    with broker, Cluster(broker.servers) as cluster:
        assert fates(cluster, [OPEN]) == [expected]


def test_open_transactions_are_found_by_their_prefix() -> None:
    broker, coordinator = broker_with()
    kind = messages.ListTransactionsResponse

    def handler(name: str, request: Any) -> Any:
        if name != "ListTransactions":
            return coordinator(name, request)
        names = ("etl-1-0", "etl-10-0", "other")
        return kind(transaction_states=[kind.TransactionState(transactional_id=n) for n in names])

    broker._handler = handler
    with broker, Cluster(broker.servers) as cluster:
        assert open_ids(cluster, "etl-1-") == ["etl-1-0"]


def test_a_coordinator_that_does_not_know_a_new_topic_yet_is_asked_again() -> None:
    """The transaction failed, where the topic had been made a moment before at another broker."""
    with FakeBroker(lambda *told: coordinator(*told)) as broker:
        coordinator = Coordinator(lambda: broker, AddPartitionsToTxn=[3, 3])
        with Cluster(broker.servers) as cluster:
            transaction = Transaction(cluster, "etl-0", 60_000)
            transaction.begin()
            transaction.add([("orders", 0)])
            assert transaction.has_partitions
        assert len(broker.of("AddPartitionsToTxn")) == 3
