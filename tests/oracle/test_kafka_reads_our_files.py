"""Files that this engine writes, judged by Kafka's DumpLogSegments: not one complaint, in any of
its modes, and the same records."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafkalite._native import Log, LogDirectory
from oracle.engine import CODECS, NOW_MS, Writer, new_directory, new_id, segment_files
from oracle.tools import KafkaTools, Record

pytestmark = pytest.mark.oracle

SMALL_SEGMENTS = {"segment.bytes": "4096", "index.interval.bytes": "200"}


@dataclass
class Written:
    """One partition as it was written: which records must be found in which file."""

    path: Path
    records: list[Record]
    controls: int = 0
    first_offset: int = 0
    aborted: list[dict[str, str]] = field(default_factory=list)


def plain(value: str, at: int = 0, **fields: object) -> Record:
    """A record of a topic that the writer fills in, `at` ms behind the tests' time."""
    return Record("", value.encode(), timestamp=NOW_MS + at, **fields)  # type: ignore[arg-type]


def write_codecs(log: Log) -> Written:
    """Each codec, with headers, null keys and values, empty ones, and records out of time order."""
    writer = Writer(log)
    for at, codec in enumerate(CODECS):
        writer.send(
            [
                plain(f"value of {codec}", at, key=b"k"),
                Record("", None, key=b"tombstone", timestamp=NOW_MS - at),
                Record("", b"", key=b"", timestamp=NOW_MS + 5),
                plain("with headers", headers=(("a", b"1"), ("b", None), ("a", b"again"))),
                *(plain(f"{number} {'x' * 40}", -number) for number in range(40)),
            ],
            codec,
        )
        writer.send([plain(f"alone after {codec}", 10 + at)], codec)
    return Written(Path(log.directory), writer.records)


def write_idempotent(log: Log) -> Written:
    """Two producers, seven batches each, one sent twice; the sequence of one wraps."""
    writer = Writer(log)
    ids = {"producer_id": 7, "producer_epoch": 0}
    for sequence in range(7):
        writer.send([plain(f"7-{sequence}", sequence)], base_sequence=sequence, **ids)
    assert writer.send([plain("7-6", 6)], base_sequence=6, **ids).is_duplicate
    ids = {"producer_id": 8, "producer_epoch": 3}
    wrapping = [plain("8-a"), plain("8-b"), plain("8-c")]
    writer.send(wrapping, base_sequence=2**31 - 2, **ids)
    writer.send([plain("8-d")], base_sequence=1, **ids)
    return Written(Path(log.directory), writer.records)


def write_transactions(log: Log) -> Written:
    """Committed, aborted, interleaved, over a segment's end, with bumped epochs, one left open."""
    writer = Writer(log)

    def put(producer_id: int, sequence: int, epoch: int = 0, text: str = "") -> None:
        record = plain(f"{producer_id}-{epoch}-{sequence}{text}")
        writer.send(
            [record],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )

    put(100, 0)
    put(200, 0)
    put(100, 1)
    writer.end_transaction(100, 0, commit=True)
    put(300, 0)
    writer.end_transaction(200, 0, commit=False)
    writer.send([plain("not transactional")])
    for sequence in range(1, 30):
        put(300, sequence, text=" " + "y" * 300)
    # KIP-890: the marker's epoch is the one that the producer goes on with.
    writer.end_transaction(300, 1, commit=False, coordinator_epoch=5, version=2)
    put(300, 0, epoch=1)
    writer.end_transaction(300, 2, commit=True, coordinator_epoch=5, version=2)
    put(400, 0)
    controls = 4
    last = log.offsets.log_end_offset
    # As the engine must have counted: each record and each marker takes an offset.
    assert last == len(writer.records) + controls
    aborted = [
        {"producerId": "200", "firstOffset": "1", "lastOffset": "5", "lastStableOffset": "4"},
        {"producerId": "300", "firstOffset": "4", "lastOffset": "36", "lastStableOffset": "37"},
    ]
    return Written(Path(log.directory), writer.records, controls, aborted=aborted)


def write_segments(log: Log) -> Written:
    """Many segments with many index entries."""
    writer = Writer(log)
    for number in range(120):
        codec = CODECS[number % len(CODECS)]
        batch = [plain(f"{number}-{at} {'z' * 90}", number * 10 - at) for at in range(3)]
        writer.send(batch, codec)
        if number % 50 == 0:
            log.flush()
    assert len(log.segments()) > 3
    return Written(Path(log.directory), writer.records)


def write_epochs(log: Log) -> Written:
    """Four leaderships, one without a record."""
    writer = Writer(log)
    for epoch in (0, 1, 4):
        writer.leader_epoch = epoch
        for number in range(20):
            writer.send([plain(f"{epoch}-{number} {'e' * 100}")])
        if epoch == 1:
            log.start_leader_epoch(3)
    assert log.leader_epochs() == [(0, 0), (1, 20), (4, 40)]
    return Written(Path(log.directory), writer.records)


def write_log_append_time(log: Log) -> Written:
    """The log's time in place of the producer's."""
    writer = Writer(log)
    for number, codec in enumerate(CODECS):
        writer.send([plain("a"), plain("b")], codec, now_ms=NOW_MS + 1000 * number)
    return Written(Path(log.directory), writer.records)


def write_nothing(log: Log) -> Written:
    return Written(Path(log.directory), [])


def write_moved_start(log: Log) -> Written:
    """DeleteRecords in the middle of a segment; the segments below are gone."""
    written = write_segments(log)
    log.flush()
    log.advance_log_start_offset(200)
    assert log.delete_old_segments(now_ms=NOW_MS) > 0
    log.delete_due_files(now_ms=NOW_MS + 60_000)
    first = log.segments()[0].base_offset
    assert 0 < first <= 200
    kept = [record for record in written.records if record.offset >= first]
    return Written(written.path, kept, first_offset=first)


