"""A log directory that this engine has written to is Kafka's again: it starts on it, without
recovery after our clean stop, and its clients find all that we wrote and go on."""

import re

import pytest

from oracle.story import OUR_PRODUCER, RAW_PRODUCER, STEADY, TOPICS, Seen, Story
from oracle.tools import Record

# Whoever asks for the story first waits for all of it.
pytestmark = pytest.mark.oracle

# What Kafka says when it mends something. Its controller may complain while it elects itself, which
# has nothing to do with logs.
MENDING = re.compile(
    r"no clean shutdown file|Recovering|Rebuilding index|corrupt|truncat|stray|not found|"
    r"(WARN|ERROR).*(LogLoader|LogManager|UnifiedLog|LogSegment|ProducerState|LogDirFailure)",
    re.IGNORECASE,
)
# It always says that it rebuilds producer state; what counts is from where.
REPLAYED_FROM = re.compile(
    r"LogLoader partition=(\S+)-0, .* rebuilding producer state from offset (\d+)"
)


def newest(records: list[Record]) -> dict[bytes, Record]:
    return {record.key: record for record in records if record.key is not None}


def assert_same(seen: Seen, ours: dict[str, list[Record]]) -> None:
    """What the consumer got is what we had; the cleaner and retention may have been at work."""
    for topic in STEADY:
        assert seen.uncommitted[topic] == ours[topic], topic
    for topic in ("compacted", "retained"):
        start = seen.uncommitted[topic][0].offset
        kept = [record for record in ours[topic] if record.offset >= start]
        if topic == "retained":
            assert seen.uncommitted[topic] == kept
        else:
            assert newest(seen.uncommitted[topic]) == newest(ours[topic])


def test_kafka_finds_nothing_to_recover_after_our_clean_stop(story: Story) -> None:
    lines = [
        line
        for line in story.kafkas_output_after_us.splitlines()
        if "__cluster_metadata" not in line  # which we leave alone
    ]
    assert any("Skipping recovery of" in line for line in lines)
    assert [line for line in lines if MENDING.search(line)] == []
    replayed = {found[1]: int(found[2]) for line in lines if (found := REPLAYED_FROM.search(line))}
    # From the log end: our snapshot was good, and there was nothing to replay behind it.
    for topic in TOPICS:
        if topic != "empty":
            assert replayed[topic] == story.our_end_offsets[topic], topic


def test_a_java_consumer_gets_every_record_that_we_appended(story: Story) -> None:
    assert_same(story.after_us, story.ours)
    ours = [record.value for record in story.after_us.uncommitted["codecs"]]
    assert sum(value is not None and value.startswith(b"ours 200") for value in ours) == 45


def test_a_committed_reader_of_kafka_sees_our_commits_and_not_our_aborts(story: Story) -> None:
    before = {record.offset for record in story.at_clean_stop.committed["transactions"]}
    # The transaction that Kafka left open still holds the reader back.
    assert {record.offset for record in story.after_us.committed["transactions"]} == before
    values = {record.value for record in story.at_kill.committed["transactions"]}
    assert {b"open", b"open to the end", b"after us"} <= values
    for at in (200, 400):
        assert {f"ours {at} commit=True {number}".encode() for number in range(3)} <= values
    assert not any(value and b"commit=False" in value for value in values)
    assert not any(value and value.startswith(b"aborted") for value in values)
    everything = {record.value for record in story.at_kill.uncommitted["transactions"]}
    assert {f"ours 200 commit=False {number}".encode() for number in range(3)} <= everything


def test_kafka_answers_timestamp_look_ups_in_our_segments_as_we_do(story: Story) -> None:
    for topic, found in story.lookups_after_us.items():
        for timestamp, answer in found.items():
            if timestamp >= 0:
                ours = story.our_lookups[topic][timestamp]
                assert answer == (ours or (-1, -1, -1)), (topic, timestamp)


def test_leader_epochs_go_on_behind_ours(story: Story) -> None:
    for topic in STEADY:
        records = story.at_end.uncommitted[topic]
        epochs = [record.leader_epoch for record in records]
        assert epochs == sorted(epochs), topic
        if topic in ("codecs", "segments", "append-time"):  # all wrote under each leadership
            assert len(set(epochs)) >= 4
            assert {epoch for epoch, _ in story.our_epochs[topic]} < set(epochs)


def test_an_idempotent_producer_goes_on_where_we_left_it(story: Story) -> None:
    answers = story.raw_answers
    last = next(
        record.offset for record in story.ours["idempotent"] if record.value == b"sequence 5"
    )
    assert answers["again"] == (0, last), "a batch that we took is a duplicate for Kafka"
    assert answers["gap"][0] == 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"
    error, offset = answers["next"]
    assert (error, offset > last) == (0, True)


def test_kafka_knows_the_producers_that_wrote_to_us(story: Story) -> None:
    for topic, producers in story.producers_after_us.items():
        found = {
            producer_id: (producer["producer_epoch"], producer["last_sequence"])
            for producer_id, producer in producers.items()
        }
        ours = {
            producer_id: (epoch, sequence)
            for producer_id, (epoch, sequence, _) in story.our_producers[topic].items()
        }
        assert found == ours
    assert RAW_PRODUCER in story.producers_after_us["idempotent"]
    assert OUR_PRODUCER in story.producers_after_us["transactions"]


def test_kafka_recovers_what_we_abandoned_and_loses_nothing(story: Story) -> None:
    assert "no clean shutdown file" in story.kafkas_output_after_abandon
    assert_same(story.after_abandon, story.ours_abandoned)
    assert not re.search(r"corrupt|truncat", story.kafkas_output_after_abandon, re.IGNORECASE)


def test_kafka_does_not_start_while_we_hold_the_directory(story: Story) -> None:
    assert "Failed to acquire lock on file .lock" in story.why_kafka_did_not_start
