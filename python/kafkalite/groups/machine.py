"""All groups and offsets of one partition of `__consumer_offsets`.

Requests and events go in with the time, effects come out (`kafkalite.coordinator.machine`). Classic
groups change once their records are on disk (`ClassicGroup.on_stored`), and so do offsets: nobody
is told one that a power cut could take back. A group that is deleted is gone at once for those who
come after, and is back if that cannot be written.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final

from kafkalite.coordinator.deadlines import Deadlines
from kafkalite.coordinator.journal import Journal
from kafkalite.coordinator.machine import Append, Effect, FirstAnswer, FirstEnd, Moment, Reply
from kafkalite.coordinator.record_serde import Unread
from kafkalite.errors import MalformedRequestError
from kafkalite.groups import records
from kafkalite.groups.classic import ClassicGroup
from kafkalite.groups.deletions import GROUP_COSTS, STEP_OFFSETS, STEP_PAUSE_MS, Deletions, Places
from kafkalite.groups.events import (
    AssignmentStored,
    CommitRequest,
    GroupAnswer,
    GroupEffect,
    GroupLimits,
    GroupRecord,
    JoinAnswer,
    JoinReply,
    JoinRequest,
    Leaving,
    OffsetLimits,
    OffsetsInTransaction,
    StaticMemberStored,
    Store,
    SyncAnswer,
    SyncReply,
    SyncRequest,
)
from kafkalite.groups.memory import MembersMemory
from kafkalite.groups.offsets import (
    Offsets,
    OffsetsAnswer,
    UnderWay,
    judge_offsets,
)
from kafkalite.groups.refusals import check_transactional_commit
from kafkalite.groups.states import (
    COMPLETING_REBALANCE,
    CONSUMER_PROTOCOL_TYPE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from kafkalite.groups.transactional_offsets import TransactionalOffsets, told_of_offsets
from kafkalite.protocol import codes

TOMBSTONES_BYTES_MAX: Final = 256 * 1024
"""Tombstones of one write, which is one batch: `max.message.bytes` bounds it."""
TOMBSTONE_BYTES: Final = 300
"""A tombstone's size at most, beside the group id."""
TAKEN_EACH_TIME: Final = 2
"""Offsets of transactions that have ended that are taken with each that is replayed."""

PartitionOfTopic = tuple[str, int]
"""A topic, and the index of a partition."""