def write_truncated(log: Log) -> Written:
    """A follower that diverged: cut in the middle, and written on under another leader."""
    writer = Writer(log)
    for number in range(80):
        writer.send([plain(f"{number} {'t' * 200}", number)], CODECS[number % 5])
    log.flush()
    assert log.truncate_to(33, now_ms=NOW_MS)
    writer.records = writer.records[:33]
    writer.leader_epoch = 2
    for number in range(33, 50):
        writer.send([plain(f"{number} anew {'t' * 200}", number)])
    return Written(Path(log.directory), writer.records)


SCENES: dict[str, tuple[Callable[[Log], Written], dict[str, str]]] = {
    "codecs": (write_codecs, {"index.interval.bytes": "0"}),
    "idempotent": (write_idempotent, {"index.interval.bytes": "100"}),
    "transactions": (write_transactions, SMALL_SEGMENTS),
    "segments": (write_segments, SMALL_SEGMENTS),
    "epochs": (write_epochs, SMALL_SEGMENTS),
    "append-time": (write_log_append_time, {"message.timestamp.type": "LogAppendTime"}),
    "empty": (write_nothing, {}),
    "moved-start": (write_moved_start, SMALL_SEGMENTS),
    "truncated": (write_truncated, SMALL_SEGMENTS),
    "recompressed": (write_segments, SMALL_SEGMENTS | {"compression.type": "zstd"}),
    "preallocated": (write_epochs, SMALL_SEGMENTS | {"preallocate": "true"}),
}


def open_again(path: Path) -> LogDirectory:
    return LogDirectory.open(
        path, now_ms=NOW_MS, topic_configs={name: config for name, (_, config) in SCENES.items()}
    )


@pytest.fixture(scope="module", params=["after a clean stop", "after recovery"])
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Written]:
    """All scenes in one log directory, stopped cleanly, or abandoned and then recovered."""
    path = tmp_path_factory.mktemp("written")
    directory = new_directory(path)
    scenes = {}
    for name, (write, config) in SCENES.items():
        log = directory.create_log(name, 0, new_id(), now_ms=NOW_MS, config=config)
        scenes[name] = write(log)
    if request.param == "after a clean stop":
        directory.close()
        return scenes
    directory.write_checkpoints()
    for name in ("codecs", "transactions", "segments"):
        log = directory.log(name, 0)
        assert log is not None
        writer = Writer(log)
        writer.send([plain("behind the checkpoint")] * 2, "lz4")
        scenes[name].records.extend(writer.records)
    directory.abandon()
    directory = open_again(path)
    assert not directory.was_clean
    assert sum(loaded.recovered_segments for loaded in directory.loaded) >= len(SCENES)
    assert sum(loaded.truncated_bytes for loaded in directory.loaded) == 0
    directory.close()
    return scenes


@pytest.mark.parametrize("scene", SCENES)
def test_dump_log_segments_prints_our_records_and_complains_of_nothing(
    kafka_tools: KafkaTools, written: dict[str, Written], scene: str
) -> None:
    expected = written[scene]
    files = segment_files(expected.path)
    dump = kafka_tools.dump_log(files)
    assert dump.findings == ""
    # Of sequences the tool knows more than the records that went in.
    printed = [
        {name: value for name, value in found.items() if name != "sequence"}
        for found in dump.records
        if "endTxnMarker" not in found
    ]
    assert printed == [as_dumped(record) for record in expected.records]
    markers = [found for found in dump.records if "endTxnMarker" in found]
    assert len(markers) == expected.controls
    aborted = [line for line in dump.text.splitlines() if line.startswith("version: 0 ")]
    assert aborted == [
        "version: 0 " + " ".join(f"{name}: {value}" for name, value in entry.items())
        for entry in expected.aborted
    ]
    for option in ("index_sanity_check", "verify_index_only"):
        checked = kafka_tools.dump_log(
            [file for file in files if file.suffix in (".index", ".timeindex")],
            deep_iteration=False,
            print_data_log=False,
            **{option: True},
        )
        assert checked.findings == ""


@pytest.mark.parametrize(
    ("kind", "byte", "words"),
    [
        # In the CRC-32C of the first batch; in an entry's offset; in an entry's timestamp.
        ("log", 20, "isvalid: false"),
        ("index", 3, "Mismatches in"),
        ("timeindex", 7, "timestamp mismatch"),
    ],
)
def test_the_judge_complains_of_a_wrong_byte(
    kafka_tools: KafkaTools, tmp_path: Path, kind: str, byte: int, words: str
) -> None:
    directory = new_directory(tmp_path / "data")
    log = directory.create_log("wrong", 0, new_id(), now_ms=NOW_MS, config=SMALL_SEGMENTS)
    write_segments(log)
    directory.close()
    first = Path(log.directory) / f"{0:020}.{kind}"
    content = bytearray(first.read_bytes())
    content[byte] ^= 1
    first.write_bytes(content)
    dump = kafka_tools.dump_log(first, deep_iteration=False, print_data_log=False)
    assert words in dump.findings


def as_dumped(record: Record) -> dict[str, str]:
    """The fields of a record as the tool prints them."""
    time_name = ("CreateTime", "LogAppendTime")[record.timestamp_type]
    printed = {
        "offset": str(record.offset),
        time_name: str(record.timestamp),
        "keySize": str(-1 if record.key is None else len(record.key)),
        "valueSize": str(-1 if record.value is None else len(record.value)),
        "headerKeys": f"[{','.join(name for name, _ in record.headers)}]",
    }
    if record.key is not None:
        printed["key"] = record.key.decode()
    if record.value is not None:
        printed["payload"] = record.value.decode()
    return printed
