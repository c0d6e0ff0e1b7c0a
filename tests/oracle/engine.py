"""Our side of the comparison: logs written and read by the engine, in the records of `tools.py`."""

import base64
import struct
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafkalite._native import (
    AppendInfo,
    BatchBuilder,
    Log,
    LogDirectory,
    end_transaction_marker,
    read_batches,
)
from oracle.tools import Record

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# The time of the tests. Kafka reads the clock and forgets producers whose records are old.
NOW_MS = time.time_ns() // 1_000_000 - 60_000


def new_id() -> str:
    """A topic id or directory id as Kafka prints it."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def new_directory(path: Path, **options: Any) -> LogDirectory:
    """A log directory, formatted for a cluster of its own."""
    return LogDirectory.open(
        path, now_ms=NOW_MS, cluster_id=new_id(), node_id=1, directory_id=new_id(), **options
    )


class Writer:
    """Appends to a log as a leader does and remembers every record with its offset."""

    def __init__(self, log: Log, *, leader_epoch: int = 0) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.records: list[Record] = []

    def send(
        self,
        records: Sequence[Record],
        codec: str = "none",
        *,
        now_ms: int = NOW_MS,
        **options: Any,
    ) -> AppendInfo:
        """Appends one batch; `options` are those of `BatchBuilder`."""
        builder = BatchBuilder(codec, **options)
        for record in records:
            headers = [(key.encode(), value) for key, value in record.headers]
            timestamp = now_ms if record.timestamp is None else record.timestamp
            builder.append(timestamp, record.key, record.value, headers)
        info = self.log.append(builder.finish(), now_ms=now_ms, leader_epoch=self.leader_epoch)
        if info.is_duplicate:
            return info
        by_log = info.log_append_time_ms >= 0
        for at, record in enumerate(records):
            timestamp = now_ms if record.timestamp is None else record.timestamp
            self.records.append(
                replace(
                    record,
                    topic=self.log.topic,
                    partition=self.log.partition,
                    timestamp=info.log_append_time_ms if by_log else timestamp,
                    timestamp_type=int(by_log),
                    offset=info.first_offset + at,
                    leader_epoch=self.leader_epoch,
                )
            )
        return info

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        version: int = 1,
    ) -> AppendInfo:
        """Appends a marker; from transaction version 2 on its epoch is above the records'."""
        marker = end_transaction_marker(
            NOW_MS, producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch
        )
        return self.log.append(
            marker,
            now_ms=NOW_MS,
            origin="coordinator",
            leader_epoch=self.leader_epoch,
            transaction_version=version,
        )


def batches_of(log: Log, start: int | None = None, stop: int | None = None) -> Iterator[Any]:
    """The batches of a log as `RecordBatch`, from that of `start` on, up to the log end."""
    offset = log.offsets.log_start_offset if start is None else start
    end = log.offsets.log_end_offset if stop is None else stop
    while offset < end:
        batches = read_batches(log.read(offset, 4 << 20))
        if not batches:
            return
        yield from batches
        offset = batches[-1].last_offset + 1


def records_of(log: Log, *, committed: bool = False) -> list[Record]:
    """What a consumer would get from the log start offset on."""
    offsets = log.offsets
    stop = offsets.last_stable_offset if committed else offsets.high_watermark
    aborted = log.aborted_transactions(offsets.log_start_offset, stop) if committed else []
    dropping: set[int] = set()
    records = []
    for batch in batches_of(log, stop=stop):
        if batch.base_offset >= stop:
            break
        while aborted and aborted[0].first_offset <= batch.last_offset:
            dropping.add(aborted.pop(0).producer_id)
        if batch.is_control:
            if batch.records and struct.unpack(">hh", batch.records[0][2])[1] == 0:
                dropping.discard(batch.producer_id)
            continue
        if committed and batch.is_transactional and batch.producer_id in dropping:
            continue
        for offset, timestamp, key, value, headers in batch.records:
            if offset < offsets.log_start_offset:
                continue
            records.append(
                Record(
                    topic=log.topic,
                    partition=log.partition,
                    value=value,
                    key=key,
                    timestamp=timestamp,
                    headers=tuple((name.decode(), content) for name, content in headers),
                    offset=offset,
                    timestamp_type=batch.timestamp_type,
                    leader_epoch=batch.leader_epoch,
                )
            )
    return records


def segment_files(partition: Path) -> list[Path]:
    """Everything in a partition's directory that DumpLogSegments reads, in its order of names."""
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    return sorted(path for path in partition.iterdir() if path.suffix in kinds)
