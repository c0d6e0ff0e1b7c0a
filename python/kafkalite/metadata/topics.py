"""The topics that were made, in a file, until `__cluster_metadata` holds them.

`kafkalite.topics` in the first log directory is JSON:
{"version": 1, "topics": {name: {"partitions": 3, "configs": {key: text}}}}. It is written whole and
durably (temporary file, fsync, rename, fsync of the directory) before the first log of a topic is
made, so that a topic always has all its partitions and its configs, whenever the broker is killed.
Kafka does not look at it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kafkalite.errors import LogDirRefusedError

FILE_NAME = "kafkalite.topics"


class TopicRecord(NamedTuple):
    """What a topic was made with."""

    partitions: int
    configs: Mapping[str, str]


Topics = dict[str, TopicRecord]


def load(log_dir: Path) -> Topics:
    """Topic -> its record; empty if there is no file."""
    try:
        text = (log_dir / FILE_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    import json

    try:
        stored = json.loads(text)
        if stored["version"] != 1:
            raise LogDirRefusedError(f"{log_dir / FILE_NAME} is of a future version")
        return {
            name: TopicRecord(int(topic["partitions"]), dict(topic["configs"]))
            for name, topic in stored["topics"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogDirRefusedError(f"{log_dir / FILE_NAME} cannot be read: {error}") from error


def save(log_dir: Path, topics: Topics) -> None:
    """Replaces the file; after it returns, it survives a power cut."""
    import json

    path = log_dir / FILE_NAME
    temporary = path.with_name(FILE_NAME + ".tmp")
    stored = {name: {"partitions": each.partitions, "configs": dict(each.configs)}
              for name, each in topics.items()}  # fmt: skip
    with temporary.open("w", encoding="utf-8") as file:
        json.dump({"version": 1, "topics": stored}, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(log_dir, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
