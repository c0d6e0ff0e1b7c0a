"""A producer whose calls are broken off by what a handler of a signal raises: at every place at
which Python calls one, which is behind a call and at the start of a function."""

import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import kafkalite
from client.fake import FakeBroker
from client.fake_partition import Log
from kafkalite.client import Admin, Producer
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.errors import InvalidArgumentError, RequestTimedOutError

COUNT = 24

# A socket that was being made when the call was broken off is left to the collector, which says so.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Interrupted(BaseException):
    """As KeyboardInterrupt."""


def interrupt() -> None:
    raise Interrupted


@contextmanager
def at_place(phase: int, handler: Callable[[], object]) -> Iterator[list[int]]:
    """Calls a handler once, at that place of the client's, and gives how many were passed."""
    passed = [0]

    def look(frame: FrameType, event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if event in ("c_call", "c_exception") or "/kafkalite/client/" not in name:
            return
        passed[0] += 1
        if passed[0] == phase:
            sys.setprofile(None)
            handler()

    sys.setprofile(look)
    try:
        yield passed
    finally:
        sys.setprofile(None)


def check_phase(phase: int, **settings: Any) -> int:
    """Sends records, one of the calls broken off: what is known of each is true of the log. Gives
    how many places there were."""
    log, told, accepted = Log(), Counter[bytes](), set[bytes]()
    with FakeBroker(log) as broker:
        producer = DrivenProducer(broker.servers, linger_ms=0, **settings)
        with at_place(phase, interrupt) as passed:
            for number in range(COUNT):
                value = b"%d" % number

                def tell(error: Any, *_where: Any, value: bytes = value) -> None:
                    assert error is None, error
                    told[value] += 1

                try:
                    producer.send("orders", value, partition=0, on_delivery=tell)
                    accepted.add(value)
                    if number % 8 == 7:
                        producer.flush()
                except Interrupted:
                    pass
        producer.flush(20_000)
        producer.close()
    assert set(Counter(log.values).values()) == {1}, phase
    assert accepted <= set(log.values), phase
    # Of the record whose `send` was broken off nobody knows whether it was accepted.
    assert accepted <= told.keys() <= set(log.values), phase
    assert set(told.values()) == {1}, phase
    assert log.values == sorted(log.values, key=int), phase
    return passed[0]


@pytest.mark.parametrize("settings", [{"batch_bytes": 1}, {"batch_bytes": 90, "codec": "gzip"}])
def test_a_call_that_is_broken_off_anywhere_loses_nothing(settings: dict[str, Any]) -> None:
    """Records were lost without a word in 94 of 400 runs with gzip: a batch was no longer open, and
    not yet on its way."""
    places = check_phase(0, **settings)
    for phase in range(1, places, places // 60):
        check_phase(phase, **settings)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("settings", [{"batch_bytes": 1}, {"batch_bytes": 90, "codec": "gzip"}])
def test_a_call_that_is_broken_off_at_each_place_loses_nothing(settings: dict[str, Any]) -> None:
    for phase in range(1, check_phase(0, **settings)):
        check_phase(phase, **settings)


def test_a_handler_that_closes_in_the_midst_of_a_call_loses_nothing() -> None:
    """`close` was refused there, and the second one, at the end, did nothing: a thousand records
    were neither in the log nor told."""
    places = check_close(0)
    for phase in range(1, places, places // 60):
        check_close(phase)


def test_a_handler_that_closes_as_a_wait_has_its_lock_again_is_deferred() -> None:
    """Between the lock and the note that it was taken `close` went on at once, and took the lock
    with it: "cannot release un-acquired lock" came out of the call that was interrupted."""
    log, told = Log(), Counter[bytes]()
    with FakeBroker(log) as broker, DrivenProducer(broker.servers) as producer:
        closed: list[bool] = []

        def look(frame: FrameType, event: str, called: Any) -> None:
            is_in_wait = event == "c_return" and frame.f_code.co_name == "_wait"
            if is_in_wait and called.__name__ == "acquire":
                sys.setprofile(None)
                producer.close()
                closed.append(producer._is_shut)

        for value in (b"1", b"2"):
            producer.send("orders", value, on_delivery=lambda *_: told.update([b"told"]))
        sys.setprofile(look)
        try:
            producer.flush()
        finally:
            sys.setprofile(None)
        assert closed == [False]
        assert producer._is_shut
    assert log.values == [b"1", b"2"]
    assert told == {b"told": 2}


def check_close(phase: int) -> int:
    log, told, accepted = Log(), Counter[bytes](), []
    with FakeBroker(log) as broker, DrivenProducer(broker.servers, linger_ms=50) as producer:
        with at_place(phase, producer.close) as passed:
            try:
                for number in range(COUNT):
                    value = b"%d" % number

                    def tell(error: Any, *_where: Any, value: bytes = value) -> None:
                        assert error is None, error
                        told[value] += 1

                    producer.send("orders", value, partition=0, on_delivery=tell)
                    accepted.append(value)
                producer.flush()
            except InvalidArgumentError as error:
                assert str(error) == "the producer has been closed"
        producer.close()
        assert log.values[: len(accepted)] == accepted, phase
        assert told == Counter(log.values), phase
        assert set(told.values()) <= {1}, phase
    return passed[0]


@pytest.mark.parametrize("ends", [SystemExit, ZeroDivisionError])
def test_whatever_a_callback_raises_the_others_are_called(
    kafka_broker: kafkalite.Broker, ends: type[BaseException]
) -> None:
    """`sys.exit()` in a callback ended the producer's thread, and those behind it were never
    called, though flush was well."""
    told: list[int] = []

    def tell(number: int) -> None:
        told.append(number)
        if number == 1:
            raise ends

    with Admin(kafka_broker.bootstrap_servers) as admin:
        admin.create_topic(f"ends-{ends.__name__}", partitions=1)
    with Producer(kafka_broker.bootstrap_servers) as producer:
        for number in range(5):
            producer.send(
                f"ends-{ends.__name__}",
                b"value",
                on_delivery=lambda *_, number=number: tell(number),
            )
        wait_until(lambda: len(told) == 5)  # the thread has told them
        with pytest.raises(ends):
            producer.flush()
        producer.send(f"ends-{ends.__name__}", b"value", on_delivery=lambda *_: told.append(5))
        wait_until(lambda: len(told) == 6)
    assert told == list(range(6))


def test_a_handler_of_the_log_that_raises_stops_nothing(
    kafka_broker: kafkalite.Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    """It ended the producer's thread: the record stayed where it was, and close raised OSError."""

    class Full(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            raise OSError("no space left")

    handler, told = Full(), []
    logger = logging.getLogger("kafkalite.client")
    logger.addHandler(handler)
    try:
        with Producer(kafka_broker.bootstrap_servers) as producer:
            producer._troubles.warn("a warning")
            producer.send("log", b"value", on_delivery=lambda *_: told.append(1))
            wait_until(lambda: told)
    finally:
        logger.removeHandler(handler)
    assert "no space left" in capfd.readouterr().err


def wait_until(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.002)  # poll


def test_a_record_that_no_request_takes_is_refused() -> None:
    """It was sent again and again for delivery_timeout_ms, and stopped all others."""
    with (
        FakeBroker(Log()) as broker,
        DrivenProducer(broker.servers, request_bytes_max=1_000) as producer,
    ):
        with pytest.raises(InvalidArgumentError, match=r"1001 bytes.*request_bytes_max=1000"):
            producer.send("orders", bytes(900), b"k" * 99, headers=[("h", b"1")])
        producer.send("orders", bytes(1_000))
        producer.flush()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_is_not_told_yet_counts_as_under_way(codec: str) -> None:
    """Batches counted as they were compressed, and those of which is to be told did not: the memory
    of a producer whose callbacks take longer than its records grew without a bound."""
    told: list[int] = []
    with (
        FakeBroker(Log()) as broker,
        DrivenProducer(
            broker.servers, buffer_bytes=100_000, max_block_ms=300, codec=codec
        ) as producer,
    ):
        producer._deliveries._teller = -1  # a thread that is in a callback for long
        with pytest.raises(RequestTimedOutError, match="buffer_bytes=100000"):
            for _ in range(10_000):
                producer.send("orders", bytes(1_000), on_delivery=lambda *_: told.append(1))
        assert producer.pending_bytes < 150_000
        producer._deliveries._teller = 0
        producer.flush()
        assert producer.pending_bytes == 0
        assert producer.sent_count == len(told) < 200


def test_each_client_is_closed_at_the_end_though_another_raises() -> None:
    """Records of all producers were lost that were closed behind one that raised."""
    script = """if True:
        import kafkalite
        from kafkalite.client import Producer, lifetime
        class Bad:
            def after_fork(self): pass
            def at_exit(self, _): raise ZeroDivisionError("of this one")
        bad = [Bad() for _ in range(20)]
        broker = kafkalite.Broker().start()
        for each in bad: lifetime.watch(each)
        made = [Producer(broker.bootstrap_servers, linger_ms=60_000) for _ in range(3)]
        for each in made:
            each.send("t", b"v", on_delivery=lambda error, *_: print("told", error, flush=True))
    """
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.count("told None") == 3, done.stderr
    assert "of this one" in done.stderr
