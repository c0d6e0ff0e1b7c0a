"""What a consumer knows of each partition that it reads. Asks nobody, and reads no clock.

    position       the next record that the caller gets; what `commit` commits
    given          up to here the caller has bytes (`Consumer.fetch`), and says how far they are
    fetch offset   where the next fetch begins

    position ≤ given ≤ fetch offset

What makes worthless whatever is under way (a seek, a reset, damage in what came, a group that has
shared its partitions out anew) gives the place a new epoch, which no place of this table ever had:
what was asked for in another epoch is thrown away, even if the partition was gone in between.

    COMMITTED ── the group has no offset ──► RESET ── found ──► NOTHING ── another leads ──► CHECK
        └───────────────── found ──────────────────────────────────▲ ▲── what was read is there ─┤
                                  RESET ◄── outside the log ───────┘                             │
                                  RESET ◄── the leader knows nothing of it ──────────────────────┘

Leader epochs (KIP-320) are Kafka's: a partition has another with each leader. With that of the last
batch that was fetched a new leader is asked (CHECK) whether its log still has it.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from itertools import count

from kafkalite.errors import InvalidArgumentError, KafkaliteError

__all__ = ["Need", "Partition", "Place", "Places"]

Partition = tuple[str, int]


class Need(Enum):
    """What has to be looked up before a place can be fetched."""

    NOTHING = auto()
    COMMITTED = auto()
    """The committed offset of the group, if there is one."""
    RESET = auto()
    """The offset that `offset_reset` says."""
    CHECK = auto()
    """Whether the log of a new leader has what was read."""


class Place:
    """One partition that is being read."""

    __slots__ = (
        "committed",
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
        "waits_until",
    )

    def __init__(self, epoch: int) -> None:
        self.is_paused = False
        self.stop: int | None = None
        """Nothing is fetched from here on."""
        self.forget(epoch)

    def forget(self, epoch: int) -> None:
        """Nobody knows where it is read from."""
        self.epoch = epoch
        self.position: int | None = None
        self.given = self.fetch_offset = -1
        self.leader_epoch = -1
        """That of the leader which the position was held against, or fetched from."""
        self.read_epoch = -1
        """The leader epoch of the last batch that was fetched, -1 if it is not known."""
        self.committed: int | None = None
        """What the group has, as far as is known."""
        self.need = Need.COMMITTED
        self.sought_since: float | None = None
        """When the first question for its position failed."""
        self.waits_until = 0.0
        self.error: KafkaliteError | None = None
        """What the caller is still to be told; nothing is fetched until then."""

    def go(self, epoch: int, offset: int) -> None:
        """It is read from an offset on."""
        committed = self.committed
        self.forget(epoch)
        self.position = self.given = self.fetch_offset = offset
        self.committed, self.need = committed, Need.NOTHING

    def may_be_fetched(self, now: float) -> bool:
        """Whether its next records are to be asked for."""
        is_over = self.stop is not None and self.fetch_offset >= self.stop
        is_held = self.is_paused or self.error is not None or now < self.waits_until
        return self.need is Need.NOTHING and not is_held and not is_over


class Places:
    """The partitions that are read. Iterating gives those whose turn comes first, first."""

    def __init__(self) -> None:
        self._places: dict[Partition, Place] = {}
        self._epochs = count()

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._places)

    def __getitem__(self, partition: Partition) -> Place:
        """Raises `InvalidArgumentError` for a partition that is not assigned."""
        place = self._places.get(partition)
        if place is None:
            raise InvalidArgumentError(f"{partition[0]}-{partition[1]} is not assigned")
        return place

    def items(self) -> Iterable[tuple[Partition, Place]]:
        """Partitions and their places."""
        return self._places.items()

    def of(self, partition: Partition, epoch: int) -> Place | None:
        """The place, if it still has the epoch."""
        place = self._places.get(partition)
        return place if place is not None and place.epoch == epoch else None

    # --- what the caller wants --------------------------------------------------------------------

    def assign(self, partitions: Iterable[Partition]) -> None:
        """These partitions and no others; those that stay go on where they are."""
        before = self._places
        self._places = {
            partition: before.get(partition) or Place(next(self._epochs))
            for partition in partitions
        }
        for place in self._places.values():
            place.stop = None

    def forget_positions(self) -> None:
        """Others may have read the partitions in between."""
        for place in self._places.values():
            place.forget(next(self._epochs))

    def seek(self, partition: Partition, offset: int) -> None:
        """The next record is that of the offset."""
        self[partition].go(next(self._epochs), offset)

    def advance(self, partition: Partition, offset: int) -> None:
        """The caller has dealt with what was given below an offset. Nothing moves if they mean what
        was given before a seek or another assignment."""
        place = self._places.get(partition)
        if place is None or place.position is None or not place.position <= offset <= place.given:
            return
        place.position = offset

    def read_epochs(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """The leader epochs of what was read, where the offsets are positions. A later one, of what
        was fetched and not handed out, tells the same of what comes before it."""
        return {
            partition: place.read_epoch
            for partition, place in self._places.items()
            if place.position == offsets.get(partition)
        }

    def positions(self) -> dict[Partition, int]:
        """All that are known."""
        return {
            partition: place.position
            for partition, place in self._places.items()
            if place.position is not None
        }

    def take_error(self, until: float) -> KafkaliteError | None:
        """What is to be told to the caller, once. Those whom it concerns are fetched again, from
        where they were, but not before `until`."""
        found = None
        for place in self._places.values():
            if place.error is None or place.is_paused:
                continue
            found = found or place.error
            if place.error is found:
                place.error, place.waits_until = None, until
        return found

    # --- what was looked up -----------------------------------------------------------------------

    def needing(self, need: Need, now: float) -> dict[Partition, int]:
        """Whose position is to be looked up, with the epochs."""
        return {
            partition: place.epoch
            for partition, place in self._places.items()
            if place.need is need and place.error is None and now >= place.waits_until
        }

    def found(self, partition: Partition, epoch: int, offset: int) -> None:
        """The answer to `needing`."""
        place = self.of(partition, epoch)
        if place is not None:
            place.go(next(self._epochs), offset)

    def found_committed(
        self, partition: Partition, epoch: int, offset: int, read_epoch: int
    ) -> None:
        """The same of the group, with the leader epoch of what was read before it."""
        place = self.of(partition, epoch)
        if place is not None:
            place.go(next(self._epochs), offset)
            place.committed, place.read_epoch = offset, read_epoch

    def needs_reset(self, partition: Partition, epoch: int) -> None:
        """The group has no offset, or the log has nothing at the fetch offset."""
        place = self.of(partition, epoch)
        if place is not None:
            place.need = Need.RESET
            place.epoch = next(self._epochs)

    def refuse_reset(self, partition: Partition, epoch: int, error: KafkaliteError) -> None:
        """There is nothing to reset to: the caller is told, and what led to it is tried again."""
        place = self.of(partition, epoch)
        if place is not None:
            place.need = Need.COMMITTED if place.position is None else Need.NOTHING
            place.error = error

    # --- leaders ----------------------------------------------------------------------------------

    def led(self, partition: Partition, leader_epoch: int) -> bool:
        """Whether a leader of this epoch may be fetched from at once. Another one than before may
        have lost what was read: then that is to be asked, and what has not been handed out yet is
        fetched anew (`SubscriptionState.maybeValidatePosition`)."""
        place = self[partition]
        is_same = leader_epoch in (-1, place.leader_epoch) or place.read_epoch < 0
        if is_same:
            place.leader_epoch = leader_epoch
            return True
        place.epoch = next(self._epochs)
        place.fetch_offset = place.given
        place.need = Need.CHECK
        return False

    def holds(self, partition: Partition, epoch: int) -> None:
        """The leader has all that was read, or cannot tell."""
        place = self.of(partition, epoch)
        if place is not None:
            place.need, place.sought_since = Need.NOTHING, None
            place.epoch = next(self._epochs)  # the question has been answered

    def cut(self, partition: Partition, epoch: int, offset: int) -> None:
        """The leader's log ends there, before what was given: it is read from there on."""
        place = self.of(partition, epoch)
        if place is None or place.position is None:
            return
        position, leader_epoch = min(place.position, offset), place.leader_epoch
        place.go(next(self._epochs), offset)
        place.position, place.leader_epoch = position, leader_epoch

    # --- what came --------------------------------------------------------------------------------

    def fetched(self, partition: Partition, epoch: int, end: int, read_epoch: int = -1) -> None:
        """What is below `end` has come, the last of it of a leader epoch. Who had something goes to
        the end of the line."""
        place = self.of(partition, epoch)
        if place is not None:
            place.fetch_offset, place.read_epoch = end, read_epoch
            self._places[partition] = self._places.pop(partition)

    def give(self, partition: Partition, epoch: int, end: int) -> None:
        """The caller has what is below `end`, and will say how far they are."""
        place = self.of(partition, epoch)
        if place is not None:
            place.given = end

    def hand_out(self, partition: Partition, epoch: int, end: int) -> None:
        """The caller has what is below `end` and deals with it before they ask for more."""
        place = self.of(partition, epoch)
        if place is not None:
            place.position = place.given = end

    def rewind(self, partition: Partition, epoch: int) -> None:
        """What was fetched and not handed out is fetched once more."""
        place = self.of(partition, epoch)
        if place is not None and place.position is not None:
            place.go(next(self._epochs), place.position)

    def damage(self, partition: Partition, epoch: int, offset: int, error: KafkaliteError) -> int:
        """What came cannot be read from an offset on; the epoch of what came before it."""
        place = self.of(partition, epoch)
        if place is None:
            return epoch
        place.epoch = next(self._epochs)
        place.fetch_offset = offset
        place.given = min(place.given, offset)
        place.error = error
        return place.epoch

    # --- what failed ------------------------------------------------------------------------------

    def fail(self, partition: Partition, epoch: int, error: KafkaliteError) -> None:
        """The caller is told."""
        place = self.of(partition, epoch)
        if place is not None:
            place.error = error

    def back_off(self, partition: Partition, epoch: int, until: float) -> None:
        """Tried again later."""
        place = self.of(partition, epoch)
        if place is not None:
            place.waits_until = until
