"""Events and effects of groups: requests and their answers, what is written and what
came of it. `classic.py` is the state machine between them."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from kafkalite.coordinator.machine import Note, Reply

Protocols = tuple[tuple[str, bytes], ...]
"""Name and metadata of each protocol that a member can do, in its order of preference."""


class GroupLimits(NamedTuple):
    """The broker's configuration for every group."""

    size_max: int
    initial_rebalance_delay_ms: int


class OffsetLimits(NamedTuple):
    """Limits of committed offsets, by the broker's configuration."""

    metadata_bytes_max: int
    retention_ms: int
    """Offsets are kept so long after their group became empty, or after the commit."""
    expiry_interval_ms: int
    """Between two looks for what is to be forgotten."""


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
    """A group as the log keeps it. `state_timestamp_ms` is -1 where it is not known."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberRecord, ...]


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit request."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class CommitRequest(NamedTuple):
    """`generation_id` is -1 and `member_id` empty where no member commits."""

    member_id: str
    group_instance_id: str | None
    generation_id: int
    retention_time_ms: int
    """-1 where the broker says how long the offsets last."""
    knows_missing_groups: bool
    """From version 9 the client knows GROUP_ID_NOT_FOUND."""
    offsets: list[OffsetToCommit]


class OffsetsInTransaction(NamedTuple):
    """The transaction to which offsets of a commit belong."""

    producer_id: int
    producer_epoch: int
    guard: int | None
    """The guard of its verification (`Verifications`); None where there was none to make."""


Leaving = list[tuple[str, str | None, str | None]]
"""Id, instance id and reason of each member that leaves."""


class GroupAnswer(NamedTuple):
    """A code for the whole request and one for each of its parts, none where all is refused."""

    error_code: int
    results: list[int]


JoinReply = Callable[[JoinAnswer], None]
SyncReply = Callable[[SyncAnswer], None]
"""Callbacks that deliver an answer, each to be called once."""


Answer = TypeVar("Answer", JoinAnswer, SyncAnswer)


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


GroupEffect = Reply[JoinAnswer] | Reply[SyncAnswer] | Store | Note
