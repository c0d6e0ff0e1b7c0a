"""The names of the compiled half, and what they mean. `rust/src/lib.rs` is the same list.

Every function may raise a class of `kafkalite.errors`. Work and waiting happen without the GIL.
"""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, final

from typing_extensions import disjoint_base

__all__ = [
    "ASSIGNMENTS_NUMBER",
    "ISR_CHANGES_NUMBER",
    "LEAVE_NUMBER",
    "OUTBOUND_ANSWERS_NUMBER",
    "STOP_NUMBER",
    "AbortedTransaction",
    "AppendInfo",
    "ArrowEncoder",
    "ArrowServer",
    "BatchBuilder",
    "BrokerCore",
    "ClaimedDirectories",
    "FetchRead",
    "Figures",
    "Leaders",
    "LoadRecords",
    "LoadedLog",
    "Log",
    "LogDirectory",
    "LogForTests",
    "LogOffsets",
    "LogRead",
    "LogVerification",
    "Logs",
    "MessageCodec",
    "MoveRequest",
    "Moves",
    "Outbound",
    "PartitionFigures",
    "ProducerEntries",
    "ProducerEntry",
    "Re2",
    "RecordAccumulator",
    "RecordBatch",
    "Request",
    "Requests",
    "SegmentBatches",
    "SegmentInfo",
    "Topics",
    "__version__",
    "count_fetched",
    "end_transaction_marker",
    "fetched_end",
    "fetched_tail",
    "java_hash_code",
    "log_file_kind",
    "message_layout",
    "message_versions",
    "partition_for_key",
    "position_of_offset",
    "random_uuid",
    "random_uuid_bytes",
    "read_batches",
    "read_fetched",
    "read_log_file",
    "release",
    "stamp_producer",
]

__version__: Final[str]

# `Requests.wait` gives these numbers, beside those of calls, which are above STOP_NUMBER and below
# the others: `rust/src/replica/wake_numbers.rs`.
STOP_NUMBER: Final[int]
"""The broker begins to stop."""
OUTBOUND_ANSWERS_NUMBER: Final[int]
"""`Outbound.poll` has answers."""
LEAVE_NUMBER: Final[int]
"""The controlled shutdown begins."""
ISR_CHANGES_NUMBER: Final[int]
"""`Leaders.take_changes` has changes."""
ASSIGNMENTS_NUMBER: Final[int]
"""`Moves.take_assignments` has assignments."""

# A log's files, read as they lie. Names of fields are those that Kafka's DumpLogSegments prints.

def log_file_kind(name: str) -> str | None:
    """Names the kind of a file, by its name alone: "segment", "offset index", "time index",
    "transaction index", "producer snapshot", "leader epoch checkpoint", "partition metadata",
    "offset checkpoint", "meta.properties", "metadata snapshot"; `None` for any other name."""

def position_of_offset(path: str | PathLike[str], offset: int) -> int:
    """Where in a segment's file the first batch starts that holds `offset` or what follows it, in
    bytes. Headers alone are read; what cannot be read ends the search."""

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

def release(messages: list[Any]) -> None:
    """Empties a list of messages, whose elements go one after the other, and lets others have the
    GIL meanwhile: for a thread beside the control thread. What somebody else has stays."""

def java_hash_code(text: str) -> int:
    """Java's `String.hashCode`, its 32 bits as they are without a sign."""

def message_versions(name: str) -> tuple[int | None, int, int, int | None]:
    """API key or None, lowest and highest version, first flexible version or None."""

@final
class Re2:
    """A regular expression of RE2, bounded in size. To compile one may take half a second, and to
    match a text one: both let others have the GIL, and are for a thread beside the control thread.
    """

    @staticmethod
    def compile(pattern: str) -> Re2 | None:
        """`None` for one that RE2 refuses, or that is beyond the bounds (rust/src/re2.rs)."""

    def matches(self, texts: list[str]) -> list[bool]:
        """True for each text that matches as a whole. Time grows with the product of the pattern
        and of their lengths."""

@final
class MessageCodec:
    """A class of `kafkalite.protocol.messages`: what fills, reads and writes its objects."""

    def __new__(
        cls,
        class_: type[Any],
        name: str,
        is_message: bool,
        fields: Sequence[tuple[str, Any, MessageCodec | None]],
    ) -> MessageCodec:
        """`fields` as in `message_layout`, with codecs in place of layouts. The class of a struct
        is no message, and is filled only."""

    def fill(self, object: Any, given: dict[str, Any]) -> None:  # noqa: A002
        """Sets all fields of a new object, to what is given or else to their defaults. Raises
        TypeError for a field that there is not."""

    def decode(self, body: bytes, version: int) -> Any:
        """An object of the class."""

    def encode(self, object: Any, version: int) -> bytes:  # noqa: A002
        """The body of its message. The object, and every struct in it, may be a tuple of the fields
        in the table's order; what follows those in it is left alone."""

def random_uuid() -> str:
    """A new id as Kafka writes them: 22 characters of base64url."""

