"""An Admin that several threads share, and one that a fork has copied."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import kafkalite
from client.test_lifetime import in_a_fork
from kafkalite.client import Admin
from kafkalite.errors import RequestTimedOutError


def test_threads_that_share_an_admin_take_turns(kafka_broker: kafkalite.Broker) -> None:
    """They took each other's time and connections: `no answer within 1 ms`, bad descriptors."""
    with Admin(kafka_broker.bootstrap_servers) as admin:
        for number in range(4):
            admin.create_topic(f"shared-{number}", partitions=number + 1)

        def counts(number: int) -> list[int]:
            name = f"shared-{number % 4}"
            return [len(topic.partitions) for topic in admin.describe_topics([name])]

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(counts, range(400)))
    assert found == [[number % 4 + 1] for number in range(400)]


def test_a_call_of_another_thread_is_waited_for_and_not_by_a_child(
    kafka_broker: kafkalite.Broker,
) -> None:
    """A child whose parent had a call under way failed all of its own within 1 ms, for ever."""
    with Admin(kafka_broker.bootstrap_servers, timeout_ms=300) as admin:
        begun, may_end = threading.Event(), threading.Event()

        def operate() -> None:
            with admin.cluster.until(time.monotonic() + 0.001):
                begun.set()
                may_end.wait(60)

        with ThreadPoolExecutor(1) as pool:
            operating = pool.submit(operate)
            assert begun.wait(60)
            in_a_fork(lambda: admin.list_topics())
            with pytest.raises(RequestTimedOutError, match="another thread's operation"):
                admin.list_topics()
            may_end.set()
            operating.result()
        assert admin.describe_cluster().brokers
