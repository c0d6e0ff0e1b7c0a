"""The keys that Python answers: one file each, `kNN_name.py`, found by looking into this folder.

A file has `NAME`, as in the schema table without "Request", and `handle(context, request,
message)`, which returns the response message, or None once it has answered by other means. Beside
them, `auto_create.py` has the same parts for what Rust hands over of Metadata.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from kafkalite import _native


class Handler(NamedTuple):
    """One key. Versions are inclusive; `first_flexible` is 32767 where there is none."""

    key: int
    name: str
    min_version: int
    max_version: int
    first_flexible: int
    handle: Callable[[Any, Any, Any], Any]


def find_handlers() -> dict[int, Handler]:
    """Key -> handler, for every file of this folder."""
    handlers = {}
    files = sorted(path.stem for path in Path(__file__).parent.glob("k[0-9][0-9]_*.py"))
    for name in ("auto_create", *files):
        module = import_module(f"{__name__}.{name}")
        versions = _native.message_versions(f"{module.NAME}Request")
        key, min_version, max_version, first_flexible = versions
        if key is None:
            raise ValueError(f"{name}: {module.NAME} has no api key")
        handlers[key] = Handler(
            key,
            module.NAME,
            min_version,
            max_version,
            32767 if first_flexible is None else first_flexible,
            module.handle,
        )
    return handlers
