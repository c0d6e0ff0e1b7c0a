"""The groups of one partition of `__consumer_offsets`: loaded from it, and written to it.

    request ──► group or offsets ──► records ──► one batch at the end of the turn ──► append, flush
                                                                                           │
    answer  ◄── state that others may see ◄── in the order of the log ◄──── committed ◄────┘

What a write changes is seen, and its request answered, once it is on disk; several writes of a turn
are one batch, and all that come while a batch is under way are the next. The append is the log
directory's own affair (`rust/src/net/control/log_calls.rs`): while that does not answer, its groups
wait, and nobody else, and what they hold counts as memory of requests. When that is half
used, further ones are refused (`is_held_up`). A write that fails is refused, and the next one is
tried: there may be room again. A partition whose log directory has failed answers NOT_COORDINATOR
from then on: whoever waits is told.

Loading goes in small pieces between other work (`load_some`), newest state wins, tombstones erase;
requests for its groups get COORDINATOR_LOAD_IN_PROGRESS meanwhile.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kafkalite import _native
from kafkalite.errors import KafkaliteError
from kafkalite.groups import records
from kafkalite.groups.classic import EMPTY, ClassicGroup
from kafkalite.groups.events import Effect, GroupRecord, Limits, Moment, Note, Reply, Store
from kafkalite.groups.offsets import Commit, Offsets
from kafkalite.metadata.image import OFFSETS_TOPIC
from kafkalite.protocol import codes
from kafkalite.timers import Timer, Timers

LOADING: Final = "loading"
ACTIVE: Final = "active"
FAILED: Final = "failed"

LOAD_PIECE_BYTES: Final = 512 * 1024
"""What is read of a log before other work has its turn."""
SETTLE_COUNT: Final = 2_000
"""Keys that are looked into before other work has its turn."""
BATCH_BYTES_MAX: Final = 512 * 1024
"""Writes beyond so many bytes are left to the next batch."""
WRITE_BYTES: Final = 512
RECORD_BYTES: Final = 640
"""What a write that waits takes in memory, and each of its records beside its key and value: they
are there as they were asked for, as they will be seen, and as the answer."""

Then = Callable[[int, int], None]
"""Called with an error code for clients and the offset of a write's first record."""


class Lines(Protocol):
    """The broker's log (`kafkalite.context.Log`)."""

    def info(self, sentence: str) -> None: ...
    def error(self, sentence: str) -> None: ...


class Host(Protocol):
    """What the broker offers to the coordinator (`kafkalite.context.Context`)."""

    @property
    def plane(self) -> _native.BrokerPlane: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def log(self) -> Lines: ...
    def now_ms(self) -> int: ...
    def wall_ms(self) -> int: ...
    def append(
        self,
        topic: str,
        partition: int,
        records: bytes,
        callback: Callable[[KafkaliteError | None, int], None],
    ) -> None: ...


class _Write(NamedTuple):
    """Records that stand or fall together; none at all waits for those before it."""

    records: list[records.Record]
    size_bytes: int
    memory_bytes: int
    """What it takes while it waits."""
    then: Then


