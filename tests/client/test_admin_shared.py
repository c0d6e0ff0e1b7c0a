"""An Admin that several threads share, and one that a fork has copied."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import kafkalite
from client.fake import FakeBroker
from client.test_lifetime import in_a_fork
from kafkalite.client import Admin, Cluster, Connection
from kafkalite.errors import InvalidArgumentError, RequestTimedOutError
from kafkalite.protocol import messages
from kafkalite.protocol.codes import COORDINATOR_LOAD_IN_PROGRESS


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


def test_a_call_ends_whose_admin_another_thread_closes() -> None:
    """It went on: connected anew, asked again, and left that connection open."""

    def answer(name: str, _: Any) -> Any:
        if name != "DescribeCluster":
            return ...
        asked.set()
        assert is_closed.wait(60)
        return messages.DescribeClusterResponse(error_code=COORDINATOR_LOAD_IN_PROGRESS)

    asked, is_closed = threading.Event(), threading.Event()
    with FakeBroker(answer) as broker, ThreadPoolExecutor(1) as pool:
        admin = Admin(broker.servers)
        call = pool.submit(admin.describe_cluster)
        assert asked.wait(60)
        admin.close()
        is_closed.set()
        began = time.monotonic()
        with pytest.raises(InvalidArgumentError, match="the client has been closed"):
            call.result(60)
        assert time.monotonic() - began < 1.0
        assert admin.cluster._bootstrap is None
        assert not admin.cluster._connections


def test_a_call_that_waits_for_its_answer_ends_with_its_admin() -> None:
    asked = threading.Event()

    def answer(name: str, _: Any) -> Any:
        if name != "DescribeCluster":
            return ...
        asked.set()
        return None

    with FakeBroker(answer) as broker, ThreadPoolExecutor(1) as pool:
        admin = Admin(broker.servers)
        call = pool.submit(admin.describe_cluster)
        assert asked.wait(60)
        admin.close()
        with pytest.raises(InvalidArgumentError, match="the client has been closed"):
            call.result(5)


def test_a_connection_on_which_an_answer_is_due_is_not_lent() -> None:
    with FakeBroker() as broker, Cluster(broker.servers) as cluster:
        cluster.refresh([])
        known = cluster._bootstrap
        assert known is not None
        known.send(messages.MetadataRequest(topics=[]))
        assert cluster.lend() is None
        known.receive(5_000)
        assert cluster.lend() is known
        known.close()


def test_a_fork_in_the_midst_of_a_close_leaves_the_child_no_socket() -> None:
    """The connection was forgotten before it was closed: the child of a fork that came in between
    was not told of it, and kept its copy open."""
    with FakeBroker() as broker:
        connection = Connection(broker.host, broker.port)
        real = connection._socket

        class Socket:
            def close(self) -> None:
                connection._socket = real
                in_a_fork(lambda: self.is_closed())
                real.close()

            def is_closed(self) -> None:
                assert real.fileno() == -1

        connection._socket = Socket()  # type: ignore[assignment]
        connection.close()
