"""The fold of the metadata's records, held against a plain model over any sequence of them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.errors import CorruptFileError
from kafkalite.metadata import records
from kafkalite.metadata.fold import Fold, MetadataDelta
from kafkalite.metadata.image import TOPIC, Image
from kafkalite.metadata.image_records import snapshot_records
from kafkalite.protocol import messages
from metadata.plain_model import PlainModel

NODE = 1
IDS = [bytes([16 + index]) * 16 for index in range(6)]
NAMES = ["orders", "clicks", "a.b", "a_b", "a_c"]
ONLINE = bytes([200]) * 16
OTHER = bytes([201]) * 16


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """Records as a controller writes them: each about something that is there."""
    written: list[Any] = []
    topics: dict[bytes, tuple[str, int]] = {}
    unused = list(IDS)
    next_producer_id = 0
    for _ in range(draw(st.integers(0, 25))):
        kind = draw(
            st.sampled_from(["make", "grow", "change", "remove", "config", "feature", "ids"])
        )
        names = {name for name, _ in topics.values()}
        if kind == "make" and unused and len(names) < len(NAMES):
            name = draw(st.sampled_from([each for each in NAMES if each not in names]))
            topic_id = unused.pop(0)
            count = draw(st.integers(1, 3))
            written.append(messages.TopicRecord(name=name, topic_id=topic_id))
            written += [_partition(topic_id, index) for index in range(count)]
            topics[topic_id] = name, count
        elif kind == "grow" and topics:
            topic_id = draw(st.sampled_from(sorted(topics)))
            name, count = topics[topic_id]
            written.append(_partition(topic_id, count))
            topics[topic_id] = name, count + 1
        elif kind == "change" and topics:
            topic_id = draw(st.sampled_from(sorted(topics)))
            written.append(
                messages.PartitionChangeRecord(
                    topic_id=topic_id,
                    partition_id=draw(st.integers(0, topics[topic_id][1] - 1)),
                    leader=draw(st.sampled_from([-2, -1, NODE])),
                    isr=draw(st.sampled_from([None, [], [NODE]])),
                    eligible_leader_replicas=draw(st.sampled_from([None, [], [NODE]])),
                    directories=draw(st.sampled_from([None, [ONLINE], [OTHER]])),
                )
            )
        elif kind == "remove" and topics:
            topic_id = draw(st.sampled_from(sorted(topics)))
            del topics[topic_id]
            written.append(messages.RemoveTopicRecord(topic_id=topic_id))
        elif kind == "config":
            named = draw(
                st.sampled_from([(4, ""), (4, "1"), *((2, name) for name in sorted(names))])
            )
            written.append(
                messages.ConfigRecord(
                    resource_type=named[0],
                    resource_name=named[1],
                    name=draw(st.sampled_from(["retention.ms", "segment.bytes"])),
                    value=draw(st.sampled_from([None, "1", "2"])),
                )
            )
        elif kind == "feature":
            written.append(
                messages.FeatureLevelRecord(
                    name=draw(st.sampled_from(["metadata.version", "group.version"])),
                    feature_level=draw(st.integers(0, 2)),
                )
            )
        elif kind == "ids":
            next_producer_id += 1000
            written.append(
                messages.ProducerIdsRecord(broker_id=NODE, next_producer_id=next_producer_id)
            )
    return written


def _partition(topic_id: bytes, index: int) -> Any:
    return messages.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[NODE],
        isr=[NODE],
        leader=NODE,
        leader_epoch=0,
        partition_epoch=0,
        directories=[ONLINE],
    )


def folded(written: list[Any]) -> Image:
    fold = Fold()
    for message in written:
        fold.replay(records.decode(records.encode(message)))
    return fold.take_delta(1, len(written) - 1, 0).image


@given(histories(), st.sets(st.integers(0, 60)))
def test_the_fold_is_what_the_plain_model_says_wherever_images_are_taken(
    written: list[Any], image_after: set[int]
) -> None:
    fold, model = Fold(), PlainModel()
    for number, message in enumerate(written):
        fold.replay(message)
        model.apply(message)
        is_whole = all(
            sorted(topic["partitions"]) == list(range(len(topic["partitions"])))
            for topic in model.topics.values()
        )
        if number in image_after and is_whole:
            model.assert_is(fold.take_delta(1, number, 0).image)
    model.assert_is(fold.take_delta(1, len(written), 0).image)


@given(histories())
def test_a_snapshot_stands_for_the_records_that_it_was_made_of(written: list[Any]) -> None:
    image = folded(written)
    again = folded(snapshot_records(image))
    assert again._replace(last_offset=image.last_offset) == image


@given(histories(), st.integers(0, 60))
@settings(max_examples=settings.default.max_examples // 2)
def test_a_snapshot_and_what_follows_it_are_the_whole_log(written: list[Any], cut: int) -> None:
    head, tail = written[:cut], written[cut:]
    assert folded([*snapshot_records(folded(head)), *tail])._replace(last_offset=0) == folded(
        written
    )._replace(last_offset=0)


@given(histories())
def test_an_older_image_stays_what_it_was(written: list[Any]) -> None:
    fold, before = Fold(), []
    for number, message in enumerate(written):
        fold.replay(message)
        image = fold.take_delta(1, number, 0).image
        before.append((image, repr(image)))
    assert all(repr(image) == said for image, said in before)


def told(before: Image, after: Image) -> tuple[Any, ...]:
    """Says what a delta has to say of two images, by comparing everything in them. The configs of a
    topic that was removed and made again under its name are a new topic's, and have not changed."""
    old, new = before.topics_by_id, after.topics_by_id
    resources = {*before.configs, *after.configs}
    remade = {each.name for topic_id, each in new.items() if topic_id not in old}
    alive = {TOPIC: after.topics.keys() - (remade & before.topics.keys())}
    return (
        {each for each in old if each not in new},
        {each for each, topic in new.items() if old.get(each) != topic},
        {
            each
            for each in resources
            if before.configs.get(each) != after.configs.get(each)
            and each[1] in alive.get(each[0], {each[1]})
        },
        before.features != after.features,
        before.brokers != after.brokers,
    )


