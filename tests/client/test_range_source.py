"""Fetching a range for Arrow: every layout of the answer, and what brokers do in the middle."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest

import kafkalite
from client.fake import Close, FakeBroker, Request, frame
from kafkalite._native import BatchBuilder, message_versions, read_fetched
from kafkalite.client import Admin, Connection
from kafkalite.client.arrow import range_source
from kafkalite.client.arrow.range_source import FetchSettings, RangeSource
from kafkalite.errors import (
    BrokerError,
    ConnectionFailedError,
    LogDeletedError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
)
from kafkalite.protocol import messages
from kafkalite.protocol.codes import FENCED_LEADER_EPOCH

SETTINGS = FetchSettings(fetch_wait_ms=0, request_timeout_ms=30_000, poll_timeout_ms=60_000)
OUT_OF_RANGE, NOT_LEADER, TOPIC_AUTHORIZATION_FAILED = 1, 6, 29


def batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder(base_offset=base_offset)
    for number in range(count):
        builder.append(0, None, b"v%d" % (base_offset + number))
    return builder.finish()


def fetched(records: bytes, *, error_code: int = 0, end: int = 100, aborted: Any = None) -> Any:
    kind = messages.FetchResponse
    row = kind.FetchableTopicResponse.PartitionData(
        partition_index=0,
        error_code=error_code,
        high_watermark=end,
        last_stable_offset=end,
        aborted_transactions=aborted,
        records=records,
    )
    return kind(responses=[kind.FetchableTopicResponse(topic="orders", partitions=[row])])


def ten_by_ten(name: str, request: Request) -> Any:
    """A log of offsets 0 to 99 in batches of ten, one an answer."""
    if name != "Fetch":
        return ...
    offset = request.message.topics[0].partitions[0].fetch_offset
    return fetched(batch(offset // 10 * 10, 10))


def read(
    handler: Callable[[str, Request], Any],
    *ranges: tuple[int, int],
    settings: FetchSettings = SETTINGS,
    versions: dict[str, tuple[int, int]] | None = None,
    losses: list[str] | None = None,
) -> tuple[list[int], FakeBroker]:
    """The offsets that come, as far as Rust would show them."""
    found: list[int] = []
    with FakeBroker(handler, versions=versions) as broker:
        wanted = [("orders", 0, start, stop) for start, stop in ranges]
        on_loss = None if losses is None else losses.append
        with RangeSource(broker.servers, wanted, settings, on_loss) as source:
            while (chunk := source.next_chunk()) is not None:
                _, _, records, start, stop, aborted = chunk
                rows, _ = read_fetched(records, start, aborted)
                found += [row[0] for row in rows if row[0] < stop]
    return found, broker


@pytest.mark.parametrize("version", range(4, 12))
def test_every_layout_of_the_answer_is_read(version: int) -> None:
    found, broker = read(ten_by_ten, (3, 57), versions={"Fetch": (4, version)})
    assert found == list(range(3, 57))
    assert {request.version for request in broker.seen if request.name == "Fetch"} == {version}


@pytest.mark.parametrize(("version", "told"), [(8, {-1}), (11, {5, 6})])
def test_an_old_leader_gives_nothing_to_who_knows_of_a_new_one(
    version: int, told: set[int]
) -> None:
    """Records of a leader that had been replaced were taken for the log's."""
    broker: FakeBroker

    def handle(name: str, request: Request) -> Any:
        if name == "Metadata":
            answer = broker.metadata()
            broker.leader_epoch = 6
            return answer
        if name == "Fetch" and request.message.topics[0].partitions[0].current_leader_epoch == 5:
            return fetched(b"", error_code=FENCED_LEADER_EPOCH)
        return ten_by_ten(name, request)

    broker = FakeBroker(handle, versions={"Fetch": (4, version)})
    broker.leader_epoch = 5
    with broker, RangeSource(broker.servers, [("orders", 0, 0, 30)], SETTINGS) as source:
        starts = []
        while (chunk := source.next_chunk()) is not None:
            starts.append(chunk[3])
    assert starts == [0, 10, 20]
    asked = [each.topics[0].partitions[0].current_leader_epoch for each in broker.of("Fetch")]
    assert set(asked) == told


