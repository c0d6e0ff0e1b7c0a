"""Who leads is asked beside what is sent and fetched; a new leader is asked what it has."""

import struct
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from client.fake import Close, FakeBroker
from client.fake_partition import Log, poll_until, produce_response
from client.logs import TOPIC, Logs, value, values
from kafkalite._native import read_batches
from kafkalite.client import Cluster, Consumer
from kafkalite.client.consumer import position_lookup
from kafkalite.client.network.leaders import Leaders
from kafkalite.client.network.wakeup import poller
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.errors import (
    BrokerError,
    KafkaliteError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
)
from kafkalite.protocol import messages
from kafkalite.protocol.codes import (
    FENCED_LEADER_EPOCH,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_OR_PARTITION,
)

WAIT_S = 30
GONE = "gone"
ZERO, ONE = (TOPIC, 0), (TOPIC, 1)


class Topics:
    """A topic that takes everything, and another that can be deleted. What is asked of that one
    while `held` is set is answered when the test lets it."""

    def __init__(self, broker: Callable[[], FakeBroker]) -> None:
        self._broker = broker
        self.logs = {TOPIC: Log(), GONE: Log()}
        self.is_deleted = False
        self.held, self.came, self.may_answer = (threading.Event() for _ in range(3))
        self.was_in_time = True

    def __call__(self, name: str, request: Any) -> Any:
        if name == "Metadata":
            return self.metadata(request)
        if name != "Produce":
            return ...
        (topic, *others) = request.message.topic_data
        answers = [self.produce(each.name, request) for each in (topic, *others)]
        answers[0].responses = [
            row
            for each, answer in zip((topic, *others), answers, strict=True)
            for row in answer.responses
            if row.name == each.name
        ]
        return answers[0]

    def produce(self, topic: str, request: Any) -> Any:
        if topic == GONE and self.is_deleted:
            return produce_response(request, lambda _records: (UNKNOWN_TOPIC_OR_PARTITION, -1))
        rows = [each for each in request.message.topic_data if each.name == topic]
        kept, request.message.topic_data = request.message.topic_data, rows
        answer = produce_response(request, self.logs[topic].take)
        request.message.topic_data = kept
        return answer

    def metadata(self, request: Any) -> Any:
        names = {each.name for each in request.message.topics}
        if self.held.is_set() and GONE in names:
            self.came.set()
            self.was_in_time &= self.may_answer.wait(WAIT_S)
        answer = self._broker().metadata()
        for topic in answer.topics:
            if topic.name == GONE and self.is_deleted:
                topic.error_code = UNKNOWN_TOPIC_OR_PARTITION
                topic.partitions = []
        answer.topics = [topic for topic in answer.topics if topic.name in names]
        return answer


def two_topics() -> tuple[FakeBroker, Topics]:
    topics = Topics(lambda: broker)
    broker = FakeBroker(topics, topics=(TOPIC, GONE))
    return broker, topics


def hanging_up_once() -> tuple[FakeBroker, list[Any]]:
    """It hangs up on whoever first has it create a topic, and creates it when asked again; and the
    requests to create it."""
    broker, topics = two_topics()
    topics.is_deleted = True
    creating = []

    def answer(name: str, request: Any) -> Any:
        if name == "Metadata" and request.message.allow_auto_topic_creation:
            creating.append(request)
            topics.is_deleted = len(creating) < 2
            return Close() if len(creating) == 1 else topics(name, request)
        return topics(name, request)

    broker._handler = answer
    return broker, creating


def asked(leaders: Leaders, now: float) -> bool:
    """Whether anything is asked, which then has been answered."""
    leaders.send(now)
    descriptors = leaders.descriptors()
    if not descriptors:
        return False
    assert poller(descriptors).poll(1_000 * WAIT_S)
    while leaders.descriptors():
        leaders.take(now)
    return True


