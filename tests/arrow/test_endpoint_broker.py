"""The broker's Arrow endpoint: the rows of `read_arrow`, without a Kafka client."""

from __future__ import annotations

import json
import random
import socket
import time
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

import kafkalite
from api.raw import Connection
from arrow import slow_reader
from arrow.encoder import CODECS
from arrow.endpoint import client_source, connect, endpoint_of, frame, read, read_request
from arrow.test_read_log_isolation import a_history
from kafkalite._native import BatchBuilder
from kafkalite.client.admin import Admin
from kafkalite.client.network.cluster import Cluster
from kafkalite.spark.plan.endpoint import serves_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REMEDY = " (failOnDataLoss=false goes on with what there is)"

# The records are old: retention must not take them.
LISTENER = {"kafkalite.arrow.listener": "127.0.0.1:0", "log.retention.ms": "-1"}


@pytest.fixture(scope="module")
def broker() -> Iterator[kafkalite.Broker]:
    with kafkalite.Broker(config=LISTENER) as running:
        yield running


@pytest.fixture(scope="module")
def endpoint(broker: kafkalite.Broker) -> str:
    return endpoint_of(broker)


def produce(connection: Connection, topic: str, batches: int, records: int = 20) -> None:
    """Batches in every codec, with keys, tombstones and headers."""
    rng = random.Random(topic)
    assert connection.create_topic(topic).error_code == 0
    for number in range(batches):
        builder = BatchBuilder(list(CODECS)[number % len(CODECS)])
        for _ in range(records):
            key = rng.choice([None, b"", b"key"])
            value = rng.choice([None, b"", rng.randbytes(rng.randrange(200))])
            headers = [(b"h%d" % n, rng.choice([None, b"x"])) for n in range(rng.randrange(3))]
            builder.append(1_700_000_000_000 + number, key, value, headers)
        assert connection.produce(topic, builder.finish()).error_code == 0


def refusal(endpoint: str, **request: Any) -> str:
    with pytest.raises(OSError) as raised:
        read(endpoint, **request)
    return str(raised.value)


def test_the_example_of_the_page_reads_a_topic(connection: Connection, endpoint: str) -> None:
    produce(connection, "orders", 2)
    names: dict[str, Any] = {}
    exec(client_source().replace("127.0.0.1:9099", endpoint), names)  # noqa: S102 - our page
    assert names["table"].column_names == ["offset", "value"]
    assert names["table"]["offset"].to_pylist() == list(range(40))


def test_rows_are_those_of_read_arrow(
    broker: kafkalite.Broker, connection: Connection, endpoint: str
) -> None:
    produce(connection, "rows", 15)
    expected = kafkalite.read_arrow("rows", broker.bootstrap_servers).to_pyarrow()
    found = read(endpoint, topic="rows", partition=0)
    assert found.schema == expected.schema
    assert found.equals(expected)
    assert found.num_rows == 300
    assert len(set(found["key"].to_pylist()) | set(found["value"].to_pylist())) > 50
    for start, stop in [(0, 1), (7, 19), (19, 21), (150, 300), (299, 300), (300, 300), (5, 5)]:
        part = read(endpoint, topic="rows", partition=0, start=start, stop=stop)
        assert part.schema == expected.schema
        assert part.equals(expected.slice(start, stop - start)), (start, stop)
    columns = ["headers", "offset", "topic"]
    part = read(endpoint, topic="rows", partition=0, columns=columns, **{"batch.rows": 7})
    assert part.equals(expected.select(columns))
    assert max(len(chunk) for chunk in part["offset"].chunks) == 7


def test_one_connection_takes_request_after_request(connection: Connection, endpoint: str) -> None:
    produce(connection, "again", 3)
    with connect(endpoint) as client, client.makefile("rb") as answers:
        # Both at once: the second waits for the first answer's end.
        first = read_request("again", stop=25, columns=["offset"])
        client.sendall(first + read_request("again", start=25, columns=["offset"]))
        for offsets in (range(25), range(25, 60)):
            table = pyarrow.ipc.open_stream(answers).read_all()
            assert table["offset"].to_pylist() == list(offsets)


def test_what_there_is_not_is_refused_with_its_name_and_offsets(
    connection: Connection, endpoint: str
) -> None:
    produce(connection, "refused", 1)
    place: dict[str, Any] = {"topic": "refused", "partition": 0}
    for request, sentence in [
        ({"topic": "nothing", "partition": 0}, "there is no topic 'nothing'"),
        (
            {"topic": "refused", "partition": 3},
            "there is no partition refused-3: the topic has 1",
        ),
        (
            {**place, "start": 21},
            f"refused-0: offset 21 is not there, the log ends at 20{REMEDY}",
        ),
        (
            {**place, "stop": 21},
            f"refused-0: offset 21 is not there, the high watermark is 20{REMEDY}",
        ),
        (
            {**place, "stop": 21, "isolation": "read_committed"},
            f"refused-0: offset 21 is not there, the last stable offset is 20{REMEDY}",
        ),
        ({**place, "offset": 3}, "a read has no key 'offset'"),
        ({**place, "path": "/"}, "path: a broker reads its own logs only"),
        ({**place, "schema": "!"}, "schema is not base64"),
    ]:
        assert refusal(endpoint, **request) == sentence


