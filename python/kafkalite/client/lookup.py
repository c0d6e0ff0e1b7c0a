"""Where partitions are read from: asked of the group's coordinator and of leaders.

No answer about positions is waited for, so that those partitions go on whose positions are known.
Each question has a connection of its own, since on that of the fetches it would wait behind them.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kafkalite.client.admin import list_offsets_request
from kafkalite.client.cluster import BACKOFF_MS, Cluster, coordinator_request
from kafkalite.client.connection import Closing, broker_error, may_pass
from kafkalite.client.leaders import Leaders
from kafkalite.client.offset_fetch import OFFSETS_BY_NAME, fetched_offsets, offset_fetch_request
from kafkalite.client.place import Need, Partition, Places
from kafkalite.client.question import Question
from kafkalite.client.trouble import Troubles
from kafkalite.errors import (
    BrokerError,
    ClientError,
    KafkaliteError,
    OffsetOutOfRangeError,
    UnsupportedVersionError,
)
from kafkalite.protocol import messages
from kafkalite.protocol.codes import NONE, UNKNOWN_TOPIC_OR_PARTITION

__all__ = ["Lookup"]

Epochs = dict[Partition, int]

TROUBLE_S = 1.0
"""What takes longer than that is worth a line in the log."""
POSITIONS = "positions"
"""The trouble of positions that are not found."""

CONSUMER = -1
"""What a consumer calls itself where replicas give their ids."""


class _Asked(NamedTuple):
    """What was asked and not answered yet, for which partitions, and who understands the answer."""

    question: Question
    partitions: Epochs
    take: Callable[[Any, Epochs, float], None]


class Lookup(Closing):
    """Finds the positions that `places` need. One thread."""

    def __init__(
        self,
        cluster: Cluster,
        leaders: Leaders,
        places: Places,
        group: str | None,
        reset: int | None,
        isolation: int,
        troubles: Troubles,
    ) -> None:
        """`reset`: what ListOffsets is asked for where there is no offset to begin at; without it
        the caller is told."""
        self._cluster = cluster
        self._leaders = leaders
        self._places = places
        self._group = group
        self._reset = reset
        self._isolation = isolation
        self._troubles = troubles
        self._asked: list[_Asked] = []

    def close(self) -> None:
        """Closes the connections."""
        for asked in self._asked:
            asked.question.close()
        self._asked.clear()

    def descriptors(self) -> list[int]:
        """What is readable when an answer may be there."""
        return [each for asked in self._asked for each in asked.question.descriptors()]

    # --- asking -----------------------------------------------------------------------------------

    def send(self, now: float) -> None:
        """Asks for what has not been asked for yet."""
        if not self._places.is_lacking:
            self._troubles.end(POSITIONS, "positions are found again")
            return
        committed = self._unasked(Need.COMMITTED, now)
        if committed and self._group is None:
            for partition, epoch in committed.items():
                self._places.needs_reset(partition, epoch)
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
        needing = self._places.needing(need, now)
        return {each: epoch for each, epoch in needing.items() if (each, epoch) not in asked}

    def _refuse(self, epochs: Epochs) -> None:
        """All of them in one error, but those that have left their log, which say where."""
        beginning = []
        for (topic, index), epoch in epochs.items():
            place = self._places[topic, index]
            if place.position is None:
                beginning.append((topic, index))
                continue
            outside = f"offset {place.fetch_offset} is outside the log of {topic}-{index}"
            self._places.refuse_reset((topic, index), epoch, OffsetOutOfRangeError(outside))
        names = ", ".join(f"{topic}-{index}" for topic, index in beginning)
        nowhere = OffsetOutOfRangeError(f"no offset to begin at for {names}")
        for partition in beginning:
            self._places.refuse_reset(partition, epochs[partition], nowhere)

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
                self._places[partition].leader_epoch = led.leader_epoch
                by_node.setdefault(led.leader, {})[partition] = epoch
        for node_id, asked in by_node.items():
            self._ask(node_id, request_for(asked), asked, take, now)

    def _passes(self, error: ClientError, partition: Partition, now: float) -> bool:
        """Whether a leader may be found a moment later. What the cluster does not know, nor a
        moment later, or where nobody was ever reached, is a mistake in a name, most likely."""
        if isinstance(error, BrokerError) and error.code == UNKNOWN_TOPIC_OR_PARTITION:
            is_first = self._places[partition].sought_since is None
            return is_first or self._leaders.is_being_created(partition[0], now)
        return self._cluster.is_awaited and may_pass(error)

    def _listing(self, reset: int) -> Callable[[Iterable[Partition]], Any]:
        """Asks for the offsets that `reset` says."""

        def request_for(partitions: Iterable[Partition]) -> Any:
            return list_offsets_request(
                dict.fromkeys(partitions, reset),
                self._isolation == 1,
                self._cluster.request_timeout_ms,
                {each: self._places[each].leader_epoch for each in partitions},
            )

        return request_for

    def _epoch_ends(self, partitions: Iterable[Partition]) -> Any:
        """Asks where the log ends in the leader epochs that were read last."""
        kind = messages.OffsetForLeaderEpochRequest
        inner = kind.OffsetForLeaderTopic
        topics: dict[str, Any] = {}
        for topic, index in partitions:
            place = self._places[topic, index]
            row = inner.OffsetForLeaderPartition(
                partition=index,
                current_leader_epoch=place.leader_epoch,
                leader_epoch=place.read_epoch,
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
            question = Question(self._cluster, request, now, node_id=node_id, at_most=at_most)
        except ClientError as error:
            self._unanswered(partitions, take, error, now)
        else:
            self._asked.append(_Asked(question, partitions, take))

    # --- answers ----------------------------------------------------------------------------------

    def take(self, now: float) -> None:
        """Takes what has been answered by now."""
        for asked in list(self._asked):
            try:
                response = asked.question.take(now)
                if response is None:
                    continue
                self._asked.remove(asked)
                asked.take(response, asked.partitions, now)
                if asked.take == self._take_coordinator:
                    continue  # for the same partitions the coordinator has been asked by now
                # Those that the answer leaves out still have the epoch that they were asked with.
                for partition, epoch in asked.partitions.items():
                    self._places.back_off(partition, epoch, now + BACKOFF_MS / 1000)
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
                self._places.holds(partition, epoch)
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
                self._places.found_committed(partition, epoch, each.offset, each.read_epoch)
            else:
                self._places.needs_reset(partition, asked[partition])

    def _take_listed(self, response: Any, asked: Epochs, now: float) -> None:
        for topic in response.topics:
            for row in topic.partitions:
                partition = (topic.name, row.partition_index)
                if partition not in asked:
                    continue
                if row.error_code != NONE:
                    self._refused(partition, row.error_code, asked, now)
                else:
                    self._places.found(partition, asked[partition], row.offset)

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
        place = self._places.of(partition, epoch)
        if place is None:
            return
        is_known = end >= 0 and end_epoch >= 0
        if is_known and end >= place.given:
            self._places.holds(partition, epoch)
        elif self._reset is None:
            where = f", which ends at {end}" if is_known else ""
            sentence = (
                f"offset {place.given - 1} of {partition[0]}-{partition[1]} was read and is not in "
                f"the log of its new leader{where}"
            )
            self._places.fail(partition, epoch, OffsetOutOfRangeError(sentence))
        elif is_known:
            self._places.cut(partition, epoch, end)
        else:
            self._places.needs_reset(partition, epoch)

    def _refused(self, partition: Partition, code: int, asked: Epochs, now: float) -> None:
        error = broker_error(code, f"partition {partition[0]}-{partition[1]}")
        self._failed({partition: asked[partition]}, error, now, passes=may_pass(error))

    def _failed(self, asked: Epochs, error: KafkaliteError, now: float, *, passes: bool) -> None:
        """What may pass is asked again, as long as a whole operation may take."""
        for partition, epoch in asked.items():
            place = self._places.of(partition, epoch)
            if place is None:
                continue
            if place.sought_since is None:
                place.sought_since = now
            if passes and now - place.sought_since < self._cluster.timeout_ms / 1000:
                self._places.back_off(partition, epoch, now + BACKOFF_MS / 1000)
                self._leaders.doubt(*partition)
                if now - place.sought_since > TROUBLE_S:
                    names = f"{partition[0]}-{partition[1]}"
                    self._troubles.begin(POSITIONS, f"the position of {names} is sought: {error}")
            else:
                place.sought_since = None
                self._places.fail(partition, epoch, error)