def random_uuid_bytes() -> bytes:
    """A new id, 16 bytes."""

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
    def listener_name(self) -> str:
        """Its name, as in `listeners`."""

    @property
    def principal(self) -> str:
        """The client's principal, as Kafka writes it: `User:ANONYMOUS`."""

    @property
    def peer(self) -> str:
        """The client's address and port, `127.0.0.1:40000`."""

    @property
    def client_host(self) -> str:
        """The client's address as Java prints it, `0:0:0:0:0:0:0:1`: as ACLs and groups have it."""

    @property
    def security_protocol(self) -> str:
        """The security protocol of the listener, `PLAINTEXT`."""

    @property
    def is_connected(self) -> bool:
        """False once the connection is known to be closed: nobody reads the answer. Any thread may
        ask."""

    @property
    def is_internal(self) -> bool:
        """A question of the broker's own: may a transaction's batches be appended? It is answered
        by `respond_verified`."""

    def decode(self, kind: type[Any]) -> Any | None:
        """Decodes the body as an object of the class of its message; None of a large request, which
        `decode_large` is for."""

    def decode_large(self, kind: type[Any]) -> Any:
        """Decodes a large body, once, and lets others have the GIL meanwhile: for a thread beside
        the control thread. Its elements count as memory of requests before they are made, until
        nobody refers to the request. Raises MalformedRequestError where they are too many."""

class _PartitionFacts(Protocol):
    """`kafkalite.metadata.image.PartitionImage`. Directories are ids of 16 bytes, one a replica."""

    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def replicas(self) -> Sequence[int]: ...
    @property
    def isr(self) -> Sequence[int]: ...
    @property
    def directories(self) -> Sequence[bytes]: ...

class _TopicState(Protocol):
    """`kafkalite.metadata.publisher.TopicState`; its partitions by index."""

    @property
    def id(self) -> bytes: ...
    @property
    def is_internal(self) -> bool: ...
    @property
    def configs(self) -> Mapping[str, str]: ...
    @property
    def partitions(self) -> Sequence[_PartitionFacts]: ...

_Broker: TypeAlias = tuple[int, str | None, Sequence[tuple[str, int] | None]]
# Id, rack, and host and port for each listener of this node that the broker has.

class _RegisteredBroker(Protocol):
    """`kafkalite.metadata.publisher.RegisteredBroker`."""

    @property
    def id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def is_fenced(self) -> bool: ...
    @property
    def in_controlled_shutdown(self) -> bool: ...
    @property
    def rack(self) -> str | None: ...
    @property
    def address(self) -> tuple[str, int] | None: ...

@final
class ClaimedDirectories:
    """A node's log directories before their logs are loaded; `BrokerCore` takes them over."""

    def __new__(
        cls,
        *,
        node_id: int,
        cluster_id: str,
        log_dirs: Sequence[str],
        metadata_dir: str,
        recovery_threads: int,
        flush_threads: int,
        open_segments: int,
    ) -> ClaimedDirectories:
        """Locks them, and formats those that are empty. Those of Kafka's are not changed."""

    @property
    def directories(self) -> list[tuple[Path, bytes, bool, int | None]]:
        """Path, id, whether the last stop was a clean one, the broker epoch that it left behind."""

    @property
    def progress(self) -> tuple[int, int]:
        """How many logs `BrokerCore` has loaded so far, and the bytes of them recovered."""

    def stop_loading(self) -> None:
        """Has `BrokerCore` give up loading the logs: it raises LoadStoppedError then, unless they
        are loaded."""

    def open_metadata_log(self, configs: Mapping[str, str]) -> tuple[Log, list[str]]:
        """Opens or makes `__cluster_metadata-0`, and cuts off what a kill has left at its end.
        Returns also what was repaired, a sentence each."""

    def place(self, count: int) -> list[bytes]:
        """Ids of the directories where `count` new partitions go."""

    def find_partition(self, topic: str, topic_id: bytes, partition: int) -> bytes | None:
        """The id of the directory in which the partition lies."""

class _ConnectionLimits(Protocol):
    """`kafkalite.listeners.ConnectionLimits`."""

    @property
    def total(self) -> int: ...
    @property
    def by_listener(self) -> list[int]: ...
    @property
    def rate(self) -> int: ...
    @property
    def rate_by_listener(self) -> list[int]: ...
    @property
    def per_address(self) -> int: ...
    @property
    def by_address(self) -> Mapping[str, int]: ...

class _CleanerSettings(Protocol):
    """`kafkalite.broker.CleanerSettings`."""

    @property
    def dedupe_buffer_bytes(self) -> int: ...
    @property
    def load_factor(self) -> float: ...
    @property
    def backoff_ms(self) -> int: ...

