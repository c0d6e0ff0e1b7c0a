"""Records go in by one client and come out as they were, by the same and by every other."""

import contextlib
import hashlib
from collections.abc import Sequence

import pytest

from clients.conftest import Cluster
from clients.neutral import (
    CODECS,
    Client,
    ConsumerOptions,
    ProducerOptions,
    Record,
    read,
)
from clients.table import behaviour

NOW_MS = 1_700_000_000_000
LARGE_BYTES = 10_000_000


def send(client: Client, cluster: Cluster, records: Sequence[Record], **options: object) -> None:
    """Through a producer of its own."""
    made = ProducerOptions(**options)  # type: ignore[arg-type]
    with contextlib.closing(client.producer(cluster.servers, made)) as producer:
        producer.send(records)


def read_partitions(
    client: Client, cluster: Cluster, topic: str, counts: list[int]
) -> list[Record]:
    """Every record of the first partitions, in the order of partition and offset.

    By `assign` if the client can, else as the only member of a new group.
    """
    if "assign" in client.lacks:
        options = ConsumerOptions(topics=(topic,), group=f"g-{topic}-{client.name}")
    else:
        options = ConsumerOptions(assign=tuple((topic, index, 0) for index in range(len(counts))))
    with contextlib.closing(client.consumer(cluster.servers, options)) as consumer:
        found = read(consumer, sum(counts))
    found.sort(key=lambda record: (record.partition, record.offset))
    where = [(record.partition, record.offset) for record in found]
    assert where == [(index, offset) for index, n in enumerate(counts) for offset in range(n)]
    return found


@behaviour("keys")
def test_keys_values_and_tombstones_come_back_as_sent(client: Client, cluster: Cluster) -> None:
    topic = cluster.topic()
    sent = [
        Record(topic, b"unkeyed"),
        Record(topic, b"keyed", b"a key"),
        Record(topic, None, b"tombstone"),
        Record(topic, "Käfer".encode(), "Schlüssel".encode()),
        Record(topic, b"v" * 5_000, b"k" * 300),
    ]
    if client.name != "kcat":  # whose option for tombstones makes every empty value one
        sent.append(Record(topic, b"", b"empty value"))
    send(client, cluster, sent)
    found = read_partitions(client, cluster, topic, [len(sent)])
    assert [record.content for record in found] == [record.content for record in sent]


@behaviour("headers")
def test_headers_keep_their_order_and_repetition(client: Client, cluster: Cluster) -> None:
    topic = cluster.topic()
    headers = (("a", b"1"), ("a", b"2"), ("empty", b""), ("Käfer", b"x" * 2_000))
    sent = [Record(topic, b"one", headers=headers), Record(topic, b"two", headers=headers[:1])]
    send(client, cluster, sent)
    found = read_partitions(client, cluster, topic, [2])
    assert [record.headers for record in found] == [record.headers for record in sent]


@behaviour("null-headers")
def test_a_header_without_a_value_is_no_empty_one(client: Client, cluster: Cluster) -> None:
    topic = cluster.topic()
    sent = [Record(topic, b"v", headers=(("none", None), ("empty", b"")))]
    send(client, cluster, sent)
    assert read_partitions(client, cluster, topic, [1])[0].headers == sent[0].headers


@behaviour("partition")
def test_a_record_goes_to_the_partition_that_it_names(client: Client, cluster: Cluster) -> None:
    topic = cluster.topic(3)
    sent = [Record(topic, f"{n}".encode(), b"same key", partition=n % 3) for n in range(12)]
    send(client, cluster, sent)
    found = read_partitions(client, cluster, topic, [4, 4, 4])
    assert {(record.value, record.partition) for record in found} == {
        (record.value, record.partition) for record in sent
    }


def hold_codec(client: Client, cluster: Cluster, codec: str) -> None:
    """What was sent with a codec lies so in the log, and is read back."""
    topic = cluster.topic()
    sent = [Record(topic, f"{n} ".encode() + b"v" * 100 * (1 + n % 7), b"key") for n in range(300)]
    send(client, cluster, sent, codec=codec)
    found = read_partitions(client, cluster, topic, [len(sent)])
    assert [record.content for record in found] == [record.content for record in sent]
    assert cluster.codecs(topic) == {codec}


@behaviour("none")
def test_records_travel_uncompressed(client: Client, cluster: Cluster) -> None:
    hold_codec(client, cluster, "none")


@behaviour("gzip")
def test_records_travel_by_gzip(client: Client, cluster: Cluster) -> None:
    hold_codec(client, cluster, "gzip")


