"""Kafka's tools and Java client in one resident JVM (`Oracle.java`), one per test session."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from oracle.jars import cache_folder, kafka_jars

HERE = Path(__file__).parent
SOURCES = [HERE / "Oracle.java", HERE.parent / "clients" / "java" / "Driver.java"]
LOG4J = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"

# Short-lived JVMs on two cores: the quick compiler, one collector thread, one shared arena.
JVM_FLAGS = [
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    LOG4J,
]


@dataclass(frozen=True)
class ToolResult:
    """What a command-line tool of Kafka answered."""

    exit: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Record:
    """A record as the Java client takes and gives it. `offset` and below are the broker's."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = 0
    """`None` lets the producer choose."""
    timestamp: int | None = None
    """Milliseconds since 1970; `None` lets the producer take the clock."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1
    timestamp_type: int = 0
    leader_epoch: int = -1


@dataclass(frozen=True)
class Dump:
    """The answer of `DumpLogSegments` for some files."""

    text: str
    """Everything that it printed."""
    findings: str = ""
    """What it found wrong, in its own words."""
    batches: list[dict[str, str]] = field(default_factory=list)
    """One entry a batch: Kafka's own names to Kafka's own words, as in `baseOffset`: `17`."""
    records: list[dict[str, str]] = field(default_factory=list)
    """One entry a record, with deep iteration or printing only."""


class KafkaTools:
    """Kafka's classes at hand. Calls are taken one at a time; any thread may call."""

    def __init__(self) -> None:
        jars = kafka_jars()
        self.classpath = os.pathsep.join(map(str, [_compiled(jars), *jars]))
        self._lock = threading.Lock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the JVM
        self._process = subprocess.Popen(
            [*java(), "-Doracle.log.level=error", "-cp", self.classpath, "Oracle"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the JVM. Open producers end with it, as by a crash."""
        if self._process.poll() is None:
            self._process.communicate(timeout=60)
        self._log.close()

    def run_tool(
        self, name: str, arguments: Sequence[str | Path], *, stdin: str = ""
    ) -> ToolResult:
        """Runs `main` of a class, as in `org.apache.kafka.tools.TopicCommand`."""
        told = [str(argument) for argument in arguments]
        answer = self._ask({"op": "run", "class": name, "args": told, "stdin": stdin})
        return ToolResult(answer["exit"], answer["stdout"], answer["stderr"])

    def dump_log(
        self,
        files: Path | Sequence[Path],
        *,
        deep_iteration: bool = True,
        print_data_log: bool = True,
        index_sanity_check: bool = False,
        verify_index_only: bool = False,
        decoder: str | None = None,
    ) -> Dump:
        """Kafka's `DumpLogSegments` of segments, indexes, snapshots.

        `decoder`: `offsets`, `transaction-log`, `cluster-metadata` or `share-group-state`. Raises
        `RuntimeError` if the tool fails; what it finds wrong with a file is in the findings.
        """
        paths = [files] if isinstance(files, Path) else files
        arguments: list[str | Path] = ["--files", ",".join(map(str, paths))]
        options = {
            "--deep-iteration": deep_iteration,
            "--print-data-log": print_data_log,
            "--index-sanity-check": index_sanity_check,
            "--verify-index-only": verify_index_only,
            f"--{decoder}-decoder": decoder is not None,
        }
        arguments += [option for option, wanted in options.items() if wanted]
        result = self.run_tool("org.apache.kafka.tools.DumpLogSegments", arguments)
        if result.exit != 0:
            raise RuntimeError(f"DumpLogSegments: {result.stdout}{result.stderr}")
        return _parse_dump(result)

    def produce(
        self,
        bootstrap_servers: str,
        steps: Iterable[Record | str],
        *,
        config: Mapping[str, str] | None = None,
        producer: str = "default",
        close: bool = True,
    ) -> list[int]:
        """Sends records through the Java producer; returns their offsets.

        A step is a record or one of `begin`, `commit`, `abort`, `flush`; a flush ends a batch. A
        producer with `close=False` stays under its name for later calls, its transaction open. A
        transaction that was ended has its markers in the logs.
        """
        answer = self._ask(
            {
                "op": "produce",
                "bootstrap": bootstrap_servers,
                "config": dict(config or {}),
                "producer": producer,
                "close": close,
                "steps": [_step(step) for step in steps],
            }
        )
        return list(answer["offsets"])

    def consume(
        self,
        bootstrap_servers: str,
        topic: str,
        partition: int = 0,
        *,
        start: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> list[Record]:
        """Reads from `start` (or the earliest offset) to what is the end now."""
        answer = self._ask(
            {
                "op": "consume",
                "bootstrap": bootstrap_servers,
                "topic": topic,
                "partition": partition,
                "start": start,
                "config": dict(config or {}),
            }
        )
        return [_record(topic, partition, fields) for fields in answer["records"]]

    def create_topic(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Makes a topic with one replica; returns when its partitions are led."""
        self._ask(
            {
                "op": "create_topic",
                "bootstrap": bootstrap_servers,
                "topic": topic,
                "partitions": partitions,
                "topic_config": dict(config or {}),
            }
        )

    def alter_config(self, bootstrap_servers: str, topic: str, config: Mapping[str, str]) -> None:
        """Sets a topic's configuration while it is in use."""
        self._ask(
            {
                "op": "alter_config",
                "bootstrap": bootstrap_servers,
                "topic": topic,
                "topic_config": dict(config),
            }
        )

    def delete_records(
        self, bootstrap_servers: str, topic: str, before: int, partition: int = 0
    ) -> None:
        """Moves the log start offset up to `before`."""
        self._ask(
            {
                "op": "delete_records",
                "bootstrap": bootstrap_servers,
                "topic": topic,
                "partition": partition,
                "before": before,
            }
        )

    def end_offset(self, bootstrap_servers: str, topic: str, partition: int = 0) -> int:
        """The high watermark, by ListOffsets."""
        return self.list_offset(bootstrap_servers, topic, -1, partition)[1]

    def list_offset(
        self, bootstrap_servers: str, topic: str, timestamp: int, partition: int = 0
    ) -> tuple[int, int, int]:
        """Timestamp, offset and leader epoch by ListOffsets; -1 each for none. `timestamp` may be
        -1 (latest), -2 (earliest) or -3 (the record with the largest timestamp)."""
        answer = self._ask(
            {
                "op": "list_offset",
                "bootstrap": bootstrap_servers,
                "topic": topic,
                "partition": partition,
                "timestamp": timestamp,
            }
        )
        return answer["timestamp"], answer["offset"], answer["leader_epoch"]

    def describe_producers(
        self, bootstrap_servers: str, topic: str, partition: int = 0
    ) -> dict[int, dict[str, int]]:
        """What the leader knows of each producer, by producer id."""
        answer = self._ask(
            {
                "op": "describe_producers",
                "bootstrap": bootstrap_servers,
                "topic": topic,
                "partition": partition,
            }
        )
        return {int(producer.pop("producer_id")): producer for producer in answer["producers"]}

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the JVM of Kafka's tools ended: {self._log.read().decode()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def java(options: Sequence[str] | None = None) -> list[str]:
    """The command that starts a JVM, with options for a short life unless others are given. Raises
    `RuntimeError` without a JDK."""
    found = shutil.which("java")
    if found is None:
        raise RuntimeError("java is missing: the oracle tests need a JDK 17 or newer")
    return [found, *(JVM_FLAGS if options is None else [*options, LOG4J])]


def _compiled(jars: Sequence[Path]) -> Path:
    """The folder of the compiled sources, compiled once per source and set of jars."""
    inputs = [*SOURCES, HERE / "jars.txt"]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in inputs)).hexdigest()
    folder = cache_folder() / "oracle" / digest[:16]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            target = Path(unfinished) / "classes"
            subprocess.run(
                ["javac", "-cp", os.pathsep.join(map(str, jars)), "-d", target, *SOURCES],
                check=True,
            )
            try:
                target.rename(folder)
            except OSError:
                if not folder.exists():  # else another process was first
                    raise
    return folder


