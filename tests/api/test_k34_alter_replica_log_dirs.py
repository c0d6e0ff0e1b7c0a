"""AlterReplicaLogDirs by frames, of a node by itself with two log directories."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import kafkalite
from api.batches import batch
from api.log_dirs import (
    LIMIT_S,
    alter,
    has_moved,
    home_of,
    other_than,
    places,
    set_rate,
    wait_for,
)
from api.raw import Connection
from kafkalite.api import k34_alter_replica_log_dirs
from kafkalite.api.deadline import CHANGE_WAIT_MS
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Future, Tasks
from kafkalite.timers import Timers

WINDOW = "alter.log.dirs.replication.quota.window"
REMEMBERED_S = 11
"""By default, what was copied counts for so long."""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [tmp_path_factory.mktemp(name) for name in ("one", "two")]


@pytest.fixture(scope="module")
def broker(paths: list[Path]) -> Iterator[kafkalite.Broker]:
    with kafkalite.Broker(config=config_of(paths)) as running:
        yield running


def config_of(paths: list[Path]) -> dict[str, str]:
    return {"log.dirs": ",".join(map(str, paths)), "log.segment.delete.delay.ms": "1000"}


class Placed(NamedTuple):
    """A topic of one partition, the directory in which that lies, and the other one."""

    topic: str
    home: Path
    other: Path


def make(connection: Connection, paths: Sequence[Path], topic: str, **config: str) -> Placed:
    assert connection.create_topic(topic, **config).error_code == 0
    home = home_of(connection, topic)
    return Placed(topic, home, other_than(paths, home))


def fill(connection: Connection, topic: str, count: int = 50) -> None:
    """Batches of ten kilobytes."""
    for _ in range(count):
        assert connection.produce(topic, batch([b"x" * 10_000])).error_code == 0


def test_a_replica_moves_with_its_records_while_clients_go_on(
    broker: kafkalite.Broker, paths: list[Path]
) -> None:
    with Connection(broker.bootstrap_servers) as connection:
        name, config = f"moved-{next(_numbers)}", {"segment.bytes": "1048576"}
        topic, home, other = make(connection, paths, name, **config)
        sent = [batch([f"{number}".encode() * 300]) for number in range(2_000)]
        for each in sent[:1_000]:
            assert connection.produce(topic, each).error_code == 0
        assert alter(connection, other, (topic, 0)) == [0]
        for each in sent[1_000:]:
            assert connection.produce(topic, each).error_code == 0
        wait_for(has_moved(connection, topic, other))
        assert not (home / f"{topic}-0").exists()
        assert (other / f"{topic}-0" / "partition.metadata").exists()
        assert connection.produce(topic, batch([b"after"])).base_offset == 2_000
        assert connection.list_offsets(topic, -1).offset == 2_001
        # Back again, and the old files go.
        assert alter(connection, home, (topic, 0)) == [0]
        wait_for(has_moved(connection, topic, home))
        for offset in (0, 999, 1_000, 1_999):
            records = connection.fetch(topic, offset, max_bytes=1).records
            expected = sent[offset]
            assert records[21 : len(expected)] == expected[21:]
        wait_for(lambda: not list(other.glob(f"{topic}-0*")))


def test_what_cannot_be_moved_is_refused_as_kafka_refuses_it(
    broker: kafkalite.Broker, paths: list[Path]
) -> None:
    with Connection(broker.bootstrap_servers) as connection:
        topic, home, _ = make(connection, paths, f"refused-{next(_numbers)}")
        long = "l" * 230
        assert connection.create_topic(long).error_code == 0
        assert alter(connection, home, (topic, 0)) == [0]
        assert alter(connection, "/no/such/directory", (topic, 0)) == [57]
        assert (
            alter(connection, paths[0], (topic, 9), ("no-topic", 0))
            == [codes.UNKNOWN_TOPIC_OR_PARTITION] * 2
        )
        assert alter(connection, paths[0], (long, 0)) == [codes.INVALID_TOPIC_EXCEPTION]
        assert home_of(connection, topic) == home


def test_a_move_is_slowed_down_shown_and_given_up(
    broker: kafkalite.Broker, paths: list[Path]
) -> None:
    with Connection(broker.bootstrap_servers) as connection:
        topic, home, other = make(connection, paths, f"slow-{next(_numbers)}")
        fill(connection, topic)
        set_rate(connection, "1000")
        try:
            assert alter(connection, other, (topic, 0)) == [0]
            wait_for(lambda: len(places(connection, topic)) == 2)
            ((path, _, lag),) = [each for each in places(connection, topic) if each[1]]
            assert path == str(other)
            assert 0 < lag <= 50
            assert len(list(other.glob(f"{topic}-0.*-future"))) == 1
            assert alter(connection, other, (topic, 0)) == [0]
            assert len(list(other.glob(f"{topic}-0.*-future"))) == 1
            # A move to where it lies ends it.
            assert alter(connection, home, (topic, 0)) == [0]
            assert home_of(connection, topic) == home
            wait_for(lambda: not list(other.glob(f"{topic}-0*")))
            # As does the end of the topic.
            assert alter(connection, other, (topic, 0)) == [0]
            kind = messages.DeleteTopicsRequest
            asked = kind(topics=[kind.DeleteTopicState(name=topic)], timeout_ms=60_000)
            connection.ask("DeleteTopics", 6, asked)
            wait_for(lambda: not list(other.glob(f"{topic}-0*")))
        finally:
            set_rate(connection, None)


@pytest.mark.parametrize(("key", "value", "least_s"), [("num", 1, 4), ("size.seconds", 3_600, 0)])
def test_the_windows_of_the_rate_say_for_how_long_what_was_copied_counts(
    tmp_path: Path, key: str, value: int, least_s: int
) -> None:
    """At a rate at which a batch would take a minute or more, the next one goes when it counts no
    longer, or all at once where they are few for the span that they are counted in."""
    directories = [tmp_path / "one", tmp_path / "two"]
    config = {**config_of(directories), f"{WINDOW}.{key}": str(value)}
    with (
        kafkalite.Broker(config=config) as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        topic, _, other = make(connection, directories, "windows")
        fill(connection, topic, 5)
        set_rate(connection, "100")
        began = time.monotonic()
        assert alter(connection, other, (topic, 0)) == [0]
        wait_for(has_moved(connection, topic, other))
        assert least_s <= time.monotonic() - began < 4 * REMEMBERED_S


def test_a_parked_fetch_sees_what_comes_after_the_move(
    broker: kafkalite.Broker, paths: list[Path]
) -> None:
    with (
        Connection(broker.bootstrap_servers) as connection,
        Connection(broker.bootstrap_servers) as reader,
    ):
        topic, _, other = make(connection, paths, f"parked-{next(_numbers)}")
        assert connection.produce(topic, batch([b"before"])).error_code == 0
        found: list[Any] = []

        def read() -> None:
            found.append(reader.fetch(topic, 1, max_wait_ms=LIMIT_S * 1_000))

        thread = threading.Thread(target=read)
        thread.start()
        assert alter(connection, other, (topic, 0)) == [0]
        wait_for(has_moved(connection, topic, other))
        assert connection.produce(topic, batch([b"after"])).base_offset == 1
        thread.join(LIMIT_S)
        assert b"after" in found[0].records


def test_a_move_that_a_stop_cuts_off_goes_on(tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    with (
        kafkalite.Broker(config=config_of(directories)) as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        topic, _, other = make(connection, directories, "cut-off")
        fill(connection, topic)
        set_rate(connection, "1000")
        assert alter(connection, other, (topic, 0)) == [0]
        wait_for(lambda: bool(list(other.glob(f"{topic}-0.*-future"))))
        set_rate(connection, "100000000")
        set_rate(connection, "1")
    with (
        kafkalite.Broker(config=config_of(directories)) as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        set_rate(connection, None)
        wait_for(has_moved(connection, topic, other))
        assert connection.list_offsets(topic, -1).offset == 50
        assert connection.produce(topic, batch([b"after"])).base_offset == 50


def test_a_directory_is_kept_in_mind_for_a_partition_that_is_still_to_be_made(
    broker: kafkalite.Broker, paths: list[Path]
) -> None:
    with Connection(broker.bootstrap_servers) as connection:
        for path in paths:
            topics = [f"wanted-{next(_numbers)}" for _ in range(3)]
            unknown = codes.UNKNOWN_TOPIC_OR_PARTITION
            assert alter(connection, path, *((each, 0) for each in topics)) == [unknown] * 3
            for topic in topics:
                assert connection.create_topic(topic).error_code == 0
                assert home_of(connection, topic) == path


class Moving:
    """The engine's part of a request: what comes of each partition, until it is answered."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.outcomes: dict[int, Callable[[], tuple[int, str]]] = {}
        """What comes of a partition where its move does not simply begin."""
        self._found: dict[int, tuple[int, str]] = {}
        self._is_answered = False

    def begin(self, _topic: str, partition: int, _path: str) -> bool:
        self.asked.append(partition)
        outcome = self.outcomes.get(partition, lambda: (0, ""))()
        if not self._is_answered:
            self._found[partition] = outcome
        return not self._is_answered

    def answer(self) -> list[tuple[str, int, int, str]]:
        self._is_answered = True
        return [("t", partition, *outcome) for partition, outcome in self._found.items()]


