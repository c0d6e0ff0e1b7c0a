"""A coordinator's topic and its shards: made when they are first asked for, loaded in the order in
which they are asked for, one at a time of each log directory, so that a directory that does not
answer holds up its own only.

    key ──► partition_of ──► Shard ──► its machine          topic ──► logs ──► loading ──► served
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol

from kafkalite.coordinator.record_serde import RecordSerde
from kafkalite.coordinator.shard import CLOSED, LOADING, Loading, M, Shard, ShardHost
from kafkalite.errors import KafkaliteError
from kafkalite.metadata.cluster import Cluster
from kafkalite.metadata.controller.topics import NewTopic, check_new_topic
from kafkalite.metadata.image import NO_LEADER, AlikeNames, Image
from kafkalite.metadata.write_lock import WriteLock
from kafkalite.protocol import codes
from kafkalite.protocol.java_hash import java_hash
from kafkalite.tasks import Future, Tasks

PARTITIONS_KNOWN_MAX = 10_000
"""Keys whose partition is remembered; beyond, all are worked out anew."""
KNOWN_CHARACTERS_MAX = 256
"""Longer keys are worked out each time: who names them is not to fill the memory with them."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""By their numbers, in which `…topic.compression.codec` names them."""


class RuntimeHost(ShardHost, Protocol):
    """The broker as a coordinator needs it (`kafkalite.context.Context`)."""

    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def image(self) -> Image: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def write_lock(self) -> WriteLock: ...
    @property
    def cluster(self) -> Cluster: ...
    def on_stop(self, callback: Callable[[], None]) -> None: ...
    async def create_topics(self, wanted: Sequence[NewTopic]) -> dict[str, bytes]: ...


class InternalTopic(NamedTuple):
    """The topic as it is made, and what its records are."""

    name: str
    partition_count: int
    configs: Mapping[str, str]
    serde: RecordSerde
    codec: int
    """The number of its batches' compression."""
    write_timeout_ms: int
    """So long may a write be under way before whoever waits for it is refused."""
    replication_factor: int = 1
    """In a cluster."""


