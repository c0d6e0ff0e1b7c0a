"""Tells the service manager that started the broker how far it is: systemd's `sd_notify(3)`.

    loading    EXTEND_TIMEOUT_USEC: a recovery after an unclean stop may take longer than
               TimeoutStartSec, and who is killed in it begins anew
    serving    READY=1
    stopping   STOPPING=1

A datagram each to the socket that NOTIFY_SOCKET names: a path, or behind `@` an abstract name.
"""

# Python's `socket` wraps this one, and its import takes as long as reading the configuration.
import _socket
from collections.abc import Callable

LOADING_S = 60
"""From one word of a loading to the next; there is one every `TOLD_EVERY_S` (`loading.py`)."""

TOLD_S_MAX = 5.0
"""A manager that does not read is waited for so long, and then no more."""


class Supervisor:
    """The service manager, or nobody if there is no address. A failure is reported to `warn`,
    once, and the broker serves all the same."""

    def __init__(self, address: str | None, warn: Callable[[str], None]) -> None:
        self._address = address
        self._warn = warn

    def loading(self, how_far: str) -> None:
        """Logs are being loaded. Any thread may call it."""
        self._tell(f"STATUS={how_far}", f"EXTEND_TIMEOUT_USEC={LOADING_S * 1_000_000}")

    def serving(self, where: str) -> None:
        """Clients are served."""
        self._tell("READY=1", f"STATUS=serving on {where}")

    def stopping(self) -> None:
        """The stop has begun."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def _tell(self, *lines: str) -> None:
        address = self._address  # which another thread may give up meanwhile
        if address is None:
            return
        try:
            _send(address, "\n".join(lines).encode())
        except OSError as error:
            told = f"the service manager at NOTIFY_SOCKET={address} was not told: {error}"
            self._address = None
            self._warn(told)


def _send(address: str, message: bytes) -> None:
    if address[0] not in "/@":
        raise OSError("that is neither a path nor an abstract name")
    sender = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
    sender.settimeout(TOLD_S_MAX)
    try:
        sender.sendto(message, f"\0{address[1:]}" if address[0] == "@" else address)
    finally:
        sender.close()
