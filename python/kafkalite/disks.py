"""How large the disks of the log directories are. One that does not answer, over a network say, is
asked by one thread of its own, whoever wants to know, and nobody else waits for it."""

import os
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafkalite.errors import KafkaliteError, StorageError

Told = Callable[[KafkaliteError | None, int, int], None]
"""Told the bytes of a disk and how many of them are left, or why they are not known."""


class Background(Protocol):
    """What does things in the background (`kafkalite.context.Context`)."""

    def in_background(
        self, work: Callable[[], None], callback: Callable[[KafkaliteError | None], None]
    ) -> None: ...
    def soon(self, callback: Callable[[], None]) -> None: ...


class Disks:
    """Used by the control thread only."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._asked: dict[str, dict[Told, None]] = {}
        """Who waits for the disk of which directory."""

    def ask(self, path: str, told: Told) -> None:
        """Calls `told` once, never from within this call."""
        if path in self._asked:
            self._asked[path][told] = None
            return
        self._asked[path] = {told: None}
        sizes: list[int] = []

        def look() -> None:
            try:
                disk = os.statvfs(path)
            except OSError as error:
                sentence = f"the log directory {path} cannot be described: {error}"
                raise StorageError(sentence) from error
            sizes.extend((disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize))

        def end(error: KafkaliteError | None) -> None:
            total_bytes, usable_bytes = sizes or (-1, -1)
            for each in self._asked.pop(path):
                each(error, total_bytes, usable_bytes)

        try:
            self._background.in_background(look, end)
        except KafkaliteError as error:
            self._background.soon(partial(end, error))

    def forget(self, path: str, told: Told) -> None:
        """`told` is not called any more. Nothing happens if it was."""
        self._asked.get(path, {}).pop(told, None)
