"""One log directory in turn under Apache Kafka and under this engine, and what each saw.

    Kafka, clean stop ─► Kafka, live look-ups, clean stop ─► we, clean close ─► Kafka, clean stop
        ─► we, abandoned ─► Kafka (recovers), SIGKILL ─► we (recover), clean close ─► Kafka ─► we

Starts of a broker are what these tests cost, so that all of them watch the same five.
"""

import hashlib
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kafkalite._native import BatchBuilder, Log, LogDirectory
from kafkalite.errors import LogDirLockedError
from oracle.broker import KafkaBroker
from oracle.engine import CODECS, NOW_MS, Writer, records_of
from oracle.tools import KafkaTools, Record
from oracle.wire import produce_batch

BROKER = {
    # Look often, so that nobody waits for retention or the cleaner.
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "transaction.max.timeout.ms": "900000",
}
SMALL = {"internal.segment.bytes": "6000", "index.interval.bytes": "500"}
ALWAYS = {"retention.ms": "-1"}
TOPICS: dict[str, dict[str, str]] = {
    "codecs": ALWAYS,
    "transactions": ALWAYS | SMALL,
    "segments": ALWAYS | SMALL,
    "compacted": SMALL
    | {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "internal.segment.bytes": "3000",
    },
    "deleted": ALWAYS | SMALL,
    "retained": SMALL | {"retention.bytes": "12000", "retention.ms": "-1"},
    "append-time": ALWAYS | {"message.timestamp.type": "LogAppendTime"},
    "idempotent": ALWAYS,
    "empty": ALWAYS,
}
# Two topics that Kafka's cleaner goes over once between two copies; at a ratio of 1 it waits.
HELD = {"min.cleanable.dirty.ratio": "1"}
LET_GO = {"min.cleanable.dirty.ratio": "0"}
CLEANED: dict[str, dict[str, str]] = {
    "cleaned": {"cleanup.policy": "compact", "internal.segment.bytes": "3000"}
    | {"delete.retention.ms": "0"}
    | HELD,
    "cleaned-keeping": {"cleanup.policy": "compact", "internal.segment.bytes": "3000"} | HELD,
}
# The cleaner and retention go on working while Kafka runs; the others only grow.
STEADY = [topic for topic in TOPICS if topic not in ("compacted", "retained")]

LOOKED_UP = ["codecs", "segments", "deleted", "empty"]
# Around all that the rounds before the look-ups use.
TIMESTAMPS = range(NOW_MS - 1, NOW_MS + 320, 5)
OUR_PRODUCER = 4711
RAW_PRODUCER = 90_000
WAIT_S = 150


@dataclass
class Seen:
    """What a Java consumer got at one stage, by topic."""

    uncommitted: dict[str, list[Record]] = field(default_factory=dict)
    committed: dict[str, list[Record]] = field(default_factory=dict)
    start_offsets: dict[str, int] = field(default_factory=dict)


