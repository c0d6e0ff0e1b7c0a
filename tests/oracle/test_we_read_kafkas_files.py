"""Log directories that Kafka has written, after its clean stop and after SIGKILL, open here and
hold the same records, index entries, producers and leader epochs."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite._native import Log, LogDirectory, LogVerification
from kafkalite.errors import LogDirLockedError, LogDirRefusedError
from oracle.engine import NOW_MS, batches_of, new_id, records_of, segment_files
from oracle.story import TOPICS, Story, our_configs
from oracle.tools import KafkaTools

# Whoever asks for the story first waits for all of it.
pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def clean(story: Story) -> Iterator[LogDirectory]:
    """The directory as Kafka's clean stop left it."""
    directory = opened(story.clean_copy)
    yield directory
    directory.abandon()


@pytest.fixture(scope="module")
def killed(story: Story) -> Iterator[LogDirectory]:
    """The directory as SIGKILL left it."""
    directory = opened(story.killed_copy)
    yield directory
    directory.abandon()


def opened(path: Path) -> LogDirectory:
    """A copy of the copy, so that the files stay as Kafka left them."""
    copy = path.with_name(f"{path.name} in use")
    shutil.copytree(path, copy)
    return LogDirectory.open(copy, now_ms=NOW_MS, topic_configs=our_configs())


def log_of(directory: LogDirectory, topic: str) -> Log:
    log = directory.log(topic, 0)
    assert log is not None
    return log


def test_kafkas_directory_is_taken_with_its_own_identity(story: Story) -> None:
    written = (story.clean_copy / "meta.properties").read_text()
    assert f"directory.id={story.our_directory_id}" in written
    for topic in TOPICS:
        metadata = (story.clean_copy / f"{topic}-0" / "partition.metadata").read_text()
        assert metadata.split() == ["version:", "0", "topic_id:", story.topic_ids[topic]]


def test_nothing_is_mended_after_kafkas_clean_stop(story: Story) -> None:
    assert story.was_clean
    assert story.notes_after_clean_stop == []


@pytest.mark.parametrize("copy", ["clean_copy", "half_cleaned_copy", "killed_copy", "path"])
def test_log_verify_finds_nothing_wrong_with_what_kafka_left(story: Story, copy: str) -> None:
    path: Path = getattr(story, copy)
    verification = LogVerification(path)
    findings = []
    while (found := verification.step()) is not None:
        findings += found
    assert findings == []
    summary = verification.summary()
    assert summary["partitions"] >= len(TOPICS)
    assert summary["records"] > 1000
    assert summary["wasClean"] == (copy != "killed_copy")


def test_the_directory_of_another_cluster_or_node_is_refused(story: Story) -> None:
    before = {path: path.stat().st_mtime_ns for path in story.clean_copy.rglob("*")}
    with pytest.raises(LogDirRefusedError, match=r"cluster\.id in its meta\.properties is"):
        LogDirectory.open(story.clean_copy, now_ms=NOW_MS, cluster_id=new_id())
    with pytest.raises(LogDirRefusedError, match=r"is 1, but the configuration has node\.id=2"):
        LogDirectory.open(story.clean_copy, now_ms=NOW_MS, node_id=2)
    assert {path: path.stat().st_mtime_ns for path in story.clean_copy.rglob("*")} == before


def test_we_are_refused_while_kafka_runs(story: Story) -> None:
    assert isinstance(story.refused_while_kafka_ran, LogDirLockedError)


@pytest.mark.parametrize("topic", TOPICS)
def test_records_after_a_clean_stop_are_those_of_a_java_consumer(
    story: Story, clean: LogDirectory, topic: str
) -> None:
    log, seen = log_of(clean, topic), story.at_clean_stop
    assert log.offsets.log_start_offset == seen.start_offsets[topic]
    if topic == "compacted":
        offsets = {record.offset for record in seen.uncommitted[topic]}
        assert {record.offset for record in records_of(log)} <= offsets
        return
    assert records_of(log) == seen.uncommitted[topic]
    assert records_of(log, committed=True) == seen.committed[topic]


