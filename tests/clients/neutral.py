"""What a test asks of any client: send records, poll them, share them in a group.

A client is one class with two methods. It names the features that it lacks, and why; the tests are
then not even made for it, and README.md says so.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

FEATURES = {
    "keys": "keyed and unkeyed records, tombstones, empty values",
    "headers": "headers, including repeated and empty ones",
    "null-headers": "headers without a value",
    "partition": "explicit partition",
    "none": "no compression",
    "gzip": "gzip",
    "snappy": "snappy",
    "lz4": "lz4",
    "zstd": "zstd",
    "idempotence": "idempotent producer",
    "timestamps": "timestamps given by the producer",
    "large": "records of 10 MB where configured",
    "partitioner": "same key, same partition, as the Java client chooses it",
    "assign": "`assign` with an offset",
    "seek": "seek and replay",
    "regex": "regex subscription",
    "commit-sync": "manual commit, synchronous",
    "commit-async": "manual commit, asynchronous",
    "auto-commit": "auto commit",
    "two-groups": "two groups read everything",
    "three-members": "three members share a group",
    "rebalance": "a member leaves, another joins",
    "restart": "SIGKILL and restart of the broker in mid-stream",
    "transactions": "transactions, committed and aborted",
    "transaction-offsets": "consume, transform, produce: offsets in the transaction",
    "transaction-fencing": "a second producer with the transactional id fences the first one",
    "transaction-timeout": "a transaction that takes too long is aborted",
    "transaction-rebalance": "a transaction during a rebalance of its group is not committed",
    "transaction-restart": "SIGKILL of the broker before, during and at the end of a transaction",
}
"""Every feature that is held against every client, by the word that tests and `lacks` use."""

TRANSACTIONS = tuple(each for each in FEATURES if each.startswith("transaction"))
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Partition = tuple[str, int]


@dataclass(frozen=True)
class Record:
    """A record on its way in or out. `offset` is the broker's."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    """`None` leaves it to the client's partitioner: the one that agrees with Java's."""
    timestamp: int | None = None
    """Milliseconds since 1970; `None` lets the producer take the clock."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1

    @classmethod
    def of(cls, polled: Any) -> Self:
        """What kafka-python or aiokafka has polled: both name the parts as it is done here."""
        return cls(
            topic=polled.topic,
            value=polled.value,
            key=polled.key,
            partition=polled.partition,
            timestamp=polled.timestamp,
            headers=tuple((name, value) for name, value in polled.headers),
            offset=polled.offset,
        )

    @property
    def content(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        """What the producer decided: key, value, headers."""
        return self.key, self.value, self.headers


@dataclass(frozen=True)
class ProducerOptions:
    """How a producer is set up; acks=all always."""

    codec: str = "none"
    idempotent: bool = False
    request_bytes_max: int = 1_000_000
    transactional_id: str | None = None
    """With one, `Client.transactional` makes the producer."""
    transaction_timeout_ms: int = 60_000


@dataclass(frozen=True)
class ConsumerOptions:
    """How a consumer is set up: topics, a pattern, or partitions with the offset to start from.

    It begins at the earliest offset where its group has committed none. A member of a group asks
    for news every `HEARTBEAT_MS`, so that a test need not wait for the default of 3 s.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assign: tuple[tuple[str, int, int], ...] = ()
    group: str | None = None
    auto_commit: bool = False
    committed_only: bool = False
    """Reads no record of a transaction that is open or was aborted (`read_committed`)."""


REBALANCED = "generation|member|commit ?failed"
"""How clients name a commit of a generation that is over."""

HEARTBEAT_MS = 300
SESSION_MS = 10_000
AUTO_COMMIT_MS = 500


class Producer(Protocol):
    """Sends in the order given."""

    def send(self, records: Sequence[Record]) -> None:
        """Returns when the broker has acknowledged all of them; raises if it refuses one."""

    def close(self) -> None: ...


