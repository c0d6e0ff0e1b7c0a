"""`kafkalite produce`: lines of the standard input, or whole files, as records.

    text    KEY SEPARATOR VALUE, with --key-separator; with --header-separator HEADERS before it
    json    an object a line: value, key, headers, partition, timestamp; what consume --json prints
    hex     as text, but each part in hexadecimal digits

The flags of kafka-console-producer do here as they do there, but for `--timeout`, which is when to
give up: `--linger` is how long a batch waits.

A line goes out within `--linger` though the next one does not come, so that it can be typed into.
"""

import argparse
import base64
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from kafkalite.cli.client_config import PRODUCE, add_server, parse
from kafkalite.cli.console.line_reader import CLASS, LineReader, Parts
from kafkalite.cli.console.terminal import Progress, count_text, size_text
from kafkalite.cli.options import (
    LONG_MAX,
    RECORD_BYTES_MAX,
    UsageError,
    int_argument,
    long_argument,
    milliseconds_argument,
    new_parser,
    print_error,
    print_json,
    read_bytes,
    require_text,
    tool_properties,
)
from kafkalite.cli.remedies import remedies
from kafkalite.client.network.wakeup import poller
from kafkalite.client.producer.driven_producer import DrivenProducer
from kafkalite.errors import KafkaliteError

EXAMPLES = """
echo hello | kafkalite produce orders
kafkalite produce orders --key-separator : < keyed.txt
kafkalite produce orders --format json --codec zstd < records.jsonl
kafkalite produce images --file photo.png --key photo.png
kafkalite produce orders --header source=cli --partition 0
kafkalite produce --topic orders --reader-property parse.key=true
"""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READ_BYTES = 1 << 16
# Settings of Kafka's producer that make no difference here, as flags of its console.
WITHOUT_EFFECT = (
    "--message-send-max-retries",
    "--retry-backoff-ms",
    "--metadata-expiry-ms",
    "--socket-buffer-size",
)

Read = Callable[[bytes], Parts]


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = command_line()
    if not arguments:
        parser.print_help()
        return 0
    options = parse(parser, arguments)
    options.topic = options.name or options.topic_flag
    if not options.topic:
        parser.error("name a topic")
    require_text(options.topic)
    fixed = [_fixed_header(text) for text in options.header]
    read = _reader(options)
    with _producer(options) as producer:
        started = time.monotonic()
        with Progress(options.topic) as progress:
            try:
                with remedies(options):
                    for parts in _records(options, read, producer):
                        _send(producer, options, parts, fixed)
                        if options.sync:
                            producer.flush()
                        progress.count(producer.sent_count, "record")
                    producer.flush()
            except KafkaliteError as error:
                progress.clear()
                print_error(error)
                _tell(producer, options, started)
                return getattr(error, "exit_code", 1)
        _tell(producer, options, started)
    return 0


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    parser = new_parser(
        "kafkalite produce",
        "Send lines from standard input, or whole files, as records. The options of "
        "kafka-console-producer work, too.",
        EXAMPLES,
    )
    parser.add_argument("name", nargs="?", metavar="TOPIC", help="the topic to produce to")
    parser.add_argument("--topic", dest="topic_flag", help=argparse.SUPPRESS)
    add_server(parser, PRODUCE)
    parser.add_argument(
        "--format",
        choices=("text", "json", "hex"),
        default="text",
        help="the format of the lines (default: text); json is what consume --format json prints",
    )
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        help="what separates key and value (default: lines have no keys)",
    )
    parser.add_argument("--key", metavar="TEXT", help="the key of all records")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="add a header to all records; NAME alone means the value null; may be repeated",
    )
    parser.add_argument(
        "--header-separator",
        metavar="TEXT",
        help="what separates headers, such as 'a:1,b:2', from the rest of a line (default: lines "
        "have no headers)",
    )
    parser.add_argument(
        "--null-marker", metavar="TEXT", help="send null instead of a key or value with this text"
    )
    parser.add_argument(
        "--partition",
        type=int_argument,
        metavar="N",
        help="send all records to this partition (default: by key)",
    )
    parser.add_argument(
        "--file",
        action="append",
        metavar="FILE",
        help="send this file as one record instead of reading lines; may be repeated",
    )
    parser.add_argument(
        "--codec", choices=CODECS, default="none", help="the compression codec (default: none)"
    )
    parser.add_argument(
        "--compression-codec",
        dest="codec",
        nargs="?",
        const="gzip",
        choices=CODECS,
        help="the same, as kafka-console-producer takes it; without a name: gzip",
    )
    parser.add_argument(
        "--level", type=int_argument, metavar="N", help="the compression level of gzip, lz4 or zstd"
    )
    parser.add_argument(
        *("--acks", "--request-required-acks"),
        choices=("all", "-1", "1", "0"),
        default="all",
        help="the replicas that must have a record before it counts as sent (default: all)",
    )
    parser.add_argument(
        "--linger",
        type=int_argument,
        default=5,
        metavar="MS",
        help="how many milliseconds to wait for more records for a batch (default: 5)",
    )
    parser.add_argument(
        *("--batch-size", "--max-partition-memory-bytes"),
        type=int_argument,
        default=16_384,
        metavar="BYTES",
        help="the size of a full batch (default: 16384)",
    )
    _add_kafkas_flags(parser)
    return parser


