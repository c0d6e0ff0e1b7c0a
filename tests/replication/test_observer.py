"""The observer under a scripted quorum: whatever is lost, late or taken back, what it has added up
is what is committed."""

from collections.abc import Callable
from copy import copy as copy_of
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite import _native
from kafkalite.errors import CorruptFileError, CorruptMessageError
from kafkalite.metadata import records
from kafkalite.metadata.fold import difference
from kafkalite.metadata.image import Image
from kafkalite.metadata.quorum import Quorum as QuorumRecords
from kafkalite.metadata.reading import Observed, Replay
from kafkalite.metadata.snapshots import snapshot_batches
from kafkalite.protocol import codes, messages
from kafkalite.replication.observer import (
    ADDED_AT_ONCE,
    ELECTION_RETRY_MS,
    TOPIC_ID,
    Observer,
    ObserverError,
)

CLUSTER = "cluster"
NODES = {1: ("one", 1), 2: ("two", 2), 3: ("three", 3)}
BATCHES_AT_ONCE = 3

Events = list[tuple[str, int]]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ("append", "commit", "elect", "snapshot", "ask", "ask", "ask", "lose", "restart")
        ),
        st.integers(0, 5),
    ),
    max_size=60,
)


class Controllers:
    """A quorum: its log, who leads it, and how far it is committed."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        """Base offset, epoch, bytes; each has one record."""
        self.epoch, self.leader_id = 1, 1
        self.high_watermark = 0
        self.snapshot: tuple[int, int, bytes] | None = None

    @property
    def end_offset(self) -> int:
        return self.batches[-1][0] + 1 if self.batches else 0

    def append(self, number: int) -> None:
        config = messages.ConfigRecord(
            resource_type=4, resource_name=f"topic-{number}", name="k", value=str(self.end_offset)
        )
        builder = _native.BatchBuilder(base_offset=self.end_offset, leader_epoch=self.epoch)
        builder.append(0, None, records.encode(config))
        self.batches.append((self.end_offset, self.epoch, builder.finish()))

    def commit(self, count: int) -> None:
        self.high_watermark = min(self.end_offset, self.high_watermark + count)

    def elect(self, lost: int) -> None:
        """Another leader, whose log lacks some of what is not committed."""
        kept = max(self.high_watermark, self.end_offset - lost)
        self.batches = self.batches[:kept]
        self.epoch, self.leader_id = self.epoch + 1, self.leader_id % 3 + 1
        self.append(0)

    def take_snapshot(self) -> None:
        if self.high_watermark:
            image = self.committed(self.high_watermark)
            written = [
                messages.ConfigRecord(resource_type=4, resource_name=name, name="k", value=of["k"])
                for (_, name), of in image.configs.items()
            ]
            content = b"".join(snapshot_batches(written, QuorumRecords(), image, 0))
            epoch = self.batches[self.high_watermark - 1][1]
            self.snapshot = self.high_watermark, epoch, content

    def committed(self, end_offset: int) -> Image:
        """The image of the records below an offset."""
        replay = Replay()
        for _, _, content in self.batches[:end_offset]:
            replay.add(_native.read_batches(content)[0])
        return replay.fold.take_delta(replay.epoch, replay.offset, replay.timestamp).image

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is none above, and where it ends."""
        found = [each for each in self.batches if each[1] <= epoch]
        return (found[-1][1], found[-1][0] + 1) if found else (0, 0)


