"""A program with types that uses every public name: `make lint` has mypy read it."""

import asyncio
import datetime as dt
import re
from pathlib import Path

import kafkalite
from kafkalite import (
    Broker,
    BrokerError,
    BrokerFailedError,
    KafkaliteError,
    LogRecords,
    client,
    errors,
    read_arrow,
    read_log,
    spark,
    write_arrow,
)
from kafkalite.client import (
    BROKER,
    EARLIEST,
    GROUP,
    LATEST,
    MAX_TIMESTAMP,
    TOPIC,
    Admin,
    BrokerDescription,
    Cluster,
    ClusterDescription,
    Committed,
    ConfigEntry,
    Connection,
    Consumer,
    Fetched,
    GroupAdmin,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOptions,
    ListedOffset,
    Node,
    PartitionDescription,
    Producer,
    Record,
    TopicDescription,
    TopicListing,
    Written,
    WrittenPartition,
    uuid_text,
)


def admin(servers: str) -> None:
    with Admin(servers, client_id="x", timeout_ms=5) as one:
        one.create_topic("orders", partitions=3, configs={"retention.ms": "5"})
        one.create_topic("orders", partitions=3, configs={"retention.ms": 5})
        one.delete_topics("orders")
        one.delete_topics(["orders"])
        listing: list[TopicListing] = one.list_topics()
        described: list[TopicDescription] = one.describe_topics([each.name for each in listing])
        partitions: list[PartitionDescription] = described[0].partitions
        entries: list[ConfigEntry] = one.describe_configs(TOPIC, "orders")
        one.describe_configs(BROKER, "1")
        one.describe_configs(GROUP, "g")
        one.alter_configs(TOPIC, "orders", {"a": "b", "c": None})
        offsets: dict[tuple[str, int], ListedOffset] = one.list_offsets({("orders", 0): LATEST})
        one.list_offsets({("orders", 0): EARLIEST, ("orders", 1): MAX_TIMESTAMP})
        cluster: ClusterDescription = one.describe_cluster()
        brokers: list[BrokerDescription] = cluster.brokers
        print(uuid_text(listing[0].id), partitions, entries, offsets, brokers)
        one.create_partitions("orders", 5)
        shared: Cluster = one.cluster
        nodes: dict[int, Node] = shared.nodes
        print(nodes)


def groups(servers: str) -> None:
    with GroupAdmin(servers) as one:
        listed: list[GroupListing] = one.list()
        group: GroupDescription = one.describe(listed[0].name)
        members: list[GroupMember] = group.members
        committed: dict[tuple[str, int], Committed] = one.committed("g")
        one.alter("g", {("orders", 0): 5})
        one.delete_offsets("g", [("orders", 0)])
        one.delete("g")
        print(members, committed)


def both(servers: str) -> None:
    with Producer(servers, codec="zstd", acks="all") as producer:
        producer.send("orders", b"v", b"k", headers=[("a", b"b"), ("c", None)])
        producer.send("orders", None, partition=0, timestamp_ms=5)
        producer.flush()
    with Consumer(servers, group="g", offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        consumer.subscribe("orders")
        consumer.subscribe(re.compile("o.*"))
        consumer.assign({("orders", 0): 0})
        for record in consumer.poll(100):
            use(record)
        fetched: list[Fetched] = list(consumer.fetch(100))
        consumer.commit()
        print(fetched)
    Consumer(servers, group=GroupOptions("g", instance_id="i")).close()
    with Connection("localhost", 9092) as connection:
        print(connection.versions)


def use(record: Record) -> None:
    key: bytes | None = record.key
    value: bytes | None = record.value
    topic: str = record.topic
    print(key, value, topic, record.partition, record.offset, record.timestamp, record.headers)


def arrow(servers: str) -> None:
    records: LogRecords = read_log(Path("data/orders-0"), columns=["key"], start=5)
    read_log("data/orders-0", start=dt.datetime.now(dt.UTC), stop={0: 5})
    wired = read_arrow("orders", servers, columns=["key", "value"], start={("orders", 0): 5})
    written: Written = write_arrow(wired, "copy", servers, compression_type="zstd")
    parts: list[WrittenPartition] = list(written.partitions)
    frame = records.to_pandas()
    records.to_polars()
    records.to_pyarrow()
    print(parts, frame)


def main() -> None:
    try:
        with Broker(listen=None, start_timeout_s=5) as broker:
            admin(broker.bootstrap_servers)
            groups(broker.bootstrap_servers)
            both(broker.bootstrap_servers)
            arrow(broker.bootstrap_servers)
            code: int = broker.stop()
            broker.start().kill()
            print(code)
    except BrokerError as error:
        print(error.code, error.name, error.retriable)
    except (BrokerFailedError, KafkaliteError, errors.ConnectionFailedError) as error:
        print(error)
    asyncio.run(in_a_coroutine())
    session = spark.session("orders")
    spark.register(session)
    print(kafkalite.__version__, client.Admin)


async def in_a_coroutine() -> None:
    async with Broker("data", config={"num.partitions": 3}, log_level="debug") as broker:
        print(broker.bootstrap_servers, broker.pid, broker.data, broker.log_tail())
