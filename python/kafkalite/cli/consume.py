"""`kafkalite consume`: prints records, up to the end of the partitions, or on and on.

    value       the value                                   key-value   key, tab, value
    json        an object a line, which `produce --format json` takes
    hex         the value in hexadecimal digits
    a template  --template '%t[%p]@%o %k=%s\\n'

    %t topic   %p partition   %o offset   %k key   %s value   %h headers   %T timestamp (ms)
    %D timestamp as a date   %K %S bytes of key, of value (-1: null)   %% percent   \\n \\t \\\\

kafka-console-consumer's flags do here as they do there; `console/formatter.py` has its properties.
"""

import argparse
import json
import os
import re
import sys
import time

from kafkalite.cli.client_config import CONSUME, add_server, consumer_settings, parse
from kafkalite.cli.console.formatter import TIMESTAMP_TYPES, Print, formatter
from kafkalite.cli.console.terminal import json_bytes, time_text
from kafkalite.cli.groups.reset import parse_datetime
from kafkalite.cli.options import (
    UsageError,
    decimal,
    int_argument,
    new_parser,
    print_error,
    regular_expression,
    require_text,
    terminable,
    tool_properties,
)
from kafkalite.cli.remedies import remedies
from kafkalite.client.admin import EARLIEST, LATEST, Admin
from kafkalite.client.consumer.consumer import Consumer
from kafkalite.client.consumer.fetched import Fetched, Row
from kafkalite.errors import KafkaliteError

EXAMPLES = """
kafkalite consume orders --from-beginning
kafkalite consume orders --follow
kafkalite consume orders --partition 0 --offset 17 --max-messages 1 --format json
kafkalite consume orders --group billing --format key-value
kafkalite consume orders --from-beginning --template '%p:%o %k=%s\\n'
kafkalite consume orders --since 2026-11-21T06:00:00.000
kafkalite consume --topic orders --formatter-property print.key=true
"""

DESCRIPTION = """Print the records of topics. Prints new records until Ctrl-C; with
--from-beginning, --offset or --since, prints the records that exist and exits, unless --follow,
--group or --include is given. The options of kafka-console-consumer work, too."""

TEMPLATE_HELP = (
    "what is printed of a record, instead of --format: %%t topic, %%p partition, %%o offset, "
    "%%k key, %%s value, %%h headers, %%T timestamp (ms), %%D timestamp as a date, %%K and %%S "
    "size of key and value in bytes (-1: null), %%%% percent, \\n, \\t"
)

