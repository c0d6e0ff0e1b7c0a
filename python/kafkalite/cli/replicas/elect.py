"""`kafkalite elect`: has leaders elected, as kafka-leader-election, whose file it takes."""

import argparse

from kafkalite.cli.client_config import add_server, client_of, parse
from kafkalite.cli.console.terminal import print_listed
from kafkalite.cli.options import (
    UsageError,
    int_argument,
    names_of,
    new_parser,
    print_error,
    print_json,
    read_json,
)
from kafkalite.client.arguments import text, whole
from kafkalite.client.cluster_admin import PREFERRED, UNCLEAN, ClusterAdmin
from kafkalite.errors import BrokerError
from kafkalite.protocol.codes import ELECTION_NOT_NEEDED

DESCRIPTION = """Elect leaders of partitions: preferred makes the first replica the leader again;
unclean makes any live replica the leader of a partition that has none, and may lose records."""

EXAMPLES = """
kafkalite elect --election-type preferred --all-topic-partitions
kafkalite elect orders --partition 0 --election-type unclean
kafkalite elect --election-type preferred --path-to-json-file partitions.json
"""

TYPES = {"preferred": PREFERRED, "unclean": UNCLEAN}
FORM = '{"partitions": [{"topic": "orders", "partition": 1}]}'

Partition = tuple[str, int]


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = command_line()
    if not arguments:
        parser.print_help()
        return 0
    options = parse(parser, arguments)
    partitions = _partitions(options)
    with client_of(ClusterAdmin, options) as admin:
        told = admin.elect_leaders(TYPES[options.election_type], partitions)
    return _show(told, options)


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    parser = new_parser("kafkalite elect", DESCRIPTION, EXAMPLES)
    add_server(parser)
    parser.add_argument("names", nargs="?", metavar="TOPIC", help="the topic")
    parser.add_argument("--topic", action="append", help=argparse.SUPPRESS)
    parser.add_argument(
        "--partition", type=int_argument, metavar="N", help="a partition of the topic"
    )
    parser.add_argument(
        "--election-type",
        type=str.lower,
        choices=tuple(TYPES),
        required=True,
        help="which replica becomes the leader",
    )
    parser.add_argument(
        "--all-topic-partitions",
        action="store_true",
        help="all partitions that need such an election",
    )
    parser.add_argument(
        "--path-to-json-file", metavar="FILE", help=f"a file with partitions: {FORM}"
    )
    parser.add_argument("--admin.config", dest="command_config", help=argparse.SUPPRESS)
    return parser


def _partitions(options: argparse.Namespace) -> list[Partition] | None:
    """The partitions that are meant, None for all."""
    names = names_of([options.names] if options.names else [], options.topic)
    ways = [bool(names), options.all_topic_partitions, options.path_to_json_file is not None]
    if sum(ways) != 1 or len(names) > 1:
        raise UsageError("name one of: a topic, --all-topic-partitions, --path-to-json-file")
    if bool(names) != (options.partition is not None):
        raise UsageError("a topic needs --partition, and --partition a topic")
    if names:
        return [(names[0], options.partition)]
    return None if options.all_topic_partitions else _from_file(options.path_to_json_file)


def _from_file(path: str) -> list[Partition]:
    try:
        rows = read_json(path)["partitions"]
        places = [
            (text("topic", row["topic"]), whole("partition", row["partition"], 0)) for row in rows
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is not of the form {FORM}: {error!r}") from error
    if len(set(places)) < len(places):
        raise UsageError(f"{path} names a partition twice")
    return places


def _show(told: dict[Partition, BrokerError | None], options: argparse.Namespace) -> int:
    """In the order and the words of Kafka's tool: elected, not needed, refused."""
    elected = sorted(place for place, refusal in told.items() if refusal is None)
    refused = {place: error for place, error in sorted(told.items()) if error is not None}
    led = [place for place, error in refused.items() if error.code == ELECTION_NOT_NEEDED]
    failed = {place: error for place, error in refused.items() if place not in led}
    if options.json:
        for place in sorted(told):
            error = refused.get(place)
            print_json(
                {
                    "topic": place[0],
                    "partition": place[1],
                    "elected": error is None,
                    "error": None if error is None else error.name,
                }
            )
    else:
        kind = options.election_type.upper()
        if elected:
            done = f"Successfully completed leader election ({kind}) for partitions"
            print_listed(done, _texts(elected), ", ")
        if led:
            print_listed("Valid replica already elected for partitions", _texts(led), ", ")
        for (topic, index), error in failed.items():
            print(
                f"Error completing leader election ({kind}) for partition: {topic}-{index}: {error}"
            )
    if failed:
        print_error(f"{len(failed)} replica(s) could not be elected")
    return 1 if failed else 0


def _texts(places: list[Partition]) -> list[str]:
    return [f"{topic}-{index}" for topic, index in places]