def test_a_read_for_another_cluster_is_refused(
    broker: kafkalite.Broker, connection: Connection, endpoint: str
) -> None:
    """The port of a broker that is gone may be another's by now, with topics of the same names."""
    produce(connection, "of-this-cluster", 1)
    with Cluster(broker.bootstrap_servers) as cluster:
        cluster.refresh([])
        own = cluster.cluster_id
    place: dict[str, Any] = {"topic": "of-this-cluster", "partition": 0}
    assert read(endpoint, **place, **{"cluster.id": own}).num_rows == 20
    told = refusal(endpoint, **place, **{"cluster.id": "another"})
    assert told == f"this is the Arrow endpoint of cluster {own}, not of another"
    assert own is not None
    assert serves_cluster(endpoint, own)
    assert not serves_cluster(endpoint, "another")
    assert not serves_cluster(broker.bootstrap_servers, own)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    assert not serves_cluster(nobody, own)


def test_another_op_is_refused_and_the_connection_goes_on(
    connection: Connection, endpoint: str
) -> None:
    produce(connection, "goes-on", 1)
    with connect(endpoint) as client, client.makefile("rb") as answers:
        client.sendall(frame({"op": "latest", "options": {}}))
        length = int.from_bytes(answers.read(4), "big")
        assert b"a broker answers the ops read and cluster, not latest" in answers.read(length)
        client.sendall(read_request("goes-on"))
        assert pyarrow.ipc.open_stream(answers).read_all().num_rows == 20


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        (bytes(4), b"a request of 0 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", b"a request of 1195725856 bytes"),
        (frame(b"{"), b"it is not JSON"),
        (frame([]), b"it is not a JSON object"),
        (frame(b"[" * 10_000), b"recursion limit"),
        (frame({"topic": "t"}), b"it names no op"),
    ],
)
def test_what_is_no_request_is_told_so_and_closed(
    endpoint: str, sent: bytes, sentence: bytes
) -> None:
    with connect(endpoint) as client, client.makefile("rb") as answer:
        client.sendall(sent)
        told = answer.read()
    assert told[:4] == b"\xff" * 4
    assert int.from_bytes(told[4:8], "little") == len(told) - 8 + 1
    assert sentence in told


def test_committed_rows_are_those_of_a_consumer(tmp_path: Path) -> None:
    """The history is written under a stopped broker: it has no transactions of its own yet."""
    with kafkalite.Broker(tmp_path, config=LISTENER) as broker:
        for number in range(4):
            with Connection(broker.bootstrap_servers) as connection:
                assert connection.create_topic(f"history-{number}").error_code == 0
        broker.stop()
        for number in range(4):
            directory = tmp_path / f"history-{number}-0"
            for path in directory.iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
            a_history(directory, number, ends=number % 2 == 0)
        (tmp_path / ".kafka_cleanshutdown").unlink()
        broker.start()
        endpoint = endpoint_of(broker)
        for number in range(4):
            topic = f"history-{number}"
            expected = slow_reader.read(tmp_path / f"{topic}-0", committed=True)
            assert expected
            found = read(endpoint, topic=topic, partition=0, isolation="read_committed")
            offsets = [row["offset"] for row in expected]
            assert found["offset"].to_pylist() == offsets
            assert found["value"].to_pylist() == [row["value"] for row in expected]
            assert read(endpoint, topic=topic, partition=0).num_rows > len(offsets)
            for start in range(0, offsets[-1], 41):
                part = read(
                    endpoint,
                    topic=topic,
                    partition=0,
                    start=start,
                    stop=offsets[-1],
                    isolation="read_committed",
                    columns=["offset"],
                )
                wanted = [offset for offset in offsets[:-1] if offset >= start]
                assert part["offset"].to_pylist() == wanted


def test_records_deleted_under_a_read_end_it_with_a_sentence(
    broker: kafkalite.Broker, connection: Connection, endpoint: str
) -> None:
    told = _read_slowly(connection, endpoint, "shrinks", lambda admin: _empty(admin, "shrinks"))
    assert b"was deleted while it was being read: the log starts at " in told
    told = _read_slowly(connection, endpoint, "goes", lambda admin: admin.delete_topics(["goes"]))
    assert told.endswith(b"goes-0 was deleted while it was being read" + REMEDY.encode())
    with Admin(broker.bootstrap_servers) as admin:
        assert admin.cluster.topic("shrinks").partitions


