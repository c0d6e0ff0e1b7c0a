"""Clients that do to a broker what no client library does, at random but by a seed: requests of all
kinds in one pipeline, answers read late or in small pieces, connections half closed, reset, fed
with nonsense.

`Pipelines.run` holds the broker to what each connection is owed: one answer to each request, in
order, and not one left out when nothing has come for `BOUND_S`; offsets that grow for the records
of a connection; and its end where that is due.
"""

import itertools
import math
import random
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from api.batches import batch
from api.raw import KEYS, Connection, framed, request_frame
from kafkalite.protocol import messages

BOUND_S = 20.0
"""No request of these waits for more than half a second by itself."""

PARTITIONS = 4
BIG_BATCHES, BIG_BATCH_BYTES = 4, 1 << 20
LONG_BYTES = 1 << 20
"""Whoever has so much of an answer to come may be reset."""
REST_S = 3.0
HEAD_BYTES = 64
"""What is looked at of an answer."""


class Kind(NamedTuple):
    """A request that may be sent again and again."""

    name: str
    key: int
    version: int
    body: bytes
    weight: int
    produces: bool = False
    is_silent: bool = False
    """With acks 0."""


class Owed(NamedTuple):
    correlation_id: int
    kind: Kind


def _produce(topic: str, records: dict[int, bytes], acks: int, timeout_ms: int = 60_000) -> bytes:
    kind = messages.ProduceRequest
    partition = kind.TopicProduceData.PartitionProduceData
    data = [partition(index=index, records=each) for index, each in records.items()]
    topics = [kind.TopicProduceData(name=topic, partition_data=data)]
    return kind(acks=acks, timeout_ms=timeout_ms, topic_data=topics).encode(9)


def _fetch(topic: str, partitions: dict[int, int], max_wait_ms: int, min_bytes: int = 1) -> bytes:
    kind = messages.FetchRequest
    wanted = [
        kind.FetchTopic.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=100 << 20
        )
        for index, offset in partitions.items()
    ]
    return kind(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=100 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[kind.FetchTopic(topic=topic, partitions=wanted)],
    ).encode(12)


def _list_offsets(topic: str, timestamp: int) -> bytes:
    kind = messages.ListOffsetsRequest
    partitions = [
        kind.ListOffsetsTopic.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        for index in range(PARTITIONS)
    ]
    topics = [kind.ListOffsetsTopic(name=topic, partitions=partitions)]
    return kind(replica_id=-1, topics=topics).encode(7)


def _commit(group: str) -> bytes:
    kind = messages.OffsetCommitRequest
    partition = kind.OffsetCommitRequestTopic.OffsetCommitRequestPartition
    topics = [
        kind.OffsetCommitRequestTopic(
            name="a", partitions=[partition(partition_index=0, committed_offset=7)]
        )
    ]
    return kind(group_id=group, generation_id_or_member_epoch=-1, topics=topics).encode(8)


def _metadata(names: list[str]) -> bytes:
    kind = messages.MetadataRequest
    topics = [kind.MetadataRequestTopic(name=name) for name in names]
    return kind(topics=topics, allow_auto_topic_creation=True).encode(9)


