"""The log of one partition as a model: its batches, what it knows of producers, and how much of it
is on disk.

    append ──► judged: epoch, guard, sequence, marker ──► batches ──► flush ──► high watermark
                                                             └── a power cut takes what is behind it

A plain second implementation of `rust/src/log/state/`, by Kafka's rules (`UnifiedLog`,
`ProducerStateManager`, `VerificationStateEntry`, KIP-890). What stands in the batches is the truth;
producers and verifications are memory, which a restart makes anew from the batches, or forgets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkalite import _native
from kafkalite.errors import KafkaliteError
from kafkalite.protocol import codes

NO_GUARD = 0
EPOCH_MAX = 32_767
WINDOW_BATCHES = 5
VERSION_OF_EPOCHS = 2
NO_TRANSACTION = -1


class RefusedError(KafkaliteError):
    """A batch that the log does not take."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.kafka_code = code  # type: ignore[misc]


class Batch(NamedTuple):
    """One batch. `commit` is None unless it is a marker."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    commit: bool | None
    coordinator_epoch: int
    values: tuple[str, ...]
    """The records of a client."""
    data: bytes
    """The records of a coordinator, or a marker."""
    agreed_for: int = NO_TRANSACTION
    """The transaction, by its number, for which the coordinator has agreed that it be written."""

    @property
    def last_sequence(self) -> int:
        return self.base_sequence + self.last_offset - self.base_offset


def client_batch(
    producer_id: int, producer_epoch: int, base_sequence: int, values: Sequence[str]
) -> Batch:
    """A transactional batch of a producer; the log gives it its offsets."""
    last = len(values) - 1
    return Batch(
        0, last, producer_id, producer_epoch, base_sequence, True, None, -1, tuple(values), b""
    )


def parsed_batch(data: bytes) -> Batch:
    """A batch in its bytes, as coordinators write them."""
    (read,) = _native.read_batches(data)
    commit, coordinator_epoch = None, -1
    if read.is_control:
        ((_, _, key, value, _),) = read.records
        assert key is not None
        assert value is not None
        commit = key[3] == 1
        coordinator_epoch = int.from_bytes(value[2:6], "big", signed=True)
    last = read.last_offset - read.base_offset
    return Batch(
        0,
        last,
        read.producer_id,
        read.producer_epoch,
        read.base_sequence,
        read.is_transactional,
        commit,
        coordinator_epoch,
        (),
        data,
    )


class Aborted(NamedTuple):
    """An entry of the index of aborted transactions; the marker is at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int


