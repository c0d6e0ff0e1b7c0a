"""The shortest part of a sequence that still shows what the whole has shown."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Part = TypeVar("Part")


def shortest(
    parts: Sequence[Part], shows: Callable[[Sequence[Part]], bool], trials: int = 40
) -> Sequence[Part]:
    """Leaves out what can be left out: halves first, then smaller runs, at last single parts.

    `shows` is asked at most `trials` times. What is left still shows it (`parts` is taken to).
    """
    run = len(parts) // 2
    while run >= 1 and trials > 0:
        begin = 0
        while begin < len(parts) and trials > 0:
            rest = [*parts[:begin], *parts[begin + run :]]
            trials -= 1
            if shows(rest):
                parts = rest
            else:
                begin += run
        run //= 2
    return parts
