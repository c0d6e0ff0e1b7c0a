"""Reads records: of partitions that are named, or of those that a group gives.

    with Consumer("127.0.0.1:9092", group="billing") as consumer:
        consumer.subscribe(["orders"])
        while True:
            for record in consumer.poll(1000):
                …

One thread at a time; a group's heartbeats have their own, and so has the joining of a group, which
may take minutes: nothing is read meanwhile. `subscription_state.py` has the state of each
partition, `position_lookup.py` finds where it is read from, `fetcher.py` fetches, `fetched.py`
keeps what has come and was not handed out, `coordinator.py` does what concerns the group;
`loop.py` has all of them go on.
"""

import re
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType

from kafkalite.client import lifetime
from kafkalite.client.admin import EARLIEST, LATEST, Admin, ListedOffset
from kafkalite.client.arguments import (
    OFFSET_MAX,
    choice,
    int32,
    offsets_by_pair,
    pair,
    pairs,
    short_text,
    short_texts,
    whole,
    wrong_type,
)
from kafkalite.client.consumer.coordinator import ConsumerCoordinator, Listener, OnPartitions
from kafkalite.client.consumer.fetched import Fetched, Given, Record
from kafkalite.client.consumer.fetcher import READ_COMMITTED, Fetcher, FetchOptions
from kafkalite.client.consumer.group_options import GroupMetadata, GroupOptions
from kafkalite.client.consumer.loop import ConsumerLoop
from kafkalite.client.consumer.membership import Membership
from kafkalite.client.consumer.position_lookup import PositionLookup
from kafkalite.client.consumer.subscription_state import Need, Partition, SubscriptionState
from kafkalite.client.guard import exclusive
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.network.leaders import Leaders
from kafkalite.client.network.servers import Servers
from kafkalite.client.network.wakeup import Wakeup
from kafkalite.errors import InvalidArgumentError, RequestTimedOutError

__all__ = ["Consumer", "Fetched", "Record"]

ISOLATION = {"read_uncommitted": 0, "read_committed": READ_COMMITTED}
RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}

# What an iterator waits for at a time, and for how long it hands out what it has before it looks
# after its group again.
ITERATE_S = 1.0
TURN_S = 0.1

# What `close` waits for its group (`CloseOptions` of Kafka's consumer), and the end of a program
# for another thread that is reading.
CLOSE_MS = 30_000
EXIT_S = 1.0


