"""`kafkalite offsets`: where partitions begin and end, as kafka-get-offsets prints it:
`topic:partition:offset`."""

import argparse
import re

from kafkalite.cli.client_config import add_server, client_of, parse
from kafkalite.cli.options import (
    UsageError,
    decimal,
    names_of,
    new_parser,
    print_json,
    regular_expression,
)
from kafkalite.cli.remedies import did_you_mean
from kafkalite.client.admin import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Admin,
)

# Names of topics, and from and to below which partitions.
Rule = tuple[re.Pattern[str], list[tuple[int, int]]]

EXAMPLES = """
kafkalite offsets orders
kafkalite offsets orders --time earliest
kafkalite offsets --topic-partitions orders:0-2,events:1
kafkalite offsets orders --time 1763700000000
"""

TIMES = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
}


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    options = parse(command_line(), arguments)
    patterns = names_of(options.names, options.topic)
    if options.topic_partitions and (patterns or options.partitions):
        raise UsageError("--topic-partitions stands in place of topics and --partitions")
    rules = _rules(options, patterns)
    with client_of(Admin, options) as admin:
        places = _places(admin, rules, include_internal=not options.exclude_internal_topics)
        if not places and (options.topic_partitions or patterns or options.partitions):
            raise UsageError(_none_matches(admin, patterns))
        listed = admin.list_offsets(dict.fromkeys(places, options.time))
    for (topic, partition), found in listed.items():
        if options.json:
            print_json(
                {
                    "topic": topic,
                    "partition": partition,
                    "offset": found.offset,
                    "timestamp": found.timestamp,
                    "leaderEpoch": found.leader_epoch,
                }
            )
        elif found.offset >= 0:
            print(f"{topic}:{partition}:{found.offset}")
    return 0


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    parser = new_parser(
        "kafkalite offsets",
        "Show offsets of partitions: the end offsets, or others with --time.",
        EXAMPLES,
    )
    add_server(parser)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="TOPIC",
        help="names or regular expressions (default: all topics)",
    )
    parser.add_argument("--topic", action="append", help=argparse.SUPPRESS)
    parser.add_argument("--partitions", metavar="0,1", help="only these partitions")
    parser.add_argument(
        "--topic-partitions",
        metavar="TOPIC:0-2,…",
        help="topics with their partitions instead; the end of a range is not included",
    )
    parser.add_argument(
        "--time",
        type=_time,
        default=LATEST,
        metavar="WHEN",
        help="which offset: latest (the default), earliest, max-timestamp, earliest-local, "
        "latest-tiered, or that of the first record at or after a time in milliseconds since 1970",
    )
    parser.add_argument(
        "--exclude-internal-topics",
        action="store_true",
        help="leave out internal topics, such as __consumer_offsets",
    )
    return parser


def _time(text: str) -> int:
    if text in TIMES:
        return TIMES[text]
    number = decimal(text.removeprefix("-"))
    if number is None:
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither {', '.join(TIMES)} nor milliseconds since 1970"
        )
    return -number if text.startswith("-") else number


def _rules(options: argparse.Namespace, patterns: list[str]) -> list[Rule]:
    """The rules of which a partition has to match one."""
    if options.topic_partitions:
        return [_rule(text) for text in options.topic_partitions.split(",")]
    wanted = _ranges(options.partitions)
    expressions = [
        regular_expression(text.strip()) for pattern in patterns for text in pattern.split(",")
    ]
    return [(expression, wanted) for expression in expressions or [re.compile(".*")]]


def _places(admin: Admin, rules: list[Rule], *, include_internal: bool) -> list[tuple[str, int]]:
    """The partitions that are meant, by topic and number."""
    names = [topic.name for topic in admin.list_topics(include_internal=include_internal)]
    return [
        (name, partition)
        for name in names
        for partition in admin.cluster.topic(name).partitions
        if any(
            expression.fullmatch(name) and _is_within(partition, wanted)
            for expression, wanted in rules
        )
    ]


def _none_matches(admin: Admin, patterns: list[str]) -> str:
    existing = [topic.name for topic in admin.list_topics()]
    hints = [hint for each in patterns if (hint := did_you_mean(each, existing))]
    return "; ".join(["no partition matches", *hints[:1]])


def _rule(text: str) -> Rule:
    """`orders:0-2`: partitions 0 and 1, as Kafka has it the upper end is not meant; `orders:1`;
    `orders:1-`; `orders:-3`; `orders`; `:1`."""
    topic, _, span = text.partition(":")
    expression = regular_expression((topic or ".*").strip())
    if not span:
        return expression, [(0, 1 << 31)]
    lower, dash, upper = span.partition("-")
    begin, end = decimal(lower or "0"), decimal(upper or "2147483648")
    if begin is None or end is None:
        raise UsageError(f"'{text}' is not TOPIC:PARTITION or TOPIC:FROM-TO")
    return expression, [(begin, end if dash else begin + 1)]


def _ranges(text: str | None) -> list[tuple[int, int]]:
    if not text:
        return [(0, 1 << 31)]
    numbers = [decimal(number.strip()) for number in text.split(",")]
    ranges = [(number, number + 1) for number in numbers if number is not None]
    if len(ranges) < len(numbers):
        raise UsageError(f"'{text}' is not a list of partitions such as 0,1")
    return ranges


def _is_within(partition: int, ranges: list[tuple[int, int]]) -> bool:
    return any(lower <= partition < upper for lower, upper in ranges)