class GroupMachine:
    """One partition. Used by the control thread only."""

    def __init__(self, limits: GroupLimits, offset_limits: OffsetLimits) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self.newer_groups: dict[str, str] = {}
        """Groups of types that are not served here, with their type."""
        self._limits = limits
        self._offset_limits = offset_limits
        self._journal = Journal()
        self._deadlines = Deadlines()
        self._commits = UnderWay()
        self.transactions = TransactionalOffsets(self.offsets)
        self._memory = MembersMemory()
        self._unready: list[str] | None = None
        """Once all is replayed: groups that are to be made ready, the first last."""
        self._expiry_due_ms: int | None = None
        self._expiring: list[str] = []
        """Groups that are still to be looked at for what has expired."""
        self._deletions = Deletions()

    # --- the log ----------------------------------------------------------------------------------

    def replay(self, kind: int, key: Any, value: Any, offset: int, producer_id: int) -> None:
        """As `Machine.replay`."""
        if kind in records.OFFSET_COMMIT_KINDS:
            self.offsets.take_ended(TAKEN_EACH_TIME)
            self._replay_offset(key, _needed(value), offset, producer_id)
        elif kind == records.GROUP_METADATA_KIND:
            if _needed(value) is None:
                self.groups.pop(key.group, None)
            else:
                state = records.group_state(value)
                group = ClassicGroup.from_record(key.group, state, self._limits)
                self.groups[key.group] = group
        elif kind in records.NEWER_GROUP_KINDS:
            if value is None:
                self.newer_groups.pop(key.group_id, None)
            else:
                # Also if it cannot be read: a classic group must not take its place.
                self.newer_groups[key.group_id] = records.NEWER_GROUP_KINDS[kind]

    def _replay_offset(self, key: Any, value: Any, offset: int, producer_id: int) -> None:
        group_id, topic, partition = key.group, key.topic, key.partition
        if value is None:
            self.offsets.remove(group_id, topic, partition)
            return
        committed = records.committed_offset(value, offset)
        if producer_id != -1:
            self.offsets.put_open(producer_id, group_id, topic, partition, committed)
        else:
            self.offsets.put(group_id, topic, partition, committed)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """As `Machine.end_transaction`."""
        self.offsets.end_transaction(producer_id, commit=commit)

    def on_loaded(self, moment: Moment, count_max: int) -> tuple[Sequence[Effect], bool]:
        """As `Machine.on_loaded`. Groups that have offsets only are there too."""
        self.offsets.take_ended(count_max)
        if self.offsets.has_ended:
            return (), False
        if self._unready is None:
            names = dict.fromkeys([*self.groups, *self.offsets.group_ids()])
            self._unready = list(reversed(names))
        effects: list[Effect] = []
        for _ in range(min(count_max, len(self._unready))):
            group_id = self._unready.pop()
            group = self.groups.get(group_id)
            if group is not None:
                effects += self._run(group, group.on_loaded(moment))
            elif group_id not in self.newer_groups:
                self.groups[group_id] = ClassicGroup(group_id, self._limits, moment.wall_ms)
        if not self._unready:
            self._expiry_due_ms = moment.now_ms + self._offset_limits.expiry_interval_ms
        return effects, not self._unready

    # --- time -------------------------------------------------------------------------------------

    def next_wake_ms(self) -> int | None:
        """As `Machine.next_wake_ms`."""
        wake_ms = self._deadlines.next_ms()
        for due_ms in (self._expiry_due_ms, self.transactions.wake_ms, self._deletions.wake_ms):
            if due_ms is not None and (wake_ms is None or due_ms < wake_ms):
                wake_ms = due_ms
        return wake_ms

    def on_time(self, moment: Moment) -> Sequence[Effect]:
        """As `Machine.on_time`: of the groups that are due, the first; it is called again for the
        next one."""
        group_id = self._deadlines.pop_due(moment.now_ms)
        if group_id is not None:
            group = self.groups.get(group_id)
            return () if group is None else self._run(group, group.on_time(moment))
        taking_ms = self.transactions.wake_ms
        if taking_ms is not None and taking_ms <= moment.now_ms:
            return self.transactions.take_ended(moment)
        deletions_ms = self._deletions.wake_ms
        if deletions_ms is not None and deletions_ms <= moment.now_ms:
            return self._deletions.step(moment)
        if self._expiry_due_ms is not None and self._expiry_due_ms <= moment.now_ms:
            return self._expire(moment)
        return ()

    def _expire(self, moment: Moment) -> list[Effect]:
        """Forgets offsets whose time is over, and groups that have neither members nor offsets, of
        some groups; goes on with the next soon."""
        expiring = self._expiring or list(reversed(self.groups))
        effects: list[Effect] = []
        left = STEP_OFFSETS
        while expiring and left > 0:
            left -= GROUP_COSTS
            group = self.groups.get(expiring.pop())
            if group is not None:
                kept = self._being_written(group.group_id)
                effects += self._expire_group(group, kept, moment)
                left -= self.offsets.count_of(group.group_id)
        self._expiring = expiring
        pause_ms = STEP_PAUSE_MS if expiring else self._offset_limits.expiry_interval_ms
        self._expiry_due_ms = moment.now_ms + pause_ms
        return effects

    def _expire_group(
        self,
        group: ClassicGroup,
        kept: dict[PartitionOfTopic, None],
        moment: Moment,
    ) -> list[Effect]:
        retention_ms = self._offset_limits.retention_ms
        expired = [
            each
            for each in self.offsets.expired(group, moment.wall_ms, retention_ms)
            if each not in kept
        ]
        has_more = bool(kept) or self.offsets.count_of(group.group_id) > len(expired)
        if len(expired) > STEP_OFFSETS:
            # The group has its turn the next time.
            tombstones = partial(self._forget_each, partitions=expired)
            self._deletions.add(expired, [group.group_id], tombstones, moment)
            return []
        # A deletion that fails is tried again the next time.
        if not has_more and group.state == EMPTY and not group.members.pending:
            # Each by itself: of a large group they are more than a batch holds.
            return [*self._forget_each(group.group_id, (), expired), *self._delete(group, [], None)]
        return list(self._forget_each(group.group_id, (), expired))

    def on_topics(self, deleted: Collection[str], moment: Moment) -> Sequence[Effect]:
        """As `Machine.on_topics`: every offset in them is forgotten, some at once, and the next
        soon."""
        names = frozenset(deleted)
        readers = (self.offsets, self._commits, self.transactions.being_written)
        groups = dict.fromkeys(each for known in readers for each in known.groups_reading(names))
        self._deletions.add(names, groups, partial(self._tombstones_in, names), moment)
        return self._deletions.step(moment)

    def _tombstones_in(
        self, names: frozenset[str], group_id: str, committed: Places
    ) -> Iterator[Append]:
        gone = [each for each in self.partitions_of(group_id) if each[0] in names]
        return self._forget_each(group_id, committed, gone)

    def unload(self) -> Sequence[Effect]:
        """As `Machine.unload`."""
        self._deletions.clear()
        self._memory.clear()
        groups, self.groups = self.groups, {}
        told = [effect for group in groups.values() for effect in group.unload()]
        replies = [each for each in told if isinstance(each, Reply)]
        return [*replies, *self.transactions.unload()]

    # --- members ----------------------------------------------------------------------------------

    def join(
        self,
        group_id: str,
        request: JoinRequest,
        fresh_member_id: str,
        reply: JoinReply,
        moment: Moment,
    ) -> Sequence[Effect]:
        """JoinGroup. `fresh_member_id` is for a client that has no id."""
        if group_id in self.newer_groups:
            return [Reply(reply, JoinAnswer(codes.INCONSISTENT_GROUP_PROTOCOL, ""))]
        group = self.groups.get(group_id)
        is_new = group is None
        if group is None:
            if request.member_id:
                return [Reply(reply, JoinAnswer(codes.UNKNOWN_MEMBER_ID, request.member_id))]
            group = self._make(group_id, moment)
        effects = self._run(group, group.join(request, fresh_member_id, reply, moment))
        if is_new and not any(isinstance(each, Append) for each in effects):
            # The group exists from now on, without a generation.
            state = GroupRecord("", 0, None, None, group.state_timestamp_ms, ())
            effects.append(Append([records.group_record(group_id, state)]))
        return effects

    def sync(self, group_id: str, request: SyncRequest, reply: SyncReply) -> Sequence[Effect]:
        """SyncGroup."""
        group = self.groups.get(group_id)
        if group is None:
            return [Reply(reply, SyncAnswer(codes.UNKNOWN_MEMBER_ID))]
        return self._run(group, group.sync(request, reply))

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        now_ms: int,
    ) -> int:
        """Heartbeat."""
        group = self.groups.get(group_id)
        if group is None:
            return codes.UNKNOWN_MEMBER_ID
        code = group.heartbeat(member_id, group_instance_id, generation_id, now_ms)
        self._arm(group)
        return code

    def leave(
        self,
        group_id: str,
        leaving: Leaving,
        reply: Callable[[GroupAnswer], None],
        moment: Moment,
    ) -> Sequence[Effect]:
        """LeaveGroup."""
        group = self.groups.get(group_id)
        if group is None:
            unknown = [codes.UNKNOWN_MEMBER_ID] * len(leaving)
            return [Reply(reply, GroupAnswer(codes.NONE, unknown))]
        results, left = group.leave(leaving, moment)
        effects = self._run(group, left)
        if any(isinstance(each, Append) for each in effects):
            # An empty group is written before its last member hears that it has left.
            ended = FirstEnd(partial(_tell, reply, results))
            effects.append(Append((), ended, overdue=ended))
        else:
            effects.append(Reply(reply, GroupAnswer(codes.NONE, results)))
        return effects

    # --- offsets ----------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        request: CommitRequest,
        reply: Callable[[list[int]], None],
        moment: Moment,
    ) -> Sequence[Effect]:
        """OffsetCommit: one code for each offset."""
        code = self._check_commit(group_id, request, moment)
        if code:
            return [Reply(reply, [code] * len(request.offsets))]
        size_max = self._offset_limits.metadata_bytes_max
        results, taken = judge_offsets(request, size_max, moment.wall_ms)
        if not taken:
            return [Reply(reply, results)]
        number = self._commits.add(group_id, taken)
        written = [records.offset_record(group_id, *each) for each in taken]
        first = FirstAnswer(reply)
        then = partial(self._on_committed, group_id, number, results, first)
        overdue = partial(told_of_offsets, results, first)
        deleted = self._forget_each(group_id, (), self._deletions.before(group_id, request))
        return [*deleted, Append(written, then, overdue=overdue)]

    def commit_in_transaction(
        self,
        group_id: str,
        request: CommitRequest,
        transaction: OffsetsInTransaction,
        reply: Callable[[list[int]], None],
        moment: Moment,
    ) -> Sequence[Effect]:
        """TxnOffsetCommit: one code for each offset."""
        code = self._check_transactional_commit(group_id, request, moment)
        if not code and not self.transactions.is_verified(transaction):
            code = codes.INVALID_TXN_STATE
        if code:
            return [Reply(reply, [code] * len(request.offsets))]
        size_max = self._offset_limits.metadata_bytes_max
        results, taken = judge_offsets(request, size_max, moment.wall_ms)
        if not taken:
            return [Reply(reply, results)]
        deleted = self._forget_each(group_id, (), self._deletions.before(group_id, request))
        return [*deleted, self.transactions.stage(group_id, taken, transaction, results, reply)]

    def _check_transactional_commit(
        self, group_id: str, request: CommitRequest, moment: Moment
    ) -> int:
        group = self.groups.get(group_id)
        if group_id in self.newer_groups:
            return codes.NONE if request.generation_id < 0 else codes.ILLEGAL_GENERATION
        if group is None and request.generation_id >= 0:
            return codes.ILLEGAL_GENERATION
        group = group or self._make(group_id, moment)
        return check_transactional_commit(
            group, request.member_id, request.group_instance_id, request.generation_id
        )

    def _check_commit(self, group_id: str, request: CommitRequest, moment: Moment) -> int:
        """Why the group takes no offsets. It is made where it may be."""
        group = self.groups.get(group_id)
        if group_id in self.newer_groups:
            # Beside one of a newer type there must not be a classic one.
            is_member = request.generation_id >= 0 or request.member_id
            return codes.UNKNOWN_MEMBER_ID if is_member else codes.NONE
        if group is None and request.generation_id >= 0:
            if request.knows_missing_groups:
                return codes.GROUP_ID_NOT_FOUND
            return codes.ILLEGAL_GENERATION
        group = group or self._make(group_id, moment)
        code = group.check_commit(
            request.member_id, request.group_instance_id, request.generation_id, moment.now_ms
        )
        if not code:
            self._arm(group)
        return code

    def _on_committed(
        self,
        group_id: str,
        number: int,
        results: list[int],
        reply: Callable[[list[int]], None],
        error_code: int,
        base_offset: int,
        _moment: Moment,
    ) -> Sequence[Effect]:
        committed = self._commits.take(group_id, number)
        if error_code == codes.NONE:
            self.offsets.put_all(group_id, committed, base_offset)
        return told_of_offsets(results, reply, error_code)

    def fetch_stable_offsets(
        self, group_id: str, reply: Callable[[OffsetsAnswer], None]
    ) -> Sequence[Effect]:
        """OffsetFetch that waits for offsets that are being written."""
        ended = FirstEnd(partial(self._tell_offsets, group_id, reply))
        return [Append((), ended, overdue=ended)]

    def _tell_offsets(
        self,
        group_id: str,
        reply: Callable[[OffsetsAnswer], None],
        error_code: int,
        _offset: int,
        _moment: Moment,
    ) -> Sequence[Effect]:
        if self.transactions.is_unloaded:
            error_code = error_code or codes.NOT_COORDINATOR
        if error_code == codes.COORDINATOR_NOT_AVAILABLE:
            # Older clients do not know that here (`GroupCoordinatorService` of Kafka says why).
            error_code = codes.NOT_COORDINATOR
        return [Reply(reply, self.offsets_of(group_id, error_code, require_stable=True))]

    def offsets_of(self, group_id: str, error_code: int, *, require_stable: bool) -> OffsetsAnswer:
        """A group's offsets as they are on disk, and with `require_stable` which are not stable."""
        unstable = partial(self.transactions.is_unstable, group_id) if require_stable else None
        find = partial(self.offsets.get, group_id)
        return OffsetsAnswer(error_code, self.offsets.of_group(group_id), find, unstable)

    def partitions_of(self, group_id: str) -> list[PartitionOfTopic]:
        """Topic and partition of every offset of a group, those being written included."""
        found = dict.fromkeys(self.offsets.partitions_of(group_id))
        found.update(self._being_written(group_id))
        return list(found)

    def _being_written(self, group_id: str) -> dict[PartitionOfTopic, None]:
        """Topic and partition of each offset of a group that is not on disk yet."""
        in_transactions = self.transactions.being_written
        return self._commits.partitions_of(group_id) | in_transactions.partitions_of(group_id)

    def delete_offsets(
        self,
        group_id: str,
        partitions: list[PartitionOfTopic],
        reply: Callable[[GroupAnswer], None],
    ) -> Sequence[Effect]:
        """OffsetDelete: a code for all and one for each partition."""
        group = self.groups.get(group_id)
        if group is None or group.state == DEAD:
            return [Reply(reply, GroupAnswer(codes.GROUP_ID_NOT_FOUND, []))]
        is_consumer = group.protocol_type == CONSUMER_PROTOCOL_TYPE
        has_members = group.state in (STABLE, PREPARING_REBALANCE, COMPLETING_REBALANCE)
        if has_members and not is_consumer:
            return [Reply(reply, GroupAnswer(codes.NON_EMPTY_GROUP, []))]
        results = [
            codes.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic) else codes.NONE
            for topic, _ in partitions
        ]
        known = set(self.partitions_of(group_id))
        ended = [
            each
            for each, result in zip(partitions, results, strict=True)
            if not result and each in known
        ]
        if not ended:
            return [Reply(reply, GroupAnswer(codes.NONE, results))]
        told = partial(_answer, FirstAnswer(reply), results)
        return [self._forget(group_id, ended, told)]

    def _forget(
        self,
        group_id: str,
        partitions: list[PartitionOfTopic],
        told: Callable[[int], Effect] | None,
    ) -> Append:
        """Writes tombstones of offsets; they are forgotten once these are on disk."""
        tombstones = [records.offset_record(group_id, *each, None) for each in partitions]
        then = partial(self._on_forgotten, group_id, partitions, told)
        return Append(tombstones, then, overdue=told and partial(_told_overdue, told))

    def _forget_each(
        self,
        group_id: str,
        kept: Collection[PartitionOfTopic],
        partitions: Sequence[PartitionOfTopic],
    ) -> Iterator[Append]:
        """As `_forget`, in so many writes that each is a batch that the log takes, each without
        what is kept by then."""
        count = max(1, TOMBSTONES_BYTES_MAX // (len(group_id.encode()) + TOMBSTONE_BYTES))
        for first in range(0, len(partitions), count):
            gone = [each for each in partitions[first : first + count] if each not in kept]
            if gone:
                yield self._forget(group_id, gone, None)

    def _on_forgotten(
        self,
        group_id: str,
        partitions: list[PartitionOfTopic],
        told: Callable[[int], Effect] | None,
        error_code: int,
        _offset: int,
        _moment: Moment,
    ) -> Sequence[Effect]:
        if error_code == codes.NONE:
            for topic, partition in partitions:
                self.offsets.remove(group_id, topic, partition)
        return () if told is None else [told(error_code)]

    # --- operators --------------------------------------------------------------------------------

    def delete_group(self, group_id: str, reply: Callable[[int], None]) -> Sequence[Effect]:
        """DeleteGroups, for one of them."""
        group = self.groups.get(group_id)
        if group is None or group.state == DEAD:
            return [Reply(reply, codes.GROUP_ID_NOT_FOUND)]
        if group.state != EMPTY:
            return [Reply(reply, codes.NON_EMPTY_GROUP)]
        told = partial(Reply[int], FirstAnswer(reply))
        return self._delete(group, self.partitions_of(group_id), told)

    def _delete(
        self,
        group: ClassicGroup,
        partitions: list[PartitionOfTopic],
        told: Callable[[int], Effect] | None,
    ) -> list[Effect]:
        """Ends a group that has no members, and forgets its offsets."""
        group_id = group.group_id
        self._journal.pop(self.groups, group_id)
        self._deadlines.forget(group_id)
        tombstones = [records.offset_record(group_id, *each, None) for each in partitions]
        tombstones.append(records.group_record(group_id, None))
        then = partial(self._on_forgotten, group_id, partitions, told)
        overdue = told and partial(_told_overdue, told)
        append = Append(tombstones, then, self._journal.take(), overdue=overdue)
        return [append, *self._memory.recount(group_id, None)]

    # --- groups -----------------------------------------------------------------------------------

    def _make(self, group_id: str, moment: Moment) -> ClassicGroup:
        group = self.groups[group_id] = ClassicGroup(group_id, self._limits, moment.wall_ms)
        return group

    def _run(self, group: ClassicGroup, effects: list[GroupEffect]) -> list[Effect]:
        """Says how the group is written, and when it is to hear of time."""
        self._arm(group)
        is_there = self.groups.get(group.group_id) is group
        return [
            *(self._append(group, each) if isinstance(each, Store) else each for each in effects),
            *(self._memory.recount(group.group_id, group) if is_there else ()),
        ]

    def _append(self, group: ClassicGroup, store: Store) -> Append:
        written = [records.group_record(group.group_id, store.record)]
        if store.what is None:
            return Append(written)
        # If it is overdue, the state of before holds, as in Kafka: the group rebalances, and is
        # written anew behind it.
        ended = FirstEnd(partial(self._on_stored, group, store.what))
        return Append(written, ended, overdue=ended)

    def _on_stored(
        self,
        group: ClassicGroup,
        what: AssignmentStored | StaticMemberStored,
        error_code: int,
        _offset: int,
        moment: Moment,
    ) -> Sequence[Effect]:
        return self._run(group, group.on_stored(what, error_code, moment))

    def _arm(self, group: ClassicGroup) -> None:
        """Sees to it that the group hears of time in time."""
        wake_ms = group.next_wake_ms()
        if wake_ms is not None and self.groups.get(group.group_id) is group:
            self._deadlines.set(group.group_id, wake_ms)


def _needed(value: Any) -> Any:
    """The value of a record that is needed here."""
    if isinstance(value, Unread):
        raise MalformedRequestError(value.why)
    return value


def _told_overdue(
    told: Callable[[int], Effect], error_code: int, _offset: int, _moment: Moment
) -> Sequence[Effect]:
    return [told(error_code)]


def _answer(reply: Callable[[GroupAnswer], None], results: list[int], error_code: int) -> Effect:
    return Reply(reply, GroupAnswer(error_code, results if not error_code else []))


def _tell(
    reply: Callable[[GroupAnswer], None],
    results: list[int],
    error_code: int,
    _offset: int,
    _moment: Moment,
) -> Sequence[Effect]:
    return [_answer(reply, results, error_code)]
