"""Requests that wait for topics which others make, in a log directory that hangs: what is left of
them, and for how long they wait."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from groups.fake_host import Core, FakeHost, Partition, Topic
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
from kafkalite.errors import StorageError
from kafkalite.groups.coordinator import GroupCoordinator
from kafkalite.metadata.controller.topics import NewTopic
from kafkalite.metadata.image import OFFSETS_TOPIC, AlikeNames
from kafkalite.protocol import codes, messages
from kafkalite.server import ControlServer
from kafkalite.service.repeated import TROUBLES_INTERVAL_MS, Repeated
from kafkalite.tasks import Future


class AnsweringCore(Core):
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

    broker_ids = (0,)
    controller_id = node_id = 0
    quorum = SimpleNamespace(kraft_version=0)
    forwarded = None
    peers = None

    ask_controller = None
    """This node is the controller."""

    def __init__(self) -> None:
        super().__init__()
        self.answering = AnsweringCore(self)
        self.core = self.answering  # type: ignore[assignment]
        self.groups = GroupCoordinator(self)  # type: ignore[arg-type]
        self.refused_topics = self.failed_topics = Repeated(self.log.info, TROUBLES_INTERVAL_MS)
        self.under_way: list[Future[Any]] = []

    async def _change(self) -> Any:
        hold = self.write_lock.take_over()
        self.under_way.append(Future())
        try:
            return await self.under_way[-1]
        finally:
            hold.release()

    async def create_topics(self, _wanted: Sequence[NewTopic]) -> Any:
        return await self._change()

    async def create_partitions(self, _counts: Mapping[str, int]) -> None:
        await self._change()

    async def delete_topics(self, _names: Sequence[str]) -> Any:
        return await self._change()

    def next_producer_id(self) -> None:
        """There is none left."""

    def on_topics_deleted(self, _names: Sequence[str]) -> None:
        pass

    def may(self, *_: object) -> bool:
        return True

    async def permitted(self, *asked: Any) -> set[str]:
        return set(asked[-1])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Somebody changes the metadata for the block."""
        end = Future[None]()

        async def hold() -> None:
            async with self.write_lock.held():
                await end

        self.tasks.start(hold())
        yield
        end.set(None)
        self.go_on()


class Request:
    """Only to be seen to be gone."""

    api_key = 0
    api_version = 3
    client_id = peer = "a test"

    def __init__(self, message: Any) -> None:
        self._message = message

    def decode(self, _kind: object) -> Any:
        return self._message


def ask(host: Any, key: Any, message: Any) -> weakref.ref[Request]:
    """Has the control thread look at a request, of which nobody else keeps anything."""
    handler: Any = SimpleNamespace(name="it", handle=key.handle, request_kind=None)
    request = Request(message)
    ControlServer(host, {0: handler}, lambda: None)._answer(request)  # type: ignore[arg-type]
    return weakref.ref(request)


def find(host: Any) -> weakref.ref[Request]:
    return ask(host, k10_find_coordinator, messages.FindCoordinatorRequest(key="group"))


def test_nothing_is_left_of_who_was_told_that_a_coordinator_takes_long() -> None:
    """Each stayed in memory until the directory answered: clients that ask again and again filled
    half of the memory of requests, and then everybody was refused."""
    host = HungHost()
    late = []
    for _ in range(100):
        late.append(find(host))
        host.pass_time(100)
    host.pass_time(IMPATIENT_WAIT_MS)
    assert [each() for each in late] == [None] * 100
    assert {each.error_code for each in host.answering.answers} == {codes.COORDINATOR_NOT_AVAILABLE}
    assert len(host.under_way) == 1
    assert not host.under_way[0]._watchers.keys() - {host.groups.runtime._making._wake}  # type: ignore[union-attr]
    assert not host.tasks.limits
    waiting = [find(host) for _ in range(2)]
    (made,) = host.under_way
    made.fail(StorageError("no room"))
    host.go_on()
    assert [each() for each in waiting] == [None, None]
    assert len(host.answering.answers) == 102
    # The log is told once, whoever waited.
    assert host.log.lines == [f"topic {OFFSETS_TOPIC} is not created: no room"]


def test_a_coordinator_whose_topic_others_could_not_make_is_not_there() -> None:
    host = HungHost()
    host.image.topics[OFFSETS_TOPIC] = Topic((Partition(0),))
    with host.write_lock.changing([OFFSETS_TOPIC], are_new=True):
        made = host.tasks.start(host.groups.runtime.make_topic())
        del host.image.topics[OFFSETS_TOPIC]
        host.go_on()
        assert not made.is_done
    host.go_on()
    assert made.is_done and "who was making it has failed" in host.log.lines[0]
    assert not host.groups.runtime.has_topic


ASKED_MS = 5_000


def grow(host: Any) -> weakref.ref[Request]:
    kind = messages.CreatePartitionsRequest
    topics = [kind.CreatePartitionsTopic(name="t", count=2, assignments=None)]
    return ask(host, k37_create_partitions, kind(topics=topics, timeout_ms=ASKED_MS))


def delete(host: Any) -> weakref.ref[Request]:
    message = messages.DeleteTopicsRequest(topic_names=["t"], timeout_ms=ASKED_MS)
    return ask(host, k20_delete_topics, message)


