"""`kafkalite log dump`: what is in the files of a log, as Kafka's DumpLogSegments shows it.

Flags are Kafka's (`--deep-iteration`, `--print-data-log`, `--files`). A table a file for people,
or with `--json` one object a line, whose fields are named as Kafka prints them. Exit code 1 if a
file holds something that is not as it should be; what could be read is shown all the same.
"""

import argparse
import base64
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafkalite._native import SegmentBatches, log_file_kind, read_log_file
from kafkalite.cli.console.terminal import (
    Progress,
    bytes_text,
    count_text,
    json_bytes,
    size_text,
    time_text,
)
from kafkalite.cli.log.places import such_as_partition
from kafkalite.cli.options import new_parser, print_error
from kafkalite.errors import CorruptFileError, InvalidArgumentError, StorageError

EXAMPLES = """
kafkalite log dump data/orders-0
kafkalite log dump --print-data-log data/orders-0/00000000000000000000.log
kafkalite log dump --json data/orders-0 | jq .
"""

# Bytes of a segment read and printed at a time.
CHUNK_BYTES = 1024 * 1024
WITH_BATCHES = ("segment", "metadata snapshot")

BATCH_TITLES = ("position", "offsets", "records", "bytes", "codec", "largest timestamp", "epoch")


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = command_line()
    if not arguments:
        parser.print_help()
        return 0
    options = parser.parse_args(arguments)
    named = [*options.paths, *(path for group in options.files for path in group.split(","))]
    if not named:
        parser.error("name a file or a partition's directory")
    is_good = True
    for path in _files(named):
        show = _Json(path) if options.json else _Tables(path)
        is_good &= _dump(path, show, options)
    return 0 if is_good else 1


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    parser = new_parser(
        "kafkalite log dump",
        "Print the contents of segments, indexes, producer snapshots and checkpoints.",
        EXAMPLES,
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="a file, or the directory of a partition"
    )
    parser.add_argument(
        "--files",
        action="append",
        default=[],
        metavar="PATH,…",
        help="the same, as Kafka's tool takes it",
    )
    parser.add_argument(
        "--deep-iteration", action="store_true", help="print records, not only batches"
    )
    parser.add_argument(
        "--print-data-log",
        action="store_true",
        help="print records with their keys, values and headers",
    )
    parser.add_argument(
        "--cluster-metadata-decoder",
        action="store_true",
        help="decode the records of __cluster_metadata",
    )
    parser.add_argument(
        "--skip-record-metadata",
        action="store_true",
        help="leave out the offsets, timestamps and sequence numbers of records",
    )
    parser.add_argument(
        "--max-bytes", type=int, metavar="N", help="stop after about N bytes of each segment"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    return parser


def _files(named: list[str]) -> Iterator[Path]:
    """The files to show: those named, and all of a folder that can be shown."""
    for name in named:
        path = Path(name)
        try:
            if not path.exists():
                raise InvalidArgumentError(f"{path}: there is no such file or directory")
            if not path.is_dir():
                yield path
                continue
            inside = sorted(file for file in path.iterdir() if log_file_kind(file.name))
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror}") from error
        if not inside:
            raise InvalidArgumentError(
                f"{path} holds no file of a Kafka log; pass a file or the directory of a "
                f"partition{such_as_partition(path)}"
            )
        if (path / "meta.properties") in inside:
            print_error(
                f"{path} is a log directory: its records are in the directories of partitions"
                f"{such_as_partition(path)}"
            )
        yield from inside


