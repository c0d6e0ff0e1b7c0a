"""Slips of programs: a text where several are meant, another type, a time without a zone."""

import datetime
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pytest

import kafkalite
from kafkalite.client import (
    Admin,
    Cluster,
    Connection,
    Consumer,
    GroupAdmin,
    GroupOptions,
    Producer,
)
from kafkalite.client.network.servers import parse_servers
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.client.producer.transactions import Transaction
from kafkalite.errors import ConnectionFailedError

ROWS = pyarrow.table({"key": [b"k", None], "value": [b"one", b"two"]})
NOWHERE = "127.0.0.1:1"
JSON: dict[str, Any] = {"value_format": "json"}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kafkalite.Broker() as broker:
        kafkalite.write_arrow(ROWS, "orders", broker.bootstrap_servers)
        yield broker.bootstrap_servers


@pytest.fixture
def any_type() -> Any:
    """The functions as programs without types see them."""
    return kafkalite


def test_a_single_text_is_one_column_and_one_topic_and_a_list_is_several(servers: str) -> None:
    """`columns="key"` was refused with "unknown column 'k'"."""
    one = kafkalite.read_arrow("orders", servers, columns="value").to_pyarrow()
    assert one.to_pydict() == {"value": [b"one", b"two"]}
    several = kafkalite.read_arrow(["orders", "orders"], [servers], columns=["offset", "key"])
    assert several.to_pyarrow().to_pydict() == {"offset": [0, 1], "key": [b"k", None]}


def test_topics_are_subscribed_described_and_deleted_by_name_and_not_by_letter(
    servers: str,
) -> None:
    """`subscribe("orders")` made the topics o, r, d, e and s; `delete_topics` would have deleted
    them."""
    with Admin(servers) as admin:
        with Consumer(servers, group="readers", timeout_ms=20_000) as consumer:
            consumer.subscribe("orders")
            records = []
            while len(records) < 2:
                records += consumer.poll(1000)
        admin.create_topic("gone", partitions=1)
        assert [each.name for each in admin.describe_topics("gone")] == ["gone"]
        admin.delete_topics("gone")
        names = [each.name for each in admin.list_topics(include_internal=False)]
    assert names == ["orders"]


@pytest.mark.parametrize(
    "start", [1, numpy.int64(1), {0: 1}, {"orders-0": 1}, {"0": 1}, {("orders", 0): 1}]
)
def test_offsets_are_numbers_for_all_or_by_partition(servers: str, start: Any) -> None:
    rows = kafkalite.read_arrow("orders", servers, start=start, columns="value").to_pyarrow()
    assert rows.to_pydict() == {"value": [b"two"]}


@pytest.mark.parametrize("start", ["1", 1.0, True, [1], {0: "1"}, {0.5: 1}, {True: 1}])
def test_what_is_no_offset_is_refused_before_anybody_is_asked(any_type: Any, start: Any) -> None:
    for read in (any_type.read_arrow, any_type.read_log):
        with pytest.raises(TypeError, match=r"start.* (is|has|in start) .*it must be"):
            read("orders", start=start)


def test_a_time_without_a_zone_is_refused_before_anybody_is_asked() -> None:
    """Local time or UTC: the rows would differ by hours, and nobody would see it."""
    naive = datetime.datetime(2026, 1, 1)
    for start in (naive, {0: naive}):
        with pytest.raises(kafkalite.KafkaliteError, match=r"start.*does not say its time zone"):
            kafkalite.read_arrow("orders", NOWHERE, start=start)
        with pytest.raises(kafkalite.KafkaliteError, match=r"stop.*does not say its time zone"):
            kafkalite.read_log("orders", stop=start)


