"""Transactions in the midst of which one broker goes and the other comes, Apache Kafka and we in
turn, over one log directory: whatever state the first left, the second ends it as the first would
have, and the client goes on there.

    Kafka, SIGKILL ─► we, SIGKILL ─► Kafka, clean stop ─► we, clean stop ─► Kafka ─► we

Starts of a broker are what these tests cost, so that all rows stand in the same directory.

Kafka 4.3.1 as a single node that was killed forgets markers: it takes itself for the leader that
it was, asks its own port, which is not open yet, and then, while it is fenced, takes partitions
without a leader for deleted ones and writes Complete. Of such transactions, which it names in its
log, the tests see only that it had read what was decided.
"""

import itertools
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka as ck
import pytest

import kafkalite
from api.group_requests import find_coordinator
from api.raw import Connection
from api.transactions import Transactor, add_offsets
from kafkalite import _native
from kafkalite.coordinator.record_serde import CoordinatorRecord
from kafkalite.protocol import messages
from kafkalite.protocol.java_hash import java_hash
from kafkalite.transactions import states
from kafkalite.transactions.records import SERDE, transaction_of, transaction_record
from oracle.broker import KafkaBroker
from oracle.engine import NOW_MS, Writer, batches_of
from oracle.tools import KafkaTools
from transactions.test_transaction_versions import finalise

pytestmark = pytest.mark.oracle

SHARDS: Final = 32
GROUP_SHARDS: Final = 8
CONFIG: Final = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": str(SHARDS),
    "offsets.topic.num.partitions": str(GROUP_SHARDS),
}
STATE_TOPIC, OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"
SHORT_MS: Final = 5_000
"""Time-out of the transaction that ends under the next broker."""
TURNS: Final = ("Kafka killed", "we killed", "Kafka stopped", "we stopped")
STYLES: Final = ("shared epochs", "own epochs")
"""Clients below EndTxn 5 add their partitions themselves and keep their epoch."""


class Client(Transactor):
    """A producer that knows its sequences and outlives its broker."""

    def __init__(self, connection: Connection, name: str, style: str, topics: list[str]) -> None:
        super().__init__(connection, name)
        self.has_own_epochs = style == "own epochs"
        self.topics = topics
        self.group = ""
        self.last_epoch = -1
        self._value = b""
        self._sequences: dict[tuple[int, int, str], int] = {}

    def batch(self, sequence: int, epoch: int | None = None) -> bytes:
        builder = _native.BatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            transactional=True,
        )
        builder.append(NOW_MS, None, self._value)
        return builder.finish()

    def send(self, value: str, *topics: str) -> list[int]:
        """One record for each topic, in the transaction; the codes."""
        codes = []
        for topic in topics or self.topics:
            if not self.has_own_epochs:
                # Not this topic's code alone: a fenced producer is told so in all of them.
                code = self.add((topic, 0))[topic, 0]
                if code:
                    codes.append(code)
                    continue
            key = (self.producer_id, self.epoch, topic)
            sequence = self._sequences.get(key, 0)
            self._value = value.encode()
            version = 12 if self.has_own_epochs else 9
            while (code := self.produce(topic, sequence, version)) in (19, 51):
                pass
            if code == 0:
                self._sequences[key] = sequence + 1
            codes.append(code)
        return codes

    def commit_offset(self) -> int:
        """Offset 5 of the first topic, in the transaction."""
        if not self.has_own_epochs:
            assert add_offsets(self, self.group) == 0
        kind = messages.TxnOffsetCommitRequest
        place = kind.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition
        request = kind(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=-1,
            topics=[
                kind.TxnOffsetCommitRequestTopic(
                    name=self.topics[0], partitions=[place(partition_index=0, committed_offset=5)]
                )
            ],
        )
        while True:
            answer = self.connection.ask("TxnOffsetCommit", 4 + self.has_own_epochs, request)
            code = int(answer.topics[0].partitions[0].error_code)
            if code not in (14, 15, 16, 51):
                return code

    def stable_offset(self) -> tuple[int, int]:
        """Offset and code of what `commit_offset` has committed."""
        kind = messages.OffsetFetchRequest
        asked = kind.OffsetFetchRequestTopic(name=self.topics[0], partition_indexes=[0])
        request = kind(group_id=self.group, topics=[asked], require_stable=True)
        while True:
            answer = self.connection.ask("OffsetFetch", 7, request)
            if answer.error_code not in (14, 15, 16):
                row = answer.topics[0].partitions[0]
                return row.committed_offset, row.error_code

    def settled_offset(self) -> tuple[int, int]:
        """The same, once no transaction holds it."""
        while (found := self.stable_offset())[1] == 88:
            pass
        return found

    def finish(self, commit: bool) -> int:
        self.last_epoch = self.epoch
        return self.end(commit, version=4 + self.has_own_epochs)

    def finish_again(self, commit: bool) -> int:
        """EndTxn whose answer was lost."""
        return self.end(commit, version=4 + self.has_own_epochs, epoch=self.last_epoch)

    def state(self) -> str:
        request = messages.DescribeTransactionsRequest(transactional_ids=[self.name])
        while True:
            (row,) = self.connection.ask("DescribeTransactions", 0, request).transaction_states
            if row.error_code not in (14, 15, 16):
                return str(row.transaction_state)

    def wait_for(self, state: str) -> None:
        while self.state() != state:
            pass

    def next_transaction(self) -> list[int]:
        """One more, which commits."""
        return [*self.send("next"), self.finish(True)]