def host_with_a_topic() -> HungHost:
    host = HungHost()
    topic = SimpleNamespace(name="t", id=bytes(15) + b"1", partitions=(Partition(0),))
    host.image = SimpleNamespace(  # type: ignore[assignment]
        topics={"t": topic}, topics_by_id={topic.id: topic}, alike=AlikeNames(), features={}
    )
    host.config = {**host.config, "delete.topic.enable": True, "num.partitions": 1}
    host.config["default.replication.factor"] = 1
    return host


@pytest.mark.parametrize("ask", [grow, delete])
def test_nothing_is_left_of_who_waited_too_long_for_a_change_of_others(
    ask: Callable[[Any], weakref.ref[Request]],
) -> None:
    host = host_with_a_topic()
    with host.write_lock.changing(["t"], are_new=False):
        late = ask(host)
        host.pass_time(ASKED_MS)
        assert late() is None
        assert not host.write_lock._changing["t"]._watchers and not host.tasks.limits
        assert len(host.answering.answers) == 1


@pytest.mark.parametrize("ask", [grow, delete])
def test_a_change_that_has_waited_for_another_has_the_rest_of_its_time(
    ask: Callable[[Any], weakref.ref[Request]],
) -> None:
    """The request's time began anew."""
    host = host_with_a_topic()
    with host.write_lock.changing(["t"], are_new=False):
        ask(host)
        host.pass_time(ASKED_MS - 10)
    host.go_on()
    assert host.under_way
    host.pass_time(9)
    assert not host.answering.answers
    host.pass_time(1)
    assert len(host.answering.answers) == 1


@pytest.mark.parametrize("ask", [grow, delete])
def test_a_change_goes_on_and_holds_its_request_when_that_is_answered_late(
    ask: Callable[[Any], weakref.ref[Request]],
) -> None:
    """The request counts as memory until then: changes that wait are bounded with it."""
    host = host_with_a_topic()
    late = ask(host)
    host.pass_time(ASKED_MS)
    assert len(host.answering.answers) == 1
    assert late() is not None and host.write_lock.has_to_wait()
    host.under_way[0].fail(StorageError("no room"))
    host.go_on()
    assert late() is None and not host.write_lock.has_to_wait()
    assert len(host.answering.answers) == 1


def create(host: Any) -> weakref.ref[Request]:
    kind = messages.CreateTopicsRequest
    topic = kind.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    return ask(host, k19_create_topics, kind(topics=[topic], timeout_ms=ASKED_MS))


def init(host: Any) -> weakref.ref[Request]:
    message = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    return ask(host, k22_init_producer_id, message)


def configure(host: Any) -> weakref.ref[Request]:
    kind = messages.AlterConfigsRequest
    resource = kind.AlterConfigsResource(resource_type=2, resource_name="t", configs=[])
    return ask(host, k33_alter_configs, kind(resources=[resource]))


def finalize(host: Any) -> weakref.ref[Request]:
    message = messages.UpdateFeaturesRequest(feature_updates=[], timeout_ms=ASKED_MS)
    return ask(host, k57_update_features, message)


def name(host: Any) -> weakref.ref[Request]:
    """A topic that is not there, in a Metadata request."""
    kind = messages.MetadataRequest
    return ask(host, auto_create, kind(topics=[kind.MetadataRequestTopic(name="by.the.way")]))


def test_a_topic_that_is_named_again_and_again_and_cannot_be_created_is_one_line() -> None:
    """A client that asked for `a.b` beside `a_b` wrote a line with each retry."""
    host = host_with_a_topic()
    kind = messages.MetadataRequest
    names = [kind.MetadataRequestTopic(name=each) for each in ("not legal", "not legal")]
    for _ in range(10):
        ask(host, auto_create, kind(topics=names))
        host.run()
    assert len(host.answering.answers) == 10
    (line,) = host.log.lines
    assert line.startswith("topic 'not legal' is not created: ")


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
def test_nothing_is_left_of_who_waited_too_long_for_the_lock(
    ask: Callable[[Any], weakref.ref[Request]], wait_ms: int
) -> None:
    host = host_with_a_topic()
    with host.locked():
        late = ask(host)
        host.pass_time(wait_ms - 1)
        assert late() is not None and not host.answering.answers
        host.pass_time(1)
        assert late() is None
        assert len(host.answering.answers) == 1
        assert not host.tasks.limits and not host.under_way
        # But what makes the topic of the groups' offsets, for whoever asks next.
        assert len(host.write_lock._queue) == (ask is find)


def test_who_names_a_topic_that_others_have_begun_to_make_meanwhile_waits_for_it() -> None:
    """Who had waited for the lock was told at once that the topic is not there."""
    host = host_with_a_topic()
    with host.locked():
        name(host)
        host.image.topics["by.the.way"] = Topic((Partition(0),))
        changing = host.write_lock.changing(["by.the.way"], are_new=True)
        changing.__enter__()
    assert not host.answering.answers and not host.under_way
    changing.__exit__(None, None, None)
    host.go_on()
    assert len(host.answering.answers) == 1


@pytest.mark.parametrize(("ask", "fails"), [(finalize, "quorum"), (name, "create_topics")])
def test_a_request_that_fails_when_it_has_the_lock_closes_its_connection(
    ask: Callable[[Any], weakref.ref[Request]], fails: str
) -> None:
    """Its handler has returned by then, and its client would wait for ever."""

    def fail(*_: object) -> None:
        raise AttributeError(fails)

    host = host_with_a_topic()
    setattr(host, fails, fail)
    with host.locked():
        asked = ask(host)
    assert host.answering.closed == [asked()]
    assert not host.answering.answers
    assert any("AttributeError" in line for line in host.log.lines)
    assert not host.write_lock.has_to_wait()