class Shard:
    """One partition. Used by the control thread only."""

    def __init__(self, host: Host, partition: int, limits: Limits, codec: str = "none") -> None:
        self.partition = partition
        self.state: str = LOADING
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self.newer_groups: dict[str, str] = {}
        """Groups of types that are not served here, with their type."""
        self._host = host
        self._limits = limits
        self._codec = codec
        self._timers: dict[str, tuple[int, Timer]] = {}
        self._buffer: deque[_Write] = deque()
        """Writes for the batches after the one that is under way."""
        self._single_count = 0
        """So many of them go alone: a batch of them was refused."""
        self._under_way: list[_Write] = []
        self._is_end_of_turn_due = False
        self._last_failure = ""
        """Why the last write failed, so that the log says it once and not for each."""
        self._commits: dict[int, tuple[str, list[Commit]]] = {}
        """By a number, those that are not on disk yet: the group, and what it commits."""
        self._last_commit = 0
        self._loader: _Loader | None = None
        self._deleted_topics: list[str] = []
        """While it loads: topics whose offsets are to be forgotten afterwards."""

    def moment(self) -> Moment:
        return Moment(self._host.now_ms(), self._host.wall_ms())

    def refusal(self) -> int:
        """Why no group of the partition can be served at present; NONE if they can."""
        if self.state == LOADING:
            return codes.COORDINATOR_LOAD_IN_PROGRESS
        return codes.NOT_COORDINATOR if self.state == FAILED else codes.NONE

    @property
    def is_held_up(self) -> bool:
        """Writes wait for a log directory that does not answer, and are so many that no further
        ones may wait with them."""
        if not self._buffer and not self._under_way:
            return False
        held_up: bool = self._host.plane.logs.is_held_up(OFFSETS_TOPIC, self.partition)
        return held_up

    # --- loading ----------------------------------------------------------------------------------

    def load_some(self) -> None:
        """Reads the next piece of the log; the state tells whether there is more."""
        log = self._host.plane.logs.find(OFFSETS_TOPIC, self.partition)
        if log is None:
            self.state = FAILED
            return
        offsets = log.offsets
        if self._loader is None:
            self._loader = _Loader(self.offsets, offsets.log_start_offset)
        loader = self._loader
        try:
            if loader.next_offset < offsets.log_end_offset:
                batches = _native.read_batches(log.read(loader.next_offset, LOAD_PIECE_BYTES))
                loader.replay(batches)
                if not batches:
                    # The cleaner has taken whatever was there up to the end.
                    loader.next_offset = offsets.log_end_offset
                return
        except KafkaliteError as error:
            self._host.log.error(f"{OFFSETS_TOPIC}-{self.partition} cannot be loaded: {error}")
            self.state = FAILED
            return
        if loader.settle(SETTLE_COUNT):
            for problem in loader.problems:
                self._host.log.error(f"{OFFSETS_TOPIC}-{self.partition}: {problem}")
            self._finish_loading(loader)

    def _finish_loading(self, loader: "_Loader") -> None:
        moment = self.moment()
        self.newer_groups = loader.newer_groups
        for group_id, record in loader.group_records.items():
            group = ClassicGroup.from_record(group_id, record, self._limits, moment)
            self.groups[group_id] = group
        for group_id in self.offsets.group_ids():
            if group_id not in self.groups and group_id not in self.newer_groups:
                self.groups[group_id] = ClassicGroup(group_id, self._limits, moment.wall_ms)
        self.state = ACTIVE
        self._loader = None
        for group in list(self.groups.values()):
            self.run(group, group.on_loaded(moment))
        deleted, self._deleted_topics = self._deleted_topics, []
        for topic in deleted:
            self.forget_topic(topic)
        if self.groups:
            count = len(self.groups)
            self._host.log.info(f"{OFFSETS_TOPIC}-{self.partition}: loaded {count} group(s)")

    # --- groups -----------------------------------------------------------------------------------

    def get_or_make(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = ClassicGroup(group_id, self._limits, self._host.wall_ms())
            self.groups[group_id] = group
        return group

    def run(self, group: ClassicGroup, effects: list[Effect]) -> bool:
        """Has the effects of an event happen; whether the group is to be written."""
        is_stored = False
        for effect in effects:
            if isinstance(effect, Reply):
                effect.send()
            elif isinstance(effect, Store):
                is_stored = True
                self._store(group, effect)
            elif isinstance(effect, Note):
                self._host.log.info(effect.sentence)
        self._arm(group)
        return is_stored

    def store_new(self, group: ClassicGroup) -> None:
        """Writes that a group exists that has no generation yet."""
        record = GroupRecord(
            protocol_type="",
            generation_id=0,
            protocol_name=None,
            leader=None,
            state_timestamp_ms=group.state_timestamp_ms,
            members=(),
        )
        self.write([records.group_record(group.group_id, record)], _nothing)

    def _store(self, group: ClassicGroup, effect: Store) -> None:
        def stored(error_code: int, _base_offset: int) -> None:
            if effect.what is not None:
                self.run(group, group.on_stored(effect.what, error_code, self.moment()))

        self.write([records.group_record(group.group_id, effect.record)], stored)

    def commit(self, group_id: str, committed: list[Commit], then: Callable[[int], None]) -> None:
        """Writes offsets."""
        number = self._last_commit = self._last_commit + 1
        self._commits[number] = (group_id, committed)

        def stored(error_code: int, base_offset: int) -> None:
            del self._commits[number]
            if error_code == codes.NONE:
                self.offsets.put_all(group_id, committed, base_offset)
            then(error_code)

        self.write([records.offset_record(group_id, *each) for each in committed], stored)

    def partitions_of(self, group_id: str) -> list[tuple[str, int]]:
        """Topic and partition of every offset of a group, those being written included."""
        found = dict.fromkeys(self.offsets.partitions_of(group_id))
        found.update(dict.fromkeys(self._being_written().get(group_id, ())))
        return list(found)

    def _being_written(self) -> dict[str, dict[tuple[str, int], None]]:
        """Group -> topic and partition of each offset that is not on disk yet."""
        found: dict[str, dict[tuple[str, int], None]] = {}
        for group_id, committed in self._commits.values():
            partitions = found.setdefault(group_id, {})
            for topic, partition, _ in committed:
                partitions[topic, partition] = None
        return found

    def delete_group(self, group: ClassicGroup, then: Callable[[int], None]) -> None:
        """Ends a group that has no members, and forgets its offsets. It is gone at once for those
        who come after; if that cannot be written it is back."""
        group_id = group.group_id
        partitions = self.partitions_of(group_id)
        del self.groups[group_id]
        self._disarm(group_id)

        def stored(error_code: int, _base_offset: int) -> None:
            if error_code == codes.NONE:
                self._forget(group_id, partitions)
            elif self.state == ACTIVE:
                self.groups.setdefault(group_id, group)
            then(error_code)

        self.write(
            [
                *(records.offset_record(group_id, *each, None) for each in partitions),
                records.group_record(group_id, None),
            ],
            stored,
        )

    def delete_offsets(
        self, group_id: str, partitions: list[tuple[str, int]], then: Callable[[int], None]
    ) -> None:
        """Forgets offsets of a group."""

        def stored(error_code: int, _base_offset: int) -> None:
            if error_code == codes.NONE:
                self._forget(group_id, partitions)
            then(error_code)

        self.write([records.offset_record(group_id, *each, None) for each in partitions], stored)

    def expire(self, retention_ms: int) -> None:
        """Forgets offsets whose time is over, and groups that have neither members nor offsets."""
        if self.state != ACTIVE:
            return
        wall_ms = self._host.wall_ms()
        being_written = self._being_written()
        for group in list(self.groups.values()):
            kept = being_written.get(group.group_id, {})
            expired = [
                each
                for each in self.offsets.expired(group, wall_ms, retention_ms)
                if each not in kept
            ]
            known = self.offsets.partitions_of(group.group_id)
            left = len({**dict.fromkeys(known), **kept}) - len(expired)
            if left == 0 and group.state == EMPTY and not group.members.pending:
                self.delete_group(group, _ignore)
            elif expired:
                self.delete_offsets(group.group_id, expired, _ignore)

    def forget_topic(self, topic: str) -> None:
        """Forgets every offset in a topic that was deleted; while it loads, afterwards."""
        if self.state == LOADING:
            self._deleted_topics.append(topic)
        if self.state != ACTIVE:
            return
        groups = dict.fromkeys(self.offsets.groups_reading(topic))
        for group_id, being_written in self._being_written().items():
            if any(each[0] == topic for each in being_written):
                groups[group_id] = None
        for group_id in groups:
            partitions = [each for each in self.partitions_of(group_id) if each[0] == topic]
            self.delete_offsets(group_id, partitions, _ignore)

    def _forget(self, group_id: str, partitions: list[tuple[str, int]]) -> None:
        for topic, partition in partitions:
            self.offsets.remove(group_id, topic, partition)

    def unload(self) -> None:
        """Answers whoever waits for a group of this partition, which is served no longer."""
        if self.state == LOADING:
            self.state = FAILED
        if self.state == FAILED:
            return
        self.state = FAILED
        for group in list(self.groups.values()):
            self._disarm(group.group_id)
            for effect in group.unload():
                if isinstance(effect, Reply):
                    effect.send()
        self.groups.clear()

    # --- time -------------------------------------------------------------------------------------

    def _arm(self, group: ClassicGroup) -> None:
        """Sees to it that the group hears of time in time; a timer that is early is left alone."""
        wake_ms = group.next_wake_ms()
        armed = self._timers.get(group.group_id)
        if armed is None and wake_ms is None:
            return
        if armed is not None and wake_ms is not None and armed[0] <= wake_ms:
            return
        self._disarm(group.group_id)
        if wake_ms is not None and self.groups.get(group.group_id) is group:
            timer = self._host.timers.call_at(wake_ms, lambda: self._on_time(group))
            self._timers[group.group_id] = (wake_ms, timer)

    def _disarm(self, group_id: str) -> None:
        armed = self._timers.pop(group_id, None)
        if armed is not None:
            armed[1].cancel()

    def _on_time(self, group: ClassicGroup) -> None:
        self._timers.pop(group.group_id, None)
        self.run(group, group.on_time(self.moment()))

    def touch(self, group: ClassicGroup) -> None:
        """A heartbeat or commit has come. It mostly moves a deadline away, and brings it near where
        a static member has come back with a shorter session."""
        self._arm(group)

    # --- writing ----------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        """Whether something is not on disk yet."""
        return bool(self._buffer or self._under_way)

    def write(self, added: list[records.Record], then: Then) -> None:
        """Appends records at the end of this turn; `then` is called once they are on disk, in the
        order of the calls, or with the reason why they are not. Never from within this call."""
        size_bytes = 0
        for key, value in added:
            size_bytes += len(key) + len(value or b"") + 16
        memory_bytes = WRITE_BYTES + RECORD_BYTES * len(added) + size_bytes
        self._host.plane.requests.hold(memory_bytes)
        self._buffer.append(_Write(added, size_bytes, memory_bytes, then))
        self._append_at_end_of_turn()

    def _append_at_end_of_turn(self) -> None:
        if not self._is_end_of_turn_due:
            self._is_end_of_turn_due = True
            self._host.timers.call_at(self._host.now_ms(), self._end_turn)

    def _end_turn(self) -> None:
        self._is_end_of_turn_due = False
        while self._buffer and not self._under_way:
            self._append(self._take_next())

    def _take_next(self) -> list[_Write]:
        """The writes of the next batch."""
        writes = [self._buffer.popleft()]
        if self._single_count:
            self._single_count -= 1
            return writes
        size_bytes = writes[0].size_bytes
        while self._buffer:
            size_bytes += self._buffer[0].size_bytes
            if size_bytes > BATCH_BYTES_MAX:
                break
            writes.append(self._buffer.popleft())
        return writes

    def _append(self, writes: list[_Write]) -> None:
        """Has one batch of them appended. Nothing is under way before."""
        if self.state == FAILED:
            self._end(writes, codes.NOT_COORDINATOR, -1)
            return
        if not any(each.records for each in writes):
            # All that was before them is on disk.
            self._end(writes, codes.NONE, -1)
            return
        wall_ms = self._host.wall_ms()
        builder = _native.BatchBuilder(self._codec)
        for write in writes:
            builder.extend(wall_ms, write.records)
        self._under_way = writes
        try:
            batch = builder.finish()
            self._host.append(OFFSETS_TOPIC, self.partition, batch, self._on_appended)
        except KafkaliteError as error:
            self._on_appended(error, -1)

    def _on_appended(self, error: KafkaliteError | None, offset: int) -> None:
        """The batch under way is on disk, or will never be."""
        writes, self._under_way = self._under_way, []
        if self._buffer:
            self._append_at_end_of_turn()
        if error is not None:
            self._on_append_failed(writes, error)
            return
        self._last_failure = ""
        self._end(writes, codes.NONE, offset)

    def _end(self, writes: list[_Write], error_code: int, offset: int) -> None:
        """Tells who wrote them what became of that; `offset` of the first record, or -1."""
        plane = self._host.plane
        plane.requests.hold(-sum(each.memory_bytes for each in writes))
        plane.requests.gather_answers()
        for write in writes:
            write.then(error_code, offset)
            offset += len(write.records) if offset >= 0 else 0
        plane.requests.send_answers()

    def _on_append_failed(self, writes: list[_Write], error: KafkaliteError) -> None:
        code = _client_code(error.kafka_code)
        if self._is_offline():
            self._host.log.error(f"{OFFSETS_TOPIC}-{self.partition} is lost: {error}")
            self.unload()
        elif len(writes) > 1:
            # One batch each, so that one that is too large does not take others with it.
            self._buffer.extendleft(reversed(writes))
            self._single_count += len(writes)
            self._append_at_end_of_turn()
            return
        elif str(error) != self._last_failure:
            self._last_failure = str(error)
            self._host.log.error(f"{OFFSETS_TOPIC}-{self.partition} takes no record: {error}")
        self._end(writes, code, -1)

    def _is_offline(self) -> bool:
        """The log's directory has failed, and takes nothing until the next start."""
        log = self._host.plane.logs.find(OFFSETS_TOPIC, self.partition)
        return log is not None and log.is_offline


class _Loader:
    """Replays the records of a partition; what is left is what counts.

    Of a key only the newest record is looked into, after the last one was read: a log that has not
    been compacted for long loads at the speed of reading. Transactions and their markers are taken
    in order with what came before them.
    """

    def __init__(self, offsets: Offsets, next_offset: int) -> None:
        self.next_offset = next_offset
        self.group_records: dict[str, GroupRecord] = {}
        self.newer_groups: dict[str, str] = {}
        self.problems: list[str] = []
        """A sentence for each record that could not be read."""
        self._offsets = offsets
        self._newest: dict[bytes | None, tuple[bytes | None, int]] = {}
        """Key -> value and offset of its newest record, in the order of the log."""
        self._settling: list[tuple[bytes | None, tuple[bytes | None, int]]] = []
        """What is being looked into, the last first."""

    def replay(self, batches: list[_native.RecordBatch]) -> None:
        """Takes whole batches."""
        for batch in batches:
            if batch.last_offset < self.next_offset:
                continue
            if batch.is_control:
                self.settle()
                self._end_transaction(batch)
            elif batch.is_transactional:
                self.settle()
                for offset, _, key, value, _ in batch.records:
                    self._take(key, value, offset, batch.producer_id)
            else:
                newest = self._newest
                for offset, _, key, value, _ in batch.records:
                    newest.pop(key, None)
                    newest[key] = (value, offset)
            self.next_offset = batch.last_offset + 1

    def settle(self, count_max: int | None = None) -> bool:
        """Looks into the newest records of keys, at most so many; whether none is left."""
        if self._newest:
            self._settling = list(reversed(self._newest.items()))
            self._newest = {}
        settling = self._settling
        count = len(settling) if count_max is None else min(count_max, len(settling))
        for _ in range(count):
            key, (value, offset) = settling.pop()
            self._take(key, value, offset, -1)
        return not settling

    def _take(self, key: bytes | None, value: bytes | None, offset: int, producer_id: int) -> None:
        try:
            self._apply(records.parse(key, value, offset), producer_id)
        except KafkaliteError as error:
            self.problems.append(f"the record at offset {offset} is not taken: {error}")

    def _end_transaction(self, batch: _native.RecordBatch) -> None:
        """The marker's key: version and kind, 0 abort, 1 commit, two bytes each."""
        for _, _, key, _, _ in batch.records:
            if key is not None and key[2:4] in (b"\0\0", b"\0\1"):
                self._offsets.end_transaction(batch.producer_id, commit=key[3] == 1)

    def _apply(self, change: records.Change | None, producer_id: int) -> None:
        if isinstance(change, records.OffsetCommit):
            group_id, topic, partition, offset = change
            if offset is None:
                self._offsets.remove(group_id, topic, partition)
            elif producer_id != -1:
                self._offsets.put_open(producer_id, group_id, topic, partition, offset)
            else:
                self._offsets.put(group_id, topic, partition, offset)
        elif isinstance(change, records.GroupChange):
            if change.record is None:
                self.group_records.pop(change.group_id, None)
            else:
                self.group_records[change.group_id] = change.record
        elif isinstance(change, records.NewerGroup):
            if change.exists:
                self.newer_groups[change.group_id] = change.group_type
            else:
                self.newer_groups.pop(change.group_id, None)


def _client_code(kafka_code: int) -> int:
    """What a client is told of a write that failed
    (`GroupMetadataManager.appendGroupMetadataErrorToResponseError`). Kafka hands any other code on.
    What else can fail is a batch that was made wrongly here, and a client would take its code for
    one about the request: so it is UNKNOWN_SERVER_ERROR, as for a batch that is too large."""
    match kafka_code:
        case codes.UNKNOWN_TOPIC_OR_PARTITION | codes.NOT_ENOUGH_REPLICAS | codes.REQUEST_TIMED_OUT:
            return codes.COORDINATOR_NOT_AVAILABLE
        case codes.NOT_LEADER_OR_FOLLOWER | codes.KAFKA_STORAGE_ERROR:
            return codes.NOT_COORDINATOR
        case _:
            return codes.UNKNOWN_SERVER_ERROR


def _nothing(_error_code: int, _base_offset: int) -> None:
    """The writer has nothing to do afterwards."""


def _ignore(_error_code: int) -> None:
    """A failed deletion is tried again the next time."""
