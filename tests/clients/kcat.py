"""kcat (once kafkacat), as Debian packs it: a process a call to send, and one a consumer."""

import itertools
import json
import queue
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from clients.librdkafka import consumer_config, producer_config
from clients.neutral import (
    TRANSACTIONS,
    Client,
    Consumer,
    ConsumerOptions,
    Partition,
    Producer,
    ProducerOptions,
    Record,
)

# Between records, and between key and value: bytes that no test has in either.
RECORD_END, KEY_END = b"\x1e", b"\x1f"


class Kcat(Client):
    name = "kcat"
    lacks: ClassVar[Mapping[str, str]] = {
        "timestamps": "it has no option for the timestamp of a record",
        "seek": "it reads forward until it ends",
        "commit-sync": "it only commits automatically",
        "commit-async": "it only commits automatically",
        **dict.fromkeys(TRANSACTIONS, "it makes all of its input one transaction"),
    }

    def producer(self, servers: str, options: ProducerOptions) -> Producer:
        return _Producer(servers, options)

    def consumer(self, servers: str, options: ConsumerOptions) -> Consumer:
        return _Consumer(servers, options)


def _command(config: Mapping[str, str | int | bool]) -> list[str]:
    """With every setting as `-X`; booleans as librdkafka reads them."""
    command = [shutil.which("kcat") or "kcat", "-E"]
    for name, value in config.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        command += ["-X", f"{name}={text}"]
    return command


class _Producer:
    def __init__(self, servers: str, options: ProducerOptions) -> None:
        self._command = _command(producer_config(servers, options))

    def send(self, records: Sequence[Record]) -> None:
        def sort(record: Record) -> tuple[Any, ...]:
            return record.topic, record.partition, record.headers, record.value is None

        # What records have in common is a command; the order stays.
        for (topic, partition, headers, is_tombstone), group in itertools.groupby(records, sort):
            command = [*self._command, "-P", "-t", topic, "-D", r"\x1e", "-K", r"\x1f"]
            command += ["-p", str(partition)] if partition is not None else []
            command += ["-Z"] if is_tombstone else []
            for name, value in headers:
                command += ["-H", name if value is None else f"{name}={value.decode()}"]
            lines = [
                (b"" if record.key is None else record.key + KEY_END) + (record.value or b"")
                for record in group
            ]
            text = b"".join(line + RECORD_END for line in lines)
            done = subprocess.run(command, input=text, capture_output=True, timeout=90)
            if done.returncode != 0:
                raise RuntimeError(done.stderr.decode())

    def close(self) -> None:
        pass


class _Consumer:
    """A process a partition of `assign`, or one for a group."""

    def __init__(self, servers: str, options: ConsumerOptions) -> None:
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the consumer
        # kcat stores an offset before it prints the record, and commits it while it is closed.
        command = [*_command(consumer_config(servers, options)), "-J", "-u"]
        if options.assign:
            commands = [
                [*command, "-C", "-t", topic, "-p", str(partition), "-o", str(offset)]
                for topic, partition, offset in options.assign
            ]
        else:
            topics = [options.pattern] if options.pattern else options.topics
            commands = [[*command, "-G", str(options.group), *topics]]
        self._processes = [
            subprocess.Popen(each, stdout=subprocess.PIPE, stderr=self._errors) for each in commands
        ]
        self._threads = [
            threading.Thread(target=self._read, args=(process,), daemon=True)
            for process in self._processes
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line)

    def poll(self, timeout_s: float) -> list[Record]:
        found = []
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                left = 0 if found else max(0.0, deadline - time.monotonic())
                found.append(_record(json.loads(self._lines.get(timeout=left))))
            except queue.Empty:
                break
        ended = [process.returncode for process in self._processes if process.poll() is not None]
        if ended and not found:
            raise RuntimeError(f"kcat ended with {ended}: {self._told()}")
        return found

    def _told(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode()

    def assignment(self) -> set[Partition]:
        """As its last line about a rebalance says."""
        told = re.findall(r"^% Group .* rebalanced .*: (\w+): ?(.*)$", self._told(), re.MULTILINE)
        if not told or told[-1][0] != "assigned":
            return set()
        return {(name, int(index)) for name, index in re.findall(r"(\S+) \[(\d+)\]", told[-1][1])}

    def seek(self, topic: str, partition: int, offset: int) -> None:
        raise NotImplementedError

    def commit(self, offsets: Mapping[Partition, int], *, wait: bool) -> None:
        raise NotImplementedError

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process, thread in zip(self._processes, self._threads, strict=True):
            process.wait(60)
            thread.join()
            assert process.stdout is not None
            process.stdout.close()
        self._errors.close()


def _record(message: dict[str, Any]) -> Record:
    def data(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    headers = message.get("headers", [])
    return Record(
        message["topic"],
        data(message["payload"]),
        data(message["key"]),
        message["partition"],
        message["ts"],
        tuple((name, data(value)) for name, value in zip(headers[::2], headers[1::2], strict=True)),
        message["offset"],
    )
