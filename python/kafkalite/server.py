"""The control thread: takes requests out of Rust's queue and has the handlers answer them."""

from collections.abc import Callable

from kafkalite import _native
from kafkalite.api import Handler
from kafkalite.context import Context
from kafkalite.errors import KafkaliteError
from kafkalite.protocol import messages


class ControlServer:
    """Answers the requests of one node until its plane stops. `run` is the thread's body."""

    def __init__(
        self, context: Context, handlers: dict[int, Handler], on_end: Callable[[], None]
    ) -> None:
        self._context = context
        self._handlers = handlers
        self._on_end = on_end

    def run(self) -> None:
        """Waits in Rust, without the GIL, for requests; returns once the plane has stopped."""
        plane = self._context.plane
        try:
            while (requests := plane.wait()) is not None:
                for sentence in plane.notices():
                    self._context.log.error(sentence)
                for request in requests:
                    self._answer(request)
        finally:
            self._on_end()

    def _answer(self, request: _native.Request) -> None:
        """A request that cannot be read, or whose handler fails, closes its connection."""
        context = self._context
        handler = self._handlers[request.api_key]
        try:
            kind = getattr(messages, f"{handler.name}Request")
            response = handler.handle(
                context, request, kind.decode(request.body, request.api_version)
            )
            if response is not None:
                context.plane.respond(request, response)
        except KafkaliteError as error:
            context.log.warning(f"{handler.name} of {request.peer} refused: {error}")
            context.plane.close_connection(request)
        except Exception:  # noqa: BLE001 - one bad request must not end the broker
            import traceback

            context.log.error(f"{handler.name} of {request.peer} failed:\n{traceback.format_exc()}")
            context.plane.close_connection(request)
