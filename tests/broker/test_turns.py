"""A turn of the control thread: in which order it does what there is to do."""

import gc
import threading
import weakref
from contextlib import suppress
from functools import partial
from itertools import pairwise
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite._native import Moves
from kafkalite.context import Context
from kafkalite.errors import KafkaliteError
from kafkalite.metadata.write_lock import WriteLock
from kafkalite.protocol import messages
from kafkalite.server import ControlServer
from kafkalite.service.stderr_log import Log
from kafkalite.timers import Timers

KEY = 60


def context_of(requests: Any, logs: Any = None) -> Context:
    """The state of a control thread whose core has these `requests` and `logs`."""
    logs = logs or SimpleNamespace(answer=None)
    core: Any = SimpleNamespace(cluster_id="cluster", moves=Moves, requests=requests, logs=logs)
    config: Any = {"node.id": 1}
    metadata: Any = SimpleNamespace(cluster=None, engine=None, lock=None, timers=Timers())
    return Context(core, config, Log("error"), metadata)


def test_what_is_ready_is_done_before_the_next_request() -> None:
    """Who waits for a topic looks again when it is there: another request could take it away."""
    done: list[str] = []
    requests = [
        SimpleNamespace(api_key=KEY, api_version=1, peer="", decode=lambda kind: kind(), name=name)
        for name in ("one", "two")
    ]
    context = context_of(
        SimpleNamespace(wait=lambda _timeout_ms: (requests, [1], None), wake=None),
        SimpleNamespace(answer=lambda _number: None, make=lambda *_: None),
    )

    def do(name: str) -> None:
        """And have something done soon."""
        done.append(name)
        context.tasks.soon(lambda: done.append(f"after {name}"))

    def handle(_context: Context, request: Any, _message: Any) -> None:
        do(request.name)

    context.logs.make({}).watch(lambda: do("woken"))
    context.timers.call_at(0, lambda: do("timer"))
    kind = messages.DescribeClusterRequest
    handler: Any = SimpleNamespace(name="DescribeCluster", request_kind=kind, handle=handle)
    assert ControlServer(context, {KEY: handler}, lambda: None)._take_turn(0)
    turns = ("woken", "one", "two", "timer")
    assert done == [each for name in turns for each in (name, f"after {name}")]


def test_the_answers_of_tasks_that_go_on_together_leave_together() -> None:
    """Each woke its network thread by itself: of a hundred commits in a batch, a hundred times."""
    done: list[str] = []
    kind = messages.DescribeClusterRequest
    asked = [
        SimpleNamespace(api_key=KEY, api_version=1, peer="", decode=lambda kind: kind())
        for _ in range(3)
    ]
    turns = iter([(asked, [], None), ([], [1], None)])
    requests = SimpleNamespace(
        wait=lambda _timeout_ms: next(turns),
        wake=None,
        gather_answers=lambda: done.append("gather"),
        send_answers=lambda: done.append("send"),
        respond=lambda _request, answer: done.append(answer),
    )
    context = context_of(
        requests, SimpleNamespace(answer=lambda _number: "written", make=lambda *_: None)
    )
    written = context.logs.make({})

    async def handle(_context: Context, _request: Any, _message: Any) -> Any:
        return await written

    handler: Any = SimpleNamespace(name="DescribeCluster", request_kind=kind, handle=handle)
    server = ControlServer(context, {KEY: handler}, lambda: None)
    for _ in range(2):
        assert server._take_turn(0)
    assert done == ["gather", "written", "written", "written", "send"]


def test_a_request_that_nobody_can_answer_costs_its_connection_only() -> None:
    """A key that Rust answers and handed over all the same ended the control thread, and with it
    the broker; so did what failed while a failure was told."""
    closed: list[str] = []

    def decode(_kind: object) -> None:
        raise ValueError("unreadable")

    asked = [
        SimpleNamespace(api_key=key, api_version=1, peer=f"client {key}", decode=decode)
        for key in (0, KEY, 1)
    ]
    turns = iter([(asked, [], None), ([], [], None)])

    def close(request: Any) -> None:
        closed.append(request.peer)
        if request.api_key == 0:
            raise KafkaliteError("it cannot be closed")

    requests = SimpleNamespace(
        wait=lambda _timeout_ms: next(turns), wake=None, close_connection=close
    )
    context = context_of(requests)
    kind = messages.DescribeClusterRequest
    handler: Any = SimpleNamespace(name="DescribeCluster", request_kind=kind, handle=None)
    server = ControlServer(context, {KEY: handler}, lambda: None)
    assert server._take_turn(0)
    assert closed == ["client 0", f"client {KEY}", "client 1"]
    assert server._take_turn(0)