@given(histories(), st.sets(st.integers(0, 60)))
def test_a_delta_tells_all_that_two_images_differ_in(
    written: list[Any], delta_after: set[int]
) -> None:
    """It may tell more: a record that sets what was so already, or is taken back by the next."""
    fold, before = Fold(), Image()
    for number, message in enumerate(written):
        fold.replay(message)
        is_growing = number + 1 < len(written) and written[number + 1]._name == "PartitionRecord"
        if number not in delta_after or is_growing:
            continue
        delta = fold.take_delta(1, number, 0)
        deleted, changed, configs, are_features_changed, are_brokers_changed = told(
            before, delta.image
        )
        assert delta.before == before
        assert {each.id: each for each in delta.deleted_topics} == {
            topic_id: before.topics_by_id[topic_id] for topic_id in deleted
        }
        assert all(each is delta.image.topics_by_id[each.id] for each in delta.changed_topics)
        assert changed <= {each.id for each in delta.changed_topics}
        assert configs <= delta.configs
        assert all(name in delta.image.topics for kind, name in delta.configs if kind == TOPIC)
        assert delta.are_features_changed or not are_features_changed
        assert delta.are_brokers_changed or not are_brokers_changed
        before = delta.image
    last = fold.take_delta(1, len(written), 0)
    assert fold.take_delta(1, len(written), 0)[2:] == MetadataDelta(last.image, last.image)[2:]


def test_a_topic_that_is_made_and_removed_between_two_deltas_is_in_neither() -> None:
    fold = Fold()
    fold.replay(messages.TopicRecord(name="orders", topic_id=IDS[0]))
    fold.replay(_partition(IDS[0], 0))
    first = fold.take_delta(1, 1, 0)
    assert [each.name for each in first.changed_topics] == ["orders"]
    for topic_id in (IDS[0], IDS[1]):
        fold.replay(messages.ConfigRecord(resource_type=TOPIC, resource_name="orders", value="1"))
        fold.replay(messages.RemoveTopicRecord(topic_id=topic_id))
        fold.replay(messages.TopicRecord(name="orders", topic_id=IDS[IDS.index(topic_id) + 1]))
        fold.replay(_partition(IDS[IDS.index(topic_id) + 1], 0))
    second = fold.take_delta(1, 9, 0)
    assert [each.id for each in second.deleted_topics] == [IDS[0]]
    assert [each.id for each in second.changed_topics] == [IDS[2]]
    assert not second.configs


