"""A broker for the commands that ask one; and a log directory that Apache Kafka wrote: every codec,
transactions, several segments and leader epochs, a compacted topic. Made once per session; tests
that change something copy it."""

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cli.told import Run, Told
from kafkalite import cli
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools, Record

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def fill(tools: KafkaTools, servers: str) -> None:
    """Topics `mixed`, `compacted`, `transactions` and their records, from a fixed seed."""
    draw = random.Random(7)
    small = {"segment.bytes": "1048576", "index.interval.bytes": "4096"}
    tools.create_topic(servers, "mixed", config=small)
    compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    tools.create_topic(servers, "compacted", config={**small, **compact})
    tools.create_topic(servers, "transactions", config=small)
    for codec in CODECS:
        records: list[Record | str] = []
        for number in range(1500):
            value = draw.randbytes(draw.randrange(400))
            key = f"key-{draw.randrange(50)}".encode()
            headers = (("number", str(number).encode()), ("null", None))
            records.append(Record("mixed", value, key=key, headers=headers))
            records.append(Record("compacted", value, key=key))
        tools.produce(servers, records, config={"compression.type": codec, "batch.size": "8000"})
    steps: list[Record | str] = []
    for number in range(40):
        steps += ["begin", *(Record("transactions", draw.randbytes(900)) for _ in range(40))]
        steps.append("abort" if number % 3 == 0 else "commit")
    tools.produce(servers, steps, config={"transactional.id": "filler"})


@pytest.fixture(scope="session")
def kafka_directory(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory after a clean stop; not to be changed."""
    folder = tmp_path_factory.mktemp("written-by-kafka")
    broker = KafkaBroker(kafka_tools, folder, properties={"log.cleaner.backoff.ms": "200"})
    with broker:
        for _ in range(2):
            fill_or_add(kafka_tools, broker)
            broker.stop()
            broker.start()  # a new leader epoch
        kafka_tools.produce(broker.bootstrap_servers, [Record("mixed", b"last")])
        broker.stop()
    return broker.log_dirs[0]


def fill_or_add(tools: KafkaTools, broker: KafkaBroker) -> None:
    """The first time everything, then one record more."""
    if any(broker.log_dirs[0].glob("mixed-0")):
        tools.produce(broker.bootstrap_servers, [Record("mixed", b"one more")])
    else:
        fill(tools, broker.bootstrap_servers)


@pytest.fixture
def directory(kafka_directory: Path, tmp_path: Path) -> Path:
    """A copy of Kafka's directory to break."""
    copy = tmp_path / "data"
    shutil.copytree(kafka_directory, copy)
    return copy


@pytest.fixture(scope="session")
def kafkalite() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command as a user does, and never lets a traceback pass."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command: Sequence[str] = [sys.executable, "-m", "kafkalite", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture
def run(servers: str, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command within this process."""

    def run_here(*arguments: str) -> Told:
        capfd.readouterr()
        try:
            code = cli.run([*arguments, "--bootstrap-server", servers])
        except SystemExit as told:  # of argparse
            code = int(told.code or 0)
        sys.stdout.flush()
        return Told(code, *capfd.readouterr())

    return run_here