@dataclass(repr=False)
class Story:
    """The observations; fields are filled in the order in which they stand here."""

    broker: KafkaBroker
    tools: KafkaTools
    topic_ids: dict[str, str | None] = field(default_factory=dict)
    lookups: dict[str, dict[int, tuple[int, int, int]]] = field(default_factory=dict)
    """ListOffsets of the running Kafka: timestamp to timestamp, offset, leader epoch."""
    producers: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    refused_while_kafka_ran: Exception | None = None
    at_clean_stop: Seen = field(default_factory=Seen)
    clean_copy: Path = Path()
    why_kafka_did_not_start: str = ""
    notes_after_clean_stop: list[str] = field(default_factory=list)
    was_clean: bool = False
    our_directory_id: str | None = None
    ours: dict[str, list[Record]] = field(default_factory=dict)
    """All records per topic as our engine saw them when it closed cleanly."""
    our_epochs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    our_end_offsets: dict[str, int] = field(default_factory=dict)
    our_lookups: dict[str, dict[int, tuple[int, int, int] | None]] = field(default_factory=dict)
    our_producers: dict[str, dict[int, tuple[int, int, int]]] = field(default_factory=dict)
    kafkas_output_after_us: str = ""
    after_us: Seen = field(default_factory=Seen)
    lookups_after_us: dict[str, dict[int, tuple[int, int, int]]] = field(default_factory=dict)
    producers_after_us: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    raw_answers: dict[str, tuple[int, int]] = field(default_factory=dict)
    half_cleaned_copy: Path = Path()
    """The topics of CLEANED after one round of Kafka's cleaner, and filled again."""
    ours_abandoned: dict[str, list[Record]] = field(default_factory=dict)
    kafkas_output_after_abandon: str = ""
    after_abandon: Seen = field(default_factory=Seen)
    at_kill: Seen = field(default_factory=Seen)
    killed_copy: Path = Path()
    after_recovery: dict[str, list[Record]] = field(default_factory=dict)
    at_end: Seen = field(default_factory=Seen)
    ours_at_end: dict[str, list[Record]] = field(default_factory=dict)
    contents: list[dict[str, bytes]] = field(default_factory=list)
    """The bytes of each steady topic's segments at each change of hands."""

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def path(self) -> Path:
        return self.broker.log_dirs[0]


def tell(tools: KafkaTools, folder: Path) -> Story:
    """Plays the whole story in `folder`."""
    story = Story(KafkaBroker(tools, folder, properties=BROKER), tools)
    try:
        story.broker.start()
        _kafka_writes(story)
        story.broker.stop()
        story.broker.start()
        _kafka_writes_more_and_is_asked(story)
        story.broker.stop()
        story.clean_copy = _copy(story, "clean")
        _we_append_and_close(story)
        with _output_of(story.broker) as output:
            story.broker.start()
            story.after_us = _consume_all(story)
        story.kafkas_output_after_us = output()
        _kafka_goes_on(story)
        story.broker.stop()
        story.half_cleaned_copy = _copy(story, "half cleaned")
        _we_append_and_abandon(story)
        with _output_of(story.broker) as output:
            story.broker.start()
            story.after_abandon = _consume_all(story)
        story.kafkas_output_after_abandon = output()
        _kafka_is_killed(story)
        _we_recover_and_close(story)
        story.broker.start()
        story.at_end = _consume_all(story)
        story.broker.stop()
        _note_contents(story)
        with _our_directory(story.path) as directory:
            story.ours_at_end = _read_all(directory)
    finally:
        story.broker.kill()
    return story


def record(topic: str, value: str, at: int = 0, key: str | None = None) -> Record:
    """A record `at` ms behind the tests' time."""
    return Record(topic, value.encode(), key and key.encode(), timestamp=NOW_MS + at)


def our_configs() -> dict[str, dict[str, str]]:
    """The topics' configurations, as the engine takes them."""
    return {topic: dict(config) for topic, config in (TOPICS | CLEANED).items()}


# --- Kafka's part -----------------------------------------------------------------------------


def _kafka_writes(story: Story) -> None:
    for topic, config in (TOPICS | CLEANED).items():
        story.tools.create_topic(story.servers, topic, config=config)
    _kafka_produces(story, 0)
    _fill_what_is_cleaned(story, 0)
    for number in range(3):
        batch = _raw_batch(number)
        story.raw_answers[f"first {number}"] = produce_batch(story.servers, "idempotent", batch)
    servers, tools = story.servers, story.tools
    config = {"transactional.id": "ends"}
    steps: list[Record | str] = ["begin", record("transactions", "committed"), "commit"]
    steps += ["begin", record("transactions", "aborted"), "flush"]
    steps += [record("transactions", "aborted, too"), "abort"]
    tools.produce(servers, steps, config=config, producer="ends", close=False)


