"""Finds where partitions are read from: asks the group's coordinator, and leaders.

No answer about positions is waited for, so that those partitions go on whose positions are known.
Each request has a connection of its own, since on that of the fetches it would wait behind them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kafkalite.client.admin import list_offsets_request
from kafkalite.client.consumer.subscription_state import Need, Partition, SubscriptionState
from kafkalite.client.network.cluster import BACKOFF_MS, Cluster
from kafkalite.client.network.connection import Closing, broker_error, check, may_pass
from kafkalite.client.network.leaders import Leaders
from kafkalite.client.network.metadata import coordinator_request
from kafkalite.client.network.pending_request import PendingRequest
from kafkalite.client.trouble import Troubles
from kafkalite.errors import (
    BrokerError,
    ClientError,
    KafkaliteError,
    OffsetOutOfRangeError,
    UnsupportedVersionError,
)
from kafkalite.protocol import messages
from kafkalite.protocol.codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, UNSTABLE_OFFSET_COMMIT

__all__ = [
    "OFFSETS_BY_NAME",
    "FetchedOffset",
    "PositionLookup",
    "fetched_offsets",
    "offset_fetch_request",
]

OFFSETS_BY_NAME = 9
"""Later versions of OffsetCommit and OffsetFetch name topics by id."""

Epochs = dict[Partition, int]

TROUBLE_S = 1.0
"""A look-up that takes longer is worth a line in the log."""
POSITIONS = "positions"
"""The trouble of positions that are not found."""

CONSUMER = -1
"""The id of a consumer where replicas give theirs."""


class _Asked(NamedTuple):
    """A request that was not answered yet, for which partitions, and who understands the answer."""

    pending: PendingRequest
    partitions: Epochs
    take: Callable[[Any, Epochs, float], None]


class PositionLookup(Closing):
    """Finds the positions that `subscription_state` need. One thread."""

    def __init__(
        self,
        cluster: Cluster,
        leaders: Leaders,
        subscription_state: SubscriptionState,
        group: str | None,
        reset: int | None,
        isolation: int,
        troubles: Troubles,
    ) -> None:
        """`reset`: what ListOffsets is asked for where there is no offset to begin at; without it
        the caller is told."""
        self._cluster = cluster
        self._leaders = leaders
        self._subscription_state = subscription_state
        self._group = group
        self._reset = reset
        self._isolation = isolation
        self._troubles = troubles
        self._asked: list[_Asked] = []

    def close(self) -> None:
        """Closes the connections."""
        for asked in self._asked:
            asked.pending.close()
        self._asked.clear()

    def descriptors(self) -> list[int]:
        """Sockets that are ready when an answer may be there."""
        return [each for asked in self._asked for each in asked.pending.descriptors()]

    # --- asking -----------------------------------------------------------------------------------

    def send(self, now: float) -> None:
        """Asks for what has not been asked for yet."""
        if not self._subscription_state.is_lacking:
            self._troubles.end(POSITIONS, "positions are found again")
            return
        committed = self._unasked(Need.COMMITTED, now)
        if committed and self._group is None:
            for partition, epoch in committed.items():
                self._subscription_state.needs_reset(partition, epoch)
        elif committed and self._group is not None:
            # Any broker says who coordinates the group, and then that one is asked.
            self._ask(
                None, coordinator_request(self._group), committed, self._take_coordinator, now
            )
        resets = self._unasked(Need.RESET, now)
        if resets and self._reset is None:
            self._refuse(resets)
        elif resets and self._reset is not None:
            self._ask_leaders(resets, self._listing(self._reset), self._take_listed, now)
        checks = self._unasked(Need.CHECK, now)
        if checks:
            self._ask_leaders(checks, self._epoch_ends, self._take_ends, now)

    def _unasked(self, need: Need, now: float) -> Epochs:
        asked = {item for each in self._asked for item in each.partitions.items()}
        needing = self._subscription_state.needing(need, now)
        return {each: epoch for each, epoch in needing.items() if (each, epoch) not in asked}

    def _refuse(self, epochs: Epochs) -> None:
        """All of them in one error, but those that have left their log, which say where."""
        beginning = []
        for (topic, index), epoch in epochs.items():
            state = self._subscription_state[topic, index]
            if state.position is None:
                beginning.append((topic, index))
                continue
            outside = f"offset {state.fetch_offset} is outside the log of {topic}-{index}"
            self._subscription_state.refuse_reset(
                (topic, index), epoch, OffsetOutOfRangeError(outside)
            )
        names = ", ".join(f"{topic}-{index}" for topic, index in beginning)
        nowhere = OffsetOutOfRangeError(f"no offset to begin at for {names}")
        for partition in beginning:
            self._subscription_state.refuse_reset(partition, epochs[partition], nowhere)

    def _ask_leaders(
        self,
        epochs: Epochs,
        request_for: Callable[[Iterable[Partition]], Any],
        take: Callable[[Any, Epochs, float], None],
        now: float,
    ) -> None:
        by_node: dict[int, Epochs] = {}
        for partition, epoch in epochs.items():
            try:
                led = self._leaders.find(*partition, now)
            except ClientError as error:
                self._failed(
                    {partition: epoch}, error, now, passes=self._passes(error, partition, now)
                )
                continue
            if led is not None:
                self._subscription_state[partition].leader_epoch = led.leader_epoch
                by_node.setdefault(led.leader, {})[partition] = epoch
        for node_id, asked in by_node.items():
            self._ask(node_id, request_for(asked), asked, take, now)

    def _passes(self, error: ClientError, partition: Partition, now: float) -> bool:
        """Says whether a leader may be found a moment later. What the cluster does not know, nor a
        moment later, or where nobody was ever reached, is a mistake in a name, most likely."""
        if isinstance(error, BrokerError) and error.code == UNKNOWN_TOPIC_OR_PARTITION:
            is_first = self._subscription_state[partition].sought_since is None
            return is_first or self._leaders.is_being_created(partition[0], now)
        return self._cluster.is_awaited and may_pass(error)

    def _listing(self, reset: int) -> Callable[[Iterable[Partition]], Any]:
        """Asks for the offsets that `reset` says."""

        def request_for(partitions: Iterable[Partition]) -> Any:
            return list_offsets_request(
                dict.fromkeys(partitions, reset),
                self._isolation == 1,
                self._cluster.request_timeout_ms,
                {each: self._subscription_state[each].leader_epoch for each in partitions},
            )

        return request_for

    def _epoch_ends(self, partitions: Iterable[Partition]) -> Any:
        """Asks where the log ends in the leader epochs that were read last."""
        kind = messages.OffsetForLeaderEpochRequest
        inner = kind.OffsetForLeaderTopic
        topics: dict[str, Any] = {}
        for topic, index in partitions:
            state = self._subscription_state[topic, index]
            row = inner.OffsetForLeaderPartition(
                partition=index,
                current_leader_epoch=state.leader_epoch,
                leader_epoch=state.read_epoch,
            )
            topics.setdefault(topic, inner(topic=topic)).partitions.append(row)
        return kind(replica_id=CONSUMER, topics=list(topics.values()))

    def _ask(
        self,
        node_id: int | None,
        request: Any,
        partitions: Epochs,
        take: Callable[[Any, Epochs, float], None],
        now: float,
        at_most: int | None = None,
    ) -> None:
        try:
            pending = PendingRequest(self._cluster, request, now, node_id=node_id, at_most=at_most)
        except ClientError as error:
            self._unanswered(partitions, take, error, now)
        else:
            self._asked.append(_Asked(pending, partitions, take))

    # --- answers ----------------------------------------------------------------------------------

    def take(self, now: float) -> None:
        """Takes what has been answered by now."""
        for asked in list(self._asked):
            try:
                response = asked.pending.take(now)
                if response is None:
                    continue
                self._asked.remove(asked)
                asked.take(response, asked.partitions, now)
                if asked.take == self._take_coordinator:
                    continue  # for the same partitions the coordinator has been asked by now
                # Those that the answer leaves out still have the epoch that they were asked with.
                for partition, epoch in asked.partitions.items():
                    self._subscription_state.back_off(partition, epoch, now + BACKOFF_MS / 1000)
            except ClientError as error:
                if asked in self._asked:
                    self._asked.remove(asked)
                self._unanswered(asked.partitions, asked.take, error, now)

    def _unanswered(
        self,
        partitions: Epochs,
        take: Callable[[Any, Epochs, float], None],
        error: ClientError,
        now: float,
    ) -> None:
        """Nobody answers, or the answer is an error for all of them."""
        if take == self._take_ends and isinstance(error, UnsupportedVersionError):
            for partition, epoch in partitions.items():
                self._subscription_state.holds(partition, epoch)
        else:
            # Where nobody was ever reached that is a mistake in a name, most likely.
            passes = self._cluster.is_awaited and may_pass(error)
            self._failed(partitions, error, now, passes=passes)

    def _take_coordinator(self, response: Any, asked: Epochs, now: float) -> None:
        group = self._group or ""
        node_id = self._cluster.learn_coordinator(response, group)
        request = offset_fetch_request(group, asked)
        self._ask(node_id, request, asked, self._take_committed, now, OFFSETS_BY_NAME)

    def _take_committed(self, response: Any, asked: Epochs, now: float) -> None:
        for each in fetched_offsets(self._group or "", response):
            partition = each.partition
            if partition not in asked:
                continue
            if each.code != NONE:
                self._refused(partition, each.code, asked, now)
            elif each.offset >= 0:
                epoch = asked[partition]
                self._subscription_state.found_committed(
                    partition, epoch, each.offset, each.read_epoch
                )
            else:
                self._subscription_state.needs_reset(partition, asked[partition])

    def _take_listed(self, response: Any, asked: Epochs, now: float) -> None:
        for topic in response.topics:
            for row in topic.partitions:
                partition = (topic.name, row.partition_index)
                if partition not in asked:
                    continue
                if row.error_code != NONE:
                    self._refused(partition, row.error_code, asked, now)
                else:
                    self._tell_reset(partition, asked[partition], row.offset)
                    self._subscription_state.found(partition, asked[partition], row.offset)

    def _tell_reset(self, partition: Partition, epoch: int, offset: int) -> None:
        """Logs a reset of a position that was known: records may have been left out."""
        state = self._subscription_state.of(partition, epoch)
        if state is not None and state.position is not None:
            self._troubles.warn(
                f"{partition[0]}-{partition[1]} goes on at offset {offset}: offset "
                f"{state.fetch_offset} is not in its log"
            )

    def _take_ends(self, response: Any, asked: Epochs, now: float) -> None:
        for topic in response.topics:
            for row in topic.partitions:
                partition = (topic.topic, row.partition)
                if partition not in asked:
                    continue
                if row.error_code != NONE:
                    self._refused(partition, row.error_code, asked, now)
                else:
                    self._check(partition, asked[partition], row.end_offset, row.leader_epoch)

    def _check(self, partition: Partition, epoch: int, end: int, end_epoch: int) -> None:
        """The leader's log goes up to `end` in the leader epoch that was read last, or in the last
        one before it (`SubscriptionState.maybeCompleteValidation`)."""
        state = self._subscription_state.of(partition, epoch)
        if state is None:
            return
        is_known = end >= 0 and end_epoch >= 0
        if is_known and end >= state.given:
            self._subscription_state.holds(partition, epoch)
        elif self._reset is None:
            where = f", which ends at {end}" if is_known else ""
            sentence = (
                f"offset {state.given - 1} of {partition[0]}-{partition[1]} was read and is not in "
                f"the log of its new leader{where}"
            )
            self._subscription_state.fail(partition, epoch, OffsetOutOfRangeError(sentence))
        elif is_known:
            self._subscription_state.cut(partition, epoch, end)
        else:
            self._subscription_state.needs_reset(partition, epoch)

    def _refused(self, partition: Partition, code: int, asked: Epochs, now: float) -> None:
        error = broker_error(code, f"partition {partition[0]}-{partition[1]}")
        self._failed({partition: asked[partition]}, error, now, passes=may_pass(error))

    def _failed(self, asked: Epochs, error: KafkaliteError, now: float, *, passes: bool) -> None:
        """Asks again after an error that may pass, as long as a whole operation may take, and
        as long as a transaction of somebody else's is about to commit the offset: nobody knows how
        long that takes, and Kafka's `poll` waits for it too."""
        is_unstable = isinstance(error, BrokerError) and error.code == UNSTABLE_OFFSET_COMMIT
        for partition, epoch in asked.items():
            state = self._subscription_state.of(partition, epoch)
            if state is None:
                continue
            if state.sought_since is None:
                state.sought_since = now
            is_late = now - state.sought_since >= self._cluster.timeout_ms / 1000
            if is_late and is_unstable:
                state.sought_since = now  # what comes after it has its own time
            if passes and (is_unstable or not is_late):
                self._subscription_state.back_off(partition, epoch, now + BACKOFF_MS / 1000)
                self._leaders.doubt(*partition)
                if now - state.sought_since > TROUBLE_S:
                    names = f"{partition[0]}-{partition[1]}"
                    self._troubles.begin(POSITIONS, f"the position of {names} is sought: {error}")
            else:
                state.sought_since = None
                self._subscription_state.fail(partition, epoch, error)


