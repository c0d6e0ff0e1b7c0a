"""Changes of the metadata as tables: an image and a request, and the records or the refusal."""

from typing import Any

import pytest

from kafkalite.metadata.controller import RECORDS_PER_OPERATION_MAX, ControllerError
from kafkalite.metadata.controller.configs import config_records
from kafkalite.metadata.controller.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    feature_records,
    feature_refusal,
    finalized_features,
)
from kafkalite.metadata.controller.partitions import (
    Assignment,
    check_assignment,
    check_growth,
    check_reassignment,
    count_new,
    grow,
)
from kafkalite.metadata.controller.producer_ids import next_block
from kafkalite.metadata.controller.topics import (
    NewTopic,
    check_new_topic,
    count_partitions,
    creation_records,
    partition_count,
    removal_records,
)
from kafkalite.metadata.fold import Fold
from kafkalite.metadata.image import GROUP, TOPIC, AlikeNames, Image
from kafkalite.protocol import codes, messages

BROKERS = (1, 2, 3)
HERE = Assignment((1,), (bytes([9]) * 16,))
THERE = Assignment((2, 3), (bytes([7]) * 16, bytes([8]) * 16))
IDS = {"orders": bytes([1]) * 16, "a_b": bytes([2]) * 16}


def folded(*written: Any) -> Image:
    fold = Fold()
    for message in written:
        fold.replay(message)
    return fold.take_delta(1, len(written) - 1, 0).image


def image() -> Image:
    """With `orders`, of two partitions, and `a_b`, of one on other brokers."""
    wanted = [NewTopic("orders", 2, {"flush.ms": "5"}), NewTopic("a_b", 1, {})]
    return folded(
        messages.RegisterBrokerRecord(broker_id=1, broker_epoch=4),
        messages.FeatureLevelRecord(name="metadata.version", feature_level=28),
        *creation_records(wanted, IDS, [HERE, HERE, THERE]),
    )


def refusal_of(function: Any, *arguments: Any) -> tuple[int, str]:
    with pytest.raises(ControllerError) as refused:
        function(*arguments)
    return refused.value.code, str(refused.value)


def test_the_records_that_make_topics_add_up_to_them() -> None:
    made = image()
    orders, other = made.topics["orders"], made.topics["a_b"]
    assert made.configs == {(TOPIC, "orders"): {"flush.ms": "5"}}
    assert [each.index for each in orders.partitions] == [0, 1]
    assert {each.leader for each in orders.partitions} == {1}
    (there,) = other.partitions
    assert (there.leader, there.replicas, there.isr) == (2, (2, 3), (2, 3))
    assert [there.directory_of(each) for each in (2, 3)] == [bytes([7]) * 16, bytes([8]) * 16]
    with pytest.raises(ValueError, match="not in"):
        there.directory_of(1)


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("__cluster_metadata", codes.INVALID_REQUEST, "internal topic"),
        ("", codes.INVALID_TOPIC_EXCEPTION, "empty string"),
        ("..", codes.INVALID_TOPIC_EXCEPTION, "'..' is not allowed"),
        ("x" * 250, codes.INVALID_TOPIC_EXCEPTION, "longer than the max"),
        ("ä", codes.INVALID_TOPIC_EXCEPTION, "other than ASCII"),
        ("orders", codes.TOPIC_ALREADY_EXISTS, "already exists"),
        ("a.b", codes.INVALID_TOPIC_EXCEPTION, "collides with existing topic: a_b"),
        ("c.d", codes.INVALID_TOPIC_EXCEPTION, "collides with existing topic: c_d"),
    ],
)
def test_a_topic_that_cannot_be_made_is_refused(name: str, code: int, words: str) -> None:
    others = AlikeNames()
    others.add("c_d")
    refused, sentence = refusal_of(check_new_topic, image(), name, others)
    assert refused == code and words in sentence
    check_new_topic(image(), "x" * 249, others)


def asked_topic(factor: int, count: int, *assigned: tuple[int, list[int]]) -> Any:
    kind = messages.CreateTopicsRequest.CreatableTopic
    assignment = kind.CreatableReplicaAssignment
    assignments = [assignment(partition_index=at, broker_ids=ids) for at, ids in assigned]
    return kind(replication_factor=factor, num_partitions=count, assignments=assignments)


