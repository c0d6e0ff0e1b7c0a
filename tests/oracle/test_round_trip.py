"""Kafka, we, Kafka, we, … three times: no byte of the log changes once it is written."""

from itertools import pairwise

import pytest

from oracle.story import STEADY, TOPICS, Story, digest

# Whoever asks for the story first waits for all of it.
pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("topic", STEADY)
def test_each_owner_finds_the_bytes_of_all_before_it(story: Story, topic: str) -> None:
    contents = [contents[topic] for contents in story.contents]
    assert len(contents) >= 6
    for before, after in pairwise(contents):
        assert digest(after[: len(before)]) == digest(before)
    if topic != "empty":
        assert len({len(content) for content in contents}) >= 5


@pytest.mark.parametrize("topic", TOPICS)
def test_at_the_end_both_read_the_same(story: Story, topic: str) -> None:
    start = story.at_end.start_offsets[topic]
    ours = [record for record in story.ours_at_end[topic] if record.offset >= start]
    theirs = story.at_end.uncommitted[topic]
    if topic in ("compacted", "retained"):  # cleaned until the stop
        assert {record.offset for record in ours} <= {record.offset for record in theirs}
    else:
        assert ours == theirs
