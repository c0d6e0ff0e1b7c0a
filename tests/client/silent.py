"""Addresses behind which nobody answers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

Address = tuple[str, int]


@contextmanager
def unreachable() -> Iterator[Address]:
    """Whose SYNs are dropped, as those to a machine that is off: the queue of a listener that
    accepts nobody is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        while True:
            one = stack.enter_context(socket.socket())
            one.settimeout(0.2)
            try:
                one.connect(address)
            except TimeoutError:
                yield address
                return


@contextmanager
def mute() -> Iterator[Address]:
    """Who takes connections and reads nothing, as a process that has been stopped."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        accepted: list[socket.socket] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    accepted.append(listener.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for each in accepted:
                each.close()
