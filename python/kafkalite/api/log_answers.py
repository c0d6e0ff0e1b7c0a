"""Requests that ask logs of several partitions something, and are answered in time though a log
directory may not answer: what it has not said by then is REQUEST_TIMED_OUT.

    handler ── ask ──► `Context.delete_records` … ──► the log (`rust/src/net/coordinate.rs`)
                                                            │ callback
    client  ◄── once every partition has its answer, the time is over or the broker stops
"""

from collections.abc import Callable
from typing import Any, TypeVar

from kafkalite.api.deadline import Deadline
from kafkalite.context import Context
from kafkalite.errors import KafkaliteError
from kafkalite.protocol import codes

T = TypeVar("T")

Refuse = Callable[[int, str], None]
"""Called with an error code for the client, and the reason."""

SILENCE = "its log directory does not answer"


class LogAnswers:
    """Answers one request, once. Used by the control thread only.

    Refers to the request, which so counts as memory of requests, until the last log has answered,
    however late that is.
    """

    def __init__(self, context: Context, request: Any, response: Any) -> None:
        self._context = context
        self._request = request
        self._response = response
        self._asked = 0
        self._waiting: dict[int, Refuse] = {}
        self._deadline: Deadline | None = None

    def ask(
        self,
        topic: str,
        partition: int,
        question: Callable[[Callable[[KafkaliteError | None, T], None]], None],
        take: Callable[[T], None],
        refuse: Refuse,
    ) -> None:
        """Asks the log of a partition: `take(answer)` or `refuse(code, reason)` is called before
        the request is answered, and puts it into the response."""
        if self._context.plane.is_held_up(topic, partition):
            refuse(codes.REQUEST_TIMED_OUT, SILENCE)
            return
        self._asked += 1
        number = self._asked

        def answered(error: KafkaliteError | None, answer: T) -> None:
            if self._waiting.pop(number, None) is None:
                return  # its time was over
            if error is None:
                take(answer)
            else:
                refuse(error.kafka_code, str(error))
            if not self._waiting and self._deadline is not None and self._deadline.met():
                self._answer()

        question(answered)
        self._waiting[number] = refuse

    def answer_within(self, wait_ms: int) -> None:
        """After the last `ask`: the request is answered once there is everything, after so many
        milliseconds at the latest, or when the broker begins to stop."""
        if not self._waiting:
            self._answer()
            return
        self._deadline = Deadline(self._context, wait_ms, self._time_is_over)

    def _time_is_over(self) -> None:
        for refuse in self._waiting.values():
            refuse(codes.REQUEST_TIMED_OUT, SILENCE)
        self._waiting.clear()
        self._answer()

    def _answer(self) -> None:
        self._context.plane.respond(self._request, self._response)
