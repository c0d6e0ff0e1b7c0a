"""The choice of log directories for replicas, and what the controller is told of it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from kafkalite.metadata.image import UNASSIGNED_DIRECTORY, PartitionImage
from kafkalite.metadata.publisher import TopicState
from kafkalite.protocol import codes, messages
from kafkalite.replicas import Replicas
from kafkalite.replication.proposals.directories import ASSIGNMENTS_MAX, Directories

TOPIC, ONE, TWO = b"t" * 16, b"1" * 16, b"2" * 16


def state(*directories: bytes, broker: int = 7) -> TopicState:
    partitions = [
        PartitionImage(index, broker, 0, 0, (broker,), (broker,), directories=(directory,))
        for index, directory in enumerate(directories)
    ]
    return TopicState(TOPIC, False, {}, tuple(partitions))


def in_turns(count: int) -> Sequence[bytes]:
    return [(ONE, TWO)[index % 2] for index in range(count)]


def none_left(_count: int) -> Sequence[bytes]:
    raise AssertionError("a directory is chosen twice")


def chosen(placed: dict[str, TopicState]) -> list[bytes]:
    return [each.directories[0] for each in placed["a"].partitions]


def test_a_choice_holds_until_the_metadata_says_so() -> None:
    directories = Directories(7)
    unassigned = {"a": state(*[UNASSIGNED_DIRECTORY] * 3)}
    assert chosen(directories.placed(unassigned, in_turns)) == [ONE, TWO, ONE]
    assert chosen(directories.placed(unassigned, none_left)) == [ONE, TWO, ONE]
    request = directories.request(5)
    assert (request.broker_id, request.broker_epoch) == (7, 5)
    told = {
        each.id: [part.partition_index for part in each.topics[0].partitions]
        for each in request.directories
    }
    assert told == {ONE: [0, 2], TWO: [1]}
    assert chosen(directories.placed({"a": state(ONE, TWO, ONE)}, none_left)) == [ONE, TWO, ONE]
    assert directories.request(5) is None


def test_what_others_hold_or_the_controller_has_placed_stays() -> None:
    directories = Directories(7)
    elsewhere = {"a": state(UNASSIGNED_DIRECTORY, broker=8)}
    assert directories.placed(elsewhere, none_left) == elsewhere
    offline = {"a": state(b"x" * 16)}
    assert directories.placed(offline, none_left) == offline
    assert directories.request(5) is None


def test_a_replica_whose_directory_is_gone_is_placed_anew_and_told() -> None:
    """The id of a disk that was replaced stayed in the metadata, and the replica offline."""
    directories = Directories(7, lambda directory: directory not in (ONE, TWO))
    lost = {"a": state(b"x" * 16, TWO, UNASSIGNED_DIRECTORY)}
    assert chosen(directories.placed(lost, in_turns)) == [ONE, TWO, TWO]
    assert told_to(directories.request(5)) == [ONE, TWO]
    assert chosen(directories.placed({"a": state(ONE, TWO, TWO)}, none_left)) == [ONE, TWO, TWO]
    assert directories.request(5) is None


def test_a_log_that_was_found_elsewhere_is_told() -> None:
    directories = Directories(7)
    directories.found(TOPIC, 0, TWO)
    assert chosen(directories.placed({"a": state(ONE)}, none_left)) == [TWO]
    assert directories.request(5) is not None


def test_a_request_is_bounded() -> None:
    directories = Directories(7)
    count = ASSIGNMENTS_MAX + 1
    directories.placed({"a": state(*[UNASSIGNED_DIRECTORY] * count)}, in_turns)
    request = directories.request(5)
    told = [part for each in request.directories for part in each.topics[0].partitions]
    assert len(told) == ASSIGNMENTS_MAX


def answered(request: Any, code: int = codes.NONE) -> Any:
    """The controller has taken all in, or refused it."""
    kind = messages.AssignReplicasToDirsResponse
    data = kind.DirectoryData
    directories = [
        data(
            id=each.id,
            topics=[
                data.TopicData(
                    topic_id=topic.topic_id,
                    partitions=[
                        data.TopicData.PartitionData(
                            partition_index=part.partition_index, error_code=code
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in each.topics
            ],
        )
        for each in request.directories
    ]
    return kind(directories=directories)


def told_to(request: Any) -> list[bytes]:
    return [each.id for each in request.directories]


def test_a_move_is_told_until_it_is_taken_in_and_the_log_stays_until_the_metadata_says_so() -> None:
    directories = Directories(7)
    directories.placed({"a": state(UNASSIGNED_DIRECTORY)}, lambda _count: [ONE])
    directories.move(TOPIC, 0, TWO)
    request = directories.request(5)
    assert told_to(request) == [TWO]
    assert told_to(directories.request(5)) == [TWO]
    assert chosen(directories.placed({"a": state(UNASSIGNED_DIRECTORY)}, none_left)) == [ONE]
    assert chosen(directories.placed({"a": state(ONE)}, none_left)) == [ONE]
    directories.on_answer(answered(request))
    assert directories.request(5) is None
    assert chosen(directories.placed({"a": state(ONE)}, none_left)) == [ONE]
    assert chosen(directories.placed({"a": state(TWO)}, none_left)) == [TWO]


def test_a_move_that_is_given_up_is_told_behind_the_one_before() -> None:
    directories = Directories(7)
    directories.move(TOPIC, 0, TWO)
    first = directories.request(5)
    directories.move(TOPIC, 0, ONE)
    # The metadata does not know of either yet.
    assert chosen(directories.placed({"a": state(ONE)}, none_left)) == [ONE]
    directories.on_answer(answered(first))
    second = directories.request(5)
    assert told_to(second) == [ONE]
    directories.on_answer(answered(second))
    assert directories.request(5) is None


def test_of_a_replica_that_is_taken_away_nothing_is_told_any_more() -> None:
    """The controller refused it once a second, for ever, and was told it of the next replica."""
    directories = Directories(7)
    directories.placed({"a": state(*[UNASSIGNED_DIRECTORY] * 2)}, in_turns)
    directories.move(TOPIC, 0, TWO)
    assert directories.request(5) is not None
    directories.placed({"a": state(ONE, TWO, broker=8)}, none_left)
    assert directories.request(5) is None
    # Its move is given up behind that.
    directories.move(TOPIC, 0, ONE)
    directories.on_answer(answered(directories.request(5), codes.NOT_LEADER_OR_FOLLOWER))
    assert directories.request(5) is None
    given_back = {"a": state(*[UNASSIGNED_DIRECTORY] * 2)}
    assert chosen(directories.placed(given_back, lambda _count: [TWO, ONE])) == [TWO, ONE]


def test_a_replica_that_has_a_log_stays_where_it_lies() -> None:
    """It was taken away and given back before this broker had looked, and another directory was
    chosen for it, in which nothing lay."""
    paths = {"/two": TWO}
    logs = {("a", 0): SimpleNamespace(directory="/two/a-0")}
    core = SimpleNamespace(
        logs=SimpleNamespace(find=lambda *place: logs.get(place)),
        moves=SimpleNamespace(directory_id=paths.get),
    )
    replicas = Replicas(cast(Any, core), cast(Any, None), cast(Any, None))
    replicas.prefer("a", 1, TWO)
    unassigned = {"a": state(*[UNASSIGNED_DIRECTORY] * 3)}
    placed = Directories(7).placed(unassigned, lambda _: [ONE] * 3, replicas.take_preferred)
    assert chosen(placed) == [TWO, TWO, ONE]


def test_a_directory_that_was_asked_for_is_taken_for_a_new_replica() -> None:
    directories = Directories(7)
    unassigned = {"a": state(*[UNASSIGNED_DIRECTORY] * 2)}
    wanted = {("a", 0): TWO}
    placed = directories.placed(unassigned, in_turns, lambda *place: wanted.get(place))
    assert chosen(placed) == [TWO, TWO]