class Offsets(NamedTuple):
    """As `_native.LogOffsets`, as far as the loader asks."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int


@dataclass
class Producer:
    """The state of one producer."""

    epoch: int = -1
    coordinator_epoch: int = -1
    open_offset: int | None = None
    """The first offset of its open transaction."""
    window: list[Batch] = field(default_factory=list)

    def enter(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.epoch = epoch
            self.window.clear()

    def duplicate(self, batch: Batch) -> Batch | None:
        if batch.producer_epoch != self.epoch:
            return None
        range_ = (batch.base_sequence, batch.last_sequence)
        found = [each for each in self.window if (each.base_sequence, each.last_sequence) == range_]
        return found[0] if found else None


@dataclass
class Verification:
    """A question to the coordinator. The guard is never given twice."""

    guard: int
    epoch: int
    lowest_sequence: int
    bumps_epochs: bool
    askers: int = 1


class Verifications:
    """Those of one partition, which do not outlive the process."""

    def __init__(self) -> None:
        self.begun: dict[int, Verification] = {}
        self.open: dict[int, int] = {}
        self.last_guard = NO_GUARD

    def begin(self, batch: Batch, *, bumps_epochs: bool) -> int | None:
        """A guard for the append; None where the transaction is open here."""
        producer_id, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
        if self.open.get(producer_id) == epoch:
            return None
        begun = self.begun.get(producer_id)
        if begun is not None and begun.epoch == epoch:
            begun.askers += 1
            begun.lowest_sequence = min(begun.lowest_sequence, sequence)
            begun.bumps_epochs |= bumps_epochs
            return begun.guard
        guard = self.next_guard()
        if begun is None or begun.epoch < epoch:
            self.begun[producer_id] = Verification(guard, epoch, sequence, bumps_epochs)
        return guard

    def next_guard(self) -> int:
        self.last_guard += 1
        return self.last_guard

    def forget(self, producer_id: int, guard: int) -> None:
        """One who asked was refused."""
        begun = self.begun.get(producer_id)
        if begun is not None and begun.guard == guard:
            begun.askers -= 1
            if not begun.askers:
                del self.begun[producer_id]

    def check(self, batch: Batch, guard: int, *, is_known: bool) -> None:
        """Raises RefusedError unless the coordinator was asked since the last transaction."""
        begun = self.begun.get(batch.producer_id)
        if begun is None or begun.guard != guard:
            raise RefusedError(codes.INVALID_TXN_STATE, "nobody was asked")
        lacks_first = begun.bumps_epochs and batch.base_sequence != 0 and not is_known
        if lacks_first or batch.base_sequence > begun.lowest_sequence:
            raise RefusedError(codes.OUT_OF_ORDER_SEQUENCE_NUMBER, "an earlier batch is to come")

    def note(self, batch: Batch, transaction_version: int | None) -> None:
        """A transactional batch, or a marker, is written."""
        if batch.commit is None:
            self.begun.pop(batch.producer_id, None)
            self.open[batch.producer_id] = batch.producer_epoch
            return
        self.open.pop(batch.producer_id, None)
        begun = self.begun.get(batch.producer_id)
        is_of_next = begun is not None and begun.epoch == batch.producer_epoch
        if not (is_of_next and (transaction_version or 0) >= VERSION_OF_EPOCHS):
            self.begun.pop(batch.producer_id, None)


class ModelLog:
    """One partition. `watch` is told of each batch before it is there."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = "one"
        self.is_offline = False
        self.is_settled = True
        self.batches: list[Batch] = []
        self.flushed_offset = 0
        self.producers: dict[int, Producer] = {}
        self.verifications = Verifications()
        self.aborted: list[Aborted] = []
        self.watch: Callable[[ModelLog, Batch], None] = lambda _log, _batch: None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    @property
    def offsets(self) -> Offsets:
        return Offsets(0, self.end_offset, self.flushed_offset)

    # --- writing ----------------------------------------------------------------------------------

    def append_of_client(self, batch: Batch, guard: int) -> Batch:
        """Appends a transactional batch of a producer, or gives the same one of an earlier time.
        Raises RefusedError."""
        known = self.producers.get(batch.producer_id)
        producer = known or Producer()
        if batch.producer_epoch < producer.epoch:
            raise RefusedError(codes.INVALID_PRODUCER_EPOCH, "an older epoch")
        is_open = producer.open_offset is not None and producer.epoch == batch.producer_epoch
        duplicate = producer.duplicate(batch)
        if not is_open and duplicate is None:
            self.verifications.check(batch, guard, is_known=known is not None)
        if duplicate is not None:
            return duplicate
        self._check_sequence(producer, batch)
        return self._append(batch, None)

    def append_of_coordinator(self, batch: Batch, transaction_version: int | None) -> Batch:
        """Appends records of a coordinator, or a marker. Raises RefusedError."""
        producer = self.producers.get(batch.producer_id, Producer())
        if batch.commit is not None:
            self._check_marker(producer, batch, transaction_version)
        elif batch.producer_epoch < producer.epoch:
            raise RefusedError(codes.INVALID_PRODUCER_EPOCH, "an older epoch")
        return self._append(batch, transaction_version)

    def flush(self, end_offset: int) -> None:
        """Everything below the offset is on disk."""
        self.flushed_offset = max(self.flushed_offset, min(end_offset, self.end_offset))

    def restart(self, kept_batches: int | None) -> int:
        """The process has died: of what is not on disk so many batches are left, all of them for
        None. Gives how many are lost."""
        flushed = sum(1 for each in self.batches if each.last_offset < self.flushed_offset)
        count = len(self.batches) if kept_batches is None else flushed + kept_batches
        batches, lost = self.batches[:count], max(0, len(self.batches) - count)
        self.batches, self.aborted, self.producers = [], [], {}
        for each in batches:
            self._take(each)
        # Recovery ends with a flush.
        self.flushed_offset = self.end_offset
        self.verifications = Verifications()
        return lost

    def expire_producers(self) -> None:
        """Producers without an open transaction have been silent for long, and questions too."""
        self.producers = {
            each: producer
            for each, producer in self.producers.items()
            if producer.open_offset is not None
        }
        self.verifications.begun.clear()

    def _check_sequence(self, producer: Producer, batch: Batch) -> None:
        if producer.epoch == -1:
            return
        if producer.epoch != batch.producer_epoch or not producer.window:
            expected = 0
        else:
            expected = producer.window[-1].last_sequence + 1
        if batch.base_sequence != expected:
            why = f"sequence {batch.base_sequence} in place of {expected}"
            raise RefusedError(codes.OUT_OF_ORDER_SEQUENCE_NUMBER, why)

    def _check_marker(self, producer: Producer, batch: Batch, version: int | None) -> None:
        assert version is not None
        epoch = batch.producer_epoch
        if epoch < producer.epoch:
            raise RefusedError(codes.INVALID_PRODUCER_EPOCH, "a marker of an older epoch")
        if self.is_marker_too_old(producer, epoch, version):
            raise RefusedError(codes.INVALID_PRODUCER_EPOCH, "a marker of the open epoch")
        if batch.coordinator_epoch < producer.coordinator_epoch:
            raise RefusedError(codes.TRANSACTION_COORDINATOR_FENCED, "of an older coordinator")

    def is_marker_too_old(self, producer: Producer, epoch: int, version: int) -> bool:
        """With an epoch for each transaction, the marker's is that of the next one."""
        is_open = producer.open_offset is not None
        is_same = epoch == producer.epoch and epoch != EPOCH_MAX
        return version >= VERSION_OF_EPOCHS and is_same and is_open

    def _append(self, batch: Batch, transaction_version: int | None) -> Batch:
        base = self.end_offset
        data = base.to_bytes(8, "big") + batch.data[8:] if batch.data else b""
        batch = batch._replace(base_offset=base, last_offset=base + batch.last_offset, data=data)
        self.watch(self, batch)
        self._take(batch)
        if batch.is_transactional:
            self.verifications.note(batch, transaction_version)
        return batch

    def _take(self, batch: Batch) -> None:
        self.batches.append(batch)
        if batch.producer_id == -1:
            return
        producer = self.producers.setdefault(batch.producer_id, Producer())
        producer.enter(batch.producer_epoch)
        if batch.commit is None:
            producer.window = [*producer.window, batch][-WINDOW_BATCHES:]
            if producer.open_offset is None:
                producer.open_offset = batch.base_offset
            return
        producer.coordinator_epoch = batch.coordinator_epoch
        if producer.open_offset is not None and not batch.commit:
            first = producer.open_offset
            self.aborted.append(Aborted(batch.producer_id, first, batch.base_offset))
        producer.open_offset = None

    # --- reading ----------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *_isolation: Any) -> bytes:
        """As `_native.Log.read`, of a coordinator's log."""
        found = b""
        for each in self.batches:
            if each.last_offset < offset:
                continue
            if found and len(found) + len(each.data) > max_bytes:
                break
            found += each.data
        return found

    @property
    def last_stable_offset(self) -> int:
        """Below it everything is on disk and decided, by markers that are on disk."""
        end = self.flushed_offset
        opened: dict[int, int] = {}
        unstable = [end]
        for each in self.batches:
            if each.commit is None:
                opened.setdefault(each.producer_id, each.base_offset)
            else:
                first = opened.pop(each.producer_id, None)
                if first is not None and each.last_offset >= end:
                    unstable.append(first)
        unstable += [first for each, first in opened.items() if each != -1]
        return min(unstable)

    def read_committed(self, offset: int) -> tuple[list[tuple[int, str]], int]:
        """A consumer's records from an offset on, each with its own, and where it reads next."""
        end = self.last_stable_offset
        found = []
        for each in self.batches:
            if not offset <= each.base_offset < end or each.commit is not None:
                continue
            is_aborted = any(
                entry.producer_id == each.producer_id
                and entry.first_offset <= each.base_offset <= entry.last_offset
                for entry in self.aborted
            )
            if not is_aborted:
                found += [(each.base_offset + at, value) for at, value in enumerate(each.values)]
        return found, max(offset, end)