Partition = tuple[str, int]


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = command_line()
    if not arguments:
        parser.print_help()
        return 0
    options = parse(parser, arguments)
    options.topic = options.name or options.topic_flag
    if bool(options.topic) == bool(options.include):
        parser.error("name a topic, or several by --include")
    own = (options.partition, options.offset, options.since)
    if (options.group or options.include) and own != (None, None, None):
        parser.error("a --group, as an --include, has its own partitions and offsets")
    if options.offset is not None and options.partition is None:
        parser.error("--offset needs a --partition")
    require_text(options.topic or "", options.group or "")
    to_bytes = _printer(options)
    wanted = regular_expression(options.include) if options.include else [options.topic]
    if options.group_instance_id is not None:
        options.client["instance_id"] = options.group_instance_id
    if options.include and not options.group:
        # As Kafka's tool: a group of its own notices topics to come, and leaves nothing behind.
        options.group = f"console-consumer-{os.urandom(4).hex()}"
        options.client["auto_commit_interval_ms"] = None
    with (
        terminable(),
        remedies(options),
        Consumer(
            options.bootstrap_server,
            isolation=options.isolation_level.replace("-", "_"),
            offset_reset="earliest" if options.from_beginning else "latest",
            partition_bytes_max=options.max_partition_fetch_bytes,
            timeout_ms=options.timeout,
            **consumer_settings(options, options.group),
        ) as consumer,
    ):
        ends = None
        if options.group:
            consumer.subscribe(wanted)
        else:
            starts = _starts(consumer, options)
            consumer.assign(starts)
            if not options.follow:
                ends = _ends(consumer, list(starts))
        return _print(consumer, options, to_bytes, ends)


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    parser = new_parser(
        "kafkalite consume",
        DESCRIPTION,
        EXAMPLES,
    )
    parser.add_argument("name", nargs="?", metavar="TOPIC", help="the topic to consume")
    parser.add_argument("--topic", dest="topic_flag", help=argparse.SUPPRESS)
    parser.add_argument("--include", metavar="REGEX", help="consume all topics whose names match")
    add_server(parser, CONSUME)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--from-beginning",
        action="store_true",
        help="start at the beginning of the log (default: at its end)",
    )
    where.add_argument(
        "--offset",
        metavar="N",
        help="start at an offset, earliest, latest, or -N for N records before the end; needs "
        "--partition",
    )
    where.add_argument(
        "--since",
        metavar="TIME",
        help="start at the first record at or after this time: YYYY-MM-DDTHH:mm:ss.sss, in UTC "
        "unless a zone (Z, +02:00) follows",
    )
    parser.add_argument("--partition", type=int, metavar="N", help="consume only this partition")
    parser.add_argument(
        "--group", metavar="NAME", help="consume as a member of this group, and commit offsets"
    )
    parser.add_argument(
        "--group-instance-id", metavar="ID", help="be a static member of the group, with this id"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="wait for new records at the end of the log",
    )
    parser.add_argument(
        "--max-messages", type=int, metavar="N", help="stop after N records (default: no limit)"
    )
    parser.add_argument(
        "--timeout-ms",
        type=int,
        metavar="MS",
        help="stop if no record arrives for this many milliseconds (default: no limit)",
    )
    parser.add_argument(
        "--format",
        choices=("value", "key-value", "json", "hex"),
        default="value",
        help="what is printed of a record (default: value)",
    )
    parser.add_argument("--template", metavar="TEXT", help=TEMPLATE_HELP)
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed", "read-uncommitted", "read-committed"),
        default="read_uncommitted",
        metavar="LEVEL",
        help="read_uncommitted (the default) includes records of open and aborted transactions; "
        "read_committed leaves them out",
    )
    parser.add_argument(
        "--max-partition-fetch-bytes", type=int_argument, default=1 << 20, help=argparse.SUPPRESS
    )
    _add_formatter(parser)
    return parser


def _add_formatter(parser: argparse.ArgumentParser) -> None:
    """How kafka-console-consumer is told to print."""
    parser.add_argument(
        *("--formatter-property", "--property"),
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="what is printed, as kafka-console-consumer takes it: print.timestamp, .partition, "
        ".offset, .headers, .key, .value, key.separator, line.separator, headers.separator, "
        "null.literal, key.deserializer, value.deserializer, headers.deserializer",
    )
    parser.add_argument("--formatter-config", metavar="FILE", help="a file of formatter properties")
    parser.add_argument("--formatter", metavar="CLASS", help=argparse.SUPPRESS)
    parser.add_argument("--key-deserializer", metavar="CLASS", help=argparse.SUPPRESS)
    parser.add_argument("--value-deserializer", metavar="CLASS", help=argparse.SUPPRESS)
    parser.add_argument(
        "--skip-message-on-error",
        action="store_true",
        help="skip records that the deserializer cannot read",
    )


# --- where to begin and end -----------------------------------------------------------------------


def _starts(consumer: Consumer, options: argparse.Namespace) -> dict[Partition, int]:
    """The offset to begin at of each partition."""
    topic = consumer.cluster.topic(options.topic)
    numbers = list(topic.partitions)
    if options.partition is not None:
        if options.partition not in topic.partitions:
            raise UsageError(f"topic '{options.topic}' has no partition {options.partition}")
        numbers = [options.partition]
    places = [(options.topic, number) for number in numbers]
    admin = Admin(consumer.cluster)
    if options.since is not None:
        listed = admin.list_offsets(dict.fromkeys(places, parse_datetime(options.since)))
        return {
            place: found.offset if found.offset >= 0 else LATEST for place, found in listed.items()
        }
    kind = EARLIEST if options.from_beginning else LATEST
    if options.offset is not None:
        text = options.offset
        offset = decimal(text)
        if offset is not None:
            return {place: _begin(admin, place, offset, options) for place in places}
        back = decimal(text[1:])
        if text.startswith("-") and back is not None:
            ends = admin.list_offsets(dict.fromkeys(places, LATEST))
            first = admin.list_offsets(dict.fromkeys(places, EARLIEST))
            return {
                place: max(end.offset - back, first[place].offset) for place, end in ends.items()
            }
        if text not in ("earliest", "latest"):
            raise UsageError(f"--offset {text} is neither a number nor earliest nor latest")
        kind = EARLIEST if text == "earliest" else LATEST
    listed = admin.list_offsets(dict.fromkeys(places, kind))
    starts = {place: found.offset for place, found in listed.items()}
    if kind == LATEST:
        options.follow = True
    return starts


