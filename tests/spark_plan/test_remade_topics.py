"""A stream over a topic that was deleted and recreated, by the planner that both engines ask."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.client import Admin, Producer
from kafkalite.spark.offsets import Position
from kafkalite.spark.plan.answers import TopicSources, answer
from kafkalite.spark.plan.planner import DataLossError

Json = dict[str, Any]


@pytest.fixture
def sources() -> Iterator[TopicSources]:
    with TopicSources() as sources:
        yield sources


class Stream:
    """A stream over the topic, as an engine has it planned."""

    def __init__(self, servers: str, topic: str, sources: TopicSources, **options: str) -> None:
        self._sources = sources
        self._options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "fetchOffset.retryIntervalMs": "1",
            **options,
        }

    def start(self) -> Json:
        return self._asked("initial")["offsets"]

    def end(self, start: Json, **more: Any) -> Json:
        return self._asked("latest", start=start, **more)["offsets"]

    def latest(self, start: Json) -> Json:
        return self._asked("latest", start=start)["latest"]

    def ranges(self, start: Json, end: Json) -> tuple[list[list[Any]], list[str]]:
        found = self._asked("between", start=start, end=end)
        return found["ranges"], found["warnings"]

    def _asked(self, op: str, **more: Any) -> Json:
        return answer({"op": op, "options": self._options, **more}, self._sources)


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W+", "-", request.node.name)
    make(servers, name, 5)
    return name


def make(servers: str, topic: str, count: int) -> None:
    with Admin(servers) as admin:
        admin.create_topic(topic, partitions=1)
    append(servers, topic, count)


def append(servers: str, topic: str, count: int) -> None:
    with Producer(servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)


def make_anew(servers: str, topic: str, count: int) -> None:
    with Admin(servers) as admin:
        admin.delete_topics([topic])
    make(servers, topic, count)


def offsets(position: Json) -> Json:
    """Without ids, as Spark's connector and earlier versions wrote it."""
    return {topic: partitions for topic, partitions in position.items() if partitions}


@pytest.mark.parametrize("count", [3, 5, 8])
def test_a_topic_that_was_made_anew_fails_the_query_or_is_read_from_its_beginning(
    servers: str, topic: str, sources: TopicSources, count: int
) -> None:
    """With 8 records the first 5 were left out without a word, with 5 all of them; with 3 the end
    went back, and with failOnDataLoss=false they were left out too."""
    strict = Stream(servers, topic, sources)
    lenient = Stream(servers, topic, sources, failOnDataLoss="false")
    start = strict.end(strict.start())
    assert strict.ranges(strict.start(), start) == ([[topic, 0, 0, 5]], [])
    make_anew(servers, topic, count)
    end = strict.end(start)
    assert offsets(end) == {topic: {"0": count}}
    assert end != start
    sentence = (
        f"the topic {topic} was deleted and recreated \\(its id was .{{22}}, it is .{{22}}\\)"
    )
    with pytest.raises(DataLossError, match=f"^{sentence} \\(failOnDataLoss=false goes on"):
        strict.ranges(start, end)
    ranges, (warning,) = lenient.ranges(start, end)
    assert ranges == [[topic, 0, 0, count]]
    assert warning.startswith(
        f"data may have been lost: the topic {topic} was deleted and recreated"
    )
    # It is told once.
    append(servers, topic, 2)
    assert lenient.end(end) == strict.end(end)
    assert strict.ranges(end, strict.end(end)) == ([[topic, 0, count, count + 2]], [])


def test_a_limit_counts_from_the_beginning_of_the_new_topic(
    servers: str, topic: str, sources: TopicSources
) -> None:
    stream = Stream(servers, topic, sources, failOnDataLoss="false")
    start = stream.end(stream.start())
    make_anew(servers, topic, 8)
    end = stream.end(start, limit={"maxRows": 2})
    assert offsets(end) == {topic: {"0": 2}}
    assert stream.ranges(start, end)[0] == [[topic, 0, 0, 2]]
    assert stream.end(start, limit={"minRows": 9}, sinceMs=1) == start
    assert offsets(stream.end(start, limit={"minRows": 8}, sinceMs=1)) == {topic: {"0": 8}}


@pytest.mark.parametrize("is_planned_by_another", [False, True])
def test_a_micro_batch_of_the_deleted_topic_has_nothing_in_it_any_more(
    servers: str, topic: str, sources: TopicSources, is_planned_by_another: bool
) -> None:
    """It was planned, and its query was stopped, before the topic was recreated; it read the new
    topic's records by the old offsets."""
    stream = Stream(servers, topic, sources)
    start = stream.end(stream.start())
    append(servers, topic, 4)
    end = stream.end(start)
    make_anew(servers, topic, 20)
    with TopicSources() as others:
        sources = others if is_planned_by_another else sources
        with pytest.raises(DataLossError, match=f"the topic {topic} was deleted and recreated"):
            Stream(servers, topic, sources).ranges(start, end)
        lenient = Stream(servers, topic, sources, failOnDataLoss="false")
        assert lenient.ranges(start, end)[0] == []
        later = lenient.end(end)
        assert lenient.ranges(end, later)[0] == [[topic, 0, 0, 20]]


def test_a_run_that_is_to_end_does_not_go_on_with_another_topic(
    servers: str, topic: str, sources: TopicSources
) -> None:
    """Trigger.AvailableNow: its target is of the deleted topic."""
    stream = Stream(servers, topic, sources, failOnDataLoss="false")
    start = stream.start()
    target = stream.latest(start)
    make_anew(servers, topic, 20)
    end = stream.end(start, target=target)
    assert offsets(end) == {topic: {"0": 5}}
    assert stream.ranges(start, end)[0] == []
    assert stream.end(end, target=target) == end


def test_a_checkpoint_without_ids_goes_on_and_has_them_with_its_next_records(
    servers: str, topic: str, sources: TopicSources
) -> None:
    stream = Stream(servers, topic, sources)
    start = offsets(stream.end(stream.start()))
    assert start == {topic: {"0": 5}}
    assert stream.end(start) == start  # a micro-batch without records would follow
    assert stream.ranges(start, start) == ([], [])
    append(servers, topic, 2)
    end = stream.end(start)
    assert stream.ranges(start, end) == ([[topic, 0, 5, 7]], [])
    assert set(end) - set(start) == {f"{topic}:{Position.from_json(end).ids[topic]}"}
    assert stream.ranges(start, offsets(end)) == ([[topic, 0, 5, 7]], [])


def test_ids_stand_in_keys_that_the_connector_reads_past() -> None:
    position = Position({("b", 0): 1, ("a", 10): 2, ("a", 9): 3}, {"a": "x-_", "gone": "y"})
    found = position.to_json()
    assert list(found.items()) == [("a", {"9": 3, "10": 2}), ("a:x-_", {}), ("b", {"0": 1})]
    assert Position.from_json(found) == Position(position.offsets, {"a": "x-_"})
    assert Position.from_json({"a": {}}) == Position({}, {})
