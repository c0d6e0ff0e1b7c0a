"""The keys that Python answers: one file each, `kNN_name.py`, found by looking into this folder.

A file has `NAME`, as in the schema table without "Request", and `handle(context, request,
message)`, which returns the response message, a coroutine of it where it has to wait or to look at
many elements (`kafkalite.tasks`), or None where it answers by other means.
Beside them, `auto_create.py` has the same parts for what Rust hands over of Metadata.

The file's name says key and message, so that a start learns which keys there are without importing
forty modules; each is imported by its first request.
"""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from kafkalite import _native
from kafkalite.protocol import messages

NOT_FLEXIBLE = 32767


class Handler:
    """One key. Versions are inclusive; `first_flexible` is NOT_FLEXIBLE where there is none."""

    def __init__(self, module_name: str, name: str) -> None:
        key, min_version, max_version, first = _native.message_versions(f"{name}Request")
        if key is None:
            raise ValueError(f"{module_name}: {name} has no api key")
        self.key = key
        self.name = name
        self.min_version = min_version
        self.max_version = max_version
        self.first_flexible = NOT_FLEXIBLE if first is None else first
        self._module_name = module_name
        self._handle: Callable[[Any, Any, Any], Any] | None = None
        self._request_kind: type[messages.Message] | None = None

    @property
    def request_kind(self) -> type[messages.Message]:
        """The class of the request, which is made now if it has not been yet."""
        if self._request_kind is None:
            self._request_kind = getattr(messages, f"{self.name}Request")
        return self._request_kind

    @property
    def handle(self) -> Callable[[Any, Any, Any], Any]:
        """The function of the file, which is imported now if it has not been yet."""
        if self._handle is None:
            module = import_module(f"{__name__}.{self._module_name}")
            if self.name != module.NAME:
                raise ValueError(f"{self._module_name} is called {module.NAME}")
            self._handle = module.handle
        return self._handle


def forwarded_only() -> dict[int, Handler]:
    """Key -> versions, of keys that a broker knows only to forward them to its controllers."""
    names = "UnregisterBroker", "AddRaftVoter", "RemoveRaftVoter"
    found = [Handler("", name) for name in names]
    return {handler.key: handler for handler in found}


def find_handlers() -> dict[int, Handler]:
    """Key -> handler, for every file of this folder."""
    found = [Handler("auto_create", "Metadata")]
    for file_name in sorted(os.listdir(os.path.dirname(__file__))):  # noqa: PTH120, PTH208 - pathlib is slow to import
        stem, _, suffix = file_name.partition(".")
        number, _, words = stem.partition("_")
        if suffix == "py" and number[:1] == "k" and number[1:].isdigit():
            handler = Handler(stem, words.title().replace("_", ""))
            if handler.key != int(number[1:]):
                raise ValueError(f"{file_name}: {handler.name} is key {handler.key}")
            found.append(handler)
    return {handler.key: handler for handler in found}
