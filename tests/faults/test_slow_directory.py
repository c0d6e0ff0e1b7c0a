"""A log directory that does not answer stalls its own partitions, and nothing else.

One broker with two log directories, the second on an ext4 of its own, which is frozen (FIFREEZE)
while clients go on. With one network thread: whoever waits in a call would hold everything.
"""

import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import kafkalite
from api.batches import batch, values_of
from api.raw import Connection
from faults.directories import PROMPT_S, partitions_by_directory, two_directories
from faults.mount import Mount
from kafkalite.protocol import codes, messages


def test_a_frozen_directory_stalls_its_own_partitions_only(
    two: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    stalled, going = partitions_by_directory(two, slow, tmp_path / "quick")
    servers = two.bootstrap_servers
    with Connection(servers) as seed:
        assert seed.produce(stalled, batch([b"before"]), acks=1).error_code == 0
    slow.freeze()
    try:
        waiting = [Connection(servers) for _ in range(3)]
        sent = []
        for number, connection in enumerate(waiting):
            request = connection.produce_request(stalled, batch([b"during-%d" % number]), acks=1)
            request.timeout_ms = 60_000
            sent.append(connection.send(0, 9, request.encode(9)))
        for number in range(50):
            with Connection(servers) as connection:
                connection.socket.settimeout(PROMPT_S)
                assert connection.produce(going, batch([b"x"])).base_offset == number
                fetched = connection.fetch(going, number)
                assert values_of(fetched.records) == [(number, b"x")]
                assert connection.list_offsets(going, -1).offset == number + 1
                connection.ask("Metadata", 9, messages.MetadataRequest(topics=None))
                connection.ask("ApiVersions", 0, messages.ApiVersionsRequest())
        # What is in the page cache of the frozen directory can be read.
        with Connection(servers) as connection:
            connection.socket.settimeout(PROMPT_S)
            assert values_of(connection.fetch(stalled, 0).records)[0] == (0, b"before")
    finally:
        slow.thaw()
    offsets = []
    for connection, correlation_id in zip(waiting, sent, strict=True):
        answer = connection.receive(0, 9, correlation_id).responses[0].partition_responses[0]
        assert answer.error_code == 0
        offsets.append(answer.base_offset)
        connection.socket.close()
    assert sorted(offsets) == [1, 2, 3]
    # And everything is as before.
    with Connection(servers) as connection:
        assert connection.produce(stalled, batch([b"after"])).base_offset == 4


def test_a_freeze_under_a_lone_producer_stalls_nobody_else(
    two: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    """With one producer alone the network thread makes its records durable itself."""
    stalled, going = partitions_by_directory(two, slow, tmp_path / "quick")
    with Connection(two.bootstrap_servers) as producer:
        alone_until = time.monotonic() + 0.5
        end = 0
        while time.monotonic() < alone_until:
            assert producer.produce(stalled, batch([b"x"])).base_offset == end
            end += 1
        for _ in range(3):
            slow.freeze()
            try:
                request = producer.produce_request(stalled, batch([b"during"]))
                request.timeout_ms = 60_000
                sent = producer.send(0, 9, request.encode(9))
                with Connection(two.bootstrap_servers) as other:
                    other.socket.settimeout(PROMPT_S)
                    assert other.produce(going, batch([b"y"])).error_code == 0
            finally:
                slow.thaw()
            answer = producer.receive(0, 9, sent).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, end)
            end += 1
        assert producer.list_offsets(stalled, -1).offset == end


def test_pipelined_requests_keep_their_order_through_a_freeze(
    two: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    stalled, _ = partitions_by_directory(two, slow, tmp_path / "quick")
    with Connection(two.bootstrap_servers) as connection:
        sent = []

        def send(count: int) -> None:
            for _ in range(count):
                number = len(sent)
                request = connection.produce_request(stalled, batch([b"%d" % number]), acks=1)
                request.timeout_ms = 60_000
                sent.append(connection.send(0, 9, request.encode(9)))

        send(20)
        slow.freeze()
        thaw = threading.Timer(1.0, slow.thaw)
        thaw.start()
        send(60)
        thaw.join()
        send(20)
        for number, correlation_id in enumerate(sent):
            response = connection.receive(0, 9, correlation_id)
            answer = response.responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, number)
        records = b""
        while len(found := values_of(records)) < len(sent):
            records += connection.fetch(stalled, len(found)).records
        assert found == [(number, b"%d" % number) for number in range(len(sent))]


def test_an_append_that_returns_beside_reads_lets_the_next_ones_through(
    two: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    """A thread whose append came back took the reactor that another had left for a read; the frozen
    directory then counted as frozen for ever, and no Produce request to it was answered again."""
    stalled, going = partitions_by_directory(two, slow, tmp_path / "quick")
    servers = two.bootstrap_servers
    with Connection(servers) as seed:
        assert seed.produce(going, batch([bytes(900_000)])).error_code == 0
    is_over = threading.Event()

    def read() -> None:
        with Connection(servers) as connection:
            while not is_over.is_set():
                connection.fetch(going, 0)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        with Connection(servers) as connection:
            connection.socket.settimeout(60)
            for number in range(30):
                slow.freeze()
                thaw = threading.Timer(0.06, slow.thaw)
                thaw.start()
                answer = connection.produce(stalled, batch([b"x"]), acks=1)
                thaw.join()
                assert (answer.error_code, answer.base_offset) == (0, number)
    finally:
        is_over.set()
        for reader in readers:
            reader.join()


@pytest.mark.long
def test_a_producer_that_waits_behind_a_freeze_is_not_closed_and_fills_half_of_the_memory(
    slow: Mount, tmp_path: Path
) -> None:
    """Without answers to wait for, its next frame looked like one that a client does not finish,
    and it was closed for that after ten seconds. Meanwhile there was no memory for anybody."""
    config = {
        **two_directories(slow, tmp_path / "quick"),
        "queued.max.request.bytes": "1000000",
    }
    with kafkalite.Broker(config=config) as broker:
        stalled, going = partitions_by_directory(broker, slow, tmp_path / "quick")
        with Connection(broker.bootstrap_servers) as producer:
            count = 40
            request = producer.produce_request(stalled, batch([bytes(100_000)]), acks=0)
            body = request.encode(9)
            slow.freeze()
            try:
                sender = threading.Thread(
                    target=lambda: [producer.send(0, 9, body) for _ in range(count)]
                )
                sender.start()
                until = time.monotonic() + 14
                with Connection(broker.bootstrap_servers) as other:
                    other.socket.settimeout(PROMPT_S)
                    while time.monotonic() < until:
                        assert other.produce(going, batch([bytes(200_000)])).error_code == 0
                        sender.join(0.05)
            finally:
                slow.thaw()
            sender.join()
            # Behind all of them, and asked for by the same client: it is still there.
            assert producer.produce(stalled, batch([b"x"])).base_offset == count


@pytest.mark.long
def test_requests_that_wait_for_a_frozen_directory_are_let_go_when_their_clients_are_gone(
    slow: Mount, tmp_path: Path
) -> None:
    """From half of the memory on they are not begun, and nobody missed their clients: a producer
    that gave up and came back again and again filled the memory, and `max.connections`."""
    config = {
        **two_directories(slow, tmp_path / "quick"),
        "queued.max.request.bytes": "1000000",
    }
    with kafkalite.Broker(config=config) as broker:
        stalled, going = partitions_by_directory(broker, slow, tmp_path / "quick")
        with Connection(broker.bootstrap_servers) as other:
            other.socket.settimeout(PROMPT_S)
            process = psutil.Process(broker.pid)
            ask = messages.MetadataRequest(topics=[])
            assert other.ask("Metadata", 9, ask).brokers
            connections = len(process.net_connections("tcp"))
            slow.freeze()
            try:
                for _ in range(12):
                    with Connection(broker.bootstrap_servers) as gone:
                        request = gone.produce_request(stalled, batch([bytes(100_000)]), acks=1)
                        request.timeout_ms = 600_000
                        gone.send(0, 9, request.encode(9))
                        # So that the broker has it before its client goes.
                        assert other.ask("Metadata", 9, ask).brokers
                began = time.monotonic()
                while len(process.net_connections("tcp")) > connections:
                    assert time.monotonic() - began < 3 * PROMPT_S
                    time.sleep(0.1)  # between polls of the system
                assert other.produce(going, batch([bytes(200_000)])).error_code == 0
            finally:
                slow.thaw()


def test_epochs_are_told_while_their_file_cannot_be_written(
    two: kafkalite.Broker, slow: Mount, tmp_path: Path
) -> None:
    """The first append after a start notes the leader's epoch, and held its lock for as long as the
    file took: whoever asked for the log's epochs waited with it."""
    stalled, going = partitions_by_directory(two, slow, tmp_path / "quick")
    for topic in (stalled, going):
        with Connection(two.bootstrap_servers) as seed:
            assert seed.produce(topic, batch([b"before"])).error_code == 0
    assert two.stop() == 0
    two.start()
    slow.freeze()
    try:
        with (
            Connection(two.bootstrap_servers) as waiting,
            Connection(two.bootstrap_servers) as other,
        ):
            request = waiting.produce_request(stalled, batch([b"during"]), acks=1)
            waiting.send(0, 9, request.encode(9))
            other.socket.settimeout(PROMPT_S)
            for _ in range(20):
                assert other.list_offsets(stalled, -2).offset == 0
                assert other.fetch(going, 0).error_code == 0
    finally:
        slow.thaw()
    with Connection(two.bootstrap_servers) as connection:
        connection.socket.settimeout(PROMPT_S)
        while connection.list_offsets(stalled, -1).offset < 2:
            pass


@pytest.mark.parametrize("has_append", [False, True], ids=["idle", "appending"])
def test_what_python_asks_of_a_frozen_log_times_out_and_holds_nobody_up(
    slow: Mount, tmp_path: Path, has_append: bool
) -> None:
    """DeleteRecords and DescribeProducers waited for the log in the one thread of Python, which
    answered nothing any more: no group, no topic, no heartbeat."""
    with kafkalite.Broker(config=two_directories(slow, tmp_path / "quick")) as broker:
        stalled, going = partitions_by_directory(broker, slow, tmp_path / "quick")
        with (
            Connection(broker.bootstrap_servers) as producer,
            Connection(broker.bootstrap_servers) as deleter,
            Connection(broker.bootstrap_servers) as describer,
            Connection(broker.bootstrap_servers) as other,
        ):
            for topic in (stalled, going):
                assert producer.produce(topic, batch([b"x"])).error_code == 0
            for connection in (deleter, describer, other):
                connection.socket.settimeout(PROMPT_S)
            slow.freeze()
            try:
                if has_append:
                    request = producer.produce_request(stalled, batch([b"y"]), acks=1)
                    request.timeout_ms = 60_000
                    append = producer.send(0, 9, request.encode(9))
                request = delete_request(stalled, 1, timeout_ms=1)
                deleted = deleter.send(21, 2, request.encode(2))
                described = describer.send(61, 0, producers_request(stalled, going).encode(0))
                for _ in range(20):
                    other.ask("DescribeCluster", 1, messages.DescribeClusterRequest())
                gone = other.ask("DeleteRecords", 2, delete_request(going, 1))
                assert gone.topics[0].partitions[0].error_code == 0
                assert ask_for_producers(other, going) == [0]
                late = deleter.receive(21, 2, deleted).topics[0].partitions[0]
                assert late.error_code == codes.REQUEST_TIMED_OUT
                found = producer_codes(describer.receive(61, 0, described))
                assert found == [codes.REQUEST_TIMED_OUT, 0]
            finally:
                slow.thaw()
            if has_append:
                answer = producer.receive(0, 9, append).responses[0].partition_responses[0]
                assert answer.error_code == 0
            # In the order in which it was asked.
            again = other.ask("DeleteRecords", 2, delete_request(stalled, 0))
            assert again.topics[0].partitions[0].low_watermark == 1
            assert ask_for_producers(other, stalled) == [0]


def test_a_stop_answers_who_asks_a_frozen_log(slow: Mount, tmp_path: Path) -> None:
    """It waited for them for five seconds, and then closed their connections without an answer."""
    with kafkalite.Broker(config=two_directories(slow, tmp_path / "quick")) as broker:
        stalled, _ = partitions_by_directory(broker, slow, tmp_path / "quick")
        with (
            Connection(broker.bootstrap_servers) as deleter,
            Connection(broker.bootstrap_servers) as other,
        ):
            assert deleter.produce(stalled, batch([b"x"])).error_code == 0
            deleter.socket.settimeout(PROMPT_S)
            stop = threading.Thread(target=broker.stop)
            slow.freeze()
            try:
                sent = deleter.send(21, 2, delete_request(stalled, 1).encode(2))
                # Whoever asks after it is refused as soon as the log is known to be stuck.
                began = time.monotonic()
                while ask_for_producers(other, stalled) != [codes.REQUEST_TIMED_OUT]:
                    assert time.monotonic() - began < PROMPT_S
                stop.start()
                row = deleter.receive(21, 2, sent).topics[0].partitions[0]
                assert row.error_code == codes.REQUEST_TIMED_OUT
            finally:
                slow.thaw()
                if stop.ident is not None:
                    stop.join()


def test_new_topics_do_not_go_into_a_directory_that_does_not_answer(
    slow: Mount, tmp_path: Path
) -> None:
    """The one thread of Python waited there until the thaw, and every group with it."""
    quick = tmp_path / "quick"
    with kafkalite.Broker(config=two_directories(slow, quick)) as broker:
        stalled, going = partitions_by_directory(broker, slow, quick)
        with (
            Connection(broker.bootstrap_servers) as producer,
            Connection(broker.bootstrap_servers) as other,
        ):
            other.socket.settimeout(PROMPT_S)
            slow.freeze()
            try:
                request = producer.produce_request(stalled, batch([b"x"]), acks=1)
                request.timeout_ms = 60_000
                append = producer.send(0, 9, request.encode(9))
                # Two seconds each, more in all than it takes to count as silent.
                for _ in range(3):
                    assert ask_for_producers(other, stalled) == [codes.REQUEST_TIMED_OUT]
                for number in range(4):
                    assert other.create_topic(f"new-{number}", partitions=2).error_code == 0
                assert other.produce(going, batch([b"y"])).error_code == 0
            finally:
                slow.thaw()
            assert len(list(quick.glob("new-*"))) == 8
            answer = producer.receive(0, 9, append).responses[0].partition_responses[0]
            assert answer.error_code == 0
            # It counts again.
            while not list((slow.path / "logs").glob("more-*")):
                number = len(list(quick.glob("more-*")))
                assert number < 100
                assert other.create_topic(f"more-{number}").error_code == 0


def delete_request(topic: str, offset: int, timeout_ms: int = 60_000) -> Any:
    kind = messages.DeleteRecordsRequest
    partition = kind.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=0, offset=offset)
    named = kind.DeleteRecordsTopic(name=topic, partitions=[partition])
    return kind(topics=[named], timeout_ms=timeout_ms)


def producers_request(*topics: str) -> Any:
    kind = messages.DescribeProducersRequest
    return kind(topics=[kind.TopicRequest(name=topic, partition_indexes=[0]) for topic in topics])


def producer_codes(response: Any) -> list[int]:
    return [topic.partitions[0].error_code for topic in response.topics]


def ask_for_producers(connection: Connection, topic: str) -> list[int]:
    """The error code."""
    return producer_codes(connection.ask("DescribeProducers", 0, producers_request(topic)))


def test_a_topic_whose_log_cannot_be_deleted_is_made_anew_in_another_directory(
    slow: Mount, tmp_path: Path
) -> None:
    """The new topic got the log of the old one, with its old id: the next start called it stray,
    and acknowledged records were gone."""
    with kafkalite.Broker(config=two_directories(slow, tmp_path / "quick")) as broker:
        topic, _ = partitions_by_directory(broker, slow, tmp_path / "quick")
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.produce(topic, batch([b"old"])).error_code == 0
            slow.pin(slow.path / "logs" / f"{topic}-0")
            delete = messages.DeleteTopicsRequest(topic_names=[topic], timeout_ms=5_000)
            deleted = connection.ask("DeleteTopics", 5, delete).responses
            assert [each.error_code for each in deleted] == [0]
            directories = connection.ask("DescribeLogDirs", 4, messages.DescribeLogDirsRequest())
            failed = {each.log_dir for each in directories.results if each.error_code}
            assert failed == {str(slow.path / "logs")}
            assert connection.create_topic(topic).error_code == 0
            for number in range(3):
                assert connection.produce(topic, batch([b"new"])).base_offset == number
        broker.kill()
        slow.unpin(slow.path / "logs" / f"{topic}-0")
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            found = values_of(connection.fetch(topic, 0).records)
            assert found == [(number, b"new") for number in range(3)]


@pytest.mark.long
def test_a_stop_waits_for_a_frozen_directory_and_loses_nothing(slow: Mount, tmp_path: Path) -> None:
    config = two_directories(slow, tmp_path / "quick")
    with kafkalite.Broker(config=config) as broker:
        stalled, _ = partitions_by_directory(broker, slow, tmp_path / "quick")
        slow.freeze()
        thaw = threading.Timer(8.0, slow.thaw)
        thaw.start()
        with Connection(broker.bootstrap_servers) as connection:
            request = connection.produce_request(stalled, batch([b"x"]), acks=1)
            connection.send(0, 9, request.encode(9))
            with Connection(broker.bootstrap_servers) as other:
                other.ask("ApiVersions", 0, messages.ApiVersionsRequest())
            assert broker.stop() == 0
        thaw.join()
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            assert values_of(connection.fetch(stalled, 0).records) == [(0, b"x")]