def test_a_time_stands_for_the_offset_of_the_first_record_that_is_as_late(tmp_path: Path) -> None:
    """Over the wire the broker is asked; files have their time index, here of several segments,
    with records out of order, or none."""
    draw = random.Random(7)
    first = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
    first_ms = int(first.timestamp() * 1000)
    times = [first_ms + 1000 * number + draw.randrange(-9000, 9000) for number in range(300)]
    config = {"segment.bytes": 1 << 20, "index.interval.bytes": 0, "preallocate": True}
    config["retention.ms"] = -1  # the records are old
    with kafkalite.Broker(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topic("times", partitions=2, configs=config)
        with Producer(servers) as producer:
            for number, each in enumerate(times):
                # Batches of one record, and of many.
                value = bytes(30_000 if number % 100 < 50 else 10)
                producer.send("times", value, partition=0, timestamp_ms=each)
        folder = tmp_path / "data" / "times-0"
        indexes = sorted(folder.glob("*.timeindex"))
        assert len(indexes) > 3
        asked = [*draw.sample(times, 25), first_ms - 10_000, max(times), max(times) + 1]
        east = datetime.timezone(datetime.timedelta(hours=5))

        def at(each: int) -> datetime.datetime:
            return (first + datetime.timedelta(milliseconds=each - first_ms)).astimezone(east)

        def wanted(each: int) -> int:
            return next((offset for offset, one in enumerate(times) if one >= each), len(times))

        for each in asked:
            expected = [("times", 0, wanted(each), 300)]
            for read in (
                kafkalite.read_arrow("times", servers, start=at(each)),
                kafkalite.read_log(tmp_path / "data", topic="times", start=at(each)),
            ):
                assert read.ranges == [*expected, ("times", 1, 0, 0)]
            hour = at(each) + datetime.timedelta(minutes=1)
            stopped = [("times", 0, 5, max(5, wanted(each + 60_000)))]
            chosen = {"start": {0: 5}, "stop": {0: hour}}
            assert kafkalite.read_arrow("times", servers, **chosen).ranges[:1] == stopped
            assert kafkalite.read_log(folder, **chosen).ranges == stopped
        for damage in (bytes(120), b"", os.urandom(600)):
            for index in indexes:
                index.write_bytes(damage)
            for each in asked:
                assert kafkalite.read_log(folder, start=at(each)).ranges[0][2] == wanted(each)
        for read in (
            lambda **times: kafkalite.read_arrow("times", servers, **times),
            lambda **times: kafkalite.read_log(folder, **times),
        ):
            with pytest.raises(kafkalite.KafkaliteError, match=r"ms since 1970"):
                read(start=first, stop=first - datetime.timedelta(seconds=1))
            before_1970 = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, datetime.UTC)
            assert read(start=before_1970).ranges[0] == ("times", 0, 0, 300)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda lite: lite.read_arrow(None), "topic is of type NoneType, it must be str, or"),
        (lambda lite: lite.read_arrow(b"orders"), "topic is of type bytes, it must be str, or"),
        (lambda lite: lite.read_arrow(Path("orders")), "topic is of type PosixPath, it must be"),
        (lambda lite: lite.read_arrow("t", 9092), "bootstrap_servers is of type int, it must be"),
        (lambda lite: lite.read_arrow("t", columns=[1]), "an element of columns is of type int"),
        (lambda lite: lite.read_arrow("t", timeout_ms=1.5), "timeout_ms is of type float"),
        (lambda lite: lite.read_arrow("t", batch_rows="9"), "batch_rows is of type str"),
        (lambda lite: lite.read_arrow("t", mode=None), "mode is of type NoneType"),
        (
            lambda lite: lite.read_arrow("t", value_schema="id LONG", **JSON),
            "value_schema is of type str, it must be a schema of pyarrow",
        ),
        (
            lambda lite: lite.read_arrow("t", format_options="value.flatten", **JSON),
            "format_options is of type str, it must be a mapping",
        ),
        (lambda lite: lite.read_log(None), "path is of type NoneType, it must be a path, or"),
        (lambda lite: lite.read_log("d", topic=["t"]), "topic is of type list, it must be str"),
        (lambda lite: lite.write_arrow("orders", ROWS), "topic is of type Table, it must be str"),
        (lambda lite: lite.Broker(5), "data is of type int, it must be a path"),
        (lambda lite: lite.Broker(listen=9092), "listen is of type int, it must be str"),
        (lambda lite: lite.Broker(config="a=b"), "config is of type str, it must be a mapping"),
        (
            lambda lite: lite.Broker(config={"a": None}),
            r"config\['a'\] is of type NoneType, it must be str, int, float or bool",
        ),
        (
            lambda lite: lite.Broker(config={"log.cleanup.policy": ["compact", "delete"]}),
            r"\['log.cleanup.policy'\] is of type list, .* bool: 'compact,delete' is a list",
        ),
        (lambda lite: lite.Broker(start_timeout_s="5"), "start_timeout_s is of type str"),
        (lambda lite: lite.Broker(config=0), "config is of type int, it must be a mapping"),
        (lambda lite: lite.read_arrow("t", isolation=["a"]), "isolation is of type list"),
        (
            lambda lite: lite.write_arrow(ROWS, "t", NOWHERE, transactional_id=None),
            "transactional_id is of type NoneType, it must be str, int or bool",
        ),
        (lambda lite: lite.write_arrow(ROWS, "t", NOWHERE, linger_ms=[1]), "linger_ms is of type"),
    ],
)
def test_a_wrong_type_is_named_with_its_argument(
    any_type: Any, call: Callable[[Any], object], sentence: str
) -> None:
    with pytest.raises(TypeError, match=sentence):
        call(any_type)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda lite: lite.read_arrow("t", timeout_ms=0), "timeout_ms=0 is less than 1"),
        (lambda lite: lite.read_arrow("t", batch_bytes=-1), "batch_bytes=-1 is less than 1"),
        (lambda lite: lite.read_log("d", batch_rows=-1), "batch_rows=-1 is less than 1"),
        (lambda lite: lite.Broker(""), "data is empty"),
        (lambda lite: lite.Broker(start_timeout_s=-1), "start_timeout_s=-1 is not a time to wait"),
        (lambda lite: lite.read_arrow("t", NOWHERE, columns="x"), "unknown column 'x'"),
        (lambda lite: lite.read_arrow("t", NOWHERE, mode="x"), "mode"),
        (lambda lite: lite.read_arrow("t", NOWHERE, value_format="x"), "value.format"),
        (lambda lite: lite.read_arrow("t", isolation="x"), "unknown isolation 'x': it is read_un"),
        (
            lambda lite: lite.write_arrow(ROWS, "t", NOWHERE, max_request_size=0),
            "max.request.size is 0, it must be 1 to",
        ),
        (
            lambda lite: lite.write_arrow(ROWS, "t", NOWHERE, request_timeout_ms=0),
            "request.timeout.ms is 0, it must be 1 to",
        ),
        (lambda lite: lite.read_arrow("t", batch_rows=2**31), "batch_rows=2147483648 is more than"),
    ],
)
def test_a_wrong_value_is_named_with_its_argument(
    any_type: Any, call: Callable[[Any], object], sentence: str
) -> None:
    with pytest.raises(kafkalite.KafkaliteError, match=sentence):
        call(any_type)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        ("PLAINTEXT://a:1,[::1]:2", [("a", 1), ("::1", 2)]),
        ("SASL_SSL://[::1]:2", [("::1", 2)]),
    ],
)
def test_servers_are_taken_as_kafkas_clients_take_them(
    given: Any, wanted: list[tuple[str, int]]
) -> None:
    assert parse_servers(given) == wanted


