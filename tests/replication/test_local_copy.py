"""The copy of the metadata's log on a real disk: what it is given a start finds, and what is
damaged is dropped."""

import errno
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalite import _native
from kafkalite.errors import StorageError
from kafkalite.metadata import records
from kafkalite.metadata.image import Image
from kafkalite.metadata.quorum import Quorum
from kafkalite.metadata.reading import Observed
from kafkalite.metadata.snapshots import FOLDER, list_snapshots, snapshot_batches
from kafkalite.metadata.store import KAFKAS_LIMITS, MetadataLogLimits
from kafkalite.protocol import messages
from kafkalite.replication.local_copy import LocalCopy, Opened, open_copy

Told = list[str]


@contextmanager
def opened(path: Path, limits: MetadataLogLimits = KAFKAS_LIMITS) -> Iterator[tuple[Opened, Told]]:
    """The copy of a directory, as a start takes it; closed in the end."""
    told: Told = []
    claimed = _native.ClaimedDirectories(
        node_id=9,
        cluster_id="4L6g3nShT-eMCtK--X86sw",
        log_dirs=[str(path)],
        metadata_dir=str(path),
        recovery_threads=1,
        flush_threads=1,
        open_segments=64,
    )
    found = open_copy(claimed, path, limits, told.append)
    yield found, told
    found.copy.close()
    del claimed, found
    gc.collect()


def batch(offset: int, epoch: int, size: int = 0) -> bytes:
    config = messages.ConfigRecord(
        resource_type=4, resource_name="", name=f"at-{offset}", value="x" * size
    )
    builder = _native.BatchBuilder(base_offset=offset, leader_epoch=epoch)
    builder.append(0, None, records.encode(config))
    return builder.finish()


def fill(copy: LocalCopy, offsets: range, epoch: int, size: int = 0) -> None:
    copy.follow(3000, epoch)
    for offset in offsets:
        copy.append(batch(offset, epoch, size), epoch)


def snapshot(end_offset: int, epoch: int) -> bytes:
    image = Image(leader_epoch=epoch, last_offset=end_offset - 1)
    written = [messages.ConfigRecord(resource_type=4, resource_name="", name="k", value="v")]
    return b"".join(snapshot_batches(written, Quorum(), image, 0))


def names(observed: Observed) -> list[int]:
    return [each.base_offset for each in observed.batches]


def test_a_start_finds_what_was_there(tmp_path: Path) -> None:
    with opened(tmp_path) as (found, told):
        assert (names(found.observed), found.observed.leader_epoch) == ([], 0)
        fill(found.copy, range(5), 2)
        found.copy.truncate_to(3)
        fill(found.copy, range(3, 6), 4)
        found.copy.follow(-1, 7)
    with opened(tmp_path) as (found, told):
        assert names(found.observed) == [0, 1, 2, 3, 4, 5]
        assert found.observed.end_offset == 6
        # It was heard of, and nothing was written in it.
        assert found.observed.leader_epoch == 7
        assert found.observed.snapshot.offset == -1
    assert told == []


def test_a_snapshot_takes_the_place_of_the_log(tmp_path: Path) -> None:
    with opened(tmp_path) as (found, _):
        fill(found.copy, range(5), 2)
        found.copy.follow(3000, 3)
        found.copy.start_at(snapshot(20, 3), 20, 3)
        fill(found.copy, range(20, 22), 3)
        found.copy.start_at(snapshot(40, 3), 40, 3)
        fill(found.copy, range(40, 43), 3)
    folder = tmp_path / FOLDER
    assert [end for end, _, _ in list_snapshots(folder)] == [40]
    with opened(tmp_path) as (found, told):
        assert found.observed.snapshot.offset == 39
        assert found.observed.snapshot.epoch == 3
        assert found.observed.snapshot.is_whole
        assert names(found.observed) == [40, 41, 42]
    assert told == []


