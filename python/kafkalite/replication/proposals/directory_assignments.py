"""Asks the controller to write down in which log directories the replicas of this broker lie.
`directories.py` decides; this drives it by timers and answers.

Kafka: `AssignmentsManager`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kafkalite.replication.channels import Channels
from kafkalite.replication.proposals.directories import Directories
from kafkalite.replication.proposals.membership import Membership
from kafkalite.timers import Timer, Timers

PURPOSE: Final = "directories"
VERSION: Final = 0
RETRY_MS: Final = 1_000


class DirectoryAssignments:
    """Used by the control thread only."""

    def __init__(
        self,
        membership: Membership,
        channels: Channels,
        timers: Timers,
        now_ms: Callable[[], int],
        is_gone: Callable[[bytes], bool],
    ) -> None:
        """`is_gone`: as of `Directories`."""
        self.directories = Directories(membership.node_id, is_gone)
        self._membership = membership
        self._channels = channels
        self._timers = timers
        self._now_ms = now_ms
        self._timer: Timer | None = None

    def move(self, assignments: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Replicas move to other log directories, or stay where they were after all."""
        for each in assignments:
            self.directories.move(*each)
        self.tell()

    def tell(self) -> None:
        """Tells the controller which directories were chosen, unless that is under way."""
        if self._timer is None:
            self._timer = self._timers.call_at(self._now_ms(), self._ask)

    def _ask(self) -> None:
        request = self.directories.request(self._membership.broker_epoch)
        if request is None:
            self._timer = None
            return
        self._timer = self._timers.call_at(self._now_ms() + RETRY_MS, self._ask)
        address = self._membership.controller_address
        if address is not None:
            # What was taken comes back as metadata; what was not is asked for again.
            self._channels.send(PURPOSE, address, request, VERSION, RETRY_MS, self._on_answer)

    def _on_answer(self, answer: Any) -> None:
        if not isinstance(answer, str) and not answer.error_code:
            self.directories.on_answer(answer)
