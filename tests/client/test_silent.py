"""A broker that does not answer holds up nobody but those who want something of it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pytest

from client.fake import Close, FakeBroker
from client.fake_partition import Log, poll_until, produce_response
from client.logs import TOPIC, Logs, value, values
from client.silent import Address, mute, unreachable
from kafkalite.client import Cluster, Connection, Consumer, GroupOptions
from kafkalite.client.network import connecting
from kafkalite.client.network.metadata import metadata_request
from kafkalite.client.network.pending_request import PendingRequest
from kafkalite.client.network.wakeup import poller
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.errors import (
    BrokerError,
    ConnectionFailedError,
    KafkaliteError,
    RequestTimedOutError,
)
from kafkalite.protocol.codes import REBALANCE_IN_PROGRESS

FOR_EVER_MS = 3_600_000
ZERO, ONE = (TOPIC, 0), (TOPIC, 1)

Silent = Callable[[], AbstractContextManager[Address]]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a connection waits longer than any test."""
    monkeypatch.setattr("kafkalite.client.network.cluster.CONNECT_TIMEOUT_MS", FOR_EVER_MS)


@contextmanager
def two_leaders(other: Address, handler: Any) -> Iterator[FakeBroker]:
    """A broker that leads partition 0, and says that another leads partition 1."""

    def handle(name: str, request: Any) -> Any:
        if name != "Metadata":
            return handler(name, request)
        answer = broker.metadata({2: other})
        answer.topics[0].partitions[1].leader_id = 2
        return answer

    with FakeBroker(handle, partitions=2) as broker:
        yield broker


@pytest.mark.parametrize("silent", [unreachable, mute])
def test_records_of_other_brokers_are_sent_though_one_cannot_be_connected_to(
    silent: Silent,
) -> None:
    """Whoever sent to a broker that was off waited ten seconds for each attempt, with all else."""
    log = Log()
    with (
        silent() as address,
        two_leaders(address, log) as broker,
        DrivenProducer(
            broker.servers,
            linger_ms=0,
            request_timeout_ms=FOR_EVER_MS,
            delivery_timeout_ms=FOR_EVER_MS,
        ) as producer,
    ):
        told: list[int] = []
        producer.send(TOPIC, b"lost", partition=1)
        for number in range(3):
            producer.send(TOPIC, b"%d" % number, partition=0, on_delivery=lambda *_: told.append(1))
        poll_until(producer, lambda: len(told) == 3)
        assert log.values == [b"0", b"1", b"2"]
        with pytest.raises(RequestTimedOutError, match="1 batch was"):
            producer.flush(timeout_ms=100)
        with pytest.raises(RequestTimedOutError):
            producer.close(0)


def test_records_of_other_brokers_are_sent_though_one_reads_nothing_more() -> None:
    """The socket of a broker that had stopped was full, and `send` waited for room in it."""
    log, others = Log(batch_bytes_max=4 << 20), Log()
    stopped = threading.Event()

    def stop(name: str, request: Any) -> Any:
        if name == "Produce" and others.values:  # the first one is taken
            stopped.wait(60)
            return Close()
        return others(name, request)

    with (
        FakeBroker(stop) as other,
        two_leaders((other.host, other.port), log) as broker,
        DrivenProducer(
            broker.servers,
            linger_ms=0,
            batch_bytes=4 << 20,
            request_bytes_max=4 << 20,
            request_timeout_ms=FOR_EVER_MS,
            delivery_timeout_ms=FOR_EVER_MS,
            buffer_bytes=64 << 20,
        ) as producer,
    ):
        producer.send(TOPIC, b"first", partition=1)
        producer.flush()
        for _ in range(5):
            producer.send(TOPIC, bytes(4 << 20), partition=1)
        poll_until(producer, lambda: len(producer._sender.queues[ONE].in_flight) == 5)
        producer.send(TOPIC, b"taken", partition=0)
        poll_until(producer, lambda: log.values == [b"taken"])
        with pytest.raises(RequestTimedOutError):
            producer.close(0)
        stopped.set()


