"""The same dirty log, compacted by Kafka's cleaner and by ours: the same batches and records are
left, with the same offsets, headers, tombstones and transaction markers."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalite._native import Log, LogDirectory
from oracle.engine import NOW_MS, batches_of
from oracle.story import CLEANED, LET_GO, Story, clean_offset, our_configs

# Whoever asks for the story first waits for all of it.
pytestmark = pytest.mark.oracle

# Behind every delete horizon that Kafka has set with `delete.retention.ms=0`, before all others.
LATER_MS = NOW_MS + 3_600_000


def opened(path: Path, copy: Path, **config: str) -> LogDirectory:
    """A copy of a log directory, with the configuration of the topics to be cleaned changed."""
    shutil.copytree(path, copy)
    configs = our_configs()
    for topic in CLEANED:
        configs[topic] |= config
    return LogDirectory.open(copy, now_ms=NOW_MS, topic_configs=configs)


def left_in(directory: LogDirectory, topic: str, stop: int) -> list[tuple[Any, ...]]:
    """Every batch below `stop`, as far as both cleaners decide about it."""
    log = directory.log(topic, 0)
    assert isinstance(log, Log)
    return [
        (
            batch.base_offset,
            batch.last_offset,
            batch.leader_epoch,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.is_transactional,
            batch.is_control,
            batch.codec,
            batch.max_timestamp,
            batch.delete_horizon_ms is not None,
            batch.records,
        )
        for batch in batches_of(log)
        if batch.base_offset < stop
    ]


def check_round(before: Path, after: Path, folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Cleans a copy of `before`; it must be as `after`, up to where Kafka's round went."""
    ours = opened(before, folder / "ours", **LET_GO)
    theirs = opened(after, folder / "theirs")
    while ours.clean_dirtiest(now_ms=LATER_MS) is not None:
        pass
    left = {}
    for topic in CLEANED:
        stop = clean_offset(folder / "theirs", topic)
        assert clean_offset(folder / "ours", topic) == stop
        left[topic] = left_in(ours, topic, stop)
        assert left[topic] == left_in(theirs, topic, stop), topic
    ours.abandon()
    theirs.abandon()
    return left


def tombstones(batches: list[tuple[Any, ...]], at: int) -> dict[bytes, bool]:
    """Keys without a value of the round `at`: whether their batch has a delete horizon."""
    prefix = f"gone {at} ".encode()
    return {
        record[2]: batch[10]
        for batch in batches
        for record in batch[11]
        if not batch[7] and record[3] is None and record[2].startswith(prefix)
    }


def test_the_first_round_leaves_what_kafkas_leaves(story: Story, tmp_path: Path) -> None:
    left = check_round(story.clean_copy, story.half_cleaned_copy, tmp_path)
    for topic in CLEANED:
        # With a horizon, from which on they may go; what was aborted never was.
        assert tombstones(left[topic], 0) == {b"gone 0 plain": True, b"gone 0 committed": True}
        assert any(batch[7] for batch in left[topic]), "markers stay as long"


def test_the_second_round_drops_what_is_behind_its_horizon(story: Story, tmp_path: Path) -> None:
    left = check_round(story.half_cleaned_copy, story.killed_copy, tmp_path)
    assert tombstones(left["cleaned"], 0) == {}
    assert len(tombstones(left["cleaned-keeping"], 0)) == 2
    for topic in CLEANED:
        assert len(tombstones(left[topic], 300)) == 2