@final
class BrokerCore:
    """One node: its log directories, and from `start` to `stop` its network threads."""

    def __new__(
        cls,
        *,
        claimed: ClaimedDirectories,
        topics: Mapping[str, _TopicState],
        settings: Mapping[str, int],
        cleaner: _CleanerSettings,
    ) -> BrokerCore:
        """Takes over the log directories and loads the logs of `topics`; makes those that are
        missing. `settings` are the broker's integers and flags by their keys."""

    @property
    def requests(self) -> Requests: ...
    @property
    def logs(self) -> Logs: ...
    @property
    def leaders(self) -> Leaders: ...
    @property
    def moves(self) -> Moves: ...
    @property
    def topics(self) -> Topics: ...
    @property
    def repairs(self) -> list[str]:
        """Repairs at the start, a sentence each."""

    @property
    def lost(self) -> list[tuple[str, int]]:
        """Topic and index of each partition that lacks records which were on disk before, or had no
        log at all."""

    @property
    def unmade(self) -> list[tuple[str, int]]:
        """Topic and index of each partition whose log could not be made, and that is offline."""

    @property
    def moved(self) -> list[tuple[bytes, int, bytes]]:
        """Topic id and index of each partition that lay in another directory than `topics` said,
        and the id of that directory."""

    @property
    def cluster_id(self) -> str:
        """The cluster id in the log directories."""

    @staticmethod
    def native_keys() -> dict[int, str]:
        """The api keys that Rust answers, with their names."""

    def serve_arrow(self, listener: int, idle_ms_max: int) -> ArrowServer:
        """Serves ranges of this node's logs as Arrow on a listening socket, whose descriptor this
        takes over. A connection that is idle for longer is closed; negative never."""

    def start(
        self,
        listeners: Sequence[int],
        control_keys: Sequence[tuple[int, int, int, int, int]],
        *,
        names: Sequence[str],
        limits: _ConnectionLimits,
        registration: tuple[int, int] | None = None,
    ) -> None:
        """Serves clients from now on. `listeners` are descriptors of listening sockets, given away;
        `control_keys` (key, lowest advertised, lowest, highest, first flexible version) of the keys
        that Python answers; `names` those of the listeners, `limits` those of their
        connections. A broker among others gives its `registration`: its broker epoch and the place
        of its inter-broker listener, by which its replicas follow their leaders."""

    def set_connection_limits(self, limits: _ConnectionLimits) -> None:
        """Limits of connections from now on. Those that wait for room are looked at again; while
        there are more than `total`, those that have been used least recently are closed."""

    def set_cleaner(self, cleaner: _CleanerSettings) -> None:
        """How the cleaners work from now on; a log that is being compacted ends as it began."""

    def set_replication_throttles(self, leader_rate: int, follower_rate: int) -> None:
        """Bytes a second that go to throttled replicas, and come to them, from now on at most;
        2**63 - 1 is no bound."""

    def begin_controlled_shutdown(self) -> None:
        """The broker is about to stop: replicas that the controller takes out of the in-sync ones
        from now on are fetched no more."""

    def offline_log_dirs(self) -> list[str]:
        """The log directories that could not be taken, or have failed since."""

    def figures(self) -> Figures:
        """Counts and sizes of the node, from `start` on."""

    def stop(self) -> None:
        """Takes no more requests, has parked ones answered, ends the network threads. Another
        thread must answer Python's requests meanwhile. At most some seconds."""

    def close(self, broker_epoch: int) -> list[tuple[str, str]]:
        """The clean stop of the log directories, after `stop`: `.kafka_cleanshutdown` last. Returns
        those that could not be stopped cleanly, each with the first reason."""

@final
class Requests:
    """The requests of one node that Python answers, and what else its control thread comes for."""

    def wait(
        self, timeout_ms: int | None = None
    ) -> tuple[list[Request], list[int], tuple[list[str], list[str]] | None] | None:
        """Requests for Python, the numbers that may go on, and sentences for the log if there are
        any: errors of ours, warnings of what clients do. Blocks until there is something, at most
        `timeout_ms`. None after `stop`. Asks the logs before. Of two threads
        that call it one waits until the other is stuck in a log directory, and then gets what there
        is at once."""

    def wake(self, number: int) -> None:
        """Has `wait` give `number`. Any thread may call it."""

    def hold(self, bytes: int) -> None:  # noqa: A002 - what they are
        """Counts bytes as memory that requests take (`queued.max.request.bytes`); less than none
        gives so many back. The requests themselves count until nobody refers to them."""

    def may(self, request: Request, operation: int, kind: int, name: str | None = None) -> bool:
        """Says whether the client of a request may do an operation to a resource
        (`kafkalite.access`); without a name to the cluster, or to some topic."""

    def operations(self, request: Request, kind: int, name: str | None = None) -> int:
        """The operations that the client may do to a resource, a bit each (KIP-430)."""

    def respond(self, request: Request, response: Any) -> bool:
        """Answers with a message, in the request's version. True if it has not, since the answer is
        large, which `respond_large` is for."""

    def has_room(self) -> bool:
        """Says whether a large answer may be written now; else `wait_for_room` comes first."""

    def wait_for_room(self) -> None:
        """Blocks as long as memory is short and large answers are on their way to their clients:
        for a thread beside the control thread."""

    def respond_large(self, request: Request, response: list[Any]) -> None:
        """Answers with a large message, taken out of its list, and lets others have the GIL
        meanwhile: for a thread beside the control thread. An element that nobody else has is gone
        when it is written."""

    def gather_answers(self) -> None:
        """Holds answers back until `send_answers`, or until there are some, so that the network
        threads wake for several at once. Nothing that takes long is to come before that."""

    def send_answers(self) -> None:
        """The answers leave that were held back."""

    def answer_again(self, request: Request) -> None:
        """Has a Metadata request answered by Rust, its topics being there now."""

    def respond_verified(self, request: Request, codes: Sequence[int]) -> None:
        """Answers a question of the broker's own: a code for each partition, in their order."""

    def close_connection(self, request: Request) -> None:
        """Closes the connection of a request that cannot be answered."""

    def forwarded(self, request: Request, body: bytes | None = None) -> bytes:
        """The request as the client has sent it, header and body; or with another body, of the same
        version."""

    def respond_forwarded(self, request: Request, answer: bytes) -> None:
        """Answers a request by the bytes, header and body, that another has answered it with."""