@pytest.mark.parametrize("topic", TOPICS)
def test_records_after_a_kill_are_those_of_a_java_consumer(
    story: Story, killed: LogDirectory, topic: str
) -> None:
    assert not killed.was_clean
    log, seen = log_of(killed, topic), story.at_kill
    if topic in ("compacted", "retained"):  # the cleaner may have gone on up to the kill
        offsets = {record.offset for record in seen.uncommitted[topic]}
        assert {record.offset for record in records_of(log)} <= offsets
        return
    assert log.offsets.log_start_offset == seen.start_offsets[topic]
    assert records_of(log) == seen.uncommitted[topic]
    assert records_of(log, committed=True) == seen.committed[topic]


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("state", ["clean", "killed"])
def test_batches_and_positions_are_those_of_dump_log_segments(
    request: pytest.FixtureRequest, kafka_tools: KafkaTools, state: str, topic: str
) -> None:
    log = log_of(request.getfixturevalue(state), topic)
    found = []
    for path in segment_files(Path(log.directory)):
        if path.suffix == ".log":
            dump = kafka_tools.dump_log(path)
            found += [(int(path.stem), batch) for batch in dump.batches]
    start = log.offsets.log_start_offset
    found = [(base, batch) for base, batch in found if int(batch["lastOffset"]) >= start]
    ours = list(batches_of(log))
    assert len(ours) == len(found)
    for (segment, theirs), batch in zip(found, ours, strict=True):
        named = {
            "baseOffset": batch.base_offset,
            "lastOffset": batch.last_offset,
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "baseSequence": batch.base_sequence,
            "partitionLeaderEpoch": batch.leader_epoch,
            "isTransactional": str(batch.is_transactional).lower(),
            "isControl": str(batch.is_control).lower(),
            "size": batch.size_bytes,
            "magic": batch.magic,
            "compresscodec": batch.codec,
        }
        assert {name: theirs[name] for name in named} == {
            name: str(value) for name, value in named.items()
        }
        if batch.base_offset >= start:
            position = log.position_of(batch.last_offset)
            assert position == (segment, int(theirs["position"]))


@pytest.mark.parametrize("topic", ["codecs", "segments", "deleted", "empty"])
def test_timestamp_look_ups_are_those_of_the_running_kafka(
    story: Story, clean: LogDirectory, topic: str
) -> None:
    log = log_of(clean, topic)
    for timestamp, answer in story.lookups[topic].items():
        match timestamp:
            case -1:
                assert log.offsets.high_watermark == answer[1]
            case -2:
                assert log.offsets.log_start_offset == answer[1]
            case -3:
                assert (log.offset_of_max_timestamp() or (-1, -1, -1)) == answer
            case _:
                assert (log.offset_for_timestamp(timestamp) or (-1, -1, -1)) == answer


def test_indexes_that_we_rebuild_say_what_kafkas_say(
    story: Story, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """The index files are taken away; Kafka must like what recovery makes as well as its own. (Of
    batches without records, which its cleaner leaves, it likes no index.)"""
    copy = tmp_path / "without indexes"
    shutil.copytree(story.killed_copy, copy)
    for topic in TOPICS:
        for kind in ("index", "timeindex", "txnindex"):
            for path in (copy / f"{topic}-0").glob(f"*.{kind}"):
                path.unlink()
    directory = LogDirectory.open(copy, now_ms=NOW_MS, topic_configs=our_configs())
    directory.close()

    def findings(partition: Path, option: str) -> set[str]:
        indexes = [
            path for path in segment_files(partition) if path.suffix in (".index", ".timeindex")
        ]
        dump = kafka_tools.dump_log(
            indexes, deep_iteration=False, print_data_log=False, **{option: True}
        )
        return set(dump.findings.replace(str(partition), "").splitlines())

    for topic in TOPICS:
        assert findings(copy / f"{topic}-0", "index_sanity_check") == set()
        mistakes = findings(copy / f"{topic}-0", "verify_index_only")
        if topic == "compacted":
            mistakes -= findings(story.killed_copy / f"{topic}-0", "verify_index_only")
        assert mistakes == set()
        ours = {path.name: path.read_bytes() for path in (copy / f"{topic}-0").glob("*.txnindex")}
        theirs = {
            path.name: path.read_bytes()
            for path in (story.killed_copy / f"{topic}-0").glob("*.txnindex")
            if path.stat().st_size
        }
        assert ours == theirs


@pytest.mark.parametrize("topic", ["transactions", "idempotent"])
def test_producers_are_those_of_the_running_kafka(
    story: Story, clean: LogDirectory, topic: str
) -> None:
    ours = {
        entry.producer_id: {
            "producer_epoch": entry.producer_epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": (
                -1
                if entry.current_transaction_first_offset is None
                else entry.current_transaction_first_offset
            ),
        }
        for entry in log_of(clean, topic).producers()
    }
    assert ours == story.producers[topic]


@pytest.mark.parametrize("topic", TOPICS)
def test_leader_epochs_are_those_of_kafkas_checkpoint(
    story: Story, clean: LogDirectory, topic: str
) -> None:
    text = (story.clean_copy / f"{topic}-0" / "leader-epoch-checkpoint").read_text()
    rows = [tuple(map(int, line.split())) for line in text.splitlines()[2:]]
    log = log_of(clean, topic)
    # A leadership without a record is forgotten at a start, by Kafka's LogLoader as well.
    assert log.leader_epochs() == [row for row in rows if row[1] < log.offsets.log_end_offset]
    assert rows
