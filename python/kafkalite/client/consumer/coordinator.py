"""A consumer's side of its group: what it is subscribed to, when it joins, what it commits.

    subscribed ──► topics looked up ──► what was read is committed ──► partitions revoked, or lost
                        ▲                                                       │
                        │ a heartbeat, or a look at the topics, says so         ▼
                        └───── read ◄───── partitions assigned ◄──────────── joined

Whoever polls calls `join_if_due`, in whose thread listeners are called. Commit and join go on in a
thread of their own (`pending_request.py`), so that `poll` keeps its time; the member itself is in
`membership.py`. A topic that is subscribed to by its name and is not there is made once, by a
broker that does so: one that is deleted later stays deleted.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkalite.client.consumer.group_options import GroupMetadata
from kafkalite.client.consumer.membership import Membership
from kafkalite.client.consumer.subscription_state import Partition, SubscriptionState
from kafkalite.client.network.cluster import BACKOFF_MS, UNKNOWN_TOPIC_MS, Cluster
from kafkalite.client.network.connection import Closing, broker_error, may_pass
from kafkalite.client.network.leaders import TopicRequest, creation_warning
from kafkalite.client.network.metadata import TopicMetadata, found_topics
from kafkalite.client.network.pending_request import PendingCall
from kafkalite.client.network.wakeup import Wakeup
from kafkalite.client.trouble import Troubles
from kafkalite.errors import BrokerError, ClientError, InvalidArgumentError
from kafkalite.protocol.codes import (
    ILLEGAL_GENERATION,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_TOPIC_OR_PARTITION,
)

__all__ = ["ConsumerCoordinator", "Listener", "OnPartitions"]

OnPartitions = Callable[[list[Partition]], object]
Topics = list[str] | re.Pattern[str]

# How often the partitions of subscribed topics, and topics that match a pattern, are looked up.
METADATA_AGE_S = 30.0
METADATA_AGE_JOINING_S = 1.0

COMMIT_ALL_S = 30.0
"""How often positions are committed, by itself, that the group knows already. Offsets of a group
without members expire so long after their last commit as `offsets.retention.minutes` says, which is
a minute at least."""

LEAVE_S = 1.0
"""The time for leaving the group though the commit took all that there was."""

COMMIT = "commit"
"""The trouble of a group that takes no commit."""


class Listener(NamedTuple):
    """Callbacks for rebalances, as Kafka's `ConsumerRebalanceListener`. Without `on_lost`
    partitions that are lost are revoked."""

    on_assigned: OnPartitions | None = None
    on_revoked: OnPartitions | None = None
    on_lost: OnPartitions | None = None


class ConsumerCoordinator(Closing):
    """The group of one consumer. One thread."""

    def __init__(
        self,
        membership: Membership,
        cluster: Cluster,
        subscription_state: SubscriptionState,
        wakeup: Wakeup,
        troubles: Troubles,
        commit_s: float | None,
    ) -> None:
        """`commit_s`: how often it commits by itself, None for never."""
        self.group = membership
        self.is_woken = False
        """A wait is to end, since the caller wants `poll` to return."""
        self._cluster = cluster
        self._subscription_state = subscription_state
        self._wakeup = wakeup
        self._troubles = troubles
        self._commit_s = commit_s
        self._committed_at = self._all_committed_at = time.monotonic()
        self._listener = Listener()
        self._subscription: Topics | None = None
        self._is_new_subscription = False
        """Its topics have not been looked up yet: what is read is that of the one before."""
        self._has_to_join = False
        """Topics have changed since the group was joined, or what it gave was not taken: an
        interrupt may have come between."""
        self._is_prepared = False
        """All that was read is committed, and nothing is assigned until the group is joined."""
        self._joining: PendingCall[list[Partition]] | None = None
        self._revoked_ns = 0
        """When partitions were last taken from it, by the monotonic clock."""
        self._is_revoking = False
        """The listener is being told."""
        self._is_committing = False
        """It is the commit before the join that is under way."""
        self._counting: Cluster | None = None
        """The cluster that is asked for partitions to assign, while the group is joined."""
        self._topics = TopicRequest(cluster)
        self._topics_wait_until = 0.0
        self._topics_sought_since: float | None = None
        """When the first look-up of the topics failed."""
        self._creates = False
        """The next look-up asks the broker to make what is not there, or the one under way does."""
        self._created_until: float | None = None
        """Until when topics that were made may be unknown; None if none was for this subscription.
        """
        self._missing: BrokerError | None = None
        self._missing_told_at = 0.0
        self._counts: dict[str, int] = {}
        self._counts_at = 0.0
        self._matches_none = False
        """When the group was to be joined, the subscription had no topics: it was left instead,
        until some match."""
        self._shared_out: dict[str, int] = {}
        """The partitions of all topics of the group, as this member has counted them to share them
        out; empty if another leads. The thread that joins fills it."""

    # --- what to read -----------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """Says whether the group gives the partitions."""
        return self._subscription is not None

    def subscribe(self, topics: Topics, listener: Listener) -> None:
        """These topics from now on, and none of the partitions that the caller had assigned: of
        those the listener is not told, since the group never gave them."""
        if self._subscription is None and self._subscription_state:
            self._subscription_state.assign([])
            self._revoked_ns = time.monotonic_ns()
        self._subscription, self._listener = topics, listener
        self._is_new_subscription, self._creates, self._created_until = True, False, None
        self._missing = self._topics_sought_since = None
        self._topics.close()

    def unsubscribe(self, deadline: float, *, in_hand: bool = True) -> None:
        """The group goes on without this member, which would not join again when it has to."""
        self._topics.close()
        if self._subscription is None:
            return
        try:
            self._end_membership(deadline, in_hand=in_hand)
        finally:
            self._subscription, self._missing, self._shared_out = None, None, {}
            self._has_to_join = self._is_prepared = self._matches_none = False
            self.group.leave(max(deadline, time.monotonic() + LEAVE_S))

    def close(self, deadline: float | None = None, *, in_hand: bool = True) -> None:
        """Commits, unless told otherwise what the caller still has in their hand too, and leaves
        the group; waits for nobody beyond the deadline (monotonic seconds)."""
        deadline = time.monotonic() if deadline is None else deadline
        self._topics.close()
        try:
            self._end_membership(deadline, in_hand=in_hand)
        finally:
            self.group.close(max(deadline, time.monotonic() + LEAVE_S))

    def after_fork(self) -> None:
        """Gives up, in a child, what belongs to the parent."""
        self._topics.close()
        self.group.after_fork()

    def _end_membership(self, deadline: float, *, in_hand: bool) -> None:
        if self._stop_joining(deadline):
            self._commit_quietly(deadline=deadline, in_hand=in_hand)
            if self._subscription is not None:
                self._revoke()

    def descriptors(self) -> list[int]:
        """Sockets that are ready when topics are told of."""
        return self._topics.descriptors()

    def missing(self, now: float) -> BrokerError | None:
        """The error for the caller about topics that are not there, once for each of their calls,
        where there is nothing else to give."""
        if self._missing is None or now < self._missing_told_at + BACKOFF_MS / 1000:
            return None
        self._missing_told_at = now
        return self._missing

    # --- committing -------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[Partition, int] | None, *, in_hand: bool = True) -> None:
        """Commits the positions, or these offsets. Raises `BrokerError`."""
        self._refuse_while_joining()
        positions = self._subscription_state.positions
        self._commit(positions(in_hand=in_hand) if offsets is None else offsets)

    def positions_of_group(
        self, since_ns: int
    ) -> tuple[GroupMetadata, dict[Partition, tuple[int, int]]]:
        """Gives the offsets that `commit` would commit, each with the leader epoch of what comes
        before, and as whom. Raises `BrokerError`, also if partitions were taken from it since then:
        what was read of them is read again, here or by others. Raises `InvalidArgumentError`."""
        if self._commit_s is not None:
            raise InvalidArgumentError(
                "the consumer commits by itself, in no transaction: make it with "
                "auto_commit_interval_ms=None"
            )
        self._refuse_while_joining()
        if self._revoked_ns > since_ns:
            what = f"group '{self.group.options.group}' has rebalanced since the transaction began"
            raise broker_error(ILLEGAL_GENERATION, what)
        offsets = self._subscription_state.positions()
        epochs = self._subscription_state.read_epochs(offsets)
        found = {each: (offset, epochs.get(each, -1)) for each, offset in offsets.items()}
        return self.group.metadata, found

    def _refuse_while_joining(self) -> None:
        if self._joining is not None:
            name = self.group.options.group
            raise broker_error(REBALANCE_IN_PROGRESS, f"commit of group '{name}'")

    def commit_assigned(self, *, in_hand: bool, deadline: float | None = None) -> None:
        """Commits by itself where partitions are assigned that the group does not give, before
        their positions are dropped: once, or again until the deadline (monotonic seconds)."""
        if self._subscription is None:
            self._commit_quietly(once=deadline is None, deadline=deadline, in_hand=in_hand)

    def commit_if_due(self) -> None:
        """Commits by itself, once in a while."""
        if self._commit_s is None or self._joining is not None:
            return
        now = time.monotonic()
        if now - self._committed_at >= self._commit_s:
            self._committed_at = now
            is_all_due = now - self._all_committed_at >= COMMIT_ALL_S
            # Its turn comes again: records are not held up for a coordinator that is away.
            if self._commit_quietly(once=True, known_too=is_all_due) and is_all_due:
                self._all_committed_at = now

    def _commit(
        self,
        offsets: Mapping[Partition, int],
        *,
        once: bool = False,
        deadline: float | None = None,
        while_reachable: bool = False,
    ) -> None:
        if not offsets:
            return
        self.group.commit(
            offsets,
            read_epochs=self._subscription_state.read_epochs(offsets),
            on_taken=self._subscription_state.note_committed,
            once=once,
            deadline=deadline,
            while_reachable=while_reachable,
        )

    def _commit_quietly(
        self,
        *,
        once: bool = False,
        deadline: float | None = None,
        in_hand: bool = True,
        known_too: bool = False,
    ) -> bool:
        """Commits as far as it can: the rest is read again by whoever gets the partition. Commits
        positions that the group knows only with `known_too`. Says whether it has, of all topics
        that there still are."""
        if self._commit_s is None:
            return False
        positions = self._subscription_state.positions if known_too else self._uncommitted
        try:
            self._commit(
                positions(in_hand=in_hand),
                once=once,
                deadline=deadline,
                while_reachable=deadline is not None,
            )
        except ClientError as error:
            is_gone = isinstance(error, BrokerError) and error.code == UNKNOWN_TOPIC_OR_PARTITION
            # Nothing is read again of a topic that was deleted after its offsets were committed.
            if not is_gone or self._uncommitted(in_hand=in_hand):
                self._has_not_committed(error)
                return False
        self._troubles.end(COMMIT, f"group '{self.group.options.group}' accepts commits again")
        return True

    def _has_not_committed(self, error: ClientError) -> None:
        name = self.group.options.group
        self._troubles.begin(
            COMMIT,
            f"group '{name}' has no commit of what was read, which may be read again: {error}",
        )

    def _uncommitted(self, *, in_hand: bool = True) -> dict[Partition, int]:
        """The positions that the group does not know."""
        return {
            partition: offset
            for partition, offset in self._subscription_state.positions(in_hand=in_hand).items()
            if self._subscription_state[partition].committed != offset
        }

    # --- joining ----------------------------------------------------------------------------------

    def join_if_due(self, deadline: float) -> bool:
        """Says whether the partitions are this member's: not while it joins its group, if the time
        is over before that has been done, nor while the topics of a new subscription, or of a
        member that is to join, are looked up. Raises what a listener raises."""
        while True:
            if self._subscription is None:
                return True  # a listener may have said so
            if self._joining is None and not self._has_to_join:
                is_joined = self.group.is_joined
                changed = self._topics_changed(is_joined)
                if changed is None:
                    if not self._wait(deadline, self._topics.descriptors()):
                        return False
                    continue
                if (is_joined or self._matches_none) and not changed:
                    return True
                self._has_to_join = True
            if not (self._is_prepared or self._prepared(deadline)):
                return False
            if self._subscription is not None and not self._joined(deadline):
                return False

    def _wait(self, deadline: float, descriptors: list[int]) -> bool:
        """Waits for the descriptors a moment; whether there is time left."""
        left = deadline - time.monotonic()
        if left <= 0 or self.is_woken:
            return False
        self._troubles.write()
        at_most = 1.0 if descriptors else BACKOFF_MS / 1000
        self._wakeup.wait(min(left, at_most), descriptors)
        return True

    def _ended(self, joining: PendingCall[list[Partition]], deadline: float) -> bool:
        """Waits for it; whether it is over."""
        while not joining.is_over:
            if not self._wait(deadline, []):
                return joining.is_over
        return True

    def _prepared(self, deadline: float) -> bool:
        """Commits what was read and takes leave of the partitions (Kafka's `onJoinPrepare`); False
        while the commit is under way behind the deadline."""
        if self._joining is None and not self.group.is_lost and self._commit_s is not None:
            self._begin_commit()
        if self._joining is not None:
            if not self._ended(self._joining, deadline):
                return False
            joining, self._joining, self._is_committing = self._joining, None, False
            try:
                joining.result()
            except ClientError as error:
                self._has_not_committed(error)
        self._is_prepared = True
        self._revoke()
        return True

    def _begin_commit(self) -> None:
        offsets = self._uncommitted()
        epochs = self._subscription_state.read_epochs(offsets)
        group = self.group
        if not offsets:
            return

        def commit() -> list[Partition]:
            # Beyond that the group has gone on without it (Kafka's `onJoinPrepare`).
            wait_s = group.options.max_poll_interval_ms / 1000
            group.commit(offsets, read_epochs=epochs, deadline=time.monotonic() + wait_s)
            return []

        self._is_committing = True
        self._joining = PendingCall(commit, f"commit of {group.options.group}", self._wakeup.set)

    def _revoke(self) -> None:
        """Nothing is assigned any more, which the listener is told before, and may commit. One that
        ends the subscription itself is not told again."""
        if self._is_revoking:
            return
        partitions, listener = sorted(self._subscription_state), self._listener
        is_lost = self.group.is_lost
        told = listener.on_lost or listener.on_revoked if is_lost else listener.on_revoked
        self._is_revoking = True
        try:
            if told is not None and partitions:
                told(partitions)
        finally:
            self._is_revoking = False
            if partitions:
                self._revoked_ns = time.monotonic_ns()
            if self._subscription is not None:  # else the listener may have assigned others
                self._subscription_state.assign([])

    def _joined(self, deadline: float) -> bool:
        """Joins the group and takes what it gives; False while that is under way behind the
        deadline."""
        if self._joining is None:
            self._joining = self._begin_join()
        if not self._ended(self._joining, deadline):
            return False
        joining, self._joining = self._joining, None
        partitions = joining.result()
        self._subscription_state.assign(partitions)
        self._subscription_state.forget_positions()
        self._has_to_join = self._is_prepared = False
        self._matches_none = not self._counts
        if self._listener.on_assigned is not None:
            self._listener.on_assigned(sorted(partitions))
        return True

    def _begin_join(self) -> PendingCall[list[Partition]]:
        topics = sorted(self._counts)
        # Not that of a join before it, whose thread may go on unseen.
        shared_out = self._shared_out = dict[str, int]()

        def counts(topics: set[str]) -> dict[str, int]:
            found = self._partition_counts(topics)
            shared_out.update({name: found.get(name, 0) for name in topics})
            return found

        def join() -> list[Partition]:
            if topics:
                return self.group.join(topics, counts)
            self.group.leave()  # others may have what it had
            return []

        return PendingCall(join, f"join of {self.group.options.group}", self._wakeup.set)

    def _stop_joining(self, deadline: float) -> bool:
        """Ends a join that is under way, which behind the deadline goes on unseen. Whether what was
        read is still this member's to commit: in the next generation others may have it."""
        joining = self._joining
        if joining is None:
            return not self._is_prepared
        self.group.interrupt()
        counting = self._counting  # which that thread may put away at any moment
        if counting is not None:
            counting.interrupt()
        is_over = joining.wait(deadline - time.monotonic())
        self.group.resume(deadline)
        self._joining = None
        is_committing, self._is_committing = self._is_committing, False
        return is_over and is_committing

    # --- topics -----------------------------------------------------------------------------------

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
        counts, shared_out = found
        changed = counts != self._counts or shared_out != self._shared_out
        self._counts = counts
        return changed

    def _age_s(self, is_joined: bool) -> float:
        """After how long the topics are looked up again."""
        has_all = bool(self._counts) and all((*self._counts.values(), *self._shared_out.values()))
        return METADATA_AGE_S if is_joined and has_all else METADATA_AGE_JOINING_S

    def _look_beside(self) -> tuple[dict[str, int], dict[str, int]] | None:
        """The topics' partitions, none of one that is named and that there is not, and those of the
        topics that were shared out; None while there is no answer. Raises `ClientError` for what
        does not pass, at once or within the time of a whole operation."""
        now, named = time.monotonic(), self._subscription
        # Only this member's own are to be made.
        others = {} if self._creates else self._shared_out
        try:
            if not self._topics.is_asked and now >= self._topics_wait_until:
                if isinstance(named, re.Pattern):
                    self._topics.ask(None, now)
                else:
                    wanted = {*(named or ()), *others}
                    self._topics.ask(wanted, now, allow_auto_create=self._creates)
            told = self._topics.take(now)
            if told is None:
                return None
            if self._creates:
                self._creates, self._created_until = False, now + UNKNOWN_TOPIC_MS / 1000
            topics = found_topics(told)
            found = self._counts_of(topics)
        except ClientError as error:
            self._topics_wait_until = now + BACKOFF_MS / 1000
            since = self._topics_sought_since or now
            late = now - since >= self._cluster.timeout_ms / 1000
            self._topics_sought_since = None if late else since
            if late or not self._cluster.is_awaited or not may_pass(error):
                raise
            self._troubles.begin("topics", f"the subscribed topics cannot be looked up: {error}")
            return None
        self._topics_sought_since = None
        self._troubles.end("topics", "the subscribed topics are found again")
        if self._waits_for(found, now):
            return None
        return found, self._shared_out | {name: _partition_count(topics, name) for name in others}

    def _waits_for(self, found: Mapping[str, int], now: float) -> bool:
        """Says whether topics that are named and not there are asked for once more, before anything
        is joined: the first time the broker is asked to make them, which takes a moment."""
        is_pattern = isinstance(self._subscription, re.Pattern)
        missing = [] if is_pattern else sorted(name for name in found if not found[name])
        if missing and self._is_new_subscription and self._created_until is None:
            self._troubles.warn(creation_warning(missing))
            self._creates, self._created_until = True, now + UNKNOWN_TOPIC_MS / 1000
            return True
        is_early = now < (self._created_until or 0.0)
        if missing and is_early and self._is_new_subscription and len(missing) == len(found):
            self._topics_wait_until = now + BACKOFF_MS / 1000
            return True
        self._missing = None
        if missing and not is_early:
            names = ", ".join(f"'{name}'" for name in missing)
            self._missing = broker_error(UNKNOWN_TOPIC_OR_PARTITION, f"topic {names}")
            self._troubles.begin("missing", str(self._missing))
        elif not missing:
            self._troubles.end("missing", "all topics that are subscribed to are there")
        return False

    def _counts_of(self, found: Mapping[str, TopicMetadata]) -> dict[str, int]:
        subscription = self._subscription
        if not isinstance(subscription, re.Pattern):
            named = subscription or ()
            return {name: _partition_count(found, name) for name in named}
        return {
            name: len(topic.partitions)
            for name, topic in found.items()
            if not topic.is_internal and subscription.fullmatch(name)
        }

    def _partition_counts(self, topics: set[str]) -> dict[str, int]:
        """Counts the partitions of the group's topics for its leader, in the thread that joins."""
        with self._cluster.twin() as counting:
            self._counting = counting
            try:
                found = counting.retry(lambda: counting.refresh(sorted(topics)))
            finally:
                self._counting = None
        return {name: len(topic.partitions) for name, topic in found.items()}


def _partition_count(found: Mapping[str, TopicMetadata], name: str) -> int:
    """None of a topic that there is not."""
    return len(found[name].partitions) if name in found else 0
