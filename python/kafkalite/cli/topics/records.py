"""`kafkalite topics delete-records`: deletes the first records of partitions, as
kafka-delete-records, whose file it takes."""

import argparse

from kafkalite.cli.actions import Actions
from kafkalite.cli.client_config import client_of
from kafkalite.cli.options import (
    UsageError,
    decimal,
    int_argument,
    names_of,
    print_error,
    print_json,
    read_json,
)
from kafkalite.client.admin import Admin
from kafkalite.client.arguments import text, whole
from kafkalite.errors import BrokerError

HIGH_WATERMARK = -1
"""Before it are all records (`DeleteRecordsRequest.HIGH_WATERMARK`)."""


def add(actions: Actions) -> None:
    """Adds the action to `kafkalite topics`."""
    parser = actions.add(
        "delete-records", _delete_records, "delete the records of a topic before an offset"
    )
    parser.add_argument("names", nargs="?", metavar="TOPIC", help="the topic")
    parser.add_argument("--topic", action="append", help=argparse.SUPPRESS)
    parser.add_argument(
        "--before",
        type=_offset,
        metavar="OFFSET",
        help="the first offset to keep; latest deletes all records",
    )
    parser.add_argument(
        "--partition",
        type=int_argument,
        metavar="N",
        help="delete from this partition only (default: all partitions)",
    )
    parser.add_argument(
        "--offset-json-file",
        metavar="FILE",
        help='a file with partitions and offsets instead: {"partitions": [{"topic": "orders", '
        '"partition": 0, "offset": 5}]}',
    )


def _offset(word: str) -> int:
    found = HIGH_WATERMARK if word == "latest" else decimal(word)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{word}' is neither an offset nor latest")
    return found


def _delete_records(options: argparse.Namespace) -> int:
    asked = _from_file(options)
    code = 0
    with client_of(Admin, options) as admin:
        offsets = _of_topic(admin, options) if asked is None else asked
        if not options.json:
            print("Executing records delete operation")
            print("Records delete operation completed:")
        for (topic, partition), offset in sorted(offsets.items()):
            # One by one: a partition that is refused does not hide what became of the others.
            try:
                found = admin.delete_records({(topic, partition): offset})
            except BrokerError as error:
                print_error(error)
                code = 1
                continue
            low_watermark = found[topic, partition]
            if options.json:
                print_json({"topic": topic, "partition": partition, "lowWatermark": low_watermark})
            else:
                print(f"partition: {topic}-{partition}\tlow_watermark: {low_watermark}")
    return code


def _of_topic(admin: Admin, options: argparse.Namespace) -> dict[tuple[str, int], int]:
    (topic,) = names_of([options.names] if options.names else [], options.topic)
    if options.partition is not None:
        return {(topic, options.partition): options.before}
    (described,) = admin.describe_topics(topic)
    return {(topic, each.partition): options.before for each in described.partitions}


def _from_file(options: argparse.Namespace) -> dict[tuple[str, int], int] | None:
    """The offsets that the file says; None if the command line says them."""
    names = names_of([options.names] if options.names else [], options.topic)
    path = options.offset_json_file
    if path is None:
        if len(names) != 1 or options.before is None:
            raise UsageError("name a topic and --before, or an --offset-json-file")
        return None
    if names or options.before is not None or options.partition is not None:
        raise UsageError("an --offset-json-file names topics, partitions and offsets by itself")
    try:
        rows = read_json(path)["partitions"]
        # As Kafka's tool: 5.9 is no offset, nor is "5".
        places = [
            (
                (text("topic", row["topic"]), whole("partition", row["partition"])),
                whole("offset", row["offset"], HIGH_WATERMARK),
            )
            for row in rows
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f'{path} is not of the form {{"partitions": [{{"topic": "orders", "partition": 0, '
            f'"offset": 5}}]}}: {error!r}'
        ) from error
    offsets = dict(places)
    if len(offsets) < len(places):
        raise UsageError(f"{path} names a partition twice")
    return offsets