Seen = list[Any]


class Row(NamedTuple):
    """A state to leave a transaction in, and how it is taken from there."""

    begin: Callable[[Client], object]
    go_on: Callable[[Client], Seen]
    seen: Seen
    """By `go_on`: states and codes, before the codes of the next transaction."""
    values: list[str]
    """Committed in each topic, before that of the next transaction."""
    commits: bool | None = None
    """The client has ended it, and the broker goes before all markers are written."""
    topic_count: int = 2


def open_and(client: Client, *, offset: bool = False) -> None:
    assert client.send("open") == [0] * len(client.topics)
    if offset:
        assert client.commit_offset() == 0


def complete(client: Client) -> None:
    open_and(client)
    assert client.finish(True) == 0
    client.wait_for("CompleteCommit")


def go_on(client: Client, *, commit: bool) -> Seen:
    return [client.state(), *client.send("there"), client.finish(commit)]


def go_on_with_offset(client: Client, *, commit: bool) -> Seen:
    before = client.stable_offset()
    return [client.state(), before, client.finish(commit), client.settled_offset()]


def wait_for_time_out(client: Client) -> Seen:
    """The client is late: it is fenced, and begins anew."""
    client.wait_for("CompleteAbort")
    late = client.send("late", client.topics[0])
    # With epochs of its own its end is one of another transaction, by its number already over.
    return [*late, client.finish(True), client.init()]


def hear_again(client: Client, *, commit: bool) -> Seen:
    code = client.finish_again(commit)
    client.wait_for("CompleteCommit" if commit else "CompleteAbort")
    return [code]


def hear_again_with_offset(client: Client, *, commit: bool) -> Seen:
    return [*hear_again(client, commit=commit), client.settled_offset()]


ROWS: Final[dict[str, Row]] = {
    "Empty": Row(lambda _: None, lambda client: [client.state()], ["Empty"], []),
    "Complete": Row(complete, lambda client: [client.state()], ["CompleteCommit"], ["open"]),
    "Ongoing, commits": Row(
        open_and,
        lambda client: go_on(client, commit=True),
        ["Ongoing", 0, 0, 0],
        ["open", "there"],
    ),
    "Ongoing, aborts": Row(
        open_and, lambda client: go_on(client, commit=False), ["Ongoing", 0, 0, 0], []
    ),
    "Ongoing, times out": Row(open_and, wait_for_time_out, [], []),
    "Offsets, commit": Row(
        lambda client: open_and(client, offset=True),
        lambda client: go_on_with_offset(client, commit=True),
        ["Ongoing", (-1, 88), 0, (5, 0)],
        ["open"],
    ),
    "Offsets, abort": Row(
        lambda client: open_and(client, offset=True),
        lambda client: go_on_with_offset(client, commit=False),
        ["Ongoing", (-1, 88), 0, (-1, 0)],
        [],
    ),
    "PrepareCommit, no markers": Row(
        open_and, lambda client: hear_again(client, commit=True), [0], ["open"], True
    ),
    "PrepareAbort, one of two markers": Row(
        open_and, lambda client: hear_again(client, commit=False), [0], [], False
    ),
    "PrepareCommit, offsets": Row(
        lambda client: open_and(client, offset=True),
        lambda client: hear_again_with_offset(client, commit=True),
        [0, (5, 0)],
        ["open"],
        True,
    ),
}
# A late client: refused by its epoch; at EndTxn 5 for the transaction that is over.
FENCED: Final = {"shared epochs": [90, 90, 0], "own epochs": [47, 48, 0]}