@pytest.mark.parametrize("interrupted", ["receive_exactly", "send"])
def test_an_interrupt_anywhere_loses_no_records(
    interrupted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that was there was left out when the interrupt came as the next was asked for."""
    calls = 0
    inner = getattr(Connection, interrupted)

    def interrupt(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        result = inner(*arguments, **more)
        if calls == at:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(Connection, interrupted, interrupt)
    for at in range(1, 40):
        calls, found = 0, []
        with FakeBroker(ten_by_ten) as broker:
            source = RangeSource(broker.servers, [("orders", 0, 0, 40)], SETTINGS)
            with source:
                while True:
                    try:
                        chunk = source.next_chunk()
                    except KeyboardInterrupt:
                        continue
                    if chunk is None:
                        break
                    found += [row[0] for row in read_fetched(chunk[2], chunk[3], [])[0]]
        assert found == list(range(40))
        if calls < at:
            break


def test_a_newer_broker_is_asked_in_a_version_that_names_topics() -> None:
    newest = message_versions("FetchRequest")[2]
    assert newest > 11
    found, broker = read(ten_by_ten, (0, 10))
    assert found == list(range(10))
    assert [request.version for request in broker.seen if request.name == "Fetch"] == [11]


def test_ranges_follow_each_other_on_one_connection_and_empty_ones_ask_nothing() -> None:
    found, broker = read(ten_by_ten, (5, 5), (95, 100), (0, 3))
    assert found == [95, 96, 97, 98, 99, 0, 1, 2]
    assert [each.topics[0].partitions[0].fetch_offset for each in broker.of("Fetch")] == [95, 0]
    assert broker.connections_count == 2  # one to ask who leads


def test_a_fetch_asks_for_about_what_is_left_of_the_range() -> None:
    def handler(name: str, request: Request) -> Any:
        if name != "Fetch":
            return ...
        offset = request.message.topics[0].partitions[0].fetch_offset
        builder = BatchBuilder(base_offset=offset)
        for _ in range(10):
            builder.append(0, None, b"x" * 40_000)
        return fetched(builder.finish(), end=10_000)

    settings = SETTINGS._replace(partition_bytes_max=3_000_000)
    _, broker = read(handler, (0, 100), settings=settings)
    asked = [each.topics[0].partitions[0].partition_max_bytes for each in broker.of("Fetch")]
    assert asked[0] == 125 << 10
    assert asked[1] == 3_000_000
    assert 10 * 40_000 < asked[-1] < 2 * 10 * 40_000
    assert sorted(asked[1:], reverse=True) == asked[1:]


def test_the_next_fetch_is_under_way_before_the_caller_comes_back() -> None:
    with (
        FakeBroker(ten_by_ten) as broker,
        RangeSource(broker.servers, [("orders", 0, 0, 30)], SETTINGS) as source,
    ):
        source.next_chunk()
        source.next_chunk()
        # The answer to the second proves that the broker saw it; the third goes out with it.
        assert len(broker.of("Fetch")) >= 2


def test_aborted_transactions_are_handed_on() -> None:
    kind = messages.FetchResponse.FetchableTopicResponse.PartitionData
    aborted = [kind.AbortedTransaction(producer_id=7, first_offset=3)]
    with (
        FakeBroker(
            lambda name, _: fetched(batch(0, 5), aborted=aborted) if name == "Fetch" else ...
        ) as broker,
        RangeSource(
            broker.servers, [("orders", 0, 0, 5)], SETTINGS._replace(isolation="read_committed")
        ) as source,
    ):
        chunk = source.next_chunk()
        assert chunk is not None
        assert chunk[5] == [(7, 3)]
        assert broker.of("Fetch")[0].isolation_level == 1


def test_a_connection_that_breaks_in_an_answer_is_made_anew() -> None:
    cuts = iter([9, 60, 120])

    def handler(name: str, request: Request) -> Any:
        answer = ten_by_ten(name, request)
        if name == "Fetch" and (cut := next(cuts, None)) is not None:
            return Close(frame(request, answer)[:cut])
        return answer

    found, _ = read(handler, (0, 25))
    assert found == list(range(25))


@pytest.mark.parametrize("slow", ["Fetch", "Metadata"])
def test_a_request_that_times_out_is_made_again(slow: str) -> None:
    silent = iter([True, True])

    def handler(name: str, request: Request) -> Any:
        return None if name == slow and next(silent, False) else ten_by_ten(name, request)

    found, _ = read(handler, (0, 20), settings=SETTINGS._replace(request_timeout_ms=100))
    assert found == list(range(20))


def test_a_broker_that_leads_no_more_is_asked_again() -> None:
    refused = iter([True])

    def handler(name: str, request: Request) -> Any:
        if name == "Fetch" and next(refused, False):
            return fetched(b"", error_code=NOT_LEADER)
        return ten_by_ten(name, request)

    found, broker = read(handler, (0, 10))
    assert found == list(range(10))
    assert len(broker.of("Metadata")) == 2


def listed(offset: int) -> Any:
    kind = messages.ListOffsetsResponse
    inner = kind.ListOffsetsTopicResponse
    row = inner.ListOffsetsPartitionResponse(partition_index=0, offset=offset, timestamp=-1)
    return kind(topics=[inner(name="orders", partitions=[row])])


@pytest.mark.parametrize("list_offsets", [(1, 10), (1, 7)], ids=["tiers", "knows no tiers"])
def test_what_compaction_removed_up_to_the_stop_is_no_reason_to_wait(
    list_offsets: tuple[int, int],
) -> None:
    def handler(name: str, request: Request) -> Any:
        if name == "ListOffsets":
            return listed(0)
        if name == "Fetch" and request.message.topics[0].partitions[0].fetch_offset == 10:
            return fetched(b"", end=20)
        return ten_by_ten(name, request)

    found, _ = read(handler, (0, 20), versions={"ListOffsets": list_offsets})
    assert found == list(range(10))


def test_empty_answers_are_no_end_where_records_are_tiered() -> None:
    """A broker that has not got tiered records within `remote.fetch.max.wait.ms` answers without
    any. After two such answers the rest of the range was left out without a word."""
    empty = iter([True] * 5)

    def handler(name: str, request: Request) -> Any:
        if name == "ListOffsets":
            return listed(15)
        offset = request.message.topics[0].partitions[0].fetch_offset if name == "Fetch" else None
        if offset == 10 and next(empty, False):
            return fetched(b"", end=20)
        return ten_by_ten(name, request)

    found, _ = read(handler, (0, 20))
    assert found == list(range(20))
    settings = SETTINGS._replace(poll_timeout_ms=50)
    empty = iter([True] * 100_000)
    with pytest.raises(RequestTimedOutError):
        read(handler, (10, 20), settings=settings)


def test_a_caller_who_takes_long_does_not_use_up_the_time_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query that computed for longer than kafkaConsumer.pollTimeoutMs between two chunks failed
    over the first answer that was late or cut off, which others are asked for again."""
    cut = iter([False, True])

    def handler(name: str, request: Request) -> Any:
        answer = ten_by_ten(name, request)
        if name == "Fetch" and next(cut, False):
            return Close(frame(request, answer)[:60])
        return answer

    ahead_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s, sleep=time.sleep)
    monkeypatch.setattr(range_source, "time", clock)
    with (
        FakeBroker(handler) as broker,
        RangeSource(broker.servers, [("orders", 0, 0, 30)], SETTINGS) as source,
    ):
        starts = []
        while (chunk := source.next_chunk()) is not None:
            starts.append(chunk[3])
            ahead_s += 3_600
    assert starts == [0, 10, 20]


