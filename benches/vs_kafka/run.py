"""`make bench-kafka`: kafkalite beside Apache Kafka 4.3.1 on this machine, in one run.

    python benches/vs_kafka/run.py [--pairs 7] [--seconds 3] [--only SHAPE,…] [--awake]
                                   [--beside FOLDER] [--out DIRECTORY]

One node, replication factor 1. Both brokers are up all the time; a pair is one run on each side,
one after the other, and pairs take turns in who goes first. While one is measured the others stand
still (`still.py`). `--beside` adds a third side, the `kafkalite` in another folder. Every run is a
line of `raw.jsonl`, from which `report.py` makes the report.
"""

import argparse
import compileall
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import report
from awake import Awake
from loads import finish_load, load, start_load
from shapes import (
    BARE,
    COMPARISONS,
    PARTITIONS,
    RECYCLING,
    SINK_REQUEST_BYTES,
    SINK_SHAPE,
    Comparison,
    Shape,
)
from sides import (
    Before,
    Kafka,
    Kafkalite,
    Side,
    Sink,
    Start,
    bare_python_s,
    create_topic,
    resident_mb,
)
from still import still

import kafkalite
from kafkalite.protocol import messages
from oracle.tools import KafkaTools

ROOT = Path(__file__).resolve().parents[2]
READY_ROUNDS = 20
MANY_PARTITIONS = 1_000
IDLE_CONNECTIONS = 10_000
FILL_S = 4.0
PAGES_BYTES = 1 << 31
"""Written and deleted before each run that writes much, on either side: more than a side has at
once (p16k: up to 1.9 GB)."""