def expected(row: str, style: str) -> Seen:
    seen = FENCED[style] if "times out" in row else ROWS[row].seen
    return [*seen, 0, 0, 0]


class Hand(NamedTuple):
    """What is known of a row that has changed hands."""

    client: Client
    row: Row
    marked: list[str]
    """Directories of the partitions whose markers the first broker does not write."""


SKIPPED: Final = re.compile(r"send transaction markers for (\S+), these partitions are likely del")
SENDING: Final = re.compile(r"Sending txn markers for \w+\((\S+?),\d+,(COMMIT|ABORT),")


class Story(NamedTuple):
    seen: dict[tuple[str, str, str], Seen]
    """By turn, row and style."""
    stable: dict[tuple[str, str, str], bool]
    """Whether each last stable offset was the end in the end."""
    by_kafka: dict[str, list[str]]
    """Committed values by topic, in the end."""
    by_us: dict[str, list[str]]
    topics: dict[tuple[str, str, str], list[str]]
    forgotten: dict[tuple[str, str, str], str]
    """What Kafka was about to write and has not."""


# --- one turn -------------------------------------------------------------------------------------


def free_name(prefix: str, count: int, taken: set[int]) -> tuple[str, int]:
    """A name whose partition nobody else has."""
    for number in itertools.count():
        name = f"{prefix}-{number}"
        partition = java_hash(name) % count
        if partition not in taken:
            taken.add(partition)
            return name, partition
    raise AssertionError


def begin_all(
    connection: Connection, turn: int, styles: Sequence[str]
) -> dict[tuple[str, str], Hand]:
    """Every row in its state, but for those that are yet to be ended."""
    hands = {}
    # A partition is cut behind what must stay: nobody else writes there.
    shards, group_shards = set[int](), set[int]()
    ordered = sorted(ROWS.items(), key=lambda item: item[1].commits is None)
    for (label, row), style in itertools.product(ordered, styles):
        at = f"{turn}-{list(ROWS).index(label)}-{STYLES.index(style)}"
        topics = [f"t-{at}-{index}" for index in range(row.topic_count)]
        for topic in topics:
            assert connection.create_topic(topic).error_code == 0
            while connection.fetch(topic, 0).error_code:
                pass  # Kafka's leader comes after the answer
        is_own = row.commits is not None
        name, shard = free_name(f"txn-{at}", SHARDS, shards if is_own else set(shards))
        used = group_shards if is_own else set(group_shards)
        group, group_shard = free_name(f"group-{at}", GROUP_SHARDS, used)
        client = Client(connection, name, style, topics)
        client.group = group
        while find_coordinator(connection, group)[0].error_code:
            pass
        assert client.init(timeout_ms=SHORT_MS if "times out" in label else 60_000) == 0
        row.begin(client)
        marked = [f"{topic}-0" for topic in topics]
        if "one of" in label:
            marked = marked[1:]
        if "offsets" in label:
            marked.append(f"{OFFSETS_TOPIC}-{group_shard}")
        hands[label, style] = Hand(client, row, [*marked, f"{STATE_TOPIC}-{shard}"])
    return hands


def end_prepared(data: Path, hands: dict[tuple[str, str], Hand]) -> None:
    """Until all of it is in the files: our broker tells that a transaction is over before the log
    says so, since that was decided before."""
    for client, row, partitions in hands.values():
        if row.commits is not None:
            assert client.finish(row.commits) == 0
            client.wait_for("CompleteCommit" if row.commits else "CompleteAbort")
        if client.state() in ("CompleteCommit", "CompleteAbort"):
            (segment,) = (data / partitions[-1]).glob("*.log")
            while not any(completes(batch, client.name) for _, batch in batches_in(segment)):
                pass


