"""The state machine of one partition of a coordinator's topic: what it is told, what it asks for.

No clock, no socket, no log, no randomness: records and events go in with the time, effects come
out, to be carried out in their order (`shard.py`). A `Reply` tells whoever asked, `Append` asks for
records to be written, and its `then` is told of what became of them. Where a write takes too long,
its `overdue` is told so meanwhile: whoever waits is refused, and the state waits on.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kafkalite.coordinator.journal import Steps
from kafkalite.coordinator.record_serde import Record

Answer = TypeVar("Answer")


class Moment(NamedTuple):
    """When an event happens: monotonic, for time-outs, and since 1970, for records."""

    now_ms: int
    wall_ms: int


class Reply(Generic[Answer]):
    """The answer to a request."""

    __slots__ = ("_to", "answer")

    def __init__(self, to: Callable[[Answer], None], answer: Answer) -> None:
        self._to: Callable[[Answer], None] = to
        self.answer: Answer = answer

    def send(self) -> None:
        """Tells whoever asked."""
        self._to(self.answer)


class FirstAnswer(Generic[Answer]):
    """Passes only the first answer on to the caller."""

    __slots__ = ("_to",)

    def __init__(self, to: Callable[[Answer], None]) -> None:
        self._to: Callable[[Answer], None] | None = to

    def __call__(self, answer: Answer) -> None:
        to, self._to = self._to, None
        if to is not None:
            to(answer)


class FirstEnd:
    """A `then` that is its `overdue` too: a write that took too long has failed for it."""

    __slots__ = ("_then",)

    def __init__(self, then: "Then") -> None:
        self._then: Then | None = then

    def __call__(self, error_code: int, offset: int, moment: Moment) -> "Sequence[Effect]":
        then, self._then = self._then, None
        return () if then is None else then(error_code, offset, moment)


class Note(NamedTuple):
    """A sentence for the log."""

    sentence: str


class Marker(NamedTuple):
    """The end of a transaction."""

    commit: bool
    coordinator_epoch: int
    transaction_version: int


class Producer(NamedTuple):
    """The producer of a transaction's records, which have a batch of their own. With a marker the
    batch is that, and has no records."""

    producer_id: int
    producer_epoch: int
    marker: Marker | None = None


class Append(NamedTuple):
    """Records to be written, which stand or fall together; none at all waits for those before."""

    records: Sequence[Record]
    then: "Then | None" = None
    steps: Steps = ()
    """Changes that are taken back if the records cannot be written, before `then` is told."""
    producer: Producer | None = None
    """None outside a transaction."""
    overdue: "Then | None" = None
    """Told why clients are refused, while the records are in the log and for long not committed.
    `then` is told what becomes of them all the same."""


class Hold(NamedTuple):
    """Bytes that the state takes from now on, or leaves, where clients choose how many: they count
    as memory of requests."""

    size_bytes: int


Effect = Reply[Any] | Append | Hold | Note

Then = Callable[[int, int, Moment], Sequence[Effect]]
"""Told an error code for clients, the offset of the first record on disk or -1, and the time."""


class Machine(Protocol):
    """One partition's state. Whatever changes it gives its effects. Kafka: `CoordinatorShard`."""

    def replay(self, kind: int, key: Any, value: Any, offset: int, producer_id: int) -> None:
        """Takes a record of the log, in its order (`RecordSerde.read`); `producer_id` is -1 outside
        a transaction. Raises MalformedRequestError for one that it needs and cannot be read."""

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Takes the marker of a transaction."""

    def on_loaded(self, moment: Moment, count_max: int) -> tuple[Sequence[Effect], bool]:
        """The whole log has been replayed. Makes so many of its entries ready; whether all are.
        Called until then."""

    def on_topics(self, deleted: Collection[str], moment: Moment) -> Sequence[Effect]:
        """Topics have been deleted."""

    def on_time(self, moment: Moment) -> Sequence[Effect]:
        """Time has passed. Being called early does no harm."""

    def next_wake_ms(self) -> int | None:
        """When `on_time` is due next, monotonic; None while nothing is waited for."""

    def unload(self) -> Sequence[Effect]:
        """The partition is served here no longer: whoever waits is told, everything forgotten."""
