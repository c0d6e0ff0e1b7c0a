"""Requests that wait for topics which others make, in a log directory that hangs: what is left of
them, and for how long they wait."""

import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from groups.fake_host import FakeHost, Partition, Plane, Topic
from kafkalite.api import (
    auto_create,
    k10_find_coordinator,
    k19_create_topics,
    k20_delete_topics,
    k22_init_producer_id,
    k33_alter_configs,
    k37_create_partitions,
    k57_update_features,
)
from kafkalite.api.deadline import CHANGE_WAIT_MS, IMPATIENT_WAIT_MS
from kafkalite.errors import KafkaliteError, StorageError
from kafkalite.groups.coordinator import GroupCoordinator
from kafkalite.metadata.controller.topics import NewTopic
from kafkalite.metadata.image import OFFSETS_TOPIC, AlikeNames
from kafkalite.protocol import codes, messages

Made = Callable[[KafkaliteError | None], None]


class AnsweringPlane(Plane):
    def __init__(self, host: FakeHost) -> None:
        super().__init__(host)
        self.answers: list[Any] = []
        self.closed: list[Any] = []

    def is_change_held_up(self) -> bool:
        return False

    def respond(self, _request: Any, response: Any) -> None:
        self.answers.append(response)

    def close_connection(self, request: Any) -> None:
        self.closed.append(request)

    def answer_again(self, _request: Any) -> None:
        self.answers.append(None)


class HungHost(FakeHost):
    """Its log directories change nothing until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.answering = AnsweringPlane(self)
        self.plane = self.answering  # type: ignore[assignment]
        self.groups = GroupCoordinator(self)  # type: ignore[arg-type]
        self.under_way: list[Made] = []

    def create_topics(self, _wanted: Sequence[NewTopic], then: Made) -> None:
        self.under_way.append(then)

    def create_partitions(self, _counts: Mapping[str, int], then: Made) -> None:
        self.under_way.append(then)

    def delete_topics(
        self, _names: Sequence[str], gone: Made, _deleted: Callable[[], None]
    ) -> None:
        self.under_way.append(gone)

    broker_ids = (0,)
    node_id = 0

    def next_producer_id(self) -> None:
        """There is none left."""

    def on_topic_deleted(self, _name: str) -> None:
        pass


class Request:
    """Only to be seen to be gone."""

    api_version = 3


def find(host: Any) -> weakref.ref[Request]:
    request = Request()
    k10_find_coordinator.handle(host, request, messages.FindCoordinatorRequest(key="group"))
    return weakref.ref(request)


def test_nothing_is_left_of_who_was_told_that_a_coordinator_takes_long() -> None:
    """Each stayed in memory until the directory answered: clients that ask again and again filled
    half of the memory of requests, and then everybody was refused."""
    host = HungHost()
    late = []
    for _ in range(100):
        late.append(find(host))
        host.pass_time(100)
    host.pass_time(IMPATIENT_WAIT_MS)
    gc.collect()
    assert [each() for each in late] == [None] * 100
    assert {each.error_code for each in host.answering.answers} == {codes.COORDINATOR_NOT_AVAILABLE}
    assert len(host.under_way) == 1
    assert not host.groups.runtime._awaiting_topic
    assert not host.stops
    waiting = [find(host) for _ in range(2)]
    (made,) = host.under_way
    made(StorageError("no room"))
    gc.collect()
    assert [each() for each in waiting] == [None, None]
    assert len(host.answering.answers) == 102
    # The log is told once, whoever waited.
    assert host.log.lines == [f"topic {OFFSETS_TOPIC} is not created: no room"]


def test_a_coordinator_whose_topic_others_could_not_make_is_not_there() -> None:
    host = HungHost()
    host.image.topics[OFFSETS_TOPIC] = Topic((Partition(0),))
    host.turns.begin_change([OFFSETS_TOPIC], are_new=True)
    told: list[KafkaliteError | None] = []
    host.groups.runtime.make_topic(told.append)
    del host.image.topics[OFFSETS_TOPIC]
    assert not told
    host.turns.settle([OFFSETS_TOPIC])
    assert [type(each).__name__ for each in told] == ["ControllerError"]
    assert not host.groups.runtime.has_topic


ASKED_MS = 5_000


def grow(host: Any) -> weakref.ref[Request]:
    request = Request()
    kind = messages.CreatePartitionsRequest
    topics = [kind.CreatePartitionsTopic(name="t", count=2, assignments=None)]
    message = kind(topics=topics, timeout_ms=ASKED_MS)
    k37_create_partitions.handle(host, request, message)
    return weakref.ref(request)


def delete(host: Any) -> weakref.ref[Request]:
    request = Request()
    message = messages.DeleteTopicsRequest(topic_names=["t"], timeout_ms=ASKED_MS)
    k20_delete_topics.handle(host, request, message)
    return weakref.ref(request)


def host_with_a_topic() -> HungHost:
    """The topic is changing."""
    host = HungHost()
    topic = SimpleNamespace(name="t", id=bytes(15) + b"1", partitions=(Partition(0),))
    host.image = SimpleNamespace(  # type: ignore[assignment]
        topics={"t": topic}, topics_by_id={topic.id: topic}, alike=AlikeNames()
    )
    host.config = {**host.config, "delete.topic.enable": True, "num.partitions": 1}
    host.turns.begin_change(["t"], are_new=False)
    return host


@pytest.mark.parametrize("ask", [grow, delete])
def test_nothing_is_left_of_who_waited_too_long_for_a_change_of_others(
    ask: Callable[[Any], weakref.ref[Request]],
) -> None:
    host = host_with_a_topic()
    late = ask(host)
    host.pass_time(ASKED_MS)
    gc.collect()
    assert late() is None
    assert not host.turns._awaited and not host.stops
    assert len(host.answering.answers) == 1


@pytest.mark.parametrize("ask", [grow, delete])
def test_a_change_that_has_waited_for_another_has_the_rest_of_its_time(
    ask: Callable[[Any], weakref.ref[Request]],
) -> None:
    """The request's time began anew."""
    host = host_with_a_topic()
    ask(host)
    host.pass_time(ASKED_MS - 10)
    host.turns.settle(["t"])
    assert host.under_way
    host.pass_time(9)
    assert not host.answering.answers
    host.pass_time(1)
    assert len(host.answering.answers) == 1