def cut_markers(data: Path, hands: dict[tuple[str, str], Hand]) -> None:
    """A killed broker had not come to the last markers, nor to Complete behind them."""
    for client, row, partitions in hands.values():
        if row.commits is None:
            continue
        *marked, state = partitions
        for partition in marked:
            (segment,) = (data / partition).glob("*.log")
            cut(
                segment,
                lambda batch, of=client.producer_id: batch.is_control and (batch.producer_id == of),
            )
        (segment,) = (data / state).glob("*.log")
        cut(segment, lambda batch, of=client.name: completes(batch, of))


def completes(batch: Any, name: str) -> bool:
    for _, _, key, value, _ in batch.records:
        record = SERDE.read(key, value)
        assert isinstance(record, CoordinatorRecord)
        if record.key.transactional_id == name and record.value.transaction_status in (
            states.COMPLETE_COMMIT,
            states.COMPLETE_ABORT,
        ):
            return True
    return False


def batches_in(segment: Path) -> Iterator[tuple[int, Any]]:
    """Each batch and its position, but for one that is being written."""
    data, position = segment.read_bytes(), 0
    while position + 12 <= len(data):
        end = position + 12 + struct.unpack_from(">i", data, position + 8)[0]
        if end > len(data):
            return
        (batch,) = _native.read_batches(data[position:end])
        yield position, batch
        position = end


def cut(segment: Path, is_last: Callable[[Any], bool]) -> None:
    """Takes a batch away, and all behind it."""
    for position, batch in batches_in(segment):
        if is_last(batch):
            with segment.open("r+b") as file:
                file.truncate(position)
            return
    raise AssertionError(f"nothing to cut in {segment}")


def prepare(data: Path, hands: dict[tuple[str, str], Hand], value_version: int) -> None:
    """A clean stop comes between Prepare and the markers: what the broker would have written."""
    directory = _native.LogDirectory.open(data, now_ms=NOW_MS)
    for client, row, partitions in hands.values():
        if row.commits is None:
            continue
        client.last_epoch = client.epoch
        *marked, state = partitions
        log = log_of(directory, state)
        epoch = append_prepare(log, client, row.commits, value_version)
        version = 2 if client.has_own_epochs else 1
        for topic in client.topics:
            if f"{topic}-0" not in marked:
                of_topic = log_of(directory, f"{topic}-0")
                Writer(of_topic, leader_epoch=of_topic.leader_epochs()[-1][0]).end_transaction(
                    client.producer_id,
                    epoch,
                    commit=row.commits,
                    coordinator_epoch=log.leader_epochs()[-1][0],
                    version=version,
                )
    directory.close()


def log_of(directory: _native.LogDirectory, name: str) -> _native.Log:
    topic, _, partition = name.rpartition("-")
    log = directory.log(topic, int(partition))
    assert log is not None
    return log


def append_prepare(log: _native.Log, client: Client, commit: bool, value_version: int) -> int:
    """The record, and the epoch of the markers."""
    own = [
        (found.value, value)
        for batch in batches_of(log)
        if not batch.is_control
        for _, _, key, value, _ in batch.records
        if isinstance(found := SERDE.read(key, value), CoordinatorRecord)
        and found.key.transactional_id == client.name
    ]
    last, value = own[-1]
    assert value is not None
    assert int.from_bytes(value[:2], "big") == value_version
    ongoing = transaction_of(last)
    assert ongoing.state == states.ONGOING
    prepared = ongoing._replace(
        state=states.PREPARE_COMMIT if commit else states.PREPARE_ABORT,
        producer_epoch=ongoing.producer_epoch + client.has_own_epochs,
        previous_producer_id=ongoing.producer_id,
        client_version=2 if client.has_own_epochs else 0,
    )
    key, value = transaction_record(client.name, prepared, value_version)
    builder = _native.BatchBuilder()
    builder.append(NOW_MS, key, value)
    epoch = log.leader_epochs()[-1][0]
    log.append(builder.finish(), now_ms=NOW_MS, origin="coordinator", leader_epoch=epoch)
    return prepared.producer_epoch


