"""The control thread: takes requests out of Rust's queue and has the handlers answer them; between
them it calls what has become due, and has tasks go on (`kafkalite.tasks`): by a timer, by the
answer of a log, be it that an append is committed, or because logs were made or deleted.

A request of many elements keeps nobody waiting: a thread in the background decodes it, and encodes
a large answer, while others have the GIL; its handler works in slices (`Tasks.sliced`), and after
each turn one task whose slice was over goes on. Of large requests one is worked on at a time: it
has a turn (`Turns`) from before it is decoded until it is answered, or its handler first waits for
anything but its slices. Of large answers one is encoded at a time.

It is two threads, of which one works and the other waits inside Rust, until the first is stuck in
a log directory there: then that one waits (`rust/src/net/control/wait.rs`). All state is used
by whichever has the turn, and nothing is under way when it changes hands.
"""

import gc
from collections.abc import Callable, Coroutine
from functools import partial
from types import CoroutineType
from typing import Any

from kafkalite import _native
from kafkalite.api import Handler
from kafkalite.context import Context
from kafkalite.errors import KafkaliteError
from kafkalite.service.repeated import REFUSALS_INTERVAL_MS, Repeated
from kafkalite.tasks import Turns


class LargeMessages:
    """Puts garbage collection off as long as there are large messages: to look through all that
    they are made of takes a tenth of a second, and finds nothing."""

    def __init__(self) -> None:
        self._count = 0

    def __enter__(self) -> None:
        self._count += 1
        gc.disable()

    def __exit__(self, *_outcome: object) -> None:
        self._count -= 1
        if not self._count:
            gc.enable()


