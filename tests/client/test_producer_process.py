"""A producer and its process: forks, children of multiprocessing, the end of a program. What each
process has sent is in the log once."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
import time
from collections import Counter
from typing import Any

import confluent_kafka
import pytest

import kafkalite
from client.fake import FakeBroker
from client.fake_partition import Log
from client.test_lifetime import in_a_fork
from kafkalite import Broker
from kafkalite.client import Admin, Consumer, Producer, lifetime
from kafkalite.errors import RequestTimedOutError


def values_of(broker: Broker, topic: str) -> list[bytes]:
    """What is in the log, by the order of partitions and offsets."""
    records = kafkalite.read_arrow(topic, broker.bootstrap_servers).to_pyarrow()
    return [bytes(value) for value in records["value"].to_pylist()]


def many(name: str, count: int) -> list[bytes]:
    return [b"%s-%d" % (name.encode(), number) for number in range(count)]


@pytest.mark.parametrize("has_sent", [False, True], ids=["fresh", "has sent"])
def test_parent_and_child_each_have_their_records_in_the_log(
    kafka_broker: Broker, kafka_topic: str, has_sent: bool
) -> None:
    """They shared socket, producer id and sequence numbers: 5 of 10 records were in the log, and
    both had been told that all were."""
    with Producer(kafka_broker.bootstrap_servers) as producer:
        if has_sent:
            producer.send(kafka_topic, b"before")
            producer.flush()
        told: list[bool] = []

        def send() -> None:
            for value in many("child", 5):
                producer.send(kafka_topic, value)
            producer.flush()
            assert producer.sent_count == 5

        for value in many("parent", 5):
            producer.send(kafka_topic, value, on_delivery=lambda error, *_: told.append(not error))
        in_a_fork(send)
        producer.flush()
        assert told == [True] * 5
    expected = [*many("child", 5), *many("parent", 5), *([b"before"] if has_sent else [])]
    assert sorted(values_of(kafka_broker, kafka_topic)) == sorted(expected)


def test_workers_that_were_forked_at_once_lose_nothing(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """As gunicorn --preload forks them: 300 of 1,200 records were in the log. In the same program
    confluent-kafka's producer, whose threads do not come along, ends no flush in a child."""
    producer = Producer(kafka_broker.bootstrap_servers)
    producer.send(kafka_topic, b"preloaded")
    producer.flush()

    def work(name: str) -> None:
        for value in many(name, 300):
            producer.send(kafka_topic, value)
        producer.flush()
        producer.close()

    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=work, args=(f"worker{number}",)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    producer.close()
    found = Counter(values_of(kafka_broker, kafka_topic))
    assert len(found) == 1_201
    assert set(found.values()) == {1}