def _kafka_writes_more_and_is_asked(story: Story) -> None:
    servers, tools = story.servers, story.tools
    _kafka_produces(story, 100)
    config = {"transactional.id": "open", "transaction.timeout.ms": "900000"}
    left_open = ["begin", record("transactions", "open", 1)]
    tools.produce(servers, left_open, config=config, producer="open", close=False)
    steps: list[Record | str] = [
        "begin",
        record("transactions", "aborted behind the open"),
        "abort",
    ]
    tools.produce(servers, steps, producer="ends", close=False)
    tools.produce(servers, [record("transactions", "without a transaction", 2)])
    tools.delete_records(servers, "deleted", 30)
    _poll(lambda: tools.list_offset(servers, "retained", -2)[1] > 0)
    _poll(lambda: clean_offset(story.path, "compacted") > 100)
    story.lookups = _look_up(story)
    story.producers = {
        topic: tools.describe_producers(servers, topic) for topic in ("transactions", "idempotent")
    }
    try:
        LogDirectory.open(story.path, now_ms=NOW_MS)
    except LogDirLockedError as error:
        story.refused_while_kafka_ran = error
    story.at_clean_stop = _consume_all(story)


def _kafka_goes_on(story: Story) -> None:
    """Producers that our engine has written for are known, the open transaction ends."""
    servers, tools = story.servers, story.tools
    story.lookups_after_us = _look_up(story)
    story.producers_after_us = {
        topic: tools.describe_producers(servers, topic) for topic in ("transactions", "idempotent")
    }
    for name, sequence in (("again", 5), ("gap", 9), ("next", 6)):
        answer = produce_batch(servers, "idempotent", _raw_batch(sequence))
        story.raw_answers[name] = answer
    tools.produce(servers, [record("transactions", "open to the end"), "commit"], producer="open")
    steps: list[Record | str] = ["begin", record("transactions", "after us"), "commit"]
    tools.produce(servers, steps, producer="ends")
    _kafka_produces(story, 300)
    _let_the_cleaner_go(story)
    _fill_what_is_cleaned(story, 300)


def _kafka_is_killed(story: Story) -> None:
    _kafka_produces(story, 500)
    _let_the_cleaner_go(story)
    story.at_kill = _consume_all(story)
    story.broker.kill()
    story.killed_copy = _copy(story, "killed")


def _kafka_produces(story: Story, at: int) -> None:
    """A round of records for every topic but the empty one."""
    servers, tools = story.servers, story.tools
    draw = random.Random(at)
    for shift, codec in enumerate(CODECS):
        config = {"compression.type": codec, "linger.ms": "500"}
        steps: list[Record | str] = [
            record("codecs", f"{codec} {at} first", at + shift, "k"),
            Record(
                "codecs",
                None,
                b"tombstone",
                timestamp=NOW_MS + at,
                headers=(("a", b"1"), ("b", None), ("a", b"")),
            ),
            record("codecs", f"{codec} {at} late", at + 50 - shift),
            "flush",
            record("codecs", f"{codec} {at} alone", at + 10),
            "flush",
        ]
        for number in range(20):
            number += shift * 20
            text = f"{number} {draw.randbytes(75).hex()}"
            for topic in ("segments", "deleted", "retained"):
                steps.append(record(topic, f"{at} {text}", at + number - number % 3))
            key = None if number % 9 == 0 else f"key {number % 7}"
            value = None if number % 11 == 0 else f"{at} {text}".encode()
            if key is not None:
                steps.append(
                    Record("compacted", value, key.encode(), timestamp=NOW_MS + at + number)
                )
            if number % 4 == 3:
                steps.append("flush")
        steps.append(record("append-time", f"{codec} {at}", at))
        tools.produce(servers, steps, config=config)


