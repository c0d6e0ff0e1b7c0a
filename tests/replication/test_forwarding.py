"""What a broker learns of the controller that it forwards to."""

from types import SimpleNamespace
from typing import Any, cast

from kafkalite.protocol import codes, messages
from kafkalite.replication.forwarding import RemoteEngine
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
        context = SimpleNamespace(
            tasks=Tasks(Timers(), failures.append), log=SimpleNamespace(debug=lambda _: None)
        )
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
