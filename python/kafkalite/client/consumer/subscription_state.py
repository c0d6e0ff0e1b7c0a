"""Keeps what a consumer knows of each partition that it reads. Asks nobody, and reads no clock.

    position       the next record that the caller gets; what `commit` commits
    given          up to here the caller has bytes (`Consumer.fetch`), and says how far they are
    fetch offset   where the next fetch begins

    position ≤ given ≤ fetch offset

    in hand        where the position was before what the caller got last: they may still be dealing
                   with it, and who fails in the middle of that is to get it again

What makes worthless whatever is under way (a seek, a reset, damage in what came, a group that has
shared its partitions out anew) gives the partition a new epoch, which none of this table ever had:
what was asked for in another epoch is thrown away, even if the partition was gone in between.

    COMMITTED ── the group has no offset ──► RESET ── found ──► NOTHING ── another leads ──► CHECK
        └───────────────── found ──────────────────────────────────▲ ▲── what was read is there ─┤
                                  RESET ◄── outside the log ───────┘                             │
                                  RESET ◄── the leader knows nothing of it ──────────────────────┘

Leader epochs (KIP-320) are Kafka's: a partition has another with each leader. With that of the last
batch that was fetched a new leader is asked (CHECK) whether its log still has it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from itertools import count

from kafkalite.errors import InvalidArgumentError, KafkaliteError

__all__ = ["Need", "Partition", "PartitionState", "SubscriptionState"]

Partition = tuple[str, int]


class Need(Enum):
    """The look-up that is needed before a partition can be fetched."""

    NOTHING = auto()
    COMMITTED = auto()
    """The committed offset of the group, if there is one."""
    RESET = auto()
    """The offset that `offset_reset` says."""
    CHECK = auto()
    """Says whether the log of a new leader has what was read."""


class PartitionState:
    """One partition that is being read."""

    __slots__ = (
        "committed",
        "end",
        "epoch",
        "error",
        "fetch_offset",
        "given",
        "is_paused",
        "leader_epoch",
        "need",
        "position",
        "read_epoch",
        "sought_since",
        "stop",
        "topic_id",
        "unknown_since",
        "waits_until",
    )

    def __init__(self, epoch: int) -> None:
        self.is_paused = False
        self.stop: int | None = None
        """Nothing is fetched from here on."""
        self.topic_id = bytes(16)
        """The id of its topic when it was fetched last, zero if it was not."""
        self.forget(epoch)

    def forget(self, epoch: int) -> None:
        """Nobody knows where it is read from."""
        self.epoch = epoch
        self.position: int | None = None
        self.given = self.fetch_offset = -1
        self.leader_epoch = -1
        """The epoch of the leader that the position was validated against, or fetched from."""
        self.read_epoch = -1
        """The leader epoch of the last batch that was fetched, -1 if it is not known."""
        self.end: int | None = None
        """Where the records end that may be read, as the last fetch has told: the high watermark,
        or the last stable offset."""
        self.unknown_since: float | None = None
        """Since when the cluster does not know its topic."""
        self.committed: int | None = None
        """The group's committed offset, as far as is known."""
        self.need = Need.COMMITTED
        self.sought_since: float | None = None
        """When the first request for its position failed."""
        self.waits_until = 0.0
        self.error: KafkaliteError | None = None
        """An error that the caller is still to be told; nothing is fetched until then."""

    def go(self, epoch: int, offset: int) -> None:
        """It is read from an offset on."""
        committed, end = self.committed, self.end
        self.forget(epoch)
        self.position = self.given = self.fetch_offset = offset
        self.committed, self.end, self.need = committed, end, Need.NOTHING

    def may_be_fetched(self, now: float) -> bool:
        """Says whether its next records are to be asked for."""
        is_over = self.stop is not None and self.fetch_offset >= self.stop
        is_held = self.is_paused or self.error is not None or now < self.waits_until
        return self.need is Need.NOTHING and not is_held and not is_over