def test_what_left_in_pieces_arrives_whole() -> None:
    log, may_read = Log(batch_bytes_max=8 << 20), threading.Event()

    def read_late(name: str, request: Any) -> Any:
        if name == "Produce":
            may_read.wait(60)
            answer = produce_response(request, log.take)
            return answer if request.message.acks else None
        return ...

    sent = [bytes([number]) * (4 << 20) for number in range(5)]
    for acks in ("all", "0"):
        log.values.clear()
        may_read.clear()
        with (
            FakeBroker(read_late) as broker,
            DrivenProducer(
                broker.servers,
                acks=acks,
                linger_ms=0,
                batch_bytes=4 << 20,
                request_bytes_max=4 << 20,
                buffer_bytes=64 << 20,
            ) as producer,
        ):
            for each in sent:
                producer.send(TOPIC, each, partition=0)
            with pytest.raises(RequestTimedOutError, match="not acknowledged"):
                producer.flush(timeout_ms=100)
            may_read.set()
            producer.flush()
            poll_until(producer, lambda: len(log.values) == 5)
        assert log.values == sent


def test_flush_and_poll_keep_their_time_while_nobody_gives_a_producer_id() -> None:
    may_answer = threading.Event()

    def handle(name: str, request: Any) -> Any:
        if name == "InitProducerId":
            may_answer.wait(60)
        return log(name, request)

    log = Log()
    with (
        FakeBroker(handle) as broker,
        DrivenProducer(broker.servers, linger_ms=0, request_timeout_ms=FOR_EVER_MS) as producer,
    ):
        producer.send(TOPIC, b"value", partition=0)
        producer.poll(10)
        with pytest.raises(RequestTimedOutError, match="1 batch was"):
            producer.flush(timeout_ms=100)
        may_answer.set()
        producer.flush()
        assert log.values == [b"value"]
        assert len(broker.of("InitProducerId")) == 1


def test_records_under_way_are_given_up_when_their_time_is_over() -> None:
    """They were when the request's was, though `delivery_timeout_ms` be less."""
    with (
        FakeBroker(lambda name, *_: None if name == "Produce" else ...) as broker,
        DrivenProducer(
            broker.servers, linger_ms=0, delivery_timeout_ms=2_000, request_timeout_ms=FOR_EVER_MS
        ) as producer,
    ):
        told: list[KafkaliteError | None] = []
        producer.send(
            TOPIC, b"value", partition=0, on_delivery=lambda error, *_: told.append(error)
        )
        while not told:
            producer.poll(FOR_EVER_MS)
        with pytest.raises(RequestTimedOutError, match=r"1 record .* not acknowledged within 2 s"):
            producer.flush()


def test_a_record_for_which_there_is_no_room_is_refused_in_time() -> None:
    """`send` waited until the records before it were given up, by default for two minutes, where
    `max.block.ms` of Kafka's producer is one."""
    with (
        FakeBroker(lambda name, *_: None if name == "Produce" else ...) as broker,
        DrivenProducer(
            broker.servers,
            linger_ms=0,
            buffer_bytes=1_000,
            delivery_timeout_ms=FOR_EVER_MS,
            request_timeout_ms=FOR_EVER_MS,
        ) as producer,
    ):
        producer.send(TOPIC, bytes(2_000), partition=0)
        producer.cluster.timeout_ms = 300
        with pytest.raises(RequestTimedOutError, match="buffer_bytes=1000 are under way"):
            producer.send(TOPIC, b"no room", partition=0)
        assert producer.pending_count == 1
        with pytest.raises(RequestTimedOutError):
            producer.close(0)


def test_a_topic_is_not_waited_for_longer_than_said() -> None:
    """Only the time of the request ended the wait, or that of all brokers one after the other."""
    with (
        FakeBroker(lambda name, *_: None if name == "Metadata" else ...) as broker,
        DrivenProducer(broker.servers, request_timeout_ms=FOR_EVER_MS) as producer,
    ):
        producer.cluster.timeout_ms = 300
        with pytest.raises(RequestTimedOutError, match="'orders' was not found within 300 ms"):
            producer.send("orders", b"value")


