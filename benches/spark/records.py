"""The records that both brokers hold: made once from a seed, and sent to both as the same bytes."""

import json
import random
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkalite._native import BatchBuilder
from kafkalite.client.producer.driven_producer import DrivenProducer

PARTITIONS = 2
BATCH_BYTES = 16_384
"""Of records before compression in a batch: `batch.size` of Kafka's producers."""
START_MS = 1_700_000_000_000
# Enough that none comes twice in a batch; the last of each list is a prime, so that batches differ.
POOL_SIZES = {100: 16_381, 1000: 4_093, 0: 16_381}
CITIES = ("Bergen", "Cusco", "Davos", "Lagos", "Ghent", "Kyoto", "Quito", "Turku")
WORDS = (
    "account",
    "amount",
    "basket",
    "cancelled",
    "carrier",
    "checkout",
    "currency",
    "customer",
    "delivered",
    "depot",
    "discount",
    "express",
    "invoice",
    "item",
    "ledger",
    "margin",
    "merchant",
    "order",
    "parcel",
    "payment",
    "pending",
    "picked",
    "price",
    "quantity",
    "receipt",
    "refund",
)


class Data(NamedTuple):
    """One topic. `value_bytes` of each record; 0 is a JSON object of some 96 bytes."""

    name: str
    what: str
    value_bytes: int
    codec: str
    share: float
    """Of `--records`."""

    @property
    def is_json(self) -> bool:
        return self.value_bytes == 0

    def count(self, records: int) -> int:
        """Records in the topic, as many in each partition."""
        return round(records * self.share) // PARTITIONS * PARTITIONS


PLAIN_100 = Data("plain-100", "100 B, plain", 100, "none", 1)
ZSTD_100 = Data("zstd-100", "100 B, zstd", 100, "zstd", 1)
PLAIN_1K = Data("plain-1k", "1 KB, plain", 1000, "none", 0.2)
ZSTD_1K = Data("zstd-1k", "1 KB, zstd", 1000, "zstd", 0.2)
PLAIN_JSON = Data("plain-json", "JSON of 96 B, plain", 0, "none", 0.5)
ZSTD_JSON = Data("zstd-json", "JSON of 96 B, zstd", 0, "zstd", 0.5)
VALUES = (PLAIN_100, ZSTD_100, PLAIN_1K, ZSTD_1K)
JSONS = (PLAIN_JSON, ZSTD_JSON)
ALL = (*VALUES, *JSONS)


def pool(value_bytes: int) -> list[bytes]:
    """Values that differ, the same in every run."""
    draw = random.Random(20_260_000 + value_bytes)
    count = POOL_SIZES[value_bytes]
    if value_bytes == 0:
        return [_json(draw, number) for number in range(count)]
    return [_text(draw, value_bytes) for _ in range(count)]


def _json(draw: random.Random, number: int) -> bytes:
    return json.dumps(
        {
            "id": number,
            "city": draw.choice(CITIES),
            "amount": draw.randrange(100, 99_999) / 100,
            "ok": draw.random() < 0.9,
            "tag": draw.choice(WORDS),
            "note": f"{draw.choice(WORDS)} {draw.randrange(1000)}",
        },
        separators=(",", ":"),
    ).encode()


def _text(draw: random.Random, value_bytes: int) -> bytes:
    """Words and numbers, which zstd makes about a third of."""
    text = f"{draw.randrange(100):02d}"
    while len(text) < value_bytes:
        text += f" {draw.choice(WORDS)}={draw.randrange(100_000)}"
    return text[:value_bytes].encode()


def batches(data: Data, records: int, partitions: int) -> Iterator[tuple[int, bytes, int]]:
    """Partition, batch and its count of records; the partitions take turns."""
    values = pool(data.value_bytes)
    per_batch = max(1, BATCH_BYTES // (sum(map(len, values)) // len(values) + 8))
    left = [data.count(records) // partitions] * partitions
    turn = at = 0
    while any(left):
        partition = turn % partitions
        count = min(per_batch, left[partition])
        builder = BatchBuilder(data.codec)
        for _ in range(count):
            builder.append(START_MS + at, None, values[at % len(values)])
            at += 1
        yield partition, builder.finish(), count
        left[partition] -= count
        turn += 1


def fill(
    data: Data, records: int, brokers: Sequence[str], partitions: int = PARTITIONS
) -> tuple[int, int]:
    """Sends the topic's records to each broker, where the topic is there. Returns bytes as they lie
    in the log, and a checksum of them."""
    producers = [
        DrivenProducer(each, idempotent=False, max_in_flight=1, buffer_bytes=64 << 20)
        for each in brokers
    ]
    size = checksum = 0
    for partition, batch, count in batches(data, records, partitions):
        size += len(batch)
        checksum = zlib.crc32(batch, checksum)
        for producer in producers:
            producer.send_batch(data.name, partition, batch, count)
            while producer.pending_bytes > 32 << 20:
                producer.poll(100)
    for producer in producers:
        producer.flush()
        if producer.first_error is not None:
            raise producer.first_error
        producer.close()
    return size, checksum