def test_a_topic_that_cannot_be_looked_up_is_asked_for_again_after_its_pause() -> None:
    """It was at once, again and again, if somebody doubted who leads it."""
    broker, topics = two_topics()
    topics.is_deleted = True
    with broker, Cluster(broker.servers) as cluster, Leaders(cluster) as leaders:
        assert leaders.find(GONE, 0, 1.0) is None
        assert asked(leaders, 1.0)
        leaders.doubt(GONE, 0)
        with pytest.raises(BrokerError, match="topic 'gone'"):
            leaders.find(GONE, 0, 1.0)
        assert not asked(leaders, 1.0)
        assert leaders.find(GONE, 0, 2.0) is None
        assert asked(leaders, 2.0)


def test_of_topics_that_there_were_not_nothing_is_kept() -> None:
    """A service that is given the names of topics kept an error, a time and a line for each."""
    broker, topics = two_topics()
    topics.is_deleted = True
    told: list[str] = []
    with broker, Cluster(broker.servers) as cluster, Leaders(cluster, on_create=told.append) as it:
        assert it.topic(GONE, 1.0) is None
        assert asked(it, 1.0)  # is it there?
        assert asked(it, 1.0)  # is it to be made?
        with pytest.raises(BrokerError, match="topic 'gone'"):
            it.topic(GONE, 1.0)
        it.look([], 300.0)
        assert (it._failures, it._created_until) == ({}, {})
        assert not it._troubles
        assert it.topic(GONE, 300.0) is None
        assert asked(it, 300.0)
        assert len(told) == 2


def test_a_partition_that_nobody_leads_is_not_asked_for_twice_at_a_time() -> None:
    broker, _ = two_topics()
    with broker, Cluster(broker.servers) as cluster, Leaders(cluster) as leaders:
        leaders.look([TOPIC], 1.0)
        assert asked(leaders, 1.0)
        for _ in range(2):
            with pytest.raises(BrokerError, match="partition 7"):
                leaders.find(TOPIC, 7, 1.0)
            leaders.send(1.0)
        while leaders.descriptors():
            leaders.take(1.0)
        assert not asked(leaders, 1.0)


def test_an_error_that_is_raised_again_and_again_does_not_grow() -> None:
    """Its traceback did, by some frames each time, for as long as a topic was away."""
    broker, topics = two_topics()
    topics.is_deleted = True
    depths = set()
    with broker, Cluster(broker.servers) as cluster, Leaders(cluster) as leaders:
        leaders.find(GONE, 0, 1.0)
        assert asked(leaders, 1.0)
        for _ in range(3):
            with pytest.raises(BrokerError) as told:
                leaders.find(GONE, 0, 1.0)
            depths.add(len(traceback.extract_tb(told.value.__traceback__)))
    assert len(depths) == 1


# --- producers ------------------------------------------------------------------------------------


def test_records_of_a_topic_are_sent_while_another_is_looked_up() -> None:
    """The producer waited for whoever was to tell who leads the other one."""
    broker, topics = two_topics()
    with broker, DrivenProducer(broker.servers, linger_ms=0) as producer:
        for topic in (TOPIC, GONE):
            producer.send(topic, b"0")
        producer.flush()
        topics.is_deleted = True
        topics.held.set()
        producer.send(GONE, b"1")
        poll_until(producer, topics.came.is_set)
        producer.send(TOPIC, b"1")
        poll_until(producer, lambda: producer.sent_count == 3)
        assert topics.logs[TOPIC].values == [b"0", b"1"]
        topics.is_deleted = False
        topics.may_answer.set()
        producer.flush()
        assert topics.logs[GONE].values == [b"0", b"1"]
    assert topics.was_in_time


