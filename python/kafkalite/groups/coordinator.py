"""The group coordinator: which partition of `__consumer_offsets` a group belongs to, and what the
requests of its members and operators come to.

Every call that changes something takes `reply` and calls it once, maybe much later; before anything
is said, what it says is on disk. Answers are plain values; `kafkalite.api` makes messages of them.
The topic is made when somebody first asks for a coordinator.
"""

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kafkalite.errors import KafkaliteError
from kafkalite.groups.classic import (
    COMPLETING_REBALANCE,
    CONSUMER_PROTOCOL_TYPE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
)
from kafkalite.groups.events import JoinAnswer, JoinRequest, Limits, SyncAnswer, SyncRequest
from kafkalite.groups.offsets import CommittedOffset, GroupOffsets
from kafkalite.groups.shard import LOADING, Host, Shard
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.active import Controller, Then
from kafkalite.metadata.controller.topics import NewTopic
from kafkalite.metadata.image import OFFSETS_TOPIC, AlikeNames, Image
from kafkalite.protocol import codes
from kafkalite.protocol.java import java_hash, java_length

LOAD_PAUSE_MS: Final = 1
"""Between two pieces of a log that is loaded: other requests have their turn."""
PARTITIONS_KNOWN_MAX: Final = 10_000
"""Groups whose partition is remembered; beyond, all are worked out anew."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""By their numbers, in which `offsets.topic.compression.codec` names them."""


MadeTopic = Callable[[KafkaliteError | None], None]
"""Told that the topic is there, or why it is not."""


