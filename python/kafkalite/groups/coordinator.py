"""The group coordinator: which partition of `__consumer_offsets` a group belongs to, and what the
requests of its members and operators come to.

Every call that changes something returns a future, whose answer may come much later: what it says
is on disk before. Answers are plain values; `kafkalite.api` makes messages of them. The topic is
made when somebody first asks for a coordinator.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kafkalite.coordinator.machine import Producer
from kafkalite.coordinator.runtime import InternalTopic, Runtime, RuntimeHost
from kafkalite.coordinator.shard import ACTIVE
from kafkalite.groups.classic import ClassicGroup
from kafkalite.groups.events import (
    CommitRequest,
    GroupAnswer,
    GroupLimits,
    JoinAnswer,
    JoinRequest,
    Leaving,
    OffsetLimits,
    OffsetsInTransaction,
    SyncAnswer,
    SyncRequest,
)
from kafkalite.groups.machine import GroupMachine, PartitionOfTopic
from kafkalite.groups.memory import growth_by_join, growth_by_sync
from kafkalite.groups.offsets import OffsetsAnswer
from kafkalite.groups.records import SERDE
from kafkalite.metadata.image import OFFSETS_TOPIC, TOPIC
from kafkalite.protocol import codes
from kafkalite.tasks import Future, completed

MEMBER_NAME_LENGTH_MAX: Final = 255
"""Characters of a client's id, or of its instance's, that its member id begins with."""


class GroupCoordinator:
    """All groups of this node. Used by the control thread only."""

    def __init__(self, host: RuntimeHost) -> None:
        config = host.config
        self._host = host
        self._session_timeout_ms_min: int = config["group.min.session.timeout.ms"]
        self._session_timeout_ms_max: int = config["group.max.session.timeout.ms"]
        self._held_bytes_max: int | None = None
        """So much memory may all members take; None until somebody has to know."""
        self._verification_ms: int = config["producer.id.expiration.ms"]
        """So long holds a verification that nothing came of, as those of other logs."""
        limits = GroupLimits(config["group.max.size"], config["group.initial.rebalance.delay.ms"])
        offset_limits = OffsetLimits(
            metadata_bytes_max=config["offset.metadata.max.bytes"],
            retention_ms=config["offsets.retention.minutes"] * 60_000,
            expiry_interval_ms=config["offsets.retention.check.interval.ms"],
        )
        topic = InternalTopic(
            name=OFFSETS_TOPIC,
            partition_count=config["offsets.topic.num.partitions"],
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
            },
            serde=SERDE,
            codec=config["offsets.topic.compression.codec"],
            write_timeout_ms=config["offsets.commit.timeout.ms"],
            replication_factor=config["offsets.topic.replication.factor"],
        )
        self.runtime = Runtime(host, topic, lambda _partition: GroupMachine(limits, offset_limits))
        """The topic and its shards."""

    # --- members ----------------------------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest) -> Future[JoinAnswer]:
        """JoinGroup."""
        member_id = request.member_id
        if not group_id:
            return completed(JoinAnswer(codes.INVALID_GROUP_ID, member_id))
        largest = max((len(metadata) for _, metadata in request.protocols), default=0)
        if largest > self._batch_bytes_max():
            # It could never be stored. Kafka says so to the leader's SyncGroup.
            return completed(JoinAnswer(codes.UNKNOWN_SERVER_ERROR, member_id))
        timeout_ms = request.session_timeout_ms
        if not self._session_timeout_ms_min <= timeout_ms <= self._session_timeout_ms_max:
            return completed(JoinAnswer(codes.INVALID_SESSION_TIMEOUT, member_id))
        shard, code = self.runtime.find_to_write(group_id)
        if shard is None:
            return completed(JoinAnswer(code, member_id))
        if not self._has_room(growth_by_join(shard.machine.groups.get(group_id), request)):
            return completed(JoinAnswer(codes.COORDINATOR_NOT_AVAILABLE, member_id))
        fresh_member_id = ""
        if not member_id:
            name = request.group_instance_id
            owner = request.client_id if name is None else name
            fresh_member_id = f"{owner[:MEMBER_NAME_LENGTH_MAX]}-{random_uuid()}"
        joined, machine = Future[JoinAnswer](), shard.machine
        shard.perform(machine.join(group_id, request, fresh_member_id, joined.set, shard.moment()))
        return joined

    def sync(self, group_id: str, request: SyncRequest) -> Future[SyncAnswer]:
        """SyncGroup."""
        if not group_id:
            return completed(SyncAnswer(codes.INVALID_GROUP_ID))
        shard, code = self.runtime.find_to_write(group_id)
        if shard is None:
            return completed(SyncAnswer(code))
        if not self._has_room(growth_by_sync(shard.machine.groups.get(group_id), request)):
            return completed(SyncAnswer(codes.COORDINATOR_NOT_AVAILABLE))
        synced = Future[SyncAnswer]()
        shard.perform(shard.machine.sync(group_id, request, synced.set))
        return synced

    def _batch_bytes_max(self) -> int:
        """`max.message.bytes` of the topic."""
        own = self._host.image.configs.get((TOPIC, OFFSETS_TOPIC), {})
        return int(own.get("max.message.bytes", self._host.config["message.max.bytes"]))

    def _has_room(self, growth_bytes: int) -> bool:
        """Says whether members may take so much more memory: at most a quarter of what requests may
        take, since it is not given back before sessions end, and with half of it used requests wait
        for slow disks."""
        if growth_bytes <= 0:
            return True
        held_bytes = sum(each.counted_bytes for each in self.runtime.shards)
        if not held_bytes:
            return True
        if self._held_bytes_max is None:
            self._held_bytes_max = self._host.core.figures().counts()["held_bytes_max"] // 4
        return held_bytes + growth_bytes <= self._held_bytes_max

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> int:
        """Heartbeat. While a group is loaded its members are not sent into a rebalance."""
        if not group_id:
            return codes.INVALID_GROUP_ID
        shard, code = self.runtime.find(group_id)
        if shard is None:
            return codes.NONE if code == codes.COORDINATOR_LOAD_IN_PROGRESS else code
        now_ms = self._host.now_ms()
        code = shard.machine.heartbeat(
            group_id, member_id, group_instance_id, generation_id, now_ms
        )
        shard.arm()
        return code

    def leave(self, group_id: str, leaving: Leaving) -> Future[GroupAnswer]:
        """LeaveGroup: a code for all and one for each."""
        if not group_id:
            return completed(GroupAnswer(codes.INVALID_GROUP_ID, []))
        shard, code = self.runtime.find_to_write(group_id)
        if shard is None:
            return completed(GroupAnswer(code, []))
        left = Future[GroupAnswer]()
        shard.perform(shard.machine.leave(group_id, leaving, left.set, shard.moment()))
        return left

    # --- offsets ----------------------------------------------------------------------------------

    def commit(
        self, group_id: str, request: CommitRequest, reply: Callable[[list[int]], None]
    ) -> None:
        """OffsetCommit: `reply` is called with one code for each offset. The only call with a
        callback, for it is the one that a cluster makes all day: a future, and the task that awaits
        it, take a sixth more time of each commit."""
        shard, code = self.runtime.find_to_write(group_id)
        if shard is None:
            return reply([code] * len(request.offsets))
        return shard.perform(shard.machine.commit(group_id, request, reply, shard.moment()))

    def begin_verification(
        self, group_id: str, producer_id: int, producer_epoch: int
    ) -> tuple[int | None, int]:
        """A guard for `commit_in_transaction`, None where the transaction's coordinator need not be
        asked; and a code."""
        shard, code = self.runtime.find_to_write(group_id)
        if shard is None:
            return None, code
        verifications = shard.machine.transactions.verifications
        now_ms = self._host.now_ms()
        verifications.remove_expired(now_ms - self._verification_ms)
        return verifications.begin(producer_id, producer_epoch, now_ms), codes.NONE

    def forget_verification(self, group_id: str, producer_id: int, guard: int) -> None:
        """Drops a verification that the transaction's coordinator has refused."""
        shard, _ = self.runtime.find(group_id)
        if shard is not None:
            shard.machine.transactions.verifications.drop(producer_id, guard)

    def commit_in_transaction(
        self,
        group_id: str,
        request: CommitRequest,
        transaction: OffsetsInTransaction,
    ) -> Future[list[int]]:
        """TxnOffsetCommit: one code for each offset."""
        shard, code = self.runtime.find_to_write(group_id)
        if shard is None:
            return completed([code] * len(request.offsets))
        committed = Future[list[int]]()
        shard.perform(
            shard.machine.commit_in_transaction(
                group_id, request, transaction, committed.set, shard.moment()
            )
        )
        return committed

    def end_transaction(self, partition: int, producer: Producer) -> Future[int]:
        """Writes a marker to a partition: a code as of any other partition."""
        shards = self.runtime.shards
        if partition >= len(shards):
            return completed(codes.NOT_LEADER_OR_FOLLOWER)
        shard = shards[partition]
        code = shard.refusal()
        if code:
            return completed(_code_of_partition(code))
        written = Future[int]()
        shard.perform(
            shard.machine.transactions.write_marker(
                producer, lambda code: written.set(_code_of_partition(code))
            )
        )
        return written

    def fetch_offsets(self, group_id: str, require_stable: bool) -> Future[OffsetsAnswer]:
        """OffsetFetch. With `require_stable` offsets that are being written are waited for."""
        if require_stable:
            # Clients know no other word here (`GroupCoordinatorService` of Kafka says why).
            shard, code = self.runtime.find_to_write(group_id, codes.NOT_COORDINATOR)
        else:
            shard, code = self.runtime.find(group_id)
        if shard is None:
            return completed(OffsetsAnswer.refusal(code))
        machine = shard.machine
        if require_stable and shard.is_writing:
            fetched = Future[OffsetsAnswer]()
            shard.perform(machine.fetch_stable_offsets(group_id, fetched.set))
            return fetched
        return completed(machine.offsets_of(group_id, codes.NONE, require_stable=require_stable))

    def delete_offsets(
        self, group_id: str, partitions: list[PartitionOfTopic]
    ) -> Future[GroupAnswer]:
        """OffsetDelete: a code for all and one for each partition."""
        if not group_id:
            return completed(GroupAnswer(codes.INVALID_GROUP_ID, []))
        shard, code = self.runtime.find_to_write(group_id)
        if shard is None:
            return completed(GroupAnswer(code, []))
        deleted = Future[GroupAnswer]()
        shard.perform(shard.machine.delete_offsets(group_id, partitions, deleted.set))
        return deleted

    # --- operators --------------------------------------------------------------------------------

    def describe(self, group_id: str) -> tuple[int, ClassicGroup | None]:
        """The group, None for one that there is not; or why it cannot be told."""
        shard, code = self.runtime.find(group_id)
        return (code, None) if shard is None else (codes.NONE, shard.machine.groups.get(group_id))

    def list_groups(self) -> tuple[int, Iterable[ClassicGroup]]:
        """All groups; COORDINATOR_LOAD_IN_PROGRESS while some are not known yet."""
        if self.runtime.is_loading:
            return codes.COORDINATOR_LOAD_IN_PROGRESS, []
        shards = self.runtime.shards
        return codes.NONE, [group for each in shards for group in each.machine.groups.values()]

    def count_by_state(self) -> Mapping[str, int]:
        """How many groups are in each state, of those that are loaded. Any thread may ask: what
        changes meanwhile is copied first."""
        loaded = [each for each in list(self.runtime.shards) if each.state == ACTIVE]
        groups = [group for each in loaded for group in list(each.machine.groups.values())]
        return Counter(group.state for group in groups)

    def delete_group(self, group_id: str) -> Future[int]:
        """DeleteGroups, for one of them."""
        shard, code = self.runtime.find_to_write(group_id)
        if shard is None:
            return completed(code)
        deleted = Future[int]()
        shard.perform(shard.machine.delete_group(group_id, deleted.set))
        return deleted


def _code_of_partition(code: int) -> int:
    """Gives the code that whoever writes a marker is told: one of a coordinator means nothing to
    them."""
    match code:
        case (
            codes.COORDINATOR_LOAD_IN_PROGRESS
            | codes.COORDINATOR_NOT_AVAILABLE
            | codes.NOT_COORDINATOR
        ):
            return codes.NOT_LEADER_OR_FOLLOWER
        case _:
            return code


def random_uuid() -> str:
    """A random UUID in Java's form."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
