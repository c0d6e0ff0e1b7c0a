"""Connections that wait for the memory of requests: behind a frame that is done, of clients that
are gone, and idle (`account` of `rust/src/net/reactor/state/connections.rs`)."""

import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import kafkalite
from api.batches import batch
from api.raw import KEYS, Connection, request_frame
from kafkalite.protocol import messages

ASK = messages.MetadataRequest(topics=[])
METADATA, PRODUCE = KEYS["Metadata"], KEYS["Produce"]
BUDGET_BYTES = 30_000
BEGINNING, SMALL_BEGINNING = 9_000, 4_000
"""Bytes of a frame: more and less than a connection may hold uncounted."""
TRIES = 20
"""Seconds, about, in which the test goes on: less than a broker waits who closes the slowest."""


@contextmanager
def serving(**config: str) -> Iterator[kafkalite.Broker]:
    """A broker with little memory and the topic "t"."""
    scarce = {"queued.max.request.bytes": str(BUDGET_BYTES), "num.network.threads": "1"}
    with kafkalite.Broker(config=scarce | config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("t").error_code == 0
        yield broker


def produce_frame(client: Connection, size_bytes: int) -> bytes:
    """A Produce request of a record of so many bytes."""
    request = client.produce_request("t", batch([bytes(size_bytes)]))
    return request_frame(PRODUCE, 9, request.encode(9))


def is_produced(client: Connection) -> bool:
    answer = client.receive(PRODUCE, 9, 7).responses[0].partition_responses[0]
    return bool(answer.error_code == 0)


class Holders:
    """Two clients that hold all memory for frames of theirs and go on slowly."""

    def __init__(self, broker: kafkalite.Broker, stack: ExitStack) -> None:
        self._other, *self._clients = (
            stack.enter_context(Connection(broker.bootstrap_servers)) for _ in range(3)
        )
        self._rests = []
        for client in self._clients:
            self._rests.append(self.begin(client, produce_frame(client, BUDGET_BYTES), BEGINNING))

    def begin(self, client: Connection, frame: bytes, size_bytes: int) -> bytes:
        """Sends so much of a frame, and waits for the broker to have looked at it; the rest."""
        client.socket.sendall(frame[:size_bytes])
        assert self._other.ask("Metadata", 9, ASK).brokers
        return frame[size_bytes:]

    def go_on(self) -> None:
        """Both send a byte, and so are not too slow yet."""
        for at, client in enumerate(self._clients):
            client.socket.sendall(self._rests[at][:1])
            self._rests[at] = self._rests[at][1:]

    def finish(self) -> None:
        for client, rest in zip(self._clients, self._rests, strict=True):
            client.socket.sendall(rest)
        assert all(is_produced(client) for client in self._clients)


def comes(client: Connection, holders: Holders) -> bool:
    """Whether something comes for the client, or its end, while the holders keep their memory."""
    for _ in range(TRIES):
        if select.select([client.socket], [], [], 1)[0]:
            return True
        holders.go_on()
    return False


def test_the_memory_of_a_frame_that_is_done_does_not_keep_the_next_ones_waiting() -> None:
    """Two connections whose next frames were larger kept what their last ones had had: each waited
    for memory that the other one did not need, and after half a minute both were closed."""
    with serving() as broker, ExitStack() as stack:
        clients = [stack.enter_context(Connection(broker.bootstrap_servers)) for _ in range(2)]
        first = produce_frame(clients[0], 2 * BUDGET_BYTES // 3)
        second = produce_frame(clients[0], 2 * BUDGET_BYTES)
        for client in clients:
            client.socket.sendall(first[:BEGINNING])
            with Connection(broker.bootstrap_servers) as other:
                assert other.ask("Metadata", 9, ASK).brokers
        # So that a frame is found to be whole together with the beginning of the next one.
        os.kill(broker.pid, signal.SIGSTOP)
        for client in clients:
            client.socket.sendall(first[BEGINNING:] + second[:100])
        os.kill(broker.pid, signal.SIGCONT)
        assert all(is_produced(client) for client in clients)
        for client in clients:
            client.socket.sendall(second[100:])
        assert all(is_produced(client) for client in clients)


@pytest.mark.parametrize("sent_bytes", [10_000, pytest.param(None, marks=pytest.mark.long)])
def test_who_waits_for_memory_and_is_gone_holds_no_connection(sent_bytes: int | None) -> None:
    """It waited as long as others held the memory, and was one of `max.connections`: it was not
    read, so that the end of what it sent never came up. Where the frame is whole in the socket, it
    has ten seconds."""
    with serving(**{"max.connections": "6"}) as broker, ExitStack() as stack:
        holders = Holders(broker, stack)
        for _ in range(3):
            with Connection(broker.bootstrap_servers) as client:
                frame = produce_frame(client, 12_000)[:sent_bytes]
                client.socket.sendall(holders.begin(client, frame, SMALL_BEGINNING))
        late = stack.enter_context(Connection(broker.bootstrap_servers))
        sent = late.send(METADATA, 9, ASK.encode(9))
        assert comes(late, holders)
        assert late.receive(METADATA, 9, sent).brokers


def test_a_frame_that_was_sent_whole_before_its_client_closed_its_side_gets_its_memory() -> None:
    with serving() as broker, ExitStack() as stack:
        holders = Holders(broker, stack)
        client = stack.enter_context(Connection(broker.bootstrap_servers))
        rest = holders.begin(client, produce_frame(client, 12_000), SMALL_BEGINNING)
        client.socket.sendall(rest)
        client.socket.shutdown(socket.SHUT_WR)
        holders.go_on()
        holders.finish()
        assert is_produced(client)
        assert client.is_closed()


def test_who_waits_for_memory_longer_than_it_may_be_idle_is_closed() -> None:
    """It was looked at for memory now and then, which counted as life; as did what it had sent and
    was not received for lack of memory. Kafka closes it."""
    with serving(**{"connections.max.idle.ms": "3000"}) as broker, ExitStack() as stack:
        holders = Holders(broker, stack)
        client = stack.enter_context(Connection(broker.bootstrap_servers))
        rest = holders.begin(client, produce_frame(client, BUDGET_BYTES), SMALL_BEGINNING)
        client.socket.sendall(rest[:1000])
        assert comes(client, holders)
        assert client.is_closed()
