"""`kafkalite perf consume`: how fast a broker gives records, with the flags and the output lines of
kafka-consumer-perf-test.

Records are counted in Rust, each one looked at, without a Python object for it.
"""

import argparse
import random
import sys
import time

from kafkalite.cli.client_config import PERF_CONSUME, add_server, consumer_settings, parse
from kafkalite.cli.options import (
    UsageError,
    int_argument,
    long_argument,
    milliseconds_argument,
    new_parser,
    print_json,
    regular_expression,
    terminable,
)
from kafkalite.cli.remedies import remedies
from kafkalite.client.consumer.consumer import Consumer

EXAMPLES = """
kafkalite perf consume --topic load --num-records 1000000
kafkalite perf consume --topic load --messages 1000000 --show-detailed-stats
"""

TITLES = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
TITLES_MORE = "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
MIB = 1024 * 1024


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = command_line()
    if not arguments:
        parser.print_help()
        return 0
    options = parse(parser, arguments)
    if bool(options.topic) == bool(options.include):
        raise UsageError("name a --topic, or several by --include")
    wanted = regular_expression(options.include) if options.include else [options.topic]
    group = options.group or f"perf-consumer-{random.randrange(100_000)}"  # noqa: S311
    if not options.hide_header and not options.json:
        first = "time, threadId" if options.show_detailed_stats else "start.time, end.time"
        print(f"{first}, {TITLES}, {TITLES_MORE}")
    stats = _Stats(options)
    with (
        terminable(),
        remedies(options),
        Consumer(
            options.bootstrap_server,
            offset_reset="latest" if options.from_latest else "earliest",
            partition_bytes_max=options.fetch_size,
            **{"client_id": "perf-consumer-client", **consumer_settings(options, group)},
        ) as consumer,
    ):
        consumer.subscribe(wanted)
        try:
            is_complete = _consume(consumer, options, stats)
        except KeyboardInterrupt:
            stats.total()
            raise
        stats.total()
    if not is_complete:
        sys.stdout.flush()
        sys.stderr.write(
            "WARNING: Exiting before consuming the expected number of messages: timeout "
            f"({options.timeout} ms) exceeded. You can use the --timeout option to increase the "
            "timeout.\n"
        )
    return 0


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    parser = new_parser("kafkalite perf consume", "Measure the throughput of consuming.", EXAMPLES)
    parser.add_argument("--topic", help="the topic to consume")
    parser.add_argument("--include", metavar="REGEX", help="consume all topics whose names match")
    parser.add_argument(
        "--num-records",
        "--messages",
        type=long_argument,
        required=True,
        metavar="N",
        help="the number of records to consume",
    )
    parser.add_argument(
        "--group", metavar="NAME", help="the consumer group to join (default: a new one)"
    )
    parser.add_argument(
        "--fetch-size",
        type=int_argument,
        default=MIB,
        metavar="BYTES",
        help=f"the most bytes to fetch from a partition at once (default: {MIB})",
    )
    parser.add_argument(
        "--from-latest",
        action="store_true",
        help="start at the end of partitions without a committed offset (default: the beginning)",
    )
    parser.add_argument(
        "--show-detailed-stats", action="store_true", help="print a line every reporting interval"
    )
    parser.add_argument(
        "--reporting-interval",
        type=milliseconds_argument,
        default=5_000,
        metavar="MS",
        help="the reporting interval in milliseconds (default: 5000)",
    )
    parser.add_argument("--hide-header", action="store_true", help="do not print the column titles")
    parser.add_argument("--socket-buffer-size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--print-metrics", action="store_true", help=argparse.SUPPRESS)
    add_server(parser, PERF_CONSUME)
    parser.set_defaults(timeout=10_000)
    for action in parser._actions:
        if "--timeout" in action.option_strings:
            action.help = "stop if no record arrives for this many milliseconds (default: 10000)"
    return parser


def _consume(consumer: Consumer, options: argparse.Namespace, stats: "_Stats") -> bool:
    """Reads until all are there, or none came for the time-out."""
    heard = time.monotonic()
    while stats.count < options.num_records:
        found = consumer.fetch(100)
        now = time.monotonic()
        if consumer.assignment and stats.joined_at is None:
            stats.joined_at = now
        for fetched in found:
            count, size_bytes, end = fetched.count()
            consumer.advance((fetched.topic, fetched.partition), end)
            stats.add(count, size_bytes)
            heard = now if count else heard
        stats.tell_if_due()
        if (now - heard) * 1000 > options.timeout:
            return False
    return True


class _Stats:
    """Counts, and the lines that tell them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._every_s = options.reporting_interval / 1000
        self._wall_started = time.time()
        self._started = self._told = time.monotonic()
        self.joined_at: float | None = None
        """When the first partitions were assigned."""
        self.count = 0
        self._bytes = 0
        self._told_count = self._told_bytes = 0

    def add(self, count: int, size_bytes: int) -> None:
        """Counts what one fetch brought."""
        self.count += count
        self._bytes += size_bytes

    def tell_if_due(self) -> None:
        """A line of --show-detailed-stats."""
        now = time.monotonic()
        if now - self._told < self._every_s:
            return
        if self._options.show_detailed_stats and not self._options.json:
            elapsed_ms = (now - self._told) * 1000
            mib = (self._bytes - self._told_bytes) / MIB
            count = self.count - self._told_count
            rebalance_ms = 0
            if self.joined_at is not None and self.joined_at > self._told:
                rebalance_ms = int((self.joined_at - self._told) * 1000)
            fetch_ms = max(elapsed_ms - rebalance_ms, 1)
            print(
                f"{_clock(time.time())}, 0, {self._bytes / MIB:.4f}, {1000 * mib / elapsed_ms:.4f},"
                f" {self.count}, {1000 * count / elapsed_ms:.4f}, {rebalance_ms}, {int(fetch_ms)},"
                f" {1000 * mib / fetch_ms:.4f}, {1000 * count / fetch_ms:.4f}",
                flush=True,
            )
        self._told, self._told_count, self._told_bytes = now, self.count, self._bytes

    def total(self) -> None:
        """The last line."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        joined_s = (self.joined_at or self._started) - self._started
        fetch_s = max(seconds - joined_s, 1e-9)
        mib = self._bytes / MIB
        if self._options.json:
            print_json(
                {
                    "records": self.count,
                    "mb": mib,
                    "seconds": seconds,
                    "mbPerSec": mib / seconds,
                    "recordsPerSec": self.count / seconds,
                    "rebalanceTimeMs": joined_s * 1000,
                    "fetchMbPerSec": mib / fetch_s,
                    "fetchRecordsPerSec": self.count / fetch_s,
                }
            )
        elif not self._options.show_detailed_stats:
            ended = self._wall_started + seconds
            print(
                f"{_clock(self._wall_started)}, {_clock(ended)}, {mib:.4f}, {mib / seconds:.4f}, "
                f"{self.count}, {self.count / seconds:.4f}, {int(joined_s * 1000)}, "
                f"{int(fetch_s * 1000)}, {mib / fetch_s:.4f}, {self.count / fetch_s:.4f}"
            )


def _clock(wall_s: float) -> str:
    """Local time as `2026-11-21 06:00:00:123`, which is kafka-consumer-perf-test's default."""
    whole = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_s))
    return f"{whole}:{int(wall_s * 1000) % 1000:03}"