def test_configurations_may_be_numbers_and_flags(servers: str) -> None:
    with Admin(servers) as admin:
        admin.create_topic("kept", partitions=1, configs={"retention.ms": 9000})
        admin.alter_configs(2, "kept", {"preallocate": True, "retention.ms": None})
        entries = {each.name: each.value for each in admin.describe_configs(2, "kept")}
        admin.delete_topics("kept")
    assert (entries["preallocate"], entries["retention.ms"]) == ("true", "604800000")
    config = {"num.partitions": 3, "auto.create.topics.enable": True}
    with kafkalite.Broker(config=config) as broker, Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("default")
        (topic,) = admin.describe_topics("default")
    assert len(topic.partitions) == 3


def test_a_time_with_a_zone_is_looked_up_and_one_without_is_refused(servers: str) -> None:
    place = ("orders", 0)
    now = datetime.datetime.now(datetime.UTC)
    hour = datetime.timedelta(hours=1)
    east = datetime.timezone(datetime.timedelta(hours=9))
    with Admin(servers) as admin:
        assert admin.list_offsets({place: now - hour})[place].offset == 0
        assert admin.list_offsets({place: (now - hour).astimezone(east)})[place].offset == 0
        assert admin.list_offsets({place: now + hour})[place].offset == -1
        with pytest.raises(kafkalite.KafkaliteError, match="does not say its time zone"):
            admin.list_offsets({place: datetime.datetime(2026, 1, 1)})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"value": "text"}, r"value is of type str, it must be bytes: \.encode\(\) makes them"),
        ({"value": 5}, "value is of type int, it must be bytes"),
        ({"value": b"", "key": "k"}, "key is of type str, it must be bytes"),
        ({"value": b"", "headers": {"name": b"1"}}, "headers has 'name', which is no pair"),
        ({"value": b"", "headers": [("name", "1")]}, "the header 'name' is of type str"),
        ({"value": b"", "timestamp_ms": 1.5}, "timestamp_ms is of type float, it must be int"),
        ({"value": b"", "partition": "0"}, "partition is of type str, it must be int"),
    ],
)
def test_a_record_of_wrong_types_is_refused_and_spoils_no_batch(
    servers: str, arguments: dict[str, Any], sentence: str
) -> None:
    """An empty batch was left behind, which the broker refused at the next flush."""
    started_ms = time.time_ns() // 1_000_000
    with Producer(servers) as producer:
        with pytest.raises(TypeError, match=sentence):
            producer.send("typed", **arguments)
        producer.flush()
        producer.send("typed", bytearray(b"good"), memoryview(b"key"), timestamp_ms=started_ms)
        producer.flush()
        assert producer.sent_count == 1