def _step(step: Record | str) -> list[Any]:
    if isinstance(step, str):
        return [step]
    fields = {
        "topic": step.topic,
        "partition": step.partition,
        "timestamp": step.timestamp,
        "key": _text(step.key),
        "value": _text(step.value),
        "headers": [[key, _text(value)] for key, value in step.headers],
    }
    return ["send", fields]


def _record(topic: str, partition: int, fields: dict[str, Any]) -> Record:
    return Record(
        topic=topic,
        partition=partition,
        value=_bytes(fields["value"]),
        key=_bytes(fields["key"]),
        timestamp=fields["timestamp"],
        headers=tuple((key, _bytes(value)) for key, value in fields["headers"]),
        offset=fields["offset"],
        timestamp_type=fields["timestamp_type"],
        leader_epoch=fields["leader_epoch"],
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def _parse_dump(result: ToolResult) -> Dump:
    """Sorts the lines of a dump: `| offset: 1 …` is a record, `baseOffset: 0 …` a batch."""
    lines = result.stdout.splitlines()
    found = [line for line in lines if line.startswith("Found ") or " isvalid: false" in line]
    # Kafka 4.3.1 takes -1 for the offset before a segment and so complains of every segment but
    # the first of a log, its own included.
    told = re.sub(r"^  -1 is followed by \d+\n", "", result.stderr, flags=re.MULTILINE)
    told = re.sub(r"^Non-consecutive offsets in .*\n(?!  )", "", told, flags=re.MULTILINE)
    dump = Dump(result.stdout, "\n".join([*found, *told.splitlines()]))
    for line in lines:
        if line.startswith("| "):
            dump.records.append(_fields(line[2:]))
        elif line.startswith("baseOffset: "):
            dump.batches.append(_fields(line))
    return dump


def _fields(line: str) -> dict[str, str]:
    """`offset: 1 CreateTime: 2 payload: a b` -> names to words; `key` and `payload` end it."""
    fields: dict[str, str] = {}
    rest = line
    while rest:
        name, colon, rest = rest.partition(": ")
        if not colon:
            break
        if name == "payload":
            fields[name] = rest
            break
        if name == "key" and " payload: " in rest:
            fields[name], _, payload = rest.partition(" payload: ")
            fields["payload"] = payload
            break
        value, _, rest = rest.partition(" ")
        fields[name] = value
    return fields