def _fill_what_is_cleaned(story: Story, at: int) -> None:
    """Keys written again and again, with tombstones, headers, codecs, commits and aborts."""
    draw = random.Random(at)

    def keyed(topic: str, number: int, value: str | None = "") -> Record:
        text = None if value is None else f"{at} {number} {value} {draw.randbytes(40).hex()}"
        return Record(
            topic,
            text and text.encode(),
            f"key {number % 13}".encode(),
            timestamp=NOW_MS + at + number,
            headers=(("number", str(number).encode()), ("nothing", None)),
        )

    for topic in CLEANED:
        gone = [
            Record(topic, value, f"gone {at} {name}".encode(), timestamp=NOW_MS + at)
            for name in ("plain", "committed", "aborted")
            for value in (b"there", None)
        ]
        story.tools.produce(story.servers, gone[:2])
        for shift, codec in enumerate(CODECS):
            numbers = range(shift * 16, shift * 16 + 16)
            steps: list[Record | str] = []
            for number in numbers:
                steps.append(keyed(topic, number, None if number % 7 == 3 else codec))
                if number % 5 == 4:
                    steps.append("flush")
            config = {"compression.type": codec, "linger.ms": "500"}
            story.tools.produce(story.servers, steps, config=config)
        steps = ["begin", *(keyed(topic, 100 + number, "kept") for number in range(9)), "commit"]
        steps += ["begin", *(keyed(topic, 120 + number, "dropped") for number in range(6)), "abort"]
        steps += ["begin", *gone[2:4], keyed(topic, 131, None), "commit"]
        steps += ["begin", *gone[4:], "abort"]
        steps += ["begin", *(keyed(topic, number, "last") for number in range(200, 205)), "commit"]
        config = {"transactional.id": f"cleans {topic} {at}"}
        story.tools.produce(story.servers, steps, config=config)
        # These fill the active segment, which stays as it is.
        story.tools.produce(
            story.servers,
            [step for number in range(30) for step in (keyed(topic, number, "end"), "flush")],
        )


def _let_the_cleaner_go(story: Story) -> None:
    """Over all but the active segments of the topics that wait for it."""
    for topic in CLEANED:
        active = max(int(path.stem) for path in (story.path / f"{topic}-0").glob("*.log"))
        story.tools.alter_config(story.servers, topic, LET_GO)
        _poll(lambda topic=topic, active=active: clean_offset(story.path, topic) == active)
        story.tools.alter_config(story.servers, topic, HELD)


def clean_offset(path: Path, topic: str) -> int:
    """Up to where the cleaner says in its checkpoint that it has been; -1 for nowhere."""
    checkpoint = path / "cleaner-offset-checkpoint"
    if not checkpoint.exists():
        return -1
    rows = [line.split() for line in checkpoint.read_text().splitlines()]
    return next((int(row[2]) for row in rows if row[:2] == [topic, "0"]), -1)


def _look_up(story: Story) -> dict[str, dict[int, tuple[int, int, int]]]:
    """ListOffsets around every timestamp that the rounds use."""
    return {
        topic: {
            timestamp: story.tools.list_offset(story.servers, topic, timestamp)
            for timestamp in [-1, -2, -3, *TIMESTAMPS]
        }
        for topic in LOOKED_UP
    }


def _consume_all(story: Story) -> Seen:
    seen = Seen()
    committed = {"isolation.level": "read_committed"}
    for topic in TOPICS:
        seen.uncommitted[topic] = story.tools.consume(story.servers, topic)
        seen.committed[topic] = story.tools.consume(story.servers, topic, config=committed)
        seen.start_offsets[topic] = story.tools.list_offset(story.servers, topic, -2)[1]
    return seen


def _raw_batch(sequence: int) -> bytes:
    """One record of the idempotent producer, whose value names its sequence."""
    builder = BatchBuilder(producer_id=RAW_PRODUCER, producer_epoch=2, base_sequence=sequence)
    builder.append(NOW_MS + sequence, None, f"sequence {sequence}".encode())
    return builder.finish()


# --- our part ---------------------------------------------------------------------------------


@contextmanager
def _our_directory(path: Path) -> Iterator[LogDirectory]:
    """The directory, opened with whatever identity it has; closed as cleanly as it can be."""
    directory = LogDirectory.open(path, now_ms=NOW_MS, topic_configs=our_configs())
    try:
        yield directory
    finally:
        directory.close(directory.previous_broker_epoch or -1)


