"""Record batches of magic 2, made and read the slow way: the tests' own idea of the format."""

import struct
import time
from collections.abc import Callable


def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc32c_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def batch(
    values: list[bytes],
    *,
    timestamps: list[int] | None = None,
    attributes: int = 0,
    compress: Callable[[bytes], bytes] = bytes,
    first_delta: int = 0,
) -> bytes:
    """A batch of records without keys, uncompressed unless `compress` and `attributes` say so. Its
    offset deltas count from `first_delta`, which is 0 in a good one."""
    now = int(time.time() * 1000)
    times = timestamps or [now] * len(values)
    records = b""
    for delta, (value, timestamp) in enumerate(zip(values, times, strict=True), first_delta):
        content = b"\0" + varint(timestamp - times[0]) + varint(delta)
        content += varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(content)) + content
    body = struct.pack(
        ">hiqqqhii",
        attributes,
        len(values) - 1,
        times[0],
        max(times),
        -1,
        -1,
        -1,
        len(values),
    )
    body += compress(records)
    header = struct.pack(">ibI", -1, 2, crc32c(body))
    return struct.pack(">qi", 0, len(header) + len(body)) + header + body


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at


def values_of(data: bytes) -> list[tuple[int, bytes]]:
    """(offset, value) of every record in uncompressed batches; checks their CRCs."""
    found = []
    at = 0
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        whole = data[at : at + 12 + length]
        assert struct.unpack_from(">I", whole, 17)[0] == crc32c(whole[21:])
        (count,) = struct.unpack_from(">i", whole, 57)
        inner = 61
        for _ in range(count):
            size, start = read_varint(whole, inner)
            _, place = read_varint(whole, start + 1)
            delta, place = read_varint(whole, place)
            key_length, place = read_varint(whole, place)
            place += max(key_length, 0)
            value_length, place = read_varint(whole, place)
            found.append((base + delta, whole[place : place + value_length]))
            inner = start + size
        at += 12 + length
    return found