def test_records_of_a_deleted_topic_fail_when_their_time_is_over_and_no_others() -> None:
    broker, topics = two_topics()
    failures: list[KafkaliteError | None] = []
    with (
        broker,
        DrivenProducer(broker.servers, linger_ms=0, delivery_timeout_ms=10_000) as producer,
    ):
        for topic in (TOPIC, GONE):
            producer.send(topic, b"0", partition=0)
        producer.flush()
        topics.is_deleted = True
        producer.send(GONE, b"1", partition=0, on_delivery=lambda error, *_: failures.append(error))
        for number in range(1, 10):
            producer.send(TOPIC, b"%d" % number, partition=0)
            poll_until(producer, lambda wanted=number: producer.sent_count == 2 + wanted)
        sentence = "for partition gone-0 .* 10 s: topic 'gone'"
        with pytest.raises(RequestTimedOutError, match=sentence):
            producer.flush()
        assert len(failures) == 1
        # Paused longer from time to time, and a look for all that is wanted.
        assert len(broker.of("Metadata")) < 40
    assert topics.logs[TOPIC].values == [b"%d" % number for number in range(10)]


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic is waited for as long as the test waits."""
    monkeypatch.setattr("kafkalite.client.producer.producer.UNKNOWN_TOPIC_MS", WAIT_S * 1000)


@pytest.mark.usefixtures("patience")
def test_what_is_under_way_moves_on_while_send_waits_for_a_topic() -> None:
    """It lay there for as long as a topic is waited for. Here the topic is made by who reads what
    was sent before."""
    broker, topics = two_topics()
    topics.is_deleted = True

    def handle(name: str, request: Any) -> Any:
        answer = topics(name, request)
        if name == "Produce":
            topics.is_deleted = False
        return answer

    broker._handler = handle
    with broker, DrivenProducer(broker.servers, linger_ms=50, idempotent=False) as producer:
        len(producer.topic(TOPIC).partitions)
        producer.send(TOPIC, b"0", partition=0, on_delivery=lambda *_: None)
        producer.send(GONE, b"1")
        producer.flush()
    assert [topics.logs[each].values for each in (TOPIC, GONE)] == [[b"0"], [b"1"]]


def test_a_topic_that_there_is_not_is_told_by_send() -> None:
    broker, topics = two_topics()
    topics.is_deleted = True
    with broker, DrivenProducer(broker.servers, delivery_timeout_ms=1_000) as producer:
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            producer.send(GONE, b"0")
        assert producer.pending_count == 0


def test_a_topic_whose_creation_was_asked_of_a_broker_that_went_away_is_asked_for_again() -> None:
    """It was taken for one that is being made, and given up 5 s later: UNKNOWN_TOPIC."""
    broker, _ = hanging_up_once()
    with broker, DrivenProducer(broker.servers) as producer:
        producer.send(GONE, b"0")
        producer.flush()
        assert producer.sent_count == 1


def test_a_topic_that_a_consumer_has_a_broker_create_is_asked_for_again_if_that_went_away() -> None:
    broker, creating = hanging_up_once()
    with broker, Consumer(broker.servers, group="g") as consumer:
        consumer.subscribe(GONE)
        for _ in range(20):
            consumer.poll(100)
            if len(creating) == 2:
                break
        consumer.close(0)
        # Else it goes on behind the test, to find a coordinator that this broker does not know.
        for thread in threading.enumerate():
            if thread.name == "join of g":
                thread.join(WAIT_S)
                assert not thread.is_alive()
    assert len(creating) == 2


@pytest.mark.usefixtures("patience")
def test_a_callback_that_sends_while_send_waits_for_a_topic_loses_nothing() -> None:
    """Both make the queue of the same partition."""
    broker, topics = two_topics()
    topics.is_deleted = True

    def handle(name: str, request: Any) -> Any:
        answer = topics(name, request)
        if name == "Produce":
            topics.is_deleted = False
        return answer

    broker._handler = handle
    with broker, DrivenProducer(broker.servers, linger_ms=50, idempotent=False) as producer:

        def follow(*_told: Any) -> None:
            producer.send(GONE, b"1", partition=0)

        len(producer.topic(TOPIC).partitions)
        producer.send(TOPIC, b"0", partition=0, on_delivery=follow)
        producer.send(GONE, b"2", partition=0)
        producer.flush()
        assert producer.sent_count == 3
    assert sorted(topics.logs[GONE].values) == [b"1", b"2"]


def test_one_request_in_flight_keeps_the_order_of_a_partition_that_moves() -> None:
    """The next batch went to the new leader while the old one had still to answer, and stood in the
    log before the one that was sent again. Kafka's producer holds the partition back."""
    came, may_answer, again = threading.Event(), threading.Event(), threading.Event()
    leads = {0: 1, 1: 2}
    taken: list[tuple[str, bytes]] = []

    def metadata() -> Any:
        answer = old.metadata({2: (new.host, new.port)})
        for row in answer.topics[0].partitions:
            row.leader_id = leads[row.partition_index]
        return answer

    def on_old(name: str, request: Any) -> Any:
        if name == "Metadata":
            return metadata()
        if name == "Produce":
            came.set()
            may_answer.wait(WAIT_S)
            return produce_response(request, lambda _records: (NOT_LEADER_OR_FOLLOWER, -1))
        return ...

    def on_new(name: str, request: Any) -> Any:
        if name == "Metadata":
            return metadata()
        if name != "Produce":
            return ...
        (row,) = request.message.topic_data[0].partition_data
        if row.index == 1 and not again.is_set():
            again.set()
            leads[0] = 2
            return produce_response(request, lambda _records: (NOT_LEADER_OR_FOLLOWER, -1))
        (batch,) = read_batches(row.records)
        taken.extend((str(row.index), record[3]) for record in batch.records)
        return produce_response(request, lambda _records: (NONE, 0))

    old, new = FakeBroker(on_old, partitions=2), FakeBroker(on_new, partitions=2)
    with (
        old,
        new,
        DrivenProducer(old.servers, linger_ms=0, idempotent=False, max_in_flight=1) as producer,
    ):
        producer.send(TOPIC, b"first", partition=0)
        poll_until(producer, came.is_set)
        producer.send(TOPIC, b"moves", partition=1)
        poll_until(producer, lambda: producer.sent_count == 1)
        producer.send(TOPIC, b"second", partition=0)
        for _ in range(5):
            producer.poll(20)
        may_answer.set()
        producer.flush()
    assert [value for index, value in taken if index == "0"] == [b"first", b"second"]


