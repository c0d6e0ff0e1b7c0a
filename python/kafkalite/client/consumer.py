"""Reads records: of partitions that are named, or of those that a group gives.

    with Consumer("127.0.0.1:9092", group="billing") as consumer:
        consumer.subscribe(["orders"])
        while True:
            for record in consumer.poll(1000):
                …

One thread; a group's heartbeats have their own. While the caller works on what was fetched, the
next fetch is under way: of each broker at most one answer is being made and one is at the caller's.

    position       the next record that the caller gets; what `commit` commits
    fetch offset   where the next fetch begins; ahead of the position by what was fetched
"""

import re
import select
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kafkalite._native import count_fetched, fetched_end, read_fetched
from kafkalite.client.admin import EARLIEST, LATEST, Admin
from kafkalite.client.arguments import pairs, text, texts, whole
from kafkalite.client.cluster import BACKOFF_MS, Cluster, Servers
from kafkalite.client.connection import Closing, Connection, broker_error, check
from kafkalite.client.membership import GroupOptions, Membership
from kafkalite.errors import (
    BrokerError,
    ClientError,
    ConnectionFailedError,
    InvalidArgumentError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
)
from kafkalite.protocol import messages
from kafkalite.protocol.codes import NONE, OFFSET_OUT_OF_RANGE

__all__ = ["Consumer", "Fetched", "Record"]

Partition = tuple[str, int]
Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]

# Later versions name topics by id, which a topic that is made anew changes.
FETCH_BY_NAME = 12

ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}

# How often the partitions of subscribed topics, and topics that match a pattern, are looked up.
METADATA_AGE_S = 30.0
METADATA_AGE_JOINING_S = 1.0


