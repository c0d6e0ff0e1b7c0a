"""`kafkalite format`: gives log directories the id of their cluster, in the words of
`kafka-storage format`.

A node that is its own controller formats its directories at its first start, and needs this for
other levels of features only; a broker of controllers elsewhere has the id of its cluster from
here.
"""

import argparse
import sys
from pathlib import Path

from kafkalite import _native
from kafkalite.cli.options import UsageError, new_parser, parse_settings
from kafkalite.config import Config
from kafkalite.config.properties import read_properties
from kafkalite.metadata import snapshots
from kafkalite.metadata.features import FEATURES, own_features
from kafkalite.protocol import messages
from kafkalite.timers import wall_ms

DESCRIPTION = """Format the log directories of a node: each gets the cluster id, the node id and a
directory id. A node that is its own controller formats its directories at its first start by
itself. A broker under controllers elsewhere needs this, with the cluster id of the controllers."""

EXAMPLES = """
kafkalite format --cluster-id "$(kafka-storage.sh random-uuid)" --config server.properties
kafkalite format --cluster-id ID --config server.properties --ignore-formatted
"""


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    options = command_line().parse_args(arguments)
    config = Config(read_properties(options.config))
    for sentence in config.warnings:
        print(f"kafkalite: {sentence}", file=sys.stderr)
    levels = _levels(parse_settings(options.feature))
    metadata_dir = Path(config.metadata_dir())
    paths = dict.fromkeys([*map(Path, config.log_dirs()), metadata_dir])
    formatted = [path for path in paths if (path / "meta.properties").exists()]
    if formatted and not options.ignore_formatted:
        print(
            f"Log directory {formatted[0]} is already formatted. Use --ignore-formatted to ignore "
            "this directory and format the others."
        )
        return 1
    if len(formatted) == len(paths):
        print("All of the log directories are already formatted.")
        return 0
    is_new = metadata_dir not in formatted
    for path in paths:
        path.mkdir(parents=True, exist_ok=True)
    _native.ClaimedDirectories(
        node_id=config["node.id"],
        cluster_id=options.cluster_id,
        log_dirs=config.log_dirs(),
        metadata_dir=str(metadata_dir),
        recovery_threads=1,
        flush_threads=1,
        open_segments=config["kafkalite.open.segments.max"],
    )
    if is_new and config.is_controller:
        snapshots.write_bootstrap(metadata_dir, levels, wall_ms())
    for path in paths:
        if path not in formatted:
            kind = "metadata" if path == metadata_dir else "data"
            print(f"Formatting {kind} directory {path}.")
    return 0


def _levels(given: dict[str, str]) -> list[messages.FeatureLevelRecord]:
    """The features of a new directory, at other levels where some are given."""
    known = {each.name: each for each in FEATURES}
    levels = {each.name: each.feature_level for each in own_features()}
    for name, text in given.items():
        feature = known.get(name)
        if feature is None:
            raise UsageError(f"--feature {name}: there is {', '.join(known)}")
        if not (text.isdecimal() and feature.low <= int(text) <= feature.high):
            raise UsageError(f"--feature {name}={text}: {feature.low} to {feature.high} can be")
        levels[name] = int(text)
    record = messages.FeatureLevelRecord
    return [record(name=name, feature_level=level) for name, level in levels.items() if level]


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    parser = new_parser("kafkalite format", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "--cluster-id",
        "-t",
        required=True,
        metavar="ID",
        help="the id of the cluster: the one that its controllers were formatted with",
    )
    parser.add_argument(
        "--config",
        "-c",
        required=True,
        metavar="FILE",
        help="the server.properties file of the node",
    )
    parser.add_argument(
        "--ignore-formatted",
        "-g",
        action="store_true",
        help="skip directories that are already formatted",
    )
    parser.add_argument(
        "--feature",
        "-f",
        action="append",
        default=[],
        metavar="NAME=LEVEL",
        help="set the level of a feature; only for a node that is its own controller, since a "
        "cluster has the levels of its controllers",
    )
    return parser
