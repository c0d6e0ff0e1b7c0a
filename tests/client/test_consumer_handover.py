"""What a consumer hands out and what it commits of that, where its caller is slow, fails, or uses
it in a way that is not meant."""

import signal
import sys
import threading
import time
from collections.abc import Callable
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from client.fake import FakeBroker
from client.filled import fill
from client.logs import TOPIC, Logs, value
from kafkalite._native import BatchBuilder
from kafkalite.client import Admin, Consumer, GroupOptions, Producer
from kafkalite.client.consumer.fetched import Given, Record
from kafkalite.errors import BrokerError, InvalidArgumentError
from kafkalite.protocol.codes import TOPIC_AUTHORIZATION_FAILED

ZERO, ONE = (TOPIC, 0), (TOPIC, 1)
WAIT_S = 30


def grouped(broker: FakeBroker, logs: Logs, **options: Any) -> Consumer:
    logs.address = (broker.host, broker.port)
    return Consumer(broker.servers, group="handover", **options)


# --- how much at a time ---------------------------------------------------------------------------


def test_a_poll_hands_out_so_many_records_at_most_and_the_rest_later(servers: str) -> None:
    """It handed out all that had come: 552,183 records in one list."""
    fill(servers, "many", 1_700)
    with Consumer(servers) as consumer:
        consumer.assign({("many", 0): 0})
        lists = [consumer.poll(5_000) for _ in range(4)]
        assert [len(each) for each in lists] == [500, 500, 500, 200]
        assert [record.offset for each in lists for record in each] == list(range(1_700))
    with Consumer(servers, max_poll_records=3) as consumer:
        consumer.assign({("many", 0): 0})
        assert [record.offset for record in consumer.poll(5_000)] == [0, 1, 2]
        assert consumer.position(("many", 0)) == 3


def test_what_waits_for_the_next_poll_is_no_more_than_an_answer_of_the_broker() -> None:
    with FakeBroker(Logs({0: 1_000})) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        for _ in range(3):
            assert len(consumer.poll(5_000)) == 500
        assert len(broker.of("Fetch")) <= 2


def test_a_group_whose_records_take_their_time_gets_on(servers: str) -> None:
    """A poll gave all 3,000 records, for which max_poll_interval_ms was too short: the member was
    put out each time, had committed nothing in 20 s, and dealt with 11,574 records."""
    import confluent_kafka

    fill(servers, "slow", 3_000)
    seen = {"poll": 0, "iterator": 0, "confluent": 0}

    def options(name: str) -> GroupOptions:
        return GroupOptions(name, heartbeat_interval_ms=100, max_poll_interval_ms=2_000)

    settings: dict[str, Any] = {"auto_commit_interval_ms": 100}
    with Consumer(servers, group=options("slow-poll"), **settings) as consumer:
        consumer.subscribe("slow")
        while seen["poll"] < 3_000:
            for _ in consumer.poll(5_000):
                seen["poll"] += 1
                time.sleep(0.001)  # the handler, between one poll and the next
    with Consumer(servers, group=options("slow-loop"), **settings) as consumer:
        consumer.subscribe("slow")
        for record in consumer:
            seen["iterator"] += 1
            time.sleep(0.001)  # the handler, between one poll and the next
            if record.offset == 2_999:
                break
    theirs = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "slow-confluent",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "max.poll.interval.ms": 6_000,
        }
    )
    theirs.subscribe(["slow"])
    while seen["confluent"] < 3_000:
        seen["confluent"] += len(theirs.consume(500, 5))
    theirs.close()
    assert seen == dict.fromkeys(seen, 3_000)
    for group in ("slow-poll", "slow-loop", "slow-confluent"):
        with Consumer(servers, group=group) as consumer:
            assert consumer.committed([("slow", 0)]) == {("slow", 0): 3_000}


# --- a handler that fails -------------------------------------------------------------------------


class Boom(BaseException):
    """As KeyboardInterrupt, which is no Exception."""


