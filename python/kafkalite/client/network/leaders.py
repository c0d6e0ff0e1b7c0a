"""Finds out what a client has to know of topics, without waiting for the answer.

    find ──► known ─────────────────────────────► who leads
      └────► not known, or doubted ──► wanted ──► one request for all that are wanted
                                                     │ answered, or failed
      find ◄── who leads, or why nobody knows ◄──────┘ (that for a pause, then asked again)

A topic that was deleted, or that there is not yet, holds up nobody but those who want it: others
go on meanwhile, and so do the partitions of a topic of which only one is doubted.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafkalite.client.network.cluster import (
    BACKOFF_MS,
    BACKOFF_MS_MAX,
    RANDOM,
    UNKNOWN_TOPIC_MS,
    Cluster,
)
from kafkalite.client.network.connection import Closing, broker_error
from kafkalite.client.network.metadata import PartitionMetadata, TopicMetadata, metadata_request
from kafkalite.client.network.pending_request import PendingRequest
from kafkalite.client.trouble import Troubles, Untold
from kafkalite.errors import BrokerError, ClientError
from kafkalite.protocol.codes import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION

__all__ = ["Leaders", "TopicRequest", "creation_warning", "draw"]

DRAWS = 4
"""So often a partition is drawn before those that have a leader are listed."""

CLUSTER = "cluster"
"""The trouble of a cluster of which no broker tells of topics."""

Told = dict[str, TopicMetadata | BrokerError]


class TopicRequest(Closing):
    """Asks any broker for topics. One request at a time, of one thread."""

    def __init__(self, cluster: Cluster) -> None:
        """Asks nobody yet."""
        self._cluster = cluster
        self._pending: PendingRequest | None = None

    def close(self) -> None:
        """The answer, if one is due, is not wanted any more."""
        if self._pending is not None:
            self._pending.close()
            self._pending = None

    @property
    def is_asked(self) -> bool:
        """Says whether an answer is due."""
        return self._pending is not None

    def descriptors(self) -> list[int]:
        """Sockets that are ready when it may be there."""
        return [] if self._pending is None else self._pending.descriptors()

    @property
    def due(self) -> float:
        """Monotonic seconds by which to `take` though nothing is ready."""
        return float("inf") if self._pending is None else self._pending.due

    def ask(
        self, topics: Iterable[str] | None, now: float, *, allow_auto_create: bool = False
    ) -> None:
        """Asks for these topics, `None` for all. Raises `ClientError` if nobody can be asked."""
        request = metadata_request(topics, allow_auto_create=allow_auto_create)
        self._pending = PendingRequest(self._cluster, request, now)

    def take(self, now: float) -> Told | None:
        """Gives what was told, which the cluster knows from now on; None while no answer is there.

        Raises `ClientError` if none will come.
        """
        pending = self._pending
        if pending is None:
            return None
        try:
            response = pending.take(now)
        except ClientError:
            self._pending = None
            raise
        if response is None:
            return None
        self._pending = None
        return self._cluster.learn(response, pending.version)


class _Failure(NamedTuple):
    """Why a topic could not be looked up, and until when (monotonic seconds) that is the answer."""

    error: ClientError
    until: float
    pause_ms: int


class Leaders(Closing):
    """The leaders of partitions. For one thread."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        on_create: Callable[[str], None] | None = None,
        troubles: Troubles | None = None,
    ) -> None:
        """Asks nobody yet. `on_create`: a topic that is wanted and not there is made, by a broker
        that does so, as often as that is so; it is told in a sentence. `troubles` are told of
        topics that are not there, and of a cluster that does not answer."""
        self._cluster = cluster
        self._troubles = Untold() if troubles is None else troubles
        self._on_create = on_create
        self._creatable: set[str] = set()
        """Topics that may be made once, should they not be there."""
        self._to_create: set[str] = set()
        self._created_until: dict[str, float] = {}
        self._pending = TopicRequest(cluster)
        self._wanted: set[str] = set()
        self._asked: set[str] = set()
        self._is_creating = False
        """The topics that are asked for are to be made."""
        self._doubted: set[tuple[str, int]] = set()
        self._failures: dict[str, _Failure] = {}

    def close(self) -> None:
        """Closes the connection, if a request is under way. What was asked for is wanted again."""
        self._pending.close()
        self._want_again()

    def _want_again(self) -> None:
        asked, self._asked = self._asked, set()
        if self._is_creating:
            self._to_create |= asked
        else:
            self._wanted |= asked

    def descriptors(self) -> list[int]:
        """Sockets on which answers are due."""
        return self._pending.descriptors()

    @property
    def due(self) -> float:
        """Monotonic seconds by which to `take` though nothing is ready."""
        return self._pending.due

    @property
    def is_asked(self) -> bool:
        """Says whether an answer is due."""
        return self._pending.is_asked

    # --- who leads --------------------------------------------------------------------------------

    def topic(self, name: str, now: float) -> TopicMetadata | None:
        """A topic, maybe as it was some time ago; None until `take` has been told.

        Raises what came of the last request for it, `BrokerError` or another `ClientError`.
        """
        known = self._cluster.known_topic(name)
        if known is None:
            self._want(name, now)
        return known

    def find(self, topic: str, partition: int, now: float) -> PartitionMetadata | None:
        """A partition that is led; None until `take` has been told. Raises as `topic` does, and
        `BrokerError` for a partition that there is not, or that nobody leads."""
        if (topic, partition) in self._doubted:
            self._want(topic, now)
            return None
        known = self.topic(topic, now)
        if known is None:
            return None
        found = known.partitions.get(partition)
        if found is not None and found.leader >= 0:
            return found
        self._want(topic, now)
        code = UNKNOWN_TOPIC_OR_PARTITION if found is None else LEADER_NOT_AVAILABLE
        raise broker_error(code, f"partition {partition} of topic '{topic}'")

    def doubt(self, topic: str, partition: int) -> None:
        """Another may lead it by now: nobody does until that is asked."""
        self._doubted.add((topic, partition))
        if topic not in self._failures:
            self._wanted.add(topic)  # else `find` wants it, when its pause is over

    def create_once(self, topics: Iterable[str]) -> None:
        """Has unknown topics created, if the broker does so, but not a second time:
        a deleted topic stays deleted."""
        self._creatable.update(topics)

    def is_being_created(self, topic: str, now: float) -> bool:
        """Says whether a broker was asked to make it a moment ago."""
        return topic in self._to_create or now < self._created_until.get(topic, 0.0)

    def _may_create(self, topic: str, now: float) -> bool:
        if self._on_create is not None:
            return not self.is_being_created(topic, now)
        return topic in self._creatable

    def look(self, topics: Iterable[str], now: float) -> None:
        """They are asked for again, and are what they were meanwhile. Of others that there were not
        nothing is kept: their names may come from outside, and have no end."""
        self._wanted.update(topics)
        for topic in [each for each, failure in self._failures.items() if failure.until <= now]:
            del self._failures[topic]
        for topic in [each for each, until in self._created_until.items() if until <= now]:
            del self._created_until[topic]

    def _want(self, topic: str, now: float) -> None:
        failure = self._failures.get(topic)
        if failure is not None and now < failure.until:
            raise failure.error.with_traceback(None)  # which would grow each time
        if topic not in self._asked:
            self._wanted.add(topic)

    # --- asking -----------------------------------------------------------------------------------

    def send(self, now: float) -> None:
        """Asks for what is wanted, unless an answer is due."""
        if not (self._wanted or self._to_create) or self._pending.is_asked:
            return
        self._is_creating = bool(self._to_create)
        self._asked = self._to_create or self._wanted
        self._wanted, self._to_create = self._wanted - self._asked, set()
        try:
            self._pending.ask(sorted(self._asked), now, allow_auto_create=self._is_creating)
        except ClientError as error:
            self._fail(error, now)
        except BaseException:
            self._want_again()  # interrupted: the next call asks
            raise

    def take(self, now: float) -> None:
        """Takes what has been answered by now."""
        try:
            told = self._pending.take(now)
        except ClientError as error:
            self._fail(error, now)
            return
        if told is None:
            return
        self._troubles.end(CLUSTER, "the cluster answers again")
        asked, self._asked = self._asked, set()
        self._doubted = {each for each in self._doubted if each[0] not in asked}
        for topic in asked:
            answer = told.get(topic)
            if isinstance(answer, TopicMetadata):
                self._failures.pop(topic, None)
                self._creatable.discard(topic)
                self._troubles.end(f"topic {topic}", f"topic '{topic}' is there again")
                continue
            refusal = answer or broker_error(UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic}'")
            is_unknown = refusal.code == UNKNOWN_TOPIC_OR_PARTITION
            if is_unknown and self._may_create(topic, now):
                self._creatable.discard(topic)
                self._to_create.add(topic)
                self._created_until[topic] = now + UNKNOWN_TOPIC_MS / 1000
                (self._on_create or self._troubles.warn)(creation_warning([topic]))
                continue
            self._failures[topic] = self._failure(topic, refusal, now)
            if not self.is_being_created(topic, now):
                self._troubles.begin(f"topic {topic}", str(refusal))

    def _fail(self, error: ClientError, now: float) -> None:
        """Nobody answers."""
        self._troubles.begin(CLUSTER, f"no broker returns metadata of topics: {error}")
        asked, self._asked = self._asked, set()
        for topic in asked:
            self._failures[topic] = self._failure(topic, error, now)
            if self._is_creating:  # nobody was asked to: once the pause is over they are
                self._created_until.pop(topic, None)
                self._creatable.add(topic)

    def _failure(self, topic: str, error: ClientError, now: float) -> _Failure:
        before = self._failures.get(topic)
        pause_ms = BACKOFF_MS if before is None else min(2 * before.pause_ms, BACKOFF_MS_MAX)
        return _Failure(error.with_traceback(None), now + pause_ms / 1000, pause_ms)


def creation_warning(topics: Iterable[str]) -> str:
    """Said where a topic is asked for that is not there, since its name may be misspelt."""
    names = ", ".join(f"'{topic}'" for topic in topics)
    return f"topic {names} does not exist; the broker is asked to create it"


def draw(topic: TopicMetadata) -> int:
    """A partition for records without a key, one that has a leader if there is any."""
    partitions = topic.partitions
    for _ in range(DRAWS):
        drawn = RANDOM.randrange(len(partitions))
        row = partitions.get(drawn)
        if row is not None and row.leader >= 0:
            return drawn
    led = [row.partition for row in partitions.values() if row.leader >= 0]
    return RANDOM.choice(led or list(partitions))
