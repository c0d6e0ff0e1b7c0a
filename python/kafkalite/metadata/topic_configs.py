"""The configs that topics were created with, kept in a file until `__cluster_metadata` keeps them.

`kafkalite.topic.configs` in the first log directory is JSON:
{"version": 1, "topics": {name: {key: text}}}. It is written whole and durably (temporary file,
fsync, rename, fsync of the directory) before the topic exists, so that no topic is ever without its
configs; Kafka does not look at it.
"""

import os
from pathlib import Path

from kafkalite.errors import LogDirRefusedError

FILE_NAME = "kafkalite.topic.configs"

Configs = dict[str, dict[str, str]]


def load(log_dir: Path) -> Configs:
    """Topic -> its own configs; empty if there is no file."""
    try:
        text = (log_dir / FILE_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    import json

    try:
        stored = json.loads(text)
        if stored["version"] != 1:
            raise LogDirRefusedError(f"{log_dir / FILE_NAME} is of a future version")
        return {name: dict(configs) for name, configs in stored["topics"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogDirRefusedError(f"{log_dir / FILE_NAME} cannot be read: {error}") from error


def save(log_dir: Path, configs: Configs) -> None:
    """Replaces the file; after it returns, the configs survive a power cut."""
    import json

    path = log_dir / FILE_NAME
    temporary = path.with_name(FILE_NAME + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump({"version": 1, "topics": configs}, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(log_dir, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
