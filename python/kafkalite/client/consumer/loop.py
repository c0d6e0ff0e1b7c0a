"""Has the parts of a consumer go on, for whoever polls, until there is something to hand out.

_collect ──► the group joined? ──► leaders and positions ──► fetches ──► answers ──► ready
                  ▲                                                         │
                  └──────────────────────── _wait ◄─────────────────────────┘ nothing so far
"""

import sys
import time
from contextlib import suppress

from kafkalite.client.arguments import int32
from kafkalite.client.consumer.coordinator import ConsumerCoordinator
from kafkalite.client.consumer.fetched import Given
from kafkalite.client.consumer.fetcher import Fetcher
from kafkalite.client.consumer.position_lookup import PositionLookup
from kafkalite.client.consumer.subscription_state import SubscriptionState
from kafkalite.client.guard import Exclusive, exclusive
from kafkalite.client.network.cluster import BACKOFF_MS
from kafkalite.client.network.leaders import Leaders
from kafkalite.client.network.wakeup import Wakeup
from kafkalite.errors import InvalidArgumentError

__all__ = ["ConsumerLoop"]


class ConsumerLoop(Exclusive):
    """Does a `Consumer`'s work beside its calls. The parts are the consumer's, which makes them."""

    _coordinator: ConsumerCoordinator | None
    """None without a group."""
    _fetcher: Fetcher
    _leaders: Leaders
    _position_lookup: PositionLookup
    _subscription_state: SubscriptionState
    _wakeup: Wakeup
    _is_woken = False
    """A call is to return, or the next one."""

    def wakeup(self) -> None:
        """Lets `poll` and `fetch` return, with what is there, and ends an iterator: the call that
        waits in another thread, or the next one. For any thread, and handlers of signals."""
        self._is_woken = True
        if self._coordinator is not None:
            self._coordinator.is_woken = True
        self._wakeup.set()

    @property
    def _is_subscribed(self) -> bool:
        return self._coordinator is not None and self._coordinator.is_subscribed

    def _begin(self, timeout_ms: int) -> float:
        """The caller has dealt with all that they have, and wants more: until when."""
        deadline = time.monotonic() + int32("timeout_ms", timeout_ms, 0) / 1000
        if self._is_called_back:
            raise InvalidArgumentError("a rebalance listener cannot read: it is called by poll")
        if self._is_within:
            raise InvalidArgumentError(
                "the consumer is in the midst of another call of the same thread, which a signal "
                "handler has interrupted: let the handler call wakeup"
            )
        if not (self._is_subscribed or self._subscription_state):
            raise InvalidArgumentError("nothing to read: subscribe to topics, or assign partitions")
        self._fetcher.waiting.shut()
        self._subscription_state.confirm()
        return deadline

    def _end_assigned(self, deadline: float | None = None) -> bool:
        """Commits, if it does so by itself, what was read of partitions that the caller has
        assigned and now gives up. Says whether they are taken to have dealt with what they got
        last: not while an exception is under way, nor in the midst of a `poll` that is about to
        give it."""
        in_hand = sys.exc_info()[1] is None and not self._is_within
        self._fetcher.waiting.shut()
        if self._coordinator is not None:
            self._coordinator.commit_assigned(in_hand=in_hand, deadline=deadline)
        return in_hand

    def _has_to_return(self, deadline: float) -> bool:
        """Says whether the time is over, or `wakeup` was called, which is over then."""
        is_woken, self._is_woken = self._is_woken, False
        if self._coordinator is not None:
            self._coordinator.is_woken = False
        return is_woken or time.monotonic() >= deadline

    def _take_back(self, given: Given) -> None:
        """Has records that the caller never got fetched once more. Behind the call that gave them:
        a handler that raises may come as it ends."""
        if given:
            with suppress(InvalidArgumentError):  # closed meanwhile, or it is another thread's turn
                self._give_back(given)

    @exclusive
    def _give_back(self, given: Given) -> None:
        for partition, (epoch, offset) in given.items():
            self._subscription_state.give_back(partition, epoch, offset)

    def _collect(self, deadline: float) -> bool:
        """Returns when something may be handed out, or the time is over; False if the group is
        being joined then. Raises what a partition has met since the last call, and in this one if
        there is nothing to hand out."""
        coordinator, waiting = self._coordinator, self._fetcher.waiting
        if coordinator is not None:
            coordinator.commit_if_due()
        while True:
            if coordinator is not None and not coordinator.join_if_due(deadline):
                return False
            self._raise_error()
            if waiting.is_ready:
                # Answers stay where they are meanwhile: what has come is bounded.
                if self._subscription_state.is_lacking:
                    self._turn_lookups()
                return True
            self._turn_lookups()
            self._send_fetches()
            self._fetcher.take(time.monotonic())
            if self._fetcher.waiting.is_ready:
                self._send_fetches()
                return True
            self._raise_error()
            now = time.monotonic()
            missing = None if coordinator is None else coordinator.missing(now)
            if missing is not None:
                raise missing
            if now >= deadline or self._is_woken:
                return True
            topics = [] if coordinator is None else coordinator.descriptors()
            self._wait(deadline - now, self._fetcher.descriptors() + topics)

    def _turn_lookups(self) -> None:
        self._leaders.take(time.monotonic())
        self._position_lookup.take(time.monotonic())
        self._position_lookup.send(time.monotonic())
        self._leaders.send(time.monotonic())

    def _send_fetches(self) -> None:
        self._fetcher.send(time.monotonic())
        self._leaders.send(time.monotonic())

    def _raise_error(self) -> None:
        until = time.monotonic() + BACKOFF_MS / 1000
        error = self._subscription_state.take_error(until, but=self._fetcher.waiting.has)
        if error is not None:
            raise error

    def _wait(self, seconds: float, descriptors: list[int]) -> None:
        """Until an answer comes, or a pause may be over."""
        descriptors += self._position_lookup.descriptors() + self._leaders.descriptors()
        has_pause = self._subscription_state.waits_until > time.monotonic()
        at_most = 1.0 if descriptors and not has_pause else BACKOFF_MS / 1000
        self._troubles.write()
        self._wakeup.wait(min(seconds, at_most), descriptors)