class Record(NamedTuple):
    """A record as a consumer gets it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970; -1 for none."""
    timestamp_type: int
    """0 create time, 1 log append time, -1 none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


class Fetched:
    """What one fetch brought of one partition, as bytes until somebody looks."""

    __slots__ = ("aborted", "high_watermark", "offset", "partition", "records", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        records: bytes,
        aborted: list[tuple[int, int]],
        high_watermark: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        """The first offset of interest; the first batch may begin before it."""
        self.records = records
        """Batches, the last one maybe cut off."""
        self.aborted = aborted
        """Producer id and first offset of the aborted transactions in it."""
        self.high_watermark = high_watermark

    def rows(self) -> tuple[list[Row], int]:
        """Offset, timestamp, timestamp type, key, value and headers of each record, and the offset
        behind. Raises `CorruptMessageError`, `InvalidRecordError`."""
        return read_fetched(self.records, self.offset, self.aborted)

    def count(self) -> tuple[int, int, int]:
        """Number of records, bytes of their keys and values, and the offset behind."""
        return count_fetched(self.records, self.offset, self.aborted)


class _Place:
    """One partition that is being read."""

    __slots__ = ("fetch_offset", "is_paused", "paused_until", "position", "stop", "version")

    def __init__(self) -> None:
        self.position: int | None = None
        self.fetch_offset = -1
        self.version = 0
        """Counts seeks: a fetch that was under way before one is thrown away."""
        self.paused_until = 0.0
        self.is_paused = False
        self.stop: int | None = None
        """Nothing is fetched from here on."""


class _Flight(NamedTuple):
    """A fetch that was not answered yet: offset and version of each partition."""

    asked: dict[Partition, tuple[int, int]]
    deadline: float


class Consumer(Closing):
    """A consumer of one cluster. One thread at a time."""

    def __init__(
        self,
        bootstrap_servers: Servers,
        *,
        group: str | GroupOptions | None = None,
        isolation: str = "read_uncommitted",
        offset_reset: str = "earliest",
        auto_commit_interval_ms: int | None = 5_000,
        fetch_bytes_min: int = 1,
        fetch_bytes_max: int = 50 << 20,
        partition_bytes_max: int = 1 << 20,
        fetch_wait_ms: int = 500,
        timeout_ms: int = 60_000,
        request_timeout_ms: int = 30_000,
        client_id: str = "kafkalite-consumer",
    ) -> None:
        """Arguments are Kafka's `group.id`, `isolation.level`, `auto.offset.reset` (Kafka's default
        is latest), `auto.commit.interval.ms` (None: no auto commit), `fetch.min.bytes`,
        `fetch.max.bytes`, `max.partition.fetch.bytes`, `fetch.max.wait.ms`,
        `default.api.timeout.ms`, `request.timeout.ms`.

        Raises `InvalidArgumentError`, `TypeError`.
        """
        text("client_id", client_id)
        whole("fetch_bytes_min", fetch_bytes_min, 0)
        whole("fetch_bytes_max", fetch_bytes_max, 0)
        whole("partition_bytes_max", partition_bytes_max, 0)
        whole("fetch_wait_ms", fetch_wait_ms, 0)
        if isolation not in ISOLATION:
            raise InvalidArgumentError(
                f"unknown isolation '{isolation}': it is read_uncommitted or read_committed"
            )
        if offset_reset not in RESETS:
            raise InvalidArgumentError(
                f"unknown offset_reset '{offset_reset}': it is earliest, latest or none"
            )
        self.isolation = isolation
        """`read_uncommitted` or `read_committed`."""
        self._isolation = ISOLATION[isolation]
        self._reset = RESETS[offset_reset]
        self._commit_s = None
        if auto_commit_interval_ms is not None:
            self._commit_s = whole("auto_commit_interval_ms", auto_commit_interval_ms, 0) / 1000
        self._bytes_min = fetch_bytes_min
        self._bytes_max = fetch_bytes_max
        self._partition_bytes_max = partition_bytes_max
        self._wait_ms = fetch_wait_ms
        self._request_timeout_ms = request_timeout_ms
        self.cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            timeout_ms=timeout_ms,
            request_timeout_ms=request_timeout_ms,
        )
        self._admin = Admin(self.cluster)
        self._group: Membership | None = None
        if group is not None:
            options = (
                group if isinstance(group, GroupOptions) else GroupOptions(text("group", group))
            )
            self._group = Membership(bootstrap_servers, options, client_id)
        self._subscription: list[str] | re.Pattern[str] | None = None
        self._counts: dict[str, int] = {}
        self._counts_at = 0.0
        self._places: dict[Partition, _Place] = {}
        self._order: list[Partition] = []
        self._links: dict[int, Connection] = {}
        self._flights: dict[int, _Flight] = {}
        self._committed_at = time.monotonic()
        self._committed: dict[Partition, int] = {}

    def __repr__(self) -> str:
        return f"<kafkalite.Consumer: {self.cluster.servers_text}>"

    def close(self) -> None:
        """Commits, if it does so by itself, leaves the group and closes the connections."""
        try:
            if self._group is not None:
                self._commit_quietly()
                self._group.leave()
        finally:
            for connection in self._links.values():
                connection.close()
            self._links.clear()
            self.cluster.close()

    # --- what to read -----------------------------------------------------------------------------

    def assign(
        self,
        partitions: Iterable[Partition] | Mapping[Partition, int],
        stops: Mapping[Partition, int] | None = None,
    ) -> None:
        """Reads these partitions from now on; a mapping says from which offset (`EARLIEST` and
        `LATEST` too). Without one it is the committed offset, or what `offset_reset` says.

        Nothing is fetched from an offset of `stops` on; what comes before it may come with records
        behind it, of the same batch or the next ones."""
        starts = dict(partitions) if isinstance(partitions, Mapping) else {}
        places = pairs("partitions", partitions)
        for place, start in starts.items():
            whole(f"the offset of {place[0]}-{place[1]}", start)
        self._subscription = None
        self._take(places)
        special = {partition: start for partition, start in starts.items() if start < 0}
        found = self._admin.list_offsets(special) if special else {}
        for partition, stop in (stops or {}).items():
            self._place(partition).stop = stop
        for partition, start in starts.items():
            self.seek(partition, found[partition].offset if partition in found else start)

    def subscribe(self, topics: str | Iterable[str] | re.Pattern[str]) -> None:
        """Reads those partitions of a topic, of several, or of all topics that match as a whole,
        that the group gives; `poll` and `fetch` join it."""
        if self._group is None:
            raise InvalidArgumentError("a consumer without a group can only assign")
        self._subscription = topics if isinstance(topics, re.Pattern) else texts("topics", topics)
        self._counts_at = 0.0

    @property
    def assignment(self) -> list[Partition]:
        """The partitions that are read at the moment."""
        return sorted(self._places)

    def seek(self, partition: Partition, offset: int) -> None:
        """Goes on at an offset. Raises `InvalidArgumentError` for a partition not assigned."""
        place = self._place(partition)
        place.position = place.fetch_offset = whole("offset", offset)
        place.version += 1
        place.paused_until = 0.0

    def position(self, partition: Partition) -> int:
        """The offset of the next record."""
        place = self._place(partition)
        if place.position is None:
            self._find_positions()
        return place.position or 0

    def pause(self, partition: Partition) -> None:
        """Fetches nothing more of a partition until `resume`."""
        self._place(partition).is_paused = True

    def resume(self, partition: Partition) -> None:
        """Fetches a paused partition again."""
        self._place(partition).is_paused = False

    def _place(self, partition: Partition) -> _Place:
        place = self._places.get(partition)
        if place is None:
            raise InvalidArgumentError(f"{partition[0]}-{partition[1]} is not assigned")
        return place

    def _take(self, partitions: list[Partition]) -> None:
        """These partitions and no others; those that stay keep their positions."""
        self._places = {
            partition: self._places.get(partition) or _Place() for partition in partitions
        }
        self._order = list(self._places)

    # --- reading ----------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0) -> list[Record]:
        """The next records, none if there are none in time. They count as read, and so as to be
        committed, when `poll` is called again.

        Raises `BrokerError`, `OffsetOutOfRangeError`, `CorruptMessageError`.
        """
        records = []
        for fetched in self.fetch(timeout_ms):
            rows, end = fetched.rows()
            topic, partition = fetched.topic, fetched.partition
            records += [Record(topic, partition, *row) for row in rows]
            self.advance((topic, partition), end)
        return records

    def __iter__(self) -> Iterator[Record]:
        """Records for ever."""
        while True:
            yield from self.poll(1000)

    def fetch(self, timeout_ms: int = 0) -> list[Fetched]:
        """As `poll`, as bytes: for readers that want no object a record. The caller says by
        `advance` how far they have come."""
        deadline = time.monotonic() + timeout_ms / 1000
        self._commit_if_due()
        while True:
            self._join_if_due()
            self._find_positions()
            now = time.monotonic()
            self._send_fetches(now)
            found = self._take_fetches()
            if found:
                self._send_fetches(now)
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            self._wait(left)

    def advance(self, partition: Partition, offset: int) -> None:
        """The records below an offset have been dealt with."""
        place = self._places.get(partition)
        if place is not None:
            place.position = offset

    # --- committing -------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        """Commits the positions, or these offsets, for the group.

        Raises `BrokerError` if a partition is not this member's any more.
        """
        if self._group is None:
            raise InvalidArgumentError("a consumer without a group commits nothing")
        if offsets is None:
            offsets = {
                partition: place.position
                for partition, place in self._places.items()
                if place.position is not None
            }
        if offsets:
            self._group.commit(offsets)
            self._committed.update(offsets)

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """What the group has committed, of those partitions that have an offset."""
        if self._group is None:
            raise InvalidArgumentError("a consumer without a group commits nothing")
        return self._group.committed(pairs("partitions", partitions))

    def _commit_if_due(self) -> None:
        if self._group is None or self._commit_s is None:
            return
        now = time.monotonic()
        if now - self._committed_at >= self._commit_s:
            self._committed_at = now
            self._commit_quietly()

    def _commit_quietly(self) -> None:
        """What cannot be committed is read again by whoever gets the partition."""
        if self._commit_s is None:
            return
        changed = {
            partition: place.position
            for partition, place in self._places.items()
            if place.position is not None and self._committed.get(partition) != place.position
        }
        try:
            if changed:
                self.commit(changed)
        except ClientError:
            pass

    # --- the group --------------------------------------------------------------------------------

    def _join_if_due(self) -> None:
        group = self._group
        if group is None or self._subscription is None:
            return
        is_joined = group.is_joined
        changed = self._topics_changed(is_joined)
        if is_joined and not changed:
            return
        self._commit_quietly()
        topics = sorted(self._counts)
        if not topics:
            self._take([])
            return
        partitions = group.join(topics, self._partition_counts)
        kept = set(self._places) & set(partitions)
        self._take(partitions)
        for partition in kept:
            # Another member may have had it in between.
            self._places[partition].position = None
        self._committed.clear()

    def _topics_changed(self, is_joined: bool) -> bool:
        """Looks the subscribed topics up now and then."""
        now = time.monotonic()
        age = METADATA_AGE_S if is_joined and self._counts else METADATA_AGE_JOINING_S
        if self._counts_at and now - self._counts_at < age:
            return False
        subscription = self._subscription
        if isinstance(subscription, re.Pattern):
            found = {
                name: len(topic.partitions)
                for name, topic in self.cluster.retry(lambda: self.cluster.refresh(None)).items()
                if not topic.is_internal and subscription.fullmatch(name)
            }
        else:
            found = self._partition_counts(set(subscription or ()))
            if not is_joined:
                found = {**dict.fromkeys(subscription or (), 0), **found}
        self._counts_at = now
        changed = found != self._counts
        self._counts = found
        return changed

    def _partition_counts(self, topics: set[str]) -> dict[str, int]:
        def ask() -> dict[str, int]:
            found = self.cluster.refresh(sorted(topics), allow_auto_create=True)
            return {name: len(topic.partitions) for name, topic in found.items()}

        return self.cluster.retry(ask)

    # --- positions --------------------------------------------------------------------------------

    def _find_positions(self) -> None:
        unknown = [partition for partition, place in self._places.items() if place.position is None]
        if not unknown:
            return
        committed = self._group.committed(unknown) if self._group is not None else {}
        self._committed.update(committed)
        for partition, offset in committed.items():
            self.seek(partition, offset)
        rest = [partition for partition in unknown if partition not in committed]
        if rest:
            self._reset_positions(rest)

    def _reset_positions(self, partitions: list[Partition]) -> None:
        if self._reset is None:
            names = ", ".join(f"{topic}-{index}" for topic, index in partitions)
            raise OffsetOutOfRangeError(f"no offset to begin at for {names}")
        found = self._admin.list_offsets(
            dict.fromkeys(partitions, self._reset), committed=self._isolation == 1
        )
        for partition, listed in found.items():
            self.seek(partition, listed.offset)

    # --- fetches ----------------------------------------------------------------------------------

    def _send_fetches(self, now: float) -> None:
        by_node: dict[int, list[Partition]] = {}
        for partition in self._order:
            place = self._places[partition]
            if place.is_paused or place.position is None or now < place.paused_until:
                continue
            if place.stop is not None and place.fetch_offset >= place.stop:
                continue
            try:
                node_id = self.cluster.leader(*partition)
            except ClientError as error:
                self._pass_or_raise(error, [partition], now)
                continue
            by_node.setdefault(node_id, []).append(partition)
        for node_id, partitions in by_node.items():
            if node_id in self._flights:
                continue
            try:
                self._send_fetch(node_id, partitions, now)
            except ClientError as error:
                self._pass_or_raise(error, partitions, now)

    def _send_fetch(self, node_id: int, partitions: list[Partition], now: float) -> None:
        connection = self._links.get(node_id)
        if connection is None or not connection.is_open:
            connection = self._links[node_id] = self.cluster.new_connection(node_id)
        kind = messages.FetchRequest
        topics: dict[str, Any] = {}
        asked = {}
        for partition in partitions:
            place = self._places[partition]
            asked[partition] = (place.fetch_offset, place.version)
            row = kind.FetchTopic.FetchPartition(
                partition=partition[1],
                fetch_offset=place.fetch_offset,
                partition_max_bytes=self._partition_bytes_max,
            )
            topic = topics.setdefault(partition[0], kind.FetchTopic(topic=partition[0]))
            topic.partitions.append(row)
        request = kind(
            max_wait_ms=self._wait_ms,
            min_bytes=self._bytes_min,
            max_bytes=self._bytes_max,
            isolation_level=self._isolation,
            topics=list(topics.values()),
        )
        connection.send(request, at_most=FETCH_BY_NAME)
        wait_s = (self._wait_ms + self._request_timeout_ms) / 1000
        self._flights[node_id] = _Flight(asked, now + wait_s)

    def _take_fetches(self) -> list[Fetched]:
        """What has been answered by now."""
        found: list[Fetched] = []
        now = time.monotonic()
        for node_id, flight in list(self._flights.items()):
            connection = self._links[node_id]
            try:
                response = connection.receive_ready()
                if response is None:
                    if now < flight.deadline:
                        continue
                    raise RequestTimedOutError(f"no answer from {connection.peer} to Fetch")
                del self._flights[node_id]
                check(response.error_code, f"Fetch from {connection.peer}")
            except ClientError as error:
                self._flights.pop(node_id, None)
                connection.close()
                self._pass_or_raise(error, list(flight.asked), now)
                continue
            for topic in response.responses:
                for row in topic.partitions:
                    self._take_row((topic.topic, row.partition_index), row, flight, found, now)
        return found

    def _take_row(
        self, partition: Partition, row: Any, flight: _Flight, found: list[Fetched], now: float
    ) -> None:
        place = self._places.get(partition)
        offset, version = flight.asked.get(partition, (-1, -1))
        if place is None or place.version != version:
            return
        if row.error_code == OFFSET_OUT_OF_RANGE:
            if self._reset is None:
                raise OffsetOutOfRangeError(
                    f"offset {offset} is outside the log of {partition[0]}-{partition[1]}"
                )
            self._reset_positions([partition])
            return
        if row.error_code != NONE:
            error = broker_error(row.error_code, f"partition {partition[0]}-{partition[1]}")
            self._pass_or_raise(error, [partition], now)
            return
        if not row.records:
            return
        end = fetched_end(row.records, offset)
        if end == offset:
            raise MessageTooLargeError(
                f"{partition[0]}-{partition[1]} has a batch at offset {offset} of which the broker "
                "sends no more than a part: raise partition_bytes_max"
            )
        aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
        place.fetch_offset = end
        # Whoever had something goes to the end of the line.
        self._order.remove(partition)
        self._order.append(partition)
        found.append(Fetched(*partition, offset, row.records, aborted, row.high_watermark))

    def _pass_or_raise(self, error: ClientError, partitions: list[Partition], now: float) -> None:
        """What may pass is tried again after a pause."""
        passes = isinstance(error, ConnectionFailedError | RequestTimedOutError) or (
            isinstance(error, BrokerError) and error.retriable
        )
        if not passes:
            raise error
        for partition in partitions:
            if partition in self._places:
                self._places[partition].paused_until = now + BACKOFF_MS / 1000
            self.cluster.forget(partition[0])

    def _wait(self, seconds: float) -> None:
        """Until an answer comes, or a pause may be over."""
        seconds = min(seconds, 1.0 if self._flights else BACKOFF_MS / 1000)
        if any(place.paused_until for place in self._places.values()):
            seconds = min(seconds, BACKOFF_MS / 1000)
        poller = select.poll()
        for node_id in self._flights:
            poller.register(self._links[node_id].fileno(), select.POLLIN)
        if self._flights:
            poller.poll(seconds * 1000)
        else:
            time.sleep(seconds)
