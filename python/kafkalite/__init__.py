"""Apache Kafka's broker as a Python package: no JVM, no container, Kafka's own files.

    kafkalite serve                     a broker on 127.0.0.1:9092
    kafkalite log dump FILE…            what Kafka's DumpLogSegments shows, and more readable
    kafkalite log verify DIRECTORY      checks a whole log directory

Names of the public surface are imported when they are first used, so that `import kafkalite`
costs nothing: pytest does so at each of its starts (`kafkalite.testing.plugin`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same as in _HOMES, for type checkers
    from kafkalite._native import __version__
    from kafkalite.broker import Broker
    from kafkalite.client.arrow import LogRecords, read_log
    from kafkalite.client.arrow_writer import write_arrow
    from kafkalite.client.wire_arrow import read_arrow
    from kafkalite.errors import KafkaliteError

# Public name -> module that holds it.
_HOMES: dict[str, str] = {
    "__version__": "kafkalite._native",
    "Broker": "kafkalite.broker",
    "KafkaliteError": "kafkalite.errors",
    "LogRecords": "kafkalite.client.arrow",
    "read_arrow": "kafkalite.client.wire_arrow",
    "read_log": "kafkalite.client.arrow",
    "write_arrow": "kafkalite.client.arrow_writer",
}

__all__ = [
    "Broker",
    "KafkaliteError",
    "LogRecords",
    "__version__",
    "read_arrow",
    "read_log",
    "write_arrow",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kafkalite' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
