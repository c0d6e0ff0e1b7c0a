"""Apache Kafka's broker as a Python package: no JVM, no container, Kafka's own files.

From Python:

    Broker            a broker in a child process: `with kafkalite.Broker() as broker`
    read_arrow        topics as Arrow columns, from any Kafka broker: LogRecords, which pyarrow,
                      polars and DuckDB take as they are
    read_log          the same of log files, without a broker
    write_arrow       Arrow columns into topics
    kafkalite.client  Admin, GroupAdmin, Producer, Consumer: blocking, without a dependency
    kafkalite.spark   session, register: `format("kafkalite")` in Spark
    KafkaliteError    whatever is raised on purpose: BrokerError (a broker refused, with Kafka's
                      code), BrokerFailedError (a Broker did not start), others in kafkalite.errors

As commands, each with `--help`:

    kafkalite serve                     a broker on 127.0.0.1:9092
    kafkalite topics, configs, groups, offsets, cluster, produce, consume, perf
    kafkalite log dump FILE…            what Kafka's DumpLogSegments shows, and more readable
    kafkalite log verify DIRECTORY      checks a whole log directory

Names of the public surface are imported when they are first used, so that `import kafkalite`
costs nothing: pytest does so at each of its starts (`kafkalite.testing.plugin`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same as in _HOMES, for type checkers
    from kafkalite import client, errors, spark
    from kafkalite._native import __version__
    from kafkalite.child import Broker, BrokerFailedError
    from kafkalite.client.arrow.records import LogRecords, read_log
    from kafkalite.client.arrow.wire import read_arrow
    from kafkalite.client.arrow.writer import write_arrow
    from kafkalite.errors import BrokerError, KafkaliteError

# Public name -> module that holds it.
_HOMES: dict[str, str] = {
    "client": "kafkalite",
    "errors": "kafkalite",
    "spark": "kafkalite",
    "__version__": "kafkalite._native",
    "Broker": "kafkalite.child",
    "BrokerError": "kafkalite.errors",
    "BrokerFailedError": "kafkalite.child",
    "KafkaliteError": "kafkalite.errors",
    "LogRecords": "kafkalite.client.arrow.records",
    "read_arrow": "kafkalite.client.arrow.wire",
    "read_log": "kafkalite.client.arrow.records",
    "write_arrow": "kafkalite.client.arrow.writer",
}

__all__ = [
    "Broker",
    "BrokerError",
    "BrokerFailedError",
    "KafkaliteError",
    "LogRecords",
    "__version__",
    "client",
    "errors",
    "read_arrow",
    "read_log",
    "spark",
    "write_arrow",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kafkalite' has no attribute {name!r}")
    if home == __name__:
        value = import_module(f"{home}.{name}")
    else:
        value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