class Bench:
    """One run of everything. `lines` goes to `raw.jsonl` as it comes."""

    def __init__(
        self, folder: Path, out: Path, pairs: int, seconds: float, pids: Sequence[int]
    ) -> None:
        self.folder = folder
        self.pids = pids
        """All that is up for the whole run: both sides, and the JVM of Kafka's tools."""
        self.pairs = pairs
        self.seconds = seconds
        self.raw = (out / "raw.jsonl").open("w")
        self.lines: list[dict[str, Any]] = []

    def note(self, **facts: Any) -> None:
        """Keeps a result and shows it."""
        self.lines.append(facts)
        self.raw.write(json.dumps(facts) + "\n")
        self.raw.flush()
        shown = {name: value for name, value in facts.items() if not isinstance(value, dict)}
        print(" ".join(f"{name}={value}" for name, value in shown.items()), flush=True)

    def compare(self, comparison: Comparison, sides: list[Side], shapes: list[Shape]) -> None:
        """All rounds of the shapes of one comparison."""
        flush = {"flush.messages": "1"} if comparison.kafka_flushes else {}
        for shape in shapes:
            topic = f"{comparison.our_fsync}-{comparison.kafka_flushes}-{shape.name}"
            topic = topic.replace(" ", "-")
            for side in sides:
                self.prepare(side, shape, topic, flush if side.name == "Kafka" else {})
            for pair in range(self.pairs):
                for side in sides if pair % 2 == 0 else reversed(sides):
                    result = self.measure(side, shape, topic)
                    self.note(
                        comparison=comparison.name,
                        shape=shape.name,
                        side=side.name,
                        pair=pair,
                        result=result,
                        us=round(result["server_us_per_request"] or 0, 2),
                        ms_gb=round(result["server_ms_per_gb"] or 0),
                        mb_s=round(result["mb_per_s"] or 0, 1),
                    )
                if comparison.name == "both durable":
                    bare = load("bare", directory=self.folder, bytes=BARE[shape.name],
                                seconds=self.seconds)  # fmt: skip
                    self.note(comparison=comparison.name, shape=shape.name, side="bare",
                              pair=pair, result=bare)  # fmt: skip
            if shape.name == SINK_SHAPE and comparison.is_like_for_like:
                self.without_broker(comparison)

    def without_broker(self, comparison: Comparison) -> None:
        """The same requests to a loop that does nothing but the system calls."""
        frame = (SINK_REQUEST_BYTES - 4).to_bytes(4, "big") + bytes(SINK_REQUEST_BYTES - 4)
        for on_one_processor in (False, True):
            sink = Sink(
                self.folder,
                is_synced=comparison.kafka_flushes,
                on_one_processor=on_one_processor,
            )
            with still(self.pids):
                for pair in range(self.pairs):
                    result = load("repeat", bound=sink.bound, frame=frame.hex(), pid=sink.pid,
                                  broker=sink.bootstrap_servers, seconds=self.seconds)  # fmt: skip
                    self.note(comparison=comparison.name, shape=SINK_SHAPE, side=sink.name,
                              pair=pair, result=result)  # fmt: skip
            sink.stop()

    def prepare(self, side: Side, shape: Shape, topic: str, configs: Mapping[str, str]) -> None:
        """The topic, filled where it is to be read, and the side warm."""
        reads = shape.mode in ("fetch", "mixed")
        kept = {"segment.bytes": RECYCLING["segment.bytes"]} if reads else RECYCLING
        create_topic(side, topic, PARTITIONS, {**kept, **configs})
        if reads:
            load("produce", broker=side.bootstrap_servers, topic=topic, partitions=PARTITIONS,
                 record_bytes=1024, records=16, connections=4, inflight=5,
                 seconds=FILL_S)  # fmt: skip
        if shape.mode == "mixed":
            create_topic(side, f"{topic}-written", PARTITIONS, RECYCLING)
        if shape.is_busy:
            create_topic(side, "committed", 1, {})
        self.measure(side, shape, topic)

    def measure(self, side: Side, shape: Shape, topic: str) -> dict[str, Any]:
        """One run of one shape on one side."""
        if shape.unit == "GB" and shape.mode != "fetch":
            self.recycle_pages()
        with still([pid for pid in self.pids if pid != side.pid]):
            return self.run(side, shape, topic)

    def run(self, side: Side, shape: Shape, topic: str) -> dict[str, Any]:
        """The loads of one run."""
        common: dict[str, Any] = {
            "broker": side.bootstrap_servers,
            "pid": side.pid,
            "seconds": self.seconds,
        }
        beside = None
        if shape.mode == "mixed":
            beside = start_load("produce", **common, topic=f"{topic}-written",
                                partitions=PARTITIONS, record_bytes=1024, records=16,
                                connections=4, inflight=5)  # fmt: skip
        elif shape.is_busy:
            beside = start_load("repeat", **common, frame=offset_commit().hex(), connections=2)
        mode = "fetch" if shape.mode == "mixed" else shape.mode
        result = load(mode, **common, topic=topic, partitions=PARTITIONS, **shape.arguments)
        if beside is not None:
            result["beside"] = finish_load(beside)
        return result

    def recycle_pages(self) -> None:
        """The pages that the run is going to fill have been in use just before: else a virtual
        machine fetches them from its host, and that costs more than the broker does."""
        path = self.folder / "pages"
        block = bytes(1 << 20)
        with path.open("wb") as file:
            for _ in range(PAGES_BYTES // len(block)):
                file.write(block)
        path.unlink()

    def perf_tool(self, side: Side, tools: KafkaTools, pair: int) -> None:
        """Kafka's own producer-perf-test, the Java client unmodified."""
        topic = "perf"
        if pair == 0:
            create_topic(side, topic, PARTITIONS, RECYCLING)
        before, started = cpu_s(side.pid), time.monotonic()
        told = tools.run_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            ["--topic", topic, "--num-records", "200000", "--record-size", "1024",
             "--throughput", "-1", "--producer-props",
             f"bootstrap.servers={side.bootstrap_servers}", "acks=all"],
        )  # fmt: skip
        if told.exit != 0:
            raise RuntimeError(told.stdout + told.stderr)
        seconds, used = time.monotonic() - started, cpu_s(side.pid) - before
        gb = 200_000 * 1024 / 1e9
        result = {
            "seconds": seconds,
            "mb_per_s": gb * 1e3 / seconds,
            "server_ms_per_gb": used * 1e3 / gb,
            "server_us_per_request": None,
            "last_line": told.stdout.strip().splitlines()[-1],
        }
        self.note(comparison="equal durability", shape="producer-perf-test", side=side.name,
                  pair=pair, result=result)  # fmt: skip

    def small(self, ours: Side, kafka: Kafka) -> None:
        """Memory, idle connections, time until ready."""
        for side in (ours, kafka):
            self.note(small="resident after the load, MB", side=side.name,
                      value=resident_mb(side.pid))  # fmt: skip
            try:
                idle = load("idle", broker=side.bootstrap_servers, pid=side.pid,
                            connections=IDLE_CONNECTIONS)  # fmt: skip
                self.note(small="idle connections, KB each", side=side.name,
                          value=idle["kb_per_connection"])  # fmt: skip
            except subprocess.CalledProcessError as error:
                print(f"10,000 connections: {error.stderr.strip()}")
        # As pip leaves an installed wheel.
        compileall.compile_dir(Path(kafkalite.__file__).parent, quiet=1)
        start = Start(self.folder)
        for number in range(READY_ROUNDS):
            self.note(
                small="ready, fresh directory, s", side="kafkalite", value=start.fresh_s(number)
            )
            self.note(small="python -c pass, s", side="python", value=bare_python_s())
        many = self.folder / "many"
        broker = Kafkalite(many, "none")
        self.note(small="resident when idle, MB", side="kafkalite", value=resident_mb(broker.pid))
        create_topic(broker, "many", MANY_PARTITIONS, {})
        broker.stop()
        for _ in range(5):
            seconds = start.again_s(many / "kafkalite-none")
            self.note(
                small=f"ready, {MANY_PARTITIONS} partitions, s", side="kafkalite", value=seconds
            )
        self.note(small="ready, fresh directory, s", side="Kafka", value=kafka.ready_s)


