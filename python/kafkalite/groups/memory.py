"""The memory that members of groups take for as long as their sessions last, whether their clients
are there or not: what they have joined with, their assignments, and ids that were given out. It is
counted as memory of requests (`Hold`), which bounds it: `queued.max.request.bytes`.
"""

from typing import TYPE_CHECKING, Final

from kafkalite.coordinator.machine import Hold
from kafkalite.groups.events import JoinRequest, SyncRequest
from kafkalite.groups.members import MEMBER_BYTES, bytes_of

if TYPE_CHECKING:
    from kafkalite.groups.classic import ClassicGroup

RETURNING_BYTES_FREE: Final = 4 * 1024
"""A member's protocols of so many bytes are taken even if there is no room for more: those of
consumers grow and shrink with their partitions."""


class MembersMemory:
    """Knows the memory that the groups of one partition were counted with."""

    def __init__(self) -> None:
        self._held_bytes: dict[str, int] = {}

    def recount(self, group_id: str, group: "ClassicGroup | None") -> list[Hold]:
        """Counts a group anew, after whatever may have changed it; None once it is gone."""
        memory_bytes = 0 if group is None else group.memory_bytes
        count = memory_bytes - self._held_bytes.get(group_id, 0)
        if not count:
            return []
        if memory_bytes:
            self._held_bytes[group_id] = memory_bytes
        else:
            del self._held_bytes[group_id]
        return [Hold(count)]

    def clear(self) -> None:
        """All groups are gone."""
        self._held_bytes.clear()


def growth_by_join(group: "ClassicGroup | None", request: JoinRequest) -> int:
    """How much more memory a member will take once it has joined, again or for the first time."""
    memory_bytes = bytes_of(request.protocols)
    member = None
    if group is not None:
        # A static member comes back without the id that it had.
        old_id = group.members.static_member_id(request.group_instance_id)
        member = group.members.get(request.member_id or old_id or "")
    if member is None:
        return MEMBER_BYTES + memory_bytes
    return memory_bytes - max(bytes_of(member.protocols), RETURNING_BYTES_FREE)


def growth_by_sync(group: "ClassicGroup | None", request: SyncRequest) -> int:
    """How much more memory the assignments will take."""
    known_bytes = 0 if group is None else sum(len(each.assignment) for each in group.members)
    return sum(map(len, request.assignments.values())) - known_bytes
