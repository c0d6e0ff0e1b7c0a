"""`kafkalite.metrics.listener`: what Prometheus is told, and what it costs the others."""

import contextlib
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import kafkalite
from api.batches import batch
from api.group_requests import stable_member
from api.raw import Connection
from kafkalite._native import BrokerCore
from kafkalite.client import Admin
from kafkalite.service import metrics, metrics_server

LISTENER = {"kafkalite.metrics.listener": "127.0.0.1:0"}
TIMEOUT_S = 60


def url_of(broker: kafkalite.Broker) -> str:
    """Where the metrics are, as DescribeConfigs tells."""
    with Admin(broker.bootstrap_servers) as admin:
        described = admin.describe_configs(4, "1")
    (where,) = (each.value for each in described if each.name == "kafkalite.metrics.listener")
    return f"http://{where}/metrics"


class Scrape:
    """One answer, read by Prometheus' own parser."""

    def __init__(self, url: str) -> None:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            assert answer.headers["Content-Type"] == metrics.CONTENT_TYPE
            self.text = answer.read().decode()
        self.families = list(text_string_to_metric_families(self.text))

    def value(self, name: str, **labels: str) -> float:
        """Of the one sample that is called so and has these labels."""
        samples = (sample for family in self.families for sample in family.samples)
        (found,) = (each.value for each in samples if (each.name, each.labels) == (name, labels))
        return found


@pytest.fixture(scope="module")
def broker() -> Iterator[kafkalite.Broker]:
    with kafkalite.Broker(config=LISTENER) as running:
        yield running


@pytest.fixture(scope="module")
def url(broker: kafkalite.Broker) -> str:
    return url_of(broker)


def test_without_the_key_there_are_no_metrics_and_nothing_is_imported_for_them() -> None:
    with kafkalite.Broker() as broker:
        assert url_of(broker) == "http://None/metrics"
        assert "metrics" not in broker.log_tail()


def test_every_metric_is_told_once_with_its_kind_and_what_it_means(
    url: str, connection: Connection
) -> None:
    assert connection.create_topic("told").error_code == 0
    scrape = Scrape(url)
    rows = [each for each in vars(metrics).values() if isinstance(each, metrics.Metric)]
    rows += [*metrics.COUNTS.values(), *metrics.GROUPS_BY_STATE.values()]
    rows.remove(metrics.LAG)  # of partitions that follow a leader (tests/replication)
    told = {family.name: family for family in scrape.families}
    assert len(told) == len(scrape.families) == len(rows)
    for row in rows:
        # The parser takes the suffix of a counter for no part of its name.
        assert row.name.endswith("_total") == (row.kind == "counter")
        family = told[row.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (row.kind, row.doc)
        assert family.samples, row.name


def test_counts_of_records_bytes_and_requests_are_those_of_the_clients(
    url: str, connection: Connection
) -> None:
    assert connection.create_topic("counted").error_code == 0
    before = Scrape(url)
    topic = {"topic": "counted"}
    records = batch([b"a", b"b", b"c"])
    for _ in range(2):
        assert connection.produce("counted", records).error_code == 0
    assert len(connection.fetch("counted", 3).records) == len(records)
    after = Scrape(url)

    def more(name: str, **labels: str) -> float:
        return after.value(name, **labels) - before.value(name, **labels)

    assert more("kafka_server_brokertopicmetrics_messagesin_total", **topic) == 6
    assert more("kafka_server_brokertopicmetrics_bytesin_total", **topic) == 2 * len(records)
    assert more("kafka_server_brokertopicmetrics_bytesout_total", **topic) == len(records)
    assert after.value("kafka_log_log_logendoffset", partition="0", **topic) == 6
    assert after.value("kafka_log_log_logstartoffset", partition="0", **topic) == 0
    assert after.value("kafka_log_log_size", partition="0", **topic) == 2 * len(records)
    assert after.value("kafka_log_log_numlogsegments", partition="0", **topic) == 1
    requests = "kafka_network_requestmetrics_requests_total"
    assert after.value(requests, request="Produce") >= 2
    assert after.value(requests, request="Fetch") >= 1
    assert after.value(requests, request="CreateTopics") >= 1
    assert more("kafkalite_network_received_bytes_total") > 2 * len(records)
    assert more("kafkalite_network_sent_bytes_total") > len(records)


def test_gauges_say_how_the_node_is_now(
    url: str, broker: kafkalite.Broker, connection: Connection
) -> None:
    assert connection.create_topic("wide", partitions=3).error_code == 0
    stable_member(connection, "a-group")
    before = Scrape(url)
    with Connection(broker.bootstrap_servers) as another:
        fetch = another.fetch_request("wide", 0, max_wait_ms=30_000)
        another.send(1, 12, fetch.encode(12))
        deadline = time.monotonic() + TIMEOUT_S
        waiting = "kafka_server_delayedoperationpurgatory_purgatorysize"
        while Scrape(url).value(waiting, delayedOperation="Fetch") < 1:
            assert time.monotonic() < deadline
        now = Scrape(url)
    count = "kafka_server_socket_server_metrics_connection_count"
    assert now.value(count) == before.value(count) + 1
    controller = "kafka_controller_kafkacontroller"
    assert now.value(f"{controller}_activecontrollercount") == 1
    assert now.value(f"{controller}_globaltopiccount") >= 2
    partitions = now.value(f"{controller}_globalpartitioncount")
    assert partitions == sum("logendoffset{" in line for line in now.text.splitlines())
    assert now.value(f"{controller}_offlinepartitionscount") == 0
    assert now.value("kafka_server_replicamanager_partitioncount") == partitions
    assert now.value("kafka_server_replicamanager_offlinereplicacount") == 0
    groups = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    assert now.value(groups) == now.value(f"{groups}stable") == 1
    assert now.value("kafkalite_build_info", version=kafkalite.__version__) == 1
    assert now.value("process_resident_memory_bytes") > 1_000_000
    assert 0 < now.value("process_open_fds") < now.value("process_max_fds")
    assert abs(now.value("process_start_time_seconds") - time.time()) < 3600


def test_the_hot_keys_have_names() -> None:
    names = BrokerCore.native_keys()
    assert {names[0], names[1], names[18]} == {"Produce", "Fetch", "ApiVersions"}
    assert all(names.values())


def test_labels_hold_any_path() -> None:
    row = metrics.Metric("a", "gauge", "Some.")
    path = 'a\\b"c\nd'
    (family,) = text_string_to_metric_families(
        metrics.page([(row, [((("log_dir", path),), 0.5)])]).decode()
    )
    (sample,) = family.samples
    assert (sample.labels, sample.value) == ({"log_dir": path}, 0.5)
    no_text = os.fsdecode(b"/data/\xff")
    assert b'"/data/?"' in metrics.page([(row, [((("log_dir", no_text),), 1)])])


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /metrics HTTP/1.1", b"200"),
        (b"GET /metrics?x=1 HTTP/1.0", b"200"),
        (b"GET / HTTP/1.1", b"404"),
        (b"POST /metrics HTTP/1.1", b"400"),
        (b"\x16\x03\x01\x02\x00", b"400"),
        (b"GET", b"400"),
    ],
)
def test_other_requests_are_told_what_there_is(
    url: str, request_line: bytes, status: bytes
) -> None:
    with connect(url) as client:
        client.sendall(request_line + b"\r\nHost: x\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").removesuffix("/metrics").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def test_a_request_without_an_end_is_closed(url: str) -> None:
    with connect(url) as client:
        client.sendall(
            b"GET /metrics HTTP/1.1\r\nCookie: " + b"x" * 2 * metrics_server.REQUEST_BYTES_MAX
        )
        with contextlib.suppress(ConnectionResetError):  # it had not read all when it closed
            assert client.recv(65536).startswith(b"HTTP/1.1 400")
    assert Scrape(url).families