def _begin(admin: Admin, place: Partition, offset: int, options: argparse.Namespace) -> int:
    """The offset that is asked for. One outside of the log is its end, as for Kafka's console
    consumer, which does not say so."""
    first, last = (admin.list_offsets({place: kind})[place].offset for kind in (EARLIEST, LATEST))
    if first <= offset <= last:
        return offset
    what = "only what comes from now on is read" if options.follow else "there is nothing to read"
    print_error(
        f"offset {offset} is outside the log of {place[0]}-{place[1]}, which is {first} to {last}: "
        f"{what}"
    )
    return last


def _ends(consumer: Consumer, places: list[Partition]) -> dict[Partition, int]:
    """Where each partition ends now."""
    is_committed = consumer.isolation == "read_committed"
    listed = Admin(consumer.cluster).list_offsets(
        dict.fromkeys(places, LATEST), committed=is_committed
    )
    return {place: found.offset for place, found in listed.items()}


# --- printing -------------------------------------------------------------------------------------


def _print(
    consumer: Consumer,
    options: argparse.Namespace,
    to_bytes: Print,
    ends: dict[Partition, int] | None,
) -> int:
    left = None if options.max_messages == -1 else options.max_messages
    output = sys.stdout.buffer
    heard = time.monotonic()
    while left is None or left > 0:
        if ends is not None and all(consumer.position(place) >= end for place, end in ends.items()):
            break
        printed: list[tuple[Partition, int]] = []
        failure = None
        for fetched in consumer.fetch(500):
            place = (fetched.topic, fetched.partition)
            rows, end = _rows(fetched, None if ends is None else ends[place], left)
            if rows:
                heard = time.monotonic()
            texts, failure = _texts(place, rows, to_bytes, skip=options.skip_message_on_error)
            output.write(b"".join(texts))
            printed.append((place, end if failure is None else rows[len(texts)][0]))
            left = left if left is None else left - len(rows)
            if failure is not None:
                break
        output.flush()
        # Not before: what had no room where it was to go is not committed.
        for place, end in printed:
            consumer.advance(place, end)
        if failure is not None:
            raise failure
        silent_ms = (time.monotonic() - heard) * 1000
        if options.timeout_ms is not None and 0 <= options.timeout_ms <= silent_ms:
            sys.stderr.write(f"kafkalite: no record came for {options.timeout_ms} ms\n")
            return 1
    return 0


def _rows(fetched: Fetched, stop: int | None, left: int | None) -> tuple[list[Row], int]:
    """The rows below an offset, at most `left`, and the offset after them."""
    rows, end = fetched.rows()
    if stop is not None:
        rows = [row for row in rows if row[0] < stop]
    if left is not None and len(rows) > left:
        rows = rows[:left]
        end = rows[-1][0] + 1 if rows else fetched.offset
    return rows, end


def _texts(
    place: Partition, rows: list[Row], to_bytes: Print, *, skip: bool
) -> tuple[list[bytes], KafkaliteError | None]:
    """The bytes of each record, up to one that cannot be printed, and what is to be said of it."""
    texts: list[bytes] = []
    for row in rows:
        try:
            text = to_bytes(*place, row)
        except ValueError as error:
            sentence = f"offset {row[0]} of {place[0]}-{place[1]}: {error}"
            if not skip:
                return texts, KafkaliteError(sentence)
            print_error(f"skipped: {sentence}")
            text = b""
        texts.append(text)
    return texts, None


