"""The members of a classic group: who they are, which protocols they share, when they are due.

Sessions cost little: a heartbeat writes one number. The heap holds at most one valid entry a
member; an entry that comes up early is put back with the member's present deadline, so that a
member costs one heap operation a session, however often it is heard of.

What a member has joined with stays until its session ends, whether its client is there or not, and
so do ids that were given out: `memory_bytes` says what they take.
"""

import heapq
from collections.abc import Iterable, Iterator
from sys import getsizeof
from typing import Final

from kafkalite.groups.events import JoinReply, Protocols, SyncReply
from kafkalite.protocol.java_hash import hash_map_order

MEMBER_BYTES: Final = 1_000
PROTOCOL_BYTES: Final = 200
SESSION_BYTES: Final = 600
"""The memory of a member and of each of its protocols, beside what its client chose, and of an
entry of the heap of sessions or of the pending ids."""


def bytes_of(protocols: Protocols) -> int:
    """The memory of protocols."""
    return sum(PROTOCOL_BYTES + getsizeof(name) + getsizeof(data) for name, data in protocols)


class Member:
    """One member, and whom to answer where it waits."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "deadline_ms",
        "group_instance_id",
        "is_new",
        "member_id",
        "memory_bytes",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "wake_ms",
    )

    def __init__(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: JoinReply | None = None
        self.awaiting_sync: SyncReply | None = None
        self.is_new = False
        """Has not got an answer to its first join: it cannot send heartbeats yet."""
        self.memory_bytes = 0
        """The memory that `Members` has counted for it."""
        self.deadline_ms = 0
        self.wake_ms: int | None = None
        """Time of the member's valid entry in the heap of sessions."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The metadata that the member sent with a protocol; empty for one that it cannot do."""
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The first of the candidates in the member's own order."""
        return next(name for name, _ in self.protocols if name in candidates)


