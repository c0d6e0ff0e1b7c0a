"""The state machine of one classic consumer group (`ClassicGroup` and `GroupMetadataManager`).

    Empty ──join──► PreparingRebalance ──all joined, or time is up──► CompletingRebalance
      ▲               ▲   │  │                                           │    │
      └──nobody left──┼───┘  └──────────────nobody joined──► Empty       │    │ the leader's sync
                      └──join, leave, silence, no sync, new protocols────┘    │ is on disk
                      └──────────────────────────────────────────────Stable ◄─┘

No clock, no socket, no log: an event and the time go in, effects come out. An event that is a
request says whom to answer, which comes back in a `Reply`, at once or much later.
`Store` asks for the group to be written; what came of it is told by `on_stored`. Between events the
group waits until `next_wake_ms`, when `on_time` is due; being called earlier does no harm.

KIP-62 (rebalance time-out), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member ids
come from the coordinator), KIP-800 (reasons), KIP-814 (a returning static leader assigns nothing).
Where Kafka forgets a request (a join that its client repeats, a sync of a member that is removed)
it is answered here, since a request without an answer holds its connection.
"""

from collections.abc import Callable
from typing import Final

from kafkalite.coordinator.machine import Moment, Note, Reply
from kafkalite.groups.answers import (
    join_answer,
    member_of_record,
    static_member_answer,
    static_member_refused,
    static_member_stored,
    subscribed_topics,
    sync_answer,
    to_record,
)
from kafkalite.groups.events import (
    Answer,
    AssignmentStored,
    GroupEffect,
    GroupLimits,
    GroupRecord,
    JoinAnswer,
    JoinReply,
    JoinRequest,
    StaticMemberStored,
    Store,
    SyncAnswer,
    SyncReply,
    SyncRequest,
)
from kafkalite.groups.members import Member, Members
from kafkalite.groups.refusals import (
    check_commit,
    check_heartbeat,
    check_join,
    check_member,
    check_sync,
)
from kafkalite.groups.states import (
    COMPLETING_REBALANCE,
    CONSUMER_PROTOCOL_TYPE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
)
from kafkalite.groups.subscriptions import NAME_BYTES
from kafkalite.protocol import codes

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a join of a new member may wait; its client joins again then."""
REBALANCE_RETRY_MS_MIN: Final = 100
"""Between two tries to complete a rebalance to which nobody has come, though the members ask for
less: Kafka's timer fires as often as there is time for."""