@pytest.mark.parametrize("error", [ValueError, Boom])
def test_a_record_whose_handler_raises_is_not_committed(error: type[BaseException]) -> None:
    """A `with` block committed it as it ended."""
    logs = Logs({0: 3})
    with FakeBroker(logs) as broker:
        with pytest.raises(error), grouped(broker, logs) as consumer:
            consumer.assign([ZERO])
            for record in consumer:
                if record.offset == 4:
                    raise error
        assert logs.committed == {0: 4}
        with pytest.raises(error), grouped(broker, logs, max_poll_records=2) as consumer:
            consumer.assign([ZERO])
            assert [record.offset for record in consumer.poll(5_000)] == [4, 5]
            assert [record.offset for record in consumer.poll(5_000)] == [6, 7]
            raise error
        assert logs.committed == {0: 6}
        with grouped(broker, logs) as consumer:
            consumer.assign([ZERO])
            assert next(iter(consumer)).offset == 6
        assert logs.committed == {0: 7}


def test_a_handler_that_raises_takes_back_nothing_that_was_committed() -> None:
    logs = Logs({0: 3})
    with FakeBroker(logs) as broker:
        with pytest.raises(Boom), grouped(broker, logs) as consumer:
            consumer.assign([ZERO])
            assert len(consumer.poll(5_000)) == 9
            consumer.commit({ZERO: 5})
            raise Boom
        assert logs.commits == [{0: 5}]
        with pytest.raises(Boom), grouped(broker, logs) as consumer:
            consumer.assign({ZERO: 5})
            for record in consumer:
                consumer.commit()
                if record.offset == 6:
                    raise Boom
        assert logs.commits == [{0: 5}, {0: 6}, {0: 7}]


def test_an_error_of_poll_leaves_nothing_in_hand() -> None:
    logs = Logs({0: 1})
    with FakeBroker(logs) as broker:
        with pytest.raises(ValueError, match="timeout_ms"), grouped(broker, logs) as consumer:
            consumer.assign([ZERO])
            assert len(consumer.poll(5_000)) == 3
            assert consumer.poll() == []
            consumer.poll(-1)
        assert logs.committed == {0: 3}


# --- a handler of a signal ------------------------------------------------------------------------


def signalled_in_the_midst_of_poll(
    consumer: Consumer, handler: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Has a signal come where `poll` has taken records and has not returned yet."""
    take = consumer._fetcher.waiting.take_records

    def take_and_be_interrupted(count_max: int, given: Given) -> list[Record]:
        records = take(count_max, given)
        before = signal.signal(signal.SIGUSR1, lambda *_: handler())
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            signal.signal(signal.SIGUSR1, before)
        return records

    monkeypatch.setattr(consumer._fetcher.waiting, "take_records", take_and_be_interrupted)


def test_a_handler_commits_nothing_that_poll_is_about_to_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Handlers end programs: what was committed had come to nobody, and came to nobody again."""
    logs = Logs({0: 3})

    def end() -> None:
        consumer.commit()
        sys.exit()

    with (
        FakeBroker(logs) as broker,
        pytest.raises(SystemExit),
        grouped(broker, logs, auto_commit_interval_ms=None, max_poll_records=2) as consumer,
    ):
        consumer.assign([ZERO])
        assert [record.offset for record in consumer.poll(5_000)] == [0, 1]
        signalled_in_the_midst_of_poll(consumer, end, monkeypatch)
        consumer.poll(5_000)
    assert logs.commits == [{0: 2}]


@pytest.mark.parametrize("method", ["poll", "fetch"])
def test_a_handler_that_raises_wherever_it_comes_costs_no_record(servers: str, method: str) -> None:
    """Behind the move of the positions the list was lost, and committed; where the call began to
    end, every later one was refused, and close did nothing."""
    fill(servers, f"raised-{method}", 4_000)
    partition = (f"raised-{method}", 0)
    seen: list[int] = []
    raised = 0
    with Consumer(servers, max_poll_records=3) as consumer:
        consumer.assign({partition: 0})
        while True:
            at = RaisesAt(raised)
            sys.settrace(at.trace)
            try:
                got = getattr(consumer, method)(5_000)
            except Boom:
                raised += 1
                continue
            finally:
                sys.settrace(None)
            if method == "poll":
                seen += [record.offset for record in got]
            for each in got if method == "fetch" else ():
                seen += [row[0] for row in each.rows()[0]]
                consumer.advance(partition, each.end)
            if at.left >= 0 or not got:
                break  # it has no place left to be raised in
    assert raised > 20
    assert seen == list(range(len(seen)))
    assert consumer._is_closed


def test_answers_without_records_are_passed_beside_a_partition_in_error() -> None:
    """The partition went back before them at each error of the other one, for good."""
    logs = Logs({0: 8, 1: 1})
    for number in range(3):
        markers = BatchBuilder(base_offset=3 * number, control=True)
        for _ in range(3):
            markers.append(0, b"\0\0\0\0", b"\0\0\0\0\0\0", [])
        logs.batches[0][number] = markers.finish()
    logs.batches_max = 1
    logs.codes[1] = TOPIC_AUTHORIZATION_FAILED
    seen: list[int] = []
    with FakeBroker(logs) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0, ONE: 0})
        deadline = time.monotonic() + WAIT_S
        while len(seen) < 15 and time.monotonic() < deadline:
            try:
                seen += [record.offset for record in consumer.poll(1_000)]
            except BrokerError:
                time.sleep(0.2)  # between two polls, until the other one may fail again
    assert seen == list(range(9, 24))