class Handled:
    """A request for partitions of one topic, whose thread runs when `begin` is called."""

    def __init__(self, partitions: list[int]) -> None:
        self.timers = Timers()
        self.tasks = Tasks(self.timers, lambda error: pytest.fail(str(error)), lambda: 0)
        self.moving = Moving()
        self.preferred: list[tuple[str, int, bytes]] = []
        self.warnings: list[str] = []
        context: Any = SimpleNamespace(
            tasks=self.tasks,
            time_limit=self.tasks.until,
            may=lambda *_: True,
            background=SimpleNamespace(run=self._run),
            log=SimpleNamespace(warning=self.warnings.append),
            moves=SimpleNamespace(
                request=lambda: self.moving, directory_id=lambda at: f"id of {at}".encode()
            ),
            replicas=SimpleNamespace(prefer=lambda *preferred: self.preferred.append(preferred)),
        )
        kind = messages.AlterReplicaLogDirsRequest.AlterReplicaLogDir
        topic = kind.AlterReplicaLogDirTopic(name="t", partitions=partitions)
        asked = messages.AlterReplicaLogDirsRequest(dirs=[kind(path="/two", topics=[topic])])
        handle: Any = k34_alter_replica_log_dirs.handle
        self.answer = self.tasks.start(handle(context, None, asked))

    def let_time_pass(self) -> None:
        """Lets as much time pass as clients wait."""
        due = self.timers.pop_due(CHANGE_WAIT_MS)
        assert due is not None
        due()
        self.go_on()

    def go_on(self) -> None:
        while self.tasks.ready:
            self.tasks.ready.popleft()()

    def codes(self) -> list[int]:
        (result,) = self.answer.result().results
        return [each.error_code for each in result.partitions]

    def _run(self, work: Callable[[], None]) -> Future[None]:
        self.begin = work
        return Future[None]()