def _dump(path: Path, show: "_Tables | _Json", options: argparse.Namespace) -> bool:
    kind = log_file_kind(path.name)
    if kind not in WITH_BATCHES:
        try:
            show.file(read_log_file(path))
        except CorruptFileError as error:
            show.trouble(str(error))
            return False
        return True
    batches = SegmentBatches(path)
    show.segment(kind, batches.size)
    options.print_data_log |= options.cluster_metadata_decoder
    deep = options.deep_iteration or options.print_data_log
    is_good = True
    with Progress(str(path)) as progress:
        while options.max_bytes is None or batches.position < options.max_bytes:
            try:
                chunk = batches.next(CHUNK_BYTES, records=deep)
            except CorruptFileError as error:
                progress.clear()
                show.trouble(f"{error}; {batches.size} bytes in all")
                return False
            if not chunk:
                break
            for batch in chunk:
                is_good &= batch["isvalid"] and not batch.get("trouble")
                show.batch(batch, options)
            progress.show(batches.position, batches.size)
    return is_good


class _Json:
    """One object a line, `file` first in each."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def file(self, content: dict[str, Any]) -> None:
        for row in content.pop("rows"):
            self._line({"kind": content["kind"], **row})
        for name in ("unusedBytes", "oddBytes"):
            if content.get(name):
                self._line({"kind": content["kind"], name: content[name]})

    def segment(self, kind: str, size_bytes: int) -> None:
        self._line({"kind": kind, "sizeInBytes": size_bytes})

    def batch(self, batch: dict[str, Any], options: argparse.Namespace) -> None:
        records = batch.pop("records", [])
        self._line({"kind": "batch", **batch})
        for record in records:
            if options.cluster_metadata_decoder and "control" not in record:
                del record["key"], record["headers"]
                record["payload"] = _metadata(record.pop("value"))
            elif options.print_data_log:
                record |= {"key": json_bytes(record["key"]), "value": json_bytes(record["value"])}
                record["headers"] = [
                    [json_bytes(key), json_bytes(value)] for key, value in record["headers"]
                ]
            else:
                record |= {
                    "keySize": _length(record.pop("key")),
                    "valueSize": _length(record.pop("value")),
                    "headers": len(record["headers"]),
                }
            if options.skip_record_metadata:
                del record["offset"], record["timestamp"]
            self._line({"kind": "record", **record})

    def trouble(self, sentence: str) -> None:
        self._line({"kind": "trouble", "trouble": sentence})

    def _line(self, fields: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps({"file": self._path, **fields}) + "\n")


class _Tables:
    """For people: a heading a file, then columns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_titles = False

    def file(self, content: dict[str, Any]) -> None:
        rows = content["rows"]
        entries = count_text(len(rows), "row")
        print(f"\n{self._path}\n  {content['kind']}, {entries}")
        if rows:
            titles = [_words(name) for name in rows[0]]
            cells = [[_cell(name, value) for name, value in row.items()] for row in rows]
            widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
            for line in (titles, *cells):
                padded = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
                print("   ", "  ".join(padded))
        if content.get("unusedBytes"):
            print(f"    {size_text(content['unusedBytes'])} behind the entries are not used")
        if content.get("oddBytes"):
            print(f"    {size_text(content['oddBytes'])} at the end are no whole entry")

    def segment(self, kind: str, size_bytes: int) -> None:
        print(f"\n{self._path}\n  {kind}, {size_text(size_bytes)}")

    def batch(self, batch: dict[str, Any], options: argparse.Namespace) -> None:
        if not self._has_titles:
            print(_batch_line(BATCH_TITLES), "   CRC")
            self._has_titles = True
        first, last = batch["baseOffset"], batch["lastOffset"]
        count = batch["count"]
        cells = (
            str(batch["position"]),
            str(first) if first == last else f"{first}–{last}",
            "set" if count < 0 else str(count),
            str(batch["size"]),
            batch["compresscodec"],
            time_text(batch["maxTimestamp"]),
            str(batch["partitionLeaderEpoch"]),
        )
        print(_batch_line(cells), "  ", ", ".join(_batch_remarks(batch)))
        for record in batch.get("records", []):
            self._record(record, batch, options)
        if batch.get("trouble"):
            self.trouble(batch["trouble"])

    def _record(
        self, record: dict[str, Any], batch: dict[str, Any], options: argparse.Namespace
    ) -> None:
        parts = []
        if not options.skip_record_metadata:
            parts += [f"offset {record['offset']}", time_text(record["timestamp"])]
        if "control" in record:
            parts.append(record["control"])
            if "coordinatorEpoch" in record:
                parts.append(f"coordinator epoch {record['coordinatorEpoch']}")
        elif options.cluster_metadata_decoder:
            parts.append(json.dumps(_metadata(record["value"])))
        elif options.print_data_log:
            parts += [f"key {bytes_text(record['key'])}", f"value {bytes_text(record['value'])}"]
            headers = record["headers"]
            parts += [f"header {bytes_text(key)} = {bytes_text(value)}" for key, value in headers]
        else:
            parts.append(f"key {_length_text(record['key'])}")
            parts.append(f"value {_length_text(record['value'])}")
            if record["headers"]:
                parts.append(count_text(len(record["headers"]), "header"))
        if batch["baseSequence"] >= 0 and not options.skip_record_metadata:
            sequence = (batch["baseSequence"] + record["offset"] - batch["baseOffset"]) % 2**31
            parts.append(f"sequence {sequence}")
        print("      ", "  ".join(parts))

    def trouble(self, sentence: str) -> None:
        print(f"    !! {sentence}")