def offset_fetch_request(group: str, partitions: Iterable[Partition]) -> Any:
    """Asks for committed offsets, and for none that a transaction is about to change."""
    kind = messages.OffsetFetchRequest
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    asked = kind.OffsetFetchRequestGroup(
        group_id=group,
        topics=[
            kind.OffsetFetchRequestGroup.OffsetFetchRequestTopics(
                name=topic, partition_indexes=indexes
            )
            for topic, indexes in by_topic.items()
        ],
    )
    old = [
        kind.OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
        for topic, indexes in by_topic.items()
    ]
    return kind(group_id=group, topics=old, groups=[asked], require_stable=True)


class FetchedOffset(NamedTuple):
    """The answer of OffsetFetch for a partition: an error code, or an offset and the leader epoch
    of what was read before it, each -1 for none."""

    partition: Partition
    code: int
    offset: int
    read_epoch: int


def fetched_offsets(group: str, response: Any) -> Iterator[FetchedOffset]:
    """One for each partition. Raises `BrokerError` for the group's own error."""
    found = response.groups[0] if response.groups else response
    check(found.error_code, f"group '{group}'")
    for topic in found.topics:
        for row in topic.partitions:
            yield FetchedOffset(
                (topic.name, row.partition_index),
                row.error_code,
                row.committed_offset,
                row.committed_leader_epoch,
            )