def _printer(options: argparse.Namespace) -> Print:
    """Raises `UsageError` for options that contradict each other."""
    properties = tool_properties(options.formatter_property, options.formatter_config)
    for field in ("key", "value"):
        name = getattr(options, f"{field}_deserializer")
        if name:
            properties.setdefault(f"{field}.deserializer", name)
    if properties or options.formatter is not None:
        if options.json or options.format != "value" or options.template is not None:
            raise UsageError("--formatter-property excludes --format, --json and --template")
        return formatter(options.formatter, properties)
    if options.template is not None:
        return _template(options.template)
    kind = "json" if options.json else options.format
    return {"value": _value, "key-value": _key_value, "json": _json, "hex": _hex}[kind]


def _value(topic: str, partition: int, row: Row) -> bytes:
    del topic, partition
    return (b"null" if row[4] is None else row[4]) + b"\n"


def _key_value(topic: str, partition: int, row: Row) -> bytes:
    key = b"null" if row[3] is None else row[3]
    return key + b"\t" + _value(topic, partition, row)


def _hex(topic: str, partition: int, row: Row) -> bytes:
    del topic, partition
    return (b"null" if row[4] is None else row[4].hex().encode()) + b"\n"


def _json(topic: str, partition: int, row: Row) -> bytes:
    offset, timestamp, timestamp_type, key, value, headers = row
    fields = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": None if timestamp < 0 else timestamp,
        "timestampType": TIMESTAMP_TYPES.get(timestamp_type),
        "key": json_bytes(key),
        "value": json_bytes(value),
        "headers": [
            [name.decode("utf-8", "replace"), json_bytes(content)] for name, content in headers
        ],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _headers(row: Row) -> bytes:
    if not row[5]:
        return b"NO_HEADERS"
    return b",".join(
        name + b":" + (b"null" if content is None else content) for name, content in row[5]
    )


def _length(value: bytes | None) -> bytes:
    return str(-1 if value is None else len(value)).encode()


PLACEHOLDERS: dict[str, Print] = {
    "t": lambda topic, _, row: topic.encode(),  # noqa: ARG005
    "p": lambda _, partition, row: str(partition).encode(),  # noqa: ARG005
    "o": lambda _, partition, row: str(row[0]).encode(),  # noqa: ARG005
    "k": lambda _, partition, row: b"null" if row[3] is None else row[3],  # noqa: ARG005
    "s": lambda _, partition, row: b"null" if row[4] is None else row[4],  # noqa: ARG005
    "K": lambda _, partition, row: _length(row[3]),  # noqa: ARG005
    "S": lambda _, partition, row: _length(row[4]),  # noqa: ARG005
    "h": lambda _, partition, row: _headers(row),  # noqa: ARG005
    "T": lambda _, partition, row: str(row[1]).encode(),  # noqa: ARG005
    "D": lambda _, partition, row: time_text(row[1]).encode(),  # noqa: ARG005
    "%": lambda _, partition, row: b"%",  # noqa: ARG005
}
ESCAPES = {"n": b"\n", "t": b"\t", "\\": b"\\", "0": b"\0", "r": b"\r"}


def _template(text: str) -> Print:
    """A function for a template. Raises `UsageError` for a letter without meaning."""
    pieces: list[Print] = []
    for part in re.findall(r"%.?|\\.?|[^%\\]+", text, re.DOTALL):
        if part.startswith("%"):
            piece = PLACEHOLDERS.get(part[1:])
            if piece is None:
                known = " ".join(f"%{letter}" for letter in PLACEHOLDERS)
                raise UsageError(f"'{part}' in the template has no meaning: there is {known}")
            pieces.append(piece)
        else:
            literal = ESCAPES.get(part[1:]) if part.startswith("\\") else os.fsencode(part)
            if literal is None:
                raise UsageError(f"'{part}' in the template has no meaning")
            pieces.append(_literal(literal))

    def print_row(topic: str, partition: int, row: Row) -> bytes:
        return b"".join([piece(topic, partition, row) for piece in pieces])

    return print_row


def _literal(text: bytes) -> Print:
    def print_text(topic: str, partition: int, row: Row) -> bytes:
        del topic, partition, row
        return text

    return print_text