class Transactional(Producer, Protocol):
    """A producer whose records are sent in transactions. What the broker refuses is raised."""

    def begin(self) -> None: ...

    def send_offsets(self, group: Any, offsets: Mapping[Partition, int]) -> None:
        """Commits them with the transaction; `group` is what `Consumer.group` told."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class Consumer(Protocol):
    """Any method may take as long as the network does; one thread at a time."""

    def poll(self, timeout_s: float) -> list[Record]:
        """What has come, at the latest after `timeout_s`, maybe nothing."""

    def assignment(self) -> set[Partition]:
        """The partitions that are this member's now."""

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """The next poll of this partition starts at `offset`."""

    def commit(self, offsets: Mapping[Partition, int], *, wait: bool) -> None:
        """Commits; without `wait` by the client's asynchronous call."""

    def group(self) -> Any:
        """Group, generation and member as they are now, for `Transactional.send_offsets`."""

    def close(self) -> None:
        """Leaves the group."""


class Transformer(Protocol):
    """Consumes, and produces in transactions that commit the offsets of what it has consumed."""

    def begin(self) -> None: ...

    def poll(self, timeout_s: float) -> list[Record]: ...

    def send(self, records: Sequence[Record]) -> None: ...

    def end(self, *, commit: bool) -> bool:
        """Whether the transaction is committed: not if its group has had a rebalance."""

    def assignment(self) -> set[Partition]: ...

    def close(self) -> None: ...


class TransformerOfTwo:
    """A consumer and a producer, as most clients have it."""

    def __init__(self, consumer: Consumer, producer: Transactional) -> None:
        self._consumer = consumer
        self._producer = producer
        self._group: Any = None
        self._offsets: dict[Partition, int] = {}

    def begin(self) -> None:
        self._producer.begin()
        self._offsets = {}
        self._group = None

    def poll(self, timeout_s: float) -> list[Record]:
        records = self._consumer.poll(timeout_s)
        for each in records:
            assert each.partition is not None
            self._offsets[each.topic, each.partition] = each.offset + 1
        if records and self._group is None:
            self._group = self._consumer.group()
        return records

    def send(self, records: Sequence[Record]) -> None:
        self._producer.send(records)

    def end(self, *, commit: bool) -> bool:
        if commit:
            try:
                self._producer.send_offsets(self._group, self._offsets)
            except Exception as refusal:
                if re.search(REBALANCED, str(refusal), re.IGNORECASE) is None:
                    raise
                commit = False
        if commit:
            self._producer.commit()
        else:
            self._producer.abort()
        return commit

    def assignment(self) -> set[Partition]:
        return self._consumer.assignment()

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


class Client:
    """A client library. One object serves a whole session."""

    name: ClassVar[str]
    lacks: ClassVar[Mapping[str, str]] = {}
    """Feature to the reason why the client cannot be asked for it."""

    def producer(self, servers: str, options: ProducerOptions) -> Producer:
        raise NotImplementedError

    def consumer(self, servers: str, options: ConsumerOptions) -> Consumer:
        raise NotImplementedError

    def transactional(self, servers: str, options: ProducerOptions) -> Transactional:
        """A producer with a transactional id, ready to begin."""
        raise NotImplementedError

    def transformer(
        self, servers: str, producer: ProducerOptions, consumer: ConsumerOptions
    ) -> Transformer:
        return TransformerOfTwo(
            self.consumer(servers, consumer), self.transactional(servers, producer)
        )

    def close(self) -> None:
        """Ends what the session started."""


def read(
    consumer: Consumer, count: int, *, timeout_s: float = 90, exactly: bool = True
) -> list[Record]:
    """Polls until there are `count` records; more than that is a failure, too."""
    found: list[Record] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records in {timeout_s} s"
        found += consumer.poll(0.25)
    assert len(found) == count or not exactly, f"{len(found)} records, not {count}"
    return found


def settle(
    members: Sequence[Consumer], partitions: set[Partition], *, timeout_s: float = 90
) -> list[list[Record]]:
    """Polls all members until each has a share and the shares are all partitions, each once.

    Returns what they read meanwhile.
    """
    found: list[list[Record]] = [[] for _ in members]
    deadline = time.monotonic() + timeout_s
    while True:
        for member, records in zip(members, found, strict=True):
            records += member.poll(0.05)
        shares = [member.assignment() for member in members]
        if all(shares) and sum(map(len, shares)) == len(partitions) == len(set().union(*shares)):
            return found
        assert time.monotonic() < deadline, f"no stable group in {timeout_s} s, but {shares}"
