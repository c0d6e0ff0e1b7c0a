"""`kafkalite log verify`: silent about what Kafka wrote, and clear about each thing broken."""

import json
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools, Record

pytestmark = pytest.mark.oracle

Run = Callable[..., subprocess.CompletedProcess[str]]


def findings(kafkalite: Run, path: Path) -> list[str]:
    """What is found, without the directory in front; the exit code must fit it."""
    before = state(path)
    done = kafkalite("log", "verify", "--json", path)
    assert done.stderr == ""
    assert state(path) == before, "the check changed something"
    *found, summary = [json.loads(line) for line in done.stdout.splitlines()]
    assert summary["findings"] == len(found)
    assert done.returncode == (1 if found else 0)
    return [f"{os.path.relpath(row['path'], path)}: {row['finding']}" for row in found]


def state(path: Path) -> dict[str, tuple[int, int]]:
    """Names, sizes and times of all files below."""
    stats = {str(file): file.stat() for file in path.rglob("*")}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


def segments(directory: Path, topic: str) -> list[Path]:
    found = sorted((directory / topic).glob("*.log"))
    assert len(found) > 1
    return found


def test_a_directory_that_kafka_stopped_cleanly_is_clean(
    kafka_directory: Path, kafkalite: Run
) -> None:
    assert findings(kafkalite, kafka_directory) == []
    told = kafkalite("log", "verify", kafka_directory)
    assert "clean: 5 partitions" in told.stdout


def test_a_single_partition_may_be_checked(kafka_directory: Path, kafkalite: Run) -> None:
    assert findings(kafkalite, kafka_directory / "mixed-0") == []


def test_a_directory_is_clean_beside_a_living_kafka_and_after_its_kill(
    kafka_tools: KafkaTools, kafkalite: Run, tmp_path: Path
) -> None:
    with KafkaBroker(kafka_tools, tmp_path) as broker:
        servers = broker.bootstrap_servers
        kafka_tools.create_topic(servers, "busy", config={"segment.bytes": "1048576"})
        records = [Record("busy", bytes(1000)) for _ in range(3000)]
        kafka_tools.produce(servers, records)
        told = kafkalite("log", "verify", broker.log_dirs[0])
        assert told.returncode == 0, told.stdout
        assert "in use by a broker" in told.stdout
        broker.kill()
        told = kafkalite("log", "verify", broker.log_dirs[0])
        assert told.returncode == 0, told.stdout
        assert "in use" not in told.stdout


def test_a_flipped_bit_in_a_record_is_found_where_it_is(directory: Path, kafkalite: Run) -> None:
    segment = segments(directory, "mixed-0")[0]
    content = bytearray(segment.read_bytes())
    content[100] ^= 4
    segment.write_bytes(content)
    (found,) = findings(kafkalite, directory)
    assert found.startswith(f"mixed-0/{segment.name}: the CRC is not ")
    told = kafkalite("log", "verify", directory)
    assert told.stdout.startswith(f"{segment}:0: ")


def test_a_torn_tail_is_found(directory: Path, kafkalite: Run) -> None:
    segment = segments(directory, "transactions-0")[-1]
    segment.write_bytes(segment.read_bytes()[:-7])
    found = findings(kafkalite, directory)
    assert any("a batch of" in line and "has only" in line for line in found), found


def test_zeros_behind_the_last_batch_are_found(directory: Path, kafkalite: Run) -> None:
    segment = segments(directory, "mixed-0")[-1]
    with segment.open("ab") as file:
        file.write(bytes(5000))
    found = findings(kafkalite, directory)
    assert any("5000 bytes from here to the end" in line for line in found), found


def test_a_lost_segment_below_the_high_watermark_is_found(directory: Path, kafkalite: Run) -> None:
    last = segments(directory, "mixed-0")[-1]
    for path in last.parent.glob(f"{last.stem}.*"):
        path.unlink()
    found = findings(kafkalite, directory)
    assert any("records that were visible are gone" in line for line in found), found


def test_batches_out_of_order_are_found(directory: Path, kafkalite: Run) -> None:
    segment = segments(directory, "mixed-0")[0]
    content = bytearray(segment.read_bytes())
    second = 12 + int.from_bytes(content[8:12])
    content[second : second + 8] = bytes(8)  # the base offset, outside of the CRC
    segment.write_bytes(content)
    found = findings(kafkalite, directory)
    assert any("the batch starts at offset 0, not at" in line for line in found), found


