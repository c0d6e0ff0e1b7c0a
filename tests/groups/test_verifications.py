"""Verification of offsets that are committed in transactions."""

from kafkalite.coordinator.machine import Marker
from kafkalite.groups.verifications import Verifications


def test_what_the_coordinator_refuses_takes_no_memory() -> None:
    all_of = Verifications()
    for producer_id in range(100):
        guard = all_of.begin(producer_id, 0, 0)
        assert guard is not None
        all_of.drop(producer_id, guard)
        assert not all_of.is_verified(producer_id, 0, guard)
    assert not all_of._begun


def test_an_older_epoch_does_not_void_the_guard_of_a_newer_one() -> None:
    all_of = Verifications()
    guard, older = all_of.begin(7, 5, 0), all_of.begin(7, 4, 0)
    assert guard is not None
    assert older is not None
    assert not all_of.is_verified(7, 4, older)
    all_of.drop(7, older)
    assert all_of.is_verified(7, 5, guard)


def test_who_is_refused_takes_no_guard_from_who_asked_too() -> None:
    """With a transactional id of his own and the producer id of another."""
    all_of = Verifications()
    guard = all_of.begin(7, 5, 0)
    assert guard is not None
    assert all_of.begin(7, 5, 0) == guard
    all_of.drop(7, guard)
    assert all_of.is_verified(7, 5, guard)
    all_of.drop(7, guard)
    assert not all_of.is_verified(7, 5, guard)


def test_a_guard_is_void_once_the_transaction_has_ended() -> None:
    all_of = Verifications()
    guard = all_of.begin(7, 0, 0)
    all_of.note_marker(7, 0, Marker(commit=True, coordinator_epoch=0, transaction_version=0))
    assert not all_of.is_verified(7, 0, guard)
    assert all_of.begin(7, 0, 0) != guard


def test_what_was_begun_long_ago_is_forgotten() -> None:
    """What the coordinator had agreed to, and nothing came of, was kept for ever."""
    all_of = Verifications()
    for producer_id in range(100):
        assert all_of.begin(producer_id, 0, producer_id) is not None
    renewed = all_of.begin(3, 1, 100)
    for _ in range(100):
        all_of.remove_expired(99)
    assert list(all_of._begun) == [3]
    assert all_of.is_verified(3, 1, renewed)
