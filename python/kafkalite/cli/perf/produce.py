"""`kafkalite perf produce`: how fast a broker takes records, with the flags and the output lines of
kafka-producer-perf-test.

Records are made and batched in Rust, so that what is measured is the broker; Python handles
batches, which go to the partitions in turn. A record's latency is that of its batch: from the
moment at which its first record was made to the acknowledgement.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kafkalite._native import BatchBuilder, LoadRecords
from kafkalite.cli.client_config import PERF_PRODUCE, add_server, parse
from kafkalite.cli.options import (
    RECORD_BYTES_MAX,
    UsageError,
    int_argument,
    long_argument,
    milliseconds_argument,
    new_parser,
    print_error,
    print_json,
    read_bytes,
    terminable,
)
from kafkalite.cli.remedies import remedies
from kafkalite.client.admin import Admin
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.client.producer.partition_queue import Batch
from kafkalite.errors import KafkaliteError
from kafkalite.timers import wall_ms

EXAMPLES = """
kafkalite perf produce --topic load --num-records 1000000 --record-size 1000 --throughput -1
kafkalite perf produce --topic load --num-records 50000 --record-size 100 --throughput 1000 \
--command-property acks=all linger.ms=0 compression.type=lz4
"""

MIB = 1024 * 1024


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = command_line()
    if not arguments:
        parser.print_help()
        return 0
    options = parse(parser, arguments)
    settings = {"client_id": "perf-producer-client", **options.client}
    payloads = _payloads(options)
    load = LoadRecords(record_size=options.record_size, payloads=payloads)
    with (
        remedies(options),
        Admin(
            options.bootstrap_server, client_id=settings["client_id"], timeout_ms=options.timeout
        ) as admin,
    ):
        topic = admin.cluster.topic(options.topic, allow_auto_create=True)
        partition_count = len(topic.partitions)
    stats = _Stats(options)
    try:
        with terminable(), DrivenProducer(options.bootstrap_server, **settings) as producer:
            _send_all(producer, load, partition_count, options, stats, settings)
            with suppress(KafkaliteError):  # told when the first batch failed
                producer.flush()
    except KeyboardInterrupt:
        stats.total()  # of a run that is over for whoever sees enough
        raise
    stats.total()
    return 1 if stats.failed else 0


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    parser = new_parser(
        "kafkalite perf produce", "Measure the throughput and latency of producing.", EXAMPLES
    )
    parser.add_argument("--topic", required=True, help="the topic to produce to")
    parser.add_argument(
        "--num-records",
        type=long_argument,
        required=True,
        metavar="N",
        help="the number of records to produce",
    )
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument(
        "--record-size", type=_size, metavar="BYTES", help="send random letters of this size"
    )
    payload.add_argument(
        "--payload-file", metavar="FILE", help="send values from this file, in random order"
    )
    payload.add_argument("--payload-monotonic", action="store_true", help="send increasing numbers")
    parser.add_argument(
        "--payload-delimiter",
        metavar="TEXT",
        default="\\n",
        help="what separates the values in the file (default: \\n)",
    )
    parser.add_argument(
        "--throughput",
        type=float,
        required=True,
        metavar="N",
        help="the largest number of records per second; -1 for no limit",
    )
    parser.add_argument(
        "--reporting-interval",
        type=milliseconds_argument,
        default=5_000,
        metavar="MS",
        help="print a line every so many milliseconds (default: 5000)",
    )
    parser.add_argument("--print-metrics", action="store_true", help=argparse.SUPPRESS)
    add_server(parser, PERF_PRODUCE)
    return parser


def _size(text: str) -> int:
    size = int_argument(text)
    if not 1 <= size <= RECORD_BYTES_MAX:
        raise argparse.ArgumentTypeError(
            f"{text} is not a number of bytes, 1 to {RECORD_BYTES_MAX}"
        )
    return size


def _payloads(options: argparse.Namespace) -> list[bytes] | None:
    if options.payload_file is None:
        return None
    content = read_bytes(options.payload_file)
    try:
        delimiter = options.payload_delimiter.encode().decode("unicode_escape").encode()
    except UnicodeDecodeError as error:
        raise UsageError(f"--payload-delimiter {options.payload_delimiter}: {error}") from error
    if not delimiter:
        raise UsageError("--payload-delimiter is empty")
    values = content.split(delimiter)
    if values and not values[-1]:
        values.pop()
    if not values:
        raise UsageError(f"{options.payload_file} is empty")
    print(f"Number of messages read: {len(values)}")
    return values


def _send_all(
    producer: DrivenProducer,
    load: LoadRecords,
    partition_count: int,
    options: argparse.Namespace,
    stats: "_Stats",
    settings: dict[str, Any],
) -> None:
    """Batches until all records are out, held to the throughput; a batch is full, or as old as
    linger.ms."""
    codec, level = settings.get("codec", "none"), settings.get("level")
    batch_bytes = settings.get("batch_bytes", 16_384)
    buffer_bytes = settings.get("buffer_bytes", 32 << 20)
    linger_s = settings.get("linger_ms", 5) / 1000
    topic, wanted = options.topic, options.num_records
    rate = options.throughput if 0 < options.throughput < math.inf else None
    started = time.monotonic()
    sent = turn = 0
    while sent < wanted:
        due = wanted
        made_at = time.monotonic()
        if rate is not None:
            # One that is due begins a batch; what is due within linger.ms fills it.
            begin = started + sent / rate
            made_at = max(made_at, begin)
            while (left := begin + linger_s - time.monotonic()) > 0:
                producer.poll(max(1, int(left * 1000)) if left > 0.001 else 0)
            due = min(wanted, int((time.monotonic() - started) * rate) + 1)
        while producer.pending_bytes > buffer_bytes:
            producer.poll(100)
        builder = BatchBuilder(codec, level=level)
        now_ms = wall_ms()
        count, value_bytes = load.fill(builder, now_ms, due - sent, batch_bytes)
        done = stats.waiter(made_at, value_bytes, count)
        producer.send_batch(topic, turn % partition_count, builder.finish(), count, done)
        sent += count
        turn += 1


class _Stats:
    """Counts and latencies, and the lines that tell them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._json = options.json
        self._every_s = options.reporting_interval / 1000
        self.started = self._window_started = time.monotonic()
        self.count = self.failed = 0
        self._bytes = 0
        # Latency in ms of each batch and how many records it had.
        self._latencies: list[tuple[float, int]] = []
        self._window: list[tuple[float, int]] = []
        self._window_bytes = 0
        self._has_failed = False

    def waiter(
        self, made_at: float, value_bytes: int, count: int
    ) -> Callable[[Batch, KafkaliteError | None, int], None]:
        """Makes what a batch of `count` records calls when it, or a part of it, is done."""

        def done(batch: Batch, error: KafkaliteError | None, base_offset: int) -> None:
            del base_offset
            now = time.monotonic()
            if error is not None:
                self.failed += batch.count
                if not self._has_failed:
                    self._has_failed = True
                    print_error(error)
                return
            row = ((now - made_at) * 1000, batch.count)
            self._latencies.append(row)
            self._window.append(row)
            self.count += batch.count
            done_bytes = value_bytes * batch.count // count
            self._bytes += done_bytes
            self._window_bytes += done_bytes
            if now - self._window_started >= self._every_s:
                self._tell_window(now)

        return done

    def _tell_window(self, now: float) -> None:
        seconds = now - self._window_started
        count = sum(rows for _, rows in self._window)
        average = sum(latency * rows for latency, rows in self._window) / max(count, 1)
        longest = max((latency for latency, _ in self._window), default=0.0)
        if not self._json:
            print(
                f"{count} records sent, {count / seconds:.1f} records/sec "
                f"({self._window_bytes / seconds / MIB:.2f} MB/sec), "
                f"{average:.1f} ms avg latency, {longest:.1f} ms max latency.",
                flush=True,
            )
        self._window_started, self._window, self._window_bytes = now, [], 0

    def total(self) -> None:
        """The last line."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        rows = sorted(self._latencies)
        average = sum(latency * count for latency, count in rows) / max(self.count, 1)
        longest = rows[-1][0] if rows else 0.0
        shares = [_percentile(rows, self.count, share) for share in (0.5, 0.95, 0.99, 0.999)]
        rate, mib = self.count / seconds, self._bytes / seconds / MIB
        if self._json:
            names = ("p50Ms", "p95Ms", "p99Ms", "p999Ms")
            print_json(
                {
                    "records": self.count,
                    "failed": self.failed,
                    "seconds": seconds,
                    "recordsPerSec": rate,
                    "mbPerSec": mib,
                    "avgLatencyMs": average,
                    "maxLatencyMs": longest,
                    **dict(zip(names, shares, strict=True)),
                }
            )
            return
        p50, p95, p99, p999 = (int(share) for share in shares)
        print(
            f"{self.count} records sent, {rate:.1f} records/sec ({mib:.2f} MB/sec), "
            f"{average:.2f} ms avg latency, {longest:.2f} ms max latency, "
            f"{p50} ms 50th, {p95} ms 95th, {p99} ms 99th, {p999} ms 99.9th.",
        )
        sys.stdout.flush()


def _percentile(rows: list[tuple[float, int]], count: int, share: float) -> float:
    """The latency that `share` of the records did not exceed; rows by latency."""
    target = int(share * count)
    passed = 0
    for latency, records in rows:
        passed += records
        if passed > target:
            return latency
    return rows[-1][0] if rows else 0.0