@behaviour("snappy")
def test_records_travel_by_snappy(client: Client, cluster: Cluster) -> None:
    hold_codec(client, cluster, "snappy")


@behaviour("lz4")
def test_records_travel_by_lz4(client: Client, cluster: Cluster) -> None:
    hold_codec(client, cluster, "lz4")


@behaviour("zstd")
def test_records_travel_by_zstd(client: Client, cluster: Cluster) -> None:
    hold_codec(client, cluster, "zstd")


@behaviour("idempotence")
def test_an_idempotent_producer_has_an_id_and_sequences(client: Client, cluster: Cluster) -> None:
    topic = cluster.topic()
    made = ProducerOptions(idempotent=True)
    with contextlib.closing(client.producer(cluster.servers, made)) as producer:
        for at in range(0, 60, 20):
            producer.send([Record(topic, f"{n}".encode(), b"k") for n in range(at, at + 20)])
    found = read_partitions(client, cluster, topic, [60])
    assert [record.value for record in found] == [f"{n}".encode() for n in range(60)]
    batches = cluster.batches(topic)
    assert all(batch.producer_id >= 0 and batch.base_sequence >= 0 for batch in batches)


@behaviour("timestamps")
def test_a_timestamp_is_the_producers_or_the_logs(client: Client, cluster: Cluster) -> None:
    by_producer = cluster.topic()
    by_log = cluster.topic(message_timestamp_type="LogAppendTime")
    for topic in (by_producer, by_log):
        times = [NOW_MS + 1_000 * n for n in (3, 1, 2)]
        send(client, cluster, [Record(topic, b"v", timestamp=time) for time in times])
    found = read_partitions(client, cluster, by_producer, [3])
    assert [record.timestamp for record in found] == times
    found = read_partitions(client, cluster, by_log, [3])
    assert all(record.timestamp > NOW_MS + 10_000 for record in found if record.timestamp)


@behaviour("large")
def test_a_record_of_10_mb_passes_where_it_is_allowed(client: Client, cluster: Cluster) -> None:
    topic = cluster.topic(max_message_bytes=str(LARGE_BYTES + 100_000))
    # Such that a compressing or a truncating hop would show.
    pattern = b"".join(hashlib.sha256(b"%d" % n).hexdigest().encode() for n in range(1_000))
    value = (pattern * (LARGE_BYTES // len(pattern) + 1))[:LARGE_BYTES]
    sent = [Record(topic, b"before"), Record(topic, value), Record(topic, b"after")]
    send(client, cluster, sent, request_bytes_max=LARGE_BYTES + 200_000)
    found = read_partitions(client, cluster, topic, [3])
    assert [record.value == each.value for record, each in zip(found, sent, strict=True)] == [
        True
    ] * 3


KEYS = [f"key-{n}".encode() for n in range(40)]


@behaviour("partitioner")
def test_a_key_goes_to_the_partition_that_java_chooses(client: Client, cluster: Cluster) -> None:
    topic = cluster.topic(7)
    send(client, cluster, [Record(topic, b"v", key) for key in KEYS])
    send(client, cluster, [Record(topic, b"v", key) for key in KEYS])
    chosen = {key: murmur2(key) % 7 for key in KEYS}
    counts = [2 * list(chosen.values()).count(index) for index in range(7)]
    found = read_partitions(client, cluster, topic, counts)
    assert {record.key: record.partition for record in found} == chosen


def murmur2(data: bytes) -> int:
    """Of the Java client, positive. The row of the Java client proves it right."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    hashed = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        hashed = (hashed * m ^ (k ^ k >> 24) * m) & mask
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * m & mask
    hashed = (hashed ^ hashed >> 13) * m & mask
    return (hashed ^ hashed >> 15) & 0x7FFFFFFF


@pytest.mark.oracle
def test_every_client_reads_what_every_other_wrote(
    clients: dict[str, Client], cluster: Cluster
) -> None:
    topic = cluster.topic()
    sent = []
    for client in clients.values():
        for codec in CODECS:
            if codec in client.lacks:
                continue
            headers = (("by", client.name.encode()), ("codec", codec.encode()))
            records = [
                Record(topic, f"{codec} {n} ".encode() + b"v" * 200, b"key", headers=headers)
                for n in range(5)
            ]
            send(client, cluster, records, codec=codec)
            sent += records
    assert cluster.codecs(topic) == set(CODECS)
    for client in clients.values():
        found = read_partitions(client, cluster, topic, [len(sent)])
        assert [record.content for record in found] == [record.content for record in sent], (
            client.name
        )
