"""The metadata's log and snapshots on disk: whatever is cut off, the rest adds up."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite import _native
from kafkalite.errors import LogDirRefusedError, StorageError
from kafkalite.metadata import reading, records, snapshots, store
from kafkalite.metadata.image import Image
from kafkalite.metadata.image_records import snapshot_records
from kafkalite.protocol import messages
from metadata.test_image import folded, histories

NODE = 1
NOW_MS = 1_700_000_000_000


class World:
    """A metadata directory without a broker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []

    def open(self, limits: store.MetadataLogLimits = store.KAFKAS_LIMITS) -> store.MetadataLog:
        self.claimed = _native.ClaimedDirectories(
            node_id=NODE,
            cluster_id="MkU3OEVBNTcwNTJENDM2Qk",
            log_dirs=[str(self.path)],
            metadata_dir=str(self.path),
            recovery_threads=1,
            flush_threads=1,
            open_segments=64,
        )
        found = reading.read(self.path)
        configs = {"segment.bytes": str(limits.segment_bytes), "file.delete.delay.ms": "0"}
        log, self.repairs = self.claimed.open_metadata_log(configs)
        directory_id = self.claimed.directories[0][1]
        return store.MetadataLog(
            found, log, NODE, directory_id, NOW_MS, limits, warn=self.warnings.append
        )

    def abandon(self) -> None:
        """As a kill: the lock is let go and nothing else."""
        del self.claimed

    @property
    def folder(self) -> Path:
        return self.path / snapshots.FOLDER

    @property
    def log_file(self) -> Path:
        return self.folder / "00000000000000000000.log"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "data")


def same(image: Image) -> Image:
    """Without what says when it was."""
    return image._replace(last_offset=0, last_timestamp=0, leader_epoch=0)


def topic(number: int, partitions: int = 1) -> list[Any]:
    topic_id = number.to_bytes(16, "big")
    return [
        messages.TopicRecord(name=f"topic-{number}", topic_id=topic_id),
        *(
            messages.PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[NODE],
                isr=[NODE],
                leader=NODE,
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes([9]) * 16],
            )
            for index in range(partitions)
        ),
    ]


def test_what_was_appended_is_there_after_a_kill(world: World) -> None:
    log = world.open()
    log.append(topic(1, 3), NOW_MS)
    log.append(topic(2), NOW_MS)
    image = log.image
    world.abandon()
    del log
    assert same(reading.read(world.path).image) == same(image)


def test_each_start_leads_in_the_next_epoch_and_says_so_in_quorum_state(world: World) -> None:
    for epoch in (1, 2, 3):
        log = world.open()
        assert log.leader_epoch == epoch
        assert f'"leaderEpoch":{epoch}' in (world.folder / "quorum-state").read_text()
        log.append(topic(epoch), NOW_MS)
        if epoch == 2:
            log.close(NOW_MS)
        world.abandon()
        del log
    batches = _native.read_batches(world.log_file.read_bytes())
    assert [batch.leader_epoch for batch in batches] == [1, 1, 2, 2, 3, 3]
    assert [batch.is_control for batch in batches] == [True, False] * 3


