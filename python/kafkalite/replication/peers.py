"""The other brokers of the cluster, as coordinators ask them: over connections of their own, by the
listener that brokers use among themselves.
"""

from typing import Any

from kafkalite.metadata.cluster import Source
from kafkalite.replication.channels import Channels
from kafkalite.tasks import Future


class Peers:
    """Used by the control thread only."""

    def __init__(self, source: Source, channels: Channels, listener_name: str) -> None:
        self._source = source
        self._channels = channels
        self._listener_name = listener_name

    def ask(
        self, purpose: str, node_id: int, message: Any, version: int, timeout_ms: int
    ) -> Future[Any]:
        """Sends a request to a broker, behind those of the same purpose. The future is the answer,
        or a sentence that says why there is none."""
        broker = self._source.image.brokers.get(node_id)
        endpoint = broker and broker.endpoint(self._listener_name)
        if endpoint is None:
            unknown = Future[Any]()
            unknown.set(f"broker {node_id} has no listener {self._listener_name}")
            return unknown
        address = endpoint.host, endpoint.port
        return self._channels.ask(f"{purpose}-{node_id}", address, message, version, timeout_ms)
