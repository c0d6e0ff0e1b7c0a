"""Where an answer of kafkalite may differ from Kafka's.

The reason of each stands under the same words in docs/DIFFERENCES.md, section "In answers". What
nothing needs fails the suite.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Difference:
    """`where`: patterns of a case's name and of a path in its answer, as of `fnmatch`."""

    title: str
    where: Sequence[tuple[str, str]]

    def used(self, case: str, path: str) -> list[tuple[str, str]]:
        """Those of the patterns that fit."""
        return [each for each in self.where if fnmatchcase(case, each[0]) and _fits(path, each[1])]


def _fits(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern)


DIFFERENCES = [
    Difference("A sentence with each refused batch", [("*", "responses.*.error_message")]),
]
