"""Offsets of some partitions are taken though the broker refuses those of others."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from client.fake_group import Group, broker_of, until
from client.logs import TOPIC, batch, value, values
from kafkalite.client import Consumer
from kafkalite.errors import BrokerError
from kafkalite.protocol.codes import NOT_COORDINATOR, UNKNOWN_TOPIC_OR_PARTITION

BOTH = {(TOPIC, 0): 0, (TOPIC, 1): 0}


class Refusing(Group):
    """Refuses commits of the partitions in `refused`, each with its code."""

    def __init__(self, refused: dict[int, int] | None = None) -> None:
        super().__init__()
        self.refused = refused or {}

    def on_OffsetCommit(self, request: Any) -> Any:  # noqa: N802 - as the request is called
        answer = super().on_OffsetCommit(request)
        for row in answer.topics[0].partitions:
            row.error_code = self.refused.get(row.partition_index, 0)
        return answer


@contextmanager
def reading(group: Group, name: str, **options: Any) -> Iterator[tuple[Any, Consumer]]:
    """A broker, and a consumer that has read three records of each partition."""
    with (
        broker_of(group) as broker,
        Consumer(broker.servers, group=name, auto_commit_interval_ms=0, **options) as consumer,
    ):
        consumer.assign(BOTH)
        assert len(values(consumer, 6)) == 6
        yield broker, consumer


def test_a_topic_that_is_deleted_after_its_commit_keeps_no_other_from_being_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Positions that the group knows are committed again each half minute. A partition that was
    gone by then failed that commit, and each one of the consumer's own from then on: the log said
    that what was read had no commit, and all positions were sent each time."""
    group = Refusing()
    with reading(group, "one-is-gone") as (_, consumer):
        until(lambda: group.committed == {0: 3, 1: 3}, consumer)
        group.refused = {1: UNKNOWN_TOPIC_OR_PARTITION}
        count = len(group.commits)
        assert consumer._coordinator is not None
        consumer._coordinator._all_committed_at = float("-inf")  # half a minute has passed
        until(lambda: len(group.commits) > count, consumer)
        assert group.commits[-1] == {0: 3, 1: 3}
        group.batches[0].append(batch(3, [value(0, each) for each in range(3, 6)]))
        assert len(values(consumer, 3)) == 3
        until(lambda: {0: 6} in group.commits, consumer)
    assert "has no commit" not in caplog.text


def test_what_was_taken_of_a_commit_is_not_committed_again_for_what_was_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One partition that was refused had all the others committed again each time."""
    group = Refusing({1: UNKNOWN_TOPIC_OR_PARTITION})
    with reading(group, "one-is-refused", timeout_ms=2_000) as (_, consumer):
        until(lambda: group.commits[-1:] == [{1: 3}], consumer)
        assert group.committed[0] == 3
        with pytest.raises(BrokerError, match=f"commit of {TOPIC}-1: .*UNKNOWN_TOPIC"):
            consumer.commit()
        group.refused = {}
        until(lambda: "accepts commits again" in caplog.text, consumer)
    assert caplog.text.count("has no commit of what was read") == 1


def test_a_coordinator_that_has_moved_is_looked_up_though_a_topic_is_gone() -> None:
    """The first partition of the answer had the last word: behind one that was gone nobody saw
    that the coordinator was another."""
    group = Refusing({0: UNKNOWN_TOPIC_OR_PARTITION, 1: NOT_COORDINATOR})
    with reading(group, "moved-and-gone", timeout_ms=20_000) as (broker, consumer):
        until(lambda: group.commits, consumer)
        looks = len(broker.of("FindCoordinator"))
        until(lambda: len(broker.of("FindCoordinator")) > looks, consumer)
        group.refused = {}
        until(lambda: group.commits[-1].get(1) == 3, consumer)