TYPE = "resource_type is of type str, it must be int: TOPIC, BROKER or GROUP"
PAIR = r"has 'orders', which is no pair of topic and partition"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda admin: admin.describe_configs("topic", "orders"), TYPE),
        (lambda admin: admin.describe_configs(2, 7), "name is of type int, it must be str"),
        (lambda admin: admin.alter_configs("topic", "orders", {}), TYPE),
        (lambda admin: admin.alter_configs(2, b"orders", {}), "name is of type bytes"),
        (lambda admin: admin.list_config_resources("topic"), TYPE),
        (lambda admin: admin.create_topic("t", assignments=[1]), "assignments is of type list"),
        (lambda admin: admin.create_topic("t", assignments=[["1"]]), "a broker id in assignments"),
        (lambda admin: admin.create_partitions("t", 2, assignments=1), "assignments is of type"),
        (lambda admin: admin.delete_records({"orders": 1}), f"offsets {PAIR}"),
        (lambda admin: admin.delete_records({("orders", 0): "1"}), "is of type str, it must be"),
        (lambda admin: admin.delete_records([("orders", 0)]), "offsets is of type list"),
        (lambda admin: admin.list_offsets({"orders": -1}), f"timestamps {PAIR}"),
    ],
)
def test_what_an_administrator_gives_wrongly_is_named(
    servers: str, call: Callable[[Any], object], sentence: str
) -> None:
    """It ended with the codec's words of the place in the message."""
    with Admin(servers) as admin, pytest.raises(TypeError, match=sentence):
        call(admin)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda groups: groups.list(states=5), "states is of type int, it must be str, or"),
        (lambda groups: groups.describe(None), "name is of type NoneType, it must be str"),
        (lambda groups: groups.committed(["g"]), "name is of type list, it must be str"),
        (lambda groups: groups.delete(b"g"), "name is of type bytes, it must be str"),
        (lambda groups: groups.alter("g", {"orders": 1}), f"offsets {PAIR}"),
        (lambda groups: groups.delete_offsets("g", "orders"), "partitions is of type str"),
        (lambda groups: groups.delete_offsets("g", ["orders"]), f"partitions {PAIR}"),
    ],
)
def test_what_is_asked_of_groups_wrongly_is_named(
    servers: str, call: Callable[[Any], object], sentence: str
) -> None:
    with GroupAdmin(servers) as groups, pytest.raises(TypeError, match=sentence):
        call(groups)


