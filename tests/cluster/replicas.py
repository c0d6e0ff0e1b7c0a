"""Says whether the replicas of a partition are the same: byte for byte below the high watermark,
batch by batch, with equal leader epochs. It reads Kafka's files by itself, with none of kafkalite's
code."""

import struct
import time
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from cluster.brokers import BACK_S, Cluster
from kafkalite.client.admin import LATEST

HEADER = struct.Struct(">qiibI")
"""Base offset, length behind it, leader epoch, magic and CRC of a batch."""
PREFIX_BYTES = 12
"""Of base offset and length, which the length leaves out."""
POLL_S = 0.2
CHECKPOINT = "leader-epoch-checkpoint"


class Batch(NamedTuple):
    """A batch as it lies in a segment."""

    base_offset: int
    leader_epoch: int
    crc: int
    content: bytes

    def __str__(self) -> str:
        size = len(self.content)
        return f"{self.base_offset} (epoch {self.leader_epoch}, CRC {self.crc:08x}, {size} bytes)"


def batches(folder: Path) -> Iterator[Batch]:
    """Those of a partition, up to what has not been written as a whole."""
    for segment in sorted(folder.glob("*.log")):
        content = segment.read_bytes()
        at = 0
        while at + HEADER.size <= len(content):
            base_offset, length, leader_epoch, _, crc = HEADER.unpack_from(content, at)
            end = at + PREFIX_BYTES + length
            if length <= 0 or end > len(content):
                break
            yield Batch(base_offset, leader_epoch, crc, content[at:end])
            at = end


def leader_epochs(folder: Path, below: int) -> list[tuple[int, int]]:
    """Leader epochs with the offset where each begins, of those that have a record below an offset:
    a leader notes its epoch before it has any, and its followers when they get one."""
    rows = [*map(str.split, (folder / CHECKPOINT).read_text().splitlines()[2:])]
    epochs = [(int(epoch), int(start)) for epoch, start in rows]
    written = {each.leader_epoch for each in batches(folder) if each.base_offset < below}
    return [(epoch, start) for epoch, start in epochs if start < below and epoch in written]


def difference(replicas: Mapping[int, Path], high_watermark: int) -> str | None:
    """What differs first, by the ids of brokers; None for replicas that are equal."""
    (first, folder), *others = replicas.items()
    reached = -1
    for other, its_folder in others:
        for ours, theirs in zip_longest(batches(folder), batches(its_folder)):
            if ours is not None and ours.base_offset >= high_watermark:
                break
            if ours != theirs:
                return f"broker {first} has batch {ours}, broker {other} {theirs}"
            reached = ours.base_offset
        epochs, theirs_too = (leader_epochs(each, high_watermark) for each in (folder, its_folder))
        if epochs != theirs_too:
            return f"leader epochs: broker {first} has {epochs}, broker {other} {theirs_too}"
    if high_watermark > 0 and reached < 0 and others:
        return f"no batch below the high watermark {high_watermark}"
    return None


def check_replicas(cluster: Cluster, topic: str) -> int:
    """Once nobody writes, all replicas become the same within some time; how many records they
    have. Raises `AssertionError` with what still differs."""
    cluster.wait_for_isr(topic)
    rows = cluster.partitions(topic)
    with cluster.admin() as admin:
        found = admin.list_offsets({(topic, row.partition): LATEST for row in rows})
    ends = {index: listed.offset for (_, index), listed in found.items()}
    for row in rows:
        name = f"{topic}-{row.partition}"
        folders = {each: cluster.members[each].replica(name) for each in row.replicas}
        end = ends[row.partition]
        due = time.monotonic() + BACK_S
        while (found_one := difference(folders, end)) is not None:
            assert time.monotonic() < due, f"{name}: {found_one}"
            time.sleep(POLL_S)  # the pause of this poll
    return sum(ends.values())