def test_a_kill_between_a_snapshot_and_its_log_loses_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as (found, _):
        fill(found.copy, range(5), 2)
    name = f"{20:020}-{3:010}.checkpoint"
    (tmp_path / FOLDER / name).write_bytes(snapshot(20, 3))
    with opened(tmp_path) as (found, told):
        assert (found.observed.end_offset, names(found.observed)) == (20, [])
        fill(found.copy, range(20, 21), 3)
    with opened(tmp_path) as (found, _):
        assert names(found.observed) == [20]
    assert told == []


def test_snapshots_are_written_in_time_and_old_segments_go(tmp_path: Path) -> None:
    limits = MetadataLogLimits(snapshot_after_bytes=100_000, segment_bytes=50_000)
    with opened(tmp_path, limits) as (found, _):
        for first in range(0, 400, 20):
            fill(found.copy, range(first, first + 20), 1, size=1_000)
            image = Image(leader_epoch=1, last_offset=first + 19)
            found.copy.snapshot_if_due(image, Quorum())
    snapshots = list_snapshots(tmp_path / FOLDER)
    assert len(snapshots) == 2
    assert 300 < snapshots[-1][0] <= 400
    with opened(tmp_path) as (found, told):
        assert found.observed.snapshot.offset + 1 == snapshots[-1][0]
        assert found.observed.end_offset == 400
    assert told == []


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


def damage_record(folder: Path) -> None:
    (log,) = folder.glob("*.log")
    flip(log, log.stat().st_size // 2 + 30)


def test_a_record_that_is_damaged_is_fetched_again_and_those_behind_it(tmp_path: Path) -> None:
    with opened(tmp_path) as (found, _):
        fill(found.copy, range(10), 2)
    damage_record(tmp_path / FOLDER)
    with opened(tmp_path) as (found, _):
        kept = names(found.observed)
        assert kept == list(range(len(kept)))
        assert 0 < len(kept) < 10
        fill(found.copy, range(len(kept), 12), 2)
    with opened(tmp_path) as (found, _):
        assert names(found.observed) == list(range(12))


def damage_snapshot(folder: Path) -> None:
    ((_, _, path),) = list_snapshots(folder)
    flip(path, path.stat().st_size // 2)


def damage_state(folder: Path) -> None:
    (folder / "quorum-state").write_text("?")


@pytest.mark.parametrize("damage", [damage_snapshot, damage_state])
def test_a_copy_that_is_damaged_is_dropped(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    with opened(tmp_path) as (found, _):
        found.copy.start_at(snapshot(20, 3), 20, 3)
        fill(found.copy, range(20, 22), 3)
    damage(tmp_path / FOLDER)
    with opened(tmp_path) as (found, told):
        assert (found.observed.end_offset, found.observed.leader_epoch) == (0, 0)
        (sentence,) = told
        assert f"{FOLDER} cannot be used and is dropped" in sentence
        assert "it is fetched from them" in sentence
        fill(found.copy, range(3), 4)
    with opened(tmp_path) as (found, told):
        assert names(found.observed) == [0, 1, 2]
        assert told == []


def test_a_write_that_lacks_a_descriptor_is_made_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the broker, although only clients had too many files open for a while."""
    missing = [errno.EMFILE, errno.ENFILE]
    real_open = Path.open

    def scarce_open(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "quorum-state.tmp" and missing:
            raise OSError(missing.pop(), "there is no descriptor")
        return real_open(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", scarce_open)
    with opened(tmp_path) as (found, _):
        fill(found.copy, range(3), 1)
    assert not missing
    with opened(tmp_path) as (found, _):
        assert names(found.observed) == [0, 1, 2]


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with opened(tmp_path) as (found, _):
        fill(found.copy, range(3), 1)
    with opened(tmp_path) as (found, _):
        (tmp_path / FOLDER / "quorum-state.tmp").mkdir()
        found.copy.follow(1, 2)
        fill(found.copy, range(3, 5), 1)
        with pytest.raises(StorageError, match="quorum-state cannot be written"):
            found.copy.close()
        found.copy.failure = None
        (tmp_path / FOLDER / "quorum-state.tmp").rmdir()
    with opened(tmp_path) as (found, _):
        # Nothing is written behind what could not be.
        assert names(found.observed) == [0, 1, 2]