def test_groups_of_one_state_are_listed_by_its_name_and_not_by_letter(servers: str) -> None:
    with GroupAdmin(servers) as groups:
        groups.alter("idle", {("orders", 0): 1})
        assert "idle" in [each.name for each in groups.list(states="Empty", types="Classic")]
        assert groups.list(states="Stable") == []


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda at: Consumer(at, fetch_wait_ms="5"), "fetch_wait_ms is of type str"),
        (lambda at: Consumer(at, auto_commit_interval_ms="5"), "auto_commit_interval_ms is of"),
        (lambda at: Consumer(at, client_id=5), "client_id is of type int, it must be str"),
        (lambda at: Producer(at, linger_ms="5"), "linger_ms is of type str, it must be int"),
        (lambda at: Producer(at, codec=None), "codec is of type NoneType, it must be str"),
        (lambda at: Producer(at).send(["orders"], b""), "topic is of type list, it must be str"),
        (lambda at: Admin(at, timeout_ms="5"), "timeout_ms is of type str, it must be int"),
        (lambda at: Producer(at, level="1"), "level is of type str, it must be int"),
        (lambda at: Producer(at, idempotent="no"), "idempotent is of type str, it must be bool"),
        (
            lambda at: DrivenProducer(at, transaction="t", idempotent=True),
            "transaction is of type str",
        ),
        (lambda at: Consumer(at, isolation=[1]), "isolation is of type list, it must be str"),
        (lambda at: Consumer(at, offset_reset=None), "offset_reset is of type NoneType"),
        (
            lambda at: Consumer(at, group=GroupOptions("g", session_timeout_ms="5")),  # type: ignore[arg-type]
            "session_timeout_ms is of type str, it must be int",
        ),
    ],
)
def test_settings_of_a_wrong_type_are_named(
    servers: str, call: Callable[[Any], object], sentence: str
) -> None:
    with pytest.raises(TypeError, match=sentence):
        call(servers)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: Producer(NOWHERE, codec="gzip", level=19),
            "level=19 is none of gzip: it must be 1 to 9, or -1 for its default",
        ),
        (lambda: Producer(NOWHERE, codec="gzip", level=0), "level=0 is none of gzip"),
        (lambda: Producer(NOWHERE, codec="lz4", level=18), "it must be 1 to 17"),
        (lambda: Producer(NOWHERE, codec="zstd", level=10**30), "it must be -131072 to 22"),
        (lambda: Producer(NOWHERE, codec="snappy", level=1), "the codec snappy has no levels"),
        (lambda: Producer(NOWHERE, level=1), "level=1: the codec none has no levels"),
        (
            lambda: Producer(NOWHERE, codec="brotli"),
            "unknown codec 'brotli': it is none, gzip, snappy, lz4 or zstd",
        ),
        (lambda: Producer(NOWHERE, linger_ms=2**31), "linger_ms=2147483648 is more than"),
        (lambda: Consumer(NOWHERE, fetch_bytes_max=2**31), "fetch_bytes_max=2147483648 is more"),
        (lambda: Admin(NOWHERE, timeout_ms=2**31), "timeout_ms=2147483648 is more than"),
        (lambda: Consumer(NOWHERE, offset_reset="last"), "it is earliest, latest or none"),
        (lambda: Consumer(NOWHERE, group=" "), "group is empty"),
        (lambda: Consumer(NOWHERE, group=GroupOptions("g", "")), "instance_id is empty"),
        (
            lambda: Consumer(NOWHERE, group=GroupOptions("g", max_poll_interval_ms=0)),
            "max_poll_interval_ms=0 is less than 1",
        ),
        (
            lambda: Consumer(NOWHERE, group=GroupOptions("g", heartbeat_interval_ms=45_000)),
            "heartbeat_interval_ms=45000 must be less than session_timeout_ms=45000",
        ),
    ],
)
def test_settings_that_cannot_be_obeyed_are_refused_before_anything_is_sent(
    call: Callable[[], object], sentence: str
) -> None:
    """A level that gzip has not was an error of the first batch, within a later `send`."""
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize(("codec", "level"), [("gzip", -1), ("zstd", -131_072), ("lz4", 17)])
def test_every_level_of_kafkas_is_taken(codec: str, level: int) -> None:
    Producer(NOWHERE, codec=codec, level=level).close()


@pytest.mark.parametrize("partitions", ["orders", ("orders", 0), [("orders", "0")], [0], 5])
def test_partitions_that_are_none_are_refused(servers: str, partitions: Any) -> None:
    with (
        Consumer(servers) as consumer,
        pytest.raises(TypeError, match=r"^partitions (is|has) .*pair"),
    ):
        consumer.assign(partitions)


