"""What the compiled half offers, and what it means. `rust/src/lib.rs` is the same list.

Every function may raise a class of `kafkalite.errors`. Work and waiting happen without the GIL.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Final, final

__all__ = [
    "BrokerPlane",
    "LogRead",
    "LogVerification",
    "Request",
    "SegmentBatches",
    "__version__",
    "decode_message",
    "encode_message",
    "log_file_kind",
    "message_layout",
    "message_versions",
    "random_uuid",
    "read_log_file",
]

__version__: Final[str]

# A log's files, read as they lie. Names of fields are those that Kafka's DumpLogSegments prints.

def log_file_kind(name: str) -> str | None:
    """What a file is, by its name alone: "segment", "offset index", "time index", "transaction
    index", "producer snapshot", "leader epoch checkpoint", "partition metadata", "offset
    checkpoint", "meta.properties", "metadata snapshot"; `None` for any other name."""

def read_log_file(path: str | PathLike[str]) -> dict[str, Any]:
    """A file that holds no batches: `kind`, and `rows`, a list of dictionaries. Indexes also have
    `unusedBytes` (zeros behind the entries: Kafka makes its active index full size) and `oddBytes`
    (behind the last whole entry).

    Raises `CorruptFileError`, `StorageError`, `InvalidArgumentError` for a name without meaning."""

@final
class SegmentBatches:
    """The batches of a segment or metadata snapshot, up to its size when this was made. The file
    may grow meanwhile."""

    def __new__(cls, path: str | PathLike[str]) -> SegmentBatches: ...
    def next(self, max_bytes: int, *, records: bool) -> list[dict[str, Any]]:
        """The next batches, of about `max_bytes` but at least one; none at the end. With `records`
        each has `records` (key and value as bytes) and `trouble`, a sentence or `None`.

        Raises `CorruptFileError` where no batch starts; nothing follows then."""

    @property
    def position(self) -> int:
        """Bytes read so far."""

    @property
    def size(self) -> int:
        """Bytes to read in all."""

@final
class LogVerification:
    """A check of a log directory, or of a single partition's. Changes nothing; may run beside the
    broker that uses the directory.

    Raises `LogDirRefusedError` for what is no log directory or one of a future version."""

    def __new__(cls, path: str | PathLike[str]) -> LogVerification: ...
    def step(self) -> list[tuple[str, int | None, str]] | None:
        """Checks the next segment: findings as path, byte and sentence; `None` at the end."""

    def summary(self) -> dict[str, Any]:
        """Counts so far: `partitions`, `segments`, `batches`, `records`, `findings`, `doneBytes`,
        `totalBytes`; and `isInUse`, `wasClean` (the last stop left its mark)."""

# The broker.

def message_layout(name: str) -> tuple[str, list[Any]]:
    """Name and fields of a message: (field, default, layout of its struct or None) each. A default
    that is a struct is `...`."""

def message_versions(name: str) -> tuple[int | None, int, int, int | None]:
    """API key or None, lowest and highest version, first flexible version or None."""

def decode_message(class_: Any, version: int, body: bytes) -> Any:
    """An object of a class of `kafkalite.protocol.messages`."""

def encode_message(object: Any, version: int) -> bytes:  # noqa: A002
    """The body of a message of `kafkalite.protocol.messages`."""

def random_uuid() -> str:
    """A new id as Kafka writes them: 22 characters of base64url."""

@final
class Request:
    """A request that Python answers, once: `respond`, `answer_again` or `close_connection`."""

    @property
    def api_key(self) -> int: ...
    @property
    def api_version(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def listener(self) -> int:
        """Index of the listener that the client came in by."""

    @property
    def peer(self) -> str:
        """The client's address, `127.0.0.1:40000`."""

    @property
    def body(self) -> bytes:
        """What follows the header."""

@final
class BrokerPlane:
    """One node: its log directories, and from `start` to `stop` its network threads."""

    def __new__(
        cls,
        *,
        node_id: int,
        cluster_id: str,
        log_dirs: Sequence[str],
        log_defaults: Mapping[str, str],
        topic_configs: Mapping[str, Mapping[str, str]],
        settings: Mapping[str, int],
    ) -> BrokerPlane:
        """Takes the log directories and loads their logs. The configs are those of the engine
        (`Config.engine_configs`), `settings` the broker's integers and flags by their keys."""

    @property
    def repairs(self) -> list[str]:
        """What was not as a clean stop leaves it, a sentence each."""

    @staticmethod
    def native_keys() -> list[int]:
        """The api keys that Rust answers."""

    def start(
        self,
        listeners: Sequence[int],
        endpoints: Sequence[tuple[str, int]],
        rack: str | None,
        control_keys: Sequence[tuple[int, int, int, int, int]],
    ) -> None:
        """Serves clients from now on. `listeners` are descriptors of listening sockets, given away;
        `endpoints` what clients of each are told; `control_keys` (key, lowest advertised, lowest,
        highest, first flexible version) of the keys that Python answers."""

    def wait(self, timeout_ms: int | None = None) -> list[Request] | None:
        """Requests for Python; blocks until there are some or notices. None after `stop`."""

    def notices(self) -> list[str]:
        """Sentences for the log, each given once."""

    def respond(self, request: Request, response: Any) -> None:
        """Answers with a message, in the request's version."""

    def answer_again(self, request: Request) -> None:
        """Has a Metadata request answered by Rust, its topics being there now."""

    def close_connection(self, request: Request) -> None:
        """Closes the connection of a request that cannot be answered."""

    def create_topic(self, name: str, partition_count: int, configs: Mapping[str, str]) -> bytes:
        """Makes a topic and returns its id. It survives a power cut."""

    def topics(self) -> dict[str, tuple[bytes, int]]:
        """Name -> (topic id, number of partitions)."""

    def counts(self) -> dict[str, int]:
        """The counters of `kafkalite.metrics`."""

    def stop(self) -> None:
        """Takes no more requests, has parked ones answered, ends the network threads. Another
        thread must answer Python's requests meanwhile. At most some seconds."""

    def close(self, broker_epoch: int) -> None:
        """The clean stop of the log directories, after `stop`: `.kafka_cleanshutdown` last."""

@final
class LogRead:
    """Rows of log files, chosen once; `kafkalite.client.arrow` is its face."""

    def __new__(
        cls,
        paths: Sequence[str],
        *,
        topic: str | None,
        start: int | None,
        start_by_partition: Mapping[str, int],
        stop: int | None,
        stop_by_partition: Mapping[str, int],
        columns: Sequence[str] | None,
        isolation: str,
        batch_rows: int,
        batch_bytes: int,
    ) -> LogRead: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule `arrow_array_stream`; its batches are built without the GIL."""

    def __arrow_c_schema__(self) -> object:
        """A capsule `arrow_schema`."""

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and Arrow type of each column."""

    @property
    def ranges(self) -> list[tuple[str, int, int, int]]:
        """Topic, partition, start and stop of each range of offsets."""