@given(data=st.data())
@settings(
    max_examples=settings.default.max_examples // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_a_torn_tail_costs_the_torn_batch_and_nothing_else(tmp_path: Path, data: Any) -> None:
    """Whatever byte the file ends at, or has wrong: what is before that batch adds up, and the next
    start cuts off the rest and goes on."""
    path = tmp_path / "torn"
    shutil.rmtree(path, ignore_errors=True)
    world = World(path)
    log = world.open()
    for number in range(1, 5):
        log.append(topic(number), NOW_MS)
    world.abandon()
    del log
    content = bytearray(world.log_file.read_bytes())
    ends = []
    for batch in _native.read_batches(bytes(content)):
        ends.append((ends[-1] if ends else 0) + batch.size_bytes)
    at = data.draw(st.integers(ends[0], len(content) - 1))
    if data.draw(st.booleans()):
        del content[at:]
    else:
        # Base offset, length, epoch and magic are outside of the CRC: neighbours judge them.
        batch_start = max(end for end in ends if end <= at)
        if at - batch_start < 17:
            at = batch_start + 17
        content[at] ^= 1
    world.log_file.write_bytes(content)
    whole = sum(end <= at for end in ends)
    found = reading.read(world.path)
    assert len(found.image.topics) == whole - 1
    log = world.open()
    assert same(log.image) == same(found.image)
    log.append(topic(9), NOW_MS)
    world.abandon()
    del log
    assert set(reading.read(world.path).image.topics) == {
        *(f"topic-{number}" for number in range(1, whole)),
        "topic-9",
    }


@given(written=histories(), cut=st.integers(0, 40))
@settings(
    max_examples=settings.default.max_examples // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_snapshot_and_tail_are_the_whole_log(tmp_path: Path, written: list[Any], cut: int) -> None:
    path = tmp_path / "snapshots"
    shutil.rmtree(path, ignore_errors=True)
    world = World(path)
    log = world.open()
    log.append(written[:cut], NOW_MS)
    log.write_snapshot(NOW_MS)
    log.append(written[cut:], NOW_MS)
    world.abandon()
    del log
    found = reading.read(world.path)
    assert found.snapshot_end_offset == 1 + len(written[:cut])
    assert same(found.image) == same(folded(written))
    snapshot = next(iter(world.folder.glob("*.checkpoint")))
    snapshot.unlink()
    assert same(reading.read(world.path).image) == same(found.image)


def test_a_snapshot_that_was_cut_off_is_passed_over(world: World) -> None:
    log = world.open()
    log.append(topic(1), NOW_MS)
    log.write_snapshot(NOW_MS)
    image = log.image
    world.abandon()
    del log
    snapshot = next(iter(world.folder.glob("*.checkpoint")))
    snapshot.write_bytes(snapshot.read_bytes()[:-20])
    assert same(reading.read(world.path).image) == same(image)


def test_two_snapshots_are_kept_and_a_clean_stop_with_little_to_read_writes_none(
    world: World,
) -> None:
    log = world.open()
    for number in range(1, 5):
        log.append(topic(number), NOW_MS)
        log.write_snapshot(NOW_MS)
    names = sorted(path.name for path in world.folder.glob("*.checkpoint"))
    assert len(names) == snapshots.SNAPSHOTS_KEPT
    log.append(topic(7), NOW_MS)
    log.close(NOW_MS)
    assert sorted(path.name for path in world.folder.glob("*.checkpoint")) == names


def test_a_clean_stop_with_much_to_read_writes_a_snapshot(world: World) -> None:
    log = world.open()
    log.append(topic(1, store.SNAPSHOT_AFTER_RECORDS), NOW_MS)
    image = log.image
    log.close(NOW_MS)
    world.abandon()
    del log
    found = reading.read(world.path)
    assert (found.record_count, same(found.image)) == (0, same(image))


def test_a_running_node_writes_a_snapshot_after_so_many_bytes_and_so_much_time(
    world: World,
) -> None:
    log = world.open(store.MetadataLogLimits(snapshot_after_bytes=1 << 20, snapshot_after_ms=1000))
    log.append(topic(1), NOW_MS + 999)
    assert not list(world.folder.glob("*.checkpoint"))
    log.append(topic(2), NOW_MS + 1000)
    assert len(list(world.folder.glob("*.checkpoint"))) == 1
    log.append(topic(3, 20_000), NOW_MS + 1001)
    assert len(list(world.folder.glob("*.checkpoint"))) == 2


def test_a_clock_that_is_set_back_puts_no_snapshot_off(world: World) -> None:
    """The first one after that was due when the clock had come there again."""
    log = world.open(store.MetadataLogLimits(snapshot_after_ms=1000))
    log.append(topic(1), NOW_MS - 1_000_000)
    assert not list(world.folder.glob("*.checkpoint"))
    log.append(topic(2), NOW_MS - 999_000)
    assert len(list(world.folder.glob("*.checkpoint"))) == 1


@pytest.fixture
def failing_snapshots(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Snapshots cannot be flushed; the list has those that were begun."""
    tried: list[Path] = []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.name.endswith(".part"):
            tried.append(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    return tried


def test_a_snapshot_that_cannot_be_written_costs_no_change(
    world: World, failing_snapshots: list[Path]
) -> None:
    """The append raised OSError with its records on disk: they were in the image, and no client was
    shown what they made; every later change went the same way."""
    log = world.open(store.MetadataLogLimits(snapshot_after_ms=1000))
    assert "topic-1" in log.append(topic(1), NOW_MS + 1000).image.topics
    (warning,) = world.warnings
    assert str(failing_snapshots[0].with_suffix("")) in warning
    assert warning.endswith("No space left on device")
    assert not failing_snapshots[0].exists()
    log.append(topic(2), NOW_MS + 1999)
    assert len(failing_snapshots) == 1
    log.append(topic(3), NOW_MS + 2000)
    assert len(failing_snapshots) == len(world.warnings) == 2
    image = log.image
    world.abandon()
    del log
    assert same(reading.read(world.path).image) == same(image)


def test_old_files_that_cannot_be_removed_cost_no_change(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlink(_path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "unlink", unlink)
    log = world.open(store.MetadataLogLimits(snapshot_after_bytes=1))
    for number in range(1, 5):
        log.append(topic(number), NOW_MS)
    assert len(world.warnings) == 2
    image = log.image
    world.abandon()
    del log
    assert same(reading.read(world.path).image) == same(image)


def test_a_clean_stop_whose_snapshot_cannot_be_written_closes_the_log(
    world: World, failing_snapshots: list[Path]
) -> None:
    """It raised OSError, and no log of the broker was closed cleanly."""
    log = world.open()
    log.append(topic(1, store.SNAPSHOT_AFTER_RECORDS), NOW_MS)
    image = log.image
    log.close(NOW_MS)
    assert len(failing_snapshots) == len(world.warnings) == 1
    world.abandon()
    del log
    found = reading.read(world.path)
    assert (found.snapshot_end_offset, same(found.image)) == (0, same(image))


@pytest.mark.parametrize("name", [f"{9:020}-{1:010}.checkpoint", "quorum-state"])
def test_a_file_that_cannot_be_read_is_named(world: World, name: str) -> None:
    """`kafkalite serve` ended with a traceback."""
    world.open()
    world.abandon()
    path = world.folder / name
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(StorageError, match=f"{name} cannot be read: Is a directory"):
        reading.read(world.path)


def test_a_quorum_state_of_bytes_that_are_no_text_is_refused(world: World) -> None:
    """`kafkalite serve` ended with a traceback."""
    world.open()
    world.abandon()
    (world.folder / "quorum-state").write_bytes(b"\xff\xfe")
    with pytest.raises(LogDirRefusedError, match="quorum-state cannot be read"):
        reading.read(world.path)


def append(log: store.MetadataLog, number: int) -> None:
    """A topic, as the broker does it while it serves."""
    appending = log.prepare(topic(number), NOW_MS)
    epoch = log.leader_epoch
    for each in appending.batches:
        log.native_log.append(each, now_ms=NOW_MS, origin="replication", leader_epoch=epoch)
    log.native_log.flush()
    assert log.is_written(appending)
    log.finish(appending, None)


def test_a_snapshot_that_takes_long_holds_up_no_change_and_there_is_one_at_a_time(
    world: World,
) -> None:
    """Its file was written, and flushed, before the change that it was due with was answered."""
    log = world.open(store.MetadataLogLimits(snapshot_after_bytes=1))
    append(log, 1)
    snapshot = log.due_snapshot(NOW_MS)
    assert snapshot is not None
    append(log, 2)
    assert log.due_snapshot(NOW_MS) is None
    snapshot.write()
    log.end_snapshot(None)
    image = log.image
    assert log.due_snapshot(NOW_MS) is not None
    world.abandon()
    del log
    found = reading.read(world.path)
    assert (found.snapshot_end_offset, same(found.image)) == (snapshot.end_offset, same(image))
    assert found.record_count == found.end_offset - snapshot.end_offset


def test_a_stop_begins_no_snapshot_beside_one_that_takes_long(world: World) -> None:
    """Both removed what was old, and the stop did not wait for the first one any more."""
    log = world.open(store.MetadataLogLimits(snapshot_after_bytes=1))
    append(log, 1)
    snapshot = log.due_snapshot(NOW_MS)
    assert snapshot is not None
    log.append(topic(2), NOW_MS)
    assert not list(world.folder.glob("*.checkpoint"))
    snapshot.write()
    log.close(NOW_MS)
    assert len(list(world.folder.glob("*.checkpoint"))) == 1


def test_segments_that_no_snapshot_needs_go(world: World) -> None:
    log = world.open(store.MetadataLogLimits(snapshot_after_bytes=4000, segment_bytes=2000))
    for number in range(60):
        log.append(topic(number + 1, 3), NOW_MS)
    image = log.image
    world.abandon()
    del log
    bases = sorted(int(path.stem) for path in world.folder.glob("*.log"))
    assert bases[0] > 0
    assert len(bases) < 12
    assert same(reading.read(world.path).image) == same(image)
    assert same(world.open().image) == same(image)


def test_a_log_without_the_records_behind_its_snapshot_is_refused(world: World) -> None:
    log = world.open()
    log.append(topic(1), NOW_MS)
    log.write_snapshot(NOW_MS)
    world.abandon()
    del log
    world.log_file.unlink()
    with pytest.raises(LogDirRefusedError, match="ends at offset 0"):
        world.open()


def written_names(world: World) -> list[list[str]]:
    """The messages in the log, batch by batch."""
    return [
        [records.decode(row[3])._name for row in batch.records if row[3] is not None]
        for batch in _native.read_batches(world.log_file.read_bytes())
        if not batch.is_control
    ]


def test_a_transaction_that_a_kill_left_open_is_taken_back_by_the_next_start(
    world: World,
) -> None:
    log = world.open()
    log.append(topic(1), NOW_MS)
    log.append([messages.BeginTransactionRecord(name="cut off"), *topic(2)], NOW_MS)
    world.abandon()
    del log
    log = world.open()
    assert set(log.image.topics) == {"topic-1"}
    log.append(topic(3), NOW_MS)
    world.abandon()
    del log
    values = [name for names in written_names(world) for name in names]
    assert values.count("AbortTransactionRecord") == 1
    assert set(reading.read(world.path).image.topics) == {"topic-1", "topic-3"}


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten records at most, so that a topic of twenty partitions needs several."""
    monkeypatch.setattr(store, "BATCH_RECORDS_MAX", 10)


@pytest.mark.usefixtures("small_batches")
def test_a_change_of_several_batches_is_there_whole_or_not_at_all_wherever_the_log_is_cut(
    world: World, tmp_path: Path
) -> None:
    """A kill between two batches left a topic without some of its partitions, for good."""
    log = world.open()
    for number, partitions in ((1, 2), (2, 25), (3, 9), (4, 19), (5, 1)):
        log.append(topic(number, partitions), NOW_MS)
    log.append([messages.RemoveTopicRecord(topic_id=bytes([0] * 15 + [2]))], NOW_MS)
    image = log.image
    world.abandon()
    del log
    content = world.log_file.read_bytes()
    names = written_names(world)
    assert [len(batch) for batch in names] == [3, 1, 10, 10, 6, 1, 10, 1, 10, 10, 1, 2, 1]
    assert (names[1], names[5]) == (["BeginTransactionRecord"], ["EndTransactionRecord"])
    whole = {1: 2, 2: 25, 3: 9, 4: 19, 5: 1}
    seen = []
    end = 0
    for number, batch in enumerate(_native.read_batches(content)):
        end += batch.size_bytes
        cut = World(tmp_path / f"cut-{number}")
        shutil.copytree(world.path, cut.path)
        cut.log_file.write_bytes(content[:end])
        log = cut.open()
        found = {int(each.id[-1]): len(each.partitions) for each in log.image.topics.values()}
        assert found.items() <= whole.items()
        seen.append(sorted(found))
        log.append(topic(9, 15), NOW_MS)
        expected = log.image
        cut.abandon()
        del log
        assert same(reading.read(cut.path).image) == same(expected)
        assert set(expected.topics) == {f"topic-{each}" for each in (*found, 9)}
    one, two, three, four = [1], [1, 2], [1, 2, 3], [1, 2, 3, 4]
    assert seen == [
        [],
        *([one] * 5),
        *([two] * 1),
        *([three] * 4),
        four,
        [1, 2, 3, 4, 5],
        [1, 3, 4, 5],
    ]
    assert same(reading.read(world.path).image) == same(image)


@pytest.mark.usefixtures("small_batches")
def test_what_follows_a_change_that_the_disk_took_half_of_is_no_part_of_it(world: World) -> None:
    """Records behind the half of a transaction would be taken back with it at the next start."""
    log = world.open()
    log.append(topic(1), NOW_MS)
    whole = log._log

    class FullDisk:
        """Takes two batches more."""

        room = 2

        def append(self, *arguments: Any, **options: Any) -> Any:
            if self.room == 0:
                raise StorageError("no space left on device")
            self.room -= 1
            return whole.append(*arguments, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(whole, name)

    log._log = FullDisk()  # type: ignore[assignment]
    with pytest.raises(StorageError, match="no space left"):
        log.append(topic(2, 30), NOW_MS)
    assert set(log.image.topics) == {"topic-1"}
    log._log = whole
    log.append(topic(3), NOW_MS)
    assert set(log.image.topics) == {"topic-1", "topic-3"}
    image = log.image
    world.abandon()
    del log
    assert [names[0] for names in written_names(world)] == [
        "TopicRecord",
        "BeginTransactionRecord",
        "TopicRecord",
        "AbortTransactionRecord",
        "TopicRecord",
    ]
    assert same(reading.read(world.path).image) == same(image)


def test_bootstrap_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    levels = [messages.FeatureLevelRecord(name="metadata.version", feature_level=30)]
    snapshots.write_bootstrap(tmp_path, levels, NOW_MS)
    found = reading.read(tmp_path)
    assert (found.bootstrap, found.is_new) == (levels, True)
    assert snapshot_records(found.image) == []