def _add_kafkas_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of kafka-console-producer that have no other name here."""
    parser.add_argument(
        *("--reader-property", "--property"),
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="how lines are read, as kafka-console-producer takes it: parse.key, key.separator, "
        "parse.headers, headers.delimiter, headers.separator, headers.key.separator, null.marker, "
        "ignore.error",
    )
    parser.add_argument("--reader-config", metavar="FILE", help="a file of reader properties")
    parser.add_argument("--line-reader", metavar="CLASS", default=CLASS, help=argparse.SUPPRESS)
    parser.add_argument(
        "--sync", action="store_true", help="wait for each record's response before sending more"
    )
    parser.add_argument(
        "--max-block-ms",
        type=milliseconds_argument,
        metavar="MS",
        help="how many milliseconds to wait for metadata or free memory (default: 60000)",
    )
    parser.add_argument(
        "--max-memory-bytes",
        type=int_argument,
        default=32 << 20,
        metavar="BYTES",
        help="the memory for records that are not acknowledged yet (default: 33554432)",
    )
    parser.add_argument(
        "--request-timeout-ms",
        type=milliseconds_argument,
        metavar="MS",
        help="how many milliseconds to wait for a response (default: 30000)",
    )
    for flag in WITHOUT_EFFECT:
        parser.add_argument(flag, type=long_argument, help=argparse.SUPPRESS)


def _producer(options: argparse.Namespace) -> DrivenProducer:
    """The producer that the options describe; the end of its block flushes it."""
    settings = {
        "request_bytes_max": max(1 << 20, options.batch_size),
        "request_timeout_ms": options.request_timeout_ms or min(options.timeout, 30_000),
        "buffer_bytes": options.max_memory_bytes,
        **options.client,
    }
    if options.max_block_ms is not None:
        settings["max_block_ms"] = options.max_block_ms
    return DrivenProducer(
        options.bootstrap_server,
        acks=options.acks,
        codec=options.codec,
        level=options.level,
        linger_ms=options.linger,
        batch_bytes=options.batch_size,
        delivery_timeout_ms=options.timeout,
        on_create=_tell_of_creation,
        **settings,
    )


def _tell_of_creation(sentence: str) -> None:
    """A name that is misspelt is a new topic, by a broker that makes what is not there."""
    print_error(sentence)


def _tell(producer: DrivenProducer, options: argparse.Namespace, started: float) -> None:
    seconds = time.monotonic() - started
    if options.json:
        print_json(
            {"records": producer.sent_count, "failed": producer.failed_count, "seconds": seconds}
        )
    elif sys.stderr.isatty():
        sent = count_text(producer.sent_count, "record")
        sys.stderr.write(f"{sent} in {seconds:.1f} s\n")


def _send(
    producer: DrivenProducer,
    options: argparse.Namespace,
    parts: Parts,
    fixed: list[tuple[str, bytes | None]],
) -> None:
    producer.send(
        options.topic,
        parts.value,
        parts.key,
        headers=[*fixed, *parts.headers] if parts.headers else fixed,
        partition=options.partition if parts.partition is None else parts.partition,
        timestamp_ms=parts.timestamp_ms,
    )
    if producer.first_error is not None:
        producer.flush()


# --- records --------------------------------------------------------------------------------------


def _reader(options: argparse.Namespace) -> Read:
    """Gives the function that makes a record of a line. Raises `UsageError` for options that
    contradict each other."""
    if options.line_reader not in (CLASS, CLASS.rpartition(".")[2]):
        raise UsageError(f"--line-reader {options.line_reader}: there is {CLASS} alone")
    if not options.reader_property and not options.reader_config:
        if options.format == "json":
            return _from_json
        return lambda line: _from_text(line, options)
    for name in ("key_separator", "header_separator", "null_marker"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} and --reader-property exclude each other")
    if options.format != "text":
        raise UsageError(f"--format {options.format} and --reader-property exclude each other")
    return LineReader(tool_properties(options.reader_property, options.reader_config)).read


def _records(options: argparse.Namespace, read: Read, producer: DrivenProducer) -> Iterator[Parts]:
    key = None if options.key is None else os.fsencode(options.key)
    if options.file:
        for path in options.file:
            yield Parts(read_bytes(path, RECORD_BYTES_MAX), key, [], None, None)
        return
    for number, line in enumerate(_lines(producer), 1):
        try:
            parts = read(line)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"line {number}: {error}") from error
        yield parts if key is None else parts._replace(key=key)


def _lines(producer: DrivenProducer) -> Iterator[bytes]:
    """Lines of the standard input without their ends; the producer moves on while none come."""
    stdin = sys.stdin.fileno()
    number = 1
    begun: list[bytes] = []
    begun_bytes = 0
    while data := _read(stdin, producer):
        *ended, rest = data.split(b"\n")
        for line in ended:
            yield b"".join([*begun, line]).removesuffix(b"\r")
            begun, begun_bytes = [], 0
            number += 1
        begun.append(rest)
        begun_bytes += len(rest)
        if begun_bytes > RECORD_BYTES_MAX:
            raise UsageError(
                f"line {number} has more than {size_text(RECORD_BYTES_MAX)}, and no broker takes "
                "a record of that size"
            )
    if begun_bytes:
        yield b"".join(begun).removesuffix(b"\r")


def _read(stdin: int, producer: DrivenProducer) -> bytes:
    """Reads what comes next, empty at the end."""
    while not _is_ready(stdin, producer):
        producer.poll()
    try:
        return os.read(stdin, READ_BYTES)
    except OSError as error:
        raise UsageError(f"the standard input cannot be read: {error.strerror}") from error


def _is_ready(stdin: int, producer: DrivenProducer) -> bool:
    """Waits for input, or until the producer has something to do."""
    if not producer.pending_count:
        return True  # the read waits
    wait_s = min(max(producer.next_due - time.monotonic(), 0.0), 0.1)
    found = poller([stdin, *producer.fileno_list()]).poll(1000 * wait_s)
    return any(ready == stdin for ready, _ in found)


def _fixed_header(text: str) -> tuple[str, bytes | None]:
    """A header of the command line, whose value may have anything in it, as kcat takes it."""
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"--header {text} has no name before the =")
    require_text(name)
    return name, os.fsencode(value) if equals else None


def _from_text(line: bytes, options: argparse.Namespace) -> Parts:
    decode = bytes.fromhex if options.format == "hex" else None
    headers: list[tuple[str, bytes | None]] = []
    rest, key = line, None
    if options.header_separator is not None:
        told, found, rest = rest.partition(os.fsencode(options.header_separator))
        if not found:
            raise ValueError("no header separator in it")
        headers = [_header(part) for part in told.split(b",") if part]
    if options.key_separator is not None:
        key, found, rest = rest.partition(os.fsencode(options.key_separator))
        if not found:
            raise ValueError(f"no key separator '{options.key_separator}' in it")
    marker = None if options.null_marker is None else os.fsencode(options.null_marker)

    def part(text: bytes | None) -> bytes | None:
        if text is None or text == marker:
            return None
        return text if decode is None else decode(text.decode())

    return Parts(part(rest), part(key), headers, None, None)


def _header(text: bytes) -> tuple[str, bytes | None]:
    name, colon, value = text.partition(b":")
    if not colon:
        raise ValueError(f"the header '{text.decode(errors='replace')}' has no colon")
    return name.decode(), value


def _from_json(line: bytes) -> Parts:
    fields = json.loads(line)
    if not isinstance(fields, dict) or "value" not in fields:
        raise ValueError("no JSON object with a field 'value'")
    headers = fields.get("headers") or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    partition, timestamp = fields.get("partition"), fields.get("timestamp")
    for name, number in (("partition", partition), ("timestamp", timestamp)):
        if number is not None and not isinstance(number, int):
            raise ValueError(f"'{name}' is not an integer")
    if timestamp is not None and not 0 <= timestamp <= LONG_MAX:
        raise ValueError(f"'timestamp' {timestamp} is not a time in milliseconds since 1970")
    return Parts(
        _json_bytes(fields["value"]),
        _json_bytes(fields.get("key")),
        [(str(name), _json_bytes(value)) for name, value in pairs],
        partition,
        timestamp,
    )


def _json_bytes(value: Any) -> bytes | None:
    """Text as it is, {"base64": …} and {"hex": …} as bytes, anything else as JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"]:
        return base64.b64decode(value["base64"], validate=True)
    if isinstance(value, dict) and list(value) == ["hex"]:
        return bytes.fromhex(value["hex"])
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