def test_requests_that_have_not_begun_are_left_when_nobody_waits_for_answers() -> None:
    """A stop worked off all that was queued, for as long as it took."""
    done: list[str] = []
    asked = [
        SimpleNamespace(api_key=KEY, api_version=1, peer="", decode=lambda kind: kind(), name=name)
        for name in ("one", "two", "three")
    ]
    context = context_of(SimpleNamespace(wait=lambda _timeout_ms: (asked, [], None), wake=None))

    def handle(_context: Context, request: Any, _message: Any) -> None:
        done.append(request.name)
        context.is_closed = request.name == "two"

    kind = messages.DescribeClusterRequest
    handler: Any = SimpleNamespace(name="DescribeCluster", request_kind=kind, handle=handle)
    assert ControlServer(context, {KEY: handler}, lambda: None)._take_turn(0)
    assert done == ["one", "two"]


def test_a_topic_whose_logs_are_being_made_does_not_count_yet() -> None:
    """Its partitions were told as offline, by which operators are called: for as long as a log
    directory hung."""
    lock = WriteLock()
    topics = {name: SimpleNamespace(name=name, partitions=[0, 1]) for name in ("old", "new")}
    image = SimpleNamespace(topics=topics)
    cluster = SimpleNamespace(image=image)
    metadata: Any = SimpleNamespace(cluster=cluster, engine=None, lock=lock, timers=Timers())
    requests = SimpleNamespace(wake=None)
    core: Any = SimpleNamespace(cluster_id="cluster", moves=Moves, logs=None, requests=requests)
    config: Any = {"node.id": 1}
    context = Context(core, config, Log("error"), metadata)
    with lock.changing(["new"], are_new=True):
        assert context.topic_counts() == (1, 2)
    assert context.topic_counts() == (2, 4)


def test_what_fails_in_the_background_is_told_whatever_it_was() -> None:
    """Only what Kafka has a code for was: who waited for anything else did so for ever, and the
    metadata had no snapshot any more."""
    woken: SimpleQueue[int] = SimpleQueue()
    requests = SimpleNamespace(wake=woken.put)
    context = context_of(requests)

    def fail() -> None:
        raise ZeroDivisionError

    failed, done = context.background.run(fail), context.background.run(lambda: None)
    for _ in range(2):
        context.woken(woken.get(timeout=60))
    with pytest.raises(KafkaliteError, match="ZeroDivisionError"):
        failed.result()
    assert done.result() is None


def test_requests_have_their_turn_though_a_timer_is_always_due() -> None:
    """A callback that was due again at once was called for ever: no request was looked at, and the
    broker could not be stopped."""
    done: list[str] = []
    asked = [SimpleNamespace(api_key=KEY, api_version=1, peer="", decode=lambda kind: kind())]
    context = context_of(SimpleNamespace(wait=lambda _timeout_ms: (asked, [], None), wake=None))

    def fire() -> None:
        assert len(done) < 10
        done.append("timer")
        context.timers.call_at(0, fire)

    context.timers.call_at(0, fire)
    context.timers.call_at(1, lambda: done.append("other timer"))
    kind = messages.DescribeClusterRequest
    handle = lambda *_: done.append("request")  # noqa: E731 - one line
    handler: Any = SimpleNamespace(name="DescribeCluster", request_kind=kind, handle=handle)
    server = ControlServer(context, {KEY: handler}, lambda: None)
    for _ in range(2):
        assert server._take_turn(0)
    assert done == ["request", "timer", "other timer", "request", "timer"]