@final
class Outbound:
    """Connections that this broker opens itself, to controllers, one a purpose."""

    def __new__(cls, client_id: str) -> Outbound: ...
    def call(
        self,
        number: int,
        purpose: str,
        address: tuple[str, int],
        api_key: int,
        api_version: int,
        body: bytes,
        timeout_ms: int,
    ) -> None:
        """Has a request of a flexible version sent, behind those of the same purpose."""

    def wait(self, timeout_ms: int) -> list[tuple[int, bytes | None, str | None]]:
        """Waits until there are answers, at most so long, and takes them: the number of the call,
        and the bytes behind the header of its answer, or why there is none."""

    def wake_by(self, requests: Requests, number: int) -> None:
        """From now on answers wake the control thread by `number`, which takes them by `wait`."""

@final
class Logs:
    """Calls of one node's logs. Each has a number that nobody else has; `Requests.wait` makes the
    calls, and gives the number once the answer is there, late where a log directory does not
    answer."""

    def ask(self, number: int, topic: str, partition: int, call: str, *arguments: Any) -> None:
        """Asks the log of a partition, in the order of the calls. Raises InvalidArgumentError where
        there is none. The calls, and their answers:

        `append`, batches of a coordinator, with the version of the transactions that markers among
        them end, and the leader epoch in which they were decided, None for any: the offset of the
        first record, once all are committed;
        `delete_records`, those below an offset: the low watermark, once no replica that lives has
        them any more;
        `describe_producers`: ProducerEntries;
        `has_open_transaction`, of a producer id: true or false."""

    def answer(self, number: int) -> Any:
        """The answer to a call, or its error; once."""

    def make(self, topics: Mapping[str, _TopicState], number: int) -> None:
        """Makes the logs that topics lack. They survive a power cut then: all of them, or none is
        there. The answer is None, as of the following."""

    def make_each(self, topics: Mapping[str, _TopicState], number: int) -> None:
        """As `make`, but as many as can be made: the answer is the first failure. Those of a log
        directory that has failed are not asked for."""

    def delete(self, names: Sequence[str], number: int) -> None:
        """Takes topics away at once, and wakes requests that wait there; deletes their logs, with
        one sync of each log directory. Where the answer is an error, a log directory in which logs
        are left is offline."""

    def append_metadata(
        self, log: Log, batches: Sequence[bytes], leader_epoch: int, number: int
    ) -> None:
        """Appends batches to the log of the metadata, and makes them durable. Where the answer is
        an error, those before the one that failed are in the log."""

    def finish_metadata(self) -> None:
        """Returns once what `append_metadata` was given is on disk, or is known not to be, however
        long that takes. After `stop`, when nobody calls `wait` any more."""

    def is_held_up(self, topic: str, partition: int) -> bool:
        """The log directory of a partition does not answer, and requests that wait take so much of
        their memory that no more may wait for it."""

    def is_change_held_up(self) -> bool:
        """Logs are being made or deleted, or the metadata is being written, in a directory that
        does not answer, and requests that wait take so much of their memory that no more may wait
        for it."""

    def find(self, topic: str, partition: int) -> Log | None:
        """The log of a partition, if there is one."""

@final
class Leaders:
    """In-sync replicas of the partitions that this node leads. A change is named by its topic id,
    partition and number."""

    def take_changes(self) -> list[tuple[bytes, int, int, int, int, list[tuple[int, int]]]]:
        """Takes what leaders propose: topic id, partition, number, leader epoch, partition epoch,
        and the brokers that are to be in sync, each with its epoch."""

    def accept(
        self,
        change: tuple[bytes, int, int],
        leader_epoch: int,
        partition_epoch: int,
        in_sync_replicas: Sequence[int],
    ) -> None:
        """The controller has carried out a change, and says what holds now."""

    def refuse(self, change: tuple[bytes, int, int]) -> None:
        """The controller will not carry out a change."""

    def retry(self, change: tuple[bytes, int, int]) -> None:
        """A change is to be asked for again, if its leader still wants it."""

    def sweep(self) -> None:
        """Has followers that are not caught up leave the in-sync replicas. Every half of
        `replica.lag.time.max.ms`."""

@final
class Moves:
    """Moves of this node's replicas between its log directories."""

    def request(self) -> MoveRequest:
        """A request to move replicas, of which nothing has begun."""

    def take_assignments(self) -> list[tuple[bytes, int, bytes]]:
        """Takes what the controller is to be told: topic id, partition, id of the log directory."""

    def futures(self) -> list[tuple[str, int, Path, int, int]]:
        """Topic and index of each future replica, the path of its log directory, its bytes, and how
        many offsets it lacks; -1 where the replica is offline."""

    def directory_id(self, path: str) -> bytes | None:
        """The id of the log directory at a path, if it is in use."""

    def set_rate(self, rate_bytes: int) -> None:
        """Bytes a second that all moves together may copy from now on."""

