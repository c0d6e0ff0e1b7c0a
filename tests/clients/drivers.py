"""Clients of other languages, each behind a small program with the same line protocol.

The program connects to a port of ours and takes one JSON object a line: `id`, `op`, the `name` of a
producer or consumer, and what the operation needs. Answers come in any order.

    producer  servers, codec, idempotent, transactional_id, …        makes `name`
    consumer  servers, topics | pattern | assign, group, …           makes `name`
    send      records                  answered once all are acknowledged
    begin, commit, abort
    offsets   offsets: [[topic, index, offset]], group               in the transaction
    poll      timeout_ms               -> records
    transformer  as producer and consumer                            makes `name`
    end       commit                   -> committed, of a transformer
    assignment                         -> partitions: [[topic, index]]
    seek      topic, partition, offset
    commit    offsets: [[topic, index, offset]], wait
    group                              -> group, to be given to `offsets`
    close

Bytes are in base64, and null is null. A failure is an answer with `error`.
"""

import base64
import itertools
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from typing import IO, Any, ClassVar

from clients import provision
from clients.neutral import (
    AUTO_COMMIT_MS,
    HEARTBEAT_MS,
    SESSION_MS,
    Client,
    Consumer,
    ConsumerOptions,
    Partition,
    Producer,
    ProducerOptions,
    Record,
    Transactional,
    Transformer,
)
from oracle.jars import OLD_CLIENT, pinned_jars
from oracle.tools import KafkaTools, java

CONNECT_S = 120
ANSWER_S = 90
TIMES = {"heartbeat_ms": HEARTBEAT_MS, "session_ms": SESSION_MS, "auto_commit_ms": AUTO_COMMIT_MS}


class Program:
    """The other end of the connection, whatever it is written in."""

    def __init__(self, start: Callable[[int], "subprocess.Popen[bytes] | None"]) -> None:
        """`start` makes the program connect to the port that it is given."""
        self._lock = threading.Lock()
        self._ids = itertools.count()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(CONNECT_S)
            self._process = start(server.getsockname()[1])
            self._connection, _ = server.accept()
        self._answers: IO[bytes] = self._connection.makefile("rb")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, op: str, name: str, **fields: Any) -> dict[str, Any]:
        future: Future[dict[str, Any]] = Future()
        number = next(self._ids)
        self._waiting[number] = future
        line = json.dumps({"id": number, "op": op, "name": name, **fields}) + "\n"
        with self._lock:
            self._connection.sendall(line.encode())
        answer = future.result(ANSWER_S)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._answers.close()
        self._connection.close()
        if self._process is not None:
            self._process.wait(60)

    def _read(self) -> None:
        for line in self._answers:
            answer = json.loads(line)
            self._waiting.pop(answer["id"]).set_result(answer)
        for future in self._waiting.values():
            future.set_exception(RuntimeError("the program has ended"))


class Driven(Client):
    """A client in a program that is started when it is first needed."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._names = map(str, itertools.count())

    def start(self, port: int) -> "subprocess.Popen[bytes] | None":
        raise NotImplementedError

    def program(self) -> Program:
        if self._program is None:
            self._program = Program(self.start)
        return self._program

    def producer(self, servers: str, options: ProducerOptions) -> Producer:
        return _Producer(self.program(), next(self._names), servers, options)

    def transactional(self, servers: str, options: ProducerOptions) -> Transactional:
        return _Transactional(self.program(), next(self._names), servers, options)

    def consumer(self, servers: str, options: ConsumerOptions) -> Consumer:
        return _Consumer(self.program(), next(self._names), servers, options)

    def close(self) -> None:
        if self._program is not None:
            self._program.close()


class FranzGo(Driven):
    name = "franz-go"

    def start(self, port: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([provision.go_driver(), str(port)])

    def transformer(
        self, servers: str, producer: ProducerOptions, consumer: ConsumerOptions
    ) -> Transformer:
        """Both in one client, which is franz-go's way to have offsets in a transaction."""
        return _Transformer(self.program(), next(self._names), servers, producer, consumer)


