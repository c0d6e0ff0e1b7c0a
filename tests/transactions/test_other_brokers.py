"""Markers for other brokers, and questions to their coordinators: what goes together, and what
becomes of it."""

from collections.abc import Callable
from typing import Any

from kafkalite.protocol import codes, messages
from kafkalite.tasks import Future, Tasks
from kafkalite.timers import Timers
from kafkalite.transactions.machine import AddRequest
from kafkalite.transactions.markers import marker_of
from kafkalite.transactions.other_brokers import OtherBrokers

TIMEOUT_MS = 7_000


class Scene:
    """Other brokers, who answer when the test says so."""

    def __init__(self, level: int = 30) -> None:
        failures: list[Exception] = []
        self.tasks = Tasks(Timers(), failures.append)
        self.asked: list[tuple[str, int, Any, int, Future[Any]]] = []
        self.waits_ms: list[int] = []
        self.brokers = OtherBrokers(self, self.tasks, lambda: level, TIMEOUT_MS)
        self.failures = failures

    def ask(
        self, purpose: str, node_id: int, message: Any, version: int, timeout_ms: int
    ) -> Future[Any]:
        self.waits_ms.append(timeout_ms)
        answer = Future[Any]()
        told = type(message).decode(message.encode(version), version)
        self.asked.append((purpose, node_id, told, version, answer))
        return answer

    def go_on(self) -> None:
        while self.tasks.yielded or self.tasks.ready:
            while self.tasks.yielded:
                self.tasks.yielded.popleft().set(None)
            while self.tasks.ready:
                self.tasks.ready.popleft()()
        assert not self.failures

    def mark(self, producer_id: int, epoch: int, index: int, node_id: int = 2) -> Future[int]:
        written = Future[int]()
        marker = marker_of(producer_id, epoch, True, 3, 2)
        self.brokers.write_marker(node_id, marker, ("t", index), written)
        return written

    def answer(self, make: Callable[[Any], Any]) -> None:
        """Answers the oldest request."""
        _, _, message, _, answer = self.asked.pop(0)
        answer.set(make(message))
        self.go_on()