def answering(requests: Any) -> tuple[Context, ControlServer]:
    """A control thread's parts that answer DescribeCluster, with these `core.requests`."""
    context = context_of(requests)
    kind, answer = messages.DescribeClusterRequest, messages.DescribeClusterResponse()
    handler: Any = SimpleNamespace(
        name="DescribeCluster", request_kind=kind, handle=lambda *_: answer
    )
    return context, ControlServer(context, {KEY: handler}, lambda: None)


def test_large_requests_are_decoded_once_there_is_room_for_their_answers() -> None:
    """All that had come were decoded, and waited with their answers for one that was not read."""
    woken: SimpleQueue[int] = SimpleQueue()
    begun: SimpleQueue[str] = SimpleQueue()
    has_room = threading.Event()
    has_room.set()
    encoded: list[str] = []

    def respond_large(request: Any, _responses: object) -> None:
        encoded.append(request.name)
        has_room.clear()

    def wait_for_room() -> None:
        begun.put("waits for room")
        assert has_room.wait(60)

    requests = SimpleNamespace(
        wake=woken.put,
        has_room=has_room.is_set,
        wait_for_room=wait_for_room,
        respond=lambda *_: True,
        respond_large=respond_large,
    )
    context, server = answering(requests)

    def decode_large(kind: Any, name: str) -> Any:
        begun.put(f"decodes {name}")
        return kind()

    for name in ["one", "two", "three"]:
        request: Any = SimpleNamespace(
            api_key=KEY,
            api_version=1,
            peer="",
            decode=lambda _: None,
            decode_large=partial(decode_large, name=name),
            name=name,
        )
        server._answer(request)

    def next_begun() -> str:
        while begun.empty():
            with suppress(Empty):
                context.woken(woken.get(timeout=0.05))
            server._call_ready()
        return begun.get()

    assert next_begun() == "decodes one"
    for before, name in pairwise(["one", "two", "three"]):
        assert next_begun() == "waits for room"
        assert encoded[-1] == before and begun.empty()
        has_room.set()
        assert next_begun() == f"decodes {name}"


def test_a_large_request_is_gone_while_its_answer_waits_for_room() -> None:
    """Its message was kept, and no garbage collected, until earlier answers were read."""
    woken: SimpleQueue[int] = SimpleQueue()
    rooms = iter([True, False])
    decoded: list[weakref.ref[Any]] = []
    seen: SimpleQueue[tuple[bool, bool]] = SimpleQueue()
    encoded: list[bool] = []

    def decode_large(kind: Any) -> Any:
        value: Any = {1, 2}
        decoded.append(weakref.ref(value))
        return kind(include_cluster_authorized_operations=value)

    requests = SimpleNamespace(
        wake=woken.put,
        has_room=lambda: next(rooms),
        wait_for_room=lambda: seen.put((decoded[0]() is None, gc.isenabled())),
        respond_large=lambda *_: encoded.append(gc.isenabled()),
    )
    context, server = answering(requests)
    request: Any = SimpleNamespace(
        api_key=KEY, api_version=1, peer="", decode=lambda _: None, decode_large=decode_large
    )
    server._answer(request)
    while not encoded:
        context.woken(woken.get(timeout=60))
        server._call_ready()
    assert seen.get(timeout=60) == (True, True)
    assert encoded == [False]


def test_large_answers_are_encoded_one_at_a_time() -> None:
    """Each had a thread, however many there were: of 150 at once 71, and what they had encoded."""
    woken: SimpleQueue[int] = SimpleQueue()
    begun: SimpleQueue[str] = SimpleQueue()
    may_end = threading.Semaphore(0)

    def respond_large(request: Any, _responses: object) -> None:
        begun.put(request.name)
        assert may_end.acquire(timeout=60)

    requests = SimpleNamespace(
        wake=woken.put, has_room=lambda: True, respond=lambda *_: True, respond_large=respond_large
    )
    context, server = answering(requests)
    names = ["one", "two", "three"]
    for name in names:
        request: Any = SimpleNamespace(
            api_key=KEY, api_version=1, peer="", decode=lambda kind: kind(), name=name
        )
        server._answer(request)
    for name in names:
        assert begun.get(timeout=60) == name
        assert begun.empty() and woken.empty(), "the others wait"
        may_end.release()
        context.woken(woken.get(timeout=60))
        server._call_ready()
    assert begun.empty()