@final
class MoveRequest:
    """One request to move replicas, begun on a thread and answered on another."""

    def begin(self, topic: str, partition: int, path: str) -> bool:
        """Begins to move a replica into a log directory, or does nothing where it lies there, but
        end another move of it. Waits for disks. Returns false, once the request is answered."""

    def answer(self) -> list[tuple[str, int, int, str]]:
        """Topic, index, error code and a sentence of each partition that was looked at. No move of
        the others begins after this."""

@final
class Topics:
    """Where the partitions of one node's topics go, and what clients see of topics."""

    def place(self, count: int) -> list[bytes]:
        """Ids of the log directories where `count` new partitions go: not into one whose writes
        have not returned for two seconds, while there is another."""

    def publish(self, topics: Mapping[str, _TopicState]) -> None:
        """Has clients see topics as they are now, whose logs have been made. Logs of partitions
        that name other nodes only by now are deleted by the next `Requests.wait`."""

    def set_brokers(
        self, brokers: Sequence[_Broker], registered: Sequence[_RegisteredBroker]
    ) -> None:
        """Has clients told of these brokers, all that are alive; and leaders judge their followers
        by all that are registered."""

    def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Gives the logs of a topic another configuration (`Config.engine_configs`)."""

    def set_features(
        self,
        supported: Sequence[tuple[str, int, int]],
        finalized: Sequence[tuple[str, int]],
        epoch: int,
        forwarded: Sequence[tuple[int, int, int]],
    ) -> None:
        """Sets what ApiVersions tells: features as (name, lowest, highest level), (name, level),
        and up to which offset of the metadata that is so; and (key, lowest, highest version) of the
        keys that the active controller answers."""

@final
class Figures:
    """Counts and sizes of a broker at this moment, read out of memory. Any thread may ask."""

    def counts(self) -> dict[str, int]:
        """Counters and gauges of the broker as a whole (`kafkalite.metrics.COUNTS`)."""

    def requests(self) -> dict[int, int]:
        """Requests begun, by their key; those that have not come are left out."""

    def partitions(self) -> list[PartitionFigures]:
        """Each partition whose log directory is in use, in no order."""

    def waiting(self) -> tuple[int, int]:
        """Requests that wait for their records to be committed, and for records to come."""

    def flushes(self) -> list[tuple[Path, int, float]]:
        """Path of each log directory in use, how many flushes have ended there, and the seconds
        that they have taken together."""

@final
class PartitionFigures:
    """A partition's log at this moment; what has gone in and out counts since it was opened."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """Bytes of its segments."""

    @property
    def segments(self) -> int: ...
    @property
    def appended_records(self) -> int: ...
    @property
    def appended_bytes(self) -> int: ...
    @property
    def replicated_bytes(self) -> int:
        """Bytes that came from leaders, and are not among those that were appended."""

    @property
    def fetched_bytes(self) -> int: ...
    @property
    def committed_cuts(self) -> int:
        """How often it was cut below its high watermark."""

    @property
    def lag(self) -> int | None:
        """Offsets that its leader has committed and it lacks; None where it does not follow."""

class _OffsetOfTime(Protocol):
    """The offset of the first record at or after a time; the log's end, if there is none."""

    @property
    def timestamp_ms(self) -> int: ...

@final
class LogRead:
    """Rows of log files, chosen once; `kafkalite.client.arrow.records` is its face.

    `schema`, which has `__arrow_c_schema__`, is the rows' schema, exactly: any subset of the
    columns, in any order; `columns` are chosen from it. `formats` says what keys and values are:
    `rust/src/arrow/formats.rs`. In place of it, `key_schema` and `value_schema` have the fields of
    typed keys and values."""

    def __new__(
        cls,
        paths: Sequence[str],
        *,
        topic: str | None,
        start: int | _OffsetOfTime | None,
        start_by_partition: Mapping[str, int | _OffsetOfTime],
        stop: int | _OffsetOfTime | None,
        stop_by_partition: Mapping[str, int | _OffsetOfTime],
        columns: Sequence[str] | None,
        isolation: str,
        batch_rows: int,
        batch_bytes: int,
        schema: object | None = None,
        key_schema: object | None = None,
        value_schema: object | None = None,
        formats: Mapping[str, str] | None = None,
    ) -> LogRead:
        """Raises `InvalidArgumentError` for columns, options and offsets that there are not."""

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

