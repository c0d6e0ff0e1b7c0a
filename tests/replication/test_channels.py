"""Requests to controllers and other brokers that cannot be sent."""

from typing import Any, cast

from kafkalite.errors import InvalidArgumentError
from kafkalite.protocol import messages
from kafkalite.replication.channels import Channels

ADDRESS = ("localhost", 9093)


class NoThreads:
    """Connections of which no thread can be started."""

    def call(self, *_: Any) -> None:
        raise InvalidArgumentError("no thread: Resource temporarily unavailable")

    def wait(self, _timeout_ms: int) -> list[Any]:
        return []


def test_a_request_that_cannot_be_sent_is_answered_by_the_reason() -> None:
    """Who had asked waited for ever: a broker whose first proposal of in-sync replicas fell into a
    shortage of threads made no other."""
    channels = Channels("broker-1")
    connections, channels._outbound = channels._outbound, cast(Any, NoThreads())
    request = messages.ApiVersionsRequest()
    answer = channels.ask("in-sync replicas", ADDRESS, request, 4, 1_000)
    assert "no thread" in answer.result()
    channels._outbound = connections
    channels.poll(0)