@pytest.mark.parametrize("silent", [unreachable, mute])
def test_records_of_other_brokers_come_though_one_cannot_be_connected_to(silent: Silent) -> None:
    logs = Logs({0: 2, 1: 2})
    with (
        silent() as address,
        two_leaders(address, logs) as broker,
        Consumer(broker.servers, request_timeout_ms=FOR_EVER_MS) as consumer,
    ):
        # Of partition 1 the position is looked up, too, or there is only the fetch.
        for start in ([ZERO, ONE], {ZERO: 0, ONE: 0}):
            consumer.assign([])
            consumer.assign(start)
            assert values(consumer, 6) == [value(0, offset) for offset in range(6)]
            assert consumer.poll(10) == []


def test_bootstrap_servers_that_have_not_answered_are_asked_after_the_others() -> None:
    """The first one was asked each time: half a minute, where it was frozen, for each look-up."""
    with (
        mute() as silent,
        FakeBroker() as broker,
        Cluster([f"{silent[0]}:{silent[1]}", broker.servers], request_timeout_ms=300) as cluster,
    ):
        cluster.refresh([])
        assert cluster._addresses() == [(broker.host, broker.port), silent]


def test_all_addresses_that_have_failed_are_named() -> None:
    with mute() as one, mute() as two:
        servers = [f"{host}:{port}" for host, port in (one, two)]
        with (
            DrivenProducer(servers, request_timeout_ms=100) as producer,
            pytest.raises(ConnectionFailedError, match=f"{servers[0]} .*; .* {servers[1]} "),
        ):
            producer.send(TOPIC, b"value")


# --- groups ---------------------------------------------------------------------------------------


class Held(Logs):
    """Does not answer requests of a kind until the test lets it."""

    def __init__(self, held: str) -> None:
        super().__init__({0: 1, 1: 1})
        self.held = held
        self.came, self.may_answer = threading.Event(), threading.Event()

    def __call__(self, name: str, request: Any) -> Any:
        if name == self.held:
            self.came.set()
            self.may_answer.wait(60)
        return super().__call__(name, request)


@contextmanager
def joining(held: str) -> Iterator[tuple[FakeBroker, Held, Consumer]]:
    """A consumer that joins a group whose coordinator does not answer."""
    logs = Held(held)
    with FakeBroker(logs, partitions=2) as broker:
        logs.address = (broker.host, broker.port)
        try:
            with Consumer(
                broker.servers, group=f"held-{held}", request_timeout_ms=FOR_EVER_MS
            ) as consumer:
                consumer.subscribe(TOPIC)
                while not logs.came.is_set():
                    assert consumer.poll(10) == []
                yield broker, logs, consumer
        finally:
            logs.may_answer.set()


@pytest.mark.parametrize("held", ["Metadata", "FindCoordinator", "JoinGroup", "SyncGroup"])
def test_poll_keeps_its_time_while_a_group_is_joined(held: str) -> None:
    """It waited for the other members, or for a coordinator that was away, as long as that took.
    Kafka's consumer goes on with the next `poll`."""
    with joining(held) as (broker, logs, consumer):
        for _ in range(3):
            assert consumer.poll(10) == []
        logs.may_answer.set()
        assert len(values(consumer, 6)) == 6
        assert consumer.assignment == [ZERO, ONE]
        assert len(broker.of("JoinGroup")) == len(broker.of("SyncGroup")) == 1


@pytest.mark.parametrize("held", ["JoinGroup", "SyncGroup"])
def test_what_was_read_before_a_rebalance_is_not_committed_in_the_midst_of_it(held: str) -> None:
    """It would be committed in the next generation, over what another member has by then."""
    with joining(held) as (_, logs, consumer):
        with pytest.raises(BrokerError, match="REBALANCE_IN_PROGRESS"):
            consumer.commit({ZERO: 1})
        logs.may_answer.set()
        assert len(values(consumer, 6)) == 6
        consumer.commit()
        assert logs.commits == [{0: 3, 1: 3}]