def kinds() -> list[Kind]:
    small, large = batch([b"x" * 100]), batch([b"y" * 200_000])
    everywhere = dict.fromkeys(range(PARTITIONS), small)
    late = dict.fromkeys(range(PARTITIONS), 1 << 40)
    start = dict.fromkeys(range(PARTITIONS), 0)
    asked = messages.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    produce, fetch, metadata = KEYS["Produce"], KEYS["Fetch"], KEYS["Metadata"]
    find = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    found = [
        Kind("versions", KEYS["ApiVersions"], 3, asked.encode(3), 8),
        Kind("metadata", metadata, 9, _metadata(["a", "b"]), 8),
        Kind("metadata of a new topic", metadata, 9, b"", 1),
        Kind("find coordinator", KEYS["FindCoordinator"], 4, find.encode(4), 4),
        Kind("list offsets", KEYS["ListOffsets"], 7, _list_offsets("a", -1), 3),
        Kind("search", KEYS["ListOffsets"], 7, _list_offsets("a", 1), 3),
        Kind("fetch at once", fetch, 12, _fetch("a", start, 0), 3),
        Kind("fetch out of range", fetch, 12, _fetch("a", late, 500), 2),
        Kind("fetch much", fetch, 12, _fetch("big", {0: 0}, 0), 6),
        Kind("fetch much everywhere", fetch, 12, _fetch("big", start, 0), 2),
        Kind("fetch a little everywhere", fetch, 12, _fetch("a", start, 100, 1), 3),
        Kind("fetch all", fetch, 12, _fetch("b", start, 300, 1 << 30), 2),
        *(Kind(f"wait {ms}", fetch, 12, _fetch("empty", start, ms), 3) for ms in (1, 20, 300)),
        *(Kind("commit", KEYS["OffsetCommit"], 8, _commit(f"g{number}"), 1) for number in range(4)),
        Kind("late", produce, 9, _produce("a", {0: small}, -1, 0), 2),
        Kind("silent", produce, 9, _produce("a", {0: small}, 0), 3, is_silent=True),
    ]
    for topic, acks in itertools.product("ab", (-1, 1)):
        for index in range(PARTITIONS):
            body = _produce(topic, {index: small}, acks)
            found.append(Kind(f"produce {topic} {index}", produce, 9, body, 6, produces=True))
        found.append(Kind("large", produce, 9, _produce(topic, {0: large}, acks), 1, True))
        found.append(Kind("everywhere", produce, 9, _produce(topic, everywhere, acks), 6, True))
    return found


NONSENSE = {
    "an unknown key": struct.pack(">hhih", 9_999, 0, 1, -1),
    "no header": b"\0",
    "a version of no key": struct.pack(">hhih", 3, 99, 1, -1),
}


class Client:
    """One connection, what it has yet to send and is owed."""

    def __init__(self, address: tuple[str, int], choose: random.Random, number: int) -> None:
        self.number = number
        self.socket = socket.socket()
        if choose.random() < 0.4:
            self.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, choose.choice([16384, 65536])
            )
        self.socket.connect(address)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.outgoing = bytearray()
        self.owed: deque[Owed] = deque()
        self.head = bytearray()
        self.left = 0
        self.paused_until = self.rests_until = 0.0
        self.read_bytes = choice_of_reads(choose)
        self.moved_at = self.wrote_at = time.monotonic()
        self.ends_when_sent = False
        self.has_ended = False
        self.may_be_dropped = False
        """It sent something for which the broker closes: what follows need not be answered."""
        self.offsets: dict[tuple[str, int], int] = {}
        self.done: deque[str] = deque(maxlen=60)
        self._correlation_id = number << 16

    def ask(self, kind: Kind, body: bytes | None = None) -> None:
        self._correlation_id += 1
        self.outgoing += request_frame(
            kind.key,
            kind.version,
            kind.body if body is None else body,
            correlation_id=self._correlation_id,
        )
        if not kind.is_silent:
            self.owed.append(Owed(self._correlation_id, kind))
        self.done.append(kind.name)

    def send(self, content: bytes) -> None:
        """What may be no request."""
        self.outgoing += framed(content)

    def close(self) -> None:
        self.socket.close()

    @property
    def ends(self) -> bool:
        """The broker has to close it."""
        return self.ends_when_sent or self.may_be_dropped

    def write(self) -> None:
        if self.outgoing:
            # Before: the broker counts from what it has taken of this, or from its answer.
            self.wrote_at = time.monotonic()
            try:
                count = self.socket.send(self.outgoing[: 1 << 20])
            except BlockingIOError:
                return
            del self.outgoing[:count]
            self.moved_at = time.monotonic()
        if not self.outgoing and self.ends_when_sent and not self.has_ended:
            self.has_ended = True
            self.done.append("half closed")
            self.socket.shutdown(socket.SHUT_WR)

    def read(self) -> bool:
        """False: the broker has closed the connection."""
        try:
            data = self.socket.recv(self.read_bytes)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.moved_at = time.monotonic()
        at = 0
        while at < len(data):
            if self.left == 0:
                take = min(4 - len(self.head), len(data) - at)
                self.head += data[at : at + take]
                at += take
                if len(self.head) < 4:
                    break
                self.left = struct.unpack(">i", self.head)[0]
                assert self.left >= 4, f"a frame of {self.left} bytes"
            take = min(self.left, len(data) - at)
            room = max(0, HEAD_BYTES + 4 - len(self.head))
            self.head += data[at : at + min(take, room)]
            at += take
            self.left -= take
            if self.left == 0:
                self._answered(bytes(self.head[4:]))
                self.head.clear()
        return True

    def _answered(self, head: bytes) -> None:
        assert self.owed, f"an answer to nothing: {head!r}"
        owed = self.owed.popleft()
        correlation_id = struct.unpack_from(">i", head)[0]
        assert correlation_id == owed.correlation_id, (
            f"{correlation_id:x} was answered where {owed.correlation_id:x} is due"
        )
        if owed.kind.produces:
            # One topic of a name of one letter; its first partition.
            index, error_code, offset = struct.unpack_from(">ihq", head, 9)
            assert error_code == 0, f"error {error_code} of {owed.kind.name}"
            place = (head[7:8].decode(), index)
            before = self.offsets.get(place, -1)
            assert offset > before, f"{place}: offset {offset} was given behind {before}"
            self.offsets[place] = offset


