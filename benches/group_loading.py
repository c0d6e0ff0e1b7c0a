"""How long others wait while the coordinator loads a large partition of `__consumer_offsets`.

    python benches/group_loading.py                    # a million offsets of a million keys
    python benches/group_loading.py --keys 1000        # a million offsets of a thousand keys

One connection asks ApiVersions, Metadata and Heartbeat in turn from the broker's start until all
groups are loaded; the longest answer of each but its first, for which the broker imports modules,
is printed, and the time until they are loaded.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import kafkalite
from api.group_requests import find_coordinator
from api.raw import Connection
from kafkalite import _native
from kafkalite.groups import records
from kafkalite.groups.offsets import CommittedOffset
from kafkalite.protocol import messages

CONFIG = {"offsets.topic.num.partitions": "1"}
BATCH_RECORDS = 500


def fill(data: Path, count: int, keys: int) -> int:
    """Writes so many offsets as the coordinator does; returns their bytes."""
    with kafkalite.Broker(data, config=CONFIG) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            find_coordinator(connection, "bench")
        broker.stop()
    metadata, aside = data / "__cluster_metadata-0", data.parent / "metadata"
    shutil.move(metadata, aside)
    directory = _native.LogDirectory.open(data, now_ms=1)
    log = directory.log("__consumer_offsets", 0)
    assert log is not None
    now_ms = time.time_ns() // 1_000_000
    for first in range(0, count, BATCH_RECORDS):
        builder = _native.BatchBuilder()
        written = []
        for index in range(first, min(first + BATCH_RECORDS, count)):
            key = index % keys
            offset = CommittedOffset(index, 0, "", now_ms, -1, b"i" * 16)
            group, topic = f"group-{key % 1000}", f"topic-{key // 1000 % 10}"
            written.append(records.offset_record(group, topic, key // 10_000, offset))
        builder.extend(now_ms, written)
        log.append(builder.finish(), now_ms=now_ms, origin="coordinator")
    size = log.size_bytes
    directory.close()
    shutil.move(aside, metadata)
    return size


def ask_until_loaded(servers: str) -> dict[str, list[float]]:
    """The seconds that each answer took."""
    took: dict[str, list[float]] = {}
    heartbeat = messages.HeartbeatRequest(group_id="g", member_id="m", generation_id=1)
    asked = (
        ("ApiVersions", 3, messages.ApiVersionsRequest()),
        ("Metadata", 12, messages.MetadataRequest(topics=None)),
        ("Heartbeat", 4, heartbeat),
        ("ListGroups", 4, messages.ListGroupsRequest()),
    )
    with Connection(servers) as connection:
        while True:
            for name, version, request in asked:
                begin = time.perf_counter()
                answer = connection.ask(name, version, request)
                took.setdefault(name, []).append(time.perf_counter() - begin)
            if answer.error_code == 0:
                return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        data = Path(folder) / "data"
        size = fill(data, given.records, given.keys)
        print(f"{given.records} records of {given.keys} keys, {size / 1e6:.0f} MB")
        for _ in range(given.runs):
            begin = time.perf_counter()
            with kafkalite.Broker(data, config=CONFIG) as broker:
                ready = time.perf_counter() - begin
                took = ask_until_loaded(broker.bootstrap_servers)
                loaded = time.perf_counter() - begin
                cpu = Path(f"/proc/{broker.pid}/stat").read_text().rsplit(")", 1)[1].split()
                spent = (int(cpu[11]) + int(cpu[12])) / 100
                broker.stop()
            longest = ", ".join(
                f"{name} {max(each[1:]) * 1e3:.0f} ms" for name, each in took.items()
            )
            print(
                f"ready {ready:.1f} s, loaded {loaded:.1f} s, CPU {spent:.1f} s; longest of "
                f"{len(took['Heartbeat'])}: {longest}"
            )


if __name__ == "__main__":
    main()
