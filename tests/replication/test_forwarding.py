"""What a broker learns of the controller that it forwards to."""

from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any, cast

from kafkalite.errors import MalformedRequestError
from kafkalite.protocol import codes, messages
from kafkalite.replication.forwarding import GIVE_UP_MS, RemoteEngine
from kafkalite.tasks import Future, Tasks
from kafkalite.timers import Timers

CREATE_TOPICS, FETCH = 19, 1


class Scene:
    """An engine, and a controller that answers in one version of CreateTopics."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.told: list[Any] = []
        self.answer: Any = "no answer"
        self.controller_address: Any = None
        self.image = object()
        failures: list[Exception] = []
        self.tasks = Tasks(Timers(), failures.append)
        context = SimpleNamespace(tasks=self.tasks, log=SimpleNamespace(debug=lambda _: None))
        self.channels = self.publisher = self
        self.engine = RemoteEngine(cast(Any, self))
        self.engine.serve(cast(Any, context))

    def ask(self, _purpose: str, address: Any, *_: Any) -> Future[Any]:
        self.asked.append(address)
        answer = Future[Any]()
        answer.set(self.answer)
        return answer

    def publish_forwarded(self, image: object, versions: Any) -> None:
        assert image is self.image
        self.told.append(versions)


def test_versions_are_learnt_once_of_each_active_controller() -> None:
    scene = Scene()
    scene.engine.learn_versions()
    assert scene.asked == []
    scene.controller_address = ("one", 1)
    scene.engine.learn_versions()
    assert scene.told == []
    row = messages.ApiVersionsResponse.ApiVersion
    keys = [
        row(api_key=FETCH, min_version=4, max_version=17),
        row(api_key=CREATE_TOPICS, min_version=2, max_version=5),
    ]
    scene.answer = messages.ApiVersionsResponse(api_keys=keys)
    scene.engine.learn_versions()
    scene.engine.learn_versions()
    # Only keys that are forwarded are the controller's.
    assert scene.told == [[(CREATE_TOPICS, 2, 5)]]
    assert scene.asked == [("one", 1)] * 2
    scene.controller_address = ("two", 2)
    scene.engine.learn_versions()
    assert len(scene.told) == 2


def test_a_controller_that_does_not_say_leaves_what_is_told() -> None:
    scene = Scene()
    scene.controller_address = ("one", 1)
    scene.answer = messages.ApiVersionsResponse(error_code=codes.UNSUPPORTED_VERSION)
    scene.engine.learn_versions()
    assert scene.told == []


def test_a_controller_is_not_asked_again_while_it_is_being_asked() -> None:
    """Each heartbeat asked one that hung, and what clients wanted of it queued behind that."""
    scene = Scene()
    answers: list[Future[Any]] = []

    def ask(_purpose: str, address: Any, *_: Any) -> Future[Any]:
        scene.asked.append(address)
        answers.append(Future[Any]())
        return answers[-1]

    scene.ask = ask  # type: ignore[method-assign]
    scene.controller_address = ("one", 1)
    for _ in range(3):
        scene.engine.learn_versions()
    scene.controller_address = ("two", 2)
    scene.engine.learn_versions()
    assert scene.asked == [("one", 1), ("two", 2)]
    answers[1].set("no answer in time")
    while scene.tasks.ready:
        scene.tasks.ready.popleft()()
    scene.engine.learn_versions()
    assert scene.asked[2:] == [("two", 2)]


class Closing:
    """What becomes of a client's request."""

    def __init__(self) -> None:
        self.closed: list[Any] = []

    def forwarded(self, _request: Any) -> bytes:
        return b""

    def close_connection(self, request: Any) -> None:
        self.closed.append(request)


class Malformed:
    """A request whose body is none of its kind."""

    api_key, peer, principal, client_host = CREATE_TOPICS, "peer", "User:ANONYMOUS", "127.0.0.1"

    def decode(self, _kind: Any) -> Any:
        raise MalformedRequestError("it ends too early")


def test_the_connection_of_a_malformed_request_is_closed_without_a_controller_too() -> None:
    """It was never answered: the refusal could not be put into words."""
    scene, requests, request = Scene(), Closing(), Malformed()
    scene.now_ms = chain([0], repeat(GIVE_UP_MS)).__next__  # type: ignore[attr-defined]
    context = cast(Any, scene.engine._context)
    context.core = SimpleNamespace(requests=requests)
    context.log.warning = lambda _: None
    work = scene.engine.forward(context, cast(Any, request), messages.CreateTopicsRequest)
    context.tasks.start(work)
    assert requests.closed == [request]