@pytest.mark.parametrize("held", ["FindCoordinator", "JoinGroup", "SyncGroup"])
def test_whoever_closes_waits_for_no_join(held: str) -> None:
    with joining(held) as (broker, logs, consumer):
        if held == "FindCoordinator":
            logs.held = ""  # for the connection that the next one comes by
        consumer.close()
        # The coordinator gives the id of a member with its first answer.
        assert bool(broker.of("LeaveGroup")) == (held == "SyncGroup")
        names = [each.name for each in threading.enumerate()]
        assert not [name for name in names if name.endswith(f"held-{held}")]


def test_what_was_read_is_committed_though_the_join_that_was_to_do_so_is_ended() -> None:
    """It was committed by nobody, and read again: `close` ended the commit with the join."""
    logs, came, may_go = Logs({0: 1, 1: 1}), threading.Event(), threading.Event()

    def lose_first_commit(name: str, request: Any) -> Any:
        if name != "OffsetCommit" or came.is_set():
            return logs(name, request)
        came.set()
        may_go.wait(60)
        return None

    options = GroupOptions("closes-in-a-commit", heartbeat_interval_ms=10)
    with FakeBroker(lose_first_commit, partitions=2) as broker:
        logs.address = (broker.host, broker.port)
        consumer = Consumer(
            broker.servers,
            group=options,
            auto_commit_interval_ms=FOR_EVER_MS,
            request_timeout_ms=FOR_EVER_MS,
        )
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        logs.heartbeat_code = REBALANCE_IN_PROGRESS
        while not came.is_set():
            assert consumer.poll(10) == []
        consumer.close()
        may_go.set()
    assert logs.commits == [{0: 3, 1: 3}]


def test_whoever_assigns_in_the_midst_of_a_join_reads_what_they_assigned() -> None:
    with joining("JoinGroup") as (_, logs, consumer):
        consumer.assign({ONE: 0})
        assert values(consumer, 3) == [value(1, offset) for offset in range(3)]
        assert consumer.assignment == [ONE]
        logs.may_answer.set()
        assert consumer.poll(10) == []
        assert consumer.assignment == [ONE]


def test_whoever_assigns_waits_for_no_coordinator_that_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka's consumer commits without waiting there."""
    monkeypatch.setattr("kafkalite.client.consumer.consumer.CLOSE_MS", 300)
    monkeypatch.setattr("kafkalite.client.consumer.coordinator.LEAVE_S", 0.1)
    logs = Held("OffsetCommit")
    with FakeBroker(logs, partitions=2) as broker:
        logs.address = (broker.host, broker.port)
        consumer = Consumer(
            broker.servers, group="assigns", timeout_ms=FOR_EVER_MS, request_timeout_ms=FOR_EVER_MS
        )
        consumer.subscribe(TOPIC)
        assert len(values(consumer, 6)) == 6
        consumer.assign({ONE: 0})
        assert len(values(consumer, 3)) == 3
        consumer.close(timeout_ms=300)
        logs.may_answer.set()


def test_a_commit_keeps_its_time_where_a_heartbeat_is_not_answered() -> None:
    logs = Held("Heartbeat")
    options = GroupOptions("beats", heartbeat_interval_ms=10)
    with FakeBroker(logs, partitions=2) as broker:
        logs.address = (broker.host, broker.port)
        with Consumer(
            broker.servers, group=options, timeout_ms=5_000, request_timeout_ms=FOR_EVER_MS
        ) as consumer:
            consumer.subscribe(TOPIC)
            assert len(values(consumer, 6)) == 6
            assert logs.came.wait(60)
            with pytest.raises(RequestTimedOutError, match="waits for its coordinator"):
                consumer.commit()
            with pytest.raises(RequestTimedOutError, match="waits for its coordinator"):
                consumer.committed([ZERO])
            logs.may_answer.set()
            consumer.commit()
        assert logs.commits[-1] == {0: 3, 1: 3}


# --- interrupts -----------------------------------------------------------------------------------


