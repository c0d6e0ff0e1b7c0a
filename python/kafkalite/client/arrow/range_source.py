"""Fetches ranges of offsets for `_native.FetchRead`, as fast as one connection goes.

    request n+1   sent as soon as the headers of answer n say where it begins
    answer n      its records are received straight into one bytes object, which Rust reads in place
    meanwhile     the broker makes answer n+1, and the kernel takes it

An answer of Fetch, versions 4 to 11, whose fixed parts are read one by one and whose records are
never copied:

    size i32, correlation id i32, throttle ms i32
    [7+] error i16, session i32
    topics i32, name string16, partitions i32, partition i32, error i16, high watermark i64,
    last stable offset i64, [5+] log start i64, aborted i32 × (producer i64, first offset i64),
    [11+] preferred replica i32, records bytes32
"""

import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkalite._native import fetched_end
from kafkalite.client.admin import EARLIEST, EARLIEST_LOCAL, Admin, uuid_text
from kafkalite.client.network.cluster import BACKOFF_MS, Cluster
from kafkalite.client.network.connection import Closing, Connection, broker_error, check, may_pass
from kafkalite.client.network.servers import Servers
from kafkalite.errors import (
    BrokerError,
    ClientError,
    ConnectionFailedError,
    InvalidArgumentError,
    LogDeletedError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kafkalite.protocol import messages
from kafkalite.protocol.codes import NONE, OFFSET_OUT_OF_RANGE

__all__ = ["ISOLATION", "POLL_TIMEOUT", "SETTINGS", "FetchSettings", "RangeSource"]

Range = tuple[str, int, int, int]
Chunk = tuple[str, int, bytes, int, int, list[tuple[int, int]]]

ISOLATION = {"read_uncommitted": 0, "read_committed": 1}

# Later versions have compact arrays and tags, and name topics by id.
FETCH_VERSION_MAX = 11

# A topic whose id is known is looked up again after so long: consumers may pause for hours
# between two chunks, and a fetch by name does not say that the topic was recreated meanwhile.
TOPIC_AGE_S = 5.0

# Bytes of an offset, as long as nothing is known, and what a fetch asks for at least.
OFFSET_BYTES = 1 << 10
ASKED_BYTES_MIN = 64 << 10


# The names of the settings: those of Kafka's consumer, and what Spark's connector calls
# kafkaConsumer.pollTimeoutMs, since Kafka's consumer is told it with each poll.
POLL_TIMEOUT = "poll.timeout.ms"
SETTINGS = {
    "client.id": "client_id",
    "request.timeout.ms": "request_timeout_ms",
    POLL_TIMEOUT: "poll_timeout_ms",
    "max.partition.fetch.bytes": "partition_bytes_max",
    "fetch.max.bytes": "fetch_bytes_max",
    "fetch.min.bytes": "fetch_bytes_min",
    "fetch.max.wait.ms": "fetch_wait_ms",
    "receive.buffer.bytes": "receive_buffer_bytes",
}


class FetchSettings(NamedTuple):
    """How ranges are fetched; sizes in bytes, times in milliseconds."""

    isolation: str = "read_uncommitted"
    client_id: str = "kafkalite-arrow"
    request_timeout_ms: int = 30_000
    poll_timeout_ms: int = 60_000
    """How long nothing may come."""
    partition_bytes_max: int = 4 << 20
    """Large enough to make the cost of a request vanish."""
    fetch_bytes_max: int = 50 << 20
    fetch_bytes_min: int = 1
    fetch_wait_ms: int = 500
    receive_buffer_bytes: int = -1
    """-1: as the system chooses."""

    def to_json(self) -> dict[str, str | int]:
        """The `client` of a request to an Arrow endpoint: all but the isolation."""
        return {name: getattr(self, field) for name, field in SETTINGS.items()}

    @staticmethod
    def from_json(isolation: str, client: Mapping[str, str]) -> "FetchSettings":
        """The other way, out of texts. Raises `InvalidArgumentError`, which names the setting."""
        given: dict[str, Any] = {}
        for name, text in client.items():
            if name not in SETTINGS:
                known = ", ".join(SETTINGS)
                raise InvalidArgumentError(f"client has no setting {name}: there are {known}")
            try:
                given[SETTINGS[name]] = text if name == "client.id" else int(text)
            except ValueError as error:
                raise InvalidArgumentError(
                    f"client: {name}={text} is not a whole number"
                ) from error
        return FetchSettings(isolation, **given)


class _Answer(NamedTuple):
    """One partition of a Fetch response. `records` is None where the broker did not look, because
    the client is over its quota."""

    error_code: int
    end: int
    """High watermark, or last stable offset."""
    aborted: list[tuple[int, int]]
    records: bytes | None
    throttle_ms: int


class _Body:
    """The body of an answer, received piece by piece: what says that it is larger than the frame
    is no answer of a broker's, and nothing is received for it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._left = connection.receive_head()

    def take(self, size: int, *, is_last: bool = False) -> bytes:
        """The next bytes. Raises `ConnectionFailedError`, after the last also where more follow."""
        if not 0 <= size <= self._left or (is_last and size < self._left):
            self._connection.close()
            peer = self._connection.peer
            raise ConnectionFailedError(f"{peer} does not answer as a Kafka broker does")
        self._left -= size
        return self._connection.receive_exactly(size)

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """The next fields."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def skip(self) -> None:
        """Takes what is left."""
        self.take(self._left)


class RangeSource(Closing):
    """Fetches for one stream, one range after the other. One thread at a time."""

    def __init__(
        self,
        bootstrap_servers: Servers,
        ranges: Iterable[Range],
        settings: FetchSettings,
        on_loss: Callable[[str], None] | None = None,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> None:
        """`on_loss` is told in a sentence of records that are gone, which are then skipped; without
        it they raise. `topic_ids` are those of the topics when the ranges were made, as far as they
        are known: of a topic that has another nothing is read."""
        self._ahead = deque(ranges)
        self._topic_ids = topic_ids or {}
        self._looked_at = 0.0
        """When the topic was looked up last (monotonic seconds), if its id is known."""
        self._settings = settings
        self._on_loss = on_loss
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=settings.client_id,
            timeout_ms=settings.poll_timeout_ms,
            request_timeout_ms=settings.request_timeout_ms,
        )
        self._connection: Connection | None = None
        self._node_id = -1
        self._leader_epoch = -1
        self._topic, self._partition, self._position, self._stop = "", 0, 0, 0
        self._offset_bytes = float(OFFSET_BYTES)
        """Offsets of what came last."""
        self._is_sent = False
        self._progress_at = 0.0
        self._is_empty = False
        """Says whether the broker has said once that there is nothing up to the stop."""

    def next_chunk(self) -> Chunk | None:
        """See `_native.FetchRead`. Raises `KafkaliteError`."""
        # What the caller did since the last chunk is no time in which nothing came.
        self._progress_at = time.monotonic()
        while True:
            if self._position >= self._stop and not self._begin():
                return None
            start = self._position
            try:
                chunk = self._attempt()
            except Exception:
                raise
            except BaseException:
                # Interrupted: in the midst of an answer, or with one that nobody was given.
                self._hang_up()
                self._position = start
                raise
            if chunk is not None:
                return chunk

    def _attempt(self) -> Chunk | None:
        try:
            answer = self._fetch()
        except ClientError as error:
            self._pause_or_raise(error)
            return None
        return self._take(answer)

    def close(self) -> None:
        """Closes the connections."""
        self._hang_up()
        self._cluster.close()

    def _begin(self) -> bool:
        """The next range; False if there is none."""
        while self._ahead:
            self._topic, self._partition, self._position, self._stop = self._ahead.popleft()
            if self._position < self._stop:
                self._is_empty = False
                self._progress_at = time.monotonic()
                self._offset_bytes = float(OFFSET_BYTES)
                return True
        return False

    @property
    def _name(self) -> str:
        return f"{self._topic}-{self._partition}"

    # --- asking -----------------------------------------------------------------------------------

    def _fetch(self) -> _Answer:
        connection = self._connected()
        if not self._is_sent:
            self._send(connection)
        self._is_sent = False
        return self._receive(connection)

    def _connected(self) -> Connection:
        if self._connection is not None and self._connection.is_open and self._is_sent:
            return self._connection
        self._refuse_recreated()
        led = self._cluster.led(self._topic, self._partition)
        node_id, self._leader_epoch = led.leader, led.leader_epoch
        if self._connection is None or not self._connection.is_open or node_id != self._node_id:
            self._hang_up()
            self._connection = self._cluster.new_connection(node_id)
            self._connection.prepare_for_large(
                self._settings.fetch_wait_ms + self._settings.request_timeout_ms,
                self._settings.receive_buffer_bytes,
            )
            self._node_id = node_id
        return self._connection

    def _refuse_recreated(self) -> None:
        """Raises `LogDeletedError` if the topic is another than that of the ranges."""
        wanted = self._topic_ids.get(self._topic)
        if wanted is None:
            return
        now = time.monotonic()
        if now >= self._looked_at + TOPIC_AGE_S:
            self._cluster.forget(self._topic)
            self._looked_at = now
        found = self._cluster.topic(self._topic).id
        if any(found) and found != wanted:
            raise LogDeletedError(
                f"{self._name}: the topic was deleted and recreated since its offsets were looked "
                f"up (its id was {uuid_text(wanted)}, it is {uuid_text(found)})"
            )

    def _hang_up(self) -> None:
        self._is_sent = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, connection: Connection) -> None:
        kind = messages.FetchRequest
        settings = self._settings
        row = kind.FetchTopic.FetchPartition(
            partition=self._partition,
            current_leader_epoch=self._leader_epoch,
            fetch_offset=self._position,
            partition_max_bytes=self._asked_bytes(),
        )
        request = kind(
            max_wait_ms=settings.fetch_wait_ms,
            min_bytes=settings.fetch_bytes_min,
            max_bytes=settings.fetch_bytes_max,
            isolation_level=ISOLATION[settings.isolation],
            topics=[kind.FetchTopic(topic=self._topic, partitions=[row])],
        )
        connection.send(request, at_most=FETCH_VERSION_MAX)
        self._is_sent = True

    def _asked_bytes(self) -> int:
        """About what is left of the range: what the broker sends beyond its stop is for nothing."""
        left = (self._stop - self._position) * self._offset_bytes
        wanted = max(int(1.25 * left), ASKED_BYTES_MIN)
        return min(wanted, self._settings.partition_bytes_max)

    def _receive(self, connection: Connection) -> _Answer:
        body = _Body(connection)
        version = connection.version_for("Fetch", FETCH_VERSION_MAX)
        (throttle_ms,) = body.unpack(">i")
        if version >= 7:
            error_code, _ = body.unpack(">hi")
            check(error_code, f"Fetch from {connection.peer}")
        (topics_count,) = body.unpack(">i")
        if topics_count == 0:
            body.skip()
            return _Answer(NONE, -1, [], None, throttle_ms)
        (name_size,) = body.unpack(">h")
        body.take(name_size)
        fields = body.unpack(">iihqq" + ("q" if version >= 5 else "") + "i")
        error_code, high_watermark, last_stable_offset = fields[2:5]
        aborted = list(struct.iter_unpack(">qq", body.take(16 * max(fields[-1], 0))))
        *_, records_size = body.unpack(">ii" if version >= 11 else ">i")
        records = body.take(max(records_size, 0), is_last=True)
        is_committed = self._settings.isolation == "read_committed"
        end = last_stable_offset if is_committed else high_watermark
        return _Answer(error_code, end, aborted, records, throttle_ms)

    # --- what came --------------------------------------------------------------------------------

    def _take(self, answer: _Answer) -> Chunk | None:
        if answer.error_code == OFFSET_OUT_OF_RANGE:
            self._skip_lost()
            return None
        if answer.error_code != NONE:
            what = f"partition {self._partition} of topic '{self._topic}'"
            self._pause_or_raise(broker_error(answer.error_code, what))
            return None
        if not answer.records:
            self._wait(answer)
            return None
        start = self._position
        end = fetched_end(answer.records, start)
        if end == start:
            raise MessageTooLargeError(
                f"{self._name} has a batch at offset {start} of which the broker sends a part and "
                "no more: raise max.partition.fetch.bytes"
            )
        self._position = end
        self._offset_bytes = len(answer.records) / (end - start)
        self._is_empty = False
        if end < self._stop and self._connection is not None:
            try:
                self._refuse_recreated()
                self._send(self._connection)
            except ClientError:
                self._hang_up()  # the next call says what is wrong
        return (self._topic, self._partition, answer.records, start, self._stop, answer.aborted)

    def _wait(self, answer: _Answer) -> None:
        """Nothing came: not yet, or there is nothing left (compaction removed it)."""
        if answer.records is None:
            time.sleep(answer.throttle_ms / 1000)
        elif answer.end >= self._stop and self._is_empty and self._is_local():
            self._position = self._stop
            return
        else:
            self._is_empty = answer.end >= self._stop
        if time.monotonic() - self._progress_at > self._settings.poll_timeout_ms / 1000:
            raise RequestTimedOutError(
                f"{self._name} sent nothing at offset {self._position}, before {self._stop}, for "
                f"{self._settings.poll_timeout_ms} ms"
            )

    def _is_local(self) -> bool:
        """Says whether the position is in the broker's own log, where there is nothing for good;
        what is tiered (KIP-405) a broker may only not have fetched in time."""
        try:
            return self._listed(EARLIEST_LOCAL) <= self._position
        except UnsupportedVersionError:
            return True

    def _listed(self, kind: int) -> int:
        place = (self._topic, self._partition)
        return Admin(self._cluster).list_offsets({place: kind})[place].offset

    def _skip_lost(self) -> None:
        first = self._listed(EARLIEST)
        resumes_at = min(first, self._stop) if first > self._position else self._stop
        sentence = (
            f"{self._name}: offset {self._position} is no longer there, the log starts at {first} "
            f"(offsets gone: {resumes_at - self._position})"
        )
        if self._on_loss is None:
            raise OffsetOutOfRangeError(sentence)
        self._on_loss(sentence)
        self._position = resumes_at

    def _pause_or_raise(self, error: ClientError) -> None:
        """Tries again after an error that may pass, until nothing has come for too long."""
        late = time.monotonic() - self._progress_at > self._settings.poll_timeout_ms / 1000
        if not may_pass(error) or late:
            kind = type(error)
            sentence = f"{self._name}: {error} (at offset {self._position}, before {self._stop})"
            if isinstance(error, BrokerError):
                raise BrokerError(
                    sentence, code=error.code, name=error.name, retriable=error.retriable
                ) from error
            raise kind(sentence) from error
        self._hang_up()
        self._cluster.forget(self._topic)
        time.sleep(BACKOFF_MS / 1000)