def choice_of_reads(choose: random.Random) -> int:
    return choose.choice([5000, 65536, 1 << 20, 1 << 20])


class Pipelines:
    """So many clients of one broker, driven by one thread."""

    def __init__(self, servers: str, seed: int, count: int, idle_s: float = math.inf) -> None:
        """The broker may close those over which nothing has gone for `idle_s`."""
        host, port = servers.rsplit(":", 1)
        self._address = (host, int(port))
        self._choose = random.Random(seed)
        self._kinds = kinds()
        self._weights = [kind.weight for kind in self._kinds]
        self._numbers = itertools.count()
        self._count = count
        self._idle_s = idle_s
        self._new_topics = 0
        self.clients: list[Client] = []
        self.answers = 0
        self.ended = 0
        self.idle = 0
        self._moved_at = 0.0
        """When draining began, or a connection has ended since."""

    @staticmethod
    def prepare(servers: str) -> None:
        # Takes its time, in which a connection may be idle for too long.
        big = batch([bytes(BIG_BATCH_BYTES - 200)])
        body = _produce("big", dict.fromkeys(range(PARTITIONS), big), -1)
        with Connection(servers) as connection:
            for name, partitions in (("a", PARTITIONS), ("b", PARTITIONS), ("empty", PARTITIONS)):
                assert connection.create_topic(name, partitions).error_code == 0
            assert connection.create_topic("big", PARTITIONS).error_code == 0
            for _ in range(BIG_BATCHES):
                answer = connection.receive(0, 9, connection.send(0, 9, body))
                partitions = answer.responses[0].partition_responses
                assert [each.error_code for each in partitions] == [0] * PARTITIONS

    def run(self, seconds: float, each_turn: Callable[[], object] = lambda: None) -> None:
        """Lets clients loose for so long; `drain` is to follow."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            each_turn()
            while len(self.clients) < self._count:
                number = next(self._numbers)
                self.clients.append(Client(self._address, self._choose, number))
            for _ in range(3):
                self._act(self._choose.choice(self.clients), now)
            self._turn(0.001)

    def drain(self) -> None:
        """Until everybody has got what it is owed."""
        for client in self.clients:
            client.paused_until, client.read_bytes = 0.0, 1 << 20
        self._moved_at = time.monotonic()
        while any(each.owed or each.outgoing or each.ends for each in self.clients):
            self._turn(0.05)
            self._look_for_stuck()
        self.close()

    def close(self) -> None:
        """Nobody asks for more."""
        for client in self.clients:
            client.close()
        self.clients.clear()

    def _act(self, client: Client, now: float) -> None:
        choose = self._choose
        if client.ends or now < client.rests_until:
            return
        dice = choose.random()
        if client.left > LONG_BYTES and dice < 0.1:
            self._reset(client)
            return
        if dice > 0.998:
            client.rests_until = now + REST_S
            return
        if dice < 0.93:
            # One that has much open gets no more for now.
            if len(client.owed) < 300 and len(client.outgoing) < 1 << 20:
                for kind in choose.choices(
                    self._kinds, self._weights, k=choose.choice([1, 1, 2, 5, 20])
                ):
                    client.ask(kind, self._body(kind))
                if choose.random() < 0.5:
                    client.write()
        elif dice < 0.97:
            client.paused_until = now + choose.choice([0.01, 0.1, 0.5])
            client.read_bytes = choice_of_reads(choose)
        elif dice < 0.985:
            client.ends_when_sent = True
        elif dice < 0.99:
            name = choose.choice(list(NONSENSE))
            client.send(NONSENSE[name])
            client.may_be_dropped = True
            client.done.append(name)
        elif dice < 0.995:
            self._drop_by_refusal(client)
        else:
            if choose.random() < 0.7:
                self._reset(client)
            else:
                self._forget(client)

    def _reset(self, client: Client) -> None:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._forget(client)

    def _drop_by_refusal(self, client: Client) -> None:
        """Records of acks 0 that the log refuses: the broker closes, whatever follows."""
        records = bytearray(batch([b"spoilt"]))
        records[-2] ^= 1
        client.ask(
            Kind(
                "spoilt",
                KEYS["Produce"],
                9,
                _produce("a", {1: bytes(records)}, 0),
                0,
                is_silent=True,
            )
        )
        for kind in self._choose.choices(self._kinds, self._weights, k=5):
            client.ask(kind, self._body(kind))
        client.may_be_dropped = True

    def _body(self, kind: Kind) -> bytes | None:
        if kind.name != "metadata of a new topic":
            return None
        self._new_topics += self._new_topics < 6
        return _metadata([f"new-{self._new_topics}"])

    def _turn(self, timeout_s: float) -> None:
        now = time.monotonic()
        readers = [each for each in self.clients if now >= each.paused_until]
        writers = [
            each
            for each in self.clients
            if each.outgoing or (each.ends_when_sent and not each.has_ended)
        ]
        poll = select.poll()
        by_number: dict[int, Client] = {}
        for client in self.clients:
            mask = (select.POLLIN if client in readers else 0) | (
                select.POLLOUT if client in writers else 0
            )
            if mask:
                poll.register(client.socket, mask)
                by_number[client.socket.fileno()] = client
        for number, events in poll.poll(timeout_s * 1000):
            client = by_number[number]
            try:
                if events & select.POLLOUT:
                    client.write()
                if events & (select.POLLIN | select.POLLHUP | select.POLLERR) and client in readers:
                    before = len(client.owed)
                    is_open = client.read()
                    self.answers += before - len(client.owed)
                    if not is_open:
                        self._closed(client)
            except (ConnectionResetError, BrokenPipeError):
                self._closed(client)
            except AssertionError as error:
                error.add_note(self._story(client))
                raise

    def _closed(self, client: Client) -> None:
        if time.monotonic() - client.wrote_at > 0.8 * self._idle_s:
            self.idle += 1
        elif not client.may_be_dropped:
            assert client.has_ended, f"the broker closed a connection\n{self._story(client)}"
            assert not client.owed, f"the broker closed before its answers\n{self._story(client)}"
        self.ended += 1
        self._moved_at = time.monotonic()
        self._forget(client)

    def _forget(self, client: Client) -> None:
        client.close()
        self.clients.remove(client)

    def _look_for_stuck(self) -> None:
        """Whoever is stuck is so still when all others have got everything."""
        moved_at = max((each.moved_at for each in self.clients), default=math.inf)
        moved_at = max(moved_at, self._moved_at)
        if time.monotonic() - moved_at > BOUND_S:
            stories = "\n".join(self._story(each) for each in self.clients)
            raise AssertionError(f"nothing has come for {BOUND_S} s\n{stories}")

    @staticmethod
    def _story(client: Client) -> str:
        owed = [each.kind.name for each in itertools.islice(client.owed, 10)]
        return (
            f"client {client.number}: owed {len(client.owed)}: {owed}, to be sent "
            f"{len(client.outgoing)}, half closed {client.has_ended}, may be dropped "
            f"{client.may_be_dropped}, last of all {list(client.done)}"
        )
