"""A broker of a few lines, for what a real one cannot be made to do: be late, stop in mid-answer,
lie, refuse. It answers ApiVersions and Metadata itself; the rest is a function of the test's."""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from kafkalite._native import message_versions
from kafkalite.protocol import messages

NAMES = ("Produce", "Fetch", "ListOffsets", "Metadata", "FindCoordinator", "ApiVersions")
NAMES += ("InitProducerId", "DescribeCluster", "CreateTopics", "Heartbeat", "ListGroups")
NAMES += ("AddPartitionsToTxn", "EndTxn", "ListTransactions", "DescribeTransactions")
NAMES += ("OffsetCommit", "OffsetFetch", "OffsetDelete", "DescribeGroups", "DeleteGroups")
NAMES += ("IncrementalAlterConfigs", "DescribeConfigs", "JoinGroup", "SyncGroup", "LeaveGroup")
NAMES += ("OffsetForLeaderEpoch",)

# What a handler may answer beside a message: nothing, or raw bytes in place of a frame.
Answer = Any
Handler = Callable[[str, Any], Answer]


class Close:
    """The connection is closed, after these bytes."""

    def __init__(self, sent: bytes = b"") -> None:
        self.sent = sent


class Request:
    """What came in, taken apart."""

    def __init__(self, frame: bytes) -> None:
        key, self.version, self.correlation_id, length = struct.unpack_from(">hhih", frame)
        self.name = KEYS.get(key, str(key))
        start = 10 + max(length, 0)
        self.client_id = frame[10:start].decode()
        _, _, _, self.flexible_since = message_versions(f"{self.name}Request")
        self.is_flexible = self.flexible_since is not None and self.version >= self.flexible_since
        body = frame[start + self.is_flexible :]
        known = message_versions(f"{self.name}Request")
        self.message = None
        if known[1] <= self.version <= known[2]:
            self.message = getattr(messages, f"{self.name}Request").decode(body, self.version)


KEYS = {message_versions(f"{name}Request")[0]: name for name in NAMES}


class FakeBroker:
    """Listens on a free port until the block ends. `seen` has every request, in order."""

    def __init__(
        self,
        handler: Handler | None = None,
        *,
        versions: dict[str, tuple[int, int]] | None = None,
        partitions: int = 1,
        topics: tuple[str, ...] = ("orders",),
    ) -> None:
        self._handler = handler
        self._partitions = partitions
        self._topics = topics
        self.versions = {name: message_versions(f"{name}Request")[1:3] for name in NAMES} | (
            versions or {}
        )
        self.leader_epoch = -1
        """That of all partitions, as Metadata tells it."""
        self.topic_id = bytes(16)
        """That of all topics; none, as of a broker before 2.8."""
        self.seen: list[Request] = []
        self.connections_count = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.host, self.port = self._listener.getsockname()
        self.servers = f"{self.host}:{self.port}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def of(self, name: str) -> list[Any]:
        """The messages of a kind that came in."""
        return [request.message for request in self.seen if request.name == name]

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            self.connections_count += 1
            self._sockets.append(one)
            self._start(self._serve, one)

    def _serve(self, one: socket.socket) -> None:
        stream = one.makefile("rb")
        try:
            while size := stream.read(4):
                request = Request(stream.read(*struct.unpack(">i", size)))
                self.seen.append(request)
                answer = self._answer(request)
                if isinstance(answer, Close):
                    one.sendall(answer.sent)
                    one.shutdown(socket.SHUT_RDWR)
                    return
                if isinstance(answer, bytes):
                    one.sendall(answer)
                elif answer is not None:
                    one.sendall(frame(request, answer))
        except (OSError, ValueError, struct.error):
            return

    def _answer(self, request: Request) -> Answer:
        if self._handler is not None:
            answer = self._handler(request.name, request)
            if answer is not ...:
                return answer
        if request.name == "ApiVersions":
            return self.api_versions()
        if request.name == "Metadata":
            return self.metadata()
        if request.name == "InitProducerId":
            return messages.InitProducerIdResponse(producer_id=7, producer_epoch=0)
        return None

    def api_versions(self) -> Any:
        kind = messages.ApiVersionsResponse
        return kind(
            api_keys=[
                kind.ApiVersion(
                    api_key=message_versions(f"{name}Request")[0],
                    min_version=lowest,
                    max_version=highest,
                )
                for name, (lowest, highest) in self.versions.items()
            ]
        )

    def metadata(
        self, others: dict[int, tuple[str, int]] | None = None, leads: int = 1, leader: int = 1
    ) -> Any:
        """What it says of itself, of other brokers, by id, of who is the controller, and of who
        leads all partitions."""
        kind = messages.MetadataResponse
        inner = kind.MetadataResponseTopic
        nodes = {1: (self.host, self.port)} | (others or {})
        return kind(
            brokers=[
                kind.MetadataResponseBroker(node_id=node_id, host=host, port=port)
                for node_id, (host, port) in nodes.items()
            ],
            controller_id=leads,
            cluster_id="fake",
            topics=[
                inner(
                    name=name,
                    topic_id=self.topic_id,
                    partitions=[
                        inner.MetadataResponsePartition(
                            partition_index=index,
                            leader_id=leader,
                            leader_epoch=self.leader_epoch,
                            replica_nodes=[1],
                            isr_nodes=[1],
                        )
                        for index in range(self._partitions)
                    ],
                )
                for name in self._topics
            ],
        )


def frame(request: Request, response: Any, correlation_id: int | None = None) -> bytes:
    """The response as it goes over the wire."""
    body = response.encode(request.version)
    tags = b"\0" if request.is_flexible and request.name != "ApiVersions" else b""
    wanted = request.correlation_id if correlation_id is None else correlation_id
    return struct.pack(">ii", 4 + len(tags) + len(body), wanted) + tags + body