class ControlServer:
    """Answers the requests of one node until its core stops."""

    def __init__(
        self, context: Context, handlers: dict[int, Handler], on_end: Callable[[], None]
    ) -> None:
        self._context = context
        self._handlers = handlers
        self._on_end = on_end
        self._refusals = Repeated(context.log.warning, REFUSALS_INTERVAL_MS)
        self._large_requests = Turns()
        self._large_answers = Turns()
        self._large_messages = LargeMessages()

    def run(self) -> None:
        """The body of both threads. Waits in Rust, without the GIL, for its turn, requests, timers
        and commits; returns once the core has stopped."""
        timeout_ms: int | None = 0
        try:
            while self._take_turn(timeout_ms):
                timeout_ms = self._timeout_ms()
        finally:
            self._on_end()

    def _take_turn(self, timeout_ms: int | None) -> bool:
        """Waits, and does what there is to do then, if the core has not stopped. What was answered
        is not kept until there is more: it counts as memory of requests."""
        context = self._context
        work = context.core.requests.wait(timeout_ms)
        if work is None:
            return False
        requests, woken, notices = work
        if notices is not None:
            self._note(*notices)
        ready = context.tasks.ready
        for number in woken:
            self._call(context.woken, number)
            if ready:
                self._call_ready()
        # Requests before timers: a heartbeat that has come in time counts, however long the thread
        # was busy.
        for request in requests:
            if context.is_closed:
                break
            self._call(self._answer, request)
            if ready:
                self._call_ready()
        for callback in context.timers.due(context.now_ms()):
            self._call(callback)
            if ready:
                self._call_ready()
        yielded = context.tasks.yielded
        if yielded:
            yielded.popleft().set(None)
            self._call_ready()
        return True

    def _note(self, errors: list[str], warnings: list[str]) -> None:
        for sentence in errors:
            self._context.log.error(sentence)
        for sentence in warnings:
            self._context.log.warning(sentence)

    def _timeout_ms(self) -> int | None:
        if self._context.tasks.yielded:
            return 0
        next_ms = self._context.timers.next_ms()
        return None if next_ms is None else max(0, next_ms - self._context.now_ms())

    def _call_ready(self) -> None:
        """Has the tasks go on that the last callback or request has made ready, and those that they
        make ready. The answers of several leave together."""
        ready = self._context.tasks.ready
        requests = self._context.core.requests if len(ready) > 1 else None
        if requests is not None:
            requests.gather_answers()
        while ready:
            self._call(ready.popleft())
        if requests is not None:
            requests.send_answers()

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception:  # noqa: BLE001 - one bad callback must not end the broker
            import traceback

            self._context.log.error("a callback failed:", traceback.format_exc())

    def _answer(self, request: _native.Request) -> None:
        """A request that cannot be read, or whose handler fails, closes its connection."""
        context = self._context
        handler = self._handlers.get(request.api_key)
        if handler is None:
            # Rust answers this key, and has handed the request over all the same.
            context.log.error(
                f"no handler for API key {request.api_key}, requested by {request.peer}"
            )
            context.core.requests.close_connection(request)
            return
        if context.log.is_debug:
            version, client = request.api_version, request.client_id
            context.log.debug(
                f"{handler.name} v{version} of {request.peer}, client {client!r:.100}"
            )
        try:
            if context.forwarded is not None:
                answering = context.forwarded(request, handler.request_kind)
                if answering is not None:
                    context.tasks.start(answering)
                    return
            message = request.decode(handler.request_kind)
            if message is None:
                context.tasks.start(self._answer_large(handler, request))
                return
            answer = handler.handle(context, request, message)
            if isinstance(answer, CoroutineType):
                context.tasks.start(self._answer_later(handler, request, answer))
            elif answer is not None and context.core.requests.respond(request, answer):
                context.tasks.start(self._respond_large(handler, request, [answer]))
        except Exception as error:  # noqa: BLE001 - one bad request must not end the broker
            self._refuse(handler, request, error)

    async def _answer_later(
        self,
        handler: Handler,
        request: _native.Request,
        answer: Coroutine[Any, Any, Any],
    ) -> None:
        try:
            responses = [await answer]
            if responses[0] is not None and self._context.core.requests.respond(
                request, responses[0]
            ):
                await self._respond_large(handler, request, responses)
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(handler, request, error)

    async def _answer_large(self, handler: Handler, request: _native.Request) -> None:
        """Answers a request that a thread of its own decodes, when it has its turn."""
        turn = await self._large_requests.take()
        with turn:
            self._context.tasks.keep(turn)
            requests, compute = self._context.core.requests, self._context.background.compute
            try:
                if not requests.has_room():
                    # Decoded it would wait with its answer, and so would all that come behind.
                    await compute(requests.wait_for_room)
                with self._large_messages:
                    responses = await self._answer_decoded(handler, request)
                if responses:
                    await self._respond_large(handler, request, responses)
            except Exception as error:  # noqa: BLE001 - as above
                self._refuse(handler, request, error)

    async def _answer_decoded(self, handler: Handler, request: _native.Request) -> list[Any]:
        """Gives the one response, unless it is sent already or there is none. Then the message is
        gone, of which the handler needs nothing any more: a response may wait for long."""
        compute = self._context.background.compute
        messages = [await compute(partial(request.decode_large, handler.request_kind))]
        answer = handler.handle(self._context, request, messages[0])
        is_later = isinstance(answer, CoroutineType)
        responses = [await answer if is_later else answer]
        del answer
        if responses[0] is None or (
            is_later and not self._context.core.requests.respond(request, responses[0])
        ):
            responses.clear()
        # If only their lists are left they go in steps.
        await compute(partial(_native.release, messages))
        return responses

    async def _respond_large(
        self, handler: Handler, request: _native.Request, responses: list[Any]
    ) -> None:
        """Has a thread of its own encode the one response, in its turn, once there is room."""
        background = self._context.background
        try:
            with await self._large_answers.take():
                if not self._context.core.requests.has_room():
                    await background.run(self._context.core.requests.wait_for_room)
                with self._large_messages:
                    respond = partial(self._context.core.requests.respond_large, request, responses)
                    await background.compute(respond)
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(handler, request, error)

    def _refuse(self, handler: Handler, request: _native.Request, error: Exception) -> None:
        context = self._context
        if isinstance(error, KafkaliteError):
            sentence = f"{handler.name} of {request.peer} refused: {error}"
            self._refusals.tell(sentence, context.now_ms())
        else:
            import traceback

            described = "".join(traceback.format_exception(error))
            context.log.error(f"{handler.name} of {request.peer} failed:", described)
        context.core.requests.close_connection(request)
