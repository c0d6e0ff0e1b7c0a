"""`kafkalite log verify`: checks whole log directories and changes nothing in them.

One line per finding, `PATH:BYTE: sentence`, on stdout; exit code 1 if there was one. Without
findings a summary and 0. Works beside the broker that uses the directory: what is under way is no
finding then.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from kafkalite._native import LogVerification
from kafkalite.cli.console.terminal import Progress, count_text, size_text
from kafkalite.cli.log.places import such_as_log_directory
from kafkalite.cli.options import new_parser
from kafkalite.errors import LogDirRefusedError

DESCRIPTION = """Check the files of a log directory: names, batches and their CRC, every record,
indexes, producer snapshots, leader epochs, checkpoints. Nothing is changed. Each problem is printed
on a line of its own; exit code 1 if there is one."""

EXAMPLES = """
kafkalite log verify data
kafkalite log verify data/orders-0 --json
"""


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = command_line()
    if not arguments:
        parser.print_help()
        return 0
    options = parser.parse_args(arguments)
    codes = [_verify(directory, as_json=options.json) for directory in options.directories]
    return max(codes)


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    parser = new_parser("kafkalite log verify", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "directories",
        nargs="+",
        metavar="DIRECTORY",
        help="a log directory (log.dirs), or the directory of one partition",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    return parser


def _verify(directory: str, *, as_json: bool) -> int:
    started = time.monotonic()
    try:
        verification = LogVerification(directory)
    except LogDirRefusedError as error:
        place = Path(directory)
        if place.is_dir() and not (place / "meta.properties").exists():
            found = such_as_log_directory(place)
            error.add_note(f"pass a log directory (one of log.dirs) or a partition in it{found}")
        raise
    with Progress(directory) as progress:
        while (findings := verification.step()) is not None:
            if findings:
                progress.clear()
            for path, position, sentence in findings:
                _print_finding(path, position, sentence, as_json=as_json)
            summary = verification.summary()
            progress.show(summary["doneBytes"], summary["totalBytes"])
    summary = verification.summary()
    if as_json:
        sys.stdout.write(json.dumps({"directory": directory, **summary}) + "\n")
    else:
        sys.stdout.write(_summary(directory, summary, time.monotonic() - started))
    return 1 if summary["findings"] else 0


def _print_finding(path: str, position: int | None, sentence: str, *, as_json: bool) -> None:
    if as_json:
        line = json.dumps({"path": path, "position": position, "finding": sentence})
    else:
        line = f"{path}: {sentence}" if position is None else f"{path}:{position}: {sentence}"
    sys.stdout.write(line + "\n")


def _summary(directory: str, summary: dict[str, Any], seconds: float) -> str:
    parts = [
        count_text(summary["partitions"], "partition"),
        count_text(summary["segments"], "segment"),
        count_text(summary["batches"], "batch"),
        count_text(summary["records"], "record"),
        f"{size_text(summary['doneBytes'])} in {seconds:.1f} s",
    ]
    if summary["isInUse"]:
        parts.append("in use by a broker")
    found = summary["findings"]
    verdict = count_text(found, "finding") if found else "clean"
    return f"{directory}: {verdict}: {', '.join(parts)}\n"