class Members:
    """The members of one group. `leader` is the id of one of them, None without members."""

    __slots__ = (
        "_by_id",
        "_member_bytes",
        "_protocol_counts",
        "_sessions",
        "_static",
        "awaiting_join",
        "leader",
        "pending",
    )

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._protocol_counts: dict[str, int] = {}
        self._sessions: list[tuple[int, str]] = []
        self._member_bytes = 0
        self.awaiting_join = 0
        """How many wait for the answer to their join."""
        self.leader: str | None = None
        self.pending: dict[str, int] = {}
        """Ids that were given out and not used yet, with the time when they lapse."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def static_member_id(self, group_instance_id: str | None) -> str | None:
        """The id of the member that holds a `group.instance.id`, or None."""
        return None if group_instance_id is None else self._static.get(group_instance_id)

    @property
    def memory_bytes(self) -> int:
        """The memory that members, ids and sessions take."""
        return self._member_bytes + SESSION_BYTES * (len(self._sessions) + len(self.pending))

    def add(self, member: Member) -> None:
        """The first one becomes the leader."""
        if member.member_id in self._by_id:
            raise ValueError(f"{member.member_id} is a member already")
        if member.group_instance_id is not None:
            if member.group_instance_id in self._static:
                raise ValueError(f"{member.group_instance_id} is a static member already")
            self._static[member.group_instance_id] = member.member_id
        self._by_id[member.member_id] = member
        self._count(member, 1)
        self._weigh(member)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Another member becomes the leader if this one was. What it waits for is the caller's to
        answer."""
        member = self._by_id.pop(member_id, None)
        if member is None:
            return None
        self._count(member, -1)
        self._member_bytes -= member.memory_bytes
        if member.awaiting_join is not None:
            self.awaiting_join -= 1
        if member.group_instance_id is not None:
            del self._static[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._by_id), None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """A static member goes on under a new id, with its place, its session and its lead."""
        if member.group_instance_id is None:
            raise ValueError(f"{member.member_id} is not static")
        del self._by_id[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        member.wake_ms = None
        self._by_id[member_id] = member
        self._static[member.group_instance_id] = member_id

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        self._weigh(member)

    def set_assignment(self, member: Member, assignment: bytes) -> None:
        member.assignment = assignment
        self._weigh(member)

    def take_protocols_back(self, member: Member, protocols: Protocols) -> None:
        """As `set_protocols`, unless somebody has joined meanwhile whom only the present ones suit:
        Kafka's group then has no protocol in common, on which its `ClassicGroupMember.vote`
        throws."""
        present = member.protocols
        self.set_protocols(member, protocols)
        if not self.supports(protocols):
            self.set_protocols(member, present)

    def set_awaiting_join(self, member: Member, reply: JoinReply | None) -> JoinReply | None:
        """Sets the member's pending join; returns the one it replaces."""
        self.awaiting_join += (reply is not None) - (member.awaiting_join is not None)
        before, member.awaiting_join = member.awaiting_join, reply
        return before

    def supports(self, protocols: Protocols) -> bool:
        """True if one of the protocols is known to every member."""
        counts = self._protocol_counts
        return any(counts.get(name, 0) == len(self._by_id) for name, _ in protocols)

    def select_protocol(self) -> str:
        """Every member votes for the first of its protocols that all members know; the most votes
        win, and among equals the one that Kafka's hash map of votes gives back first."""
        size = len(self._by_id)
        candidates = {name for name, count in self._protocol_counts.items() if count == size}
        votes: dict[str, int] = {}
        for member in self:
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(hash_map_order(votes), key=votes.__getitem__)

    def elect_leader_who_joined(self) -> bool:
        """The leader stays if it waits for the answer to its join; false if nobody does."""
        leader = self.get(self.leader or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        joined = next((each for each in self if each.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def rebalance_timeout_ms(self) -> int:
        """The longest time that a member asks for; none at all if that is negative."""
        return max((0, *(member.rebalance_timeout_ms for member in self)))

    # --- sessions ---------------------------------------------------------------------------------

    def set_deadline(self, member: Member, deadline_ms: int) -> None:
        """The member must be heard of before `deadline_ms`."""
        member.deadline_ms = deadline_ms
        if member.wake_ms is None or deadline_ms < member.wake_ms:
            member.wake_ms = deadline_ms
            heapq.heappush(self._sessions, (deadline_ms, member.member_id))

    def add_pending(self, member_id: str, deadline_ms: int) -> None:
        """An id was given out, to be used before `deadline_ms`."""
        self.pending[member_id] = deadline_ms
        heapq.heappush(self._sessions, (deadline_ms, member_id))

    def next_deadline_ms(self) -> int | None:
        """No session ends before it; it may be earlier than the first that does."""
        return self._sessions[0][0] if self._sessions else None

    def take_overdue(self, now_ms: int) -> tuple[list[Member], list[str]]:
        """Members whose session has ended, each named once until it gets a new deadline; and
        pending ids that have lapsed, which are forgotten."""
        overdue: list[Member] = []
        lapsed: list[str] = []
        while self._sessions and self._sessions[0][0] <= now_ms:
            wake_ms, member_id = heapq.heappop(self._sessions)
            if self.pending.get(member_id) == wake_ms:
                del self.pending[member_id]
                lapsed.append(member_id)
                continue
            member = self._by_id.get(member_id)
            if member is None or member.wake_ms != wake_ms:
                continue
            member.wake_ms = None
            if member.deadline_ms > now_ms:
                self.set_deadline(member, member.deadline_ms)
            else:
                overdue.append(member)
        return overdue, lapsed

    def _weigh(self, member: Member) -> None:
        """Counts the member's memory anew."""
        chosen = (member.client_id, member.group_instance_id, member.assignment)
        memory_bytes = MEMBER_BYTES + bytes_of(member.protocols) + sum(map(getsizeof, chosen))
        self._member_bytes += memory_bytes - member.memory_bytes
        member.memory_bytes = memory_bytes

    def _count(self, member: Member, by: int) -> None:
        counts = self._protocol_counts
        for name in {name for name, _ in member.protocols}:
            count = counts.get(name, 0) + by
            if count:
                counts[name] = count
            else:
                counts.pop(name, None)
