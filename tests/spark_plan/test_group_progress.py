"""A stream tells a consumer group how far it is, and reads on where the group takes nothing."""

import logging
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

from kafkalite.client import Admin, Consumer, Producer
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.network.connection import check
from kafkalite.errors import InvalidArgumentError, KafkaliteError
from kafkalite.protocol import messages
from kafkalite.protocol.codes import COORDINATOR_LOAD_IN_PROGRESS
from kafkalite.spark.options.read import ReadOptions
from kafkalite.spark.plan import topic_source
from kafkalite.spark.plan.answers import TopicSources, answer
from kafkalite.spark.plan.group_progress import AGAIN_S, PAUSE_S, GroupProgress
from kafkalite.spark.progress import lag
from kafkalite.spark.source import KafkaliteDataSource
from kafkalite.spark.stream import StreamReader

SCHEMA = StructType([StructField("offset", LongType())])
HERE, THERE = {("orders", 0): 1}, {("orders", 0): 2}


def test_offsets_are_committed_when_they_move_and_once_an_hour() -> None:
    progress = GroupProgress()
    assert progress.is_first
    assert progress.is_due(HERE, 100.0)
    progress.committed(HERE, 100.0)
    assert not progress.is_first
    assert not progress.is_due(HERE, 100.0 + AGAIN_S - 1)
    assert progress.is_due(HERE, 100.0 + AGAIN_S)
    assert progress.is_due(THERE, 100.0)


def test_a_failed_commit_is_tried_again_after_a_pause() -> None:
    progress = GroupProgress()
    progress.committed(HERE, 100.0)
    progress.failed(200.0)
    assert not progress.is_due(THERE, 200.0 + PAUSE_S - 1)
    assert progress.is_due(THERE, 200.0 + PAUSE_S)
    progress.committed(THERE, 210.0)
    assert progress.is_due(HERE, 210.0)


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    """Two partitions, with 10 records each."""
    name: str = request.node.name
    with Admin(servers) as admin:
        admin.create_topic(name, partitions=2)
    with Producer(servers) as producer:
        for number in range(20):
            producer.send(name, b"%d" % number, partition=number % 2)
    return name


def stream(servers: str, topic: str, group: str, chosen_by: str = "subscribe") -> StreamReader:
    options = {
        "kafka.bootstrap.servers": servers,
        chosen_by: topic,
        "startingOffsets": "earliest",
        "commitOffsetsToGroup": group,
    }
    reader = KafkaliteDataSource(options).streamReader(SCHEMA)
    assert isinstance(reader, StreamReader)
    return reader


def committed(servers: str, group: str) -> dict[tuple[str, int], int]:
    with GroupAdmin(servers) as groups:
        return {place: found.offset for place, found in groups.committed(group).items()}


def test_what_a_micro_batch_begins_with_is_committed(servers: str, topic: str) -> None:
    reader, group = stream(servers, topic, f"{topic}-group"), f"{topic}-group"
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    # Planned and not yet done: nothing of it may be called read.
    assert committed(servers, group) == {(topic, 0): 0, (topic, 1): 0}
    reader.latestOffset(end, ReadAllAvailable())
    assert committed(servers, group) == {(topic, 0): 10, (topic, 1): 10}
    reader.stop()


def test_the_columnar_engines_planner_commits_too(servers: str, topic: str) -> None:
    group = f"{topic}-group"
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "commitOffsetsToGroup": group,
    }
    start = {topic: {"0": 3, "1": 4}}
    with TopicSources() as opened:
        request = {"op": "commit", "options": options, "start": start, "first": True}
        assert answer(request, opened) == {}
    assert committed(servers, group) == {(topic, 0): 3, (topic, 1): 4}