def _we_append_and_close(story: Story) -> None:
    _note_contents(story)
    with _our_directory(story.path) as directory:
        story.was_clean = directory.was_clean
        story.our_directory_id = directory.directory_id
        story.topic_ids = {log.topic: log.topic_id for log in directory.logs()}
        story.notes_after_clean_stop = [note for one in directory.loaded for note in one.notes]
        with _output_of(story.broker) as output, suppress(RuntimeError):
            story.broker.start()
        story.why_kafka_did_not_start = output()
        _we_append(directory, 200)
        story.ours = _read_all(directory)
        for topic in TOPICS:
            log = _log(directory, topic)
            story.our_epochs[topic] = log.leader_epochs()
            story.our_end_offsets[topic] = log.offsets.log_end_offset
            story.our_producers[topic] = {
                entry.producer_id: (entry.producer_epoch, entry.last_sequence, entry.last_offset)
                for entry in log.producers()
            }
        story.our_lookups = {
            topic: {
                timestamp: _log(directory, topic).offset_for_timestamp(timestamp)
                for timestamp in TIMESTAMPS
            }
            for topic in LOOKED_UP
        }
    _note_contents(story)


def _we_append_and_abandon(story: Story) -> None:
    _note_contents(story)
    directory = LogDirectory.open(story.path, now_ms=NOW_MS, topic_configs=our_configs())
    _we_append(directory, 400)
    story.ours_abandoned = _read_all(directory)
    directory.abandon()
    _note_contents(story)


def _we_recover_and_close(story: Story) -> None:
    with _our_directory(story.path) as directory:
        story.after_recovery = _read_all(directory)
        _we_append(directory, 600)
    _note_contents(story)


def _we_append(directory: LogDirectory, at: int) -> None:
    """A round of our own under the leader epoch that the log is in."""
    for topic in TOPICS:
        if topic == "empty":
            continue
        log = _log(directory, topic)
        epochs = log.leader_epochs()
        writer = Writer(log, leader_epoch=epochs[-1][0] if epochs else 0)
        for shift, codec in enumerate(CODECS):
            if topic == "compacted":
                ours = record(topic, f"{codec} {at}", at + shift, f"our key {shift}")
                writer.send([ours], codec)
                continue
            records = [
                record(topic, f"ours {at} {codec} {number}", at + shift) for number in range(9)
            ]
            records.append(Record(topic, None, b"t", headers=(("ours", None),)))
            writer.send(records, codec)
        if topic == "transactions":
            _we_append_transactions(writer, at)
        if topic == "idempotent" and at == 200:
            for sequence in range(3, 6):
                log.append(_raw_batch(sequence), now_ms=NOW_MS, leader_epoch=writer.leader_epoch)
        log.flush()


def _we_append_transactions(writer: Writer, at: int) -> None:
    for shift, commit in enumerate((True, False)):
        ids = {"producer_id": OUR_PRODUCER + shift, "producer_epoch": at // 200 - 1}
        for sequence in range(3):
            writer.send(
                [record("transactions", f"ours {at} commit={commit} {sequence}")],
                base_sequence=sequence,
                transactional=True,
                **ids,
            )
        writer.end_transaction(*ids.values(), commit=commit)


def _log(directory: LogDirectory, topic: str) -> Log:
    log = directory.log(topic, 0)
    assert log is not None, f"{topic}-0 was not loaded"
    return log


def _read_all(directory: LogDirectory) -> dict[str, list[Record]]:
    return {topic: records_of(_log(directory, topic)) for topic in TOPICS}


# --- both -------------------------------------------------------------------------------------


def _note_contents(story: Story) -> None:
    """Remembers the bytes of the segments of the topics that nothing is cleaned from."""
    story.contents.append(
        {
            topic: b"".join(
                path.read_bytes() for path in sorted((story.path / f"{topic}-0").glob("*.log"))
            )
            for topic in STEADY
        }
    )


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _copy(story: Story, name: str) -> Path:
    to = story.broker.folder / name
    shutil.copytree(story.path, to)
    return to


@contextmanager
def _output_of(broker: KafkaBroker) -> Iterator[Callable[[], str]]:
    """A function that gives what the broker has printed since the start of the block."""
    start = broker.output.stat().st_size
    yield lambda: broker.output.read_bytes()[start:].decode(errors="replace")


def _poll(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)  # pause of a poll
