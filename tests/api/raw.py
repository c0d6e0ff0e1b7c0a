"""A connection that speaks frames: what a test of a key sends and looks at."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from kafkalite._native import message_versions
from kafkalite.protocol import messages

TIMEOUT_S = 60.0


def _keys() -> Iterator[tuple[int, tuple[str, int]]]:
    """Key -> name and first flexible version, out of the schema table."""
    table = Path(messages.__file__).with_name("schema.txt").read_text()
    for line in table.splitlines():
        words = line.split()
        if words[0] == "message" and words[2] == "request":
            name = words[1].removesuffix("Request")
            first_flexible = message_versions(words[1])[3]
            yield int(words[3]), (name, 32767 if first_flexible is None else first_flexible)


_BY_KEY = dict(_keys())
NAMES = {key: name for key, (name, _) in _BY_KEY.items()}
KEYS = {name: key for key, name in NAMES.items()}
FLEXIBLE_SINCE = {key: first for key, (_, first) in _BY_KEY.items()}


def header_is_tagged(key: int, version: int, is_response: bool) -> bool:
    """Whether the header ends with tagged fields; that of ApiVersions' answer never does."""
    return version >= FLEXIBLE_SINCE.get(key, 32767) and not (is_response and key == 18)


def framed(content: bytes) -> bytes:
    """A frame: its size and its content."""
    return struct.pack(">i", len(content)) + content


def request_frame(
    key: int, version: int, body: bytes, *, correlation_id: int = 7, client_id: str = "test"
) -> bytes:
    """A whole request as it goes over the wire."""
    named = client_id.encode()
    content = struct.pack(">hhih", key, version, correlation_id, len(named)) + named
    if header_is_tagged(key, version, False):
        content += b"\0"
    return framed(content + body)


class Connection:
    """One socket, on which requests have numbers of their own."""

    def __init__(self, bootstrap_servers: str, source: str | None = None) -> None:
        """`source` is the address that it comes from, where that matters."""
        host, port = bootstrap_servers.rsplit(":", 1)
        self.socket = socket.create_connection(
            (host, int(port)), timeout=TIMEOUT_S, source_address=source and (source, 0)
        )
        self._correlation_id = 100

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, key: int, version: int, body: bytes) -> int:
        """Sends one request; returns its correlation id."""
        self._correlation_id += 1
        self.socket.sendall(request_frame(key, version, body, correlation_id=self._correlation_id))
        return self._correlation_id

    def send_frame(self, content: bytes) -> None:
        """Sends what may be no request."""
        self.socket.sendall(framed(content))

    def receive_frame(self) -> bytes | None:
        """The content of the next frame, or None if the broker has closed the connection."""
        size = self._receive(4)
        return None if size is None else self._receive(struct.unpack(">i", size)[0])

    def _receive(self, count: int) -> bytes | None:
        received = bytearray(count)
        view = memoryview(received)
        while view:
            try:
                size = self.socket.recv_into(view)
            except ConnectionResetError:
                return None
            if size == 0:
                return None
            view = view[size:]
        return bytes(received)

    def receive(self, key: int, version: int, correlation_id: int) -> Any:
        """The next response, which must be the one to that request."""
        frame = self.receive_frame()
        assert frame is not None, "the broker closed the connection"
        assert struct.unpack_from(">i", frame)[0] == correlation_id
        tagged = header_is_tagged(key, version, True)
        kind = getattr(messages, f"{NAMES[key]}Response")
        return kind.decode(frame[5 if tagged else 4 :], version)

    def ask(self, name: str, version: int, message: Any) -> Any:
        """Sends a request and returns its response."""
        key = KEYS[name]
        correlation_id = self.send(key, version, message.encode(version))
        return self.receive(key, version, correlation_id)

    def is_closed(self) -> bool:
        """Waits for what the broker does next: true if it closes the connection."""
        return self.receive_frame() is None

    # --- whole requests ---------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> Any:
        topic = messages.CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                messages.CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(
                    name=key.replace("_", "."), value=value
                )
                for key, value in configs.items()
            ],
        )
        response = self.ask("CreateTopics", 7, messages.CreateTopicsRequest(topics=[topic]))
        return response.topics[0]

    def produce_request(
        self, topic: str, records: bytes | None, acks: int = -1, topic_id: bytes = bytes(16)
    ) -> Any:
        kind = messages.ProduceRequest
        partition = kind.TopicProduceData.PartitionProduceData(index=0, records=records)
        data = kind.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[partition])
        return kind(acks=acks, timeout_ms=10_000, topic_data=[data])

    def produce(
        self,
        topic: str,
        records: bytes | None,
        acks: int = -1,
        version: int = 9,
        topic_id: bytes = bytes(16),
    ) -> Any:
        """The partition's part of the answer."""
        request = self.produce_request(topic, records, acks, topic_id)
        response = self.ask("Produce", version, request)
        return response.responses[0].partition_responses[0]

    def fetch_request(
        self,
        topic: str,
        offset: int,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        topic_id: bytes = bytes(16),
        max_bytes: int = 1 << 20,
        session: tuple[int, int] = (0, -1),
        isolation: int = 0,
    ) -> Any:
        kind = messages.FetchRequest
        partition = kind.FetchTopic.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        return kind(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            session_id=session[0],
            session_epoch=session[1],
            topics=[kind.FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])],
        )

    def fetch(self, topic: str, offset: int, *, version: int = 12, **options: Any) -> Any:
        """The partition's part of the answer."""
        response = self.ask("Fetch", version, self.fetch_request(topic, offset, **options))
        return response.responses[0].partitions[0]

    def list_offsets(self, topic: str, timestamp: int, version: int = 11) -> Any:
        kind = messages.ListOffsetsRequest
        partition = kind.ListOffsetsTopic.ListOffsetsPartition(
            partition_index=0, timestamp=timestamp
        )
        request = kind(
            replica_id=-1, topics=[kind.ListOffsetsTopic(name=topic, partitions=[partition])]
        )
        return self.ask("ListOffsets", version, request).topics[0].partitions[0]
