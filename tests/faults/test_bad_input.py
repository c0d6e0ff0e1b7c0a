"""Requests that are wrong: an error code of Kafka or a closed connection, never a hang, a panic, a
traceback or a leak; and who asks properly is served all the while."""

import random
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import kafkalite
from api.raw import KEYS, Connection
from faults.bad_frames import bad_bodies, header
from golden.table import read_table
from kafkalite._native import BatchBuilder, read_batches
from kafkalite.protocol import messages

TABLE = read_table()
API_VERSIONS, SENTINEL_ID = 18, 0x5E77
# An answer that takes longer is a hang, but for what a change may have told to wait.
PATIENCE_S = 60.0
WAITS_S = 10.0
MAY_WAIT = {"Fetch", "JoinGroup", "SyncGroup"}
THREADS_SPARE_MAX = 9
"""Where the disk is slow, some are started that stand in for those that it holds up, and stay:
`SPARE_THREADS_MAX` of the network and a gate of each kind. A leak is hundreds here."""
WORDS_OF_BUGS = ("panicked", "Traceback", "RUST_BACKTRACE")
NAMES = sorted(KEYS)


class Probe:
    """A client with good manners: it produces one record after the other, all the while."""

    def __init__(self, broker: kafkalite.Broker) -> None:
        self.produced = 0
        self.failure: BaseException | None = None
        self._ends = threading.Event()
        self._connection = Connection(broker.bootstrap_servers)
        assert self._connection.create_topic("probe").error_code == 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                builder = BatchBuilder()
                builder.append(int(time.time() * 1000), None, b"%d" % self.produced)
                answer = self._connection.produce("probe", builder.finish())
                assert answer.error_code == 0, answer
                assert answer.base_offset == self.produced
                self.produced += 1
                self._ends.wait(0.005)
        except BaseException as failure:  # noqa: BLE001 - told by `goes_on`
            self.failure = failure

    def goes_on(self) -> None:
        """Fails unless records are still produced."""
        before = self.produced
        deadline = time.monotonic() + PATIENCE_S
        while self.produced == before and self.failure is None:
            assert time.monotonic() < deadline, "a good client is no longer served"
            time.sleep(0.001)  # polls the count of records
        assert self.failure is None, repr(self.failure)

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        self._connection.socket.close()


class Target:
    """A broker that is treated badly, and what can be seen of it from outside."""

    def __init__(self, broker: kafkalite.Broker) -> None:
        self.broker = broker
        self.probe = Probe(broker)

    def send(self, frame: bytes, name: str) -> bytes | None:
        """Sends a frame and a good request behind it. None: the connection was closed. Else the
        frame's answer, or b"" if it had none. Fails if neither comes."""
        sentinel = struct.pack(">hhih", API_VERSIONS, 0, SENTINEL_ID, -1)
        with Connection(self.broker.bootstrap_servers) as connection:
            connection.socket.settimeout(WAITS_S if name in MAY_WAIT else PATIENCE_S)
            answer = b""
            try:
                connection.send_frame(frame)
                connection.send_frame(sentinel)
                while (received := connection.receive_frame()) is not None:
                    if received[:4] == struct.pack(">i", SENTINEL_ID):
                        return answer
                    answer = received
            except TimeoutError:
                assert name in MAY_WAIT, f"{name}: no answer within {PATIENCE_S} s"
                return b""
            except (ConnectionResetError, BrokenPipeError):
                pass
            return None

    def check_log(self) -> None:
        """Fails if a thread of the broker has panicked, or Python has printed a traceback."""
        tail = self.broker.log_tail(100_000)
        for word in WORDS_OF_BUGS:
            before, found, after = tail.partition(word)
            assert not found, before[-500:] + found + after[:3000]

    def usage(self) -> dict[str, int]:
        """Descriptors, threads and memory of the broker's process, that of files left out."""
        process = Path("/proc") / str(self.broker.pid)
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return {
            "descriptors": len(list((process / "fd").iterdir())),
            "threads": len(list((process / "task").iterdir())),
            "resident_kib": int(status["RssAnon"].split()[0]),
        }


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    config = {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "log.retention.ms": "-1",  # some records are old
    }
    with kafkalite.Broker(config=config) as broker:
        target = Target(broker)
        yield target
        target.probe.goes_on()
        target.probe.end()
        code = broker.stop()
        target.check_log()
        assert code == 0


def attack(
    target: Target, name: str, seed: int, each: int, known: Sequence[str | bytes] = ()
) -> int:
    """Sends bad requests of every version of a key, also of versions that nobody has."""
    schema = TABLE[f"{name}Request"]
    sent = 0
    for version in range(schema.versions.first, schema.versions.last + 1):
        chance = random.Random(zlib.crc32(f"{name} {version} {seed}".encode()))
        for word, body in bad_bodies(schema, version, chance, each, known):
            frame = header(schema, version, sent + 1) + body
            answer = target.send(frame, name)
            where = f"{name} v{version}, {word}: {body[:200].hex()}"
            if answer:
                assert answer[:4] == struct.pack(">i", sent + 1), where
            sent += 1
    for version in (-1, schema.versions.first - 1, schema.versions.last + 1, 32767):
        target.send(header(schema, version, 1) + b"\0" * 20, name)
    return sent


@pytest.mark.parametrize("name", NAMES)
def test_bad_requests_are_refused(target: Target, name: str) -> None:
    assert attack(target, name, 1, 6) > 0
    target.check_log()
    target.probe.goes_on()