@final
class FetchRead:
    """Rows that brokers send; `kafkalite.client.arrow.wire` is its face. `open` is called once a
    stream; its result has `next_chunk()`, which gives topic, partition, records, start, stop and
    aborted transactions (producer id, first offset) of one fetch, or None after the last, and
    `close()`."""

    def __new__(
        cls,
        open: Callable[[], Any],  # noqa: A002
        *,
        ranges: Sequence[tuple[str, int, int, int]],
        columns: Sequence[str] | None,
        batch_rows: int,
        batch_bytes: int,
        schema: object | None = None,
        key_schema: object | None = None,
        value_schema: object | None = None,
        formats: Mapping[str, str] | None = None,
    ) -> FetchRead:
        """Raises `InvalidArgumentError` for columns and options that there are not."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule `arrow_array_stream`."""

    def __arrow_c_schema__(self) -> object:
        """A capsule `arrow_schema`."""

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and Arrow type of each column."""

    @property
    def ranges(self) -> list[tuple[str, int, int, int]]:
        """As given."""

@final
class ArrowServer:
    """An Arrow endpoint (docs/ARROW_ENDPOINT.md) with threads of its own, none of which needs the
    GIL but where they ask Python. It serves until `stop` or the last reference.

    `open(topic, partition, start, stop, isolation, bootstrap_servers, client, fail_on_data_loss)`
    gives what `FetchRead`'s does; `answer(request)` answers JSON with JSON; both are called on
    several threads at a time, and raise what becomes a sentence. Partitions below `roots` are read
    by Rust if a request names no brokers."""

    def __new__(
        cls,
        listener: int,
        *,
        open: Callable[..., Any],  # noqa: A002
        answer: Callable[[bytes], bytes],
        roots: Sequence[str],
        any_path: bool,
        idle_ms_max: int,
        secret: str | None = None,
    ) -> ArrowServer:
        """Takes the descriptor of a listening socket over. Connections that are idle for longer are
        closed; negative never. Requests without the secret, if there is one, are refused."""

    @property
    def connections(self) -> int:
        """The number of open connections."""

    def stop(self) -> bool:
        """Takes no more clients, cuts answers off with a sentence, ends the threads. Returns
        whether all have ended in time."""

# The log engine and record batches.

@disjoint_base
class Log:
    """The log of one partition. Times are milliseconds since 1970."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def directory(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def is_offline(self) -> bool:
        """The log directory has failed: no record is taken any more."""
    @property
    def is_settled(self) -> bool:
        """Nothing is being appended, as by a role of before."""
    def settle(self) -> None:
        """Waits until nothing is: an append that is under way ends as it began."""
    @property
    def offsets(self) -> LogOffsets: ...
    def append(
        self,
        records: bytes,
        *,
        now_ms: int,
        origin: Literal["client", "coordinator", "replication"] = "client",
        leader_epoch: int = 0,
        transaction_version: int | None = None,
    ) -> AppendInfo:
        """Appends a batch (of a follower: batches). It is in the page cache when this returns and
        durable once `offsets.flushed_offset` is past it. A refusal changes nothing."""
    def read(
        self,
        offset: int,
        max_bytes: int = ...,
        isolation: Literal["log_end", "read_uncommitted", "read_committed"] = "log_end",
    ) -> bytes:
        """Batches of one segment from that of `offset` on, 1 MiB unless said otherwise; the first
        one whole, the last one maybe cut. Raises `OffsetOutOfRangeError` outside the log."""
    def flush(self) -> None:
        """After it returns, everything appended before survives a power cut."""
    def close(self) -> None:
        """Puts everything on disk as a clean stop leaves it; appends are refused from here on."""
    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Cuts everything from `offset` on; False if nothing was there."""
    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Removes all records: the log is empty, and goes on at `offset`."""
    def advance_log_start_offset(self, offset: int) -> int:
        """Records below are no longer there (DeleteRecords). Returns the log start offset."""
    def delete_old_segments(self, *, now_ms: int) -> int:
        """Removes what retention or the log start offset let go; returns how many segments."""
    def delete_due_files(self, *, now_ms: int) -> int:
        """Unlinks `.deleted` files after `file.delete.delay.ms`; returns how many segments."""
    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The largest epoch at or below `epoch`, and the offset behind its last record
        (`LeaderEpochFileCache.endOffsetFor`); None where Kafka answers -1."""
    def segments(self) -> list[SegmentInfo]:
        """Oldest first."""

@final
class LogOffsets:
    """The numbers of a log; see `LogOffsets` in rust/src/log/state/ends.rs."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def flushed_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...

@final
class AppendInfo:
    """The outcome of an append."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def log_append_time_ms(self) -> int:
        """-1 unless `message.timestamp.type=LogAppendTime` (or for a duplicate)."""
    @property
    def log_start_offset(self) -> int: ...
    @property
    def is_duplicate(self) -> bool:
        """The batch was in the log already; the offsets are those of the first time."""

@final
class ProducerEntry:
    """A log's state of one producer; -1 stands for none, as in Kafka."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def coordinator_epoch(self) -> int: ...
    @property
    def last_timestamp(self) -> int: ...
    @property
    def current_transaction_first_offset(self) -> int | None: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def last_offset(self) -> int: ...

@final
class ProducerEntries:
    """Gives the states of a log's producers once, by producer id; each is made when it is taken."""

    def __iter__(self) -> ProducerEntries: ...
    def __next__(self) -> ProducerEntry: ...

@final
class SegmentInfo:
    """One segment; `next_offset` follows its last record."""

    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...

