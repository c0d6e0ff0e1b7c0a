"""A source that is fed, workers that copy it in transactions, and a reader of what is committed,
which goes on through every fault: the history of `check_copies`.
"""

import math
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewTopic

from faults.copier import HEADER, Names
from faults.verify import FINAL, Operation, Outcome
from faults.workload import (
    CLIENT,
    CONSUMER,
    DELIVERY_TIMEOUT_MS,
    Recorder,
    Workload,
    make_admin,
)

PARTITIONS = 12
WORKERS = 2
READER = "committed reader"
BACKLOG_MAX = 1_500
"""So many records wait for being copied, at most."""
TRANSACTIONAL = {
    **CONSUMER,
    "group.id": "none",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
}


class Copying(Workload):
    """All of it, from `with` to `drain`."""

    def __init__(
        self,
        servers: str,
        recorder: Recorder,
        seed: int,
        folder: Path,
        run: str,
        *,
        replicas: int = 1,
        patience_s: float = math.inf,
    ) -> None:
        """The names of topics and group are those of `run`. While nothing was copied for
        `patience_s`, workers are killed, and come again: librdkafka waits for ever where a
        coordinator has moved at an unlucky moment, also Kafka's."""
        super().__init__(servers, recorder, seed, (), replicas=replicas)
        self._run = run
        self.names = Names.of(run)
        self._patience_s = patience_s
        self._folder = folder
        self._workers: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        self._started = 0
        self._fed = threading.Event()
        self.copied = 0
        """So many records the reader has found."""

    def __enter__(self) -> Self:
        topics = [NewTopic(name, PARTITIONS, self._replicas) for name in self.names[:2]]
        admin = make_admin(self._servers)
        for made in admin.create_topics(topics, operation_timeout=30).values():
            made.result(30)
        self._start(self._producers, "feeder", self._feed)
        self._start(self._readers, READER, self._read)
        self._workers = [self._worker(each) for each in range(WORKERS)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        for number in range(len(self._workers)):
            self._end(number)
        self._recorder.add(*self._copies())

    def _worker(self, number: int) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
        self._started += 1
        name = f"copier-{self._run}-{number}-{self._started}"
        output = (self._folder / f"{name}.log").open("wb")
        command = [sys.executable, "-m", "faults.copier", self._servers, self._run, name]
        command += [str(self._folder / f"{name}.jsonl"), str(self._seed)]
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=Path(__file__).parent.parent
        )
        return process, output

    def _end(self, number: int) -> int | None:
        process, output = self._workers[number]
        code = process.poll()
        process.kill()
        process.wait()
        output.close()
        return code

    def kill_worker(self, number: int) -> None:
        """SIGKILL, and another one in its place at once."""
        self._end(number)
        self._workers[number] = self._worker(number)

    def replace_dead(self) -> None:
        """Workers that were shut out come again, as those of a user do."""
        for number, (process, _) in enumerate(self._workers):
            if process.poll() is not None:
                self.kill_worker(number)

    def wait_for_copies(self, count: int, timeout_s: float, when: str) -> None:
        """Until the reader has found so many more."""
        enough = self.copied + count
        self._wait_for(enough, timeout_s, when)

    def _wait_for(self, enough: int, timeout_s: float, when: str) -> None:
        deadline = time.monotonic() + timeout_s
        copied, progress = self.copied, time.monotonic()
        while self.copied < enough:
            self.replace_dead()
            if self.copied > copied:
                copied, progress = self.copied, time.monotonic()
            elif time.monotonic() - progress > self._patience_s:
                progress = time.monotonic()
                for number in range(WORKERS):
                    self.kill_worker(number)
            left = deadline - time.monotonic()
            assert left > 0, f"{self.copied} of {enough} records copied {when}"
            try:
                self._recorder.wait_until(lambda: self.copied >= enough, min(left, 1.0), when)
            except AssertionError as late:
                if type(late) is not AssertionError:
                    raise

    def drain(self, timeout_s: float) -> None:
        """Everything is fed and copied; then it is read once more, from the beginning."""
        self._producing.clear()
        self._recorder.wait_for_end(["feeder"], timeout_s)
        self._wait_for(self._recorder.acknowledged, timeout_s, "in the end")
        for number in range(WORKERS):
            self._end(number)
        self._workers = []
        self._reading.clear()
        self._recorder.wait_for_end([READER], timeout_s)
        self._read_target(FINAL, stops_at_end=True)

    def _copies(self) -> list[Operation]:
        """What the workers have told; the last line of a killed one may be half a line."""
        return [
            Operation.from_line(line)
            for file in sorted(self._folder.glob("copier-*.jsonl"))
            for line in file.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def _feed(self) -> None:
        draw = random.Random(f"{self._seed} feeder")
        producer = Producer(
            {
                **CLIENT,
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": self._in_flight,
                "linger.ms": 5,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            }
        )
        sent: Counter[int] = Counter()

        def on_delivery(facts: dict[str, Any], error: KafkaError | None, message: Message) -> None:
            outcome = Outcome.OK if error is None else Outcome.UNKNOWN
            offset = message.offset()
            self._recorder.add(
                Operation(
                    outcome=outcome,
                    ended=time.monotonic(),
                    offset=-1 if offset is None else offset,
                    **facts,
                )
            )

        while self._producing.is_set():
            producer.poll(0.02)
            if sent.total() - self.copied > BACKLOG_MAX:
                continue
            for _ in range(draw.randrange(1, 40)):
                partition = draw.randrange(PARTITIONS)
                value = f"{partition}:{sent[partition]}"
                sent[partition] += 1
                facts = {
                    "process": "feeder",
                    "name": "produce",
                    "began": time.monotonic(),
                    "partition": f"{self.names.source}-{partition}",
                    "value": value,
                }
                producer.produce(
                    self.names.source,
                    value.encode(),
                    partition=partition,
                    on_delivery=lambda e, m, facts=facts: on_delivery(facts, e, m),
                )
        producer.flush(DELIVERY_TIMEOUT_MS / 1000)

    def _read(self) -> None:
        self._read_target(READER, stops_at_end=False)

    def _read_target(self, process: str, *, stops_at_end: bool) -> None:
        """In one session, either while there are readers or up to the end."""
        consumer = Consumer({**TRANSACTIONAL, "bootstrap.servers": self._servers})
        places = [
            TopicPartition(self.names.target, each, OFFSET_BEGINNING) for each in range(PARTITIONS)
        ]
        consumer.assign(places)
        left = set(range(PARTITIONS))
        while left if stops_at_end else self._reading.is_set():
            for each in consumer.consume(1_000, 0.1):
                error = each.error()
                if error is None:
                    self._note_copy(each, process)
                    left.add(each.partition() or 0)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(each.partition() or 0)
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise AssertionError(f"{process}: {error.str()}")
        consumer.close()

    def _note_copy(self, message: Message, process: str) -> None:
        now = time.monotonic()
        headers = dict(message.headers() or [])
        offset = message.offset()
        if process == READER:
            self.copied += 1
        self._recorder.add(
            Operation(
                process=process,
                name="read",
                outcome=Outcome.OK,
                began=now,
                ended=now,
                partition=f"{self.names.target}-{message.partition()}",
                value=(message.value() or b"").decode(),
                offset=-1 if offset is None else offset,
                transaction=(headers[HEADER] or b"").decode(),
            )
        )
