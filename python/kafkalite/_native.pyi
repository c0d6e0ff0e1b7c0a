"""What the compiled half offers, and what it means. `rust/src/lib.rs` is the same list.

Every function may raise a class of `kafkalite.errors`. Work and waiting happen without the GIL.
"""

from os import PathLike
from typing import Any, Final, final

__all__ = [
    "LogVerification",
    "SegmentBatches",
    "__version__",
    "log_file_kind",
    "read_log_file",
]

__version__: Final[str]

# A log's files, read as they lie. Names of fields are those that Kafka's DumpLogSegments prints.

def log_file_kind(name: str) -> str | None:
    """What a file is, by its name alone: "segment", "offset index", "time index", "transaction
    index", "producer snapshot", "leader epoch checkpoint", "partition metadata", "offset
    checkpoint", "meta.properties", "metadata snapshot"; `None` for any other name."""

def read_log_file(path: str | PathLike[str]) -> dict[str, Any]:
    """A file that holds no batches: `kind`, and `rows`, a list of dictionaries. Indexes also have
    `unusedBytes` (zeros behind the entries: Kafka makes its active index full size) and `oddBytes`
    (behind the last whole entry).

    Raises `CorruptFileError`, `StorageError`, `InvalidArgumentError` for a name without meaning."""

@final
class SegmentBatches:
    """The batches of a segment or metadata snapshot, up to its size when this was made. The file
    may grow meanwhile."""

    def __new__(cls, path: str | PathLike[str]) -> SegmentBatches: ...
    def next(self, max_bytes: int, *, records: bool) -> list[dict[str, Any]]:
        """The next batches, of about `max_bytes` but at least one; none at the end. With `records`
        each has `records` (key and value as bytes) and `trouble`, a sentence or `None`.

        Raises `CorruptFileError` where no batch starts; nothing follows then."""

    @property
    def position(self) -> int:
        """Bytes read so far."""

    @property
    def size(self) -> int:
        """Bytes to read in all."""

@final
class LogVerification:
    """A check of a log directory, or of a single partition's. Changes nothing; may run beside the
    broker that uses the directory.

    Raises `LogDirRefusedError` for what is no log directory or one of a future version."""

    def __new__(cls, path: str | PathLike[str]) -> LogVerification: ...
    def step(self) -> list[tuple[str, int | None, str]] | None:
        """Checks the next segment: findings as path, byte and sentence; `None` at the end."""

    def summary(self) -> dict[str, Any]:
        """Counts so far: `partitions`, `segments`, `batches`, `records`, `findings`, `doneBytes`,
        `totalBytes`; and `isInUse`, `wasClean` (the last stop left its mark)."""
