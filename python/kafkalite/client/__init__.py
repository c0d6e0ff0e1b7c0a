"""What reads a log, or talks to a broker, from Python.

    Connection    one connection: requests, responses, versions
    Cluster       brokers, leaders, coordinators, and what is tried again
    Admin         topics, configurations, offsets, brokers
    GroupAdmin    consumer groups and their offsets
    Producer      sends records
    Consumer      reads records
    read_arrow    topics as Arrow
    read_log      files as Arrow
    write_arrow   Arrow into topics

Names are imported when they are first used.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Admin": "admin",
    "Cluster": "cluster",
    "Connection": "connection",
    "Consumer": "consumer",
    "GroupAdmin": "group_admin",
    "GroupOptions": "membership",
    "Producer": "producer",
    "read_arrow": "wire_arrow",
    "read_log": "arrow",
    "write_arrow": "arrow_writer",
}

__all__ = [
    "Admin",
    "Cluster",
    "Connection",
    "Consumer",
    "GroupAdmin",
    "GroupOptions",
    "Producer",
    "read_arrow",
    "read_log",
    "write_arrow",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kafkalite.client' has no attribute {name!r}")
    value = getattr(import_module(f"kafkalite.client.{home}"), name)
    globals()[name] = value
    return value
