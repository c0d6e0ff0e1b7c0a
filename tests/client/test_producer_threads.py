"""A producer's own thread, and those of its callers: records that nobody flushes are sent, those of
several threads are there once, in the order of each, and what stands in the way is told."""

import gc
import logging
import signal
import sys
import threading
import time
from collections import defaultdict
from typing import Any

import pytest

from client.fake import Close, FakeBroker
from client.fake_partition import Log
from client.test_producer_process import values_of
from kafkalite import Broker
from kafkalite._native import RecordAccumulator
from kafkalite.client import Admin, Producer
from kafkalite.client.producer import sender_thread
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.errors import InvalidArgumentError, KafkaliteError, RequestTimedOutError

LONG_S = 60.0


def wait_until(reached: Any) -> None:
    deadline = time.monotonic() + LONG_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.002)  # poll


@pytest.mark.parametrize("linger_ms", [0, 5, 200])
def test_a_record_that_nobody_flushes_is_sent(linger_ms: int) -> None:
    """A program that sent one record every two minutes lost all of them: each was given up, with
    what had just been added to its batch, before anybody had tried to send it."""
    log, told = Log(), threading.Event()
    with FakeBroker(log) as broker, Producer(broker.servers, linger_ms=linger_ms) as producer:
        for number in range(3):
            told.clear()
            producer.send("orders", b"%d" % number, on_delivery=lambda *_: told.set())
            assert told.wait(LONG_S)
            assert log.values == [b"%d" % each for each in range(number + 1)]
            threading.Event().wait(3 * sender_thread.AWAY_S)  # as a program that sends seldom


def test_a_program_that_was_stopped_beyond_its_time_sends_all_the_same() -> None:
    """A record has its time from the first attempt on, as long as the broker is there."""
    log = Log()
    with (
        FakeBroker(log) as broker,
        DrivenProducer(broker.servers, delivery_timeout_ms=300) as driven,
    ):
        driven.send("orders", b"first")
        driven.flush()
        driven.send("orders", b"second")
        driven._close_batches(driven._accumulator.opened())
        threading.Event().wait(0.4)  # as a process that has had SIGSTOP
        driven.flush()
    assert log.values == [b"first", b"second"]


