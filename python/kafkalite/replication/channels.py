"""Requests of this broker to controllers: messages to bytes and back, over the connections of
`rust/src/net/outbound.rs`, one a purpose.

    send ──► a number ──► Rust: the connection of the purpose ──► poll ──► then(answer or reason)

Before the control thread runs, the start polls; from `wake_by` on the control thread does.
"""

from collections.abc import Callable
from typing import Any

from kafkalite import _native
from kafkalite.errors import KafkaliteError
from kafkalite.protocol import messages
from kafkalite.replication.observer import Address
from kafkalite.tasks import Future

Then = Callable[[Any], object]
"""Called with the answer, or with a sentence that says why there is none."""


class Channels:
    """Used by one thread at a time."""

    def __init__(self, client_id: str) -> None:
        self._outbound = _native.Outbound(client_id)
        self._last_number = 0
        self._waiting: dict[int, tuple[Then, type[messages.Message], int]] = {}

    def send(
        self,
        purpose: str,
        address: Address,
        message: Any,
        version: int,
        timeout_ms: int,
        then: Then,
    ) -> None:
        """Sends a request of a flexible version. `then` is called at once if it cannot be sent."""
        name: str = message._name
        key = _native.message_versions(name)[0]
        if key is None:
            raise ValueError(f"{name} is no request")
        self._last_number += 1
        kind = getattr(messages, name.removesuffix("Request") + "Response")
        self._waiting[self._last_number] = then, kind, version
        body = message.encode(version)
        number = self._last_number
        try:
            self._outbound.call(number, purpose, address, key, version, body, timeout_ms)
        except KafkaliteError as error:  # no thread for the connection: another time there may be
            del self._waiting[number]
            then(str(error))

    def ask(
        self, purpose: str, address: Address, message: Any, version: int, timeout_ms: int
    ) -> Future[Any]:
        """As `send`; the future is the answer, or a sentence that says why there is none."""
        future = Future[Any]()
        self.send(purpose, address, message, version, timeout_ms, future.set)
        return future

    def poll(self, timeout_ms: int) -> None:
        """Waits for answers, at most so long, and tells who has asked."""
        for number, answer, reason in self._outbound.wait(timeout_ms):
            then, kind, version = self._waiting.pop(number)
            if answer is None:
                then(reason)
                continue
            try:
                decoded = kind.decode(answer, version)
            except KafkaliteError as error:
                then(str(error))
            else:
                then(decoded)

    def wake_by(self, requests: _native.Requests) -> None:
        """From now on answers wake the control thread by OUTBOUND_ANSWERS_NUMBER, which polls."""
        self._outbound.wake_by(requests, _native.OUTBOUND_ANSWERS_NUMBER)