def answer(quorum: Controllers, address: tuple[str, int], request: Any) -> Any:
    """The answer of one of the controllers."""
    if request._name == "FetchSnapshotRequest":
        return snapshot_answer(quorum, address, request)
    kind = messages.FetchResponse.FetchableTopicResponse
    asked = request.topics[0].partitions[0]
    part = kind.PartitionData(
        partition_index=0,
        high_watermark=quorum.high_watermark,
        current_leader=kind.PartitionData.LeaderIdAndEpoch(
            leader_id=quorum.leader_id, leader_epoch=quorum.epoch
        ),
        records=b"",
    )
    epoch, end_offset = quorum.end_of(asked.last_fetched_epoch)
    if NODES[quorum.leader_id] != address:
        part.error_code = codes.NOT_LEADER_OR_FOLLOWER
    elif asked.current_leader_epoch < quorum.epoch:
        part.error_code = codes.FENCED_LEADER_EPOCH
    elif asked.current_leader_epoch > quorum.epoch:
        part.error_code = codes.UNKNOWN_LEADER_EPOCH
    elif asked.fetch_offset == 0 and quorum.snapshot:
        part.snapshot_id = kind.PartitionData.SnapshotId(
            end_offset=quorum.snapshot[0], epoch=quorum.snapshot[1]
        )
    elif epoch != asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        part.diverging_epoch = kind.PartitionData.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    else:
        found = quorum.batches[asked.fetch_offset :][:BATCHES_AT_ONCE]
        part.records = b"".join(content for _, _, content in found)
    endpoints = []
    if part.error_code:
        node = messages.FetchResponse.NodeEndpoint
        host, port = NODES[quorum.leader_id]
        endpoints = [node(node_id=quorum.leader_id, host=host, port=port)]
    topic = kind(topic_id=TOPIC_ID, partitions=[part])
    response = messages.FetchResponse(responses=[topic], node_endpoints=endpoints)
    return messages.FetchResponse.decode(response.encode(18), 18)


