"""Measures kafkalite's own client beside confluent-kafka's: CPU of the program that
sends or reads, in microseconds a record.

    python benches/client.py [--records 300000] [--pairs 3] [--only send,poll]

    send          100 bytes, no key, one partition, then flush
    send-many     the same, after a record to each of 4,000 partitions
    send-8        the same as `send`, by eight threads
    one-by-one    send and flush, each record by itself: microseconds of time, not of CPU
    poll          lists of records, as long as there are any
    iterate       record by record

Both sides run in turns, in this process, against one `kafkalite.Broker()`; the median counts.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Callable

import confluent_kafka

import kafkalite
from kafkalite.client import Admin, Consumer, Producer

VALUE = bytes(100)
MANY = 4_000
THREADS = 8
ONE_BY_ONE = 2_000


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with kafkalite.Broker(config={"log.retention.ms": "-1"}) as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topic("one", partitions=1)
            if not options.only or "send-many" in options.only:
                admin.create_topic("many", partitions=MANY)
        fill(servers, "read", options.records)
        count = options.records
        rows: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
            "send": (lambda: send(servers, count), lambda: send_theirs(servers, count)),
            "send-many": (lambda: send_after_many(servers, count), lambda: float("nan")),
            "send-8": (
                lambda: send_by_threads(servers, count),
                lambda: send_theirs(servers, count, THREADS),
            ),
            "one-by-one": (lambda: one_by_one(servers), lambda: one_by_one_theirs(servers)),
            "poll": (lambda: poll(servers, count), lambda: poll_theirs(servers, count)),
            "iterate": (lambda: iterate(servers, count), lambda: iterate_theirs(servers, count)),
        }
        chosen = options.only.split(",") if options.only else list(rows)
        print(f"{'':<12}{'kafkalite':>12}{'confluent':>12}")
        for name in chosen:
            ours, theirs = [], []
            for _ in range(options.pairs):
                ours.append(rows[name][0]())
                theirs.append(rows[name][1]())
            pair = statistics.median(ours), statistics.median(theirs)
            print(f"{name:<12}{pair[0]:>12.2f}{pair[1]:>12.2f}", flush=True)


def cpu_us(work: Callable[[], None], count: int) -> float:
    """Microseconds of CPU for each of `count`."""
    before = time.process_time()
    work()
    return (time.process_time() - before) / count * 1e6


def fill(servers: str, topic: str, count: int) -> None:
    """A topic with so many records."""
    with Producer(servers) as producer:
        for _ in range(count):
            producer.send(topic, VALUE)


def send(servers: str, count: int) -> float:
    """By one thread."""
    with Producer(servers) as producer:
        producer.send("one", VALUE)
        producer.flush()

        def work() -> None:
            for _ in range(count):
                producer.send("one", VALUE)
            producer.flush()

        return cpu_us(work, count)


def send_theirs(servers: str, count: int, threads: int = 1) -> float:
    """By confluent-kafka, whose queue is given room for all."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "queue.buffering.max.messages": 2 * count,
            "enable.idempotence": True,
        }
    )
    producer.produce("one", VALUE)
    producer.flush()

    def send_part() -> None:
        for _ in range(count // threads):
            producer.produce("one", VALUE)
            producer.poll(0)

    return cpu_us(lambda: in_threads(send_part, threads, producer.flush), count)


def send_after_many(servers: str, count: int) -> float:
    """To one partition, after each of many had a record."""
    with Producer(servers) as producer:
        for partition in range(MANY):
            producer.send("many", VALUE, partition=partition)
        producer.flush()

        def work() -> None:
            for _ in range(count):
                producer.send("many", VALUE, partition=7)
            producer.flush()

        return cpu_us(work, count)


def send_by_threads(servers: str, count: int) -> float:
    """By several threads with one producer."""
    with Producer(servers) as producer:
        producer.send("one", VALUE)
        producer.flush()

        def send_part() -> None:
            for _ in range(count // THREADS):
                producer.send("one", VALUE)

        return cpu_us(lambda: in_threads(send_part, THREADS, producer.flush), count)


def in_threads(work: Callable[[], None], threads: int, flush: Callable[[], object]) -> None:
    """Does the work in each of so many threads, this one if it is alone, and flushes."""
    others = [threading.Thread(target=work) for _ in range(threads - 1)]
    for each in others:
        each.start()
    work()
    for each in others:
        each.join()
    flush()


def one_by_one(servers: str) -> float:
    """Microseconds of time from a record to its acknowledgement."""
    with Producer(servers) as producer:
        producer.send("one", VALUE)
        producer.flush()
        began = time.perf_counter()
        for _ in range(ONE_BY_ONE):
            producer.send("one", VALUE)
            producer.flush()
        return (time.perf_counter() - began) / ONE_BY_ONE * 1e6


def one_by_one_theirs(servers: str) -> float:
    """The same, without lingering."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "linger.ms": 0, "enable.idempotence": True}
    )
    producer.produce("one", VALUE)
    producer.flush()
    began = time.perf_counter()
    for _ in range(ONE_BY_ONE):
        producer.produce("one", VALUE)
        producer.flush()
    return (time.perf_counter() - began) / ONE_BY_ONE * 1e6


def poll(servers: str, count: int) -> float:
    """Lists, until so many have come."""
    with Consumer(servers) as consumer:
        consumer.assign({("read", 0): 0})

        def work() -> None:
            came = 0
            while came < count:
                came += len(consumer.poll(1_000))

        return cpu_us(work, count)


def poll_theirs(servers: str, count: int) -> float:
    """The same by `consume`, 500 at a time."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "none"})
    consumer.assign([confluent_kafka.TopicPartition("read", 0, 0)])

    def work() -> None:
        came = 0
        while came < count:
            came += len(consumer.consume(500, 1.0))

    taken = cpu_us(work, count)
    consumer.close()
    return taken


def iterate(servers: str, count: int) -> float:
    """One after the other."""
    with Consumer(servers) as consumer:
        consumer.assign({("read", 0): 0})

        def work() -> None:
            for came, _ in enumerate(consumer, 1):
                if came == count:
                    return

        return cpu_us(work, count)


def iterate_theirs(servers: str, count: int) -> float:
    """CPU us a record of confluent-kafka by `poll`, which gives one record."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "none"})
    consumer.assign([confluent_kafka.TopicPartition("read", 0, 0)])

    def work() -> None:
        came = 0
        while came < count:
            came += consumer.poll(1.0) is not None

    taken = cpu_us(work, count)
    consumer.close()
    return taken


if __name__ == "__main__":
    main()
