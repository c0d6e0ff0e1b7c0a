"""Reads records: of partitions that are named, or of those that a group gives.

    with Consumer("127.0.0.1:9092", group="billing") as consumer:
        consumer.subscribe(["orders"])
        while True:
            for record in consumer.poll(1000):
                …

One thread; a group's heartbeats have their own, and so has the joining of a group, which may take
minutes: nothing is read meanwhile. What is known of each partition is in `place.py`,
what is looked up in `lookup.py`, what is fetched in `fetcher.py`, and what has come and was not
handed out in `fetched.py`.

The position of a partition is the offset of the next record that the caller gets. It moves as
records are handed out, by `poll` all of a list, by an iterator one after the other, so `commit`
commits what the caller has, the record that an iterator gave last included. An error of one
partition leaves the others alone: it is raised once there is nothing else to hand out, or by the
call after the one that had something.

A new leader that has lost what was read (an unclean election) is read from where its log ends, and
with `offset_reset="none"` that is an error (KIP-320).
"""

import re
import select
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from kafkalite.client.admin import EARLIEST, LATEST, Admin
from kafkalite.client.arguments import (
    OFFSET_MAX,
    choice,
    int32,
    offsets_by_pair,
    pairs,
    short_text,
    short_texts,
    whole,
)
from kafkalite.client.cluster import (
    BACKOFF_MS,
    Cluster,
    Servers,
    TopicMetadata,
    found_topics,
)
from kafkalite.client.connection import Closing, broker_error, may_pass
from kafkalite.client.fetched import Fetched, Record
from kafkalite.client.fetcher import Fetcher, FetchOptions
from kafkalite.client.joining import Joining
from kafkalite.client.leaders import Leaders, TopicQuestion
from kafkalite.client.lookup import Lookup
from kafkalite.client.membership import GroupOptions, Membership
from kafkalite.client.place import Need, Partition, Places
from kafkalite.errors import ClientError, InvalidArgumentError, RequestTimedOutError
from kafkalite.protocol.codes import REBALANCE_IN_PROGRESS

__all__ = ["Consumer", "Fetched", "Record"]

ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}

# How often the partitions of subscribed topics, and topics that match a pattern, are looked up.
METADATA_AGE_S = 30.0
METADATA_AGE_JOINING_S = 1.0

# What an iterator waits for at a time.
ITERATE_S = 1.0