# --- consumers ------------------------------------------------------------------------------------


def test_a_topic_is_read_while_another_is_looked_up() -> None:
    """`poll` waited for whoever was to tell who leads the other one."""
    broker, topics = two_topics()
    logs = Logs({0: 4})
    logs.batches_max = 1

    def handle(name: str, request: Any) -> Any:
        if name != "Fetch":
            return topics(name, request)
        asked = request.message.topics
        request.message.topics = [each for each in asked if each.topic == TOPIC]
        answer = logs(name, request)
        if not request.message.topics:
            answer.responses = []
        kind = messages.FetchResponse.FetchableTopicResponse
        row = kind.PartitionData(partition_index=0, error_code=UNKNOWN_TOPIC_OR_PARTITION)
        if len(asked) > len(request.message.topics):
            topics.held.set()
            answer.responses.append(kind(topic=GONE, partitions=[row]))
        return answer

    broker._handler = handle
    with broker, Consumer(broker.servers) as consumer:
        consumer.assign({ZERO: 0, (GONE, 0): 0})
        assert values(consumer, 3) == [value(0, offset) for offset in range(3)]
        while not topics.came.is_set():
            assert consumer.poll(10) or True
        logs.batches[0] += Logs({0: 8}).batches[0][4:]
        consumer.seek(ZERO, 12)
        assert values(consumer, 12) == [value(0, offset) for offset in range(12, 24)]
        topics.may_answer.set()
    assert topics.was_in_time