def offset_commit() -> bytes:
    """An OffsetCommit request (version 8) of a group without members: size, header, body."""
    request = messages.OffsetCommitRequest
    topic = request.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition
    body = request(
        group_id="busy",
        generation_id_or_member_epoch=-1,
        topics=[
            topic(
                name="committed",
                partitions=[partition(partition_index=0, committed_offset=1)],
            )
        ],
    ).encode(8)
    client = b"load"
    header = b"\0\x08\0\x08\0\0\0\0" + len(client).to_bytes(2, "big") + client + b"\0"
    return (len(header) + len(body)).to_bytes(4, "big") + header + bytes(body)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def warm_up(side: Side, seconds: float) -> None:
    """Kafka's compilers have seen the load before it is measured, and both sides have written and
    thrown away as many files."""
    create_topic(side, "warm", PARTITIONS, RECYCLING)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for records, connections in ((1, 16), (16, 4), (1000, 4)):
            load("produce", broker=side.bootstrap_servers, topic="warm", partitions=PARTITIONS,
                 record_bytes=1024, records=records, connections=connections, inflight=2,
                 seconds=3)  # fmt: skip


def main() -> None:
    """Everything, then the report."""
    parser = argparse.ArgumentParser(description="kafkalite beside Apache Kafka 4.3.1")
    parser.add_argument("--pairs", type=int, default=7, help="runs on each side (7)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a run (3)")
    parser.add_argument("--warm-up", type=float, default=45.0, help="seconds of load on each (45)")
    parser.add_argument("--only", default="", help="shapes, comma-separated; all if empty")
    parser.add_argument("--awake", action="store_true", help="keep the processors from halting")
    parser.add_argument("--beside", type=Path, help="a folder with another program's kafkalite")
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "reports" / "vs_kafka")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="vs-kafka-") as name,
        KafkaTools() as tools,
        Awake(arguments.awake),
    ):
        folder = Path(name)
        started = time.time()
        kafka = Kafka(folder, tools)
        ours = {fsync: Kafkalite(folder, fsync) for fsync in ("none", "group")}
        before: dict[str, Side] = {}
        if arguments.beside is not None:
            before = {fsync: Before(folder, arguments.beside, fsync) for fsync in ours}
        brokers: list[Side] = [kafka, *ours.values(), *before.values()]
        pids = [tools.pid, *(side.pid for side in brokers)]
        bench = Bench(folder, arguments.out, arguments.pairs, arguments.seconds, pids)
        try:
            for side in brokers:
                with still([pid for pid in pids if pid != side.pid]):
                    warm_up(side, arguments.warm_up)
            for comparison in COMPARISONS:
                shapes = [each for each in comparison.shapes if not only or each.name in only]
                fsync = comparison.our_fsync
                bench.compare(
                    comparison, [each[fsync] for each in (ours, before) if each] + [kafka], shapes
                )
            if not only:
                for pair in range(arguments.pairs):
                    sides: list[Side] = [ours["none"], kafka]
                    for side in sides if pair % 2 == 0 else sides[::-1]:
                        bench.perf_tool(side, tools, pair)
                bench.small(ours["none"], kafka)
        finally:
            for side in reversed(brokers):
                side.stop()
        report.write(
            arguments.out,
            bench.lines,
            ours["group"].properties,
            kafka.properties,
            started,
            is_awake=arguments.awake,
        )
    print(f"\n{arguments.out / 'report.md'}")


if __name__ == "__main__":
    main()