def test_who_asks_is_answered_although_a_disk_does_not_answer() -> None:
    """The request waited for good, and each later one with a thread of its own."""
    handled = Handled([0, 1])
    assert handled.timers.pop_due(CHANGE_WAIT_MS - 1) is None
    assert not handled.answer.is_done
    handled.let_time_pass()
    assert handled.codes() == [codes.KAFKA_STORAGE_ERROR] * 2
    assert handled.warnings == ["AlterReplicaLogDirs: a log directory does not answer"]


def test_what_was_refused_does_not_begin_later_and_what_had_begun_is_answered() -> None:
    """When the disk answered again the rest of the request was done: it ended moves that had been
    granted since. Each partition was answered with an error, and no directory was kept in mind."""
    handled = Handled([0, 1, 2, 3, 4])

    def answers_late() -> tuple[int, str]:
        handled.let_time_pass()
        return 0, ""

    handled.moving.outcomes = {
        1: lambda: (codes.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"),
        2: answers_late,
    }
    handled.begin()
    refused = codes.KAFKA_STORAGE_ERROR
    assert handled.codes() == [0, codes.UNKNOWN_TOPIC_OR_PARTITION, refused, refused, refused]
    assert handled.moving.asked == [0, 1, 2]
    assert handled.preferred == [("t", 1, b"id of /two")]


def test_a_stop_of_the_broker_does_not_blame_a_log_directory() -> None:
    handled = Handled([0, 1])
    handled.tasks.stop()
    handled.go_on()
    assert handled.codes() == [codes.KAFKA_STORAGE_ERROR] * 2
    assert handled.warnings == []
