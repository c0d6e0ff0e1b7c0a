"""What a classic group is told and what it asks for: requests and their answers, what is written
and what came of it. `classic.py` is the state machine between them."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

Protocols = tuple[tuple[str, bytes], ...]
"""Name and metadata of each protocol that a member can do, in its order of preference."""


class Moment(NamedTuple):
    """When an event happens: monotonic, for time-outs, and since 1970, for records."""

    now_ms: int
    wall_ms: int


class Limits(NamedTuple):
    """What the broker's configuration says of every group."""

    size_max: int
    initial_rebalance_delay_ms: int


class JoinRequest(NamedTuple):
    """`member_id` is empty for a client that has none."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    reason: str | None
    needs_member_id: bool
    """The client comes back with the id that it is given (KIP-394, from version 4)."""
    can_skip_assignment: bool
    """From version 9 (KIP-814)."""


class JoinAnswer(NamedTuple):
    error_code: int
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """Id, instance id and metadata of every member, for the leader only."""


class SyncRequest(NamedTuple):
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


class SyncAnswer(NamedTuple):
    error_code: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class MemberRecord(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupRecord(NamedTuple):
    """What the log keeps of a group. `state_timestamp_ms` is -1 where it is not known."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberRecord, ...]


JoinReply = Callable[[JoinAnswer], None]
SyncReply = Callable[[SyncAnswer], None]
"""Whoever asked, to be told once."""

Answer = TypeVar("Answer", JoinAnswer, SyncAnswer)


class Reply(Generic[Answer]):
    """The answer to a request."""

    __slots__ = ("_to", "answer")

    def __init__(self, to: Callable[[Answer], None], answer: Answer) -> None:
        self._to: Callable[[Answer], None] = to
        self.answer: Answer = answer

    def send(self) -> None:
        """Tells whoever asked."""
        self._to(self.answer)


class AssignmentStored(NamedTuple):
    """The leader's assignment is in the log, or could not be written."""

    generation_id: int
    assignments: dict[str, bytes]


class StaticMemberStored(NamedTuple):
    """A static member's new id is in the log, or could not be written: then the old one holds."""

    member_id: str
    old_member_id: str
    old_leader: str
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    old_protocols: Protocols
    can_skip_assignment: bool


class Store(NamedTuple):
    """Write the group; tell `on_stored` about `what`, unless it is None."""

    record: GroupRecord
    what: AssignmentStored | StaticMemberStored | None


class Note(NamedTuple):
    """A sentence for the log."""

    sentence: str


Effect = Reply[JoinAnswer] | Reply[SyncAnswer] | Store | Note