def known_names(target: Target) -> list[str | bytes]:
    """A topic, its id and a group, made again if the requests before have deleted them."""
    with Connection(target.broker.bootstrap_servers) as connection:
        connection.create_topic("known", 2)
        asked = messages.MetadataRequest.MetadataRequestTopic(name="known")
        found = connection.ask("Metadata", 12, messages.MetadataRequest(topics=[asked]))
        coordinator = messages.FindCoordinatorRequest(coordinator_keys=["group"])
        connection.ask("FindCoordinator", 4, coordinator)
        kind = messages.OffsetCommitRequest
        partition = kind.OffsetCommitRequestTopic.OffsetCommitRequestPartition()
        topic = kind.OffsetCommitRequestTopic(name="known", partitions=[partition])
        connection.ask("OffsetCommit", 8, kind(group_id="group", topics=[topic]))
        return ["known", "known", "group", found.topics[0].topic_id]


@pytest.mark.parametrize("name", NAMES)
def test_bad_requests_about_what_is_there_are_refused(target: Target, name: str) -> None:
    assert attack(target, name, 1, 5, known_names(target)) > 0
    target.check_log()
    target.probe.goes_on()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 22))
def test_more_bad_requests_are_refused(target: Target, seed: int) -> None:
    for name in NAMES:
        attack(target, name, seed, 8)
        attack(target, name, seed, 8, known_names(target))
        target.check_log()
    target.probe.goes_on()


def test_unknown_keys_and_random_frames_close_the_connection(target: Target) -> None:
    chance = random.Random(7)
    for _ in range(300):
        frame = chance.randbytes(chance.randint(0, 60))
        if chance.random() < 0.5:
            key = chance.choice((-1, 4, 5, 6, 7, 53, 93, 500, 32767, -32768))
            frame = struct.pack(">hhih", key, chance.randint(-2, 20), 1, -1) + frame
        target.send(frame, "Fetch")
    target.check_log()
    target.probe.goes_on()


def test_a_frame_that_ends_early_closes_the_connection(target: Target) -> None:
    for size, sent in [(100, 0), (100, 99), (8, 7), (1 << 20, 1000)]:
        with Connection(target.broker.bootstrap_servers) as connection:
            connection.socket.sendall(struct.pack(">i", size) + bytes(sent))
            connection.socket.shutdown(1)
            assert connection.is_closed()


def test_corrupt_batches_leave_a_log_that_reads(target: Target) -> None:
    """Bytes of a batch are changed, with a CRC that is made anew or not: each answer is a code of
    Kafka's, and what was taken comes back as whole batches."""
    chance = random.Random(11)
    taken = 0
    with Connection(target.broker.bootstrap_servers) as connection:
        assert connection.create_topic("corrupt").error_code == 0
        for _ in range(600):
            answer = connection.produce("corrupt", bad_batch(chance))
            assert answer.error_code in (-1, 0, 2, 10, 32, 43, 45, 47, 48, 53, 59, 76, 87), answer
            taken += answer.error_code == 0
        offset = 0
        high_watermark = connection.list_offsets("corrupt", -1).offset
        while offset < high_watermark:
            fetched = connection.fetch("corrupt", offset)
            assert fetched.error_code == 0
            batches = read_batches(fetched.records)
            assert batches
            for batch in batches:
                assert batch.base_offset == offset
                assert [record[0] for record in batch.records]
                offset = batch.last_offset + 1
    assert taken > 20
    target.check_log()
    target.probe.goes_on()


def bad_batch(chance: random.Random) -> bytes:
    """A batch of some codec, with a few bytes changed, cut or added."""
    from api.batches import crc32c

    builder = BatchBuilder(chance.choice(("none", "gzip", "snappy", "lz4", "zstd")))
    for number in range(chance.randint(1, 4)):
        builder.append(1_700_000_000_000 + number, b"k", b"value" * chance.randint(0, 20))
    batch = bytearray(builder.finish())
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        batch[chance.randrange(len(batch))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
    if chance.random() < 0.2:
        del batch[chance.randrange(len(batch)) :]
    if chance.random() < 0.1:
        batch += chance.randbytes(chance.randint(1, 70))
    if len(batch) > 21 and chance.random() < 0.7:
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def test_bad_requests_leave_nothing_behind(target: Target) -> None:
    """The same bad requests once more: what they could make is there, so nothing may be added."""

    def sweep() -> None:
        for name in NAMES:
            attack(target, name, 5, 2)

    sweep()
    settled(target, 0)
    before = target.usage()
    for _ in range(2):
        sweep()
    after = settled(target, before["descriptors"])
    assert after["descriptors"] <= before["descriptors"], (before, after)
    assert after["threads"] <= before["threads"] + THREADS_SPARE_MAX, (before, after)
    assert after["resident_kib"] <= before["resident_kib"] + 8192, (before, after)


def settled(target: Target, descriptors: int) -> dict[str, int]:
    """What the broker uses once it has seen that its clients are gone."""
    deadline = time.monotonic() + PATIENCE_S
    usage = target.usage()
    while True:
        target.probe.goes_on()
        last, usage = usage, target.usage()
        same = last["descriptors"] == usage["descriptors"]
        if (same and usage["descriptors"] <= descriptors) or time.monotonic() > deadline:
            return usage
        if same and not descriptors:
            return usage
        time.sleep(0.05)  # polls the descriptors