def test_a_path_begins_with_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Broker("~/data")` made a folder of the name `~`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with kafkalite.Broker("~/data") as broker:
        kafkalite.write_arrow(ROWS, "orders", broker.bootstrap_servers)
    assert [each.name for each in tmp_path.iterdir()] == ["data"]
    assert kafkalite.read_log("~/data", topic="orders", columns="offset").to_pyarrow().num_rows == 2


LONG = "ü" * 16_384  # a byte too many


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Admin("localhost:1").describe_topics(LONG), "an element of names"),
        (lambda: Admin("localhost:1").create_topic(LONG), "name"),
        (lambda: Admin("localhost:1").list_offsets({(LONG, 0): 0}), "a topic in timestamps"),
        (lambda: GroupAdmin("localhost:1").delete(LONG), "name"),
        (lambda: Cluster("localhost:1", client_id=LONG), "client_id"),
        (lambda: Consumer("localhost:1", client_id=LONG), "client_id"),
        (lambda: Consumer("localhost:1", group=LONG), "group"),
        (lambda: Consumer("localhost:1", group=GroupOptions("g", LONG)), "instance_id"),
        (lambda: Consumer("localhost:1", group="g").subscribe(LONG), "an element of topics"),
        (lambda: Producer("localhost:1", client_id=LONG), "client_id"),
        (lambda: Producer("localhost:1").send(LONG, b"value"), "topic"),
        (lambda: Transaction(Cluster("localhost:1"), LONG, 1000), "transactional_id"),
    ],
)
def test_a_name_that_the_protocol_has_no_room_for_is_named(
    call: Callable[[], object], name: str
) -> None:
    """It was a `struct.error` about the format of an int16."""
    sentence = f"^{name} has 32768 bytes, Kafka's protocol has room for 32767$"
    with pytest.raises(ValueError, match=sentence):
        call()


def test_a_name_that_cannot_be_written_in_bytes_is_named() -> None:
    with pytest.raises(ValueError, match=r"^client_id 'a\\udcff' cannot be written in UTF-8$"):
        Consumer("localhost:1", client_id="a\udcff")


@pytest.mark.parametrize("host", ["a..b", ".a", "x" * 64, "x" * 64 + ".example", "a\0b", ""])
def test_an_address_that_is_none_is_named(host: str) -> None:
    """The resolver's UnicodeError about labels came through."""
    with pytest.raises(ValueError, match=f"^'{re.escape(host)}:1' is not HOST:PORT$"):
        Admin(f"{host}:1")
    with pytest.raises(ConnectionFailedError, match=r"no connection to a\.\.b:1: "):
        Connection("a..b", 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"timestamp_ms": -5}, "timestamp_ms=-5 is less than 0"),
        ({"timestamp_ms": 2**63}, "timestamp_ms=9223372036854775808 is more than"),
        ({"headers": [("a\udcff", b"1")]}, r"the header 'a\\udcff' cannot be written in UTF-8"),
        ({"partition": -1}, "partition=-1 is less than 0"),
    ],
)
def test_a_record_that_cannot_be_one_is_refused(
    servers: str, arguments: dict[str, Any], sentence: str
) -> None:
    """A negative time was sent, which Kafka's ProducerRecord refuses."""
    with Producer(servers) as producer, pytest.raises(ValueError, match=sentence):
        producer.send("orders", b"value", **arguments)


def test_an_offset_that_cannot_be_one_is_refused(servers: str) -> None:
    """A consumer went on at -1, that is nowhere, and was reset; what is larger than an offset may
    be was an error of each `poll`."""
    place = ("orders", 0)
    with Consumer(servers, group="offsets") as consumer, GroupAdmin(servers) as groups:
        consumer.assign([place])
        for offset in (-1, 2**63):
            with pytest.raises(ValueError, match=r"offset=.* is (less|more) than"):
                consumer.seek(place, offset)
            with pytest.raises(ValueError, match=r"offsets\[.*\]=.* is (less|more) than"):
                consumer.commit({place: offset})
            with pytest.raises(ValueError, match=r"offsets\[.*\]=.* is (less|more) than"):
                groups.alter("offsets", {place: offset})
        with pytest.raises(ValueError, match=r"the offset of orders-0=.* is more than"):
            consumer.assign({place: 2**63})


def test_what_has_been_closed_is_not_used_again(servers: str) -> None:
    """It connected anew, and a consumer joined its group again, with nobody to keep it alive."""
    producer = DrivenProducer(servers)
    producer.send("orders", b"kept")
    producer.flush()
    consumer = Consumer(servers, group="closed")
    consumer.subscribe("orders")
    consumer.poll(100)
    for _ in range(2):
        producer.close()
        consumer.close()
    place = ("orders", 0)
    calls: list[Callable[[], object]] = [
        lambda: producer.send("orders", b"value"),
        lambda: producer.send("orders", b"value", partition=0),
        lambda: producer.send_batch("orders", 0, b"", 1),
        lambda: producer.topic("orders"),
        producer.flush,
        producer.poll,
        lambda: consumer.poll(100),
        lambda: consumer.fetch(100),
        lambda: next(iter(consumer)),
        lambda: consumer.subscribe("orders"),
        lambda: consumer.assign([place]),
        lambda: consumer.commit({place: 0}),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"the (producer|consumer) has been closed"):
            call()


def test_a_producer_that_has_been_closed_waits_for_no_room(servers: str) -> None:
    """It waited a minute for what was under way, and said that there was no room."""
    producer = Producer(servers, buffer_bytes=0, linger_ms=60_000)
    producer.send("orders", b"lost")
    producer.close()
    with pytest.raises(ValueError, match="the producer has been closed"):
        producer.send("orders", b"value")
