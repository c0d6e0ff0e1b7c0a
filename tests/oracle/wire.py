"""Produces a batch exactly as given: the Java producer chooses its own ids and sequences."""

import socket
import struct


def produce_batch(bootstrap_servers: str, topic: str, batch: bytes) -> tuple[int, int]:
    """Sends Produce (version 7, acks=all) to partition 0; returns error code and base offset."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = (
        struct.pack(">hhih", 0, 7, 1, -1)  # key, version, correlation id, no client id
        + struct.pack(">hhi", -1, -1, 30_000)  # no transactional id, acks, timeout
        + struct.pack(">i", 1)
        + name
        + struct.pack(">iii", 1, 0, len(batch))
        + batch
    )
    host, port = bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        response = answer.read(size)
    # Correlation id, one topic with its name, one partition: index, error code, base offset.
    _, error_code, base_offset = struct.unpack_from(">ihq", response, 8 + len(name) + 4)
    return error_code, base_offset
