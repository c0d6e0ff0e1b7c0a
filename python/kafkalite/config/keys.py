"""The rows of the keys: `broker.txt`, `topic.txt`, `group.txt`, `client_metrics.txt`.

A start needs few of the 350 rows, so a table keeps its lines and takes a row apart when it is asked
for. The grammar stands at the top of each file.
"""

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Key(NamedTuple):
    """One row. `default` is None for null; `values` what is allowed, in the table's grammar."""

    name: str
    kind: str
    default: str | None
    values: str
    mode: str
    """The mode of a broker's key: read-only, per-broker, cluster-wide, dynamic-only, internal."""
    synonyms: tuple[tuple[str, int], ...]
    """The broker's keys that give another key's default, each with its factor."""
    support: str
    """obeyed, at-start, taken or refused."""
    reason: str
    """The reason, one of REASONS, why a key that is taken has no effect."""
    is_told: bool
    """A user who sets a key that has no effect expects one, and is told at start."""
    doc: str

    @property
    def is_sensitive(self) -> bool:
        return self.kind == "password"

    @property
    def is_dynamic(self) -> bool:
        """True if Kafka lets a broker's key change while the broker runs."""
        return self.mode in ("per-broker", "cluster-wide", "dynamic-only")


_OBEYED = (" obeyed", " at-start")

REASONS = {
    "nodes": "a single node has no other replicas, and in a cluster the controllers decide",
    "protocols": "the protocol that it belongs to is not supported yet",
    "tiers": "there is no tiered storage",
    "inside": "kafkalite works without such a setting",
}
"""Why a key has no effect."""


MIN_INSYNC_REPLICAS = "min.insync.replicas"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""A topic's and a broker's key, and, with eligible leader replicas, one of the metadata."""


class KeyTable(Mapping[str, Key]):
    """Name -> row, in the order of the file, which is that of the alphabet."""

    def __init__(self, file_name: str) -> None:
        path = os.path.join(os.path.dirname(__file__), file_name)  # noqa: PTH118, PTH120 - pathlib is slow to import
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
        lines = text[text.index("\n\n") + 2 :].splitlines()
        self._has_mode = file_name == "broker.txt"
        self._lines = {
            row[: row.index(" ")]: (row, doc)
            for row, doc in zip(lines[::2], lines[1::2], strict=True)
        }
        self._rows: dict[str, Key] = {}

    def __getitem__(self, name: str) -> Key:
        found = self._rows.get(name)
        if found is None:
            found = self._rows[name] = self._parse(*self._lines[name])
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._lines

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def obeyed(self) -> list[str]:
        """The names of the keys that mean something here."""
        return [name for name, (row, _) in self._lines.items() if row.endswith(_OBEYED)]

    def _parse(self, row: str, doc: str) -> Key:
        name, kind, default, values, fifth, word = row.split()
        support, told, reason = word.partition("!")
        if not told:
            support, _, reason = word.partition(":")
        synonyms = []
        if not self._has_mode and fifth != "-":
            for word in fifth.split(","):
                synonym, _, factor = word.partition("*")
                synonyms.append((synonym, int(factor or 1)))
        return Key(
            name,
            kind,
            {"-": None, '""': ""}.get(default, default),
            values,
            fifth if self._has_mode else "",
            tuple(synonyms),
            support,
            reason,
            bool(told),
            doc.strip(),
        )