def test_a_leader_epoch_that_the_checkpoint_does_not_know_is_found(
    directory: Path, kafkalite: Run
) -> None:
    segment = segments(directory, "mixed-0")[0]
    content = bytearray(segment.read_bytes())
    content[12:16] = (77).to_bytes(4)  # outside of the CRC
    segment.write_bytes(content)
    found = findings(kafkalite, directory)
    assert any("leader epoch 77, the checkpoint has epoch 0" in line for line in found), found
    assert any("leader epoch 0 after 77" in line for line in found), found


def test_an_index_entry_into_the_middle_of_a_batch_is_found(
    directory: Path, kafkalite: Run
) -> None:
    index = segments(directory, "mixed-0")[0].with_suffix(".index")
    content = bytearray(index.read_bytes())
    content[12:16] = (int.from_bytes(content[12:16]) + 1).to_bytes(4)
    index.write_bytes(content)
    (found,) = findings(kafkalite, directory)
    assert "no batch starts at byte" in found


def test_an_index_entry_with_a_wrong_offset_is_found(directory: Path, kafkalite: Run) -> None:
    index = segments(directory, "mixed-0")[0].with_suffix(".index")
    content = bytearray(index.read_bytes())
    # The last entry: another one's offset might be that of the next one then.
    content[-8:-4] = (int.from_bytes(content[-8:-4]) + 1).to_bytes(4)
    index.write_bytes(content)
    (found,) = findings(kafkalite, directory)
    assert "no batch ends at offset" in found


def test_index_entries_that_do_not_ascend_are_found(directory: Path, kafkalite: Run) -> None:
    index = segments(directory, "mixed-0")[0].with_suffix(".index")
    content = index.read_bytes()
    index.write_bytes(content[8:16] + content[:8] + content[16:])
    found = findings(kafkalite, directory)
    assert any("does not ascend" in line for line in found), found


def test_an_index_behind_the_end_of_its_segment_is_found(directory: Path, kafkalite: Run) -> None:
    index = segments(directory, "mixed-0")[-1].with_suffix(".index")
    with index.open("ab") as file:
        file.write(struct.pack(">II", 900_000, 900_000_000))
    (found,) = findings(kafkalite, directory)
    assert "is behind the last batch" in found


def test_a_time_index_with_a_wrong_timestamp_is_found(directory: Path, kafkalite: Run) -> None:
    index = segments(directory, "mixed-0")[0].with_suffix(".timeindex")
    content = bytearray(index.read_bytes())
    content[0:8] = (int.from_bytes(content[0:8]) - 1).to_bytes(8)
    index.write_bytes(content)
    (found,) = findings(kafkalite, directory)
    assert "whose batch has" in found


def test_a_closed_time_index_without_its_largest_timestamp_is_found(
    directory: Path, kafkalite: Run
) -> None:
    index = segments(directory, "mixed-0")[0].with_suffix(".timeindex")
    index.write_bytes(index.read_bytes()[: 12 * 3])
    (found,) = findings(kafkalite, directory)
    assert "the segment is closed with timestamp" in found


def test_an_aborted_transaction_without_its_marker_is_found(
    directory: Path, kafkalite: Run
) -> None:
    index = segments(directory, "transactions-0")[0].with_suffix(".txnindex")
    content = bytearray(index.read_bytes())
    content[2:10] = (12_345).to_bytes(8)
    index.write_bytes(content)
    (found,) = findings(kafkalite, directory)
    assert "is no marker of producer 12345" in found


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_file_cut_in_the_middle_of_an_entry_is_found(
    directory: Path, kafkalite: Run, suffix: str
) -> None:
    path = sorted((directory / "transactions-0").glob(f"*{suffix}"))[0]
    path.write_bytes(path.read_bytes()[:-3])
    assert any(path.name in line for line in findings(kafkalite, directory))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_found(directory: Path, kafkalite: Run, suffix: str) -> None:
    segments(directory, "mixed-0")[0].with_suffix(suffix).unlink()
    (found,) = findings(kafkalite, directory)
    assert "the file is missing" in found


def test_a_snapshot_with_a_wrong_crc_is_found(directory: Path, kafkalite: Run) -> None:
    snapshot = sorted((directory / "mixed-0").glob("*.snapshot"))[-1]
    content = bytearray(snapshot.read_bytes())
    content[-1] ^= 1
    snapshot.write_bytes(content)
    (found,) = findings(kafkalite, directory)
    assert "CRC" in found


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("replication-offset-checkpoint", "0\n2\nmixed 0 17\n"),
        ("recovery-point-offset-checkpoint", "7\n0\n"),
        ("log-start-offset-checkpoint", "0\n1\nmixed zero 17\n"),
        ("mixed-0/leader-epoch-checkpoint", "0\n1\n0 nothing\n"),
        ("mixed-0/partition.metadata", "version: 0\ntopic_id: none\n"),
    ],
)
def test_a_checkpoint_that_does_not_parse_is_found(
    directory: Path, kafkalite: Run, name: str, content: str
) -> None:
    (directory / name).write_text(content)
    assert any(line.startswith(name) for line in findings(kafkalite, directory))