def test_what_nobody_flushed_in_a_child_of_multiprocessing_is_sent_at_its_end(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    producer = Producer(kafka_broker.bootstrap_servers, linger_ms=60_000)

    def work() -> None:
        for value in many("child", 10):
            producer.send(kafka_topic, value)

    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    producer.close()
    assert values_of(kafka_broker, kafka_topic) == many("child", 10)


def test_a_fork_in_the_midst_of_sending_doubles_nothing(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """Batches that were open, ready and in flight are the parent's, and the child has no thread."""
    with Producer(kafka_broker.bootstrap_servers, batch_bytes=200, linger_ms=1) as producer:
        for at, value in enumerate(many("parent", 2_000)):
            producer.send(kafka_topic, value)
            if at % 400 == 200:
                name = f"child{at}"

                def send(name: str = name) -> None:
                    for value in many(name, 20):
                        producer.send(kafka_topic, value)
                    producer.close()

                in_a_fork(send)
        producer.flush()
    found = Counter(values_of(kafka_broker, kafka_topic))
    assert len(found) == 2_000 + 5 * 20
    assert set(found.values()) == {1}


def run_program(body: str, *arguments: str, fails: bool = False) -> str:
    """The output of a program of its own; `fails`: it ends with an error of its own."""
    program = textwrap.dedent(body)
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode != 0) == fails, ran.stderr
    return ran.stdout + ran.stderr


@pytest.mark.parametrize("end", ["", "del producer", "raise ZeroDivisionError"])
def test_a_program_that_ends_without_a_flush_has_sent_its_records(
    kafka_broker: Broker, kafka_topic: str, end: str
) -> None:
    """They were dropped, without a word. kafka-python sends them too."""
    told = run_program(
        f"""
        import sys, time
        from kafkalite.client import Producer
        producer = Producer(sys.argv[1], linger_ms=60_000)
        for number in range(10):
            producer.send(sys.argv[2], b"program-%d" % number)
        {end}
        """,
        kafka_broker.bootstrap_servers,
        kafka_topic,
        fails="raise" in end,
    )
    assert values_of(kafka_broker, kafka_topic) == many("program", 10)
    if "del" not in end:
        assert "was not closed" not in told


def test_a_program_whose_records_nobody_takes_is_told_so_at_its_end() -> None:
    with FakeBroker(lambda name, *_: None if name == "Produce" else ...) as broker:
        told = run_program(
            """
            import sys
            from kafkalite.client import Producer
            producer = Producer(sys.argv[1], delivery_timeout_ms=5_000, request_timeout_ms=100)
            producer.send("orders", b"value")
            """,
            broker.servers,
        )
    assert "1 record for partition orders-0 was not acknowledged within 5 s" in told


def test_the_end_of_a_program_waits_once_for_brokers_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waited for half a minute a producer, one after the other."""
    monkeypatch.setattr(lifetime, "EXIT_S", 1.0)
    with kafkalite.Broker() as broker:
        producers = [Producer(broker.bootstrap_servers) for _ in range(3)]
        for producer in producers:
            producer.send("gone", b"taken")
            producer.flush()
    for producer in producers:
        producer.send("gone", b"not taken")
    started = time.monotonic()
    lifetime._at_exit()
    assert time.monotonic() - started < 2.5
    assert [producer.failed_count for producer in producers] == [1, 1, 1]


def test_a_producer_that_nobody_holds_sends_what_it_has_and_says_that_it_was_not_closed() -> None:
    log = Log()
    with FakeBroker(log) as broker:
        producer = Producer(broker.servers, linger_ms=60_000)
        producer.send("orders", b"value")
        with pytest.warns(ResourceWarning, match=r"kafkalite.Producer: .* was not closed"):
            del producer  # its thread may hold it a moment longer
            deadline = time.monotonic() + 60
            while not log.values:
                assert time.monotonic() < deadline
                time.sleep(0.01)  # poll
    assert log.values == [b"value"]


def test_close_sends_what_is_open() -> None:
    log = Log()
    with FakeBroker(log) as broker:
        producer = Producer(broker.servers, linger_ms=60_000)
        producer.send("orders", b"value")
        producer.close()
        producer.close()
    assert log.values == [b"value"]


def test_a_block_that_fails_has_sent_what_came_before() -> None:
    log = Log()
    with (
        FakeBroker(log) as broker,
        pytest.raises(ZeroDivisionError),
        Producer(broker.servers, linger_ms=60_000) as producer,
    ):
        producer.send("orders", b"value")
        raise ZeroDivisionError
    assert log.values == [b"value"]


def test_close_tells_callbacks_what_was_not_taken_in_time() -> None:
    told: list[Any] = []
    with FakeBroker(lambda name, *_: None if name == "Produce" else ...) as broker:
        producer = Producer(broker.servers, linger_ms=0)
        for number in range(3):
            producer.send(
                "orders", b"%d" % number, on_delivery=lambda error, *_: told.append(error)
            )
        with pytest.raises(RequestTimedOutError, match="not acknowledged within 300 ms"):
            producer.close(300)
        assert [type(error) for error in told] == [RequestTimedOutError] * 3
        assert producer.failed_count == 3
        assert producer.pending_count == producer.pending_bytes == 0


def test_other_clients_and_this_one_in_the_same_program_that_forks(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """confluent-kafka's flush in a child says that its records are still in the queue; ours sends
    them."""
    servers = kafka_broker.bootstrap_servers
    theirs = confluent_kafka.Producer({"bootstrap.servers": servers})
    theirs.produce(kafka_topic, b"theirs, parent")
    assert theirs.flush(30) == 0
    with Producer(servers) as ours:
        ours.send(kafka_topic, b"ours, parent")
        ours.flush()

        def send() -> None:
            theirs.produce(kafka_topic, b"theirs, child")
            ours.send(kafka_topic, b"ours, child")
            ours.flush()
            assert theirs.flush(1) == 1  # it has said so, at least
            os._exit(0)

        in_a_fork(send)
    assert sorted(values_of(kafka_broker, kafka_topic)) == [
        b"ours, child",
        b"ours, parent",
        b"theirs, parent",
    ]


def test_the_consumer_sees_what_a_child_and_its_parent_sent(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    with Producer(kafka_broker.bootstrap_servers) as producer:
        producer.send(kafka_topic, b"parent")
        in_a_fork(lambda: (producer.send(kafka_topic, b"child"), producer.close())[1])
    with Consumer(kafka_broker.bootstrap_servers) as consumer:
        consumer.assign({(kafka_topic, 0): 0})
        came: list[bytes | None] = []
        while len(came) < 2:
            came += [record.value for record in consumer.poll(1_000)]
    assert sorted(filter(None, came)) == [b"child", b"parent"]


def test_a_broker_with_a_new_data_directory_takes_what_a_living_producer_sends() -> None:
    """It gives the same producer ids anew: of two producers with one id, one was told offsets of
    records that were not in the log, as duplicates of the other's."""
    with kafkalite.Broker() as first:
        address = first.bootstrap_servers
        with Admin(address) as admin:
            admin.create_topic("t", partitions=1)
        old = Producer(address)
        old.send("t", b"to the first", partition=0)
        old.flush()
    with kafkalite.Broker(listen=address) as second:
        with Admin(address) as admin:
            admin.create_topic("t", partitions=1)
        with Producer(address) as new:
            for number in range(6):
                for name, producer in ((b"new", new), (b"old", old)):
                    producer.send("t", b"%s %d" % (name, number), partition=0)
                    producer.flush(20_000)
        old.close()
        found = values_of(second, "t")
    assert found == [b"%s %d" % (name, number) for number in range(6) for name in (b"new", b"old")]


def test_clients_work_where_select_has_no_epoll(kafka_broker: Broker, kafka_topic: str) -> None:
    """gevent takes it away, and so does `gunicorn -k gevent`: `Producer` could not be imported."""
    program = """
        import select, sys
        del select.epoll
        from kafkalite.client import Consumer, Producer
        servers, topic = sys.argv[1:]
        large = bytes(900_000)  # five are more than a socket takes at once
        with Producer(servers, request_bytes_max=10 << 20) as producer:
            for _ in range(5): producer.send(topic, large)
        with Consumer(servers, group=topic) as consumer:
            consumer.subscribe(topic)
            came = 0
            while came < 5: came += len(consumer.poll(1000))
        print("came", came)
    """
    assert run_program(program, kafka_broker.bootstrap_servers, kafka_topic) == "came 5\n"