class Led(Logs):
    """Partitions whose batches have leader epochs, and what a leader says of the ends of these."""

    def __init__(self, counts: dict[int, int]) -> None:
        super().__init__(counts)
        self.epochs: dict[int, int] = {}
        """The leader epoch of batches, by their number in the log; 0 if there is none."""
        self.fenced_below = 0
        """Fetches of an older leader epoch are refused."""
        self.ends: tuple[int, int, int] = (NONE, 0, 0)
        """Error code, leader epoch and end offset that OffsetForLeaderEpoch is answered with."""

    def records(self, partition: int, offset: int) -> bytes:
        first = offset // 3
        batches = self.batches[partition][first : first + self.batches_max]
        made = b""
        for number, each in enumerate(batches, first):
            made += each[:12] + struct.pack(">i", self.epochs.get(number, 0)) + each[16:]
        return made

    def on_Fetch(self, request: Any) -> Any:  # noqa: N802
        answer = super().on_Fetch(request)
        for topic, told in zip(request.message.topics, answer.responses, strict=True):
            for asked, row in zip(topic.partitions, told.partitions, strict=True):
                if asked.current_leader_epoch < self.fenced_below:
                    row.error_code, row.records = FENCED_LEADER_EPOCH, b""
        return answer

    def on_OffsetForLeaderEpoch(self, request: Any) -> Any:  # noqa: N802
        kind = messages.OffsetForLeaderEpochResponse
        inner = kind.OffsetForLeaderTopicResult
        code, leader_epoch, end = self.ends
        rows = [
            inner.EpochEndOffset(
                partition=each.partition,
                error_code=code,
                leader_epoch=leader_epoch,
                end_offset=end,
            )
            for each in request.message.topics[0].partitions
        ]
        return kind(topics=[inner(topic=TOPIC, partitions=rows)])


def read_until_the_leader_changes(broker: FakeBroker, logs: Led, consumer: Consumer) -> None:
    """Six records of leader epochs 3 and 4; the next leader, of epoch 5, refuses others."""
    logs.epochs = {0: 3, 1: 4}
    broker.leader_epoch = 4
    consumer.assign({ZERO: 0})
    assert values(consumer, 6) == [value(0, offset) for offset in range(6)]
    broker.leader_epoch = logs.fenced_below = 5


