"""Looks for what a command could have been given in place of a directory without a log: it is often
the parent of what was meant."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

PARTITION = re.compile(r".+-\d+")


def such_as_log_directory(path: Path) -> str:
    """`, such as data/logs`, if there is a log directory in this one; else nothing."""
    return _such_as(_inside(path, _is_log_directory))


def such_as_partition(path: Path) -> str:
    """`, such as data/orders-0`, for a partition in this directory, or in a log directory in it;
    else nothing. Topics of users come first."""
    found = sorted(_inside(path, _is_partition), key=lambda each: each.name.startswith("__"))
    if found:
        return _such_as(iter(found))
    return next(filter(None, map(such_as_partition, _inside(path, _is_log_directory))), "")


def _such_as(found: Iterator[Path]) -> str:
    first = next(found, None)
    return "" if first is None else f", such as {first}"


def _inside(path: Path, wanted: Callable[[Path], bool]) -> Iterator[Path]:
    try:
        inside = sorted(path.iterdir())
    except OSError:
        return
    for each in inside:
        try:
            if wanted(each):
                yield each
        except OSError:  # who asks may not look into it
            continue


def _is_log_directory(path: Path) -> bool:
    return (path / "meta.properties").exists()


def _is_partition(path: Path) -> bool:
    return bool(PARTITION.fullmatch(path.name)) and any(path.glob("*.log"))