@pytest.mark.parametrize(
    ("topic", "outcome"),
    [
        (asked_topic(-1, -1), 7),
        (asked_topic(3, 5), 5),
        (asked_topic(-1, -1, (1, [2]), (0, [3, 1])), 2),
        (asked_topic(0, 1), codes.INVALID_REPLICATION_FACTOR),
        (asked_topic(-2, 0), codes.INVALID_REPLICATION_FACTOR),
        (asked_topic(4, 0), codes.INVALID_PARTITIONS),
        (asked_topic(4, 1), codes.INVALID_REPLICATION_FACTOR),
        (asked_topic(1, -1, (0, [1])), codes.INVALID_REQUEST),
        (asked_topic(-1, 1, (0, [1])), codes.INVALID_REQUEST),
        (asked_topic(-1, -1, (0, [1]), (0, [1])), codes.INVALID_REPLICA_ASSIGNMENT),
        (asked_topic(-1, -1, (1, [1])), codes.INVALID_REPLICA_ASSIGNMENT),
        (asked_topic(-1, -1, (0, [4])), codes.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_has_the_partitions_that_are_asked_for(topic: Any, outcome: int) -> None:
    try:
        assert partition_count(topic, 7, BROKERS) == outcome
    except ControllerError as refusal:
        assert refusal.code == outcome


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        ([], "an empty replica list"),
        ([1, 9, 8], "includes broker 8, but no such broker"),
        ([3, 1, 3], "includes the broker 3 more than once"),
    ],
)
def test_a_partition_lies_on_brokers_that_there_are(replicas: list[int], words: str) -> None:
    code, sentence = refusal_of(check_assignment, replicas, BROKERS)
    assert code == codes.INVALID_REPLICA_ASSIGNMENT and words in sentence
    check_assignment([2, 1], BROKERS)


@pytest.mark.parametrize(
    ("name", "index", "replicas", "code"),
    [
        ("unknown", 0, [1], codes.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 2, [1], codes.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", -1, [1], codes.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 1, None, codes.NO_REASSIGNMENT_IN_PROGRESS),
        ("orders", 1, [4], codes.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_partition_that_cannot_move_stays(
    name: str, index: int, replicas: list[int] | None, code: int
) -> None:
    kind = messages.AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition
    asked = kind(partition_index=index, replicas=replicas)
    assert refusal_of(check_reassignment, image(), name, asked, BROKERS)[0] == code


def growing(name: str, count: int, *assigned: list[int]) -> Any:
    kind = messages.CreatePartitionsRequest.CreatePartitionsTopic
    assignments = [kind.CreatePartitionsAssignment(broker_ids=each) for each in assigned]
    return kind(name=name, count=count, assignments=assignments or None)


@pytest.mark.parametrize(
    ("asked", "outcome"),
    [
        (growing("orders", 6), 4),
        (growing("orders", 4, [1], [2]), 2),
        (growing("unknown", 6), codes.UNKNOWN_TOPIC_OR_PARTITION),
        (growing("orders", 2), codes.INVALID_PARTITIONS),
        (growing("orders", 1), codes.INVALID_PARTITIONS),
        (growing("orders", 4, [1]), codes.INVALID_REPLICA_ASSIGNMENT),
        (growing("orders", 3, [4]), codes.INVALID_REPLICA_ASSIGNMENT),
        (growing("orders", 7), codes.POLICY_VIOLATION),
    ],
)
def test_a_topic_grows_to_its_total_or_not(asked: Any, outcome: int) -> None:
    try:
        assert check_growth(image(), asked, 4, BROKERS) == outcome
    except ControllerError as refusal:
        assert refusal.code == outcome


def test_topics_grow_together_and_keep_their_partitions() -> None:
    before = image()
    totals = {"orders": 3, "a_b": 3}
    assert count_new(before, totals) == 3
    grown = grow(before, totals, [HERE, THERE, HERE])
    fold = Fold()
    for message in creation_records(
        [NewTopic("orders", 2, {"flush.ms": "5"}), NewTopic("a_b", 1, {})],
        IDS,
        [HERE, HERE, THERE],
    ):
        fold.replay(message)
    for message in grown.records:
        fold.replay(message)
    after = fold.take_delta(1, 0, 0).image
    assert [after.topics[each.name] for each in grown.topics] == grown.topics
    assert [each.leader for each in after.topics["orders"].partitions] == [1, 1, 1]
    assert [each.leader for each in after.topics["a_b"].partitions] == [2, 2, 1]
    assert refusal_of(count_new, before, {"orders": 2})[0] == codes.INVALID_PARTITIONS
    assert refusal_of(count_new, before, {"x": 2})[0] == codes.UNKNOWN_TOPIC_OR_PARTITION
    many = {"orders": 3, "a_b": RECORDS_PER_OPERATION_MAX + 1}
    assert refusal_of(count_new, before, many)[0] == codes.POLICY_VIOLATION


def test_more_records_than_one_change_may_have_are_refused() -> None:
    at_most = [NewTopic("x", RECORDS_PER_OPERATION_MAX - 2, {"flush.ms": "1"})]
    assert count_partitions(at_most) == RECORDS_PER_OPERATION_MAX - 2
    too_many = [*at_most, NewTopic("y", 1, {})]
    assert refusal_of(count_partitions, too_many)[0] == codes.POLICY_VIOLATION
    keys = {f"k{number}": "1" for number in range(RECORDS_PER_OPERATION_MAX + 1)}
    assert refusal_of(config_records, image(), {(TOPIC, "a_b"): keys})[0] == codes.POLICY_VIOLATION


def test_removed_topics_go_by_their_ids() -> None:
    records = removal_records(image(), ["a_b", "orders"])
    assert [each.topic_id for each in records] == [IDS["a_b"], IDS["orders"]]
    assert refusal_of(removal_records, image(), ["orders", "x"])[0] == (
        codes.UNKNOWN_TOPIC_OR_PARTITION
    )


def test_a_config_that_is_so_already_takes_no_record() -> None:
    records = config_records(
        image(),
        {
            (TOPIC, "orders"): {"flush.ms": "5", "retention.ms": "6", "segment.ms": None},
            (GROUP, "g"): {"consumer.session.timeout.ms": "50000"},
        },
    )
    assert [(each.resource_name, each.name, each.value) for each in records] == [
        ("orders", "retention.ms", "6"),
        ("g", "consumer.session.timeout.ms", "50000"),
    ]
    assert config_records(image(), {(TOPIC, "orders"): {"flush.ms": "5"}}) == []
    (gone,) = config_records(image(), {(TOPIC, "orders"): {"flush.ms": None}})
    assert gone.value is None


FINALIZED = {"metadata.version": 28, "group.version": 1, "kraft.version": 1}


@pytest.mark.parametrize(
    ("name", "level", "upgrade_type", "words"),
    [
        ("metadata.version", 30, UPGRADE, ""),
        ("group.version", 0, SAFE_DOWNGRADE, ""),
        ("group.version", 1, 7, "does not support the given upgrade type"),
        ("group.version", -1, UPGRADE, "cannot be less than 0"),
        ("new.version", 0, UPGRADE, "not found"),
        ("new.version", 1, UPGRADE, "Local controller 5 does not support this feature"),
        ("metadata.version", 31, UPGRADE, "Local controller 5 only supports versions 25-30"),
        ("metadata.version", 0, UNSAFE_DOWNGRADE, "only supports versions 25-30"),
        ("group.version", 0, UPGRADE, "without setting the upgrade type"),
        ("metadata.version", 27, SAFE_DOWNGRADE, "might delete metadata information"),
        ("metadata.version", 27, UNSAFE_DOWNGRADE, "Unsafe metadata downgrade"),
        ("kraft.version", 0, UNSAFE_DOWNGRADE, "Can't downgrade the version"),
    ],
)
def test_a_feature_goes_to_a_level_or_kafka_says_why_not(
    name: str, level: int, upgrade_type: int, words: str
) -> None:
    refusal = feature_refusal(name, level, upgrade_type, FINALIZED, 5)
    assert words in refusal and bool(words) == bool(refusal)


def test_the_quorum_stays_at_its_version() -> None:
    assert "no listener for a quorum" in feature_refusal("kraft.version", 1, UPGRADE, {}, 5)


def test_finalized_features_are_those_above_level_0() -> None:
    assert finalized_features(image(), 0) == {"metadata.version": 28}
    assert finalized_features(image(), 1) == {"kraft.version": 1, "metadata.version": 28}
    (record,) = feature_records({"group.version": 1})
    assert (record.name, record.feature_level) == ("group.version", 1)


def test_no_producer_id_is_in_two_blocks() -> None:
    before = image()
    first = next_block(before, before.brokers[1])
    assert (first.ids, first.record.broker_id, first.record.broker_epoch) == (range(1000), 1, 4)
    after = folded(messages.RegisterBrokerRecord(broker_id=1), first.record)
    assert next_block(after, after.brokers[1]).ids == range(1000, 2000)
