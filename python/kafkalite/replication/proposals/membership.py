"""The facts of this broker in its cluster that proposals are made with."""

from typing import Protocol

from kafkalite.replication.observer import Address


class Membership(Protocol):
    """`kafkalite.replication.member.Member`, as far as proposals know it."""

    @property
    def node_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def controller_address(self) -> Address | None: ...