class RaisesAt:
    """Raises at the call or the return of so many functions that hand records out: where Python
    calls the handlers of signals."""

    FILES = ("guard.py", "consumer.py", "loop.py", "fetched.py", "subscription_state.py")

    def __init__(self, number: int) -> None:
        self.left = number

    def trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if Path(code.co_filename).name not in self.FILES or code.co_flags & CO_GENERATOR:
            return None  # a generator that is dropped keeps to itself what is raised in it
        is_outermost = code.co_name in ("poll", "fetch")  # its return is the caller's
        if event in ("call", "return") and not is_outermost:
            self.left -= 1
            if self.left == -1:
                raise Boom
        return self.trace


def test_a_handler_that_reads_in_the_midst_of_poll_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was given the same records, or the next ones before them."""
    with FakeBroker(Logs({0: 3})) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})

        def read() -> None:
            with pytest.raises(InvalidArgumentError, match="in the midst of another call"):
                consumer.poll()

        signalled_in_the_midst_of_poll(consumer, read, monkeypatch)
        assert [record.offset for record in consumer.poll(5_000)] == list(range(9))


# --- an iterator and all else ---------------------------------------------------------------------


def test_an_iterator_knows_its_position_at_every_record() -> None:
    logs = Logs({0: 4, 1: 4})
    with FakeBroker(logs, partitions=2) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0, ONE: 0})
        positions = {ZERO: 0, ONE: 0}
        for count, record in enumerate(consumer):
            place = (record.topic, record.partition)
            assert record.offset == positions[place]
            positions[place] += 1
            assert consumer.position(ZERO) == positions[ZERO]
            assert consumer.position(ONE) == positions[ONE]
            if count == 7:
                consumer.seek(ZERO, 2)
                positions[ZERO] = 2
            if positions == {ZERO: 12, ONE: 12}:
                break
        assert consumer.poll() == []


def test_an_iterator_and_poll_take_turns() -> None:
    with (
        FakeBroker(Logs({0: 4})) as broker,
        Consumer(broker.servers, max_poll_records=3) as consumer,
    ):
        consumer.assign({ZERO: 0})
        found: list[Record] = []
        for record in consumer:
            found.append(record)
            found += consumer.poll()
            if len(found) == 12:
                break
        assert [record.value for record in found] == [value(0, each) for each in range(12)]


def test_lag_is_what_the_last_fetch_has_told() -> None:
    with FakeBroker(Logs({0: 2})) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        assert consumer.lag(ZERO) is None
        next(iter(consumer))
        assert consumer.lag(ZERO) == 5
        consumer.seek(ZERO, 6)
        assert consumer.lag(ZERO) == 0


def test_offsets_are_found_by_place_and_time(servers: str) -> None:
    with Admin(servers) as admin:
        admin.create_topic("times", partitions=2)
    with Producer(servers) as producer:
        for second in range(5):
            producer.send("times", b"v", partition=0, timestamp_ms=1_000 * second)
    first, second = ("times", 0), ("times", 1)
    with Consumer(servers) as consumer:
        found = consumer.offsets_for_times({first: 1_500, second: 1_500})
        listed = found[first]
        assert listed is not None
        assert (listed.offset, listed.timestamp) == (2, 2_000)
        assert found[second] is None
        assert consumer.beginning_offsets([first]) == {first: 0}
        assert consumer.end_offsets([first, second]) == {first: 5, second: 0}
        consumer.assign({first: 2})
        consumer.seek_to_end([first])
        assert consumer.position(first) == 5
        consumer.seek_to_beginning()
        assert consumer.poll(5_000)[0].offset == 0
        with pytest.raises(ValueError, match="times-1 is not assigned"):
            consumer.seek_to_end([second])


# --- threads --------------------------------------------------------------------------------------


def test_a_second_thread_is_refused_while_one_is_in_a_call() -> None:
    """Both read from one socket. Kafka's consumer raises ConcurrentModificationException."""
    with FakeBroker(Logs({0: 0})) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(consumer.poll(60_000)))
        thread.start()
        deadline = time.monotonic() + WAIT_S
        while not broker.of("Fetch"):
            assert time.monotonic() < deadline
            time.sleep(0.005)  # the pause of the poll
        for call in (consumer.poll, lambda: next(iter(consumer)), consumer.close):
            with pytest.raises(ValueError, match="not safe for multi-threaded access"):
                call()
        consumer.wakeup()
        thread.join(WAIT_S)
        assert found == [[]]
        assert consumer.poll() == []  # in turns


