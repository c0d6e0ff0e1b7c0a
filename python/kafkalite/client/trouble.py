"""Writes to the log `kafkalite.client` what keeps a client from its work: once when a trouble
begins, and once when it is over.

    WARNING  no broker answers at 127.0.0.1:9092: Connection refused; 3 batches wait
    WARNING  127.0.0.1:9092 answers again, after 4.2 s

Both are warnings: who saw the first is to see the second, too. Lines are kept until `write`, which
nobody calls under a lock: a handler of the log may send records itself, with the client that has
something to tell.
"""

import time
from collections import deque

from kafkalite.client.forks import writing

__all__ = ["LOGGER", "Troubles", "Untold"]

LOGGER = "kafkalite.client"


class Troubles:
    """The troubles that a client has at the moment, by name."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._lines: deque[str] = deque()

    def __bool__(self) -> bool:
        """Says whether there is any."""
        return bool(self._since)

    def begin(self, name: str, sentence: str) -> None:
        """Notes a warning, unless this trouble was there already."""
        if name not in self._since:
            self._since[name] = time.monotonic()
            self.warn(sentence)

    def end(self, name: str, sentence: str) -> None:
        """Notes that a trouble is over, and how long it took, if it was there."""
        since = self._since.pop(name, None)
        if since is not None:
            self.warn(f"{sentence}, after {time.monotonic() - since:.1f} s")

    def end_all(self, beginning: str, sentence: str) -> None:
        """Notes the end of all troubles whose names begin so, in one line."""
        names = [name for name in self._since if name.startswith(beginning)]
        for name in names[1:]:
            del self._since[name]
        for name in names[:1]:
            self.end(name, sentence)

    def warn(self, sentence: str) -> None:
        """Notes a warning of something that is over at once."""
        self._lines.append(sentence)

    def write(self) -> None:
        """Writes what was noted. Logging is imported only where there is something to say."""
        if self._lines:
            with writing():
                self._write_lines()

    def _write_lines(self) -> None:
        import logging
        import traceback

        logger = logging.getLogger(LOGGER)
        while True:
            try:
                sentence = self._lines.popleft()
            except IndexError:  # another thread has written the rest
                return
            try:
                logger.warning("%s", sentence)
            except Exception:  # noqa: BLE001 - of a handler of the log's: no record suffers for it
                if logging.raiseExceptions:
                    traceback.print_exc()


class Untold(Troubles):
    """The troubles of a client of which the log is told nothing: none is kept."""

    def begin(self, name: str, sentence: str) -> None:
        """Leaves it to whoever is told by an error."""

    def warn(self, sentence: str) -> None:
        """As `begin`."""