class Runtime(Generic[M]):
    """The shards of one topic. Used by the control thread only."""

    def __init__(
        self, host: RuntimeHost, topic: InternalTopic, make_machine: Callable[[int], M]
    ) -> None:
        """`make_machine` is told the index of the partition."""
        self.shards: list[Shard[M]] = []
        self._host = host
        self._topic = topic
        self._make_machine = make_machine
        self._codec = CODECS[topic.codec] if 0 <= topic.codec < len(CODECS) else CODECS[0]
        self._loading: dict[str, list[Loading[M]]] = {}
        """The loads of each log directory that has any, in this order."""
        self._making: Future[None] | None = None
        self._partitions: dict[str, int] = {}
        """Key -> partition, of keys that were asked for lately."""

    # --- the topic --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to load what there is. Returns at once; called once, when the broker serves."""
        self._host.on_stop(self._unload)
        if self._topic.name in self._host.image.topics:
            self._host.tasks.start(self.make_topic())

    @property
    def has_topic(self) -> bool:
        """The topic is there, though its shards may not be loaded yet."""
        return bool(self.shards)

    async def make_topic(self) -> None:
        """Has the topic made if it is not there. Returns once it is, or cannot be made, of which
        the log is told."""
        if not self.shards:
            if self._making is None or self._making.is_done:
                self._making = self._host.tasks.start(self._make_topic())
            await self._making

    async def _make_topic(self) -> None:
        host, name = self._host, self._topic.name
        reason = ""
        if name in host.image.topics:
            await host.write_lock.settled([name])
        else:
            async with host.write_lock.held([name]):
                reason = await self._create_topic()
        topic = host.image.topics.get(name)
        if topic is not None:
            self._take_shards(len(topic.partitions))
        elif not reason:
            reason = "who was making it has failed"
        if reason:
            host.log.error(f"topic {name} is not created: {reason}")

    async def _create_topic(self) -> str:
        """Why the topic cannot be made; empty if it is there."""
        host, topic = self._host, self._topic
        try:
            if topic.name not in host.image.topics:
                check_new_topic(host.image, topic.name, AlikeNames())
                wanted = NewTopic(
                    topic.name, topic.partition_count, dict(topic.configs), topic.replication_factor
                )
                await host.create_topics([wanted])
        except KafkaliteError as error:
            return str(error)
        return ""

    def drop(self) -> None:
        """The topic itself was deleted, and everything with it."""
        self._unload()
        self.shards = []

    def on_leaders(self) -> None:
        """Partitions of the topic may have come, or have other leaders: those that this broker
        leads are loaded in that epoch, and those that it does not are let go."""
        topic = self._host.image.topics.get(self._topic.name)
        if topic is None:
            return
        if not self.shards:
            self._host.tasks.start(self.make_topic())
            return
        node_id = self._host.cluster.node_id
        # The topic may have grown: which partition has a group is a question of their number, so
        # that those that have come are served from the next start on, as by Kafka's coordinators.
        known = zip(self.shards, topic.partitions, strict=False)
        for index, (shard, partition) in enumerate(known):
            is_alone = shard.is_alone and partition.replicas == (node_id,)
            leads = partition.leader == node_id
            # Between two epochs another replica may have led, and written; where there is none,
            # nobody has, and members need not hear of it.
            is_another = not is_alone and partition.leader_epoch != shard.leader_epoch
            if leads and (shard.is_closed or is_another):
                self._resign(index)
                self._load_anew(index)
            elif leads:
                shard.leader_epoch = partition.leader_epoch
                shard.is_alone = partition.replicas == (node_id,)
            elif partition.leader != NO_LEADER or not is_alone:
                self._resign(index)

    def _resign(self, index: int) -> None:
        """Another broker may serve the partition: who waits here is told, and what was loaded is
        let go."""
        shard = self.shards[index]
        if not shard.is_closed:
            shard.resign()
            self.shards[index] = resigned = self._new_shard(index)
            resigned.state = CLOSED

    def _load_anew(self, index: int) -> None:
        """This broker leads a partition that it has not served."""
        self.shards[index] = shard = self._new_shard(index)
        self._begin_loading(shard)

    def _begin_loading(self, shard: Shard[M]) -> None:
        """Has a shard loaded if this broker leads its partition, after those of its directory that
        are being loaded."""
        topic = self._host.image.topics[self._topic.name]
        partition = topic.partitions[shard.partition]
        shard.leader_epoch = partition.leader_epoch
        shard.is_alone = partition.replicas == (self._host.cluster.node_id,)
        if partition.leader != self._host.cluster.node_id:
            shard.state = CLOSED
            return
        loading = shard.load()
        if loading is None:
            return
        queue = self._loading.get(loading.directory)
        if queue is None:
            self._loading[loading.directory] = queue = [loading]
            self._host.tasks.start(self._load(loading.directory, queue))
        else:
            queue.append(loading)

    def _new_shard(self, index: int) -> Shard[M]:
        topic = self._topic
        machine = self._make_machine(index)
        return Shard(
            self._host,
            topic.name,
            index,
            machine,
            topic.serde,
            self._codec,
            topic.write_timeout_ms,
        )

    def _unload(self) -> None:
        for shard in self.shards:
            shard.unload()

    def on_topics(self, deleted: Sequence[str]) -> None:
        """Other topics were deleted."""
        for shard in self.shards:
            shard.on_topics(deleted)

    # --- loading ----------------------------------------------------------------------------------

    def _take_shards(self, count: int) -> None:
        self._partitions.clear()
        self.shards = [self._new_shard(index) for index in range(count)]
        for shard in self.shards:
            self._begin_loading(shard)

    async def _load(self, directory: str, queue: list[Loading[M]]) -> None:
        """Loads shards of one log directory, piece by piece of the one that is the first then."""
        try:
            while queue:
                if queue[0].shard.state == LOADING:
                    await queue[0].go_on()
                else:
                    del queue[0]
        finally:
            del self._loading[directory]
        if not self._loading:
            gc.freeze()  # as in `loader.py`

    def _load_first(self, shard: Shard[M]) -> None:
        """Somebody asks for the shard."""
        for queue in self._loading.values():
            for index, loading in enumerate(queue):
                if loading.shard is shard:
                    queue.insert(0, queue.pop(index))

    # --- shards -----------------------------------------------------------------------------------

    def partition_of(self, key: str) -> int:
        """The partition that a key belongs to, as in Kafka's `partitionFor`."""
        partition = self._partitions.get(key)
        if partition is None:
            count = len(self.shards)
            if not count:
                topic = self._host.image.topics.get(self._topic.name)
                count = len(topic.partitions) if topic else self._topic.partition_count
            partition = java_hash(key) % count
            if self.shards and len(key) <= KNOWN_CHARACTERS_MAX:
                if len(self._partitions) >= PARTITIONS_KNOWN_MAX:
                    self._partitions.clear()
                self._partitions[key] = partition
        return partition

    def shard_of(self, key: str) -> Shard[M] | None:
        """The key's shard, whatever its state; one that is asked for is loaded before others."""
        if not self.shards:
            return None
        shard = self.shards[self.partition_of(key)]
        if shard.state == LOADING:
            self._load_first(shard)
        return shard

    def find(self, key: str) -> tuple[Shard[M] | None, int]:
        """The key's shard, or None and what to refuse with."""
        shard = self.shard_of(key)
        if shard is None:
            return None, codes.NOT_COORDINATOR
        code = shard.refusal()
        return (None, code) if code else (shard, codes.NONE)

    def find_to_write(
        self, key: str, held_up: int = codes.COORDINATOR_NOT_AVAILABLE
    ) -> tuple[Shard[M] | None, int]:
        """As `find`, for what is written, or waits for what is being written. The refusal of a
        partition that is held up is that of Kafka for a write that took too long, and for one for
        which too few replicas are in sync."""
        shard, code = self.find(key)
        if shard is not None and shard.is_held_up:
            return None, held_up
        return shard, code

    @property
    def is_loading(self) -> bool:
        """Some shards are not loaded yet, or none is there yet of a topic that is."""
        if not self.shards:
            return self._topic.name in self._host.image.topics
        return any(shard.state == LOADING for shard in self.shards)