class SubscriptionState:
    """The partitions that are read. Iterating gives those whose turn comes first, first."""

    def __init__(self) -> None:
        self._states: dict[Partition, PartitionState] = {}
        self._epochs = count()
        self._lacking: dict[Partition, PartitionState] = {}
        """The partitions whose position must be looked up."""
        self._failed: dict[Partition, PartitionState] = {}
        """The partitions with an error that has not been raised yet."""
        self._in_hand: dict[Partition, int] = {}
        self.revision = 0
        """Grows with all that may make a partition one to be fetched."""
        self.waits_until = 0.0
        """Until when some partition may wait, in monotonic seconds."""

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._states)

    def __getitem__(self, partition: Partition) -> PartitionState:
        """Raises `InvalidArgumentError` for a partition that is not assigned."""
        state = self._states.get(partition)
        if state is None:
            raise InvalidArgumentError(f"{partition[0]}-{partition[1]} is not assigned")
        return state

    def items(self) -> Iterable[tuple[Partition, PartitionState]]:
        """Partitions and their states."""
        return self._states.items()

    def of(self, partition: Partition, epoch: int) -> PartitionState | None:
        """The state of a partition, if it still has the epoch."""
        state = self._states.get(partition)
        return state if state is not None and state.epoch == epoch else None

    # --- what the caller wants --------------------------------------------------------------------

    def assign(self, partitions: Iterable[Partition]) -> None:
        """These partitions and no others; those that stay go on where they are."""
        before = self._states
        self._states = {
            partition: before.get(partition) or PartitionState(next(self._epochs))
            for partition in partitions
        }
        for state in self._states.values():
            state.stop = None
        self._index()

    def _index(self) -> None:
        """Makes anew what is kept beside the states."""
        states, in_hand = self._states, self._in_hand
        self._lacking = {each: one for each, one in states.items() if one.need is not Need.NOTHING}
        self._failed = {each: one for each, one in states.items() if one.error is not None}
        self._in_hand = {each: offset for each, offset in in_hand.items() if each in states}
        self.revision += 1

    def _go(self, partition: Partition, state: PartitionState, offset: int) -> None:
        state.go(next(self._epochs), offset)
        self._lacking.pop(partition, None)
        self._failed.pop(partition, None)
        self._in_hand.pop(partition, None)
        self.revision += 1

    def _needs(self, partition: Partition, state: PartitionState, need: Need) -> None:
        state.need = need
        if need is Need.NOTHING:
            self._lacking.pop(partition, None)
        else:
            self._lacking[partition] = state
        self.revision += 1

    def _fails(self, partition: Partition, state: PartitionState, error: KafkaliteError) -> None:
        state.error = error
        self._failed[partition] = state

    def forget_positions(self) -> None:
        """Others may have read the partitions in between."""
        for state in self._states.values():
            state.forget(next(self._epochs))
        self._in_hand.clear()
        self._index()

    def seek(self, partition: Partition, offset: int) -> None:
        """The next record is that of the offset."""
        self._go(partition, self[partition], offset)

    def pause(self, partition: Partition, *, is_paused: bool) -> None:
        """Stops, or goes on with, handing out and fetching it."""
        self[partition].is_paused = is_paused
        self.revision += 1

    def advance(self, partition: Partition, offset: int) -> None:
        """The caller has dealt with what was given below an offset. Nothing moves if they mean what
        was given before a seek or another assignment."""
        state = self._states.get(partition)
        if state is None or state.position is None or not state.position <= offset <= state.given:
            return
        state.position = offset

    def read_epochs(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """The leader epochs of what was read, where the offsets are positions. A later one, of what
        was fetched and not handed out, tells the same of what comes before it."""
        return {
            partition: state.read_epoch
            for partition, state in self._states.items()
            if state.position == offsets.get(partition)
        }

    def positions(self, *, in_hand: bool = True) -> dict[Partition, int]:
        """All that are known; without what is in hand those before it."""
        found = {
            partition: state.position
            for partition, state in self._states.items()
            if state.position is not None
        }
        return found if in_hand else found | self._in_hand

    def confirm(self) -> None:
        """The caller has dealt with all that they were handed out."""
        self._in_hand.clear()

    def note_committed(self, offsets: Mapping[Partition, int]) -> None:
        """The group has these offsets now; what is before them has been dealt with."""
        for partition, offset in offsets.items():
            state = self._states.get(partition)
            if state is not None:
                state.committed = offset
                if partition in self._in_hand:
                    self._in_hand[partition] = offset

    def take_error(
        self, until: float, but: Callable[[Partition], bool] = lambda _: False
    ) -> KafkaliteError | None:
        """Gives the error that is to be told to the caller, once, `but` not of those of which
        something else comes first. Those whom it concerns are fetched again, from where they were,
        but not before `until`."""
        found = None
        for partition, state in list(self._failed.items()):
            if state.is_paused or but(partition):
                continue
            found = found or state.error
            if state.error is found:
                self.forget_error(partition, until)
        return found

    def forget_error(self, partition: Partition, until: float) -> None:
        """The caller was told of it."""
        state = self[partition]
        state.error = None
        self._wait(state, until)
        self._failed.pop(partition, None)
        self.revision += 1

    def _wait(self, state: PartitionState, until: float) -> None:
        state.waits_until = until
        self.waits_until = max(self.waits_until, until)

    # --- what was looked up -----------------------------------------------------------------------

    def needing(self, need: Need, now: float) -> dict[Partition, int]:
        """The partitions whose position must be looked up, with the epochs."""
        return {
            partition: state.epoch
            for partition, state in self._lacking.items()
            if state.need is need and state.error is None and now >= state.waits_until
        }

    @property
    def is_lacking(self) -> bool:
        """Says whether any position is to be looked up."""
        return bool(self._lacking)

    def found(self, partition: Partition, epoch: int, offset: int) -> None:
        """The answer to `needing`."""
        state = self.of(partition, epoch)
        if state is not None:
            self._go(partition, state, offset)

    def found_committed(
        self, partition: Partition, epoch: int, offset: int, read_epoch: int
    ) -> None:
        """Takes the group's committed offset, with the leader epoch of what was read before it."""
        state = self.of(partition, epoch)
        if state is not None:
            self._go(partition, state, offset)
            state.committed, state.read_epoch = offset, read_epoch

    def needs_reset(self, partition: Partition, epoch: int) -> None:
        """The group has no offset, or the log has nothing at the fetch offset."""
        state = self.of(partition, epoch)
        if state is not None:
            self._needs(partition, state, Need.RESET)
            state.epoch = next(self._epochs)

    def refuse_reset(self, partition: Partition, epoch: int, error: KafkaliteError) -> None:
        """There is nothing to reset to: the caller is told, and what led to it is tried again."""
        state = self.of(partition, epoch)
        if state is not None:
            nowhere = state.position is None
            self._needs(partition, state, Need.COMMITTED if nowhere else Need.NOTHING)
            self._fails(partition, state, error)

    # --- leaders ----------------------------------------------------------------------------------

    def led(self, partition: Partition, leader_epoch: int) -> bool:
        """Says whether a leader of this epoch may be fetched from at once. Another one than before
        may have lost what was read: then that is to be asked, and what has not been handed out yet
        is fetched anew (`SubscriptionState.maybeValidatePosition`)."""
        state = self[partition]
        is_same = leader_epoch in (-1, state.leader_epoch) or state.read_epoch < 0
        if is_same:
            state.leader_epoch = leader_epoch
            return True
        state.epoch = next(self._epochs)
        state.fetch_offset = state.given
        self._needs(partition, state, Need.CHECK)
        return False

    def holds(self, partition: Partition, epoch: int) -> None:
        """The leader has all that was read, or cannot tell."""
        state = self.of(partition, epoch)
        if state is not None:
            self._needs(partition, state, Need.NOTHING)
            state.sought_since = None
            state.epoch = next(self._epochs)  # the request has been answered

    def cut(self, partition: Partition, epoch: int, offset: int) -> None:
        """The leader's log ends there, before what was given: it is read from there on."""
        state = self.of(partition, epoch)
        if state is None or state.position is None:
            return
        position, leader_epoch = min(state.position, offset), state.leader_epoch
        self._go(partition, state, offset)
        state.position, state.leader_epoch = position, leader_epoch

    # --- what came --------------------------------------------------------------------------------

    def fetched(self, partition: Partition, epoch: int, end: int, read_epoch: int = -1) -> None:
        """Notes that what is below `end` has come, the last of it of a leader epoch. Who had
        something goes to the end of the line."""
        state = self.of(partition, epoch)
        if state is not None:
            state.fetch_offset, state.read_epoch = end, read_epoch
            self._states[partition] = self._states.pop(partition)

    def give(self, partition: Partition, epoch: int, end: int) -> None:
        """The caller has what is below `end`, and will say how far they are."""
        state = self.of(partition, epoch)
        if state is not None:
            state.given = end

    def hand_out(self, partition: Partition, epoch: int, end: int) -> None:
        """The caller has what is below `end` and deals with it before they ask for more, which
        `confirm` says."""
        state = self.of(partition, epoch)
        if state is not None:
            if state.position is not None:
                self._in_hand.setdefault(partition, state.position)
            state.position = state.given = end

    def give_back(self, partition: Partition, epoch: int, offset: int) -> None:
        """Has what was handed out, or given, from an offset on fetched once more: the caller never
        got it."""
        state = self.of(partition, epoch)
        if state is not None and state.position is not None:
            position = min(state.position, offset)
            self._go(partition, state, offset)
            state.position = position

    def rewind(self, partition: Partition, epoch: int) -> None:
        """Has what was fetched and not handed out fetched once more."""
        state = self.of(partition, epoch)
        if state is not None and state.position is not None:
            self._go(partition, state, state.position)

    def damage(self, partition: Partition, epoch: int, offset: int, error: KafkaliteError) -> int:
        """Notes that what came cannot be read from an offset on; gives the epoch of what came
        before."""
        state = self.of(partition, epoch)
        if state is None:
            return epoch
        state.epoch = next(self._epochs)
        state.fetch_offset = offset
        state.given = min(state.given, offset)
        self._fails(partition, state, error)
        return state.epoch

    # --- what failed ------------------------------------------------------------------------------

    def fail(self, partition: Partition, epoch: int, error: KafkaliteError) -> None:
        """The caller is told."""
        state = self.of(partition, epoch)
        if state is not None:
            self._fails(partition, state, error)

    def back_off(self, partition: Partition, epoch: int, until: float) -> None:
        """Tried again later."""
        state = self.of(partition, epoch)
        if state is not None:
            self._wait(state, until)