def test_a_new_leader_that_has_all_that_was_read_is_read_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a pause, as if the answer had left the partition out."""
    monkeypatch.setattr(position_lookup, "BACKOFF_MS", 3_600_000)
    logs = Led({0: 2})
    logs.ends = (NONE, 4, 6)
    with FakeBroker(logs) as broker, Consumer(broker.servers) as consumer:
        read_until_the_leader_changes(broker, logs, consumer)
        logs.batches = Logs({0: 4}).batches
        assert values(consumer, 6) == [value(0, offset) for offset in range(6, 12)]
        (asked,) = broker.of("OffsetForLeaderEpoch")
        (row,) = asked.topics[0].partitions
        assert (row.partition, row.current_leader_epoch, row.leader_epoch) == (0, 5, 4)
        epochs = [each.topics[0].partitions[0].current_leader_epoch for each in broker.of("Fetch")]
        assert sorted(set(epochs)) == [4, 5]


def test_records_that_a_new_leader_has_not_are_read_in_its_words() -> None:
    """The consumer went on behind what the new leader had put in place of what it had lost."""
    logs = Led({0: 2})
    logs.ends = (NONE, 3, 3)
    with FakeBroker(logs) as broker, Consumer(broker.servers) as consumer:
        read_until_the_leader_changes(broker, logs, consumer)
        logs.batches = Logs({0: 4}).batches
        assert values(consumer, 9) == [value(0, offset) for offset in range(3, 12)]
        assert consumer.position(ZERO) == 12


def test_what_was_lost_while_nobody_read_is_found_out_by_the_next_of_the_group() -> None:
    """Offsets were committed without the leader epoch that tells."""
    logs = Led({0: 2})
    logs.ends = (NONE, 3, 3)
    with FakeBroker(logs) as broker:
        logs.address = (broker.host, broker.port)
        with Consumer(broker.servers, group="comes-back") as consumer:
            read_until_the_leader_changes(broker, logs, consumer)
        assert (logs.committed, logs.committed_epochs) == ({0: 6}, {0: 4})
        logs.batches = Logs({0: 4}).batches
        with Consumer(broker.servers, group="comes-back") as consumer:
            consumer.assign([ZERO])
            assert values(consumer, 9) == [value(0, offset) for offset in range(3, 12)]


def test_without_a_reset_a_log_that_was_cut_is_told_until_the_caller_seeks() -> None:
    logs = Led({0: 2})
    logs.ends = (NONE, 3, 3)
    with FakeBroker(logs) as broker, Consumer(broker.servers, offset_reset="none") as consumer:
        read_until_the_leader_changes(broker, logs, consumer)
        logs.batches = Logs({0: 4}).batches
        sentence = "offset 5 of orders-0 was read and is not .* new leader, which ends at 3"
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match=sentence):
                consumer.poll(WAIT_S * 1000)
        consumer.seek(ZERO, 3)
        assert values(consumer, 9) == [value(0, offset) for offset in range(3, 12)]


def test_a_leader_that_knows_nothing_of_what_was_read_is_read_from_where_the_reset_says() -> None:
    logs = Led({0: 2})
    logs.ends = (NONE, -1, -1)
    with FakeBroker(logs) as broker, Consumer(broker.servers) as consumer:
        read_until_the_leader_changes(broker, logs, consumer)
        assert values(consumer, 6) == [value(0, offset) for offset in range(6)]


def test_a_broker_that_cannot_tell_where_leader_epochs_end_is_read_on() -> None:
    logs = Led({0: 2})
    with FakeBroker(logs) as broker, Consumer(broker.servers) as consumer:
        del broker.versions["OffsetForLeaderEpoch"]
        read_until_the_leader_changes(broker, logs, consumer)
        logs.batches = Logs({0: 4}).batches
        assert values(consumer, 6) == [value(0, offset) for offset in range(6, 12)]


def test_a_broker_that_is_behind_does_not_lead_back_to_an_old_leader() -> None:
    logs = Led({0: 2})
    logs.ends = (NONE, 4, 6)
    with FakeBroker(logs) as broker, Consumer(broker.servers) as consumer:
        read_until_the_leader_changes(broker, logs, consumer)
        logs.batches = Logs({0: 4}).batches
        assert values(consumer, 6) == [value(0, offset) for offset in range(6, 12)]
        broker.leader_epoch = 4
        assert consumer.cluster.refresh([TOPIC])[TOPIC].partitions[0].leader_epoch == 5


def test_an_old_and_a_new_leader_that_both_answer_give_records_once() -> None:
    """The fetch of the old leader was still under way when the new one was asked for the same."""
    came, may_answer = threading.Event(), threading.Event()
    logs = {each: Logs({0: 1, 1: 1}) for each in ("old", "new")}
    leads = {0: 1, 1: 2}

    def metadata() -> Any:
        answer = old.metadata({2: (new.host, new.port)})
        for row in answer.topics[0].partitions:
            row.leader_id = leads[row.partition_index]
        return answer

    def on_old(name: str, request: Any) -> Any:
        if name == "Metadata":
            return metadata()
        answer = logs["old"](name, request)
        if name == "Fetch":
            came.set()
            may_answer.wait(WAIT_S)
        return answer

    def on_new(name: str, request: Any) -> Any:
        if name == "Metadata":
            return metadata()
        if name == "Fetch" and not came.wait(WAIT_S):
            return None
        answer = logs["new"](name, request)
        if name == "Fetch" and leads[0] == 1:
            answer.responses[0].partitions[0].error_code = NOT_LEADER_OR_FOLLOWER
            answer.responses[0].partitions[0].records = b""
            leads[0] = 2
        return answer

    old, new = FakeBroker(on_old, partitions=2), FakeBroker(on_new, partitions=2)
    with old, new, Consumer(old.servers) as consumer:
        consumer.assign({ZERO: 0, ONE: 0})
        found = values(consumer, 6)
        may_answer.set()
        deadline = time.monotonic() + WAIT_S
        while consumer._fetcher._flights.get(1) is not None:
            assert time.monotonic() < deadline
            found += [record.value for record in consumer.poll(10)]
        found += [record.value for record in consumer.poll(10)]
        assert sorted(map(str, found)) == sorted(
            str(value(partition, offset)) for partition in (0, 1) for offset in range(3)
        )
