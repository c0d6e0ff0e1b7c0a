"""The steps of a simulation in words: all of them, or those before a violation."""

LINES_MAX = 60

EVERYONE = "*"
"""The subject of what concerns all: the plan, deaths, the clock, faults."""


class Trace:
    """The lines of one run. Kept only if asked for: a seed that fails is run once more with it."""

    def __init__(self, *, is_on: bool, prints: bool = False) -> None:
        self.is_on = is_on
        self._prints = prints
        self._lines: list[tuple[int, str, str]] = []

    def add(self, now_ms: int, subject: str, sentence: str) -> None:
        """A step. Its subject is a transactional id, a log or `EVERYONE`; empty for the inner
        steps of the broker."""
        if self.is_on:
            self._lines.append((now_ms, subject, sentence))
            if self._prints:
                print(f"{now_ms:>8} ms  {sentence}")

    def lines(self) -> list[str]:
        """All of them."""
        return [f"{now_ms:>8} ms  {sentence}" for now_ms, _, sentence in self._lines]

    def trimmed(self, subject: str) -> list[str]:
        """The plan, and the last ones about a subject and everyone."""
        told = [
            f"{now_ms:>8} ms  {sentence}"
            for now_ms, of, sentence in self._lines
            if of in (subject, EVERYONE)
        ]
        return [*told[:1], *told[1:][-LINES_MAX:]]