def test_each_range_has_its_own_time_in_which_nothing_may_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ranges that compaction had emptied added up to a time-out, though each was answered."""
    ahead_s = 0.0

    def handler(name: str, _: Request) -> Any:
        nonlocal ahead_s
        if name == "ListOffsets":
            return listed(0)
        if name == "Fetch":
            ahead_s += 25
            return fetched(b"", end=100)
        return ...

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s, sleep=time.sleep)
    monkeypatch.setattr(range_source, "time", clock)
    found, broker = read(handler, (0, 10), (20, 30), (40, 50))
    assert found == []
    assert len(broker.of("Fetch")) == 6


def test_a_throttled_answer_is_no_answer() -> None:
    throttled = iter([True, True, True])

    def handler(name: str, request: Request) -> Any:
        if name == "Fetch" and next(throttled, False):
            return messages.FetchResponse(throttle_time_ms=1)
        return ten_by_ten(name, request)

    found, _ = read(handler, (0, 10))
    assert found == list(range(10))


def rows_of(topic: str, servers: str, *values: str) -> None:
    with Admin(servers) as admin:
        admin.create_topic(topic, partitions=1)
    kafkalite.write_arrow(pyarrow.table({"value": values}), topic, servers)


def test_rows_of_another_topic_of_the_same_name_are_no_rows_of_the_one_looked_up(
    servers: str,
) -> None:
    """They were given for it; of a shorter topic with a minute of silence behind them."""
    rows_of("anew", servers, "old 0", "old 1")
    found = kafkalite.read_arrow("anew", servers, columns="value")
    assert found.to_pyarrow()["value"].to_pylist() == [b"old 0", b"old 1"]
    with Admin(servers) as admin:
        admin.delete_topics("anew")
    rows_of("anew", servers, "new 0", "new 1", "new 2")
    with pytest.raises(ValueError, match=r"anew-0: the topic was deleted and recreated since"):
        found.to_pyarrow()
    assert kafkalite.read_arrow("anew", servers).to_pyarrow().num_rows == 3


OLD_ID, NEW_ID = b"o" * 16, b"n" * 16


@pytest.mark.parametrize("away_s", [0.0, 60.0], ids=["a refusal", "a pause of the consumer's"])
def test_a_topic_that_is_recreated_between_two_chunks_ends_the_read(
    monkeypatch: pytest.MonkeyPatch, away_s: float
) -> None:
    ahead_s = 0.0
    refused = iter([away_s == 0])

    def handler(name: str, request: Request) -> Any:
        if name == "Fetch" and broker.topic_id == NEW_ID and next(refused, False):
            return fetched(b"", error_code=NOT_LEADER)
        return ten_by_ten(name, request)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s, sleep=time.sleep)
    monkeypatch.setattr(range_source, "time", clock)
    broker = FakeBroker(handler)
    broker.topic_id = OLD_ID
    ranges, ids = [("orders", 0, 0, 90)], {"orders": OLD_ID}
    with broker, RangeSource(broker.servers, ranges, SETTINGS, topic_ids=ids) as source:
        assert source.next_chunk()
        broker.topic_id = NEW_ID
        ahead_s += away_s
        with pytest.raises(LogDeletedError, match=r"its id was b29vb29vb29vb29vb29vbw, it is bm5u"):
            while source.next_chunk():
                pass
    asked = [each.topics[0].partitions[0].fetch_offset for each in broker.of("Fetch")]
    assert max(asked) <= 20


@pytest.mark.parametrize("told", [OLD_ID, bytes(16)], ids=["the same", "none"])
def test_a_topic_that_is_not_known_to_be_another_is_read(told: bytes) -> None:
    broker = FakeBroker(ten_by_ten)
    broker.topic_id = told
    ranges, ids = [("orders", 0, 0, 30)], {"orders": OLD_ID}
    with broker, RangeSource(broker.servers, ranges, SETTINGS, topic_ids=ids) as source:
        starts = []
        while (chunk := source.next_chunk()) is not None:
            starts.append(chunk[3])
    assert starts == [0, 10, 20]


def deleted_below_fifty(name: str, request: Request) -> Any:
    if name == "ListOffsets":
        return listed(50)
    if name == "Fetch" and request.message.topics[0].partitions[0].fetch_offset < 50:
        return fetched(b"", error_code=OUT_OF_RANGE)
    return ten_by_ten(name, request)


def test_lost_records_are_named() -> None:
    with pytest.raises(
        OffsetOutOfRangeError, match="orders-0: offset 7 is no longer there, the log starts at 50"
    ):
        read(deleted_below_fifty, (7, 60))


def test_lost_records_are_skipped_and_told_if_that_is_wanted() -> None:
    losses: list[str] = []
    found, _ = read(deleted_below_fifty, (7, 60), losses=losses)
    assert found == list(range(50, 60))
    told = "orders-0: offset 7 is no longer there, the log starts at 50 (offsets gone: {})"
    assert losses == [told.format(43)]
    found, _ = read(deleted_below_fifty, (7, 9), (7, 60), losses=losses)
    assert found == list(range(50, 60))
    assert losses[1:] == [told.format(2), told.format(43)]


def test_a_batch_that_does_not_fit_is_named() -> None:
    with pytest.raises(MessageTooLargeError, match=r"orders-0 has a batch at offset 0"):
        read(lambda name, _: fetched(batch(0, 9)[:70]) if name == "Fetch" else ..., (0, 9))


def test_a_refusal_for_good_names_the_partition() -> None:
    answer = fetched(b"", error_code=TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match=r"orders-0: .*at offset 0, before 9"):
        read(lambda name, _: answer if name == "Fetch" else ..., (0, 9))


def test_records_that_never_come_end_the_read() -> None:
    settings = SETTINGS._replace(poll_timeout_ms=50)
    with pytest.raises(RequestTimedOutError, match="orders-0 sent nothing at offset 0, before 9"):
        read(
            lambda name, _: fetched(b"", end=5) if name == "Fetch" else ...,
            (0, 9),
            settings=settings,
        )


def test_a_broker_that_is_silent_ends_the_read() -> None:
    settings = SETTINGS._replace(poll_timeout_ms=50, request_timeout_ms=100)
    with pytest.raises(RequestTimedOutError, match="orders-0: no answer"):
        read(lambda name, _: None if name == "Fetch" else ..., (0, 9), settings=settings)


def test_a_broker_that_is_gone_ends_the_read() -> None:
    def handler(name: str, _: Request) -> Any:
        return Close() if name == "Fetch" else ...

    settings = SETTINGS._replace(poll_timeout_ms=50)
    with pytest.raises(ConnectionFailedError, match=r"orders-0: .*\(at offset 0, before 9\)"):
        read(handler, (0, 9), settings=settings)


def test_an_answer_with_more_than_it_says_is_refused() -> None:
    def handler(name: str, request: Request) -> Any:
        if name != "Fetch":
            return ...
        whole = frame(request, fetched(batch(0, 2)))
        size = int.from_bytes(whole[:4], "big") + 3
        return size.to_bytes(4, "big") + whole[4:] + b"abc"

    settings = SETTINGS._replace(poll_timeout_ms=50)
    with pytest.raises(ConnectionFailedError, match="does not answer as a Kafka broker does"):
        read(handler, (0, 2), settings=settings)


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(16, id="length of the name"),
        pytest.param(50, id="number of aborted transactions"),
        pytest.param(54, id="length of the records"),
    ],
)
def test_nothing_is_received_for_a_size_that_is_not_in_the_answer(
    monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """The list of aborted transactions was received, gigabytes of it, before its size was known
    to be wrong."""
    received: list[int] = []
    inner = Connection.receive_exactly

    def receive(self: Connection, size: int) -> bytes:
        received.append(size)
        return inner(self, size)

    def handler(name: str, request: Request) -> Any:
        if name != "Fetch":
            return ...
        whole = bytearray(frame(request, fetched(batch(0, 2))))
        whole[place : place + 2] = b"\x7f\xff"
        return bytes(whole)

    monkeypatch.setattr(Connection, "receive_exactly", receive)
    settings = SETTINGS._replace(poll_timeout_ms=50)
    with pytest.raises(ConnectionFailedError, match="does not answer as a Kafka broker does"):
        read(handler, (0, 2), settings=settings, versions={"Fetch": (4, 4)})
    assert max(received) < 1_000


def test_settings_go_to_an_arrow_endpoint_and_come_out_as_they_were() -> None:
    whole = FetchSettings("read_committed", "me", *range(1, 8))
    assert whole != FetchSettings() and len(whole.to_json()) == len(whole) - 1
    for settings in (FetchSettings(), SETTINGS, whole):
        texts = {name: str(value) for name, value in settings.to_json().items()}
        assert FetchSettings.from_json(settings.isolation, texts) == settings
