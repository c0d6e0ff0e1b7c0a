"""The client's transactional producer against kafkalite: each level of `transaction.version`, a
fork, a kill, what a caller gets wrong."""

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.raw import Connection
from client.test_lifetime import in_a_fork
from client.test_producer_interrupts import Interrupted, at_place, interrupt
from client.test_transactions import broker_with
from client.transactional import (
    PARTITIONS,
    STORIES,
    committed,
    goes_on_after_a_kill,
    make,
    send,
    sent,
    values,
)
from kafkalite.client import Admin, Cluster, Consumer, Producer
from kafkalite.client.producer import sender, transactions
from kafkalite.client.producer.transaction_state import State, TransactionState
from kafkalite.client.transaction_admin import TransactionAdmin
from kafkalite.errors import (
    BrokerError,
    ClientError,
    InvalidArgumentError,
    RequestTimedOutError,
)
from kafkalite.protocol import messages
from transactions.test_transaction_versions import finalise

CONFIG = {
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}
_numbers = itertools.count()


def join(consumer: Consumer, topic: str) -> None:
    """Returns when the group has given it the topic, and it knows where it stands."""
    if not consumer.assignment:
        consumer.subscribe(topic)
    places = [(topic, index) for index in range(PARTITIONS)]
    while not set(places) <= set(consumer.assignment):
        consumer.poll(100)
    for place in places:
        consumer.position(place)