@contextmanager
def interrupted(after: int) -> Iterator[list[int]]:
    """Ctrl-C comes in the midst of the n-th thing that is done beside all else: when a socket is
    begun to be connected, sent on, or asked for what it has."""
    came: list[int] = []

    def breaking(called: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            came.append(1)
            if len(came) == after:
                raise KeyboardInterrupt
            return called(*arguments)

        return call

    with pytest.MonkeyPatch.context() as patched:
        begin = breaking(connecting._begin)
        patched.setattr(connecting, "_begin", begin)
        for name in ("_parse", "_joined"):
            patched.setattr(Connection, name, breaking(getattr(Connection, name)))
        yield came


def test_a_producer_goes_on_after_an_interrupt_at_any_moment() -> None:
    """A topic whose look-up was interrupted was never asked for again."""
    for after in range(1, 40):
        log = Log()
        with (
            FakeBroker(log) as broker,
            DrivenProducer(broker.servers, linger_ms=0) as producer,
            interrupted(after) as came,
        ):
            with suppress(KeyboardInterrupt):
                producer.send(TOPIC, b"maybe", partition=0)
            while b"surely" not in log.values:
                with suppress(KeyboardInterrupt):
                    producer.send(TOPIC, b"surely", partition=0)
                    producer.flush()
        assert b"surely" in log.values
        if len(came) < after:
            return
    raise AssertionError


def test_a_consumer_goes_on_after_an_interrupt_at_any_moment() -> None:
    for after in range(1, 60):
        logs = Logs({0: 1})
        with FakeBroker(logs) as broker, Consumer(broker.servers, group="goes-on") as consumer:
            logs.address = (broker.host, broker.port)
            consumer.assign([ZERO])
            found: list[bytes | None] = []
            with interrupted(after) as came:
                while len(found) < 3:
                    with suppress(KeyboardInterrupt):
                        found += [record.value for record in consumer.poll(100)]
            assert found == [value(0, offset) for offset in range(3)]
        if len(came) < after:
            return
    raise AssertionError


# --- quotas ---------------------------------------------------------------------------------------


def test_a_broker_that_is_to_be_spared_gets_no_request_until_then() -> None:
    """`throttle_time_ms` was not looked at (KIP-219): the next request ran into its time-out where
    the broker did not read it for so long."""

    def handle(name: str, request: Any) -> Any:
        answer = logs(name, request) if name == "Fetch" else log(name, request)
        if name in ("Fetch", "Produce"):
            answer.throttle_time_ms = FOR_EVER_MS
        return answer

    log, logs = Log(), Logs({0: 2})
    logs.batches_max = 1
    with FakeBroker(handle) as broker:
        with DrivenProducer(broker.servers, linger_ms=0) as producer:
            producer.send(TOPIC, b"1", partition=0)
            producer.flush()
            producer.send(TOPIC, b"2", partition=0)
            with pytest.raises(RequestTimedOutError):
                producer.flush(timeout_ms=300)
            assert len(broker.of("Produce")) == 1
            (link,) = producer._sender._links.values()
            link.connection.throttled_until = 0.0
            producer.flush()
        assert log.values == [b"1", b"2"]
        with Consumer(broker.servers) as consumer:
            consumer.assign({ZERO: 0})
            assert values(consumer, 3) == [value(0, offset) for offset in range(3)]
            assert consumer.poll(300) == []
            assert len(broker.of("Fetch")) == 1
            (connection,) = consumer._fetcher._links.values()
            connection.throttled_until = 0.0
            assert values(consumer, 3) == [value(0, offset) for offset in range(3, 6)]


def test_a_question_on_a_connection_that_is_to_be_spared_waits_until_then() -> None:
    def handle(name: str, _request: Any) -> Any:
        if name != "Metadata":
            return ...
        answer = broker.metadata()
        answer.throttle_time_ms = FOR_EVER_MS
        return answer

    with FakeBroker(handle) as broker, Cluster(broker.servers) as cluster:
        cluster.refresh([])
        now = time.monotonic()
        with PendingRequest(cluster, metadata_request([], allow_auto_create=False), now) as pending:
            assert pending.take(now) is None
            assert pending.due > now + FOR_EVER_MS / 2_000
            later = pending.due
            while pending.take(later) is None:
                poller(pending.descriptors()).poll(1_000)
        assert len(broker.of("Metadata")) == 2
        (asked,) = [each for each in broker.seen if each.name == "ApiVersions"]
        assert asked is broker.seen[0]
