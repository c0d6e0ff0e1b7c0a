"""A member of a consumer group: joins, shares partitions out if it leads, keeps alive, commits.

The classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup) with the assignor `range`, which
every consumer of Kafka's knows. Whatever is asked of the coordinator goes through one connection
under one lock; heartbeats come from a thread of their own, so that a consumer that works on its
records for long stays in the group, up to `max_poll_interval_ms`, and so does a leader that takes
its time to share partitions out. The coordinator itself waits for whoever has sent JoinGroup, or
SyncGroup, and was not answered.

    unjoined ── join ──► joined ── a heartbeat says that the group rebalances ──► unjoined
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from kafkalite.client import lifetime
from kafkalite.client.consumer.assignor import (
    RANGE,
    assign_range,
    decode_assignment,
    encode_assignment,
)
from kafkalite.client.consumer.group_options import GroupMetadata, GroupOptions, check_options
from kafkalite.client.consumer.offset_commit import (
    OF_PARTITIONS,
    commit_topics,
    committed_codes,
    refusal,
)
from kafkalite.client.consumer.position_lookup import (
    OFFSETS_BY_NAME,
    fetched_offsets,
    offset_fetch_request,
)
from kafkalite.client.consumer.subscription_state import Partition
from kafkalite.client.network.cluster import BACKOFF_MS, BACKOFF_MS_MAX, Cluster
from kafkalite.client.network.connection import broker_error, check, may_pass
from kafkalite.client.trouble import Troubles
from kafkalite.errors import (
    BrokerError,
    ClientError,
    ConnectionFailedError,
    RequestTimedOutError,
)
from kafkalite.protocol import messages
from kafkalite.protocol.codes import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)

__all__ = ["Membership"]

Result = TypeVar("Result")

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_VERSION = 1

ONCE_MS = 1_000
"""The time that a commit that is not tried again takes at most."""

COORDINATOR = "coordinator"
"""The trouble of a coordinator that is away."""

THREAD_END_S = 5.0
"""How long a consumer that closes waits for the thread of its heartbeats."""

GONE_S = 1.0
"""How long a consumer that closes tries to connect where nobody answers."""


class Membership:
    """One member of one group. One thread, or two that take turns; heartbeats run beside it."""

    def __init__(
        self, cluster: Cluster, options: GroupOptions, troubles: Troubles | None = None
    ) -> None:
        """Has connections of its own to this cluster, and the cluster's times; a join has as long
        as the group lets it take."""
        check_options(options)
        self.options = options
        self.member_id = ""
        self.generation = -1
        self._cluster = cluster.twin()
        self.troubles = Troubles() if troubles is None else troubles
        """Written by the heartbeats too."""
        self._lock = threading.RLock()
        self._coordinator: int | None = None
        self._told_at = 0.0
        """Monotonic seconds at which a broker said last who coordinates the group."""
        self._joined = False
        self._is_member = False
        """Its session has to be kept alive; also while the group rebalances and waits for it."""
        self._is_forgotten = False
        """It was put out of the group since it joined: others may have its partitions."""
        self._polled_at = time.monotonic()
        self._beaten_at = time.monotonic()
        """When the last heartbeat was sent that was answered well, or the group was entered: its
        session has begun anew by then."""
        self._has_given_up = False
        """A static member that nobody polls, until its session is over."""
        self._stop = threading.Event()
        self._leaves_at_end = self._is_interrupted = False
        self._thread: threading.Thread | None = None
        self._fatal: ClientError | None = None

    @property
    def is_joined(self) -> bool:
        """Says whether the partitions of the last `join` are still this member's.

        Raises what ended the membership for good, if something did.
        """
        self._polled_at = time.monotonic()
        if self._fatal is not None:
            raise self._fatal
        return self._joined

    @property
    def is_lost(self) -> bool:
        """Says whether it was put out of the group, or has left: others may have its partitions."""
        return self.generation < 0 or self._is_expired

    @property
    def _is_expired(self) -> bool:
        silent_ms = (time.monotonic() - self._beaten_at) * 1000
        return self._has_given_up and silent_ms >= self.options.session_timeout_ms

    @property
    def metadata(self) -> GroupMetadata:
        """The member, for commits. Raises `BrokerError` once others may have its partitions."""
        self._refuse_forgotten()
        options = self.options
        return GroupMetadata(options.group, self.generation, self.member_id, options.instance_id)

    def _refuse_forgotten(self) -> None:
        if self._is_forgotten or self._is_expired:
            # Without member and generation it would be taken, once the group is empty, over what
            # the others have committed since.
            raise broker_error(UNKNOWN_MEMBER_ID, f"commit of group '{self.options.group}'")

    # --- membership -------------------------------------------------------------------------------

    def join(
        self, topics: Iterable[str], counts: Callable[[set[str]], Mapping[str, int]]
    ) -> list[Partition]:
        """Joins the group and returns this member's partitions. `counts` gives the partitions of
        the topics of all members, should this one have to share them out.

        Waits for the other members, at most as long as the group lets them take.
        """
        self._joined = False  # until it has: a join that fails is tried again
        named, pause_ms, paused_ms = sorted(topics), 0, 0
        while True:
            joined = self._enter(named)
            found: list[Partition] | int = int(joined.error_code)
            if found == NONE:
                found = self._take_share(joined, counts)
            if isinstance(found, list):
                return found
            if found in (MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS):
                continue
            # The time that other members took does not count.
            if paused_ms > self._cluster.timeout_ms:
                raise broker_error(found, f"group '{self.options.group}'")
            # At once, as Kafka's consumer does each time, but only the first.
            time.sleep(pause_ms / 1000)
            paused_ms += pause_ms
            pause_ms = min(max(2 * pause_ms, BACKOFF_MS), BACKOFF_MS_MAX)

    def _start_heartbeats(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._beat, name=f"heartbeat of {self.options.group}", daemon=True
            )
            self._thread.start()

    def leave(self, deadline: float | None = None) -> None:
        """Leaves the group, unless it is a static member, and sends no heartbeats until it joins
        again. Nobody is waited for beyond the deadline (monotonic seconds)."""
        self._joined = self._is_member = False
        try:
            with self._alone(deadline):
                self._joined = self._is_member = False
                self._is_forgotten = self._has_given_up = False
                if self.member_id and self.options.instance_id is None:
                    self._leave()
                # A static member stays until its session is over. What is committed from now on is
                # none of its own, and would keep that up for partitions that nobody reads.
                self.member_id, self.generation = "", -1
        except ClientError:
            pass  # the session time-out does it

    def interrupt(self) -> None:
        """A `join` in another thread fails, and all else that is asked, until `resume`."""
        self._is_interrupted = True
        self._cluster.interrupt()

    def resume(self, deadline: float) -> None:
        """The end of an interrupt, for which that join is waited until the deadline (monotonic
        seconds). Its connections are of no use any more."""
        try:
            with suppress(RequestTimedOutError), self._alone(deadline):
                self._cluster.close()
        finally:
            self._cluster.resume()
            self._is_interrupted = False

    def close(self, deadline: float | None = None) -> None:
        """Leaves the group and ends the heartbeats; the coordinator is not waited for beyond the
        deadline (monotonic seconds)."""
        self._stop.set()
        try:
            self.leave(deadline)
        finally:
            try:
                with self._alone(deadline):
                    self._cluster.close()
            except RequestTimedOutError:
                self._cluster.interrupt()  # a heartbeat that waits for its answer has the lock
            self._await_thread(THREAD_END_S)

    def drop(self) -> None:
        """Leaves the group though nobody has closed the consumer; waits for a second at most.
        Called by the garbage collector in any thread, that of the heartbeats included, which does
        it."""
        self._leaves_at_end = True
        self._stop.set()
        self._await_thread(ONCE_MS / 1000)

    def after_fork(self) -> None:
        """Gives up, in a child, what belongs to the parent: the heartbeats' thread is not here, and
        its locks, that of the event too, may be held for ever."""
        lifetime.free(self._lock)
        self._stop = threading.Event()
        self._stop.set()
        # A listener that forks in the midst of a close comes back to it here, too.
        self.member_id, self.generation = "", -1
        self._cluster.close()

    def _await_thread(self, seconds: float) -> None:
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        if thread.is_alive():
            # Else it has ended, or an interrupt came as it was to start: it ends as it begins.
            thread.join(seconds)

    def _leave(self) -> None:
        kind = messages.LeaveGroupRequest
        member = kind.MemberIdentity(member_id=self.member_id, reason="the consumer was closed")
        request = kind(group_id=self.options.group, member_id=self.member_id, members=[member])
        self.member_id, self.generation = "", -1
        self._ask(request)

    def _enter(self, topics: list[str]) -> Any:
        """The answer to JoinGroup; it may have a code that asks for another."""

        def ask() -> Any:
            joined = self._ask_to_join(topics)
            if joined.error_code == MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            elif not self._forgets(joined.error_code):
                check(joined.error_code, f"group '{self.options.group}'")
            return joined

        with self._lock:
            joined = self._retry(ask)
            if joined.error_code != NONE:
                return joined
            self.member_id, self.generation = joined.member_id, joined.generation_id
            self._is_member, self._has_given_up = True, False
            self._polled_at = self._beaten_at = time.monotonic()
        self._start_heartbeats()
        return joined

    def _take_share(
        self, joined: Any, counts: Callable[[set[str]], Mapping[str, int]]
    ) -> list[Partition] | int:
        """This member's partitions, or the code that asks for another JoinGroup. Heartbeats go on
        while they are shared out, and no time of a request's bounds either."""
        assigned = {}
        if joined.leader == joined.member_id:
            shares = self._share_out(joined.members, counts)
            # A static leader that comes back leaves them as they are, and has counted all the same:
            # it is the one to see that they change.
            assigned = {} if joined.skip_assignment else shares

        def ask() -> Any:
            synced = self._sync(assigned)
            code = synced.error_code
            if code != REBALANCE_IN_PROGRESS and not self._forgets(code):
                check(code, f"group '{self.options.group}'")
            return synced

        with self._lock:
            if (self.member_id, self.generation) != (joined.member_id, joined.generation_id):
                return ILLEGAL_GENERATION  # a heartbeat was told so meanwhile
            synced = self._retry(ask)
            if synced.error_code != NONE:
                return int(synced.error_code)
            self._joined, self._is_member, self._is_forgotten = True, True, False
            self._has_given_up = False  # a heartbeat may have, while partitions were shared out
            self._polled_at = self._beaten_at = time.monotonic()
            return decode_assignment(synced.assignment)

    def _ask_to_join(self, topics: list[str]) -> Any:
        options = self.options
        subscription = messages.ConsumerProtocolSubscription(topics=topics)
        metadata = SUBSCRIPTION_VERSION.to_bytes(2) + subscription.encode(SUBSCRIPTION_VERSION)
        kind = messages.JoinGroupRequest
        # A member that the coordinator does not know (any more) joins as a new one.
        request = kind(
            group_id=options.group,
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[kind.JoinGroupRequestProtocol(name=RANGE, metadata=metadata)],
        )
        return self._ask(request, timeout_ms=options.max_poll_interval_ms + 5_000)

    def _sync(self, assigned: Mapping[str, list[Partition]]) -> Any:
        kind = messages.SyncGroupRequest
        request = kind(
            group_id=self.options.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=RANGE,
            assignments=[
                kind.SyncGroupRequestAssignment(
                    member_id=member_id, assignment=encode_assignment(partitions)
                )
                for member_id, partitions in assigned.items()
            ],
        )
        return self._ask(request, timeout_ms=self.options.max_poll_interval_ms + 5_000)

    def _share_out(
        self, rows: list[Any], counts: Callable[[set[str]], Mapping[str, int]]
    ) -> dict[str, list[Partition]]:
        members = []
        for row in rows:
            version = min(int.from_bytes(row.metadata[:2]), 0)
            subscription = messages.ConsumerProtocolSubscription.decode(row.metadata[2:], version)
            members.append((row.member_id, row.group_instance_id, subscription.topics))
        topics = {topic for _, _, subscribed in members for topic in subscribed}
        return assign_range(members, counts(topics))

    def _forgets(self, code: int) -> bool:
        """Says whether the coordinator has told that this is no member any more, or not in this
        generation. Then it is still known, and would be waited for if it came as a new one
        (`AbstractCoordinator.resetStateOnResponseError`)."""
        if code not in (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION):
            return False
        if code == UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if self._joined:
            self.troubles.warn(
                f"{self._name} was put out of it, and joins again: what it has read and not "
                "committed is read once more"
            )
        self.generation, self._is_forgotten = -1, True
        self._joined = self._is_member = False
        return True

    # --- heartbeats -------------------------------------------------------------------------------

    def _beat(self) -> None:
        interval_s = self.options.heartbeat_interval_ms / 1000
        while not self._stop.wait(interval_s):
            with self._lock:
                if self._is_member and not self._stop.is_set():
                    # A join that is under way may have less time left.
                    self._beat_once(self._cluster.request_timeout_ms)
            self.troubles.write()
        if self._leaves_at_end:
            deadline = time.monotonic() + ONCE_MS / 1000
            self.leave(deadline)
            self._cluster.close()

    def _beat_once(self, timeout_ms: int | None) -> None:
        now = time.monotonic()
        try:
            if (now - self._polled_at) * 1000 > self.options.max_poll_interval_ms:
                self._give_up()
            else:
                self._heartbeat(timeout_ms)
                self._beaten_at = now
                self.troubles.end(COORDINATOR, f"{self._name} has its coordinator again")
        except ClientError as error:
            self._coordinator = None  # the next one looks it up again
            self._has_trouble(error)
        finally:
            if self._stop.is_set() and not self._leaves_at_end:
                self._cluster.close()  # `close` has not waited for this answer

    def _give_up(self) -> None:
        """Nobody polls. A static member's partitions wait for the end of its session, as
        `max.poll.interval.ms` of Kafka's consumer says."""
        self.troubles.warn(
            f"{self._name} leaves it: nobody has polled for "
            f"max_poll_interval_ms={self.options.max_poll_interval_ms}, so that others get its "
            "partitions; more time, or fewer max_poll_records, keep it in"
        )
        self._joined = self._is_member = False
        self._has_given_up = self.options.instance_id is not None
        if not self._has_given_up:
            self._is_forgotten = True
            self._leave()

    @property
    def _name(self) -> str:
        """The member, as its log lines call it."""
        return f"the consumer of group '{self.options.group}'"

    def _has_trouble(self, error: ClientError) -> None:
        """Tells the log, but not of a coordinator that is just being made: a new cluster's first
        group waits for that."""
        is_made = isinstance(error, BrokerError) and error.code == COORDINATOR_NOT_AVAILABLE
        if not (self._stop.is_set() or self._is_interrupted or is_made):
            self.troubles.begin(COORDINATOR, f"{self._name} cannot reach its coordinator: {error}")

    def _heartbeat(self, timeout_ms: int | None) -> None:
        request = messages.HeartbeatRequest(
            group_id=self.options.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.options.instance_id,
        )
        code = self._ask(request, timeout_ms=timeout_ms).error_code
        if code == NONE or self._heed(code):
            return
        if code == FENCED_INSTANCE_ID:
            self._joined = self._is_member = False
            self._fatal = broker_error(code, f"group '{self.options.group}'")
            self.troubles.warn(f"{self._name} is out of it for good: {self._fatal}")
        else:
            check(code, f"group '{self.options.group}'")

    def _heed(self, code: int) -> bool:
        """Says whether a member has been told to join again."""
        is_told = self.generation >= 0 and (self._forgets(code) or code == REBALANCE_IN_PROGRESS)
        if is_told:
            self._joined = False
        return is_told

    # --- offsets ----------------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[Partition, int],
        *,
        read_epochs: Mapping[Partition, int] | None = None,
        on_taken: Callable[[Mapping[Partition, int]], object] = lambda _: None,
        once: bool = False,
        deadline: float | None = None,
        while_reachable: bool = False,
    ) -> None:
        """Commits the offset of the next record of each partition, with the leader epoch of what
        was read before it, if that is known (KIP-320); `on_taken` is told in this thread of those
        that were taken, though others are refused; `once`: what fails is not tried
        again, and nobody is waited for longer than `ONCE_MS`; else not beyond the deadline
        (monotonic seconds), if there is one, and with `while_reachable` not for longer than
        `GONE_S` where nobody answers.

        Raises `BrokerError` (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, …) if the partitions are
        not this member's any more.
        """
        topics = commit_topics(offsets, read_epochs or {})

        def ask() -> None:
            self._refuse_forgotten()
            request = messages.OffsetCommitRequest(
                group_id=self.options.group,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                group_instance_id=self.options.instance_id,
                topics=topics,
            )
            codes = committed_codes(self._ask(request, at_most=OFFSETS_BY_NAME))
            on_taken({each: at for each, at in offsets.items() if codes.get(each) == NONE})
            refused = refusal(codes)
            if refused is not None:
                self._heed(refused.code)
                raise refused

        if once:
            wait_ms = min(self._cluster.request_timeout_ms, ONCE_MS)
            with self._alone(time.monotonic() + wait_ms / 1000):
                self._attempt(ask)
        else:
            with self._alone(self._within_time() if deadline is None else deadline):
                self._retry_alive(self._giving_up(ask) if while_reachable else ask)

    def _giving_up(self, operation: Callable[[], Result]) -> Callable[[], Result]:
        """An operation that is not tried again once nobody has answered for `GONE_S`."""
        since = time.monotonic()

        def attempt() -> Result:
            try:
                return operation()
            except ConnectionFailedError as error:
                if time.monotonic() - max(since, self._told_at) >= GONE_S:
                    # Of a kind that is not tried again.
                    raise ClientError(str(error)) from error
                raise

        return attempt

    def _within_time(self) -> float:
        """Until when a whole operation may take, the wait for a heartbeat before it included."""
        return time.monotonic() + self._cluster.timeout_ms / 1000

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The committed offsets, of those partitions that have one."""
        request = offset_fetch_request(self.options.group, partitions)

        def ask() -> dict[Partition, int]:
            response = self._ask(request, at_most=OFFSETS_BY_NAME)
            offsets = {}
            for each in fetched_offsets(self.options.group, response):
                check(each.code, f"offset of {each.partition[0]}-{each.partition[1]}")
                if each.offset >= 0:
                    offsets[each.partition] = each.offset
            return offsets

        with self._alone(self._within_time()):
            return self._retry_alive(ask)

    # --- asking -----------------------------------------------------------------------------------

    def _ask(
        self, request: Any, *, timeout_ms: int | None = None, at_most: int | None = None
    ) -> Any:
        if self._coordinator is None:
            self._coordinator = self._cluster.coordinator(self.options.group)
            self._told_at = time.monotonic()
        return self._cluster.ask(
            request, node_id=self._coordinator, timeout_ms=timeout_ms, at_most=at_most
        )

    def _retry(self, operation: Callable[[], Result]) -> Result:
        return self._cluster.retry(lambda: self._attempt(operation))

    def _retry_alive(self, operation: Callable[[], Result]) -> Result:
        """As `_retry`, with heartbeats between the attempts, in the time of the operation: those of
        the thread wait for the lock, for longer than a session may take."""

        def beat(failure: ClientError) -> None:
            is_due = time.monotonic() - self._beaten_at >= self.options.heartbeat_interval_ms / 1000
            # Whoever does not answer the operation answers no heartbeat either.
            if is_due and self._is_member and isinstance(failure, BrokerError):
                self._beat_once(None)

        return self._cluster.retry(lambda: self._attempt(operation), forget=beat)

    @contextmanager
    def _alone(self, deadline: float | None) -> Iterator[None]:
        """Has the block ask under the lock, and neither is waited for beyond the
        deadline. Raises `RequestTimedOutError`."""
        left_s = -1 if deadline is None else max(deadline - time.monotonic(), 0)
        if not self._lock.acquire(timeout=left_s):
            raise RequestTimedOutError(f"group '{self.options.group}' waits for its coordinator")
        try:
            if deadline is None:
                yield
            else:
                with self._cluster.until(deadline):
                    yield
        finally:
            self._lock.release()

    def _attempt(self, operation: Callable[[], Result]) -> Result:
        """After what may pass the coordinator is looked up anew. Under the lock, as all that asks
        it is."""
        try:
            found = operation()
        except ClientError as error:
            is_of_partition = isinstance(error, BrokerError) and error.code in OF_PARTITIONS
            if not is_of_partition and (may_pass(error) or not isinstance(error, BrokerError)):
                self._coordinator = None
            if not is_of_partition and may_pass(error):
                self._has_trouble(error)
            raise
        self.troubles.end(COORDINATOR, f"{self._name} has its coordinator again")
        return found