def finish_all(
    connection: Connection,
    hands: dict[tuple[str, str], Hand],
    story: Story,
    turn: str,
    forgotten: dict[str, str],
) -> None:
    for (label, style), (client, row, _) in hands.items():
        at = (turn, label, style)
        client.connection = connection
        client.find()
        if client.name in forgotten:
            story.forgotten[at] = forgotten[client.name]
            continue
        story.seen[at] = [*row.go_on(client), *client.next_transaction()]
        client.wait_for("CompleteCommit")
        ends = [connection.fetch(topic, 0) for topic in client.topics]
        story.stable[at] = all(each.last_stable_offset == each.high_watermark for each in ends)
        story.topics[at] = client.topics


def forgotten_by(kafka: KafkaBroker) -> dict[str, str]:
    """Transactional ids whose markers it skipped, with what it had read of them."""
    output = kafka.output.read_text()
    decided = dict(SENDING.findall(output))
    return {name: decided.get(name, "") for name in SKIPPED.findall(output)}


def committed_values(servers: str, topics: list[str]) -> dict[str, list[str]]:
    """By topic, as a `read_committed` consumer of librdkafka sees them."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ck.TopicPartition(topic, 0, 0) for topic in topics])
    found: dict[str, list[str]] = {topic: [] for topic in topics}
    left = set(topics)
    while left:
        message = consumer.poll(30)
        assert message is not None, f"no end of {left}"
        if message.error():
            assert message.error().code() == ck.KafkaError._PARTITION_EOF
            left.discard(message.topic())
        else:
            found[message.topic()].append(message.value().decode())
    consumer.close()
    return found


def level_of(connection: Connection) -> int:
    request = messages.ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer = connection.ask("ApiVersions", 4, request)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return int(levels.get("transaction.version", 0))


@pytest.fixture(scope="module")
def story(
    request: pytest.FixtureRequest,
    kafka_tools: KafkaTools,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Story]:
    """All turns at one level of `transaction.version`."""
    level: int = request.param
    styles = STYLES if level == 2 else STYLES[:1]
    folder = tmp_path_factory.mktemp("transactions")
    data = folder / "kafka" / "data"
    kafka = KafkaBroker(kafka_tools, folder / "kafka", properties=CONFIG)
    ours = kafkalite.Broker(data, config=CONFIG)
    made = Story({}, {}, {}, {}, {}, {})
    hands: dict[tuple[str, str], Hand] = {}
    try:
        for number, broker in enumerate((kafka, ours, kafka, ours, kafka)):
            broker.start()
            with Connection(broker.bootstrap_servers) as connection:
                if not number:
                    finalise(connection, level)
                    while level_of(connection) != level:
                        pass  # Kafka's broker follows its controller
                if number:
                    forgotten = forgotten_by(kafka) if broker is kafka else {}
                    finish_all(connection, hands, made, TURNS[number - 1], forgotten)
                if number < len(TURNS):
                    hands = begin_all(connection, number, styles)
                    if number < 2:
                        end_prepared(data, hands)
            if number == len(TURNS):
                topics = [topic for each in made.topics.values() for topic in each]
                made.by_kafka.update(committed_values(broker.bootstrap_servers, topics))
            if number < 2:
                broker.kill()
                cut_markers(data, hands)
            else:
                broker.stop()
                if number < len(TURNS):
                    prepare(data, hands, min(level, 1))
        with ours:
            made.by_us.update(committed_values(ours.bootstrap_servers, topics))
        yield made
    finally:
        kafka.kill()
        ours.close()
        ours.kill()


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(
    ("story", "style"),
    [(2, STYLES[0]), (2, STYLES[1]), pytest.param(0, STYLES[0], marks=pytest.mark.long)],
    indirect=["story"],
    scope="module",
)
def test_the_next_broker_ends_what_the_last_one_left(
    story: Story, turn: str, row: str, style: str
) -> None:
    at = (turn, row, style)
    if at in story.forgotten:
        assert turn == "we killed"
        # What it aborts itself, by its time-out, it does not tell of.
        wanted_end = {True: "COMMIT", False: "ABORT", None: ""}
        assert story.forgotten[at] == wanted_end[ROWS[row].commits]
        return
    assert story.seen[at] == expected(row, style)
    assert story.stable[at]
    wanted = {topic: [*ROWS[row].values, "next"] for topic in story.topics[at]}
    for found in (story.by_kafka, story.by_us):
        assert {topic: found[topic] for topic in story.topics[at]} == wanted
