"""Sentences on why controllers do not register a broker: who has its id, or its log directories.
The controllers' answer is a code alone; who is registered stands in the metadata. Pure.
"""

import base64
from collections.abc import Mapping, Sequence

from kafkalite.metadata.image import BrokerImage
from kafkalite.protocol import codes
from kafkalite.protocol.error_codes import error_code

Brokers = Mapping[int, BrokerImage]
"""The registered brokers, by their ids."""


def session_of(node_id: int, brokers: Brokers, session_ms: int, waited_ms: int) -> str:
    """Says whose session is waited for, after so long: one whose process has ended lasts for
    `session_ms`, where the controllers have that setting of this broker."""
    registered = brokers.get(node_id)
    last = f"broker {node_id}"
    if registered is not None and registered.endpoints:
        where = registered.endpoints[0]
        last += f", registered at {where.host}:{where.port},"
    if waited_ms <= session_ms:
        return (
            f"the session of the last process of {last} to end: if that has stopped, within "
            f"{session_ms} ms (broker.session.timeout.ms of the controllers)"
        )
    return (
        f"the session of {last} to end, which goes on after more than "
        f"{session_ms} ms (broker.session.timeout.ms): a process with this node.id runs; stop it, "
        "or give this one a node.id of its own"
    )


def refusal(
    code: int, node_id: int, directories: Sequence[tuple[str, bytes]], brokers: Brokers
) -> str:
    """Says why a registration is refused that would be refused for ever; `directories` are this
    broker's paths and ids."""
    told = f"the controllers refuse the registration by {error_code(code).name}"
    if code != codes.INVALID_REGISTRATION:
        return told
    for path, directory in directories:
        for other in brokers.values():
            if other.id != node_id and directory in other.directories:
                written = base64.urlsafe_b64encode(directory).decode().rstrip("=")
                return (
                    f"{told}: {path} has the directory.id of a log directory of broker {other.id} "
                    f"({written}), as a copy of it has; give broker {node_id} an empty directory "
                    "(kafkalite format), into which it fetches its replicas"
                )
    ids = [directory for _, directory in directories]
    if len(set(ids)) < len(ids):
        return f"{told}: two log directories have the same directory.id in meta.properties"
    return told
