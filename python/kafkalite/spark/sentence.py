"""Has errors that Spark's callbacks raise told as one sentence, without a traceback.

PySpark prints a traceback before the message; the way that a wrong option took through this package
is of no use to who wrote it.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from kafkalite.errors import KafkaliteError

P = ParamSpec("P")
R = TypeVar("R")


def in_a_sentence(method: Callable[P, R]) -> Callable[P, R]:
    """Wraps what Spark calls, so that a KafkaliteError has neither traceback nor cause."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except KafkaliteError as refusal:
            raise refusal.with_traceback(None) from None

    return call
