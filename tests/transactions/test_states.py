"""EndTxn and InitProducerId in every state, by the table of Kafka's `TransactionCoordinator`."""

import pytest

from kafkalite.protocol import codes
from kafkalite.transactions import states
from kafkalite.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_MAX,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    End,
    Expected,
    Transaction,
)

FENCED = codes.PRODUCER_FENCED
BUSY = codes.CONCURRENT_TRANSACTIONS
WRONG = codes.INVALID_TXN_STATE
MAPPING = codes.INVALID_PRODUCER_ID_MAPPING


def at(state: int, epoch: int = 7, previous: int = 1) -> Transaction:
    started = 5 if state == ONGOING else -1
    return Transaction(1, epoch, 60_000, state, frozenset({("t", 0)}), started, 9, previous)


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (EMPTY, WRONG, WRONG),
        (ONGOING, None, None),
        (PREPARE_COMMIT, BUSY, WRONG),
        (PREPARE_ABORT, WRONG, BUSY),
        (COMPLETE_COMMIT, codes.NONE, WRONG),
        (COMPLETE_ABORT, WRONG, codes.NONE),
    ],
)
def test_end_of_clients_without_epochs(state: int, commit: int | None, abort: int | None) -> None:
    for is_commit, expected in ((True, commit), (False, abort)):
        assert states.judge_end(at(state), End(1, 7, is_commit, 0)) == expected
        assert states.judge_end(at(state), End(2, 7, is_commit, 0)) == MAPPING
        assert states.judge_end(at(state), End(1, 6, is_commit, 0)) == FENCED


@pytest.mark.parametrize(
    ("state", "epoch", "commit", "abort"),
    [
        (EMPTY, 7, WRONG, None),
        (EMPTY, 6, FENCED, FENCED),
        (ONGOING, 7, None, None),
        (ONGOING, 6, FENCED, FENCED),
        (ONGOING, 8, FENCED, FENCED),
        (PREPARE_COMMIT, 6, BUSY, WRONG),
        (PREPARE_COMMIT, 7, FENCED, FENCED),
        (PREPARE_ABORT, 6, WRONG, BUSY),
        (COMPLETE_COMMIT, 6, codes.NONE, WRONG),
        (COMPLETE_COMMIT, 7, WRONG, None),
        (COMPLETE_COMMIT, 5, FENCED, FENCED),
        (COMPLETE_ABORT, 6, WRONG, codes.NONE),
        (COMPLETE_ABORT, 7, WRONG, None),
    ],
)
def test_end_of_clients_with_epochs(
    state: int, epoch: int, commit: int | None, abort: int | None
) -> None:
    assert states.judge_end(at(state), End(1, epoch, True, 2)) == commit
    assert states.judge_end(at(state), End(1, epoch, False, 2)) == abort
    assert states.judge_end(at(state), End(2, epoch, True, 2)) == MAPPING


def test_the_last_epoch_ends_with_another_producer_id() -> None:
    open_one = at(ONGOING, EPOCH_MAX - 1)
    assert states.end_needs_id(open_one, 2)
    prepared = states.prepared(open_one, True, 2, 50, 10)
    assert (prepared.producer_id, prepared.producer_epoch) == (1, EPOCH_MAX)
    assert states.next_producer(prepared) == Expected(50, 0)
    done = states.completed(prepared, 11)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (50, 0, 1)
    # The client asks again: its answer was lost.
    assert states.judge_end(done, End(1, EPOCH_MAX - 1, True, 2)) == codes.NONE
    assert states.judge_end(done, End(1, EPOCH_MAX - 1, False, 2)) == WRONG
    assert states.judge_end(done, End(1, EPOCH_MAX - 2, True, 2)) == MAPPING


def test_a_producer_that_begins_anew_gets_the_next_epoch() -> None:
    fresh = states.created(1, 60_000, 5)
    first = states.initialised(fresh, None, 60_000, 1, 5)
    assert isinstance(first, Transaction)
    assert (first.producer_id, first.producer_epoch, first.previous_producer_id) == (1, 0, 1)
    second = states.initialised(first, Expected(1, 0), 60_000, -1, 6)
    assert isinstance(second, Transaction)
    assert (second.producer_epoch, second.last_producer_epoch) == (1, 0)
    retry = states.initialised(second, Expected(1, 0), 60_000, -1, 7)
    assert isinstance(retry, Transaction)
    assert retry.producer_epoch == 1
    third = states.initialised(second, None, 60_000, -1, 7)
    assert isinstance(third, Transaction)
    assert (third.producer_epoch, third.last_producer_epoch) == (2, -1)
    assert states.initialised(third, Expected(1, 0), 60_000, -1, 7) == FENCED


def test_no_client_gets_the_last_epoch() -> None:
    last = at(EMPTY, EPOCH_MAX - 1)
    assert states.init_needs_id(last, None)
    assert states.init_needs_id(last, Expected(1, EPOCH_MAX - 1))
    assert not states.init_needs_id(last, Expected(1, EPOCH_MAX - 2))
    rotated = states.initialised(last, Expected(1, EPOCH_MAX - 1), 1, 50, 5)
    assert isinstance(rotated, Transaction)
    assert (rotated.producer_id, rotated.producer_epoch) == (50, 0)
    assert states.check_expected(rotated, Expected(1, EPOCH_MAX - 1)) == codes.NONE
    assert states.check_expected(rotated, Expected(1, 3)) == FENCED


def test_a_fence_raises_the_epoch_once() -> None:
    now = at(ONGOING)
    assert states.fenced(now, 0, False).producer_epoch == 8
    assert states.fenced(now, 0, True).producer_epoch == 7
    assert states.fenced(now, 2, False).producer_epoch == 7
    assert states.prepared(now, False, 2, -1, 9).producer_epoch == 8
    assert states.prepared(states.fenced(now, 0, False), False, 0, -1, 9).producer_epoch == 8
    at_end = at(ONGOING, EPOCH_MAX)
    assert states.prepared(at_end, False, 2, -1, 9).producer_epoch == EPOCH_MAX


def test_the_time_of_a_transaction_runs_from_its_first_partition() -> None:
    begun = states.added(at(EMPTY), frozenset({("t", 1)}), 0, 100)
    more = states.added(begun, frozenset({("u", 1)}), 0, 200)
    assert (begun.start_ms, more.start_ms, more.update_ms) == (100, 100, 200)
    assert more.partitions == {("t", 0), ("t", 1), ("u", 1)}


@pytest.mark.parametrize("state", [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT])
def test_the_last_epoch_of_an_id_before_is_fenced_by_the_next_transaction(state: int) -> None:
    """Kafka knows the retry by its numbers alone, and judges its epoch then."""
    late = End(1, EPOCH_MAX - 1, True, 2)
    assert states.judge_end(at(state, 0, 1)._replace(producer_id=2), late) == FENCED
