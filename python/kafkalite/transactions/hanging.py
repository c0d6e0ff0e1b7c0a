"""Hanging transactions: open in a log, and unknown to their coordinator, so that nobody ends them
and readers of committed records wait for ever. Transactions of today leave none, but a directory
may have been written by an older broker, or have lost its `__transaction_state`.

Looked for once, after a start, while clients are served already: only logs whose last stable offset
is behind their high watermark are asked. Each is told with the command that ends it; but not while
a partition of `__transaction_state` is not loaded: logs name no transactional id, so that any of
them might know the transaction, and that it is decided.
"""

from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from kafkalite.coordinator.shard import Shard
from kafkalite.errors import KafkaliteError
from kafkalite.service.stderr_log import Log
from kafkalite.tasks import Future
from kafkalite.transactions.host import TransactionHost
from kafkalite.transactions.machine import TransactionMachine
from kafkalite.transactions.states import TopicPartition

LOADING_PAUSE_MS: Final = 1_000
TOLD_MAX: Final = 20
"""Transactions that are told one by one; of more only their number is."""


class Open(NamedTuple):
    """A transaction that is open in a log."""

    place: TopicPartition
    producer_id: int
    first_offset: int


class HangingHost(TransactionHost, Protocol):
    """The broker as this needs it."""

    @property
    def log(self) -> Log: ...
    @property
    def transactions(self) -> Any: ...


async def tell_of_hanging(context: HangingHost) -> None:
    """Writes a line for each hanging transaction. Returns once all were looked at."""
    begun = await _opened(context, await _behind(context))
    if not begun:
        return
    while context.transactions.runtime.is_loading:
        await _pause(context, LOADING_PAUSE_MS)
    # One that is let go meanwhile counts as not loaded, though it may be loaded anew by then: what
    # it knew may have been forgotten before it was asked.
    shards = list(context.transactions.runtime.shards)
    known = await _known(context, shards)
    unknown = {each for each in begun if (each.place, each.producer_id) not in known}
    # One that has ended meanwhile was unknown for that.
    still_open = await _opened(context, sorted({each.place for each in unknown}))
    hanging = [each for each in still_open if each in unknown]
    if context.tasks.is_stopping or not hanging:
        return
    unloaded = [f"{each.topic}-{each.partition}" for each in shards if not each.knows_all]
    if unloaded:
        (topic, partition), _, _ = hanging[0]
        context.log.warning(
            f"{len(hanging)} open transactions, of which the first is in {topic}-{partition}, may "
            f"be hanging: that cannot be told, since {unloaded[0]} ({len(unloaded)} partitions in "
            "all) is not loaded here, or not as a whole. None is to be aborted before it is: "
            "what it knows may be that they are committed"
        )
        return
    for (topic, partition), producer_id, first_offset in hanging[:TOLD_MAX]:
        context.log.warning(
            f"{topic}-{partition} has a transaction of producer {producer_id} that its coordinator "
            f"does not know, from offset {first_offset} on: who reads what is committed waits for "
            f"it. `kafkalite transactions abort --bootstrap-server HOST:PORT --topic {topic} "
            f"--partition {partition} --start-offset {first_offset}` ends it"
        )
    if len(hanging) > TOLD_MAX:
        context.log.warning(f"{len(hanging) - TOLD_MAX} further transactions are hanging")


async def _behind(context: HangingHost) -> list[TopicPartition]:
    """Partitions in which something is open."""
    found = []
    sliced = context.tasks.sliced
    async for topic in sliced(list(context.image.topics.values())):
        async for partition in sliced(range(len(topic.partitions))):
            log = context.core.logs.find(topic.name, partition)
            if log is not None:
                offsets = log.offsets
                if offsets.last_stable_offset < offsets.high_watermark:
                    found.append((topic.name, partition))
    return found


async def _opened(context: HangingHost, places: list[TopicPartition]) -> list[Open]:
    """The open transactions of partitions; of one that does not say there are none."""
    found = []
    for place in places:
        try:
            entries = await context.logs.describe_producers(*place)
        except KafkaliteError:
            continue
        async for each in context.tasks.sliced(entries):
            first_offset = each.current_transaction_first_offset
            if first_offset is not None:
                found.append(Open(place, each.producer_id, first_offset))
    return found


async def _known(
    context: HangingHost, shards: list[Shard[TransactionMachine]]
) -> set[tuple[TopicPartition, int]]:
    """Partitions and producers of all transactions that the coordinator will see to the end of."""
    found: set[tuple[TopicPartition, int]] = set()
    for shard in shards:
        async for entry in context.tasks.sliced(list(shard.machine.entries.values())):
            now = entry.now
            found.update((place, now.producer_id) for place in now.partitions)
    return found


def _pause(context: HangingHost, pause_ms: int) -> Future[None]:
    over = Future[None]()
    context.timers.call_at(context.now_ms() + pause_ms, partial(over.set, None))
    return over
