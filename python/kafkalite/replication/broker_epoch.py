"""The epoch that a broker has served in, which its next registration names (KIP-966): controllers
take one that they know for the word of a broker that has lost nothing, and keep it among those that
may be elected. Any other is that of one whose log may lack what it had acknowledged.

    <log.dir>/.kafka_cleanshutdown     left by a clean stop, removed by the next start
              kafkalite-broker-epoch   on disk once the broker is registered: left by all

Kafka's broker knows its epoch after a clean stop only, for what it acknowledges is in the page
cache. With `kafkalite.acks.fsync=group` nothing is acknowledged that is not on disk, so that a kill
or a power cut takes nothing either: the epoch is named then, too, and a power cut of all brokers
needs no unclean election. It is not where the disk has not kept its word: a log that ends before
its high watermark of the last checkpoint, one that is gone, or a log directory that is not there.

Kafka: `CleanShutdownFileHandler`; its broker leaves this file alone.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from kafkalite.errors import StorageError
from kafkalite.metadata.snapshots import replace_file

FILE: Final = "kafkalite-broker-epoch"
NO_EPOCH: Final = -1
DIGITS_MAX: Final = 18
"""Such a number is an epoch in any case; it is the offset of a record of the metadata."""

Directory = tuple[Path, bytes, bool, int | None]
"""Path, id, whether its last stop was clean, and the epoch that that has left."""


class Previous(NamedTuple):
    """The epoch that a registration names."""

    epoch: int = NO_EPOCH
    is_of_kill: bool = False
    """No clean stop has left it: it holds if the logs turn out to lack nothing."""


def previous_epoch(directories: Sequence[Directory], *, count: int, is_durable: bool) -> Previous:
    """The epoch that the last process has left in each directory; none where they differ, or fewer
    can be had than the `count` that are configured. `is_durable`: what is acknowledged is on
    disk."""
    if len(directories) < count:
        # As in `LogManager.readBrokerEpochFromCleanShutdownFiles`.
        return Previous()
    clean = {epoch if was_clean else None for _, _, was_clean, epoch in directories}
    (epoch,) = clean if len(clean) == 1 else (None,)
    if epoch is not None:
        return Previous(epoch)
    if is_durable:
        left = {_read(path) for path, *_ in directories}
        if len(left) == 1 and NO_EPOCH not in left:
            return Previous(left.pop(), is_of_kill=True)
    return Previous()


def remember(paths: Iterable[Path], epoch: int) -> None:
    """After it returns, each directory has the epoch, whenever the power goes. Raises
    StorageError."""
    for path in paths:
        replace_file(path / FILE, f"{epoch}\n".encode())


def forget(paths: Iterable[Path]) -> None:
    """After it returns, no directory has one, whenever the power goes. Raises StorageError."""
    for path in paths:
        try:
            with suppress(FileNotFoundError):
                (path / FILE).unlink()
                directory = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(directory)
                finally:
                    os.close(directory)
        except OSError as error:
            raise StorageError(f"{path / FILE} cannot be removed: {error.strerror}") from error


def _read(path: Path) -> int:
    try:
        text = (path / FILE).read_bytes().strip()
    except OSError:
        return NO_EPOCH
    return int(text) if text.isdigit() and len(text) <= DIGITS_MAX else NO_EPOCH