def test_a_partition_without_its_topic_id_is_found(directory: Path, kafkalite: Run) -> None:
    (directory / "mixed-0" / "partition.metadata").unlink()
    (found,) = findings(kafkalite, directory)
    assert "Kafka would call this log stray" in found


def test_foreign_files_and_directories_are_found(directory: Path, kafkalite: Run) -> None:
    (directory / "notes.txt").write_text("hello")
    (directory / "photos").mkdir()
    (directory / "mixed-0-delete").mkdir()
    (directory / "mixed-0.4f6b-delete").mkdir()
    (directory / "remote-log-index-cache").mkdir()
    (directory / "mixed-0" / "core.1234").write_text("")
    assert sorted(findings(kafkalite, directory)) == [
        "mixed-0-delete: not a partition's directory: Kafka would refuse to start",
        "mixed-0/core.1234: not a file of Kafka's",
        "notes.txt: not a file of Kafka's",
        "photos: not a partition's directory: Kafka would refuse to start",
    ]


def test_a_file_with_many_findings_says_how_many_more(directory: Path, kafkalite: Run) -> None:
    index = segments(directory, "mixed-0")[0].with_suffix(".index")
    content = bytearray(index.read_bytes())
    for at in range(4, len(content), 8):
        content[at + 3] ^= 1
    index.write_bytes(content)
    found = findings(kafkalite, directory)
    assert len(found) == 21
    assert found[-1].endswith("more findings in this file")


def test_a_directory_that_is_not_kafkas_is_refused(tmp_path: Path, kafkalite: Run) -> None:
    (tmp_path / "photo.jpg").write_text("")
    told = kafkalite("log", "verify", tmp_path)
    assert told.returncode == 1
    assert told.stderr == (
        f"kafkalite: log directory {tmp_path} cannot be used: it holds neither meta.properties "
        "nor a partition's directory; pass a log directory (one of log.dirs) or a partition in it\n"
    )


def test_a_directory_too_high_is_told_what_is_below_it(directory: Path, kafkalite: Run) -> None:
    told = kafkalite("log", "verify", directory.parent)
    assert told.returncode == 1
    assert told.stderr.endswith(f" or a partition in it, such as {directory}\n")
    told = kafkalite("log", "dump", directory.parent)
    assert told.returncode == 1
    below = directory / "compacted-0"
    assert told.stderr.endswith(f"pass a file or the directory of a partition, such as {below}\n")
    # Of a log directory itself the checkpoints are printed, in which there is no record.
    told = kafkalite("log", "dump", directory)
    assert (told.returncode, "offset checkpoint" in told.stdout) == (0, True)
    assert told.stderr.endswith(f"in the directories of partitions, such as {below}\n")


def test_a_directory_of_a_future_version_is_refused(directory: Path, kafkalite: Run) -> None:
    before = state(directory)
    (directory / "meta.properties").write_text("version=9\ncluster.id=a\nnode.id=1\n")
    told = kafkalite("log", "verify", directory)
    assert told.returncode == 1
    assert len(told.stderr.splitlines()) == 1
    assert "version 9 is unknown" in told.stderr
    assert state(directory).keys() == before.keys()


def test_a_missing_directory_and_a_file_are_refused(tmp_path: Path, kafkalite: Run) -> None:
    told = kafkalite("log", "verify", tmp_path / "gone")
    assert (told.returncode, "there is no such directory" in told.stderr) == (1, True)
    (tmp_path / "file").write_text("")
    told = kafkalite("log", "verify", tmp_path / "file")
    assert (told.returncode, "it is not a directory" in told.stderr) == (1, True)


def test_checkpoints_that_kafka_has_made_but_not_filled_yet_are_clean(
    directory: Path, kafkalite: Run
) -> None:
    """A Kafka that had just started was called corrupt: its checkpoints have no byte until the
    first of them is written, and a stricter parser took that for a line cut short."""
    for name in ["replication-offset", "recovery-point-offset", "log-start-offset"]:
        (directory / f"{name}-checkpoint").write_bytes(b"")
    (directory / "cleaner-offset-checkpoint").write_bytes(b"")
    assert findings(kafkalite, directory) == []