def create(host: Any) -> weakref.ref[Request]:
    request = Request()
    kind = messages.CreateTopicsRequest
    topic = kind.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    k19_create_topics.handle(host, request, kind(topics=[topic], timeout_ms=ASKED_MS))
    return weakref.ref(request)


def init(host: Any) -> weakref.ref[Request]:
    request = Request()
    message = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    k22_init_producer_id.handle(host, request, message)
    return weakref.ref(request)


def configure(host: Any) -> weakref.ref[Request]:
    request = Request()
    kind = messages.AlterConfigsRequest
    resource = kind.AlterConfigsResource(resource_type=2, resource_name="t", configs=[])
    k33_alter_configs.handle(host, request, kind(resources=[resource]))
    return weakref.ref(request)


def finalize(host: Any) -> weakref.ref[Request]:
    request = Request()
    message = messages.UpdateFeaturesRequest(feature_updates=[], timeout_ms=ASKED_MS)
    k57_update_features.handle(host, request, message)
    return weakref.ref(request)


def name(host: Any) -> weakref.ref[Request]:
    """A topic that is not there, in a Metadata request."""
    request = Request()
    kind = messages.MetadataRequest
    message = kind(topics=[kind.MetadataRequestTopic(name="by.the.way")])
    auto_create.handle(host, request, message)
    return weakref.ref(request)


@pytest.mark.parametrize(
    ("ask", "wait_ms"),
    [
        (create, ASKED_MS),
        (delete, ASKED_MS),
        (grow, ASKED_MS),
        (finalize, ASKED_MS),
        (configure, CHANGE_WAIT_MS),
        (init, IMPATIENT_WAIT_MS),
        (name, IMPATIENT_WAIT_MS),
        (find, IMPATIENT_WAIT_MS),
    ],
)
def test_nothing_is_left_of_who_waited_too_long_for_its_turn(
    ask: Callable[[Any], weakref.ref[Request]], wait_ms: int
) -> None:
    host = host_with_a_topic()
    host.turns.take()
    late = ask(host)
    host.pass_time(wait_ms - 1)
    assert late() is not None and not host.answering.answers
    host.pass_time(1)
    gc.collect()
    assert late() is None
    assert len(host.answering.answers) == 1
    assert not host.stops and not host.under_way
    # But what makes the topic of the groups' offsets, for whoever asks next.
    assert len(host.turns._queue) == (ask is find)


def test_who_names_a_topic_that_others_have_begun_to_make_meanwhile_waits_for_it() -> None:
    """Who had waited for the turn was told at once that the topic is not there."""
    host = host_with_a_topic()
    host.turns.take()
    name(host)
    host.image.topics["by.the.way"] = Topic((Partition(0),))
    host.turns.begin_change(["by.the.way"], are_new=True)
    host.turns.give_back()
    assert not host.answering.answers and not host.under_way
    host.turns.settle(["by.the.way"])
    assert len(host.answering.answers) == 1


@pytest.mark.parametrize(
    ("ask", "fails"), [(finalize, "finalized_features"), (name, "create_topics")]
)
def test_a_request_that_fails_when_it_has_its_turn_closes_its_connection(
    ask: Callable[[Any], weakref.ref[Request]], fails: str
) -> None:
    """Its handler has returned by then, and its client would wait for ever."""

    def fail(*_: object) -> None:
        raise AttributeError(fails)

    host = host_with_a_topic()
    setattr(host, fails, fail)
    host.turns.take()
    asked = ask(host)
    with pytest.raises(AttributeError, match=fails):
        host.turns.give_back()
    assert host.answering.closed == [asked()]
    assert not host.answering.answers