def _batch_line(cells: tuple[str, ...]) -> str:
    position, offsets, records, size, codec, timestamp, epoch = cells
    return (
        f"  {position:>10}  {offsets:>17}  {records:>7}  {size:>8}  {codec:<6}"
        f"  {timestamp:<24}  {epoch:>5}"
    )


def _batch_remarks(batch: dict[str, Any]) -> list[str]:
    """The CRC, and whatever not every batch has."""
    verdict = "ok" if batch["isvalid"] else "WRONG"
    remarks = [f"{batch['crc']:08x} {verdict}"]
    if batch["magic"] != 2:
        remarks.append(f"magic {batch['magic']}")
    if batch["timestampType"] == "LogAppendTime":
        remarks.append("log append time")
    if batch["producerId"] >= 0:
        remarks.append(f"producer {batch['producerId']} epoch {batch['producerEpoch']}")
    if batch["baseSequence"] >= 0:
        remarks.append(f"sequence {batch['baseSequence']}–{batch['lastSequence']}")
    if batch["isTransactional"]:
        remarks.append("transactional")
    if batch["isControl"]:
        remarks.append("control")
    if batch["deleteHorizonMs"] is not None:
        remarks.append(f"delete horizon {time_text(batch['deleteHorizonMs'])}")
    return remarks


def _words(name: str) -> str:
    """`currentTxnFirstOffset` as `current txn first offset`."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    return time_text(value) if name.lower().endswith("timestamp") else str(value)


def _length(value: bytes | None) -> int:
    """Kafka's length of null is -1."""
    return -1 if value is None else len(value)


def _length_text(value: bytes | None) -> str:
    return "null" if value is None else f"{len(value)} bytes"


def _metadata(value: bytes | None) -> Any:
    """A record of `__cluster_metadata` in the form of Kafka's tool: type, version, data."""
    from kafkalite.errors import KafkaliteError
    from kafkalite.metadata.records import decode

    try:
        message = decode(value or b"")
    except KafkaliteError as error:
        return {"error": str(error)}
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", message._name).upper()
    return {"type": kind, "version": value[2] if value else 0, "data": _fields(message)}


def _fields(message: Any) -> Any:
    """A message as JSON, ids as Kafka writes them."""
    if isinstance(message, list):
        return [_fields(each) for each in message]
    if isinstance(message, bytes):
        return base64.urlsafe_b64encode(message).decode().rstrip("=")
    if not hasattr(message, "_fields"):
        return message
    names = {name: "".join(map(str.title, name.split("_"))) for name in message._fields}
    return {
        camel[0].lower() + camel[1:]: _fields(getattr(message, name))
        for name, camel in names.items()
        if getattr(message, name) is not None
    }
