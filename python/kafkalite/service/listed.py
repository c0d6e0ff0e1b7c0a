"""Names in a sentence of the log: the first of them, however many there are, so that it is read."""

from collections.abc import Sequence
from typing import Final

NAMED_MAX: Final = 10


def listed(names: Sequence[str]) -> str:
    """The first of the names, and `…` where there are more."""
    return ", ".join(names[:NAMED_MAX]) + (" …" if len(names) > NAMED_MAX else "")
