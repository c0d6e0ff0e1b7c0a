"""The active controller: has changes of the metadata written, and their effects made.

    a request ──► the lock (`write_lock.py`) ──► judged ──► a change ──► Writer.submit
                                                                               │ MetadataDelta
    clients see it ◄── Publisher ◄── logs, of topics that are changing ◄── lock is let go

    create_topics       records ──► logs ──► clients see them; a failure: records that remove them
    create_partitions   logs ──► records ──► clients see them
    delete_topics       records ──► out of sight ──► logs

Each change is a coroutine that is a task of its own (`kafkalite.tasks`), begun by who holds the
lock: it takes that over, and goes on whatever becomes of the request. It raises ControllerError
where it cannot be. A topic whose logs are being made is changing until then, and is not deleted,
nor does it grow. Used by the control thread only, once the node serves.

Kafka: `QuorumController`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from kafkalite import _native
from kafkalite.errors import KafkaliteError
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.configs import Resource, config_records
from kafkalite.metadata.controller.features import feature_records
from kafkalite.metadata.controller.partitions import Assignment, count_new, grow
from kafkalite.metadata.controller.producer_ids import next_block
from kafkalite.metadata.controller.topics import (
    NewTopic,
    count_partitions,
    creation_records,
    removal_records,
)
from kafkalite.metadata.fold import MetadataDelta
from kafkalite.metadata.image import Image
from kafkalite.metadata.publisher import Publisher, TopicState
from kafkalite.metadata.write_lock import WriteLock
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Future


class Writer(Protocol):
    """Writes records: a single node (`kafkalite.metadata.solo`), or a quorum."""

    @property
    def image(self) -> Image: ...
    async def submit(self, records: Sequence[Any]) -> MetadataDelta: ...


class Controller:
    """See above."""

    def __init__(self, node_id: int, writer: Writer, publisher: Publisher, lock: WriteLock) -> None:
        self._node_id = node_id
        self._writer = writer
        self._publisher = publisher
        self._lock = lock
        self._producer_ids = iter(range(0))
        self.preferred: Callable[[str, int], bytes | None] = _no_directory
        """The id of the log directory in which a new partition is to lie, if that was said."""

    async def create_topics(self, wanted: Sequence[NewTopic]) -> dict[str, bytes]:
        """Makes topics, which must have been checked, by one flush of the metadata: all of them, or
        none if the metadata cannot be written or a log not be made. Returns their ids."""
        count_partitions(wanted)
        new = [(each.name, index) for each in wanted for index in range(each.partition_count)]
        assignments = self._assign(new)
        topic_ids = {each.name: _native.random_uuid_bytes() for each in wanted}
        records = creation_records(wanted, topic_ids, assignments)
        with self._lock.changing(topic_ids, are_new=True):
            delta = await self._submit(records)
            states = self._publisher.states(delta.image, delta.changed_topics)
            try:
                await self._make_logs(states)
            except ControllerError:
                # Kafka's broker takes the directory offline, and the topic stays, without logs.
                await self._remove(topic_ids.values())
                raise
            self._publish_topics(states)
        return topic_ids

    async def _remove(self, topic_ids: Collection[bytes]) -> None:
        async with self._lock.held():
            await self._submit([messages.RemoveTopicRecord(topic_id=each) for each in topic_ids])

    async def create_partitions(self, total_counts: Mapping[str, int]) -> None:
        """Gives topics more partitions, so that each has its total, by one flush of the metadata:
        all of them, or none if a log cannot be made or the metadata not be written."""
        count_new(self._writer.image, total_counts)
        topics = self._writer.image.topics
        new = [
            (name, index)
            for name, total in total_counts.items()
            for index in range(len(topics[name].partitions), total)
        ]
        assignments = self._assign(new)
        growth = grow(self._writer.image, total_counts, assignments)
        states = self._publisher.states(self._writer.image, growth.topics)
        with self._lock.changing(states, are_new=False):
            self._lock.take_over().release()
            # Before the records: the metadata has none that takes a partition away.
            await self._make_logs(states)
            async with self._lock.held():
                await self._submit(growth.records)
            self._publish_topics(states)

    async def delete_topics(self, names: Sequence[str]) -> Future[None]:
        """Takes topics away, with their records and configs. The future is done when their logs
        are gone, too; it fails where a log directory is offline over it, as in Kafka."""
        await self._submit(removal_records(self._writer.image, names))
        return self._publisher.delete_topics(names)

    async def set_configs(self, changes: Mapping[Resource, Mapping[str, str | None]]) -> None:
        """Sets configs of resources, None removes one, by one flush of the metadata: all of them,
        or none. They must have been checked. A change of nothing writes nothing."""
        records = config_records(self._writer.image, changes)
        if records:
            await self._submit(records)

    async def update_features(self, levels: Mapping[str, int]) -> None:
        """Finalises features at levels, all of them or none. They must have been checked."""
        await self._submit(feature_records(levels))

    def next_producer_id(self) -> int | None:
        """A producer id that nobody else was given, of this node's block; None where that is used
        up. Nobody needs the lock for it."""
        return next(self._producer_ids, None)

    async def allocate_producer_ids(self) -> None:
        """Takes another block of producer ids."""
        image = self._writer.image
        ids, record = next_block(image, image.brokers[self._node_id])
        await self._submit([record])
        self._producer_ids = iter(ids)

    async def assign_directories(self, assignments: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Has the metadata say in which log directories replicas lie: topic id, partition, id of
        the directory. A partition that is not there any more is passed over."""
        async with self._lock.held():
            topics = {each.id: each for each in self._writer.image.topics.values()}
            records = [
                messages.PartitionChangeRecord(
                    topic_id=topic_id, partition_id=index, directories=[directory]
                )
                for topic_id, index, directory in assignments
                if topic_id in topics and index < len(topics[topic_id].partitions)
            ]
            if not records:
                return
            delta = await self._submit(records)
        self._publish_topics(self._publisher.states(delta.image, delta.changed_topics))

    async def _submit(self, records: Sequence[Any]) -> MetadataDelta:
        """Takes the lock over, and lets it go when the records are in the image, or never will be.
        Configurations and features that they change hold then."""
        hold = self._lock.take_over()
        try:
            delta = await self._writer.submit(records)
        finally:
            hold.release()
        self._publisher.publish(delta)
        return delta

    def _assign(self, new: Sequence[tuple[str, int]]) -> list[Assignment]:
        """Places new partitions."""
        try:
            directories = self._publisher.place(len(new))
        except KafkaliteError as error:
            raise _logs_not_made(error) from error
        return [
            Assignment((self._node_id,), (self.preferred(*place) or directory,))
            for place, directory in zip(new, directories, strict=True)
        ]

    async def _make_logs(self, states: Mapping[str, TopicState]) -> None:
        try:
            await self._publisher.make_logs(states)
        except KafkaliteError as error:
            raise _logs_not_made(error) from None

    def _publish_topics(self, made: Mapping[str, TopicState]) -> None:
        try:
            self._publisher.publish_topics(self._writer.image, made)
        except KafkaliteError as error:
            raise _logs_not_made(error) from error


def _logs_not_made(error: KafkaliteError) -> ControllerError:
    return ControllerError(codes.KAFKA_STORAGE_ERROR, f"the logs cannot be created: {error}")


def _no_directory(_topic: str, _index: int) -> None:
    """Nobody has said anything."""