def all_written(request: Any) -> Any:
    kind = messages.WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic_kind = kind.WritableTxnMarkerTopicResult
    row = topic_kind.WritableTxnMarkerPartitionResult
    return messages.WriteTxnMarkersResponse(
        markers=[
            kind(
                producer_id=marker.producer_id,
                topics=[
                    topic_kind(
                        name=topic.name,
                        partitions=[row(partition_index=each) for each in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def test_markers_of_a_turn_are_one_request_and_those_that_come_meanwhile_the_next() -> None:
    scene = Scene()
    first = [scene.mark(7, 0, 0), scene.mark(7, 0, 1), scene.mark(8, 0, 0)]
    elsewhere = scene.mark(7, 0, 2, node_id=3)
    scene.go_on()
    late = scene.mark(9, 0, 0)
    scene.go_on()
    assert [(node_id, len(asked.markers)) for _, node_id, asked, *_ in scene.asked] == [
        (2, 2),
        (3, 1),
    ]
    scene.answer(all_written)
    assert [each.result() for each in first] == [codes.NONE] * 3
    assert not elsewhere.is_done
    assert not late.is_done
    scene.answer(all_written)
    scene.answer(all_written)
    assert elsewhere.result() == late.result() == codes.NONE


def test_markers_of_two_epochs_of_a_producer_do_not_share_an_answer() -> None:
    scene = Scene()
    old, new = scene.mark(7, 0, 0), scene.mark(7, 1, 0)
    scene.go_on()
    scene.answer(lambda _: messages.WriteTxnMarkersResponse())
    assert old.result() == codes.NOT_LEADER_OR_FOLLOWER
    assert not new.is_done
    scene.answer(all_written)
    assert new.result() == codes.NONE


def test_a_marker_that_is_not_answered_is_to_be_tried_again() -> None:
    scene = Scene()
    written = scene.mark(7, 0, 0)
    scene.go_on()
    scene.answer(lambda _: messages.WriteTxnMarkersResponse())
    assert written.result() == codes.NOT_LEADER_OR_FOLLOWER


def unknown_there(request: Any) -> Any:
    answer = all_written(request)
    for marker in answer.markers:
        for topic in marker.topics:
            for each in topic.partitions:
                each.error_code = codes.UNKNOWN_TOPIC_OR_PARTITION
    return answer


def test_a_partition_that_another_broker_does_not_have_online_still_needs_its_marker() -> None:
    """Kafka's broker says UNKNOWN_TOPIC_OR_PARTITION where its log directory has failed."""
    scene = Scene()
    written = scene.mark(7, 0, 0)
    scene.go_on()
    scene.answer(unknown_there)
    assert written.result() == codes.NOT_LEADER_OR_FOLLOWER


def test_what_waits_behind_a_request_without_an_answer_is_looked_up_anew_at_once() -> None:
    """Ten thousand markers for a broker that hung went out by thousands, each after 30 s, while
    their partitions were led elsewhere by then."""
    scene = Scene()
    asked = scene.mark(7, 0, 0)
    scene.go_on()
    behind = [scene.mark(8, 0, 0), scene.mark(7, 1, 0)]
    scene.answer(lambda _: "no answer in time")
    assert [each.result() for each in (asked, *behind)] == [codes.NOT_LEADER_OR_FOLLOWER] * 3
    assert not scene.asked
    later = scene.mark(7, 1, 0)
    scene.go_on()
    scene.answer(all_written)
    assert later.result() == codes.NONE


def test_who_writes_markers_is_waited_for_longer_than_it_may_wait_itself() -> None:
    """It answered at the moment at which it was given up: of a request in which one partition could
    not commit, none of the others was known to be written, and all were asked for again."""
    scene = Scene()
    scene.mark(7, 0, 0)
    question(scene, "a")
    scene.go_on()
    of_markers, of_question = scene.waits_ms
    assert of_markers > TIMEOUT_MS
    assert of_question == TIMEOUT_MS


def test_brokers_that_may_be_old_are_not_told_the_version_of_the_transaction() -> None:
    for level, version in ((30, 2), (29, 1)):
        scene = Scene(level)
        scene.mark(7, 0, 0)
        scene.go_on()
        assert scene.asked[0][3] == version


def question(scene: Scene, name: str, verify_only: bool = True) -> Future[Any]:
    request = AddRequest(7, 0, frozenset([("t", 0), ("t", 1)]), 2)
    return scene.tasks.start(
        scene.brokers.ask_coordinator(2, name, request, verify_only=verify_only)
    )


def test_a_coordinator_answers_for_each_partition() -> None:
    scene = Scene()
    asked = question(scene, "a"), question(scene, "b", verify_only=False)
    again = question(scene, "a")
    scene.go_on()
    told = [(each.transactional_id, each.verify_only) for each in scene.asked[0][2].transactions]
    assert told == [("a", True), ("b", False)]
    kind = messages.AddPartitionsToTxnResponse
    topic, result = kind.AddPartitionsToTxnTopicResult, kind.AddPartitionsToTxnResult
    row = topic.AddPartitionsToTxnPartitionResult

    def answer(request: Any) -> Any:
        rows = [row(partition_index=0), row(partition_index=1, partition_error_code=120)]
        found = [topic(name="t", results_by_partition=rows)]
        names = [each.transactional_id for each in request.transactions]
        return kind(
            results_by_transaction=[
                result(transactional_id=name, topic_results=found) for name in names
            ]
        )

    scene.answer(answer)
    for each in asked:
        assert each.result() == {("t", 0): 0, ("t", 1): 120}
    assert not again.is_done
    scene.answer(lambda _: "it has closed")
    retriable = codes.COORDINATOR_LOAD_IN_PROGRESS
    assert again.result() == {("t", 0): retriable, ("t", 1): retriable}


def test_a_request_that_is_refused_as_a_whole_is_refused_for_each_partition() -> None:
    scene = Scene()
    asked = question(scene, "a")
    scene.go_on()
    code = codes.CLUSTER_AUTHORIZATION_FAILED
    scene.answer(lambda _: messages.AddPartitionsToTxnResponse(error_code=code))
    assert set(asked.result().values()) == {code}