class CoordinatorHost(Host, Protocol):
    """What the broker offers to the coordinator (`kafkalite.context.Context`)."""

    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def image(self) -> Image: ...
    @property
    def controller(self) -> Controller: ...
    def on_stop(self, callback: Callable[[], None]) -> None: ...
    def create_topics(self, wanted: Sequence[NewTopic], then: Then) -> dict[str, bytes]: ...


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit request."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class GroupCoordinator:
    """All groups of this node. Used by the control thread only."""

    def __init__(self, host: CoordinatorHost) -> None:
        config = host.config
        self._host = host
        self._limits = Limits(config["group.max.size"], config["group.initial.rebalance.delay.ms"])
        self._session_timeout_ms_min: int = config["group.min.session.timeout.ms"]
        self._session_timeout_ms_max: int = config["group.max.session.timeout.ms"]
        self._retention_ms: int = config["offsets.retention.minutes"] * 60_000
        self._check_interval_ms: int = config["offsets.retention.check.interval.ms"]
        self._metadata_size_max: int = config["offset.metadata.max.bytes"]
        codec: int = config["offsets.topic.compression.codec"]
        self._codec = CODECS[codec] if 0 <= codec < len(CODECS) else CODECS[0]
        self._shards: list[Shard] = []
        self._loading: list[Shard] = []
        self._is_making_topic = False
        self._awaiting_topic: dict[MadeTopic, None] = {}
        """Who waits for the topic, in this order."""
        self._partitions: dict[str, int] = {}
        """Group -> partition, of groups that were asked for lately."""

    # --- the topic --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to load what there is. Returns at once; called once, when the broker serves."""
        self._host.on_stop(self._stop)
        self._host.timers.call_at(self._host.now_ms() + self._check_interval_ms, self._expire)
        if OFFSETS_TOPIC in self._host.image.topics:
            self.make_topic()

    @property
    def has_topic(self) -> bool:
        """`__consumer_offsets` is there, though its groups may not be loaded yet."""
        return bool(self._shards)

    def make_topic(self, then: MadeTopic | None = None) -> None:
        """Has `__consumer_offsets` made if it is not there: `then(None)`, maybe at once, or
        `then(error)` if it cannot be, of which the log is told too."""
        if self._shards:
            return None if then is None else then(None)
        if then is not None:
            self._awaiting_topic[then] = None
        if self._is_making_topic:
            return None
        self._is_making_topic = True
        turns = self._host.controller.turns
        if OFFSETS_TOPIC in self._host.image.topics:
            # Others may be making it.
            return turns.when_settled([OFFSETS_TOPIC], self._end_making)
        return turns.in_turn([OFFSETS_TOPIC], self._make_in_turn)

    def _make_in_turn(self) -> None:
        config, controller = self._host.config, self._host.controller
        if OFFSETS_TOPIC in self._host.image.topics:
            self._end_making()
            return
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config["offsets.topic.segment.bytes"]),
        }
        count = config["offsets.topic.num.partitions"]
        try:
            controller.check_new_topic(OFFSETS_TOPIC, AlikeNames())
            wanted = [NewTopic(OFFSETS_TOPIC, count, configs)]
            self._host.create_topics(wanted, self._end_making)
        except KafkaliteError as error:
            self._end_making(error)

    def forget_waiter(self, then: MadeTopic) -> None:
        """`then` of `make_topic` is not called any more. Nothing happens if it was."""
        self._awaiting_topic.pop(then, None)

    def _end_making(self, error: KafkaliteError | None = None) -> None:
        self._is_making_topic = False
        awaiting, self._awaiting_topic = self._awaiting_topic, {}
        topic = self._host.image.topics.get(OFFSETS_TOPIC)
        if topic is not None:
            self._take_shards(len(topic.partitions))
        elif error is None:
            sentence = "who was making it has failed"
            error = ControllerError(codes.UNKNOWN_TOPIC_OR_PARTITION, sentence)
        if error is not None:
            self._host.log.error(f"topic {OFFSETS_TOPIC} is not created: {error}")
        for then in awaiting:
            then(error)

    def partition_of(self, group_id: str) -> int:
        """The partition that a group belongs to, as in Kafka's `partitionFor`."""
        partition = self._partitions.get(group_id)
        if partition is None:
            count = len(self._shards) or self._host.config["offsets.topic.num.partitions"]
            partition = java_hash(group_id) % int(count)
            if len(self._partitions) >= PARTITIONS_KNOWN_MAX:
                self._partitions.clear()
            self._partitions[group_id] = partition
        return partition

    def refusal(self, group_id: str) -> int:
        """Why the group cannot be served here at present; NONE if it can."""
        shard = self._shard(group_id)
        return codes.NOT_COORDINATOR if shard is None else shard.refusal()

    def _take_shards(self, count: int) -> None:
        self._partitions.clear()
        self._shards = [
            Shard(self._host, index, self._limits, self._codec) for index in range(count)
        ]
        self._loading = []
        for shard in self._shards:
            log = self._host.plane.logs.find(OFFSETS_TOPIC, shard.partition)
            if log is None or log.offsets.log_end_offset == log.offsets.log_start_offset:
                shard.load_some()
            else:
                self._loading.append(shard)
        self._load_some()

    def _load_some(self) -> None:
        """One piece of one log, then other work, then the next."""
        if not self._loading:
            return
        self._loading[0].load_some()
        self._loading = [each for each in self._loading if each.state == LOADING]
        if self._loading:
            self._host.timers.call_at(self._host.now_ms() + LOAD_PAUSE_MS, self._load_some)
        else:
            # Garbage collections need not look at what was loaded: it has no cycles, and of a
            # million offsets each full one would take a quarter of a second.
            gc.freeze()

    def _shard(self, group_id: str) -> Shard | None:
        """The group's partition; one that is asked for is loaded before others."""
        if not self._shards:
            return None
        shard = self._shards[self.partition_of(group_id)]
        if shard.state == LOADING and self._loading and self._loading[0] is not shard:
            self._loading.remove(shard)
            self._loading.insert(0, shard)
        return shard

    def _find(self, group_id: str) -> tuple[Shard | None, int]:
        """The group's partition, or None and what to refuse with."""
        shard = self._shard(group_id)
        if shard is None:
            return None, codes.NOT_COORDINATOR
        code = shard.refusal()
        return (None, code) if code else (shard, codes.NONE)

    def _find_to_write(
        self, group_id: str, held_up: int = codes.COORDINATOR_NOT_AVAILABLE
    ) -> tuple[Shard | None, int]:
        """As `_find`, for what is written, or waits for what is being written. The refusal of a
        partition that is held up is that of Kafka for a write that took too long."""
        shard, code = self._find(group_id)
        if shard is not None and shard.is_held_up:
            return None, held_up
        return shard, code

    def _stop(self) -> None:
        for shard in self._shards:
            shard.unload()

    def _expire(self) -> None:
        for shard in self._shards:
            shard.expire(self._retention_ms)
        self._host.timers.call_at(self._host.now_ms() + self._check_interval_ms, self._expire)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: nobody has read anything of it any more."""
        for shard in self._shards:
            shard.forget_topic(topic)

    def drop_topic(self) -> None:
        """`__consumer_offsets` itself was deleted, and every group with it."""
        self._stop()
        self._shards = []
        self._loading = []

    # --- members ----------------------------------------------------------------------------------

    def join(
        self, group_id: str, request: JoinRequest, reply: Callable[[JoinAnswer], None]
    ) -> None:
        """JoinGroup."""
        member_id = request.member_id
        if not group_id:
            return reply(JoinAnswer(codes.INVALID_GROUP_ID, member_id))
        timeout_ms = request.session_timeout_ms
        if not self._session_timeout_ms_min <= timeout_ms <= self._session_timeout_ms_max:
            return reply(JoinAnswer(codes.INVALID_SESSION_TIMEOUT, member_id))
        shard, code = self._find_to_write(group_id)
        if shard is None:
            return reply(JoinAnswer(code, member_id))
        if group_id in shard.newer_groups:
            return reply(JoinAnswer(codes.INCONSISTENT_GROUP_PROTOCOL, ""))
        is_new = group_id not in shard.groups
        if is_new and member_id:
            return reply(JoinAnswer(codes.UNKNOWN_MEMBER_ID, member_id))
        group = shard.get_or_make(group_id)
        fresh_member_id = ""
        if not member_id:
            name = request.group_instance_id
            owner = request.client_id if name is None else name
            fresh_member_id = f"{owner}-{random_uuid()}"
        effects = group.join(request, fresh_member_id, reply, shard.moment())
        is_stored = shard.run(group, effects)
        if is_new and not is_stored:
            shard.store_new(group)
        return None

    def sync(
        self, group_id: str, request: SyncRequest, reply: Callable[[SyncAnswer], None]
    ) -> None:
        """SyncGroup."""
        if not group_id:
            return reply(SyncAnswer(codes.INVALID_GROUP_ID))
        shard, code = self._find_to_write(group_id)
        if shard is None:
            return reply(SyncAnswer(code))
        group = shard.groups.get(group_id)
        if group is None:
            return reply(SyncAnswer(codes.UNKNOWN_MEMBER_ID))
        shard.run(group, group.sync(request, reply))
        return None

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> int:
        """Heartbeat. While a group is loaded its members are not sent into a rebalance."""
        if not group_id:
            return codes.INVALID_GROUP_ID
        shard, code = self._find(group_id)
        if shard is None:
            return codes.NONE if code == codes.COORDINATOR_LOAD_IN_PROGRESS else code
        group = shard.groups.get(group_id)
        if group is None:
            return codes.UNKNOWN_MEMBER_ID
        code = group.heartbeat(member_id, group_instance_id, generation_id, self._host.now_ms())
        shard.touch(group)
        return code

    def leave(
        self,
        group_id: str,
        leaving: list[tuple[str, str | None, str | None]],
        reply: Callable[[int, list[int]], None],
    ) -> None:
        """LeaveGroup: id, instance id and reason of each; a code for all and one for each."""
        if not group_id:
            return reply(codes.INVALID_GROUP_ID, [])
        shard, code = self._find_to_write(group_id)
        if shard is None:
            return reply(code, [])
        group = shard.groups.get(group_id)
        if group is None:
            return reply(codes.NONE, [codes.UNKNOWN_MEMBER_ID] * len(leaving))
        results, effects = group.leave(leaving, shard.moment())
        if shard.run(group, effects):
            # An empty group is written before its last member hears that it has left.
            return shard.write([], lambda code, _offset: reply(code, results if not code else []))
        return reply(codes.NONE, results)

    # --- offsets ----------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        api_version: int,
        retention_time_ms: int,
        offsets: list[OffsetToCommit],
        reply: Callable[[list[int]], None],
    ) -> None:
        """OffsetCommit: one code for each offset."""
        shard, code = self._find_to_write(group_id)
        if shard is None:
            return reply([code] * len(offsets))
        group = shard.groups.get(group_id)
        is_newer = group_id in shard.newer_groups
        if is_newer and (generation_id >= 0 or member_id):
            return reply([codes.UNKNOWN_MEMBER_ID] * len(offsets))
        if group is None and generation_id >= 0:
            # Clients of older versions know no other word for a group that is not there.
            missing = codes.GROUP_ID_NOT_FOUND if api_version >= 9 else codes.ILLEGAL_GENERATION
            return reply([missing] * len(offsets))
        now_ms, wall_ms = self._host.now_ms(), self._host.wall_ms()
        if not is_newer:  # beside one of a newer type there must not be a classic one
            group = group or shard.get_or_make(group_id)
            code = group.check_commit(member_id, group_instance_id, generation_id, now_ms)
            if code:
                return reply([code] * len(offsets))
            shard.touch(group)
        # The end of time is the largest number that the record holds.
        expire_ms = min(wall_ms + retention_time_ms, 2**63 - 1) if retention_time_ms != -1 else -1
        results = []
        taken = []
        for topic, topic_id, partition, offset, leader_epoch, metadata in offsets:
            size_max = self._metadata_size_max
            if 2 * len(metadata) > size_max and java_length(metadata) > size_max:
                results.append(codes.OFFSET_METADATA_TOO_LARGE)
                continue
            results.append(codes.NONE)
            committed = CommittedOffset(
                offset, leader_epoch, metadata, wall_ms, expire_ms, topic_id
            )
            taken.append((topic, partition, committed))
        if not taken:
            return reply(results)
        return shard.commit(
            group_id, taken, lambda error_code: reply([each or error_code for each in results])
        )

    def fetch_offsets(
        self,
        group_id: str,
        require_stable: bool,
        reply: Callable[[int, "GroupOffsets", Callable[[str, int], bool]], None],
    ) -> None:
        """OffsetFetch: a code, the group's offsets, and whether one is unstable. With
        `require_stable` offsets that are being written are waited for."""
        if require_stable:
            # Clients know no other word here (`GroupCoordinatorService` of Kafka says why).
            shard, code = self._find_to_write(group_id, codes.NOT_COORDINATOR)
        else:
            shard, code = self._find(group_id)
        if shard is None:
            return reply(code, {}, _never)

        def found(error_code: int, _base_offset: int = -1) -> None:
            def is_unstable(topic: str, partition: int) -> bool:
                return require_stable and shard.offsets.is_unstable(group_id, topic, partition)

            reply(error_code, shard.offsets.of_group(group_id), is_unstable)

        if require_stable and shard.is_writing:
            return shard.write([], found)
        return found(codes.NONE)

    def delete_offsets(
        self,
        group_id: str,
        partitions: list[tuple[str, int]],
        reply: Callable[[int, list[int]], None],
    ) -> None:
        """OffsetDelete: a code for all and one for each partition."""
        if not group_id:
            return reply(codes.INVALID_GROUP_ID, [])
        shard, code = self._find_to_write(group_id)
        if shard is None:
            return reply(code, [])
        group = shard.groups.get(group_id)
        if group is None or group.state == DEAD:
            return reply(codes.GROUP_ID_NOT_FOUND, [])
        is_consumer = group.protocol_type == CONSUMER_PROTOCOL_TYPE
        if not is_consumer and group.state in (
            STABLE,
            PREPARING_REBALANCE,
            COMPLETING_REBALANCE,
        ):
            return reply(codes.NON_EMPTY_GROUP, [])
        results = [
            codes.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic) else codes.NONE
            for topic, _ in partitions
        ]
        known = set(shard.partitions_of(group_id))
        ended = [
            each
            for each, result in zip(partitions, results, strict=True)
            if not result and each in known
        ]
        if not ended:
            return reply(codes.NONE, results)
        return shard.delete_offsets(
            group_id, ended, lambda code: reply(code, results if not code else [])
        )

    # --- operators --------------------------------------------------------------------------------

    def describe(self, group_id: str) -> tuple[int, ClassicGroup | None]:
        """The group, None for one that there is not; or why it cannot be told."""
        shard, code = self._find(group_id)
        return (code, None) if shard is None else (codes.NONE, shard.groups.get(group_id))

    def list_groups(self) -> tuple[int, Iterable[ClassicGroup]]:
        """All groups; COORDINATOR_LOAD_IN_PROGRESS while some are not known yet."""
        if any(shard.state == LOADING for shard in self._shards):
            return codes.COORDINATOR_LOAD_IN_PROGRESS, []
        return codes.NONE, [group for shard in self._shards for group in shard.groups.values()]

    def count_by_state(self) -> Mapping[str, int]:
        """How many groups are in each state, of those that are loaded. Any thread may ask: what
        changes meanwhile is copied first."""
        groups = [group for shard in list(self._shards) for group in list(shard.groups.values())]
        return Counter(group.state for group in groups)

    def delete_group(self, group_id: str, reply: Callable[[int], None]) -> None:
        """DeleteGroups, for one of them."""
        shard, code = self._find_to_write(group_id)
        if shard is None:
            return reply(code)
        group = shard.groups.get(group_id)
        if group is None or group.state == DEAD:
            return reply(codes.GROUP_ID_NOT_FOUND)
        if group.state != EMPTY:
            return reply(codes.NON_EMPTY_GROUP)
        return shard.delete_group(group, reply)


def random_uuid() -> str:
    """A random UUID in Java's form."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _never(_topic: str, _partition: int) -> bool:
    return False


def java_address(peer: str) -> str:
    """The host of `127.0.0.1:40000` or `[::1]:40000` as Java's `InetAddress` prints it."""
    host = peer.rpartition(":")[0].strip("[]")
    if ":" not in host:
        return f"/{host}"
    import socket

    raw = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    words = (f"{raw[index] << 8 | raw[index + 1]:x}" for index in range(0, 16, 2))
    return "/" + ":".join(words)