# What `close` waits for its group (`CloseOptions` of Kafka's consumer), and what of it is left for
# leaving the group though the commit took it all.
CLOSE_S = 30.0
LEAVE_S = 1.0


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
        short_text("client_id", client_id)
        int32("fetch_bytes_min", fetch_bytes_min, 0)
        int32("fetch_bytes_max", fetch_bytes_max, 0)
        int32("partition_bytes_max", partition_bytes_max, 0)
        int32("fetch_wait_ms", fetch_wait_ms, 0)
        choice("isolation", isolation, ISOLATION)
        choice("offset_reset", offset_reset, RESETS)
        self.isolation = isolation
        """`read_uncommitted` or `read_committed`."""
        self._commit_s = None
        if auto_commit_interval_ms is not None:
            self._commit_s = int32("auto_commit_interval_ms", auto_commit_interval_ms, 0) / 1000
        self.cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            timeout_ms=timeout_ms,
            request_timeout_ms=request_timeout_ms,
        )
        self._admin = Admin(self.cluster)
        self._group: Membership | None = None
        if group is not None:
            options = group if isinstance(group, GroupOptions) else GroupOptions(group)
            self._group = Membership(
                bootstrap_servers,
                options,
                client_id,
                timeout_ms=timeout_ms,
                request_timeout_ms=request_timeout_ms,
            )
        self._subscription: list[str] | re.Pattern[str] | None = None
        self._is_new_subscription = False
        """Its topics have not been looked up yet: what is read is that of the one before."""
        self._has_to_join = False
        """Topics have changed since the group was joined, or what it gave was not taken: an
        interrupt may have come between."""
        self._joining: Joining[list[Partition]] | None = None
        self._commits_in: int | None = None
        """The generation in which what was read has to be committed before the group is joined;
        None where that has been done."""
        self._counting: Cluster | None = None
        """Who is asked for partitions to share out, while the group is joined."""
        self._topics_wait_until = 0.0
        self._topics_sought_since: float | None = None
        """When the first look-up of the topics failed."""
        self._counts: dict[str, int] = {}
        self._counts_at = 0.0
        self._topics = TopicQuestion(self.cluster)
        self._leaders = Leaders(self.cluster)
        self._places = Places()
        fetches = FetchOptions(
            ISOLATION[isolation],
            fetch_bytes_min,
            fetch_bytes_max,
            partition_bytes_max,
            fetch_wait_ms,
        )
        self._fetcher = Fetcher(self.cluster, self._leaders, self._places, fetches)
        self._lookup = Lookup(
            self.cluster,
            self._leaders,
            self._places,
            None if self._group is None else self._group.options.group,
            RESETS[offset_reset],
            ISOLATION[isolation],
        )
        self._committed_at = time.monotonic()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<kafkalite.Consumer: {self.cluster.servers_text}>"

    def close(self) -> None:
        """Commits, if it does so by itself, leaves the group and closes the connections. A group
        that does not answer is waited for no longer than by Kafka's consumer, 30 s."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._group is not None:
                deadline = time.monotonic() + CLOSE_S
                try:
                    if self._stop_joining(deadline):
                        self._commit_quietly(deadline=deadline)
                finally:
                    self._group.close(max(deadline, time.monotonic() + LEAVE_S))
        finally:
            self._fetcher.close()
            self._lookup.close()
            self._leaders.close()
            self._topics.close()
            self.cluster.close()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise InvalidArgumentError("the consumer has been closed")

    # --- what to read -----------------------------------------------------------------------------

    def assign(
        self,
        partitions: Iterable[Partition] | Mapping[Partition, int],
        stops: Mapping[Partition, int] | None = None,
    ) -> None:
        """Reads these partitions from now on; a mapping says from which offset (`EARLIEST` and
        `LATEST` too). Without one it is the committed offset, or what `offset_reset` says; a
        partition that was assigned already goes on where it is.

        Nothing is fetched from an offset of `stops` on; what comes before it may come with records
        behind it, of the same batch or the next ones."""
        self._refuse_closed()
        starts = dict(partitions) if isinstance(partitions, Mapping) else {}
        places = pairs("partitions", partitions)
        for place, start in starts.items():
            whole(f"the offset of {place[0]}-{place[1]}", start, None, OFFSET_MAX)
        for topic, index in stops or {}:
            if (topic, index) not in places:
                raise InvalidArgumentError(f"{topic}-{index} is not assigned")
        special = {partition: start for partition, start in starts.items() if start < 0}
        found = self._admin.list_offsets(special) if special else {}
        # Nothing fails from here on: the consumer reads what it has read, or what it is told to.
        self._unsubscribe()
        self._places.assign(places)
        for partition, stop in (stops or {}).items():
            self._places[partition].stop = stop
        for partition, start in starts.items():
            offset = found[partition].offset if partition in found else start
            self._places.seek(partition, offset)

    def subscribe(self, topics: str | Iterable[str] | re.Pattern[str]) -> None:
        """Reads those partitions of a topic, of several, or of all topics that match as a whole,
        that the group gives; `poll` and `fetch` join it."""
        self._refuse_closed()
        if self._group is None:
            raise InvalidArgumentError("a consumer without a group can only assign")
        named = topics if isinstance(topics, re.Pattern) else short_texts("topics", topics)
        self._subscription, self._is_new_subscription = named, True
        self._topics.close()

    def _unsubscribe(self) -> None:
        """The group goes on without this member, which would not join again when it has to."""
        self._topics.close()
        if self._group is not None and self._subscription is not None:
            deadline = time.monotonic() + CLOSE_S
            if self._stop_joining(deadline):
                self._commit_quietly(deadline=deadline)
            self._group.leave(max(deadline, time.monotonic() + LEAVE_S))
        self._subscription = None

    @property
    def assignment(self) -> list[Partition]:
        """The partitions that are read at the moment."""
        return sorted(self._places)

    def seek(self, partition: Partition, offset: int) -> None:
        """Goes on at an offset. Raises `InvalidArgumentError` for a partition not assigned."""
        self._places.seek(partition, whole("offset", offset, 0, OFFSET_MAX))

    def position(self, partition: Partition) -> int:
        """The offset of the next record. Raises `OffsetOutOfRangeError` if there is nowhere to
        begin, `RequestTimedOutError`, `BrokerError`."""
        deadline = time.monotonic() + self.cluster.timeout_ms / 1000
        while True:
            place = self._places[partition]
            if place.need is Need.NOTHING and place.position is not None:
                return place.position
            if place.error is not None:
                error, place.error = place.error, None
                raise error
            left = deadline - time.monotonic()
            if left <= 0:
                raise RequestTimedOutError(
                    f"the position of {partition[0]}-{partition[1]} was not found within "
                    f"{self.cluster.timeout_ms} ms"
                )
            self._turn_lookups()
            descriptors = self._lookup.descriptors() + self._leaders.descriptors()
            if descriptors or place.waits_until:
                self._wait(left, descriptors)

    def pause(self, partition: Partition) -> None:
        """Hands out and fetches nothing more of a partition until `resume`."""
        self._places[partition].is_paused = True

    def resume(self, partition: Partition) -> None:
        """Goes on with a paused partition."""
        self._places[partition].is_paused = False

    # --- reading ----------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0) -> list[Record]:
        """The next records, none if there are none in time. They count as read, and so as to be
        committed by itself, when `poll` is called again.

        Raises `BrokerError`, `OffsetOutOfRangeError`, `CorruptMessageError`: once for each call, as
        long as it is so, and in between it gives what there is of other partitions. The position
        stays where the error is; `seek` leaves it behind.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            records = self._fetcher.waiting.take_records() if self._collect(deadline) else []
            if records or time.monotonic() >= deadline:
                return records

    def __iter__(self) -> Iterator[Record]:
        """Records for ever. Whoever leaves the loop has had the records up to the one they left it
        with; the next loop, or `poll`, goes on with the one behind it."""
        self._refuse_closed()
        while True:
            # Here too, not only where something is fetched: an answer may have records for hours.
            self._commit_if_due()
            if not self._join_if_due(time.monotonic() + ITERATE_S):
                continue
            record = self._fetcher.waiting.take_record()
            if record is None:
                self._collect(time.monotonic() + ITERATE_S)
            else:
                yield record

    def fetch(self, timeout_ms: int = 0) -> list[Fetched]:
        """As `poll`, as bytes: for readers that want no object a record. The caller says by
        `advance` how far they have come."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            found = self._fetcher.waiting.take_bytes() if self._collect(deadline) else []
            if found or time.monotonic() >= deadline:
                return found

    def advance(self, partition: Partition, offset: int) -> None:
        """The records below an offset, of those that `fetch` gave, have been dealt with."""
        self._places.advance(partition, offset)

    def _collect(self, deadline: float) -> bool:
        """Returns when something may be handed out, or the time is over; False if the group is
        being joined then. Raises what a partition has met since the last call, and in this one if
        there is nothing to hand out."""
        self._refuse_closed()
        self._commit_if_due()
        while True:
            if not self._join_if_due(deadline):
                return False
            self._raise_error()
            self._turn_lookups()
            self._send_fetches()
            self._fetcher.take(time.monotonic())
            if self._fetcher.waiting.is_ready:
                self._send_fetches()
                return True
            self._raise_error()
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            asked = (self._fetcher, self._lookup, self._leaders, self._topics)
            self._wait(left, [each for one in asked for each in one.descriptors()])

    def _turn_lookups(self) -> None:
        self._leaders.take(time.monotonic())
        self._lookup.take(time.monotonic())
        self._lookup.send(time.monotonic())
        self._leaders.send(time.monotonic())

    def _send_fetches(self) -> None:
        self._fetcher.send(time.monotonic())
        self._leaders.send(time.monotonic())

    def _raise_error(self) -> None:
        error = self._places.take_error(time.monotonic() + BACKOFF_MS / 1000)
        if error is not None:
            raise error

    def _wait(self, seconds: float, descriptors: list[int]) -> None:
        """Until an answer comes, or a pause may be over."""
        now = time.monotonic()
        has_pause = any(place.waits_until > now for _, place in self._places.items())
        at_most = 1.0 if descriptors and not has_pause else BACKOFF_MS / 1000
        seconds = min(seconds, at_most)
        if not descriptors:
            time.sleep(seconds)
            return
        poller = select.poll()
        for descriptor in descriptors:
            poller.register(descriptor, select.POLLIN)
        poller.poll(seconds * 1000)

    # --- committing -------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        """Commits the positions, or these offsets, for the group.

        Raises `BrokerError` if a partition is not this member's any more, and while the group is
        being joined, which `poll` does: it may not be, then.
        """
        if self._group is None:
            raise InvalidArgumentError("a consumer without a group commits nothing")
        self._refuse_closed()
        if offsets is not None:
            offsets = offsets_by_pair("offsets", offsets, 0)
        if self._joining is not None:
            group = self._group.options.group
            raise broker_error(REBALANCE_IN_PROGRESS, f"commit of group '{group}'")
        self._commit(self._group, self._places.positions() if offsets is None else offsets)

    def _commit(
        self,
        group: Membership,
        offsets: Mapping[Partition, int],
        *,
        once: bool = False,
        deadline: float | None = None,
    ) -> None:
        if offsets:
            epochs = self._places.read_epochs(offsets)
            group.commit(offsets, read_epochs=epochs, once=once, deadline=deadline)
            for partition, place in self._places.items():
                place.committed = offsets.get(partition, place.committed)

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """What the group has committed, of those partitions that have an offset."""
        if self._group is None:
            raise InvalidArgumentError("a consumer without a group commits nothing")
        return self._group.committed(pairs("partitions", partitions))

    def _commit_if_due(self) -> None:
        if self._group is None or self._commit_s is None or self._joining is not None:
            return
        now = time.monotonic()
        if now - self._committed_at >= self._commit_s:
            self._committed_at = now
            # Its turn comes again: records are not held up for a coordinator that is away.
            self._commit_quietly(once=True)

    def _commit_quietly(self, *, once: bool = False, deadline: float | None = None) -> None:
        """What cannot be committed is read again by whoever gets the partition."""
        if self._group is None or self._commit_s is None:
            return
        with suppress(ClientError):
            self._commit(self._group, self._uncommitted(), once=once, deadline=deadline)

    def _uncommitted(self) -> dict[Partition, int]:
        """The positions that the group does not know."""
        return {
            partition: offset
            for partition, offset in self._places.positions().items()
            if self._places[partition].committed != offset
        }

    # --- the group --------------------------------------------------------------------------------

    def _join_if_due(self, deadline: float) -> bool:
        """Whether the partitions are this member's: not while it joins its group, if the time is
        over before that has been done, nor while the topics of a new subscription, or of a member
        that is to join, are looked up."""
        group = self._group
        if group is None or self._subscription is None:
            return True
        while True:
            if self._joining is None:
                is_joined = group.is_joined
                changed = self._topics_changed(is_joined)
                if changed is None:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return False
                    self._wait(left, self._topics.descriptors())
                    continue
                if is_joined and not changed and not self._has_to_join:
                    return True
                self._has_to_join = True
                self._joining = self._begin_to_join(group)
            if not self._joining.wait(deadline - time.monotonic()):
                return False
            joining, self._joining = self._joining, None
            self._places.assign(joining.result())
            self._places.forget_positions()
            self._has_to_join = False

    def _begin_to_join(self, group: Membership) -> Joining[list[Partition]]:
        topics = sorted(self._counts)
        offsets = {} if self._commit_s is None else self._uncommitted()
        epochs = self._places.read_epochs(offsets)
        self._commits_in = group.generation if offsets else None

        def join() -> list[Partition]:
            if offsets:
                # Beyond that the group has gone on without it (Kafka's `onJoinPrepare`).
                wait_s = group.options.max_poll_interval_ms / 1000
                with suppress(ClientError):
                    group.commit(offsets, read_epochs=epochs, deadline=time.monotonic() + wait_s)
                    self._commits_in = None
            if topics:
                return group.join(topics, self._partition_counts)
            group.leave()  # others may have what it had
            return []

        return Joining(join, f"join of {group.options.group}")

    def _stop_joining(self, deadline: float) -> bool:
        """Ends a join that is under way, which behind the deadline goes on unseen. Whether what was
        read is still to be committed: there was no join, or it has ended before that was done. In
        the next generation others may have the partitions."""
        joining, group = self._joining, self._group
        if joining is None or group is None:
            return True
        group.interrupt()
        counting = self._counting  # which that thread may put away at any moment
        if counting is not None:
            counting.interrupt()
        is_over = joining.wait(deadline - time.monotonic())
        group.resume(deadline)
        self._joining = None
        return is_over and self._commits_in == group.generation

    def _topics_changed(self, is_joined: bool) -> bool | None:
        """Looks the subscribed topics up now and then, beside all else. None while there is no
        answer, unless it is not waited for: a member that has its partitions reads on."""
        is_new = self._is_new_subscription
        is_due = is_new or time.monotonic() - self._counts_at >= self._age_s(is_joined)
        if not is_due and not self._topics.is_asked:
            return False
        found = self._look_beside()
        if found is None:
            return False if is_joined and not is_new else None
        self._counts_at, self._is_new_subscription = time.monotonic(), False
        changed = found != self._counts
        self._counts = found
        return changed

    def _age_s(self, is_joined: bool) -> float:
        """After how long the topics are looked up again."""
        has_all = bool(self._counts) and all(self._counts.values())
        return METADATA_AGE_S if is_joined and has_all else METADATA_AGE_JOINING_S

    def _look_beside(self) -> dict[str, int] | None:
        """The topics' partitions, none of one that is named and that there is not; None while there
        is no answer. Raises `ClientError` for what does not pass, at once or within the time of a
        whole operation."""
        now, named = time.monotonic(), self._subscription
        try:
            if not self._topics.is_asked and now >= self._topics_wait_until:
                if isinstance(named, re.Pattern):
                    self._topics.ask(None, now)
                else:
                    self._topics.ask(sorted(set(named or ())), now, allow_auto_create=True)
            told = self._topics.take(now)
            if told is None:
                return None
            found = self._counts_of(found_topics(told))
        except ClientError as error:
            self._topics_wait_until = now + BACKOFF_MS / 1000
            since = self._topics_sought_since or now
            late = now - since >= self.cluster.timeout_ms / 1000
            self._topics_sought_since = None if late else since
            if late or not self.cluster.is_awaited or not may_pass(error):
                raise
            return None
        self._topics_sought_since = None
        return found

    def _counts_of(self, found: Mapping[str, TopicMetadata]) -> dict[str, int]:
        subscription = self._subscription
        if not isinstance(subscription, re.Pattern):
            named = subscription or ()
            return {name: len(found[name].partitions) if name in found else 0 for name in named}
        return {
            name: len(topic.partitions)
            for name, topic in found.items()
            if not topic.is_internal and subscription.fullmatch(name)
        }

    def _partition_counts(self, topics: set[str]) -> dict[str, int]:
        """Of all topics of the group, for its leader: asked in the thread that joins."""
        with self.cluster.twin() as counting:
            self._counting = counting
            try:
                found = counting.retry(
                    lambda: counting.refresh(sorted(topics), allow_auto_create=True)
                )
            finally:
                self._counting = None
        return {name: len(topic.partitions) for name, topic in found.items()}