def test_what_a_read_skips_is_told_once(
    broker: kafkalite.Broker, connection: Connection, endpoint: str
) -> None:
    produce(connection, "skipped", 2)
    with Admin(broker.bootstrap_servers) as admin:
        admin.delete_records({("skipped", 0): 15})
    gone = "skipped-0: offset 3 is no longer there, the log starts at 15"
    with connect(endpoint) as client, client.makefile("rb") as answers:
        for start, stop, sentences in [
            (15, 40, []),
            (3, 12, [f"{gone} (offsets gone: 9)"]),
            (3, 40, [f"{gone} (offsets gone: 12)"]),
            (20, 41, ["skipped-0: offset 41 is not there, the high watermark is 40"]),
        ]:
            wanted = {"start": start, "stop": stop, "fail.on.data.loss": False}
            client.sendall(read_request("skipped", **wanted) + frame({"op": "losses"}))
            stream = pyarrow.ipc.open_stream(answers)
            metadata = stream.schema.metadata or {b"losses": b"[]"}
            assert json.loads(metadata[b"losses"]) == sentences
            found = stream.read_all()["offset"].to_pylist()
            assert found == list(range(max(start, 15), min(stop, 40)))
            length = int.from_bytes(answers.read(4), "big")
            assert json.loads(answers.read(length)) == {"losses": []}


def _empty(admin: Admin, topic: str) -> None:
    assert admin.delete_records({(topic, 0): -1})


def _read_slowly(connection: Connection, endpoint: str, topic: str, change: Any) -> bytes:
    """What is sent of a large read in all, if something happens before the client takes it."""
    assert connection.create_topic(topic).error_code == 0
    builder = BatchBuilder()
    for _ in range(100):
        builder.append(1, None, bytes(10_000))
    records = builder.finish()
    for _ in range(40):
        assert connection.produce(topic, records).error_code == 0
    host, port = connection.socket.getpeername()
    with connect(endpoint) as client, Admin(f"{host}:{port}") as admin:
        client.sendall(read_request(topic, **{"batch.bytes": 100_000}))
        first = client.recv(1)
        change(admin)
        with client.makefile("rb") as answer:
            return first + answer.read()


def test_a_broker_that_stops_ends_a_read_with_a_sentence(tmp_path: Path) -> None:
    with kafkalite.Broker(tmp_path, config=LISTENER) as broker:
        endpoint = endpoint_of(broker)
        with Connection(broker.bootstrap_servers) as connection:
            told = _read_slowly(connection, endpoint, "t", lambda _: _stop_while_reading(broker))
        assert told.endswith(b"the Arrow endpoint is stopping")


def _stop_while_reading(broker: kafkalite.Broker) -> None:
    import os
    import signal

    os.kill(broker.pid, signal.SIGTERM)


def test_a_client_that_does_not_read_delays_neither_others_nor_the_stop() -> None:
    with kafkalite.Broker(config=LISTENER) as broker:
        endpoint = endpoint_of(broker)
        with Connection(broker.bootstrap_servers) as connection:
            produce(connection, "small", 1)
            assert connection.create_topic("large").error_code == 0
            builder = BatchBuilder()
            builder.append(1, None, bytes(900_000))
            records = builder.finish()
            for _ in range(60):
                assert connection.produce("large", records).error_code == 0
            with connect(endpoint) as silent, connect(endpoint) as half:
                silent.sendall(read_request("large"))
                half.sendall(b"\0\0")
                assert silent.recv(1)
                assert read(endpoint, topic="small", partition=0).num_rows == 20
                assert connection.produce("small", records).error_code == 0
                started = time.monotonic()
                assert broker.stop() == 0
                assert time.monotonic() - started < 20


def test_an_address_beyond_loopback_is_refused(tmp_path: Path) -> None:
    for text, sentence in [
        ("0.0.0.0:0", "kafkalite.arrow.listener=0.0.0.0:0 is open to other machines"),
        ("9099", "kafkalite.arrow.listener: 9099 is not of the form HOST:PORT"),
    ]:
        broker = kafkalite.Broker(tmp_path, config={"kafkalite.arrow.listener": text})
        with pytest.raises(kafkalite.KafkaliteError, match=sentence):
            broker.start()


def test_without_the_key_there_is_no_endpoint() -> None:
    with kafkalite.Broker() as broker:
        assert endpoint_of(broker) == "None"
        assert "Arrow endpoint" not in broker.log_tail()