def snapshot_answer(quorum: Controllers, address: tuple[str, int], request: Any) -> Any:
    kind = messages.FetchSnapshotResponse
    asked = request.topics[0].partitions[0]
    wanted = asked.snapshot_id.end_offset, asked.snapshot_id.epoch
    if NODES[quorum.leader_id] != address or quorum.snapshot is None:
        return kind(error_code=-1)
    if wanted != quorum.snapshot[:2]:
        return kind(error_code=-1)
    content = quorum.snapshot[2]
    chunk = content[asked.position :][: max(100, len(content) // 10)]
    part = kind.TopicSnapshot.PartitionSnapshot(
        index=0,
        size=len(content),
        position=asked.position,
        unaligned_records=chunk,
        current_leader=kind.TopicSnapshot.PartitionSnapshot.LeaderIdAndEpoch(
            leader_id=quorum.leader_id, leader_epoch=quorum.epoch
        ),
    )
    return kind(topics=[kind.TopicSnapshot(partitions=[part])])


class Copy:
    """The log on a disk that loses nothing."""

    def __init__(self) -> None:
        self.snapshot: tuple[int, int, bytes] | None = None
        self.batches: list[_native.RecordBatch] = []
        self.epoch = 0

    def append(self, written: bytes, leader_epoch: int) -> None:
        assert leader_epoch == self.epoch
        self.batches += _native.read_batches(written)

    def truncate_to(self, end_offset: int) -> None:
        assert self.batches[-1].last_offset >= end_offset
        self.batches = [each for each in self.batches if each.last_offset < end_offset]

    def start_at(self, content: bytes, end_offset: int, epoch: int) -> None:
        self.snapshot, self.batches = (end_offset, epoch, content), []

    def follow(self, _leader_id: int, leader_epoch: int) -> None:
        assert leader_epoch >= self.epoch
        self.epoch = leader_epoch

    def observed(self) -> Observed:
        """What a start finds there."""
        replay = Replay()
        if self.snapshot is not None:
            end_offset, epoch, content = self.snapshot
            for batch in _native.read_batches(content):
                replay.add(batch, of_snapshot=True)
            replay.offset, replay.epoch = end_offset - 1, epoch
        return Observed(replay, list(self.batches), self.epoch)


def new_observer(copy: Copy) -> Observer:
    return Observer(9, CLUSTER, list(NODES.values()), copy, copy.observed())


class Scene:
    """An observer, the quorum, and the controllers that do not know yet who leads it now."""

    def __init__(self) -> None:
        self.quorum = Controllers()
        self.stale: Controllers | None = None
        self.copy = Copy()
        self.observer = new_observer(self.copy)

    def play(self, event: str, number: int) -> None:
        quorum = self.quorum
        match event:
            case "append":
                quorum.append(number)
            case "commit":
                quorum.commit(number)
            case "elect":
                self.stale = copy_of(quorum)
                self.stale.batches = list(quorum.batches)
                quorum.elect(number)
            case "snapshot":
                quorum.take_snapshot()
            case "lose":
                self.observer.ask()
                self.observer.on_failure()
            case "restart":
                before, epoch = self.observer.end_offset, self.observer.leader.epoch
                self.observer = new_observer(self.copy)
                assert self.observer.end_offset == before
                assert self.observer.leader.epoch == epoch
                assert not self.observer.is_caught_up
            case _:
                self.ask(is_stale=number == 0)

    def ask(self, *, is_stale: bool = False) -> None:
        asked = self.observer.ask()
        told = self.stale if is_stale and self.stale else self.quorum
        before = self.observer.committed_end
        assert self.observer.on_answer(answer(told, asked.address, asked.message)) >= 0
        assert self.observer.committed_end >= before
        assert self.observer.high_watermark <= self.quorum.high_watermark

    def check(self) -> None:
        """What is in force is what is committed."""
        replay = self.observer.replay
        assert self.observer.committed_end <= self.quorum.high_watermark
        image = replay.fold.take_delta(replay.epoch, replay.offset, replay.timestamp).image
        expected = self.quorum.committed(self.observer.committed_end)
        assert image.configs == expected.configs
        assert image.last_offset == expected.last_offset


@given(EVENTS)
def test_what_is_added_up_is_what_is_committed(events: Events) -> None:
    scene = Scene()
    for event, number in events:
        scene.play(event, number)
        scene.check()
    scene.quorum.commit(1_000)
    for _ in range(3 * len(scene.quorum.batches) + 200):
        scene.ask()
    scene.check()
    assert scene.observer.is_caught_up
    assert scene.observer.committed_end == scene.quorum.end_offset
    assert scene.observer.leader.id == scene.quorum.leader_id
    assert scene.observer.leader.address == NODES[scene.quorum.leader_id]


def caught_up() -> Scene:
    scene = Scene()
    for number in range(4):
        scene.quorum.append(number)
    scene.quorum.commit(4)
    for _ in range(9):
        scene.ask()
    assert scene.observer.committed_end == 4
    return scene


def test_nothing_is_in_force_before_a_high_watermark() -> None:
    scene = Scene()
    scene.quorum.append(0)
    for _ in range(9):
        scene.ask()
    assert (scene.observer.end_offset, scene.observer.committed_end) == (1, 0)


def refused(change: Callable[[Any], object]) -> None:
    """An answer that the observer does not take."""
    scene = caught_up()
    asked = scene.observer.ask()
    told = answer(scene.quorum, asked.address, asked.message)
    change(told)
    with pytest.raises((ObserverError, CorruptFileError)):
        scene.observer.on_answer(told)


def test_a_foreign_cluster_is_refused() -> None:
    refused(lambda told: setattr(told, "error_code", codes.INCONSISTENT_CLUSTER_ID))


def test_two_leaders_in_one_epoch_are_refused() -> None:
    def change(told: Any) -> None:
        told.responses[0].partitions[0].current_leader.leader_id = 3

    refused(change)


def test_committed_records_are_not_taken_back() -> None:
    def change(told: Any) -> None:
        part = told.responses[0].partitions[0]
        part.diverging_epoch = type(part).EpochEndOffset(epoch=1, end_offset=2)

    refused(change)


def test_records_of_an_epoch_that_was_not_elected_are_refused() -> None:
    def change(told: Any) -> None:
        builder = _native.BatchBuilder(base_offset=4, leader_epoch=7)
        builder.append(0, None, records.NO_OP)
        told.responses[0].partitions[0].records = builder.finish()

    refused(change)


def test_records_that_do_not_follow_are_refused() -> None:
    def change(told: Any) -> None:
        builder = _native.BatchBuilder(base_offset=6, leader_epoch=1)
        builder.append(0, None, records.NO_OP)
        told.responses[0].partitions[0].records = builder.finish()

    refused(change)


def test_a_large_snapshot_is_added_up_some_records_at_a_time() -> None:
    """It was replayed in one turn of the control thread, and heartbeats waited for that."""
    scene = Scene()
    count = 3 * ADDED_AT_ONCE
    written = [
        messages.ConfigRecord(resource_type=4, resource_name=f"t-{each}", name="k", value="v")
        for each in range(count)
    ]
    scene.quorum.append(0)
    scene.quorum.commit(1)
    content = b"".join(snapshot_batches(written, QuorumRecords(), scene.quorum.committed(1), 0))
    scene.quorum.snapshot = 1, 1, content
    observer = scene.observer
    while not observer.has_more:
        scene.ask()
    steps = 0
    while observer.has_more:
        assert (observer.snapshots_loaded, observer.committed_end) == (0, 0)
        observer.add_up()
        steps += 1
    assert steps >= count // ADDED_AT_ONCE - 1
    assert (observer.snapshots_loaded, observer.committed_end) == (1, 1)
    replay = observer.replay
    image = replay.fold.take_delta(replay.epoch, replay.offset, replay.timestamp).image
    assert len(image.configs) == count


def test_a_snapshot_that_has_no_end_is_refused() -> None:
    scene = caught_up()
    scene.quorum.take_snapshot()
    assert scene.quorum.snapshot is not None
    end, epoch, content = scene.quorum.snapshot
    size = sum(each.size_bytes for each in _native.read_batches(content)[:-1])
    scene.quorum.snapshot = end, epoch, content[:size]
    scene.observer = new_observer(Copy())
    with pytest.raises(CorruptFileError, match="has no end"):
        for _ in range(99):
            scene.ask()


def test_a_snapshot_of_which_nothing_comes_is_let_alone_for_a_while() -> None:
    """It was asked for again at once, and for ever."""
    scene = caught_up()
    scene.quorum.take_snapshot()
    observer = scene.observer = new_observer(Copy())
    while observer.ask().message._name != "FetchSnapshotRequest":
        scene.ask()
    kind = messages.FetchSnapshotResponse
    part = kind.TopicSnapshot.PartitionSnapshot(size=1_000, unaligned_records=b"")
    part.current_leader.leader_id = scene.quorum.leader_id
    part.current_leader.leader_epoch = scene.quorum.epoch
    answer = kind(topics=[kind.TopicSnapshot(partitions=[part])])
    assert observer.on_answer(answer) == ELECTION_RETRY_MS
    assert observer.ask().message._name == "FetchRequest"


def test_a_snapshot_comes_into_force_as_a_difference() -> None:
    scene = caught_up()
    before = scene.quorum.committed(2)
    image = scene.quorum.committed(4)
    delta = difference(before, image)
    assert delta.configs == {(4, "topic-2"), (4, "topic-3")}
    assert not delta.changed_topics
    assert not delta.are_brokers_changed
    assert difference(image, before).configs == delta.configs


def test_damaged_records_are_asked_for_again() -> None:
    scene = caught_up()
    scene.quorum.append(4)
    scene.quorum.commit(1)
    asked = scene.observer.ask()
    told = answer(scene.quorum, asked.address, asked.message)
    part = told.responses[0].partitions[0]
    part.records = part.records[:-1] + bytes([part.records[-1] ^ 1])
    with pytest.raises(CorruptMessageError):
        scene.observer.on_answer(told)
    assert scene.observer.end_offset == 4
    assert scene.observer.on_failure() > 0
    for _ in range(9):
        scene.ask()
    assert scene.observer.committed_end == 5


def test_controllers_of_an_epoch_that_is_over_are_not_followed() -> None:
    scene = caught_up()
    scene.copy.epoch = 5
    scene.observer = new_observer(scene.copy)
    for _ in range(9):
        scene.ask()
    assert not scene.observer.is_caught_up
    assert scene.observer.refused_epoch == 1
    while scene.quorum.epoch < 6:
        scene.quorum.elect(0)
    scene.quorum.commit(9)
    for _ in range(9):
        scene.ask()
    assert scene.observer.is_caught_up
    assert scene.observer.refused_epoch == -1


def test_a_large_change_is_added_up_in_steps_and_holds_as_a_whole() -> None:
    scene = caught_up()
    builder = _native.BatchBuilder(base_offset=4, leader_epoch=1)
    count = 2 * ADDED_AT_ONCE + 1
    for number in range(count):
        config = messages.ConfigRecord(
            resource_type=4, resource_name=f"many-{number}", name="k", value="v"
        )
        builder.append(0, None, records.encode(config))
    asked = scene.observer.ask()
    told = answer(scene.quorum, asked.address, asked.message)
    part = told.responses[0].partitions[0]
    part.records, part.high_watermark = builder.finish(), 4 + count
    scene.observer.on_answer(told)
    steps = 1
    while scene.observer.has_more:
        assert not scene.observer.is_caught_up
        scene.observer.add_up()
        steps += 1
    assert steps == 3
    assert scene.observer.is_caught_up
    assert scene.observer.committed_end == 4 + count
    replay = scene.observer.replay
    image = replay.fold.take_delta(replay.epoch, replay.offset, replay.timestamp).image
    assert len(image.configs) == 4 + count