class KafkaJs(Driven):
    name = "kafkajs"
    lacks: ClassVar[Mapping[str, str]] = {
        "null-headers": "its producer accepts only text and bytes as the value of a header",
        "assign": "its consumers are always group members; `seek` within a group is tested",
        "commit-async": "its only commit is a promise, and the synchronous row waits for it",
        "transaction-rebalance": "it commits offsets in a transaction by the group's name alone",
        "transaction-restart": "it gives up a transaction whose connection ends",
    }

    def start(self, port: int) -> "subprocess.Popen[bytes]":
        node, script = provision.javascript_driver()
        return subprocess.Popen([node, script, str(port)])


class Java(Driven):
    name = "Java"

    def __init__(self, tools: Callable[[], KafkaTools]) -> None:
        """`tools` gives the JVM in which the client is a guest."""
        super().__init__()
        self._tools = tools

    def start(self, port: int) -> None:
        result = self._tools().run_tool("Driver", [str(port)])
        if result.exit != 0:
            raise RuntimeError(result.stderr)


class OldJava(Java):
    """A client of 2021, in a JVM of its own."""

    name = "Java 2.8"

    def start(self, port: int) -> "subprocess.Popen[bytes]":  # type: ignore[override]
        compiled, *jars = self._tools().classpath.split(os.pathsep)
        jars = [jar for jar in jars if "/org/apache/kafka/" not in jar]
        classpath = [compiled, *map(str, pinned_jars(OLD_CLIENT)), *jars]
        return subprocess.Popen(
            [*java(), "-cp", os.pathsep.join(classpath), "Driver", str(port), "alone"]
        )


class _Producer:
    def __init__(self, program: Program, name: str, servers: str, options: ProducerOptions) -> None:
        self._program = program
        self._name = name
        program.ask("producer", name, servers=servers, **asdict(options))

    def send(self, records: Sequence[Record]) -> None:
        self._program.ask("send", self._name, records=[_fields(record) for record in records])

    def close(self) -> None:
        self._program.ask("close", self._name)


class _Transactional(_Producer):
    def begin(self) -> None:
        self._program.ask("begin", self._name)

    def send_offsets(self, group: Any, offsets: Mapping[Partition, int]) -> None:
        places = [[*where, offset] for where, offset in offsets.items()]
        self._program.ask("offsets", self._name, offsets=places, group=group)

    def commit(self) -> None:
        self._program.ask("commit", self._name)

    def abort(self) -> None:
        self._program.ask("abort", self._name)


class _Consumer:
    def __init__(self, program: Program, name: str, servers: str, options: ConsumerOptions) -> None:
        self._program = program
        self._name = name
        program.ask("consumer", name, servers=servers, **asdict(options), **TIMES)

    def poll(self, timeout_s: float) -> list[Record]:
        answer = self._program.ask("poll", self._name, timeout_ms=round(timeout_s * 1000))
        return [
            Record(
                each["topic"],
                _bytes(each["value"]),
                _bytes(each["key"]),
                each["partition"],
                each["timestamp"],
                tuple((name, _bytes(value)) for name, value in each["headers"] or []),
                each["offset"],
            )
            for each in answer["records"]
        ]

    def assignment(self) -> set[Partition]:
        answer = self._program.ask("assignment", self._name)
        return {(topic, partition) for topic, partition in answer["partitions"]}

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._program.ask("seek", self._name, topic=topic, partition=partition, offset=offset)

    def commit(self, offsets: Mapping[Partition, int], *, wait: bool) -> None:
        places = [[*where, offset] for where, offset in offsets.items()]
        self._program.ask("commit", self._name, offsets=places, wait=wait)

    def group(self) -> Any:
        return self._program.ask("group", self._name)["group"]

    def close(self) -> None:
        self._program.ask("close", self._name)


class _Transformer(_Consumer):
    def __init__(
        self,
        program: Program,
        name: str,
        servers: str,
        producer: ProducerOptions,
        consumer: ConsumerOptions,
    ) -> None:
        self._program = program
        self._name = name
        options = {**asdict(producer), **asdict(consumer), **TIMES}
        program.ask("transformer", name, servers=servers, **options)

    def begin(self) -> None:
        self._program.ask("begin", self._name)

    def send(self, records: Sequence[Record]) -> None:
        self._program.ask("send", self._name, records=[_fields(record) for record in records])

    def end(self, *, commit: bool) -> bool:
        return bool(self._program.ask("end", self._name, commit=commit)["committed"])


def _fields(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
