"""Histories in which seeds have found defects, told without the seed."""

from kafkalite.transactions.states import COMPLETE_ABORT, EMPTY, ONGOING, Transaction
from sim.model_log import EPOCH_MAX
from sim.trace import Trace
from sim.world import WALL_START_MS, World


def test_a_transaction_that_takes_too_long_ends_where_there_is_no_producer_id() -> None:
    """At the last epoch the end of a transaction needs another producer id. Only requests had the
    next block of ids allocated: where none came, the transaction of a producer that had died stayed
    open, and with it what readers wait for."""
    world = World(0, Trace(is_on=False))
    world.disk.level = 2
    places = frozenset({("t", 0)})
    epoch = EPOCH_MAX - 1
    opened = Transaction(
        900, epoch, 200, ONGOING, places, WALL_START_MS, WALL_START_MS, 900, client_version=2
    )
    empty = opened._replace(state=EMPTY, partitions=frozenset(), start_ms=-1)
    for each in (empty, opened):
        world.seed_state("id0", each)
    world.start_broker()
    world.rest()
    known = world.checker.on_disk("id0")
    assert known is not None
    assert known.value is not None
    assert known.value.state == COMPLETE_ABORT
    assert known.value.producer_id != 900