def test_records_of_several_threads_are_there_once_and_in_the_order_of_each(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """`send` raised IndexError and KeyError, and in one run 1,169 records were there twice."""
    threads_count, each_count = 8, 2_000
    told: list[KafkaliteError | None] = []
    failures: list[BaseException] = []
    with Producer(kafka_broker.bootstrap_servers, batch_bytes=1_000, linger_ms=1) as producer:

        def send(name: int) -> None:
            try:
                for number in range(each_count):
                    value = b"%d %d" % (name, number)
                    producer.send(
                        kafka_topic, value, on_delivery=lambda error, *_: told.append(error)
                    )
                    if number % 500 == 0:
                        producer.flush()
            except BaseException as error:  # noqa: BLE001 - shown by the test
                failures.append(error)

        threads = [threading.Thread(target=send, args=(name,)) for name in range(threads_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
    assert failures == []
    assert told == [None] * (threads_count * each_count)
    by_thread = defaultdict(list)
    for value in values_of(kafka_broker, kafka_topic):
        name, number = value.split()
        by_thread[int(name)].append(int(number))
    assert by_thread == {name: list(range(each_count)) for name in range(threads_count)}


def test_callbacks_of_several_threads_are_called_one_after_the_other() -> None:
    inside, together, told = [0], [], [0]

    def tell(*_told: Any) -> None:
        inside[0] += 1
        together.append(inside[0])
        threading.Event().wait(0.0001)
        inside[0] -= 1
        told[0] += 1

    with FakeBroker(Log()) as broker, Producer(broker.servers, linger_ms=0) as producer:

        def send() -> None:
            for _ in range(50):
                producer.send("orders", b"value", on_delivery=tell)
            producer.flush()

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
        assert told == [200]  # each flush has waited for its own
    assert set(together) == {1}


def test_flush_waits_for_what_was_sent_before_and_not_for_what_comes_meanwhile() -> None:
    is_over = threading.Event()
    # The buffer is small, so that no flush has more than that before it.
    settings: dict[str, Any] = {"linger_ms": 0, "buffer_bytes": 64 << 10}
    with FakeBroker(Log()) as broker, Producer(broker.servers, **settings) as producer:

        def send() -> None:
            while not is_over.is_set():
                producer.send("orders", b"more")

        thread = threading.Thread(target=send)
        thread.start()
        try:
            for _ in range(20):
                producer.flush(timeout_ms=int(LONG_S * 1000))
        finally:
            is_over.set()
            thread.join(LONG_S)


def test_a_callback_may_send_flush_and_close_in_the_thread() -> None:
    log, is_done = Log(), threading.Event()
    with FakeBroker(log) as broker:
        producer = Producer(broker.servers, linger_ms=0)

        def follow(*_told: Any) -> None:
            producer.send("orders", b"second")
            producer.flush()
            producer.close()
            is_done.set()

        producer.send("orders", b"first", on_delivery=follow)
        assert is_done.wait(LONG_S)
    assert log.values == [b"first", b"second"]


def test_a_signal_handler_that_sends_in_the_midst_of_send_is_refused_and_stops_nothing() -> None:
    """Under a lock that it holds itself it would wait for ever."""
    outcomes: list[str] = []
    with FakeBroker(Log()) as broker, Producer(broker.servers, linger_ms=1) as producer:

        def handle(*_signal: Any) -> None:
            try:
                producer.send("orders", b"handler")
                outcomes.append("sent")
            except InvalidArgumentError as error:
                assert "in the midst of another call" in str(error)
                outcomes.append("refused")

        before = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        try:
            deadline = time.monotonic() + LONG_S
            while len(outcomes) < 200 and time.monotonic() < deadline:
                producer.send("orders", b"value")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
        producer.flush()
        assert producer.failed_count == 0
    assert len(outcomes) >= 200


def test_a_handler_of_the_log_may_send_with_the_producer_that_logs() -> None:
    """Lines are written without the lock: a handler that sends them on finds it free."""
    log = Log({1: 7})
    with FakeBroker(log) as broker, Producer(broker.servers, linger_ms=0) as producer:

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                producer.send("orders", record.getMessage().encode())

        logger, handler = logging.getLogger("kafkalite.client"), Handler()
        logger.addHandler(handler)
        try:
            producer.send("orders", b"first")
            producer.flush()
            wait_until(lambda: len(log.values) >= 2)
        finally:
            logger.removeHandler(handler)
    assert log.values[0] == b"first"
    assert b"REQUEST_TIMED_OUT" in log.values[1]


def test_a_trouble_is_told_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    """A dead broker, and a program that sends on: there was no line at all."""
    caplog.set_level(logging.INFO, "kafkalite.client")
    log, is_down = Log(), threading.Event()

    def answer(name: str, request: Any) -> Any:
        if name == "Produce" and is_down.is_set():
            return Close()
        return log(name, request)

    with FakeBroker(answer) as broker, Producer(broker.servers, linger_ms=0) as producer:
        producer.send("orders", b"0")
        producer.flush()
        is_down.set()
        producer.send("orders", b"1")
        came = len(broker.seen)
        wait_until(lambda: sum(each.name == "Produce" for each in broker.seen[came:]) >= 3)
        is_down.clear()
        producer.flush()
        wait_until(lambda: len(caplog.records) >= 3)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert "records wait" in caplog.messages[0]
    assert "3 times after each other" in caplog.messages[1]  # and what may be the reason
    assert "answers again, after" in caplog.messages[2]
    assert log.values == [b"0", b"1"]


def test_records_that_were_given_up_are_told_to_the_log_where_there_is_no_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FakeBroker(Log({1: 87})) as broker, Producer(broker.servers, linger_ms=0) as producer:
        producer.send("orders", b"bad")
        wait_until(lambda: producer.failed_count)
        wait_until(lambda: caplog.messages)
        with pytest.raises(KafkaliteError, match="INVALID_RECORD"):
            producer.flush()
    assert "a record was given up" in caplog.messages[0]


def test_servers_that_are_not_there_yet_may_be_waited_for() -> None:
    servers = "127.0.0.1:1"
    with (
        Producer(servers) as producer,
        pytest.raises(KafkaliteError, match="Connection refused"),
    ):
        producer.send("orders", b"value")
    began = time.monotonic()
    with (
        Producer(servers, wait_for_servers_ms=700) as producer,
        pytest.raises(KafkaliteError, match="Connection refused"),
    ):
        producer.send("orders", b"value")
    assert time.monotonic() - began >= 0.7


def test_a_record_costs_the_same_however_many_partitions_were_used(kafka_broker: Broker) -> None:
    """Each turn went over every partition that was ever used: 14.1 us a record after 4,000 of them,
    1.4 after 10. The steps of a turn are counted, not its time."""
    with Admin(kafka_broker.bootstrap_servers) as admin:
        admin.create_topic("wide", partitions=500)
    with Producer(kafka_broker.bootstrap_servers) as producer:
        for partition in range(500):
            producer.send("wide", b"value", partition=partition)
        producer.flush()
        assert not producer._sender._ready
        steps = count_lines(lambda: producer._turn(time.monotonic()), producer)
    assert steps < 100


def count_lines(work: Any, producer: Producer) -> int:
    """Lines of Python that a call runs."""
    lines = [0]

    def trace(_frame: Any, event: str, _value: Any) -> Any:
        lines[0] += event == "line"
        return trace

    with producer._lock:
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(None)
    return lines[0]


def test_close_in_one_thread_ends_what_waits_in_another() -> None:
    outcome: list[BaseException] = []
    with FakeBroker(lambda name, *_: None if name == "Produce" else ...) as broker:
        producer = Producer(broker.servers, buffer_bytes=100, batch_bytes=50, linger_ms=0)

        def send() -> None:
            try:
                while True:
                    producer.send("orders", bytes(50))
            except KafkaliteError as error:
                outcome.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        wait_until(lambda: producer.pending_count and producer._waiting_count)
        with pytest.raises(RequestTimedOutError):
            producer.close(100)
        thread.join(LONG_S)
    assert "has been closed" in str(outcome[0])


def test_a_pause_that_ends_while_the_thread_reckons_is_not_slept_through() -> None:
    """What ended between the turn and the look at the clock behind it was nobody's: a batch waited
    for its whole delivery time-out, though the broker was back."""
    with FakeBroker(Log()) as broker, DrivenProducer(broker.servers) as producer:
        producer.send("orders", b"value")
        producer._close_batches(producer._accumulator.opened())
        queue = producer._sender.queues["orders", 0]
        turned_at = time.monotonic()
        queue.paused_until = turned_at + 1e-9
        assert producer._due(turned_at) == queue.paused_until


def test_what_runs_while_an_answer_is_made_may_append() -> None:
    """Half an hour of sending in threads ended in a panic, `Already borrowed`: the collector ran
    while `close` made its answer, a finalizer let go of the interpreter, and a thread was in
    `send`."""
    accumulator = RecordAccumulator(
        "none",
        level=None,
        transactional=False,
        linger_s=0.0,
        batch_bytes=1 << 20,
        buffer_bytes=1 << 30,
    )
    appended: list[object] = []

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            try:
                append("of a finalizer")
            except BaseException as error:  # noqa: BLE001 - a panic is none of Exception
                appended.append(error)
            else:
                appended.append(None)

    def append(topic: str) -> None:
        accumulator.append(topic, b"value", None, (), 0, None, print, True)

    threshold = gc.get_threshold()
    gc.set_threshold(1)  # the collector runs wherever an object is made
    try:
        for _ in range(200):
            append("orders")
            Garbage()
            accumulator.close("orders", 0)
    finally:
        gc.set_threshold(*threshold)
    assert len(appended) > 100
    assert set(appended) == {None}