def test_a_client_that_says_nothing_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    with kafkalite.Broker(tmp_path / "data", config=LISTENER) as broker:
        with connect(url_of(broker)) as silent, connect(url_of(broker)):
            silent.sendall(b"GET /met")
            begun = time.monotonic()
            assert broker.stop() == 0
            # It would be held for as long as the client may take.
            assert time.monotonic() - begun < metrics_server.CLIENT_S
        # The port stays over a restart.
        broker.start()
        assert Scrape(url_of(broker)).families


def test_clients_that_say_or_read_nothing_hold_up_no_scrape() -> None:
    """Three connections without a request kept Prometheus waiting for half a minute."""
    content = b"x" * 8_000_000  # more than the buffers of two sockets hold
    listener = socket.create_server(("127.0.0.1", 0))
    where = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
    endpoint = metrics_server.MetricsServer(listener, lambda: content, print)
    endpoint.start()
    with contextlib.ExitStack() as open_until_then:

        def connected() -> socket.socket:
            return open_until_then.enter_context(connect(where))

        def scraped() -> bytes:
            with urllib.request.urlopen(where, timeout=TIMEOUT_S) as answer:
                return bytes(answer.read())

        begun = time.monotonic()
        silent = [connected() for _ in range(3)]
        silent[0].sendall(b"GET /met")
        readers = [connected() for _ in range(2 * metrics_server.PAGES_MAX)]
        for each in readers:
            each.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert scraped() == content
        # So soon it would not be the turn of another, one after the other.
        assert time.monotonic() - begun < metrics_server.CLIENT_S
        silent += [connected() for _ in range(metrics_server.CLIENTS_MAX)]
        assert scraped() == content
        # What is beyond the limits was closed, beginning with the oldest.
        assert silent[0].recv(1) == b""
        endpoint.stop()


def test_a_broker_whose_directory_is_offline_tells_so(tmp_path: Path) -> None:
    """No partition of it is told, and the page is whole."""
    (tmp_path / "two").write_text("no directory")
    config = {**LISTENER, "log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
    with kafkalite.Broker(config=config) as broker:
        scrape = Scrape(url_of(broker))
        assert scrape.value("kafka_log_logmanager_offlinelogdirectorycount") == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0.0.0.0:0", "the listener 0.0.0.0:0 is open to other machines and has no authentication"),
        ("9404", "kafkalite.metrics.listener: 9404 is not of the form HOST:PORT"),
    ],
)
def test_an_address_that_cannot_be_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    broker = kafkalite.Broker(tmp_path, config={"kafkalite.metrics.listener": text})
    with pytest.raises(kafkalite.KafkaliteError, match=sentence):
        broker.start()


def test_other_machines_may_ask_where_that_is_allowed() -> None:
    config = {
        "kafkalite.metrics.listener": "0.0.0.0:0",
        "kafkalite.allow.unauthenticated": "true",
    }
    with kafkalite.Broker(config=config) as broker:
        assert Scrape(url_of(broker)).families


def test_a_page_that_fails_is_an_error_of_that_scrape_only() -> None:
    told: list[str] = []
    pages: Iterator[bytes] = iter([b"good\n"])
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    endpoint = metrics_server.MetricsServer(listener, lambda: next(pages), told.append)
    endpoint.start()
    where = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(where, timeout=TIMEOUT_S) as answer:
        assert answer.read() == b"good\n"
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(where, timeout=TIMEOUT_S)
        assert failed.value.code == 500
        failed.value.close()
    endpoint.stop()
    assert told == ["metrics: StopIteration: "] * 2