@pytest.fixture(scope="module", params=[0, 1, 2], ids=["TV0", "TV1", "TV2"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with kafkalite.Broker(config=CONFIG) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            finalise(connection, request.param)
        yield broker.bootstrap_servers


@pytest.fixture
def topic() -> str:
    return f"transactional-{next(_numbers)}"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_holds_at_each_level(
    servers: str, topic: str, story: Callable[[str, str], None]
) -> None:
    story(servers, topic)


def test_partitions_join_by_themselves_where_the_cluster_can(
    kafka_broker: kafkalite.Broker,
) -> None:
    with Producer(kafka_broker.bootstrap_servers, transactional_id="joins") as producer:
        assert producer._transaction is not None
        assert producer._transaction.adds_partitions


def test_a_producer_goes_on_with_its_transaction_after_the_broker_was_killed(
    tmp_path: Path, topic: str
) -> None:
    brokers: list[kafkalite.Broker] = []

    def start() -> str:
        listen = {"listen": brokers[-1].bootstrap_servers} if brokers else {}
        brokers.append(kafkalite.Broker(tmp_path / "data", config=CONFIG, **listen))
        running.enter_context(brokers[-1])
        return brokers[-1].bootstrap_servers

    with ExitStack() as running:
        goes_on_after_a_kill(start, lambda: brokers[-1].kill(), topic)


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_told(
    servers: str, topic: str
) -> None:
    make(servers, topic)
    with Producer(servers, transactional_id=topic, transaction_timeout_ms=300) as slow:
        slow.begin_transaction()
        send(slow, topic, b"slow")
        slow.flush()
        with Producer(servers, transactional_id=f"{topic}-other") as other:
            with other.transaction():
                send(other, topic, b"other")
            # The last stable offset is behind the slow one's end.
            assert committed(servers, topic, sent(b"other")) == sent(b"other")
        with pytest.raises(BrokerError, match=r"transaction\.timeout\.ms was over"):
            slow.commit_transaction()
    assert values(servers, topic) == sent(b"other")


def test_an_answer_that_was_lost_is_asked_for_again(servers: str, topic: str) -> None:
    make(servers, topic)
    with Producer(servers, transactional_id=topic) as producer:
        ask, left = producer.cluster.ask, [0]

        def ask_and_lose(message: object, **options: Any) -> object:
            answer = ask(message, **options)
            if type(message).__name__ == "EndTxnRequest" and left[0]:
                left[0] -= 1
                raise RequestTimedOutError("the answer was lost")
            return answer

        producer.cluster.ask = ask_and_lose  # type: ignore[method-assign]
        producer.begin_transaction()
        send(producer, topic, b"1")
        left[0] = 1
        producer.commit_transaction()
        producer.begin_transaction()
        send(producer, topic, b"2")
        producer.flush()
        left[0] = 1_000_000
        with pytest.raises(RequestTimedOutError):
            producer.commit_transaction(100)
        left[0] = 0
        for call in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(InvalidArgumentError, match="call commit_transaction again"):
                call()
        producer.commit_transaction()
        with producer.transaction():
            send(producer, topic, b"3")
    assert committed(servers, topic, sent(b"1", b"2", b"3")) == sent(b"1", b"2", b"3")


def test_the_transaction_stays_with_the_parent_of_a_fork(servers: str, topic: str) -> None:
    make(servers, topic)
    with Producer(servers, transactional_id=topic) as producer, producer.transaction():
        send(producer, topic, b"before")

        def refused() -> None:
            sentence = "make a Producer, with a transactional_id of its own, in this process"
            calls = (
                lambda: producer.send(topic, b"child"),
                producer.commit_transaction,
                producer.abort_transaction,
                producer.begin_transaction,
            )
            for call in calls:
                with pytest.raises(InvalidArgumentError, match=sentence):
                    call()
            producer.close()

        in_a_fork(refused)
        send(producer, topic, b"after")
    assert committed(servers, topic, sent(b"before", b"after")) == sent(b"before", b"after")


def test_a_child_that_comes_to_the_end_of_the_block_ends_no_transaction(
    servers: str, topic: str
) -> None:
    make(servers, topic)
    producer = Producer(servers, transactional_id=topic)
    parent = os.getpid()
    try:
        with producer.transaction():
            send(producer, topic, b"one")
            producer.flush()
            child = os.fork()
            if child:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    except InvalidArgumentError as error:
        if os.getpid() != parent:
            os._exit(7 if "in this process" in str(error) else 1)
        raise
    if os.getpid() != parent:
        os._exit(2)
    producer.close()
    assert committed(servers, topic, sent(b"one")) == sent(b"one")


def test_offsets_of_a_member_that_the_group_has_put_out_abort_the_transaction(
    servers: str, topic: str
) -> None:
    make(servers, topic)
    with (
        Consumer(servers, group=topic, auto_commit_interval_ms=None) as consumer,
        Producer(servers, transactional_id=topic) as producer,
    ):
        consumer.subscribe(topic)
        while not consumer.assignment:
            consumer.poll(100)
        consumer.position((topic, 0)), consumer.position((topic, 1))
        assert consumer._coordinator is not None
        consumer._coordinator.group.generation += 1
        with pytest.raises(BrokerError, match="ILLEGAL_GENERATION"), producer.transaction():
            producer.send_offsets(consumer)
        consumer._coordinator.group.generation -= 1
        with producer.transaction():
            producer.send_offsets(consumer)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_transaction_that_is_broken_off_at_any_place_is_there_as_a_whole_or_not_at_all(
    servers: str, topic: str
) -> None:
    """A handler of a signal raises; the producer goes on with what the sentence says."""
    make(servers, topic)
    phase, wanted, is_interrupted = 1, [], True
    while is_interrupted:
        name = b"%d" % phase
        with Producer(servers, transactional_id=topic, linger_ms=0) as producer:
            is_interrupted = False
            with at_place(phase, interrupt):
                try:
                    with producer.transaction():
                        send(producer, topic, name)
                    wanted.append(name)
                except Interrupted:
                    is_interrupted = True
            assert producer._state is not None
            if producer._state.now is State.COMMITTING:
                producer.commit_transaction()
                wanted.append(name)
            elif producer._state.is_to_abort:
                producer.abort_transaction()
            with producer.transaction():
                send(producer, topic, name + b"+")
            wanted.append(name + b"+")
        phase += 29
    committed(servers, topic, sent(*wanted))
    counts = Counter(value.split(b"-")[0] for value in values(servers, topic))
    assert set(counts.values()) == {2}
    assert set(wanted) <= set(counts)
    assert phase > 300


def test_a_coordinator_that_does_not_answer_holds_up_no_flush(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was waited for under the producer's lock for as long as a record has."""
    broker, coordinator = broker_with()

    def answer(name: str, request: Any) -> Any:
        return None if name == "AddPartitionsToTxn" else coordinator(name, request)

    broker._handler = answer
    monkeypatch.setattr(sender, "ADD_S", 0.2)
    with broker, Producer(broker.servers, transactional_id="etl-0", linger_ms=0) as producer:
        producer.begin_transaction()
        began = time.monotonic()
        producer.send("orders", b"0")
        with pytest.raises(RequestTimedOutError, match="AddPartitionsToTxn"):
            producer.flush(500)
        producer.close(0)
        assert time.monotonic() - began < 10


def test_what_a_caller_gets_wrong_is_one_sentence(servers: str, topic: str) -> None:
    make(servers, topic)
    with pytest.raises(InvalidArgumentError, match="transactional_id is empty"):
        Producer(servers, transactional_id="")
    for settings in ({"idempotent": False}, {"acks": 1}, {"max_in_flight": 6}):
        with pytest.raises(InvalidArgumentError, match="transactional_id needs an idempotent"):
            Producer(servers, transactional_id=topic, **settings)
    with pytest.raises(InvalidArgumentError, match=r"transaction_timeout_ms=1000000 is more than"):
        Producer(servers, transactional_id=topic, transaction_timeout_ms=1_000_000)
    with Producer(servers) as plain, Consumer(servers, group=topic) as by_itself:
        with pytest.raises(InvalidArgumentError, match="make it with a transactional_id"):
            plain.begin_transaction()
        with Producer(servers, transactional_id=topic) as producer:
            for call in (producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(InvalidArgumentError, match="transaction"):
                    call()
            with pytest.raises(InvalidArgumentError, match=r"use `with producer\.transaction"):
                producer.send_offsets(by_itself)
            producer.begin_transaction()
            with pytest.raises(InvalidArgumentError, match="is under way already"):
                producer.begin_transaction()
            with pytest.raises(InvalidArgumentError, match="auto_commit_interval_ms=None"):
                producer.send_offsets(by_itself)
            refused = pytest.raises(InvalidArgumentError, match="consumer without a group")
            with Consumer(servers) as alone, refused:
                producer.send_offsets(alone)
        with pytest.raises(InvalidArgumentError, match="the producer has been closed"):
            producer.begin_transaction()


def test_a_producer_that_cannot_begin_leaves_nothing_open() -> None:
    with pytest.raises(ClientError, match="Connection refused"):
        Producer("127.0.0.1:1", transactional_id="nowhere")


def test_threads_send_within_one_transaction(servers: str, topic: str) -> None:
    make(servers, topic)
    with Producer(servers, transactional_id=topic) as producer:
        for number in range(5):
            with producer.transaction():
                names = [b"%d-%d" % (number, thread) for thread in range(4)]
                threads = [
                    threading.Thread(target=send, args=(producer, topic, name)) for name in names
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
    wanted = sent(*[b"%d-%d" % (number, at) for number in range(5) for at in range(4)])
    assert committed(servers, topic, wanted) == wanted


@pytest.mark.parametrize("last", ["commit_transaction", "abort_transaction"])
def test_a_thread_that_was_to_end_a_transaction_ends_no_other(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """It committed what another thread had sent so far of the next one, and said yes."""
    make(servers, topic)
    is_waiting, goes_on, refusals = threading.Event(), threading.Event(), []
    flush = Producer._flush

    def held_up(self: Producer, timeout_ms: int | None) -> None:
        flush(self, timeout_ms)
        if threading.current_thread() is other:
            is_waiting.set()
            assert goes_on.wait(30)

    def end() -> None:
        try:
            producer.commit_transaction()
        except InvalidArgumentError as error:
            refusals.append(str(error))

    monkeypatch.setattr(Producer, "_flush", held_up)
    other = threading.Thread(target=end)
    with Producer(servers, transactional_id=topic) as producer:
        producer.begin_transaction()
        send(producer, topic, b"first")
        other.start()
        assert is_waiting.wait(30)
        producer.commit_transaction()
        producer.begin_transaction()
        send(producer, topic, b"second")
        producer.flush()
        goes_on.set()
        other.join()
        assert refusals == ["another thread has ended the transaction meanwhile: one is to end it"]
        getattr(producer, last)()
    wanted = sent(b"first", b"second") if last == "commit_transaction" else sent(b"first")
    assert committed(servers, topic, wanted) == wanted


def test_offsets_are_part_of_no_transaction_that_another_thread_has_ended(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were sent in the next one, which nobody had begun, and an abort took them."""
    make(servers, topic)
    with (
        Consumer(servers, group=topic, auto_commit_interval_ms=None) as consumer,
        Producer(servers, transactional_id=topic) as producer,
    ):
        join(consumer, topic)
        producer.begin_transaction()
        other = threading.Thread(target=producer.commit_transaction)
        check_open = TransactionState.check_open

        def ended_meanwhile(state: TransactionState) -> None:
            check_open(state)
            if not other.ident:
                other.start()
                other.join(0.2)  # it waits for the call that this is part of

        monkeypatch.setattr(TransactionState, "check_open", ended_meanwhile)
        producer.send_offsets(consumer)
        other.join()
        with pytest.raises(InvalidArgumentError, match="none is under way"):
            producer.send_offsets(consumer)
        places = [(topic, 0), (topic, 1)]
        assert consumer.committed(places) == dict.fromkeys(places, 0)


def test_offsets_are_refused_once_the_group_has_taken_partitions_away_within_the_transaction(
    servers: str, topic: str
) -> None:
    """What was read of them comes again: both readings were committed, at once."""
    make(servers, topic)
    with (
        Consumer(servers, group=topic, auto_commit_interval_ms=None) as consumer,
        Producer(servers, transactional_id=topic) as producer,
    ):
        join(consumer, topic)
        refused = pytest.raises(BrokerError, match="rebalanced since the transaction began")
        with refused, producer.transaction():
            send(producer, topic, b"read before")
            consumer.subscribe([topic, f"{topic}-more"])
            make(servers, f"{topic}-more")
            join(consumer, f"{topic}-more")
            producer.send_offsets(consumer)
        with producer.transaction():
            send(producer, topic, b"again")
            producer.send_offsets(consumer)
    assert committed(servers, topic, sent(b"again")) == sent(b"again")


def test_a_request_to_add_that_was_interrupted_is_asked_again_before_the_end(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator had begun a transaction of which the producer did not know: nobody ended it,
    and after its time the next one was fenced."""
    make(servers, topic)
    ask = transactions._ask
    kinds = [messages.AddOffsetsToTxnRequest, messages.AddPartitionsToTxnRequest]

    def interrupted(cluster: Cluster, name: str, request: Any, *more: Any, **named: Any) -> Any:
        answer = ask(cluster, name, request, *more, **named)
        if type(request) in kinds:
            kinds.remove(type(request))
            raise Interrupted
        return answer

    with (
        Consumer(servers, group=topic, auto_commit_interval_ms=None) as consumer,
        Producer(servers, transactional_id=topic) as producer,
        TransactionAdmin(servers) as admin,
    ):
        join(consumer, topic)
        assert producer._transaction is not None
        if producer._transaction.adds_partitions:
            return  # nobody asks to add
        monkeypatch.setattr(transactions, "_ask", interrupted)
        with pytest.raises(Interrupted), producer.transaction():
            producer.send_offsets(consumer)
        assert admin.describe(topic).state == "Empty"
        with producer.transaction():
            producer.send_offsets(consumer)
        assert kinds == [messages.AddPartitionsToTxnRequest]


def test_a_block_may_end_its_transaction(servers: str, topic: str) -> None:
    make(servers, topic)
    with Producer(servers, transactional_id=topic) as producer:
        with producer.transaction():
            send(producer, topic, b"one")
            producer.commit_transaction()
        with producer.transaction():
            send(producer, topic, b"two")
            producer.abort_transaction()
        with pytest.raises(ZeroDivisionError), producer.transaction():
            send(producer, topic, b"three")
            producer.commit_transaction()
            raise ZeroDivisionError
    assert committed(servers, topic, sent(b"one", b"three")) == sent(b"one", b"three")


def test_a_level_that_is_lowered_under_a_producer_ends_it(topic: str) -> None:
    """Commit and abort were refused for ever, and the sentence asked for the abort again."""
    with (
        kafkalite.Broker(config=CONFIG) as broker,
        Producer(broker.bootstrap_servers, transactional_id=topic) as producer,
        Connection(broker.bootstrap_servers) as connection,
    ):
        make(broker.bootstrap_servers, topic)
        producer.begin_transaction()
        send(producer, topic, b"one")
        producer.flush()
        finalise(connection, 0)
        for end in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(
                BrokerError, match=r"transaction\.version of the cluster was changed"
            ):
                end()
        anew = Producer(broker.bootstrap_servers, transactional_id=topic)
        with anew, anew.transaction():
            send(anew, topic, b"two")
        wanted = sent(b"two")
        assert committed(broker.bootstrap_servers, topic, wanted) == wanted


def test_an_admin_sees_the_offsets_of_a_transaction_once_it_is_committed(
    servers: str, topic: str
) -> None:
    """The reader of committed records stops before what is open."""
    make(servers, topic)
    places = [(topic, 0), (topic, 1)]
    with Admin(servers) as admin, Producer(servers, transactional_id=topic) as producer:
        with producer.transaction():
            send(producer, topic, b"one")
            producer.flush()
            with Consumer(servers, isolation="read_committed") as consumer:
                assert set(consumer.end_offsets(places).values()) == {0}
        committed(servers, topic, sent(b"one"))
        latest = admin.list_offsets(dict.fromkeys(places, -1), committed=True)
        assert {row.offset for row in latest.values()} == {2}


def test_the_cluster_of_a_caller_serves_a_transactional_producer(servers: str, topic: str) -> None:
    make(servers, topic)
    with Cluster(servers) as cluster:
        with Producer(cluster, transactional_id=topic) as producer, producer.transaction():
            send(producer, topic, b"one")
        assert cluster.leader(topic, 0) >= 0
    assert committed(servers, topic, sent(b"one")) == sent(b"one")
