"""The broker as the transaction coordinator needs it (`kafkalite.context.Context`)."""

from typing import Protocol

from kafkalite.coordinator.machine import Producer
from kafkalite.coordinator.runtime import RuntimeHost
from kafkalite.metadata.engine import Engine
from kafkalite.tasks import Future, TimeLimit
from kafkalite.transactions.other_brokers import Peers


class Groups(Protocol):
    """The group coordinator."""

    def end_transaction(self, partition: int, producer: Producer) -> Future[int]: ...


class Replicas(Protocol):
    """The logs of this node."""

    def refusal(self, name: str, index: int) -> int: ...


class TransactionHost(RuntimeHost, Protocol):
    """Used by the control thread only."""

    @property
    def groups(self) -> Groups: ...
    @property
    def replicas(self) -> Replicas: ...
    @property
    def peers(self) -> Peers | None:
        """The other brokers; None on a node that is alone."""

    @property
    def engine(self) -> Engine: ...
    def time_limit(self, wait_ms: int) -> TimeLimit: ...
