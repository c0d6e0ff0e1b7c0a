"""Checks which cluster's Arrow endpoint answers at an address that a broker has advertised.

The address is on loopback, and the planner asks on the machine of the driver: there may be nobody,
or another cluster's broker, which has the port of one that is gone or of one on another machine.
"""

import json
import socket
import struct

__all__ = ["serves_cluster"]

ANSWER_SECONDS_MAX = 5.0
ANSWER_BYTES_MAX = 1 << 16
# In place of a length: a sentence follows, such as that there are too many connections.
FAILURE = 0xFFFF_FFFF


def serves_cluster(address: str, cluster_id: str) -> bool:
    """True if an Arrow endpoint of the cluster answers there. One that fails counts: whoever reads
    from it is told why."""
    host, _, port = address.rpartition(":")
    request = json.dumps({"op": "cluster"}).encode()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS_MAX) as asked:
            asked.sendall(struct.pack(">I", len(request)) + request)
            with asked.makefile("rb") as answers:
                length = int.from_bytes(answers.read(4), "big")
                if length == FAILURE:
                    return True
                answer = json.loads(answers.read(min(length, ANSWER_BYTES_MAX)))
    except (OSError, ValueError):
        return False
    return isinstance(answer, dict) and answer.get("cluster.id") == cluster_id