class Consumer(ConsumerLoop):
    """A consumer of one cluster. One thread at a time."""

    def __init__(
        self,
        bootstrap_servers: Servers,
        *,
        group: str | GroupOptions | None = None,
        isolation: str = "read_uncommitted",
        offset_reset: str = "earliest",
        auto_commit_interval_ms: int | None = 5_000,
        max_poll_records: int = 500,
        fetch_bytes_min: int = 1,
        fetch_bytes_max: int = 50 << 20,
        partition_bytes_max: int = 1 << 20,
        fetch_wait_ms: int = 500,
        timeout_ms: int = 60_000,
        request_timeout_ms: int = 30_000,
        wait_for_servers_ms: int = 0,
        client_id: str = "kafkalite-consumer",
    ) -> None:
        """Arguments are Kafka's `group.id`, `isolation.level`, `auto.offset.reset` (Kafka's default
        is latest), `auto.commit.interval.ms` (None: no auto commit), `max.poll.records`,
        `fetch.min.bytes`, `fetch.max.bytes`, `max.partition.fetch.bytes`, `fetch.max.wait.ms`,
        `default.api.timeout.ms`, `request.timeout.ms`; `wait_for_servers_ms` is how long the first
        contact is waited for, where nobody answers at first.

        Raises `InvalidArgumentError`, `TypeError`.
        """
        super().__init__()
        short_text("client_id", client_id)
        int32("fetch_bytes_min", fetch_bytes_min, 0)
        int32("fetch_bytes_max", fetch_bytes_max, 0)
        int32("partition_bytes_max", partition_bytes_max, 0)
        int32("fetch_wait_ms", fetch_wait_ms, 0)
        self._records_max = int32("max_poll_records", max_poll_records, 1)
        choice("isolation", isolation, ISOLATION)
        choice("offset_reset", offset_reset, RESETS)
        self.isolation = isolation
        """`read_uncommitted` or `read_committed`."""
        commit_s = None
        if auto_commit_interval_ms is not None:
            commit_s = int32("auto_commit_interval_ms", auto_commit_interval_ms, 0) / 1000
        self.cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            timeout_ms=timeout_ms,
            request_timeout_ms=request_timeout_ms,
            wait_for_servers_ms=wait_for_servers_ms,
        )
        self._admin = Admin(self.cluster)
        self._subscription_state = SubscriptionState()
        name, member = None, None
        if group is not None:
            options = group if isinstance(group, GroupOptions) else GroupOptions(group)
            name = options.group
            member = Membership(self.cluster, options, self._troubles)
        self._wakeup = Wakeup()
        self._coordinator: ConsumerCoordinator | None = None
        if member is not None:
            self._coordinator = ConsumerCoordinator(
                member,
                self.cluster,
                self._subscription_state,
                self._wakeup,
                self._troubles,
                commit_s,
            )
        self._leaders = Leaders(self.cluster, troubles=self._troubles)
        fetches = FetchOptions(
            ISOLATION[isolation],
            fetch_bytes_min,
            fetch_bytes_max,
            partition_bytes_max,
            fetch_wait_ms,
        )
        self._fetcher = Fetcher(
            self.cluster, self._leaders, self._subscription_state, fetches, self._troubles
        )
        self._position_lookup = PositionLookup(
            self.cluster,
            self._leaders,
            self._subscription_state,
            name,
            RESETS[offset_reset],
            ISOLATION[isolation],
            self._troubles,
        )
        self._is_closed = False
        lifetime.watch(self)

    def __repr__(self) -> str:
        return f"<kafkalite.Consumer: {self.cluster.servers_text}>"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """As `close`. A block that has failed had not dealt with the record, or the list, that it
        got last: that is not committed."""
        self._close_or_ask(CLOSE_MS, in_hand=kind is None)

    def close(self, timeout_ms: int = CLOSE_MS) -> None:
        """Commits, if it does so by itself, leaves the group and closes the connections. A group
        that does not answer is waited for no longer than `timeout_ms` and a second, and about a
        second where nobody can be reached.

        While an exception is under way (`finally`, `except`) it does as the end of a `with` block
        that has failed. Called within another call, by a listener or a handler of a signal, it
        takes effect at the end of that call, which returns nothing more."""
        has_failed = sys.exc_info()[1] is not None
        self._close_or_ask(int32("timeout_ms", timeout_ms, 0), in_hand=not has_failed)

    def _close_or_ask(self, timeout_ms: int, *, in_hand: bool) -> None:
        """Closes it, or has the call of this thread that is under way do so at its end."""
        if self._is_closed or self._is_forked:
            return
        self._refuse_another_thread()
        try:
            if self._calls == 0:
                self._close(timeout_ms, in_hand=in_hand)
            elif self._end_asked is None:
                self._end_asked = lambda: self._close(timeout_ms, in_hand=False)
                self.wakeup()
        finally:
            self._guard.release()

    def __del__(self) -> None:
        if self._is_closed or self._is_forked or lifetime.is_untold():
            return
        self._is_closed = True
        if self._is_subscribed or self._subscription_state:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
        if self._coordinator is not None:
            self._coordinator.group.drop()
        self._close_sockets()

    def at_exit(self, timeout_ms: int) -> None:
        """Closes it at the end of the program, which has not said that it is done with what it had
        in hand: an exception may have ended it, or a signal."""
        self.wakeup()
        if self._guard.acquire(timeout=EXIT_S):
            try:
                self._close(timeout_ms, in_hand=False)
            finally:
                self._guard.release()

    def after_fork(self) -> None:
        """Gives up, in a child, what belongs to the parent: sockets are closed, and nothing is
        sent."""
        super().after_fork()
        self._wakeup.after_fork()
        try:
            if self._coordinator is not None:
                self._coordinator.after_fork()
            self._fetcher.waiting.shut()
        finally:
            self._close_sockets()

    def _close(self, timeout_ms: int, *, in_hand: bool) -> None:
        if self._is_closed or self._is_forked:
            return
        calls = self._calls
        try:
            self._calls = calls + 1  # a listener's come within this one
            self._is_closed = True
            self._fetcher.waiting.shut()
            if self._coordinator is not None:
                deadline = time.monotonic() + timeout_ms / 1000
                self._coordinator.close(deadline, in_hand=in_hand)
        finally:
            self._calls = calls
            self._close_sockets()
            self._troubles.write()

    def _close_sockets(self) -> None:
        for each in (
            self._fetcher,
            self._position_lookup,
            self._leaders,
            self.cluster,
            self._wakeup,
        ):
            each.close()
        lifetime.forget(self)

    # --- what to read -----------------------------------------------------------------------------

    @exclusive
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
        starts = dict(partitions) if isinstance(partitions, Mapping) else {}
        assigned = pairs("partitions", partitions)
        for (topic, index), start in starts.items():
            whole(f"the offset of {topic}-{index}", start, None, OFFSET_MAX)
        stops = {} if stops is None else offsets_by_pair("stops", stops)
        for topic, index in stops:
            if (topic, index) not in assigned:
                raise InvalidArgumentError(f"{topic}-{index} is not assigned")
        special = {partition: start for partition, start in starts.items() if start < 0}
        found = self._offsets(special) if special else {}
        # Nothing fails from here on: the consumer reads what it has read, or what it is told to.
        in_hand = self._end_assigned()
        if self._coordinator is not None:
            self._coordinator.unsubscribe(time.monotonic() + CLOSE_MS / 1000, in_hand=in_hand)
        self._subscription_state.assign(assigned)
        self._leaders.create_once(topic for topic, _ in assigned)
        for partition, stop in stops.items():
            self._subscription_state[partition].stop = stop
        for partition, start in starts.items():
            self._subscription_state.seek(partition, found.get(partition, start))

    @exclusive
    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Reads those partitions of a topic, of several, or of all topics that match as a whole,
        that the group gives; `poll` and `fetch` join it.

        A rebalance is told within `poll`, and the end of the membership within `close`, with lists
        of partitions: those that the group has given; those that it takes back, before it has done
        so, when `commit` still may be called; and those that it has given to others already, since
        it has put the member out (without `on_lost` they are revoked too). What a function raises
        comes out of the call."""
        if self._coordinator is None:
            raise InvalidArgumentError("a consumer without a group can only assign")
        named = topics if isinstance(topics, re.Pattern) else short_texts("topics", topics)
        if isinstance(named, list):
            for each in named:
                if each.startswith("^"):
                    meant = f"did you mean re.compile({each!r})?"
                    sentence = f"topics has {each!r}, which is not a topic name; {meant}"
                    raise InvalidArgumentError(sentence)
            if not named:
                self._unsubscribe()
                return
        listener = Listener(on_assigned, on_revoked, on_lost)
        for name, function in listener._asdict().items():
            if function is not None and not callable(function):
                raise wrong_type(name, function, "a function of a list of partitions")
        self._end_assigned()
        self._coordinator.subscribe(named, Listener(*map(self._called_back, listener)))

    def _called_back(self, function: OnPartitions | None) -> OnPartitions | None:
        """A function that is called within `poll`: it may use the consumer, but not to read."""
        if function is None:
            return None

        def call(partitions: list[Partition]) -> None:
            self._is_called_back = True
            try:
                function(partitions)
            finally:
                self._is_called_back = False
            self._refuse_fork()  # by the function

        return call

    @exclusive
    def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group. What it commits is as in `close`."""
        self._unsubscribe()

    def _unsubscribe(self) -> None:
        deadline = time.monotonic() + CLOSE_MS / 1000
        in_hand = self._end_assigned(deadline)
        if self._coordinator is not None:
            self._coordinator.unsubscribe(deadline, in_hand=in_hand)
        self._subscription_state.assign([])

    @property
    @exclusive
    def assignment(self) -> list[Partition]:
        """The partitions that are read at the moment."""
        return sorted(self._subscription_state)

    @exclusive
    def seek(self, partition: Partition, offset: int) -> None:
        """Goes on at an offset. Raises `InvalidArgumentError` for a partition not assigned."""
        self._fetcher.waiting.shut()
        self._subscription_state.seek(
            pair("partition", partition), whole("offset", offset, 0, OFFSET_MAX)
        )

    @exclusive
    def seek_to_beginning(self, partitions: Iterable[Partition] | None = None) -> None:
        """Goes on at the first record of these partitions, of all that are assigned without them.
        Raises as `seek`, and `ClientError`: the offsets are asked for."""
        self._seek_to(EARLIEST, partitions)

    @exclusive
    def seek_to_end(self, partitions: Iterable[Partition] | None = None) -> None:
        """As `seek_to_beginning`, behind the last record that may be read."""
        self._seek_to(LATEST, partitions)

    def _seek_to(self, kind: int, partitions: Iterable[Partition] | None) -> None:
        wanted = (
            list(self._subscription_state)
            if partitions is None
            else pairs("partitions", partitions)
        )
        for partition in wanted:
            self._subscription_state[partition]  # or it is refused
        found = self._offsets(dict.fromkeys(wanted, kind))
        self._fetcher.waiting.shut()
        for partition, offset in found.items():
            self._subscription_state.seek(partition, offset)

    @exclusive
    def offsets_for_times(
        self, timestamps: Mapping[Partition, int]
    ) -> dict[Partition, ListedOffset | None]:
        """The first record at or after a time (ms since 1970, or a datetime with a zone) of each
        partition, assigned or not; None where there is none. Raises `ClientError`."""
        found = self._admin.list_offsets(timestamps)
        return {each: listed if listed.offset >= 0 else None for each, listed in found.items()}

    @exclusive
    def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first offset of partitions, assigned or not. Raises `ClientError`."""
        return self._offsets(dict.fromkeys(pairs("partitions", partitions), EARLIEST))

    @exclusive
    def end_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset behind the last record that may be read. Raises `ClientError`."""
        return self._offsets(dict.fromkeys(pairs("partitions", partitions), LATEST))

    def _offsets(self, kinds: Mapping[Partition, int]) -> dict[Partition, int]:
        is_committed = self.isolation == "read_committed"
        found = self._admin.list_offsets(kinds, committed=is_committed)
        return {partition: listed.offset for partition, listed in found.items()}

    @exclusive
    def lag(self, partition: Partition) -> int | None:
        """How many offsets the position is behind the end of what may be read, as the last fetch
        has told it (`currentLag` of Kafka's consumer); None while that is not known."""
        self._fetcher.waiting.settle()
        state = self._subscription_state[pair("partition", partition)]
        if state.position is None or state.end is None:
            return None
        return max(state.end - state.position, 0)

    @exclusive
    def position(self, partition: Partition) -> int:
        """The offset of the next record. Raises `OffsetOutOfRangeError` if there is nowhere to
        begin, `RequestTimedOutError`, `BrokerError`."""
        pair("partition", partition)
        self._fetcher.waiting.settle()
        deadline = time.monotonic() + self.cluster.timeout_ms / 1000
        while True:
            state = self._subscription_state[partition]
            if state.need is Need.NOTHING and state.position is not None:
                return state.position
            if state.error is not None:
                error = state.error
                self._subscription_state.forget_error(partition, 0.0)
                raise error
            left = deadline - time.monotonic()
            if left <= 0:
                raise RequestTimedOutError(
                    f"the position of {partition[0]}-{partition[1]} was not found within "
                    f"{self.cluster.timeout_ms} ms"
                )
            self._turn_lookups()
            if (
                self._position_lookup.descriptors()
                or self._leaders.descriptors()
                or state.waits_until
            ):
                self._wait(left, [])

    @exclusive
    def pause(self, partition: Partition) -> None:
        """Hands out and fetches nothing more of a partition until `resume`."""
        self._fetcher.waiting.shut()
        self._subscription_state.pause(pair("partition", partition), is_paused=True)

    @exclusive
    def resume(self, partition: Partition) -> None:
        """Goes on with a paused partition."""
        self._subscription_state.pause(pair("partition", partition), is_paused=False)

    # --- reading ----------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0) -> list[Record]:
        """The next records, `max_poll_records` at most, none if there are none in time. They count
        as read, and so as to be committed by itself, when `poll` is called again.

        Raises `BrokerError`, `OffsetOutOfRangeError`, `CorruptMessageError`: once for each call, as
        long as it is so, and in between it gives what there is of other partitions. The position
        stays where the error is; `seek` leaves it behind. A topic that was named and is not there
        is an error of that kind, with nothing to seek to.

        If a handler of a signal raises in it, the next call gives the same records.
        """
        given = Given()
        try:
            return self._poll(timeout_ms, given)
        except BaseException:
            self._take_back(given)
            raise

    @exclusive
    def _poll(self, timeout_ms: int, given: Given) -> list[Record]:
        deadline = self._begin(timeout_ms)
        while True:
            is_over = not self._collect(deadline)
            waiting = self._fetcher.waiting
            records = [] if is_over else waiting.take_records(self._records_max, given)
            if records or self._has_to_return(deadline):
                return records
            given.clear()  # of an answer without records nothing was the caller's

    def __iter__(self) -> Iterator[Record]:
        """Records, until `wakeup` is called. Whoever leaves the loop has had the records up to the
        one they left it with; the next loop, or `poll`, goes on with the one behind it."""
        while True:
            records = self._next_records()
            if records is None:
                return
            # Here nothing is done for a record but to give it: its list knows how far it is.
            until = time.monotonic() + TURN_S
            for record in records:
                yield record
                if time.monotonic() >= until:
                    break

    @exclusive
    def _next_records(self) -> Iterator[Record] | None:
        """Gives what an iterator hands out next; None if it is to end."""
        while True:
            deadline = self._begin(round(ITERATE_S * 1000))
            # Before what there is: a backlog must not keep it from its end.
            if self._is_woken:
                self._has_to_return(deadline)
                return None
            if self._collect(deadline):
                records = self._fetcher.waiting.open(self._records_max)
                if records is not None:
                    return records

    def fetch(self, timeout_ms: int = 0) -> list[Fetched]:
        """As `poll`, as bytes, all that has come: for readers that want no object a record. The
        caller says by `advance` how far they have come."""
        given = Given()
        try:
            return self._fetch(timeout_ms, given)
        except BaseException:
            self._take_back(given)
            raise

    @exclusive
    def _fetch(self, timeout_ms: int, given: Given) -> list[Fetched]:
        deadline = self._begin(timeout_ms)
        while True:
            found = self._fetcher.waiting.take_bytes(given) if self._collect(deadline) else []
            if found or self._has_to_return(deadline):
                return found

    @exclusive
    def advance(self, partition: Partition, offset: int) -> None:
        """The records below an offset, of those that `fetch` gave, have been dealt with."""
        self._subscription_state.advance(
            pair("partition", partition), whole("offset", offset, 0, OFFSET_MAX)
        )

    # --- committing -------------------------------------------------------------------------------

    @exclusive
    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        """Commits the positions, or these offsets, for the group.

        Raises `BrokerError` if a partition is not this member's any more, and while the group is
        being joined, which `poll` does: it may not be, then.

        A handler of a signal that comes in the midst of `poll` commits nothing of what that is
        about to give: it may never come to the caller.
        """
        coordinator = self._grouped()
        if offsets is not None:
            offsets = offsets_by_pair("offsets", offsets, 0)
        self._fetcher.waiting.settle()
        coordinator.commit(offsets, in_hand=not self._is_within)

    @exclusive
    def positions_of_group(
        self, since_ns: int
    ) -> tuple[GroupMetadata, dict[Partition, tuple[int, int]]]:
        """Gives the offsets that `commit` would commit, each with the leader epoch of what comes
        before it, and as whom: for `send_offsets` of a producer, which commits in a transaction
        that began at `since_ns` of the monotonic clock.

        Raises `BrokerError` as `commit` does, and if partitions were taken from it since then, and
        `InvalidArgumentError` if it commits by itself.
        """
        whole("since_ns", since_ns, 0, OFFSET_MAX)
        coordinator = self._grouped()
        self._fetcher.waiting.settle()
        return coordinator.positions_of_group(since_ns)

    @exclusive
    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Gives the committed offsets, of those partitions that have one."""
        return self._grouped().group.committed(pairs("partitions", partitions))

    def _grouped(self) -> ConsumerCoordinator:
        if self._coordinator is None:
            raise InvalidArgumentError("a consumer without a group commits nothing")
        return self._coordinator
