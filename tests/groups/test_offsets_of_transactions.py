"""Offsets of open transactions, as OffsetFetch and the deletion of topics see them."""

from typing import Any

from kafkalite.coordinator.machine import Moment
from kafkalite.groups.machine import GroupMachine
from kafkalite.groups.offsets import CommittedOffset
from kafkalite.protocol import codes

OFFSET = CommittedOffset(5, -1, "", 0, record_offset=1)
LIMITS: Any = None


def machine_with_an_open_offset() -> GroupMachine:
    machine = GroupMachine(LIMITS, LIMITS)
    machine.offsets.put_open(7, "g", "t", 0, OFFSET)
    return machine


def test_an_offset_committed_while_the_answer_is_put_together_is_told() -> None:
    """The answer said -1 and no error: its client began anew, as `auto.offset.reset` says."""
    machine = machine_with_an_open_offset()
    answer = machine.offsets_of("g", codes.NONE, require_stable=True)
    assert answer.is_unstable is not None
    assert answer.is_unstable("t", 0)
    machine.offsets.end_transaction(7, commit=True)
    assert not answer.is_unstable("t", 0)
    assert answer.find("t", 0) == OFFSET


def test_an_open_offset_of_a_deleted_topic_is_forgotten() -> None:
    """It held once the transaction was committed, also for a topic made again under the name."""
    machine = machine_with_an_open_offset()
    effects = machine.on_topics(["t"], Moment(0, 0))
    assert len(effects) == 1
