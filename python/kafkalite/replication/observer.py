"""Observes `__cluster_metadata-0` of a quorum of controllers: asks for it by Fetch, finds who leads
the quorum by the answers, and adds up what is committed.

    ask() ──► Fetch, to the leader or to a bootstrap server ──► on_answer ─► records ─► pending
      ▲                                                            │ below the high watermark │
      └── after so many ms ◄── errors, another leader, diverging ◄─┘        Replay ◄──────────┘
                               a snapshot: FetchSnapshot until it is whole ─► a new Replay

Pure: no socket, no file and no clock are in here; the caller sends what is asked, and tells what
came of it, and a `Copy` is told what of the log is to be kept on disk. A start goes on with what
that holds (`local_copy.py`); nothing of it is in force before a controller has said up to where it
is committed.
Records come before they are committed, and may be taken back until they are (`DivergingEpoch`);
only those below the high watermark are added up.

Kafka: `KafkaRaftClient`, as observer (KIP-595, KIP-630).
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kafkalite import _native
from kafkalite.errors import CorruptFileError, KafkaliteError
from kafkalite.metadata.reading import Observed, Replay
from kafkalite.protocol import codes, messages

TOPIC = "__cluster_metadata"
TOPIC_ID = (1).to_bytes(16, "big")
FETCH_VERSION = 18
FETCH_SNAPSHOT_VERSION = 1
FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 1 << 20
REQUEST_TIMEOUT_MS = 2_000
"""`controller.quorum.request.timeout.ms`"""
RETRY_MS = 20
"""`controller.quorum.retry.backoff.ms`: between two servers that are asked who leads."""
ADDED_AT_ONCE = 2_000
"""Records that are added up in one step, which takes some ten milliseconds."""
ELECTION_RETRY_MS = 100
"""While no leader is known by those who were asked."""

Address = tuple[str, int]


class ObserverError(KafkaliteError):
    """The quorum is another, or contradicts what it has committed: the broker cannot go on."""


class Ask(NamedTuple):
    """A request, and to whom it goes."""

    address: Address
    message: Any
    version: int
    timeout_ms: int = REQUEST_TIMEOUT_MS


class Leader(NamedTuple):
    """The leader of the quorum in an epoch, as far as an answer has said."""

    id: int
    epoch: int
    address: Address | None


class _Download(NamedTuple):
    """A snapshot on its way."""

    end_offset: int
    epoch: int
    content: bytearray


class _Snapshot:
    """A snapshot that has come, as far as it is added up."""

    def __init__(self, download: _Download) -> None:
        """Raises CorruptFileError."""
        self.download = download
        self.replay = Replay()
        self.left = deque(_native.read_batches(bytes(download.content)))
        """Batches of which not all is added up."""
        self._added = 0
        """The records of the first of them that are."""

    def add_up(self) -> None:
        """Adds up some records. Raises CorruptFileError."""
        room = ADDED_AT_ONCE
        while room > 0 and self.left:
            batch, start = self.left[0], self._added
            count = len(batch.records)
            self._added = min(count, start + room)
            self.replay.add_some(batch, start, self._added, of_snapshot=True)
            room -= max(1, self._added - start)
            if self._added == count:
                self.left.popleft()
                self._added = 0


class Copy(Protocol):
    """The log as it is kept on disk (`kafkalite.replication.local_copy.LocalCopy`)."""

    def append(self, records: bytes, leader_epoch: int) -> None: ...
    def truncate_to(self, end_offset: int) -> None: ...
    def start_at(self, content: bytes, end_offset: int, epoch: int) -> None: ...
    def follow(self, leader_id: int, leader_epoch: int) -> None: ...


class Observer:
    """See above. `ask`, then `on_answer` or `on_failure`, and so on."""

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        bootstrap: Sequence[Address],
        copy: Copy,
        observed: Observed,
        directory_id: bytes = bytes(16),
    ) -> None:
        """`observed` is what the copy holds, and `directory_id` that of the directory in which it
        lies."""
        self.leader = Leader(-1, observed.leader_epoch, None)
        self.high_watermark = -1
        self.refused_epoch = -1
        """The epoch of the controllers that were asked last, if it is lower than the one that is
        known: they are behind, or of another past."""
        self.replay = observed.snapshot
        """The records that are committed, added up."""
        self.snapshots_loaded = 0
        """Each is a new `replay`, in which nothing is left of the one before."""
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._bootstrap = list(bootstrap)
        self._next_bootstrap = 0
        self._asked: Address = self._bootstrap[0]
        """The server that the last request went to."""
        self._pending = deque(observed.batches)
        """Not known to be committed."""
        self._added = 0
        """The records of the first of them that are added up."""
        self._copy = copy
        self._directory_id = directory_id
        self._download: _Download | None = None
        self._snapshot: _Snapshot | None = None

    @property
    def is_caught_up(self) -> bool:
        """A high watermark is known, and everything below it is added up."""
        return 0 <= self.high_watermark <= self.committed_end

    @property
    def committed_end(self) -> int:
        """The offset after the last record that is added up."""
        return self.replay.offset + 1

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._pending[-1].last_offset + 1 if self._pending else self.committed_end

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch."""
        return self._pending[-1].leader_epoch if self._pending else self.replay.epoch

    def ask(self) -> Ask:
        """Gives the request that is to be sent now."""
        address = self.leader.address
        if address is None:
            address = self._bootstrap[self._next_bootstrap % len(self._bootstrap)]
            self._next_bootstrap += 1
        self._asked = address
        if self._download is not None:
            return Ask(address, self._fetch_snapshot(self._download), FETCH_SNAPSHOT_VERSION)
        return Ask(address, self._fetch(), FETCH_VERSION)

    def on_failure(self) -> int:
        """There is no answer. Returns after how many milliseconds to ask again."""
        self._forget_leader()
        return RETRY_MS

    def on_answer(self, answer: Any) -> int:
        """Takes an answer in. Returns after how many milliseconds to ask again. Raises
        ObserverError, and CorruptFileError where records do not add up."""
        if answer._name == "FetchSnapshotResponse":
            return self._on_snapshot(answer)
        if answer.error_code == codes.INCONSISTENT_CLUSTER_ID:
            raise ObserverError(
                f"the controllers at {self._asked[0]}:{self._asked[1]} are of another cluster: "
                f"cluster.id in this broker's meta.properties is {self._cluster_id}; correct "
                "controller.quorum.bootstrap.servers, or format empty directories with the id of "
                "that cluster (kafkalite format)"
            )
        if answer.error_code or not answer.responses or not answer.responses[0].partitions:
            return self.on_failure()
        partition = answer.responses[0].partitions[0]
        if not self._follow(partition.current_leader, answer.node_endpoints):
            return RETRY_MS
        if partition.error_code:
            return self._on_refusal(partition.error_code)
        if self.leader.address is None:
            # Who answers without an error leads.
            self.leader = self.leader._replace(address=self._asked)
        if partition.snapshot_id.end_offset >= 0:
            found = partition.snapshot_id
            self._download = _Download(found.end_offset, found.epoch, bytearray())
            return 0
        if partition.diverging_epoch.epoch >= 0:
            self._truncate(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
            return 0
        self._append(partition.records or b"")
        self.high_watermark = max(self.high_watermark, partition.high_watermark)
        self.add_up()
        return 0

    def _fetch(self) -> Any:
        kind = messages.FetchRequest
        partition = kind.FetchTopic.FetchPartition(
            partition=0,
            current_leader_epoch=self.leader.epoch,
            fetch_offset=self.end_offset,
            last_fetched_epoch=self.last_epoch,
            high_watermark=self.high_watermark,
            replica_directory_id=self._directory_id,
        )
        return kind(
            cluster_id=self._cluster_id,
            replica_state=kind.ReplicaState(replica_id=self._node_id),
            max_wait_ms=FETCH_WAIT_MS,
            max_bytes=FETCH_BYTES_MAX,
            topics=[kind.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
        )

    def _fetch_snapshot(self, download: _Download) -> Any:
        kind = messages.FetchSnapshotRequest
        topic = kind.TopicSnapshot
        partition = topic.PartitionSnapshot(
            partition=0,
            current_leader_epoch=self.leader.epoch,
            snapshot_id=topic.PartitionSnapshot.SnapshotId(
                end_offset=download.end_offset, epoch=download.epoch
            ),
            position=len(download.content),
        )
        return kind(
            cluster_id=self._cluster_id,
            replica_id=self._node_id,
            max_bytes=FETCH_BYTES_MAX,
            topics=[topic(name=TOPIC, partitions=[partition])],
        )

    def _follow(self, told: Any, endpoints: Sequence[Any]) -> bool:
        """Takes in who leads; False for an answer of an epoch that is over."""
        known = self.leader
        if told.leader_epoch < known.epoch:
            # Also -1: an answer that names nobody is the leader's own.
            self.refused_epoch = told.leader_epoch
            return bool(told.leader_epoch < 0)
        self.refused_epoch = -1
        found = {each.node_id: (each.host, each.port) for each in endpoints}
        if told.leader_epoch == known.epoch and 0 <= known.id != told.leader_id >= 0:
            raise ObserverError(
                f"the controllers {known.id} and {told.leader_id} both lead in epoch {known.epoch}"
            )
        if told.leader_id < 0:
            self.leader = Leader(-1, told.leader_epoch, None)
        elif told.leader_id in found:
            self.leader = Leader(told.leader_id, told.leader_epoch, found[told.leader_id])
        elif told.leader_id != known.id:
            self.leader = Leader(told.leader_id, told.leader_epoch, None)
        if (self.leader.id, self.leader.epoch) != (known.id, known.epoch):
            self._copy.follow(self.leader.id, self.leader.epoch)
        return True

    def _forget_leader(self) -> None:
        self.leader = self.leader._replace(address=None)

    def _on_refusal(self, code: int) -> int:
        """The answer has said who leads, if that is why."""
        is_about_leader = code in (
            codes.NOT_LEADER_OR_FOLLOWER,
            codes.FENCED_LEADER_EPOCH,
            codes.UNKNOWN_LEADER_EPOCH,
        )
        if not is_about_leader:
            self._forget_leader()
        return RETRY_MS if self.leader.address is not None else ELECTION_RETRY_MS

    def _on_snapshot(self, answer: Any) -> int:
        download, partition = self._download, None
        if answer.topics and answer.topics[0].partitions:
            partition = answer.topics[0].partitions[0]
        if download is None or answer.error_code or partition is None:
            self._download = None
            return ELECTION_RETRY_MS
        is_known = self._follow(partition.current_leader, answer.node_endpoints)
        has_come = partition.position == len(download.content)
        if not is_known or partition.error_code or not has_come:
            self._download = None
            return ELECTION_RETRY_MS
        download.content.extend(partition.unaligned_records)
        is_whole = len(download.content) >= partition.size
        if not is_whole and not partition.unaligned_records:
            # It would be asked for the same bytes for ever, as fast as both can.
            self._download = None
            return ELECTION_RETRY_MS
        if is_whole:
            self._download = None
            self._snapshot = _Snapshot(download)
            self.add_up()
        return 0

    def _load_some(self, snapshot: _Snapshot) -> None:
        """Goes on with a snapshot, which counts once all of it is added up."""
        snapshot.add_up()
        if snapshot.left:
            return
        self._snapshot = None
        download, replay = snapshot.download, snapshot.replay
        if not replay.is_whole:
            raise CorruptFileError("a snapshot of the controllers has no end")
        replay.offset, replay.epoch = download.end_offset - 1, download.epoch
        self.replay = replay
        self.snapshots_loaded += 1
        self._pending, self._added = deque(), 0
        self._copy.start_at(bytes(download.content), download.end_offset, download.epoch)

    def _append(self, records: bytes) -> None:
        """Takes in batches that follow what there is."""
        batches = _native.read_batches(records)
        for batch in batches:
            if batch.base_offset != self.end_offset or batch.leader_epoch > self.leader.epoch:
                raise ObserverError(
                    f"the controllers' log goes on at offset {batch.base_offset} in epoch "
                    f"{batch.leader_epoch}, and {self.end_offset} of epoch {self.leader.epoch} at "
                    "most was asked for"
                )
            self._pending.append(batch)
        if batches:
            # Without a last batch that was cut off.
            size_bytes = sum(each.size_bytes for each in batches)
            self._copy.append(records[:size_bytes], self.leader.epoch)

    @property
    def has_more(self) -> bool:
        """Records are committed that `add_up` has still to add up; what is added up may end within
        a batch, and is not to come into force. Nothing is to be asked meanwhile."""
        if self._snapshot is not None:
            return True
        return bool(self._pending) and self._pending[0].last_offset < self.high_watermark

    def add_up(self) -> None:
        """Adds up committed records, some thousands at most, so that a large change of the metadata
        holds up nobody: `has_more` says whether to call it again. Raises CorruptFileError."""
        if self._snapshot is not None:
            self._load_some(self._snapshot)
            return
        left = ADDED_AT_ONCE
        while left > 0 and self.has_more:
            batch, start = self._pending[0], self._added
            count = len(batch.records)
            end = min(count, start + left)
            self.replay.add_some(batch, start, end)
            left -= max(1, end - start)
            self._added = end
            if end == count:
                self._pending.popleft()
                self._added = 0

    def _truncate(self, epoch: int, end_offset: int) -> None:
        """Drops what the leader does not have: it ends `epoch` at this offset."""
        pending, end_before = self._pending, self.end_offset
        while pending and (
            pending[-1].leader_epoch > epoch or pending[-1].last_offset >= end_offset
        ):
            pending.pop()
        if not pending and (self.replay.epoch > epoch or self.committed_end > end_offset):
            raise ObserverError(
                f"the controllers have taken back committed records: they end epoch {epoch} at "
                f"offset {end_offset}, and {self.committed_end} were committed"
            )
        if self.end_offset != end_before:
            self._copy.truncate_to(self.end_offset)
