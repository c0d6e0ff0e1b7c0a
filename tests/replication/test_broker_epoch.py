"""The epoch that a broker names when it registers again: a clean stop's, or that of a kill where
all that was acknowledged is on disk."""

from pathlib import Path

import pytest

from kafkalite.errors import StorageError
from kafkalite.replication.broker_epoch import (
    FILE,
    Directory,
    Previous,
    forget,
    previous_epoch,
    remember,
)

KILLED, CLEAN = (False, None), (True, 7)


def directories(path: Path, *stops: tuple[bool, int | None]) -> list[Directory]:
    found: list[Directory] = []
    for number, stop in enumerate(stops):
        (path / str(number)).mkdir(exist_ok=True)
        found.append((path / str(number), bytes([number]) * 16, *stop))
    return found


def test_a_clean_stop_leaves_its_epoch(tmp_path: Path) -> None:
    for is_durable in (True, False):
        found = directories(tmp_path, CLEAN, CLEAN)
        assert previous_epoch(found, count=len(found), is_durable=is_durable) == Previous(7)


def test_directories_that_do_not_agree_have_none(tmp_path: Path) -> None:
    for stops in ((CLEAN, (True, 8)), (CLEAN, (True, None)), (CLEAN, KILLED), (KILLED,)):
        found = directories(tmp_path, *stops)
        assert previous_epoch(found, count=len(found), is_durable=True) == Previous()


def test_a_kill_leaves_the_epoch_where_all_is_on_disk(tmp_path: Path) -> None:
    found = directories(tmp_path, KILLED, CLEAN)
    remember([each[0] for each in found], 12)
    assert previous_epoch(found, count=len(found), is_durable=True) == Previous(12, is_of_kill=True)
    assert previous_epoch(found, count=len(found), is_durable=False) == Previous()
    remember([found[0][0]], 13)
    assert previous_epoch(found, count=len(found), is_durable=True) == Previous()


def test_what_is_forgotten_is_gone(tmp_path: Path) -> None:
    found = directories(tmp_path, KILLED, KILLED)
    paths = [each[0] for each in found]
    remember(paths, 12)
    forget(paths)
    assert previous_epoch(found, count=len(found), is_durable=True) == Previous()
    forget(paths)


@pytest.mark.parametrize("text", [b"", b"-1", b"1 2", b"\xff\xfe", b"9" * 30 + b"x"])
def test_a_file_that_says_no_epoch_counts_for_nothing(tmp_path: Path, text: bytes) -> None:
    found = directories(tmp_path, KILLED)
    (found[0][0] / FILE).write_bytes(text)
    assert previous_epoch(found, count=len(found), is_durable=True) == Previous()


def test_a_directory_that_does_not_take_it_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=FILE):
        remember([tmp_path / "gone"], 1)


def test_a_directory_that_cannot_be_had_leaves_none(tmp_path: Path) -> None:
    """It counted for those that could, though records of its may have been acknowledged."""
    found = directories(tmp_path, CLEAN)
    assert previous_epoch(found, count=2, is_durable=False) == Previous()