def test_a_wakeup_ends_an_iterator() -> None:
    with FakeBroker(Logs({0: 1})) as broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0})
        timer = threading.Timer(0.2, consumer.wakeup)
        timer.start()
        assert [record.offset for record in consumer] == [0, 1, 2]
        timer.join()
        consumer.seek(ZERO, 0)
        assert next(iter(consumer)).offset == 0


def test_threads_that_iterate_lose_and_break_nothing(servers: str) -> None:
    fill(servers, "threads", 20_000)
    found: list[int] = []
    with Consumer(servers) as consumer:
        consumer.assign({("threads", 0): 0})

        def read() -> None:
            while len(found) < 20_000:
                try:
                    for record in consumer:
                        found.append(record.offset)
                        if len(found) >= 20_000:
                            return
                except ValueError as error:
                    assert "multi-threaded" in str(error)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if len(found) >= 20_000:
                consumer.wakeup()
            time.sleep(0.01)  # the pause of the poll
    assert sorted(set(found)) == list(range(20_000))


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [1.0, True, "1", None])
def test_a_time_that_is_no_number_of_milliseconds_is_refused(timeout: Any) -> None:
    """`poll(1.0)`, a second to other clients, was a millisecond."""
    with Consumer("127.0.0.1:1") as consumer:
        for call in (consumer.poll, consumer.fetch, consumer.close):
            with pytest.raises(TypeError, match=r"^timeout_ms is .*must be int, milli"):
                call(timeout)


def test_what_cannot_be_called_is_no_listener() -> None:
    with Consumer("127.0.0.1:1", group="g") as consumer:
        with pytest.raises(TypeError, match="on_revoked is of type str, it must be a function"):
            consumer.subscribe("t", on_revoked="print")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="max_poll_records=0 is less than 1"):
            Consumer("127.0.0.1:1", max_poll_records=0)