def test_only_topics_with_eligible_leaders_change_when_these_are_cleared() -> None:
    fold = Fold()
    for topic_id, name in zip(IDS, NAMES, strict=False):
        fold.replay(messages.TopicRecord(name=name, topic_id=topic_id))
        fold.replay(_partition(topic_id, 0))
    change = messages.PartitionChangeRecord
    fold.replay(change(topic_id=IDS[1], partition_id=0, eligible_leader_replicas=[NODE]))
    fold.take_delta(1, 0, 0)
    fold.replay(messages.ClearElrRecord(topic_name=""))
    delta = fold.take_delta(1, 1, 0)
    assert [each.name for each in delta.changed_topics] == ["clicks"]
    assert delta.changed_topics[0].partitions[0].elr == ()


def test_an_unchanged_topic_is_the_same_object_in_the_next_image() -> None:
    fold = Fold()
    for topic_id, name in zip(IDS, NAMES, strict=False):
        fold.replay(messages.TopicRecord(name=name, topic_id=topic_id))
        fold.replay(_partition(topic_id, 0))
    before = fold.take_delta(1, 0, 0).image
    fold.replay(_partition(IDS[0], 1))
    after = fold.take_delta(1, 1, 0).image
    assert after.topics["orders"] is not before.topics["orders"]
    assert after.topics["clicks"] is before.topics["clicks"]


@given(histories(), histories())
def test_a_transaction_counts_whole_or_not_at_all(first: list[Any], second: list[Any]) -> None:
    begin, end = messages.BeginTransactionRecord(name="it"), messages.EndTransactionRecord()
    abort = messages.AbortTransactionRecord()
    whole = folded([begin, *first, end])._replace(last_offset=0)
    assert whole == folded(first)._replace(last_offset=0)
    for taken_back in ([begin, *first], [begin, *first, abort]):
        assert folded(taken_back)._replace(last_offset=0) == Image()._replace(
            leader_epoch=1, last_offset=0
        )
    mixed = folded([begin, *first, abort, begin, *second, end])
    assert mixed._replace(last_offset=0) == folded(second)._replace(last_offset=0)


def test_what_is_only_kept_is_in_the_snapshot_until_it_is_taken_back() -> None:
    kept = [
        messages.AccessControlEntryRecord(id=IDS[0], resource_type=2, resource_name="orders"),
        messages.UserScramCredentialRecord(name="alice", mechanism=1, salt=b"s", iterations=4096),
        messages.DelegationTokenRecord(owner="User:a", requester="User:a", token_id="t1"),  # noqa: S106
        messages.ClientQuotaRecord(
            entity=[messages.ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)],
            key="producer_byte_rate",
            value=1.5,
        ),
        messages.RegisterControllerRecord(controller_id=NODE, incarnation_id=IDS[1]),
    ]
    image = folded(kept)
    assert [records.decode(each) for each in snapshot_records(image)] == kept
    back = [
        messages.RemoveAccessControlEntryRecord(id=IDS[0]),
        messages.RemoveUserScramCredentialRecord(name="alice", mechanism=1),
        messages.RemoveDelegationTokenRecord(token_id="t1"),  # noqa: S106
        messages.ClientQuotaRecord(entity=kept[3].entity, key="producer_byte_rate", remove=True),
    ]
    left = snapshot_records(folded([*kept, *back]))
    assert [records.decode(each)._name for each in left] == ["RegisterControllerRecord"]


@pytest.mark.parametrize(
    "message",
    [
        messages.RemoveTopicRecord(topic_id=IDS[0]),
        messages.PartitionChangeRecord(topic_id=IDS[0], partition_id=0),
        messages.BrokerRegistrationChangeRecord(broker_id=7, fenced=1),
    ],
)
def test_a_record_about_nothing_is_corrupt(message: Any) -> None:
    with pytest.raises(CorruptFileError):
        folded([message])


def test_a_record_of_a_type_that_is_not_known_is_corrupt() -> None:
    with pytest.raises(CorruptFileError, match="unknown type 99"):
        records.decode(b"\x01\x63\x00\x00")
    with pytest.raises(CorruptFileError, match="no known frame"):
        records.decode(b"\x02\x14\x00\x00")
