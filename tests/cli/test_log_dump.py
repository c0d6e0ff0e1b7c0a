"""`kafkalite log dump` against Kafka's DumpLogSegments, on files that Kafka wrote."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oracle.tools import KafkaTools

pytestmark = pytest.mark.oracle

Run = Callable[..., subprocess.CompletedProcess[str]]

TOPICS = ["mixed-0", "compacted-0", "transactions-0", "__transaction_state-0"]

# Fields of a batch that both print under the same name.
SAME = [
    "baseOffset", "lastOffset", "count", "baseSequence", "lastSequence", "producerId",
    "producerEpoch", "partitionLeaderEpoch", "isTransactional", "isControl", "position", "size",
    "magic", "compresscodec", "crc", "isvalid",
]  # fmt: skip


def dump(kafkalite: Run, *arguments: str | Path) -> list[dict[str, Any]]:
    done = kafkalite("log", "dump", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def files(directory: Path, pattern: str) -> list[Path]:
    found = sorted(path for topic in TOPICS for path in (directory / topic).glob(pattern))
    assert found, pattern
    return found


def kafkas_words(value: Any) -> str:
    """A field as DumpLogSegments prints it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def test_every_batch_has_the_fields_that_kafka_shows(
    kafka_directory: Path, kafka_tools: KafkaTools, kafkalite: Run
) -> None:
    compared = 0
    for segment in files(kafka_directory, "*.log"):
        theirs = kafka_tools.dump_log(segment).batches
        ours = [row for row in dump(kafkalite, segment) if row["kind"] == "batch"]
        assert len(ours) == len(theirs)
        for our, their in zip(ours, theirs, strict=True):
            assert {name: kafkas_words(our[name]) for name in SAME} == {
                name: their[name] for name in SAME
            }
            assert str(our["maxTimestamp"]) == their[our["timestampType"]]
            horizon = re.sub(r"\D", "", their["deleteHorizonMs"]) or "None"
            assert str(our["deleteHorizonMs"]) == horizon
        compared += len(ours)
    assert compared > 100


def test_every_record_is_the_one_that_kafka_shows(
    kafka_directory: Path, kafka_tools: KafkaTools, kafkalite: Run
) -> None:
    markers = 0
    for segment in files(kafka_directory, "*.log"):
        theirs = kafka_tools.dump_log(segment).records
        rows = dump(kafkalite, "--print-data-log", "--deep-iteration", segment)
        ours = [row for row in rows if row["kind"] == "record"]
        assert [str(row["offset"]) for row in ours] == [row["offset"] for row in theirs]
        for our, their in zip(ours, theirs, strict=True):
            if "control" in our:
                markers += 1
                assert our["control"] == their["endTxnMarker"]
                assert str(our["coordinatorEpoch"]) == their["coordinatorEpoch"]
            elif isinstance(our["key"], str):
                assert our["key"] == their["key"]
            assert str(our["timestamp"]) == their.get("CreateTime", their.get("LogAppendTime"))
    assert markers == 40


def test_records_without_print_data_log_have_their_sizes(
    kafka_directory: Path, kafka_tools: KafkaTools, kafkalite: Run
) -> None:
    for segment in files(kafka_directory, "*.log"):
        theirs = kafka_tools.dump_log(segment, print_data_log=False).records
        ours = [
            row for row in dump(kafkalite, "--deep-iteration", segment) if row["kind"] == "record"
        ]
        for our, their in zip(ours, theirs, strict=True):
            assert (str(our["keySize"]), str(our["valueSize"])) == (
                their["keySize"],
                their["valueSize"],
            )


@pytest.mark.parametrize(
    ("pattern", "fields"),
    [
        ("*.index", ["offset", "position"]),
        ("*.timeindex", ["timestamp", "offset"]),
        ("*.txnindex", ["producerId", "firstOffset", "lastOffset", "lastStableOffset"]),
        ("*.snapshot", ["producerId", "producerEpoch", "coordinatorEpoch", "lastTimestamp"]),
    ],
)
def test_every_row_of_the_small_files_is_the_one_that_kafka_shows(
    kafka_directory: Path,
    kafka_tools: KafkaTools,
    kafkalite: Run,
    pattern: str,
    fields: list[str],
) -> None:
    compared = 0
    for path in files(kafka_directory, pattern):
        if path.stat().st_size == 0:
            continue
        text = kafka_tools.run_tool(
            "org.apache.kafka.tools.DumpLogSegments", ["--files", path]
        ).stdout
        theirs = [
            tuple(re.findall(r"(?:^| )(?:" + "|".join(fields) + r"): (-?\d+)", line))
            for line in text.splitlines()[1:]
        ]
        ours = [tuple(str(row[name]) for name in fields) for row in dump(kafkalite, path)]
        assert ours == theirs
        compared += len(ours)
    assert compared > 0


def test_a_partitions_folder_shows_all_of_its_files(kafka_directory: Path, kafkalite: Run) -> None:
    folder = kafka_directory / "transactions-0"
    rows = dump(kafkalite, folder)
    assert {Path(row["file"]).name for row in rows} == {
        path.name for path in folder.iterdir() if path.stat().st_size > 0
    }


def test_the_table_for_people_says_what_is_special(kafka_directory: Path, kafkalite: Run) -> None:
    told = kafkalite("log", "dump", "--deep-iteration", *files(kafka_directory, "*.log"))
    assert told.returncode == 0
    for word in ("zstd", "snappy", "transactional", "control", "COMMIT", "ABORT", "2 headers"):
        assert word in told.stdout
    assert "WRONG" not in told.stdout


def test_a_torn_segment_shows_what_is_whole_and_says_where_it_ends(
    directory: Path, kafkalite: Run
) -> None:
    segment = files(directory, "*.log")[0]
    whole = len(dump(kafkalite, segment))
    segment.write_bytes(segment.read_bytes()[:-10])
    told = kafkalite("log", "dump", "--json", segment)
    assert told.returncode == 1
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(rows) == whole
    assert rows[-1]["kind"] == "trouble"
    assert str(segment) in rows[-1]["trouble"]


def test_a_wrong_crc_is_shown_and_is_bad_news(directory: Path, kafkalite: Run) -> None:
    segment = files(directory, "*.log")[0]
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    told = kafkalite("log", "dump", segment)
    assert told.returncode == 1
    assert told.stdout.count("WRONG") == 1


@pytest.mark.parametrize("name", ["nothing-0", "00000000000000000000.log", "notes.txt", "t" * 300])
def test_what_cannot_be_shown_is_one_sentence(tmp_path: Path, kafkalite: Run, name: str) -> None:
    told = kafkalite("log", "dump", tmp_path / name)
    assert told.returncode == 1
    assert len(told.stderr.splitlines()) == 1
    assert str(tmp_path / name) in told.stderr


def test_records_of_the_metadata_are_shown_in_words_as_kafka_shows_them(
    kafkalite: Run, kafka_directory: Path, kafka_tools: KafkaTools
) -> None:
    path = next((kafka_directory / "__cluster_metadata-0").glob("*.log"))
    theirs = [
        json.loads(found)
        for found in re.findall(
            r"payload: (\{.*\})", kafka_tools.dump_log(path, decoder="cluster-metadata").text
        )
    ]
    shown = dump(kafkalite, path, "--cluster-metadata-decoder")
    ours = [line["payload"] for line in shown if "payload" in line]
    assert [each["type"] for each in ours] == [each["type"] for each in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one["version"] == other["version"]
        # Kafka leaves out tagged fields that hold their default.
        named = {name: value for name, value in other["data"].items() if value is not None}
        assert {name: one["data"][name] for name in named} == named
