"""Forks at random moments of a client that is busy in several threads, which take turns after each
few instructions."""

from collections import Counter

from client.test_producer_process import run_program, values_of
from kafkalite import Broker

SECONDS = 4

BUSY = """
    import os, random, signal, sys, threading, time
    os.register_at_fork(after_in_child=lambda: signal.alarm(60))
    from kafkalite.client import Admin, Consumer, GroupOptions, Producer
    from kafkalite.errors import InvalidArgumentError

    servers, topic, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    producer, admin = Producer(servers, linger_ms=1), Admin(servers)
    is_over = threading.Event()
    counts = [0, 0]

    def send(number):
        while not is_over.is_set():
            producer.send(topic, b"parent-%d-%d" % (number, counts[number]))
            counts[number] += 1
            if counts[number] % 20 == 0:
                producer.flush()

    def read():
        options = GroupOptions(topic, heartbeat_interval_ms=20)
        while not is_over.is_set():
            with Consumer(servers, group=options, fetch_wait_ms=5) as consumer:
                consumer.subscribe(topic)
                for _ in range(20):
                    consumer.poll(10)
                kept.append(consumer)

    def ask():
        while not is_over.is_set():
            with Admin(servers) as another:
                another.list_topics()
            admin.list_topics()

    def child(number):
        producer.send(topic, b"child-%d" % number)
        if number % 2:
            producer.flush()
        if number % 3 == 0:
            admin.list_topics()
        for each in kept[-1:]:
            try:
                each.poll()
            except InvalidArgumentError:
                pass
        # The end of the program sends what is left.

    kept = []
    works = [(send, 0), (send, 1), (read,), (ask,)]
    threads = [threading.Thread(target=work, args=rest) for work, *rest in works]
    for thread in threads: thread.start()
    sys.setswitchinterval(1e-6)
    statuses = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        number = len(statuses)
        is_over.wait(random.random() / 100)
        forked = os.fork()
        if forked == 0:
            sys.setswitchinterval(0.005)
            child(number)
            sys.exit()
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))
    sys.setswitchinterval(0.005)
    is_over.set()
    for thread in threads: thread.join()
    producer.close()
    admin.close()
    print("ended", len(statuses), len(statuses) - statuses.count(0), *counts)
"""


def test_forks_at_random_moments_hang_nowhere_and_lose_nothing(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    told = run_program(BUSY, kafka_broker.bootstrap_servers, kafka_topic, str(SECONDS))
    (line,) = [line for line in told.splitlines() if line.startswith("ended")]
    forks, failed, *counts = map(int, line.split()[1:])
    assert forks > 0
    assert failed == 0, told
    sent = [b"parent-%d-%d" % (at, n) for at in range(2) for n in range(counts[at])]
    sent += [b"child-%d" % number for number in range(forks)]
    assert Counter(values_of(kafka_broker, kafka_topic)) == Counter(sent)
