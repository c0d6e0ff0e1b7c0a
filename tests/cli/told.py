"""What a command answers."""

from collections.abc import Callable
from typing import NamedTuple


class Told(NamedTuple):
    """Exit code and output."""

    exit: int
    out: str
    err: str


Run = Callable[..., Told]