@final
class BatchBuilder:
    """Collects records and makes one batch of magic 2: for tests and tools."""

    def __new__(
        cls,
        codec: str = "none",
        *,
        level: int | None = None,
        base_offset: int = 0,
        leader_epoch: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        base_sequence: int = ...,
        transactional: bool = False,
        control: bool = False,
        log_append_time_ms: int | None = None,
        delete_horizon_ms: int | None = None,
    ) -> BatchBuilder:
        """Ids, epoch and sequence are -1, none, unless they are given."""
    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[bytes, bytes | None]] = ...,
    ) -> int:
        """Returns `size_bytes`."""

    def extend(self, timestamp: int, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Appends keys and values, all of one time."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the batch so far, before compression; 0 once it is finished."""
    @property
    def records_count(self) -> int:
        """Records of the batch so far; 0 once it is finished."""
    def finish(self) -> bytes:
        """The batch. The builder is of no use afterwards."""

@final
class RecordAccumulator:
    """The open batches of a producer, one a partition. Each call is whole for other threads, for
    handlers of signals and for `fork`; only `append` may be made without the producer's lock."""

    def __new__(
        cls,
        codec: str,
        *,
        level: int | None,
        transactional: bool,
        linger_s: float,
        batch_bytes: int,
        buffer_bytes: int,
    ) -> RecordAccumulator: ...
    def append(
        self,
        topic: object,
        value: object,
        key: object,
        headers: object,
        partition: object,
        timestamp_ms: object,
        on_delivery: object,
        opens: bool = False,
        /,
    ) -> int:
        """Puts a record into the open batch of its partition: the one given, that of the key among
        those that `learn` was told of, or the sticky one. `opens` one where there is none.

        Returns 0: it was put there; 1: it was, and some batch is due; 2: it was not. No batch is
        open for it, or has room, or more than `buffer_bytes` are under way (`opens` looks at
        neither that nor at its size), or an argument is not as `send` wants it.
        """
    def learn(self, topic: str, partition_count: int) -> None:
        """Notes how many partitions the topic has."""
    def stick(self, topic: str, partition: int) -> None:
        """Has its records without a key go there until that batch is closed."""
    def sticky(self, topic: str) -> int | None:
        """Where they go."""
    def close(
        self, topic: str, partition: int
    ) -> tuple[BatchBuilder, list[tuple[int, Callable[..., None]]]] | None:
        """Takes the open batch, if there is one, with the callbacks of its records by number."""
    def opened(self) -> list[tuple[str, int]]:
        """The partitions that have an open batch, the oldest first."""
    def due(self) -> list[tuple[str, int]]:
        """The partitions whose batch is full, or as old as `linger_s`."""
    @property
    def seconds_until_due(self) -> float:
        """Time until the first of them is due; infinite where none is open."""
    @property
    def open_count(self) -> int:
        """Open batches."""
    @property
    def open_bytes(self) -> int:
        """Bytes of all of them."""
    @property
    def batch_bytes(self) -> int:
        """Bytes that a batch may have."""
    @property
    def closed_bytes(self) -> int:
        """Bytes of the closed batches that are under way, as the owner has said."""
    @closed_bytes.setter
    def closed_bytes(self, count: int) -> None: ...

def end_transaction_marker(
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int = 0,
) -> bytes:
    """The control batch that ends a transaction; append it with the origin `coordinator`."""

@final
class RecordBatch:
    """A batch of any magic, taken apart."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def magic(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def codec(self) -> str: ...
    @property
    def timestamp_type(self) -> int:
        """0: CreateTime, 1: LogAppendTime."""
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def delete_horizon_ms(self) -> int | None: ...
    @property
    def records(
        self,
    ) -> tuple[
        tuple[int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]], ...
    ]:
        """Offset, timestamp, key, value, headers of each record."""

def read_batches(records: bytes, *, stop_at_corrupt: bool = False) -> list[RecordBatch]:
    """The whole batches at the start of `records`, their CRCs checked. `stop_at_corrupt` ends the
    list before a batch that cannot be read, in place of an error.

    Raises `CorruptMessageError`, `InvalidRecordError`, `UnsupportedCompressionTypeError`.
    """

# What the client leaves to Rust.

def read_fetched(
    records: bytes, start: int, aborted: Sequence[tuple[int, int]] = ...
) -> tuple[
    list[tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]],
    int,
]:
    """Offset, timestamp, timestamp type, key, value and headers of each record from the fetch
    offset `start` on, and where the next fetch begins. `aborted`: producer id and first offset of
    each aborted transaction in it.

    Raises `CorruptMessageError`, `InvalidRecordError`, `UnsupportedCompressionTypeError`."""

def count_fetched(
    records: bytes, start: int, aborted: Sequence[tuple[int, int]] = ...
) -> tuple[int, int, int]:
    """As `read_fetched`: number of records, bytes of their keys and values, next offset."""

def fetched_end(records: bytes, start: int) -> int:
    """Where the next fetch begins, by the headers of the batches alone."""

def fetched_tail(records: bytes, start: int) -> tuple[int, int]:
    """As `fetched_end`, and the leader epoch of the last whole batch, -1 if there is none."""

def stamp_producer(
    batch: bytes, producer_id: int, producer_epoch: int, base_sequence: int
) -> bytes:
    """The batch as one of an idempotent producer."""

def partition_for_key(key: bytes, partition_count: int) -> int:
    """Where Kafka's default partitioner puts the key."""

@final
class LoadRecords:
    """An endless sequence of records without meaning: `record_size` random letters each, one of
    `payloads`, or, without either, a number that counts up."""

    def __new__(
        cls, *, record_size: int | None = None, payloads: Sequence[bytes] | None = None
    ) -> LoadRecords: ...
    def fill(
        self, builder: BatchBuilder, timestamp: int, records_max: int, batch_bytes: int
    ) -> tuple[int, int]:
        """Appends up to so many records, or until the batch has so many bytes, but at least one.
        Returns their number and the bytes of their values."""

@final
class ArrowEncoder:
    """Rows of Arrow data as batches for Produce (`rust/src/client/from_arrow.rs` has the columns).
    After an error it must not be used any more.

    `topic` goes before the column of that name. `batch_bytes`, `record_bytes_max` and
    `open_bytes_max` are Kafka's `batch.size`, `max.request.size` and `buffer.memory`; `seed` is
    where the choice of partitions for rows without a key begins. Raises `InvalidArgumentError`.
    """

    def __new__(
        cls,
        topic: str | None,
        *,
        codec: str,
        level: int | None,
        batch_bytes: int,
        record_bytes_max: int,
        open_bytes_max: int,
        transactional: bool,
        seed: int,
    ) -> ArrowEncoder: ...
    def open(self, rows: object) -> None:
        """Takes anything with `__arrow_c_array__` or `__arrow_c_stream__`."""

    def load(self) -> list[str] | None:
        """Takes the next Arrow batch: the topics that `set_topic` has to describe first; None after
        the last one."""

    def set_topic(self, name: str, partition_count: int, available: list[int]) -> None:
        """Says how many partitions a topic has, and which of them have a leader."""

    def encode(self, now_ms: int) -> tuple[list[tuple[str, int, bytes, int]], bool]:
        """Topic, partition, batch, number of its records, of each batch that became full; and
        whether the Arrow batch has rows left. Rows without a timestamp get `now_ms`."""

    def finish(self) -> list[tuple[str, int, bytes, int]]:
        """The batches that were still open."""

# The log engine for tests and benchmarks alone: no product code names these
# (`rust/src/py/engine_for_tests.rs`).

@final
class LogDirectory:
    """A log directory in use: the lock is held until `close`, `abandon` or the last reference."""

    @staticmethod
    def open(
        path: str | PathLike[str],
        *,
        now_ms: int,
        cluster_id: str | None = None,
        node_id: int | None = None,
        directory_id: str | None = None,
        config: Mapping[str, str] | None = None,
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
        recovery_threads: int = 1,
    ) -> LogDirectory:
        """Takes the directory, formats it if it is empty, loads its logs.

        An id that is given must be the directory's own; formatting needs all three. `config` and
        `topic_configs` hold Kafka's names to Kafka's words, the latter over the former. Raises
        `LogDirRefusedError`, `LogDirLockedError`, `CorruptFileError`, each before a change.
        """
    @property
    def path(self) -> str: ...
    @property
    def directory_id(self) -> str | None: ...
    @property
    def was_clean(self) -> bool:
        """True if the last process that used the directory stopped cleanly."""
    @property
    def previous_broker_epoch(self) -> int | None:
        """The epoch that a clean stop left behind (KIP-966)."""
    @property
    def loaded(self) -> list[LoadedLog]:
        """Repairs and reads to load each log, by topic and partition."""
    def create_log(
        self,
        topic: str,
        partition: int,
        topic_id: str,
        *,
        now_ms: int,
        config: Mapping[str, str] | None = None,
    ) -> LogForTests:
        """Makes an empty log; after it returns, the partition survives a power cut. `config` goes
        over that of the directory. Raises `InvalidArgumentError` if it is there already."""
    def log(self, topic: str, partition: int) -> LogForTests | None: ...
    def logs(self) -> list[LogForTests]: ...
    def write_checkpoints(self) -> None:
        """Moves recovery points up to the active segments and writes the checkpoint files."""
    def clean_dirtiest(self, *, now_ms: int) -> int | None:
        """Compacts the dirtiest log that is due; returns the offset up to which it is clean then,
        None if none is due."""
    def close(self, broker_epoch: int = ...) -> None:
        """The clean stop, with the epoch of the broker's registration (-1: none). Logs of the
        directory stay readable and must not be appended to."""
    def abandon(self) -> None:
        """Lets go of the lock and nothing else, as a kill does: the next start recovers."""

@final
class LoadedLog:
    """The loading of one log: repairs, and how much was read or cut off."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def notes(self) -> list[str]:
        """One sentence for each thing that was not as a clean stop leaves it."""
    @property
    def recovered_segments(self) -> int: ...
    @property
    def recovered_bytes(self) -> int: ...
    @property
    def truncated_bytes(self) -> int: ...

@final
class LogForTests(Log):
    """A log of a `LogDirectory`."""

    @property
    def topic_id(self) -> str | None: ...
    def start_leader_epoch(self, epoch: int) -> None:
        """A new leader's epoch starts at the log end."""
    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """Timestamp, offset and leader epoch of the first record at or after `timestamp`."""
    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        """Timestamp, offset and leader epoch of the record with the largest one (KIP-734)."""
    def aborted_transactions(
        self, fetch_offset: int, upper_bound_offset: int
    ) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of the range must know, by first offset."""
    def leader_epochs(self) -> list[tuple[int, int]]:
        """Epoch and start offset, ascending; the leader's own too, where no record is of it yet."""
    def producers(self) -> list[ProducerEntry]:
        """The state of each producer, by producer id."""
    def position_of(self, offset: int) -> tuple[int, int]:
        """Base offset of the segment and byte in it where the batch of `offset` begins."""

@final
class AbortedTransaction:
    """An entry of a `.txnindex`; `last_offset` is that of the marker."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