class ClassicGroup:
    """One group. Every event returns its effects, in the order in which they are to happen."""

    __slots__ = (
        "_effects",
        "_initial_delay",
        "_join_deadline_ms",
        "_limits",
        "_sync_deadline_ms",
        "generation_id",
        "group_id",
        "has_new_member",
        "members",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, limits: GroupLimits, wall_ms: int) -> None:
        self.group_id = group_id
        self.state: str = EMPTY
        self.previous_state: str = DEAD
        self.state_timestamp_ms = wall_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.members = Members()
        self.pending_sync: set[str] = set()
        """Members of this generation whose sync has not come yet."""
        self.subscribed_topics: frozenset[str] | None = None
        """Topics that the members read, None where that cannot be told."""
        self.has_new_member = False
        """Somebody joined while the first rebalance was waiting for more."""
        self._limits = limits
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._initial_delay: tuple[int, int] | None = None
        """Length of the present wait for the first rebalance, and what may still follow."""
        self._effects: list[GroupEffect] = []

    @classmethod
    def from_record(cls, group_id: str, record: GroupRecord, limits: GroupLimits) -> "ClassicGroup":
        """The group as the log knows it."""
        group = cls(group_id, limits, record.state_timestamp_ms)
        group.generation_id = record.generation_id
        group.protocol_type = record.protocol_type or None
        group.protocol_name = record.protocol_name
        for each in record.members:
            group.members.add(member_of_record(each, record.protocol_name))
        if record.members:
            group.state = STABLE
            is_known = record.leader is not None and record.leader in group.members
            group.members.leader = record.leader if is_known else None
        group.subscribed_topics = subscribed_topics(group)
        return group

    def on_loaded(self, moment: Moment) -> list[GroupEffect]:
        """The whole log has been read: members have one session to be heard of. A group that has
        grown too large since is made to join again."""
        for member in self.members:
            self._extend_session(member, moment.now_ms)
        if len(self.members) > self._limits.size_max:
            self._prepare_rebalance("the group is larger than group.max.size", moment)
        return self._take_effects()

    # --- what may be asked without changing anything ----------------------------------------------

    def is_subscribed_to(self, topic: str) -> bool:
        """True if members read a topic, and where that cannot be told of a consumer group."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    @property
    def memory_bytes(self) -> int:
        """The memory that its members take."""
        return self.members.memory_bytes + NAME_BYTES * len(self.subscribed_topics or ())

    def next_wake_ms(self) -> int | None:
        """When `on_time` is due next; None while nothing is waited for."""
        wake_ms = self.members.next_deadline_ms()
        for time_ms in (self._join_deadline_ms, self._sync_deadline_ms):
            if time_ms is not None and (wake_ms is None or time_ms < wake_ms):
                wake_ms = time_ms
        return wake_ms

    # --- events -----------------------------------------------------------------------------------

    def join(
        self, request: JoinRequest, fresh_member_id: str, reply: JoinReply, moment: Moment
    ) -> list[GroupEffect]:
        """A client wants to be, or to stay, a member; answered when the rebalance is complete.
        `fresh_member_id` is for a client that has no id."""
        member_id = request.member_id
        error_code = check_join(self, request, self._limits.size_max)
        if error_code == codes.GROUP_MAX_SIZE_REACHED:
            self._drop(member_id)
            self._reply(reply, JoinAnswer(error_code, ""))
            self._complete_join_if_due(moment)
        elif error_code:
            self._reply(reply, JoinAnswer(error_code, member_id))
        elif not member_id:
            self._join_without_id(request, fresh_member_id, reply, moment)
        elif member_id in self.members.pending:
            if request.group_instance_id is not None:
                # Nobody was given an id to come back with as a static member.
                self._reply(reply, JoinAnswer(codes.UNKNOWN_SERVER_ERROR, ""))
            else:
                self._add_member(request, member_id, reply, moment)
        elif error_code := check_member(self, member_id, request.group_instance_id):
            self._reply(reply, JoinAnswer(error_code, member_id))
        else:
            self._rejoin(request, self.members[member_id], reply, moment)
        return self._take_effects()

    def sync(self, request: SyncRequest, reply: SyncReply) -> list[GroupEffect]:
        """A member asks for its assignment; the leader's request brings everyone's."""
        member_id = request.member_id
        if error_code := check_sync(self, request):
            self._reply(reply, SyncAnswer(error_code))
            return self._take_effects()
        member = self.members[member_id]
        self.pending_sync.discard(member_id)
        if not self.pending_sync:
            self._sync_deadline_ms = None
        if self.state == STABLE:
            self._reply(reply, sync_answer(self, member))
            return self._take_effects()
        if member.awaiting_sync is not None:
            self._reply(member.awaiting_sync, SyncAnswer(codes.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = reply
        if self.members.leader == member_id:
            assignments = {
                each.member_id: request.assignments.get(each.member_id, b"")
                for each in self.members
            }
            what = AssignmentStored(self.generation_id, assignments)
            self._effects.append(Store(to_record(self, assignments), what))
        return self._take_effects()

    def heartbeat(
        self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int
    ) -> int:
        """A member lives. The code tells it to join again where that is due."""
        if error_code := check_heartbeat(self, member_id, group_instance_id, generation_id):
            return error_code
        self._extend_session(self.members[member_id], now_ms)
        return codes.REBALANCE_IN_PROGRESS if self.state == PREPARING_REBALANCE else codes.NONE

    def leave(
        self, leaving: list[tuple[str, str | None, str | None]], moment: Moment
    ) -> tuple[list[int], list[GroupEffect]]:
        """Members go: id, instance id and reason of each. An empty id with an instance id is an
        operator who removes a static member. One code each."""
        results = [self._leave_one(*each) for each in leaving]
        if codes.NONE in results:
            if self.state in (STABLE, COMPLETING_REBALANCE):
                self._rebalance("members have left", moment)
            elif self.state == PREPARING_REBALANCE:
                self._complete_join_if_due(moment)
        return results, self._take_effects()

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int
    ) -> int:
        """Tells whether offsets may be committed; a commit of a member is a sign of life."""
        error_code = check_commit(self, member_id, group_instance_id, generation_id)
        member = self.members.get(member_id)
        if not error_code and member is not None and generation_id == self.generation_id:
            self._extend_session(member, now_ms)
        return error_code

    def on_time(self, moment: Moment) -> list[GroupEffect]:
        """Time has passed: rebalances go on without those who did not come, silent members go."""
        now_ms = moment.now_ms
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._join_deadline_ms = None
            self._end_join_wait(moment)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_deadline_ms = None
            self._expire_sync(moment)
        overdue, lapsed = self.members.take_overdue(now_ms)
        for member_id in lapsed:
            self._note(f"expected a new member {member_id} that did not come back")
        if lapsed and self.state == PREPARING_REBALANCE and self._have_all_joined():
            self._complete_join(moment)
        for member in overdue:
            if member.deadline_ms <= now_ms:
                self._expire(member, moment)
        return self._take_effects()

    def on_stored(
        self, what: AssignmentStored | StaticMemberStored, error_code: int, moment: Moment
    ) -> list[GroupEffect]:
        """Takes the end of a write: it is on disk, or could not be written (`error_code` for
        clients)."""
        if isinstance(what, AssignmentStored):
            self._on_assignment_stored(what, error_code, moment)
        else:
            self._on_static_member_stored(what, error_code, moment)
        return self._take_effects()

    def unload(self) -> list[GroupEffect]:
        """The group is no longer coordinated here: whoever waits is told to look elsewhere."""
        self._set_state(DEAD, self.state_timestamp_ms)
        for member in self.members:
            self._answer_join(member, JoinAnswer(codes.NOT_COORDINATOR, member.member_id))
            self._answer_sync(member, SyncAnswer(codes.NOT_COORDINATOR))
        return self._take_effects()

    # --- joining ----------------------------------------------------------------------------------

    def _join_without_id(
        self, request: JoinRequest, fresh_member_id: str, reply: JoinReply, moment: Moment
    ) -> None:
        old_member_id = self.members.static_member_id(request.group_instance_id)
        if old_member_id is not None:
            member = self.members[old_member_id]
            self._replace_static_member(request, member, fresh_member_id, reply, moment)
        elif request.group_instance_id is None and request.needs_member_id:
            self.members.add_pending(fresh_member_id, moment.now_ms + request.session_timeout_ms)
            self._reply(reply, JoinAnswer(codes.MEMBER_ID_REQUIRED, fresh_member_id))
        else:
            self._add_member(request, fresh_member_id, reply, moment)

    def _add_member(
        self, request: JoinRequest, member_id: str, reply: JoinReply, moment: Moment
    ) -> None:
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
        )
        member.is_new = True
        if self.state == PREPARING_REBALANCE and self.previous_state == EMPTY:
            self.has_new_member = True
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members.add(member)
        self.members.set_awaiting_join(member, reply)
        self.members.pending.pop(member_id, None)
        self.members.set_deadline(member, moment.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance(f"member {member_id} joins{_because(request.reason)}", moment)

    def _rejoin(
        self, request: JoinRequest, member: Member, reply: JoinReply, moment: Moment
    ) -> None:
        """A member joins again: with nothing new it gets what it may have missed."""
        is_same = member.protocols == request.protocols
        is_leader = self.members.leader == member.member_id
        if self.state == PREPARING_REBALANCE:
            self._update_and_rebalance(request, member, reply, moment)
        elif is_same and (self.state == COMPLETING_REBALANCE or not is_leader):
            self._reply(reply, join_answer(self, member))
        else:
            # The leader of a stable group joins again to have partitions assigned anew.
            self._update_and_rebalance(request, member, reply, moment)

    def _update_and_rebalance(
        self, request: JoinRequest, member: Member, reply: JoinReply, moment: Moment
    ) -> None:
        self._update(member, request, reply)
        self._rebalance(f"member {member.member_id} joins again{_because(request.reason)}", moment)

    def _update(self, member: Member, request: JoinRequest, reply: JoinReply) -> None:
        self.members.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        forgotten = self.members.set_awaiting_join(member, reply)
        if forgotten is not None:
            self._reply(forgotten, JoinAnswer(codes.REBALANCE_IN_PROGRESS, member.member_id))

    def _replace_static_member(
        self,
        request: JoinRequest,
        member: Member,
        fresh_member_id: str,
        reply: JoinReply,
        moment: Moment,
    ) -> None:
        """A static member comes back without its id: it gets a new one and its old place."""
        old_member_id = member.member_id
        self._answer_join(member, JoinAnswer(codes.FENCED_INSTANCE_ID, old_member_id))
        self._answer_sync(member, SyncAnswer(codes.FENCED_INSTANCE_ID))
        what = static_member_stored(self, member, fresh_member_id, request)
        self._rename(member, fresh_member_id)
        # By the time-out of before, as in Kafka: the new one counts from the next heartbeat on.
        self._extend_session(member, moment.now_ms)
        self._update(member, request, reply)
        reason = f"static member {request.group_instance_id} is now {member.member_id}"
        if self.state == STABLE:
            if self.members.select_protocol() == self.protocol_name:
                self._note(f"{reason}, without a rebalance")
                self._effects.append(Store(to_record(self), what))
            else:
                self._rebalance(f"{reason}, with other protocols", moment)
        elif self.state == COMPLETING_REBALANCE:
            # The leader may be assigning partitions to the old id at this moment.
            self._prepare_rebalance(reason, moment)
        else:
            self._complete_join_if_due(moment)

    def _on_static_member_stored(
        self, what: StaticMemberStored, error_code: int, moment: Moment
    ) -> None:
        member = self.members.get(what.member_id)
        if member is None or self.state not in (STABLE, PREPARING_REBALANCE):
            return
        if error_code != codes.NONE:
            self._answer_join(member, static_member_refused(self, what, error_code))
            self.members.take_protocols_back(member, what.old_protocols)
            member.rebalance_timeout_ms = what.old_rebalance_timeout_ms
            member.session_timeout_ms = what.old_session_timeout_ms
            self._rename(member, what.old_member_id)
            self._extend_session(member, moment.now_ms)
        elif self.state == STABLE:
            self._answer_join(member, static_member_answer(self, member, what))
            if member.deadline_ms <= moment.now_ms:
                # The disk took longer than a session, in which the member could not be heard of.
                self._extend_session(member, moment.now_ms)

    def _rename(self, member: Member, member_id: str) -> None:
        if member.member_id in self.pending_sync:
            self.pending_sync.discard(member.member_id)
            self.pending_sync.add(member_id)
        self.members.rename(member, member_id)

    # --- rebalances -------------------------------------------------------------------------------

    def _rebalance(self, reason: str, moment: Moment) -> None:
        """Starts a rebalance, or goes on with the one that is being prepared."""
        if self.state == PREPARING_REBALANCE:
            self._complete_join_if_due(moment)
        else:
            self._prepare_rebalance(reason, moment)

    def _prepare_rebalance(self, reason: str, moment: Moment) -> None:
        if self.state == COMPLETING_REBALANCE:
            self._reset_assignments(codes.REBALANCE_IN_PROGRESS, moment)
        self.pending_sync.clear()
        self._sync_deadline_ms = None
        is_first = self.state == EMPTY
        self._set_state(PREPARING_REBALANCE, moment.wall_ms)
        self._note(f"rebalances from generation {self.generation_id}: {reason}")
        timeout_ms = self.members.rebalance_timeout_ms()
        if is_first:
            delay_ms = self._limits.initial_rebalance_delay_ms
            self._initial_delay = (delay_ms, max(timeout_ms - delay_ms, 0))
            self._join_deadline_ms = moment.now_ms + delay_ms
        elif self._have_all_joined():
            self._complete_join(moment)
        else:
            self._initial_delay = None
            self._join_deadline_ms = moment.now_ms + timeout_ms

    def _end_join_wait(self, moment: Moment) -> None:
        """Stops waiting for missing members, except before the first rebalance."""
        if self._initial_delay is not None:
            delay_ms, remaining_ms = self._initial_delay
            if self.has_new_member and remaining_ms != 0:
                self.has_new_member = False
                next_ms = min(self._limits.initial_rebalance_delay_ms, remaining_ms)
                self._initial_delay = (next_ms, max(remaining_ms - delay_ms, 0))
                self._join_deadline_ms = moment.now_ms + next_ms
                return
        self._complete_join(moment)

    def _have_all_joined(self) -> bool:
        return len(self.members) == self.members.awaiting_join and not self.members.pending

    def _complete_join_if_due(self, moment: Moment) -> None:
        """A join or leave does not end the wait before a group's first rebalance
        (`maybeCompleteJoinPhase`). An id that lapses and a member that fails do, where all others
        are there: `on_time` and `_expire`, as in Kafka (`removePendingMemberAndUpdateClassicGroup`,
        `removeMemberAndUpdateClassicGroup`)."""
        if self.state != PREPARING_REBALANCE or self.previous_state == EMPTY:
            return
        if self._have_all_joined():
            self._complete_join(moment)

    def _complete_join(self, moment: Moment) -> None:
        """The next generation consists of those who have joined, and of static members."""
        self._join_deadline_ms = None
        self._initial_delay = None
        for member in list(self.members):
            if member.awaiting_join is None and not member.is_static:
                self._note(f"member {member.member_id} did not join in time")
                self._drop(member.member_id)
        if self.members and not self.members.elect_leader_who_joined():
            # Static members only, none of which is here: their sessions will end one by one.
            wait_ms = max(self.members.rebalance_timeout_ms(), REBALANCE_RETRY_MS_MIN)
            self._join_deadline_ms = moment.now_ms + wait_ms
            return
        self.generation_id += 1
        self.has_new_member = False
        self.pending_sync.clear()
        if not self.members:
            self.protocol_name = None
            self.subscribed_topics = subscribed_topics(self)
            self._set_state(EMPTY, moment.wall_ms)
            self._note(f"is empty in generation {self.generation_id}")
            self._effects.append(Store(to_record(self), None))
            return
        self.protocol_name = self.members.select_protocol()
        self.subscribed_topics = subscribed_topics(self)
        self._set_state(COMPLETING_REBALANCE, moment.wall_ms)
        self._note(f"has {len(self.members)} members in generation {self.generation_id}")
        for member in self.members:
            self._answer_join(member, join_answer(self, member))
            self._extend_session(member, moment.now_ms)
            member.is_new = False
            self.pending_sync.add(member.member_id)
        self._sync_deadline_ms = moment.now_ms + self.members.rebalance_timeout_ms()

    def _expire_sync(self, moment: Moment) -> None:
        """Members that never asked for their assignment are taken out."""
        if self.state not in (COMPLETING_REBALANCE, STABLE) or not self.pending_sync:
            return
        missing = sorted(self.pending_sync)
        for member_id in missing:
            self._drop(member_id)
        self._prepare_rebalance(f"no sync from {', '.join(missing)}", moment)

    def _on_assignment_stored(
        self, what: AssignmentStored, error_code: int, moment: Moment
    ) -> None:
        if self.state != COMPLETING_REBALANCE or what.generation_id != self.generation_id:
            return  # another rebalance has begun meanwhile
        if error_code != codes.NONE:
            self._reset_assignments(error_code, moment)
            self._prepare_rebalance(f"the assignment could not be stored ({error_code})", moment)
            return
        for member in self.members:
            assignment = what.assignments.get(member.member_id, b"")
            self.members.set_assignment(member, assignment)
            if member.awaiting_sync is not None:
                self._answer_sync(member, sync_answer(self, member))
                self._extend_session(member, moment.now_ms)
        self._set_state(STABLE, moment.wall_ms)

    def _reset_assignments(self, error_code: int, moment: Moment) -> None:
        for member in self.members:
            self.members.set_assignment(member, b"")
            if member.awaiting_sync is not None:
                self._answer_sync(member, SyncAnswer(error_code))
                self._extend_session(member, moment.now_ms)

    # --- leaving ----------------------------------------------------------------------------------

    def _leave_one(self, member_id: str, group_instance_id: str | None, reason: str | None) -> int:
        if self.state == DEAD:
            return codes.COORDINATOR_NOT_AVAILABLE
        if not member_id:
            holder = self.members.static_member_id(group_instance_id)
            if holder is None:
                return codes.UNKNOWN_MEMBER_ID
            member_id = holder
        elif member_id in self.members.pending:
            del self.members.pending[member_id]
            return codes.NONE
        elif error_code := check_member(self, member_id, group_instance_id):
            return error_code
        self._note(f"member {member_id} leaves{_because(reason)}")
        self._drop(member_id)
        return codes.NONE

    def _expire(self, member: Member, moment: Moment) -> None:
        """A session has ended. Who waits for an answer cannot be heard of; a new member's join is
        ended all the same, since its client may be gone and have joined again."""
        is_waiting = member.awaiting_join is not None or member.awaiting_sync is not None
        if is_waiting and not member.is_new:
            return
        if self.members.get(member.member_id) is not member:
            return
        self._note(f"member {member.member_id} has failed")
        self._drop(member.member_id)
        if self.state in (STABLE, COMPLETING_REBALANCE):
            self._rebalance(f"member {member.member_id} has failed", moment)
        elif self.state == PREPARING_REBALANCE and self._have_all_joined():
            self._complete_join(moment)

    def _drop(self, member_id: str) -> None:
        """Takes a member out, if it is one; requests of its that wait are answered."""
        member = self.members.get(member_id)
        if member is None:
            return
        self._answer_join(member, JoinAnswer(codes.UNKNOWN_MEMBER_ID, ""))
        self._answer_sync(member, SyncAnswer(codes.UNKNOWN_MEMBER_ID))
        self.members.remove(member_id)
        self.pending_sync.discard(member_id)

    # --- the small parts --------------------------------------------------------------------------

    def _answer_join(self, member: Member, answer: JoinAnswer) -> None:
        reply = self.members.set_awaiting_join(member, None)
        if reply is not None:
            self._reply(reply, answer)

    def _answer_sync(self, member: Member, answer: SyncAnswer) -> None:
        reply, member.awaiting_sync = member.awaiting_sync, None
        if reply is not None:
            self._reply(reply, answer)

    def _extend_session(self, member: Member, now_ms: int) -> None:
        self.members.set_deadline(member, now_ms + member.session_timeout_ms)

    def _set_state(self, state: str, wall_ms: int) -> None:
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = wall_ms

    def _reply(self, to: Callable[[Answer], None], answer: Answer) -> None:
        self._effects.append(Reply(to, answer))

    def _note(self, sentence: str) -> None:
        self._effects.append(Note(f"group {self.group_id} {sentence}"))

    def _take_effects(self) -> list[GroupEffect]:
        effects, self._effects = self._effects, []
        return effects


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""
