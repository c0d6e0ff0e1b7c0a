"""Asks the controller for the in-sync replicas that the leaders of this broker propose. Has the
leaders look at their followers from time to time, too. `isr.py` decides; this drives it by timers,
numbers of the control thread and answers.

Kafka: `DefaultAlterPartitionManager`, `ReplicaManager.maybeShrinkIsr`.
"""

from collections.abc import Callable
from typing import Any, Final

from kafkalite import _native
from kafkalite.replication.channels import Channels
from kafkalite.replication.proposals.isr import RETRY_MS, VERSION, IsrChange, IsrChanges, Settled
from kafkalite.replication.proposals.membership import Membership
from kafkalite.service.stderr_log import Log
from kafkalite.timers import Timer, Timers

PURPOSE: Final = "in-sync replicas"
ANSWER_MS: Final = 30_000
"""The longest wait for an answer; a connection that is lost ends it earlier."""


class AlterPartition:
    """Used by the control thread only."""

    def __init__(
        self,
        membership: Membership,
        leaders: _native.Leaders,
        channels: Channels,
        timers: Timers,
        now_ms: Callable[[], int],
        log: Log,
        *,
        lag_ms: int,
    ) -> None:
        """`lag_ms`: `replica.lag.time.max.ms`. The sweeps begin at once."""
        self._membership = membership
        self._leaders = leaders
        self._channels = channels
        self._timers = timers
        self._now_ms = now_ms
        self._log = log
        self._sweep_ms = max(1, lag_ms // 2)
        self._changes = IsrChanges(membership.node_id)
        self._timer: Timer | None = None
        self._sweep()

    def take(self) -> None:
        """Leaders have proposed something."""
        self._changes.add(IsrChange(*each) for each in self._leaders.take_changes())
        if self._timer is None:
            self._ask()

    def _sweep(self) -> None:
        self._leaders.sweep()
        self._timers.call_at(self._now_ms() + self._sweep_ms, self._sweep)

    def _ask_in(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.call_at(self._now_ms() + delay_ms, self._ask)

    def _ask(self) -> None:
        self._timer = None
        address = self._membership.controller_address
        if address is None:
            self._ask_in(RETRY_MS)
            return
        request = self._changes.request(self._membership.broker_epoch)
        if request is not None:
            self._channels.send(PURPOSE, address, request, VERSION, ANSWER_MS, self._on_answer)

    def _on_answer(self, answer: Any) -> None:
        if isinstance(answer, str):
            self._log.debug(f"in-sync replicas: {answer}")
            self._changes.on_failure()
            self._ask_in(RETRY_MS)
            return
        settled = self._changes.on_answer(answer)
        for each in settled:
            self._tell(each)
        # Whatever is not accepted comes again, by the leader or from here.
        is_accepted = settled and all(each.accepted is not None for each in settled)
        self._ask_in(0 if is_accepted else RETRY_MS)

    def _tell(self, settled: Settled) -> None:
        change = settled.topic_id, settled.partition, settled.number
        if settled.accepted is not None:
            self._leaders.accept(change, *settled.accepted)
        elif settled.is_asked_again:
            self._leaders.retry(change)
        else:
            self._leaders.refuse(change)
