"""Reads the addresses of bootstrap servers out of what a program gives."""

import re
from collections.abc import Mapping, Sequence

from kafkalite.client.arguments import texts, wrong_type
from kafkalite.errors import InvalidArgumentError

__all__ = ["Servers", "parse_servers"]

Servers = str | Sequence[str]
"""`host:port,…`, or a list of them."""

# What Kafka's `Utils.getHost` passes over.
PROTOCOL = re.compile(r"[0-9a-zA-Z\-%._]*://")

PORT = 9092


def parse_servers(bootstrap_servers: Servers) -> list[tuple[str, int]]:
    """`host:port,[::1]:9092`, or a list of such texts, as pairs. A protocol before an address, as
    in `PLAINTEXT://host:port`, is passed over, as Kafka's Java client does. Raises
    `InvalidArgumentError`, `TypeError`."""
    if isinstance(bootstrap_servers, Mapping):
        wanted = "HOST:PORT, or several: settings are arguments by name"
        raise wrong_type("bootstrap_servers", bootstrap_servers, wanted)
    servers = []
    for text in ",".join(texts("bootstrap_servers", bootstrap_servers)).split(","):
        part = PROTOCOL.sub("", text.strip())
        if not part:
            continue
        host, port = part, str(PORT)
        if part.startswith("["):
            host, _, behind = part[1:].partition("]")
            port = behind.removeprefix(":") or port
        elif part.count(":") == 1:
            host, port = part.split(":")
        is_port = port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536
        if not _is_host(host) or not is_port:
            raise InvalidArgumentError(f"'{part}' is not HOST:PORT")
        servers.append((host, int(port)))
    if not servers:
        raise InvalidArgumentError("bootstrap_servers names no server")
    return servers


def _is_host(name: str) -> bool:
    """Says whether a resolver takes it: no label of a name is empty or too long."""
    try:
        encoded = name.encode("idna")
    except UnicodeError:
        return False
    return bool(encoded) and b"\0" not in encoded