def test_topics_that_are_gone_or_made_anew_are_not_committed(servers: str, topic: str) -> None:
    """The first commit of a run failed a query of a pattern whose topic was deleted meanwhile."""
    gone, anew, group = f"{topic}-gone", f"{topic}-anew", f"{topic}-group"
    with Admin(servers) as admin:
        for name in (gone, anew):
            admin.create_topic(name, partitions=1)
    reader = stream(servers, f"{topic}.*", group, "subscribePattern")
    start = reader.initialOffset()
    assert {gone, anew, topic} < set(start)
    reader.stop()
    with Admin(servers) as admin:
        admin.delete_topics([gone, anew])
        admin.create_topic(anew, partitions=1)
    reader = stream(servers, f"{topic}.*", group, "subscribePattern")
    reader.latestOffset(start, ReadAllAvailable())
    assert committed(servers, group) == {(topic, 0): 0, (topic, 1): 0}
    reader.stop()


def test_a_first_commit_waits_for_a_coordinator_that_loads_and_later_ones_do_not(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A query that was started beside its broker failed with COORDINATOR_LOAD_IN_PROGRESS."""
    answers, ask = 3, Cluster.ask

    def loading(cluster: Cluster, message: Any, **how: Any) -> Any:
        nonlocal answers
        if isinstance(message, messages.OffsetCommitRequest) and answers:
            answers -= 1
            check(COORDINATOR_LOAD_IN_PROGRESS, "the coordinator loads")
        return ask(cluster, message, **how)

    monkeypatch.setattr(Cluster, "ask", loading)
    monkeypatch.setattr(topic_source, "COMMIT_MS_MAX", 0)
    group = f"{topic}-group"
    reader = stream(servers, topic, group)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert answers == 0
    assert committed(servers, group) == {(topic, 0): 0, (topic, 1): 0}
    answers = 1
    with caplog.at_level(logging.WARNING, "kafkalite.spark"):
        assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert "refused the offsets: the coordinator loads" in caplog.text
    reader.stop()


def test_a_group_with_members_is_refused_at_the_first_commit(servers: str, topic: str) -> None:
    group = f"{topic}-group"
    with Consumer(servers, group=group) as consumer:
        consumer.subscribe([topic])
        while not consumer.poll(timeout_ms=1000):
            pass
        reader = stream(servers, topic, group)
        start = reader.initialOffset()
        with pytest.raises(KafkaliteError, match=f"{group}.*a group that nobody joins"):
            reader.latestOffset(start, ReadAllAvailable())
        reader.stop()


def test_a_stream_reads_on_where_a_later_commit_fails(
    servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = f"{topic}-group"
    reader = stream(servers, topic, group)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    with Consumer(servers, group=group) as consumer:
        consumer.subscribe([topic])
        while not consumer.poll(timeout_ms=1000):
            pass
        with caplog.at_level(logging.WARNING, "kafkalite.spark"):
            assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert "refused the offsets" in caplog.text
    assert len(reader.partitions(start, end)) == 2
    reader.stop()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "orders", "commitOffsetsToGroup": " "}, "is empty, it must name a group"),
        ({"path": "/logs", "commitOffsetsToGroup": "g"}, r"files \(path\) have no consumer groups"),
    ],
)
def test_options_without_a_group_to_commit_to_are_refused(
    options: dict[str, str], told: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        ReadOptions.of({"kafka.bootstrap.servers": "broker:9092"} | options, streaming=True)


def test_a_batch_query_says_that_it_commits_nothing() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "a", "commitOffsetsToGroup": "g"}
    warnings = ReadOptions.of(given, streaming=False).warnings
    assert warnings == ("commitOffsetsToGroup is ignored in batch queries",)


def test_lag_is_what_is_there_and_not_in_the_micro_batch() -> None:
    topic = {
        "latestOffset": '{"orders":{"0":10,"1":7},"orders:id":{}}',
        "endOffset": '{"orders":{"0":4,"1":7}}',
    }
    rate = {"latestOffset": "17", "endOffset": "16"}
    repeated = {"latestOffset": "null", "endOffset": '{"orders":{"0":4}}'}
    assert lag({"sources": [topic]}) == 6
    assert lag({"sources": [topic, rate, topic]}) == 12
    assert lag({"sources": [topic, repeated]}) is None
