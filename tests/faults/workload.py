"""Clients that go on through every fault and write down what they see: the history of verify.py.

All are librdkafka: producers, a reader that follows every partition, the members of a group that
come and go, and one that looks at the ends of the partitions and at what the group has committed.
What a client's thread raises ends the run.
"""

import hashlib
import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from faults.verify import FINAL, OBSERVER, Ends, Operation, Outcome

TOPIC = "history"
GROUP = "readers"
PARTITIONS = 4
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_IN_FLIGHT_MAX = 500
ASK_TIMEOUT_S = 5.0
"""Of the requests whose answers are only looked at."""
TOLD_LINES_MAX = 20_000
"""Of what a producer has told of itself, so many lines are kept: the last ones."""
DELIVERY_TIMEOUT_MS = 120_000
"""Longer than any fault: what a producer was given ends as acknowledged."""
# Both brokers of a run are on one machine: who lost its connection tries again soon.
CLIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}
CONSUMER = {
    **CLIENT,
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "check.crcs": True,
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 20,
    "session.timeout.ms": 3_000,
    "heartbeat.interval.ms": 300,
}


class ClientDiedError(AssertionError):
    """The thread of a client has raised what stands as the cause."""


class Recorder:
    """Takes operations from all threads, and wakes who waits for the history to go on."""

    def __init__(self, topic: str = TOPIC) -> None:
        self.topic = topic
        self.group = GROUP if topic == TOPIC else f"{GROUP} of {topic}"
        self.operations: list[Operation] = []
        self.acknowledged = 0
        self.commits = 0
        self.looks: Counter[tuple[str, str]] = Counter()
        """By `ends` or `committed`, and partition: how often the observer was told that."""
        self.read_to: Counter[tuple[str, str]] = Counter()
        """By process or group, and partition: the offset after the last record that it has read."""
        self.answered_since: dict[str, float] = {}
        """By partition: when the latest of the acknowledged records was sent."""
        self._told: dict[str, deque[str]] = {}
        self._ended: set[str] = set()
        self._failure: ClientDiedError | None = None
        self._changed = threading.Condition()

    def add(self, *operations: Operation) -> None:
        with self._changed:
            self.operations += operations
            for each in operations:
                if each.outcome is not Outcome.OK:
                    continue
                if each.name == "produce":
                    self.acknowledged += 1
                    before = self.answered_since.get(each.partition, 0.0)
                    self.answered_since[each.partition] = max(before, each.began)
                elif each.name == "commit":
                    self.commits += 1
                elif each.process == OBSERVER:
                    self.looks[each.name, each.partition] += 1
                elif each.name == "read":
                    key = each.group or each.process, each.partition
                    self.read_to[key] = max(self.read_to[key], each.offset + 1)
            self._changed.notify_all()

    def meet(self, fault: Callable[[Any], object], world: Any) -> None:
        """Has a fault of a world come and go, and notes when."""
        began = time.monotonic()
        fault(world)
        ended, name = time.monotonic(), fault.__name__
        self.add(Operation("nemesis", "fault", Outcome.OK, began, ended, "", value=name))

    def end(self, process: str, failure: BaseException | None = None) -> None:
        """A client's thread does no more; `failure` ends the run."""
        with self._changed:
            self._ended.add(process)
            if failure is not None and self._failure is None:
                self._failure = ClientDiedError(f"{process} died: {failure!r}")
                self._failure.__cause__ = failure
            self._changed.notify_all()

    def wait_until(self, is_so: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Until `is_so`, which is asked after each operation. Raises `AssertionError` naming `what`
        did not happen, and `ClientDiedError` as soon as a client has died."""
        with self._changed:
            is_over = self._changed.wait_for(lambda: self._failure or is_so(), timeout_s)
            if self._failure is not None:
                raise self._failure
            assert is_over, f"{what}: not within {timeout_s:.0f} s"

    def wait_for_end(self, processes: Sequence[str], timeout_s: float) -> None:
        """Until those clients do no more."""
        what = f"{', '.join(processes)} have ended"
        self.wait_until(lambda: self._ended.issuperset(processes), timeout_s, what)

    def wait_for_more(self, records: int, timeout_s: float, when: str) -> None:
        """Until so many more records have been acknowledged."""
        enough = self.acknowledged + records
        what = f"{records} more records acknowledged {when}"
        self.wait_until(lambda: self.acknowledged >= enough, timeout_s, what)

    def wait_for_looks(self, timeout_s: float, when: str) -> None:
        """Until the observer has asked again, and been told everything of every partition."""
        names, partitions = ("ends", "committed"), range(PARTITIONS)
        keys = [(name, f"{self.topic}-{each}") for name in names for each in partitions]
        # The first of two answers may be to what was asked before.
        enough = {key: self.looks[key] + 2 for key in keys}
        self.wait_until(
            lambda: all(self.looks[key] >= count for key, count in enough.items()),
            timeout_s,
            f"the observer sees ends and committed offsets {when}",
        )

    def logger(self, process: str) -> logging.Logger:
        """Takes what librdkafka says in a process, with its `debug`."""
        lines = self._told.setdefault(process, deque(maxlen=TOLD_LINES_MAX))
        logger = logging.Logger(process)
        logger.addHandler(_Lines(lines))
        return logger

    def save(self, path: Path) -> None:
        """Writes the history, and beside it what clients have told of themselves."""
        with self._changed:
            path.write_text("".join(f"{each.to_line()}\n" for each in self.operations))
        for process, lines in self._told.items():
            if lines:
                told = path.with_name(f"{path.stem}.{process}.log")
                told.write_text("".join(f"{each}\n" for each in list(lines)))


class _Lines(logging.Handler):
    """Appends to a list of lines, which may be shorter than all of them."""

    def __init__(self, lines: deque[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{time.monotonic():.3f} {record.getMessage()}")


def record_value(process: str, number: int) -> bytes:
    """Unlike every other one, up to some 600 bytes, and whole or recognisably broken."""
    seed = hashlib.blake2b(f"{process} {number}".encode(), digest_size=16).hexdigest()
    return f"{process}:{number}:{seed * (1 + number % 19)}".encode()


def name_of_value(value: bytes | None) -> str:
    """`process:number`, if the value is one of `record_value`; else what it looks like."""
    process, number, *_ = [*(value or b"").decode("latin-1").split(":"), "", ""]
    if number.isdigit() and record_value(process, int(number)) == value:
        return f"{process}:{number}"
    return f"garbled {value!r:.60}"


class Workload:
    """The threads of all clients, from `with` to `drain`."""

    def __init__(
        self,
        servers: str,
        recorder: Recorder,
        seed: int,
        idempotence: Sequence[bool] = (True, True, False),
        replicas: int = 1,
        acks: str = "all",
        pause_s: float = 0.005,
        *,
        has_group: bool = True,
        producer: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """`idempotence` has an entry a producer; `replicas` are those of the topic's partitions,
        which is made unless it is there; less than all `acks` promise less than verify.py asks. A
        producer pauses between one handful of records and the next, and has the settings of
        `producer` too. Without a group there is also nobody who looks at ends and offsets."""
        self._servers = servers
        self._recorder = recorder
        self._seed = seed
        self._idempotence = idempotence
        self._replicas, self._acks, self._pause_s = replicas, acks, pause_s
        self._topic, self._group = recorder.topic, recorder.group
        self._has_group, self._producer_settings = has_group, producer
        # With more than one, librdkafka 2.16 sends a later request to a new leader while earlier
        # ones are on their way to the old one, is refused for missing sequence numbers, and sends
        # again, in a new producer epoch, what had no answer (its issue 4953).
        self._in_flight = 5 if replicas == 1 else 1
        self._producing = threading.Event()
        self._reading = threading.Event()
        self._producing.set()
        self._reading.set()
        self._producers: list[threading.Thread] = []
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        create_topic(self._servers, self._topic, self._replicas)
        for number, idempotent in enumerate(self._idempotence):
            name = f"producer-{number}"
            self._start(self._producers, name, lambda n=name, i=idempotent: self._produce(n, i))
        self._start(self._readers, "reader", self._read)
        if self._has_group:
            for number in range(2):
                name = f"member-{number}"
                self._start(self._readers, name, lambda n=name: self._be_member(n))
            self._start(self._readers, OBSERVER, self._observe)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._producing.clear()
        self._reading.clear()
        for thread in [*self._producers, *self._readers]:
            thread.join(DELIVERY_TIMEOUT_MS / 1000)

    def drain(self, timeout_s: float) -> None:
        """All producers end with everything acknowledged, then reader and group come to the end.
        Raises `AssertionError` if not within the time, or if a client's thread has died."""
        self._producing.clear()
        self._recorder.wait_for_end([each.name for each in self._producers], timeout_s)
        ends = read_everything(self._servers, self._recorder, timeout_s)
        read_to = self._recorder.read_to
        for process in ("reader", self._group) if self._has_group else ("reader",):
            self._recorder.wait_until(
                lambda process=process: all(
                    read_to[process, name] >= end.high_watermark for name, end in ends.items()
                ),
                timeout_s,
                f"{process} read everything",
            )
        self._reading.clear()
        self._recorder.wait_for_end([each.name for each in self._readers], timeout_s)

    def _start(self, threads: list[threading.Thread], name: str, run: Callable[[], None]) -> None:
        def guarded() -> None:
            failure: BaseException | None = None
            try:
                run()
            except BaseException as raised:  # noqa: BLE001 - told to whoever waits
                failure = raised
            self._recorder.end(name, failure)

        threads.append(threading.Thread(target=guarded, name=name, daemon=True))
        threads[-1].start()

    def _produce(self, process: str, idempotent: bool) -> None:
        """Records to all partitions in turn, as fast as answers come, some thousand a second."""
        draw = random.Random(f"{self._seed} {process}")
        producer = Producer(
            {
                **CLIENT,
                "bootstrap.servers": self._servers,
                "acks": self._acks,
                "enable.idempotence": idempotent,
                "max.in.flight.requests.per.connection": self._in_flight if idempotent else 1,
                "compression.type": draw.choice(CODECS),
                "linger.ms": 5,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "socket.timeout.ms": 10_000,
                **self._producer_settings,
            },
            logger=self._recorder.logger(process),
        )
        sent: Counter[int] = Counter()
        number = 0
        in_flight = 0

        def on_delivery(facts: dict[str, Any], error: KafkaError | None, message: Message) -> None:
            nonlocal in_flight
            in_flight -= 1
            outcome = Outcome.OK if error is None else Outcome.UNKNOWN
            offset = message.offset() if error is None else -1
            ended = time.monotonic()
            self._recorder.add(
                Operation(
                    outcome=outcome, ended=ended, offset=-1 if offset is None else offset, **facts
                )
            )

        while self._producing.is_set():
            for _ in range(draw.randrange(1, 8)):
                partition = draw.randrange(PARTITIONS)
                facts = {
                    "process": process,
                    "name": "produce",
                    "began": time.monotonic(),
                    "partition": f"{self._topic}-{partition}",
                    "value": f"{process}:{number}",
                    "number": sent[partition],
                    "is_idempotent": idempotent,
                }
                producer.produce(
                    self._topic,
                    record_value(process, number),
                    partition=partition,
                    on_delivery=lambda e, m, facts=facts: on_delivery(facts, e, m),
                )
                sent[partition] += 1
                number += 1
                in_flight += 1
            producer.poll(self._pause_s)
            while in_flight >= RECORDS_IN_FLIGHT_MAX and self._producing.is_set():
                producer.poll(0.1)
        producer.flush(DELIVERY_TIMEOUT_MS / 1000)

    def _read(self) -> None:
        """Follows all partitions from the beginning on, in one session."""
        consumer = Consumer({**CONSUMER, "bootstrap.servers": self._servers, "group.id": "none"})
        consumer.assign(
            [TopicPartition(self._topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)]
        )
        while self._reading.is_set():
            self._note(consumer.consume(1_000, 0.1), "reader", 0)
        consumer.close()

    def _be_member(self, process: str) -> None:
        """Reads what it is given and commits that, leaves now and then, comes back."""
        draw = random.Random(f"{self._seed} {process}")
        session = 0

        def on_assign(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
            nonlocal session
            session += 1

        while self._reading.is_set():
            consumer = Consumer(
                {
                    **CONSUMER,
                    "bootstrap.servers": self._servers,
                    "group.id": self._group,
                    "auto.offset.reset": "earliest",
                }
            )
            consumer.subscribe([self._topic], on_assign=on_assign)
            rounds = draw.randrange(20, 200)
            while self._reading.is_set() and rounds > 0:
                rounds -= 1
                messages = consumer.consume(500, 0.1)
                self._note(messages, process, session, self._group)
                self._commit(consumer, process, messages)
            consumer.close()

    def _note(self, messages: list[Message], process: str, session: int, group: str = "") -> None:
        """What a consumer was given, errors included that say that a log has lost something."""
        ended = time.monotonic()
        for each in messages:
            error = each.error()
            if error is not None and error.code() != KafkaError._AUTO_OFFSET_RESET:
                continue
            self._recorder.add(
                Operation(
                    process=process,
                    name="read",
                    outcome=Outcome.OK if error is None else Outcome.FAIL,
                    began=ended,
                    ended=ended,
                    partition=f"{each.topic()}-{each.partition()}",
                    value=name_of_value(each.value()) if error is None else error.str(),
                    offset=-1 if each.offset() is None else each.offset(),
                    session=session,
                    group=group,
                )
            )

    def _commit(self, consumer: Consumer, process: str, messages: list[Message]) -> None:
        next_offsets = {
            each.partition(): each.offset() + 1 for each in messages if each.error() is None
        }
        if not next_offsets:
            return
        began = time.monotonic()
        outcomes: dict[int, Outcome]
        try:
            wanted = [TopicPartition(self._topic, *each) for each in next_offsets.items()]
            answer = consumer.commit(offsets=wanted, asynchronous=False)
            outcomes = {each.partition: _outcome(each.error) for each in answer}
        except KafkaException as failure:
            outcomes = dict.fromkeys(next_offsets, _outcome(failure.args[0]))
        ended = time.monotonic()
        self._recorder.add(
            *(
                Operation(
                    process=process,
                    name="commit",
                    outcome=outcomes[partition],
                    began=began,
                    ended=ended,
                    partition=f"{self._topic}-{partition}",
                    offset=offset,
                    group=self._group,
                )
                for partition, offset in next_offsets.items()
            )
        )

    def _observe(self) -> None:
        """Looks at the ends of the partitions and at the group's offsets, again and again."""
        admin = make_admin(self._servers)
        # Not the admin client: librdkafka 2.16 does not survive NOT_COORDINATOR there.
        group = Consumer({**CONSUMER, "bootstrap.servers": self._servers, "group.id": self._group})
        partitions = [TopicPartition(self._topic, each) for each in range(PARTITIONS)]
        while self._reading.is_set():
            try:
                self._recorder.add(*look_at_ends(admin, OBSERVER, self._topic))
            except KafkaException:
                # The broker is away, and asking waits for it; or it has started again, and
                # librdkafka's admin client goes on asking with the leader epoch from before.
                admin = make_admin(self._servers)
            began = time.monotonic()
            try:
                found = group.committed(partitions, timeout=ASK_TIMEOUT_S)
            except KafkaException:
                continue
            ended = time.monotonic()
            self._recorder.add(
                *(
                    Operation(
                        process=OBSERVER,
                        name="committed",
                        outcome=Outcome.OK,
                        began=began,
                        ended=ended,
                        partition=f"{self._topic}-{each.partition}",
                        offset=max(each.offset, -1),
                        group=self._group,
                    )
                    for each in found
                    if each.error is None
                )
            )
        group.close()


def make_admin(servers: str) -> AdminClient:
    return AdminClient({**CLIENT, "bootstrap.servers": servers})


def create_topic(servers: str, topic: str = TOPIC, replicas: int = 1) -> None:
    """The topic, unless it is there."""
    admin = make_admin(servers)
    if topic not in admin.list_topics(timeout=30).topics:
        wanted = NewTopic(topic, PARTITIONS, replicas)
        try:
            _answers(admin.create_topics([wanted], operation_timeout=30))
        except KafkaException as failure:
            # Who was asked first had not heard of it.
            if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def look_at_ends(admin: AdminClient, process: str, topic: str = TOPIC) -> list[Operation]:
    """An operation a partition. Raises `KafkaException` for a broker that does not answer."""
    partitions = [TopicPartition(topic, each) for each in range(PARTITIONS)]
    began = time.monotonic()
    # In this order, so that none may be greater than the one asked after it.
    starts, stables, highs = (
        _answers(
            admin.list_offsets(
                dict.fromkeys(partitions, spec),
                isolation_level=isolation,
                request_timeout=ASK_TIMEOUT_S,
            )
        )
        for spec, isolation in (
            (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
            (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
            (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
        )
    )
    ended = time.monotonic()
    # librdkafka gives -1001 for what it has not been told.
    told = [e for e in partitions if min(a[e].offset for a in (starts, stables, highs)) >= 0]
    return [
        Operation(
            process=process,
            name="ends",
            outcome=Outcome.OK,
            began=began,
            ended=ended,
            partition=f"{topic}-{each.partition}",
            ends=Ends(
                starts[each].offset,
                stables[each].offset,
                highs[each].offset,
                -1 if highs[each].leader_epoch is None else highs[each].leader_epoch,
            ),
        )
        for each in told
    ]


def read_everything(servers: str, recorder: Recorder, timeout_s: float) -> dict[str, Ends]:
    """The last reader: every partition from its first offset to its last; returns their ends. It
    goes on for as long as more comes within `timeout_s`. Raises `AssertionError` for a broker that
    does not tell the ends within that time."""
    ends = _last_ends(servers, recorder, timeout_s)
    consumer = Consumer({**CONSUMER, "bootstrap.servers": servers, "group.id": "none"})
    topic = recorder.topic
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    left = {name: each.high_watermark for name, each in ends.items() if each.high_watermark > 0}
    given_up = time.monotonic() + timeout_s
    while left and time.monotonic() < given_up:
        for message in consumer.consume(10_000, 0.1):
            partition = f"{message.topic()}-{message.partition()}"
            offset = message.offset()
            if message.error() is not None or offset is None:
                continue
            now = time.monotonic()
            given_up = now + timeout_s
            value = name_of_value(message.value())
            recorder.add(
                Operation(
                    FINAL, "read", Outcome.OK, now, now, partition, value=value, offset=offset
                )
            )
            if offset + 1 >= left.get(partition, 0):
                left.pop(partition, None)
    consumer.close()
    return ends


def _last_ends(servers: str, recorder: Recorder, timeout_s: float) -> dict[str, Ends]:
    given_up = time.monotonic() + timeout_s
    while True:
        try:
            looks = look_at_ends(make_admin(servers), FINAL, recorder.topic)
        except KafkaException:
            looks = []
        if len(looks) == PARTITIONS:
            break
        assert time.monotonic() < given_up, f"no broker tells the ends within {timeout_s:.0f} s"
    recorder.add(*looks)
    return {each.partition: each.ends for each in looks if each.ends is not None}


def _answers(futures: dict[Any, Future[Any]]) -> dict[Any, Any]:
    return {key: each.result() for key, each in futures.items()}


def _outcome(error: KafkaError | None) -> Outcome:
    """Never `fail`: of a commit that is refused an earlier try may have been taken, unheard."""
    return Outcome.OK if error is None else Outcome.UNKNOWN
