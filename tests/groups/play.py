"""A classic group without a broker: requests are numbers, the disk is a list."""

from collections.abc import Callable, Iterable
from typing import Any

from kafkalite.coordinator.machine import Moment, Reply
from kafkalite.groups.classic import ClassicGroup
from kafkalite.groups.events import (
    GroupEffect,
    GroupLimits,
    JoinAnswer,
    JoinRequest,
    Store,
    SyncAnswer,
    SyncRequest,
)
from kafkalite.protocol import messages

WALL_MS = 1_700_000_000_000


def subscription(*topics: str) -> bytes:
    """What a consumer sends with a protocol."""
    data: bytes = messages.ConsumerProtocolSubscription(topics=list(topics)).encode(3)
    return b"\0\3" + data


class Play:
    """One group, its clock, the answers by token, and what is to be written."""

    def __init__(self, size_max: int = 100, delay_ms: int = 0, group_id: str = "group") -> None:
        self.now_ms = 1000
        self.group = ClassicGroup(group_id, GroupLimits(size_max, delay_ms), WALL_MS)
        self.answers: dict[int, Any] = {}
        self.asked = 0
        self.stores: list[Store] = []

    def moment(self) -> Moment:
        return Moment(self.now_ms, WALL_MS + self.now_ms)

    def take(self, effects: Iterable[GroupEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                effect.send()
            elif isinstance(effect, Store):
                self.stores.append(effect)

    def asks(self) -> tuple[int, Callable[[Any], None]]:
        """The number of a request, and where its answer goes."""
        self.asked += 1
        token = self.asked

        def reply(answer: Any) -> None:
            assert token not in self.answers, "answered twice"
            self.answers[token] = answer

        return token, reply

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b""),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        needs_id: bool = False,
        can_skip: bool = True,
    ) -> int:
        token, reply = self.asks()
        request = JoinRequest(
            member_id=member_id,
            group_instance_id=instance,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=rebalance_ms,
            session_timeout_ms=session_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            reason=None,
            needs_member_id=needs_id,
            can_skip_assignment=can_skip,
        )
        fresh_member_id = f"{instance or 'member'}-{token}"
        self.take(self.group.join(request, fresh_member_id, reply, self.moment()))
        return token

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        instance: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        token, reply = self.asks()
        request = SyncRequest(
            member_id, instance, generation_id, None, protocol_name, assignments or {}
        )
        self.take(self.group.sync(request, reply))
        return token

    def heartbeat(self, member_id: str, generation_id: int, instance: str | None = None) -> int:
        return self.group.heartbeat(member_id, instance, generation_id, self.now_ms)

    def leave(self, *leaving: tuple[str, str | None]) -> list[int]:
        results, effects = self.group.leave(
            [(member_id, instance, None) for member_id, instance in leaving], self.moment()
        )
        self.take(effects)
        return results

    def stored(self, error_code: int = 0) -> None:
        """The oldest write is on disk, or has failed."""
        store = self.stores.pop(0)
        if store.what is not None:
            self.take(self.group.on_stored(store.what, error_code, self.moment()))

    def pass_time(self, by_ms: int) -> None:
        """The clock goes on; the group is called whenever it asked to be."""
        end_ms = self.now_ms + by_ms
        while (wake_ms := self.group.next_wake_ms()) is not None and wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, wake_ms)
            self.take(self.group.on_time(self.moment()))
        self.now_ms = end_ms

    # --- whole stories ----------------------------------------------------------------------------

    def joined(self, token: int) -> JoinAnswer:
        answer = self.answers[token]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, token: int) -> SyncAnswer:
        answer = self.answers[token]
        assert isinstance(answer, SyncAnswer)
        return answer

    def stabilise(self, count: int = 1, **options: Any) -> list[str]:
        """A stable group of so many members that join at once; the ids, the leader's first."""
        tokens = [self.join(**options) for _ in range(count)]
        self.pass_time(self.group._limits.initial_rebalance_delay_ms)
        while self.group.state == "PreparingRebalance":
            self.pass_time(1)
        answers = [self.joined(token) for token in tokens]
        ids = sorted((a.member_id for a in answers), key=lambda each: each != answers[0].leader)
        for member_id in reversed(ids):
            assignments = {each: each.encode() for each in ids} if member_id == ids[0] else {}
            self.sync(member_id, self.group.generation_id, assignments)
        self.stored()
        assert self.group.state == "Stable"
        return ids
